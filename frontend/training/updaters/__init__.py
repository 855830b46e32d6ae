"""Updaters: what a trainer does in every iteration."""

from .parallel_updater import ParallelUpdater
from .standard_updater import StandardUpdater

__all__ = ["ParallelUpdater", "StandardUpdater"]
