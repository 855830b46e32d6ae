"""The stand-in for ChainerX, which says that it is not available.

Chainer scripts ``import chainerx`` to test ``device.xp is chainerx``; Chainer itself ships the same answer on
machines where its native array library was not built.  Kusari computes with NumPy and CuPy only.

    >>> from kusari import chainerx
    >>> chainerx.is_available()
    False
"""

from __future__ import annotations

from typing import Any

__all__ = ["is_available", "ndarray"]


class ndarray:
    """The type that no array has; it exists so that ``isinstance(x, chainerx.ndarray)`` answers."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        raise RuntimeError("ChainerX arrays are not available in Kusari; use NumPy or CuPy arrays.")


def is_available() -> bool:
    """Whether ChainerX can be used: never."""
    return False


def __getattr__(name: str) -> Any:
    raise AttributeError(f"chainerx.{name}: ChainerX is not available in Kusari; use numpy or cupy in its place.")
