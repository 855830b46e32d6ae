"""Initializers that do not draw random numbers."""

from __future__ import annotations

import math
from typing import Any

from .. import backend
from ..initializer import Initializer
from ..utils.arrays import is_array

__all__ = ["Constant", "Identity", "NaN", "One", "Zero"]


class Constant(Initializer):
    """Fills with a number, or with an array that broadcasts to the shape.

    Args:
        fill_value: The number or array.
        dtype: See :class:`~kusari.Initializer`.
    """

    fill_value: Any

    def __init__(self, fill_value: Any, dtype: Any = None) -> None:
        super().__init__(dtype)
        self.fill_value = fill_value

    def __call__(self, array: Any) -> None:
        array = self._elements_of(array)
        value = self.fill_value
        if is_array(value):
            value = backend.get_device_from_array(array).send(value)
        array[...] = value


class _Fixed(Constant):
    """A constant whose value belongs to the class."""

    def __init__(self, dtype: Any = None) -> None:
        Initializer.__init__(self, dtype)


class Zero(_Fixed):
    """Fills with zeros."""

    fill_value = 0.0


class One(_Fixed):
    """Fills with ones."""

    fill_value = 1.0


class NaN(_Fixed):
    """Fills with not-a-numbers, so that a value that was never set is noticed."""

    fill_value = math.nan


class Identity(Initializer):
    """Fills a square matrix with a multiple of the identity.

    Args:
        scale: The value on the diagonal.
        dtype: See :class:`~kusari.Initializer`.

    Raises:
        ValueError: The array is not a square matrix.
    """

    def __init__(self, scale: float = 1.0, dtype: Any = None) -> None:
        super().__init__(dtype)
        self.scale = scale

    def __call__(self, array: Any) -> None:
        array = self._elements_of(array)
        shape = array.shape
        if len(shape) != 2 or shape[0] != shape[1]:
            raise ValueError(
                f"Identity matrix initialization can only be used for 2D squared matrices. Actual shape: {shape}"
            )
        array[...] = 0
        array.flat[:: shape[0] + 1] = self.scale
