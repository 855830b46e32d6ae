"""Comparing arrays wherever they are."""
from __future__ import annotations

from typing import Any

import numpy

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
