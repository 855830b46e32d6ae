"""Functions of neural networks: activations, layers, losses, normalization, pooling."""
from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ... import functions as F
from ..apply import apply, plain
from ..arrays import ndarray
from ..dtypes import floating, result_type
from ..errors import DimensionError

__all__ = [
    "absolute_error", "accuracy", "average_pool", "batch_norm", "clipped_relu", "conv", "conv_transpose", "crelu",
    "elu", "fixed_batch_norm", "gaussian_kl_divergence", "hinge", "huber_loss", "leaky_relu", "linear", "lstm",
    "max_pool", "relu", "sigmoid", "sigmoid_cross_entropy", "slstm", "softmax_cross_entropy", "softplus",
    "squared_error", "tree_lstm",
]


def _common(function: Callable[..., Any], *xs: Any) -> Any:
    """Apply a function to arrays in their common floating point type; None stays None."""
    dtype = floating(result_type(*[x for x in xs if x is not None]))
    return apply(function, *xs, dtype=dtype)


def _product(function: Callable[..., Any], *xs: Any) -> Any:
    """Apply a function of sums of products to arrays in their common type; integers are exact in float64 up to 2^53."""
    dtype = result_type(*[x for x in xs if x is not None])
    if dtype.kind == "f":
        return apply(function, *xs, dtype=dtype)
    return plain(lambda y: y, apply(function, *xs, dtype=np.dtype(np.float64)), dtype=dtype)


# Activations

def relu(x: ndarray) -> ndarray:
    """Return the larger of x and 0, elementwise."""
    return _common(F.relu, x)


def sigmoid(x: ndarray) -> ndarray:
    """Return 1 / (1 + exp(-x)), elementwise."""
    return _common(F.sigmoid, x)


def leaky_relu(x: ndarray, slope: float = 0.2) -> ndarray:
    """Return x, and ``slope * x`` where it is negative."""
    return _common(lambda x: F.leaky_relu(x, slope), x)


def elu(x: ndarray, alpha: float = 1.0) -> ndarray:
    """Return x, and ``alpha * (exp(x) - 1)`` where it is negative."""
    return _common(lambda x: F.elu(x, alpha), x)


def clipped_relu(x: ndarray, z: float = 20.0) -> ndarray:
    """Return x limited to the interval from 0 to ``z``."""
    return _common(lambda x: F.clipped_relu(x, z), x)


def crelu(x: ndarray, axis: int = 1) -> ndarray:
    """Return `relu` of x and of -x, joined along an axis."""
    return _common(lambda x: F.crelu(x, axis), x)


def softplus(x: ndarray, beta: float = 1.0) -> ndarray:
    """Return ``log(1 + exp(beta * x)) / beta``, elementwise."""
    return _common(lambda x: F.softplus(x, beta), x)


def lstm(c: ndarray, x: ndarray) -> tuple[ndarray, ndarray]:
    """Return the next cell and the output of long short-term memory, see `kusari.functions.lstm`."""
    return _common(F.lstm, c, x)


def slstm(c_prev1: ndarray, c_prev2: ndarray, x1: ndarray, x2: ndarray) -> tuple[ndarray, ndarray]:
    """Return the next cell and the output of LSTM with two inputs, see `kusari.functions.slstm`."""
    return _common(F.slstm, c_prev1, c_prev2, x1, x2)


def tree_lstm(*inputs: ndarray) -> tuple[ndarray, ndarray]:
    """Return the next cell and the output of LSTM on trees, see `kusari.functions.tree_lstm`."""
    return _common(F.tree_lstm, *inputs)


# Layers

def linear(x: ndarray, W: ndarray, b: ndarray | None = None, n_batch_axes: int = 1) -> ndarray:
    """Return ``x W^T + b``, where the last axes of ``x`` behind ``n_batch_axes`` are one.

    Raises:
        DimensionError: The shapes do not fit.
    """
    size = int(np.prod(x.shape[n_batch_axes:]))
    if not 0 < n_batch_axes < max(x.ndim, 1) or W.ndim != 2 or W.shape[1] != size:
        raise DimensionError(f"shapes {x.shape} and {W.shape} do not fit for {n_batch_axes} axes of batches")
    if b is not None and b.shape != W.shape[:1]:
        raise DimensionError(f"the bias is of shape {b.shape}, not {W.shape[:1]}")
    return _product(lambda x, W, b: F.linear(x, W, b, n_batch_axes), x, W, b)


def _spatial(x: ndarray, value: Any, what: str) -> tuple[int, ...]:
    n = x.ndim - 2
    found = tuple(value) if isinstance(value, (tuple, list)) else (value,) * n
    if len(found) != n:
        raise DimensionError(f"{what} needs {n} numbers, got {len(found)}")
    return found


def _check_conv(x: ndarray, w: ndarray, b: ndarray | None, transposed: bool) -> None:
    channels, outputs = (0, 1) if transposed else (1, 0)
    if x.ndim < 2 or w.ndim != x.ndim or x.shape[1] != w.shape[channels]:
        raise DimensionError(f"an input of shape {x.shape} does not fit weights of shape {w.shape}")
    if b is not None and b.shape != (w.shape[outputs],):
        raise DimensionError(f"the bias is of shape {b.shape}, not {(w.shape[outputs],)}")


def conv(x: ndarray, w: ndarray, b: ndarray | None = None, stride: Any = 1, pad: Any = 0,
         cover_all: bool = False) -> ndarray:  # fmt: skip
    """Return a convolution over any number of axes, see `kusari.functions.convolution_nd`."""
    _check_conv(x, w, b, False)
    steps, margins = _spatial(x, stride, "stride"), _spatial(x, pad, "pad")
    return _product(lambda x, w, b: F.convolution_nd(x, w, b, steps, margins, cover_all), x, w, b)


def conv_transpose(x: ndarray, w: ndarray, b: ndarray | None = None, stride: Any = 1, pad: Any = 0,
                   outsize: Any = None) -> ndarray:  # fmt: skip
    """Return a transposed convolution over any number of axes, see `kusari.functions.deconvolution_nd`."""
    _check_conv(x, w, b, True)
    steps, margins = _spatial(x, stride, "stride"), _spatial(x, pad, "pad")
    size = None if outsize is None else _spatial(x, outsize, "outsize")
    return _product(lambda x, w, b: F.deconvolution_nd(x, w, b, steps, margins, size), x, w, b)


def max_pool(x: ndarray, ksize: Any, stride: Any = None, pad: Any = 0, cover_all: bool = False) -> ndarray:
    """Return the maxima of windows, see `kusari.functions.max_pooling_nd`."""
    size, margins = _spatial(x, ksize, "ksize"), _spatial(x, pad, "pad")
    steps = size if stride is None else _spatial(x, stride, "stride")
    return apply(lambda x: F.max_pooling_nd(x, size, steps, margins, cover_all), x)


def average_pool(x: ndarray, ksize: Any, stride: Any = None, pad: Any = 0, pad_mode: str = "ignore") -> ndarray:
    """Return the means of windows, see `kusari.functions.average_pooling_nd`.

    Args:
        x (ndarray): The array.
        ksize (int or tuple of ints): The size of windows.
        stride (int or tuple of ints): Their distance; None is their size.
        pad (int or tuple of ints): The width of the margin.
        pad_mode (str): ``zero`` counts elements of the margin as zeros, ``ignore`` does not count them.
    """
    if pad_mode not in ("zero", "ignore"):
        raise ValueError(f"pad_mode is 'zero' or 'ignore', not {pad_mode!r}")
    size, margins = _spatial(x, ksize, "ksize"), _spatial(x, pad, "pad")
    steps = size if stride is None else _spatial(x, stride, "stride")
    value = 0 if pad_mode == "zero" else None
    return apply(lambda x: F.average_pooling_nd(x, size, steps, margins, value), x)


# Normalization

def _check_norm(x: ndarray, axis: Any, params: tuple[ndarray, ...]) -> Any:
    axes = (0,) if axis is None else tuple(axis) if isinstance(axis, (tuple, list)) else (axis,)
    shape = tuple([n for k, n in enumerate(x.shape) if k not in axes])
    for one in params:
        if one.shape != shape and one.size != np.prod(shape):
            raise DimensionError(f"expected parameters of shape {shape}, got {one.shape}")
    return axes, shape


def batch_norm(x: ndarray, gamma: ndarray, beta: ndarray, running_mean: ndarray, running_var: ndarray,
               eps: float = 2e-5, decay: float = 0.9, axis: Any = None) -> ndarray:  # fmt: skip
    """Normalize by means and variances of the batch, then scale and shift; running ones are updated."""
    axes, shape = _check_norm(x, axis, (gamma, beta, running_mean, running_var))
    moving = [one._elements.astype(floating(one.dtype), order="C") for one in (running_mean, running_var)]
    y = apply(lambda x, gamma, beta: F.batch_normalization(
        x, gamma, beta, eps=eps, running_mean=moving[0].reshape(shape), running_var=moving[1].reshape(shape),
        decay=decay, axis=axes), x, gamma.reshape(shape), beta.reshape(shape))
    for one, new in zip((running_mean, running_var), moving, strict=True):
        one._elements[...] = new
    return y


def fixed_batch_norm(x: ndarray, gamma: ndarray, beta: ndarray, mean: ndarray, var: ndarray, eps: float = 2e-5,
                     axis: Any = None) -> ndarray:  # fmt: skip
    """Normalize by given means and variances, then scale and shift."""
    axes, shape = _check_norm(x, axis, (gamma, beta, mean, var))
    params = [one.reshape(shape) for one in (gamma, beta, mean, var)]
    return apply(lambda x, *params: F.fixed_batch_normalization(x, *params, eps=eps, axis=axes), x, *params)


# Losses

def absolute_error(x1: ndarray, x2: ndarray) -> ndarray:
    """Return |x1 - x2|, elementwise."""
    return _common(lambda x, t: abs(x - t), x1, x2)


def squared_error(x1: ndarray, x2: ndarray) -> ndarray:
    """Return the square of x1 - x2, elementwise."""
    return _common(lambda x, t: F.square(x - t), x1, x2)


def huber_loss(x1: ndarray, x2: ndarray, delta: float) -> ndarray:
    """Return Huber's loss, elementwise: quadratic up to ``delta``, linear beyond."""
    return _common(lambda x, t: F.huber_loss(x, t, delta, "no"), x1, x2)


def gaussian_kl_divergence(mean: ndarray, ln_var: ndarray) -> ndarray:
    """Return the divergence of normal distributions from the standard one, elementwise."""
    return _common(lambda mean, ln_var: F.gaussian_kl_divergence(mean, ln_var, "no"), mean, ln_var)


def sigmoid_cross_entropy(x1: ndarray, x2: ndarray) -> ndarray:
    """Return the cross entropy of sigmoids with labels 0 and 1, elementwise; -1 is ignored."""
    return apply(lambda x, t: F.sigmoid_cross_entropy(x, t, normalize=False, reduce="no"), x1, x2)


def softmax_cross_entropy(x1: ndarray, x2: ndarray) -> ndarray:
    """Return the cross entropy of softmax with labels, one for each row.

    Raises:
        DimensionError: There are not as many labels as rows.
    """
    if x1.ndim != 2 or x2.shape != x1.shape[:1]:
        raise DimensionError(f"labels of shape {x2.shape} do not fit an array of shape {x1.shape}")
    return apply(lambda x, t: F.softmax_cross_entropy(
        x, t, reduce="no", enable_double_backprop=True), x1.astype(floating(x1.dtype), copy=False), x2)


def hinge(x1: ndarray, x2: ndarray, norm: float = 1.0) -> ndarray:
    """Return the hinge loss, elementwise, to the power of 1 or 2."""
    if norm not in (1.0, 2.0):
        raise ValueError(f"norm is 1 or 2, not {norm}")
    return apply(lambda x, t: F.hinge(x, t, "L1" if norm == 1.0 else "L2", "no"), x1, x2)


def accuracy(y: ndarray, t: ndarray, ignore_label: int | None = None) -> ndarray:
    """Return the share of rows whose largest element is at the label."""
    return apply(lambda y, t: F.accuracy(y, t, ignore_label), y, t).as_grad_stopped()
