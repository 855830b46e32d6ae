"""The link hooks that come with Kusari."""

from .timer import TimerHook as TimerHook

__all__ = ["TimerHook"]
