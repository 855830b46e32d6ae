"""Updaters: what a trainer does in every iteration."""

from .multiprocess_parallel_updater import MultiprocessParallelUpdater
from .parallel_updater import ParallelUpdater
from .standard_updater import StandardUpdater

__all__ = ["MultiprocessParallelUpdater", "ParallelUpdater", "StandardUpdater"]
