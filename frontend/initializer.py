"""The base class of initializers, and what a weight's shape says about its fans."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from .backends.chainerx import from_chx, is_chainerx_array

__all__ = ["Initializer", "get_fans"]


class Initializer:
    """Something that fills an array in place with initial values.

    Args:
        dtype: The dtype that arrays made for this initializer have; None leaves it to ``config.dtype``.

    A subclass overrides ``__call__(array)``:

    >>> class Ramp(kusari.initializer.Initializer):
    ...     def __call__(self, array):
    ...         array[...] = np.arange(array.size).reshape(array.shape)
    >>> L.Linear(3, 2, initialW=Ramp()).W.array
    array([[0., 1., 2.],
           [3., 4., 5.]], dtype=float32)
    """

    def __init__(self, dtype: Any = None) -> None:
        self.dtype: Any = dtype

    def __call__(self, array: Any) -> None:
        """Fill ``array`` in place."""
        raise NotImplementedError(f"{type(self).__name__} must override __call__(array), which fills it in place")

    def _elements_of(self, array: Any) -> Any:
        """Return what to fill, an array of NumPy's or CuPy's that shares its memory with an array of ChainerX's."""
        array = from_chx(array) if is_chainerx_array(array) else array
        if self.dtype is not None and array.dtype != np.dtype(self.dtype):
            raise TypeError(
                f"{type(self).__name__} was made for arrays of {np.dtype(self.dtype)}, but got one of {array.dtype}"
            )
        return array


def get_fans(shape: Sequence[int]) -> tuple[int, int]:
    """Return ``(fan_in, fan_out)`` of a weight of ``shape``: (outputs, inputs, kernel sizes…).

    Raises:
        ValueError: ``shape`` has fewer than two dimensions.

    >>> kusari.initializer.get_fans((4, 3, 5, 5))
    (75, 100)
    """
    shape = tuple(shape)
    if len(shape) < 2:
        raise ValueError(
            f"shape must be of length >= 2 to tell inputs from outputs. Actual shape: {shape}. "
            "For a vector use an initializer that does not scale by fans, such as Normal or a number."
        )
    receptive = math.prod(shape[2:])
    return shape[1] * receptive, shape[0] * receptive
