"""Which classes are arrays."""
from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy

from .backends import chainerx, cuda
from .backends.chainerx import is_chainerx_array


def get_cpu_array_types() -> tuple[type, ...]:
    """Return the array classes of the processor."""
    return (numpy.ndarray,)


def get_array_types() -> tuple[type, ...]:
    """Return all array classes that can be used here."""
    ndarray = chainerx.loaded().ndarray
    return (numpy.ndarray, cuda.ndarray, ndarray) if cuda.available else (numpy.ndarray, ndarray)


def is_arrays_compatible(arrays: Iterable[Any]) -> bool:
    """Return whether the arrays (None aside) are all of one kind, so that a function can take them together."""
    given = [array for array in arrays if array is not None]
    return any(all(map(kind, given)) for kind in (_is_numpy_array, cuda.is_cupy_array, is_chainerx_array))


def _is_numpy_array(array: Any) -> bool:
    return isinstance(array, numpy.ndarray)
