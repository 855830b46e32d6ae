"""The training loop: a trainer, its updater, its extensions and the triggers that say when."""

from . import extension, extensions, trainer, trigger, triggers, updater, updaters, util
from .extension import PRIORITY_EDITOR, PRIORITY_READER, PRIORITY_WRITER, Extension, make_extension
from .trainer import Trainer
from .trigger import get_trigger
from .triggers.interval_trigger import IntervalTrigger
from .updater import Updater
from .updaters.parallel_updater import ParallelUpdater
from .updaters.standard_updater import StandardUpdater

__all__ = [
    "PRIORITY_EDITOR",
    "PRIORITY_READER",
    "PRIORITY_WRITER",
    "Extension",
    "IntervalTrigger",
    "ParallelUpdater",
    "StandardUpdater",
    "Trainer",
    "Updater",
    "extension",
    "extensions",
    "get_trigger",
    "make_extension",
    "trainer",
    "trigger",
    "triggers",
    "updater",
    "updaters",
    "util",
]
