"""Updaters: what a trainer does in every iteration."""

from .. import updater as _updater
from .multiprocess_parallel_updater import MultiprocessParallelUpdater
from .parallel_updater import ParallelUpdater
from .standard_updater import StandardUpdater

__all__ = ["MultiprocessParallelUpdater", "ParallelUpdater", "StandardUpdater"]

_updater.MultiprocessParallelUpdater = MultiprocessParallelUpdater
_updater.ParallelUpdater = ParallelUpdater
_updater.StandardUpdater = StandardUpdater
