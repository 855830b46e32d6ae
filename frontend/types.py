"""Which classes are arrays."""
from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy

from .backends import cuda


def get_cpu_array_types() -> tuple[type, ...]:
    """Return the array classes of the processor."""
    return (numpy.ndarray,)


def get_array_types() -> tuple[type, ...]:
    """Return all array classes that can be used here."""
    return (numpy.ndarray, cuda.ndarray) if cuda.available else (numpy.ndarray,)


def is_arrays_compatible(arrays: Iterable[Any]) -> bool:
    """Return whether the arrays (None aside) are all of one kind, so that a function can take them together."""
    given = [array for array in arrays if array is not None]
    return all(isinstance(x, numpy.ndarray) for x in given) or all(map(cuda.is_cupy_array, given))
