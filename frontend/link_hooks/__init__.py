"""The link hooks that come with Kusari."""

from .timer import TimerHook as TimerHook
from .weights import SpectralNormalization as SpectralNormalization
from .weights import WeightStandardization as WeightStandardization

__all__ = ["SpectralNormalization", "TimerHook", "WeightStandardization"]
