"""Initial values of parameters, and :func:`generate_array`, which makes an array with them."""

from __future__ import annotations

import numbers
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from .. import backend
from ..dtypes import get_dtype
from ..initializer import Initializer as Initializer
from ..initializer import get_fans as get_fans
from ..utils.arrays import is_array
from .constant import Constant, Identity, NaN, One, Zero
from .filters import DownsamplingConvFilter, UpsamplingDeconvFilter
from .normal import GlorotNormal, HeNormal, LeCunNormal, Normal
from .orthogonal import Orthogonal
from .uniform import GlorotUniform, HeUniform, LeCunUniform, Uniform

__all__ = [
    "Constant",
    "DownsamplingConvFilter",
    "GlorotNormal",
    "GlorotUniform",
    "HeNormal",
    "HeUniform",
    "Identity",
    "LeCunNormal",
    "LeCunUniform",
    "NaN",
    "Normal",
    "One",
    "Orthogonal",
    "Uniform",
    "UpsamplingDeconvFilter",
    "Zero",
    "generate_array",
]


def generate_array(
    initializer: Callable[[Any], None],
    shape: int | Sequence[int],
    xp: Any = np,
    dtype: Any = None,
    device: Any = None,
) -> Any:
    """Return a new array of ``shape`` filled by ``initializer``.

    Args:
        initializer: A callable that fills an array; its attribute ``dtype``, if it has one, is respected.
        shape: Shape of the array.
        xp: Array module; ``device`` is the more exact way to say it.
        dtype: Dtype of the array; by default that of the initializer, or else ``config.dtype``.
        device: Where the array is made.

    Raises:
        ValueError: ``dtype`` and the initializer's dtype differ.

    >>> kusari.initializers.generate_array(kusari.initializers.One(), (2,), np)
    array([1., 1.], dtype=float32)
    """
    own = getattr(initializer, "dtype", None)
    if own is not None and dtype is not None and np.dtype(own) != np.dtype(dtype):
        raise ValueError(f"dtype mismatch: {dtype} was asked for, but the initializer is for {own}")
    dtype = get_dtype(own if dtype is None else dtype)
    if device is None and xp.__name__ == "kusari.chainerx":
        device = xp.get_default_device()
    if device is not None:
        target = backend.get_device(device)
        with backend.using_device(target.fallback_device):
            array = target.fallback_device.xp.empty(shape, dtype=dtype)
            initializer(array)
        return target.send(array)
    array = xp.empty(shape, dtype=dtype)
    initializer(array)
    return array


def _get_initializer(initializer: Any) -> Any:
    """Return the initializer that an ``initialW=`` argument means: None, a number, an array or a callable."""
    if initializer is None:
        return LeCunNormal()
    if isinstance(initializer, (str, bytes)):
        raise TypeError(f"invalid type of initializer: {type(initializer)}; give a number, an array or an Initializer")
    if isinstance(initializer, (numbers.Number, np.generic)) or is_array(initializer):
        return Constant(initializer)
    if not callable(initializer):
        raise TypeError(f"invalid type of initializer: {type(initializer)}; give a number, an array or an Initializer")
    return initializer


class _Typed(Initializer):
    """Any initializer, for arrays of a dtype that the caller has chosen."""

    def __init__(self, initializer: Callable[[Any], None], dtype: Any) -> None:
        super().__init__(dtype)
        self.initializer = initializer

    def __call__(self, array: Any) -> None:
        self.initializer(array)


def _with_dtype(initializer: Any, dtype: Any) -> Callable[[Any], None]:
    """Return what ``_get_initializer`` does, with ``dtype`` where the initializer has none of its own."""
    found = _get_initializer(initializer)
    return found if getattr(found, "dtype", None) is not None else _Typed(found, dtype)
