"""Comparing arrays wherever they are."""
from __future__ import annotations

from typing import Any

import numpy

from ..backend import get_device_from_array, using_device
from ..backends import cuda
from ..variable import as_array


def assert_allclose(x: Any, y: Any, atol: float = 1e-5, rtol: float = 1e-4, verbose: bool = True) -> None:
    """Raise AssertionError unless two arrays (or variables), on any device, are close to each other.

    Args:
        x: The values.
        y: The values wanted.
        atol (float): Absolute tolerance.
        rtol (float): Tolerance relative to `y`.
        verbose (bool): Show the values in the message.

    Example:
        >>> assert_allclose(numpy.ones(2), numpy.ones(2) + 1e-6)
    """
    actual = cuda.to_cpu(as_array(x))
    wanted = cuda.to_cpu(as_array(y))
    numpy.testing.assert_allclose(actual, wanted, atol=atol, rtol=rtol, verbose=verbose)


def _as_noncontiguous_array(array: Any) -> Any:
    """The same values with gaps between them, and backward in memory along every axis; of lists and tuples likewise."""
    if isinstance(array, (list, tuple)):
        return type(array)(map(_as_noncontiguous_array, array))
    if array is None or array.size < 2:
        return array
    every_second = (slice(None, None, -2),) * array.ndim
    device = get_device_from_array(array)
    with using_device(device):
        wide = device.xp.empty(tuple([2 * n for n in array.shape]), array.dtype)
        wide[every_second] = array
        return wide[every_second]
