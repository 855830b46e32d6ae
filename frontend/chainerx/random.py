"""Arrays of random numbers, drawn by NumPy."""
from __future__ import annotations

from typing import Any

import numpy as np

from .arrays import ndarray
from .routines.creation import array

__all__ = ["normal", "uniform"]


def normal(*args: Any, device: Any = None, **kwargs: Any) -> ndarray:
    """Return normally distributed numbers: ``loc``, ``scale`` and ``size`` are those of `numpy.random.normal`."""
    return array(np.random.normal(*args, **kwargs), device=device, copy=False)


def uniform(*args: Any, device: Any = None, **kwargs: Any) -> ndarray:
    """Return uniformly distributed numbers: ``low``, ``high`` and ``size`` are those of `numpy.random.uniform`."""
    return array(np.random.uniform(*args, **kwargs), device=device, copy=False)
