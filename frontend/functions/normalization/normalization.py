"""Batch, layer, group and local response normalization."""
from __future__ import annotations

import warnings
from typing import Any

import numpy as np

from ...configuration import config
from ...tape import composed
from ...utils import type_check
from ...utils.arrays import for_arrays
from ...variable import Variable, as_variable
from ..array.rearrange import pad
from ..array.shape import reshape
from ..math.exponential import square
from ..noise.dropout import reject
from .statistics import FixedStandardize, Standardize


class BatchNormalization(Standardize):
    """Normalization of every channel over the batch."""


class LayerNormalization(Standardize):
    """Normalization of every sample over its features."""


def _axes(x: Any, gamma: Any, axis: Any) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return the axes of the statistics and those of gamma."""
    ndim = x.ndim
    if axis is None:
        axes = (0, *range(gamma.ndim + 1, ndim))
    else:
        axes = (axis,) if isinstance(axis, int) else tuple(axis)
        if any(a >= b for a, b in zip(axes, axes[1:], strict=False)):
            raise ValueError(f"numbers in axis must be sorted in ascending order, got {axes}")
    return axes, tuple([i for i in range(ndim) if i not in axes])


@for_arrays
def batch_normalization(x: Any, gamma: Any, beta: Any, **kwargs: Any) -> Variable:
    """Normalize by the mean and variance of the batch, then scale and shift.

    Args:
        x: Floating-point input; channels along axis 1, unless ``axis`` says otherwise.
        gamma: Scales, of the shape of one sample without the axes of the statistics.
        beta: Shifts, of the same shape.
        eps (float): Keyword only, 2e-5. Added to the variance.
        running_mean (array): Keyword only. Updated in place: ``decay * running + (1 - decay) * batch``.
        running_var (array): Keyword only. Updated in place in the same way, with the unbiased variance.
        decay (float): Keyword only, 0.9.
        axis (int or tuple of int): Keyword only. Axes of the statistics; None: all but those of gamma.

    Raises:
        InvalidType: The shapes or dtypes do not fit.
        TypeError: ``running_mean`` is given and ``running_var`` is not.

    See: Ioffe and Szegedy, `Batch Normalization <https://arxiv.org/abs/1502.03167>`_, 2015.
    """
    eps, decay = kwargs.pop("eps", 2e-5), kwargs.pop("decay", 0.9)
    running = kwargs.pop("running_mean", None), kwargs.pop("running_var", None)
    axis = kwargs.pop("axis", None)
    reject(kwargs, train="use kusari.using_config('train', ...)", use_cudnn="use kusari.using_config('use_cudnn', ...)")
    if running[0] is not None and running[1] is None:
        raise TypeError("batch_normalization needs running_var too where it is given running_mean, got None")
    axes, key = _axes(x, gamma, axis)
    if all(x.shape[a] == 1 for a in axes):
        warnings.warn("batch_normalization got a batch of one sample, or of one element of each channel: the result is "
                      "beta, whatever the sample. Is config.train true by mistake?", UserWarning, stacklevel=2)
    node = BatchNormalization(axes, key, float(eps), float(decay))
    inputs = [x, gamma, beta]
    if running[0] is not None and running[1] is not None and not config.in_recomputing:
        inputs += running
    return node.apply(tuple(inputs))[0]


@for_arrays
def fixed_batch_normalization(x: Any, gamma: Any, beta: Any, mean: Any, var: Any, eps: float = 2e-5,
                              axis: Any = None) -> Variable:
    """Normalize by given means and variances, then scale and shift.

    Args:
        x: Floating-point input.
        gamma: Scales.
        beta: Shifts.
        mean: Means.
        var: Variances; all four of one shape, as in `batch_normalization`.
        eps: Added to the variance.
        axis: As in `batch_normalization`.

    Raises:
        InvalidType: The shapes or dtypes do not fit.
    """
    return FixedStandardize(_axes(x, gamma, axis)[1], float(eps)).apply((x, gamma, beta, mean, var))[0]


@for_arrays
def layer_normalization(x: Any, gamma: Any, beta: Any, eps: float = 1e-5) -> Variable:
    """Normalize every row by its own mean and variance, then scale and shift.

    Args:
        x: Floating-point input of shape (N, K).
        gamma: Scales, (K,).
        beta: Shifts, (K,).
        eps: Added to the variance.

    Raises:
        InvalidType: The shapes or dtypes do not fit.

    See: Ba et al., `Layer Normalization <https://arxiv.org/abs/1607.06450>`_, 2016.
    """
    if x.ndim != 2:
        raise type_check.InvalidType("x.ndim == 2", f"{x.ndim} != 2",
                                     "\nInvalid operation is performed in: LayerNormalization (Forward)")
    return LayerNormalization((1,), (1,), float(eps)).apply((x, gamma, beta))[0]


def _group_onnx(g: Any, x: str, groups: int, gamma: str, beta: str, eps: float) -> Any:
    if g.opset < 21:  # what opset 18 has takes a scale per group
        return NotImplemented
    return g.GroupNormalization(x, gamma, beta, epsilon=float(eps), num_groups=groups)


@composed(onnx=_group_onnx, name="GroupNormalization")
def group_normalization(x: Any, groups: int, gamma: Any, beta: Any, eps: float = 1e-5) -> Variable:
    """Normalize every group of channels of every sample, then scale and shift each channel.

    Args:
        x: Floating-point input of shape (N, C, …).
        groups: Number of groups; divides C.
        gamma: Scales, (C,).
        beta: Shifts, (C,).
        eps: Added to the variance.

    Raises:
        ValueError: ``x`` has fewer than two axes, or ``groups`` does not divide C.
        TypeError: ``groups`` is no int.
        InvalidType: ``gamma`` or ``beta`` have another shape, or the dtypes do not fit.

    See: Wu and He, `Group Normalization <https://arxiv.org/abs/1803.08494>`_, 2018.
    """
    if not isinstance(groups, int):
        raise TypeError(f"argument 'groups' must be an int, got {groups!r}")
    x = as_variable(x)
    if x.ndim < 2:
        raise ValueError(f"input dimension must be at least 2, including batch size and channels; got {x.ndim}")
    n, c = x.shape[:2]
    if groups < 1 or c % groups:
        raise ValueError(f"argument 'groups' must divide the number of channels, got {groups} for {c}")
    gamma, beta = as_variable(gamma), as_variable(beta)
    if gamma.shape != (c,) or beta.shape != (c,) or gamma.dtype.kind != "f" or gamma.dtype != beta.dtype:
        raise type_check.InvalidType(f"gamma, beta: floating-point ({c},)",
                                     f"{gamma.dtype}{gamma.shape}, {beta.dtype}{beta.shape}",
                                     "\nInvalid operation is performed in: GroupNormalization (Forward)")
    wide = reshape(x, (n, groups, c // groups, *x.shape[2:]))
    shape = (groups, c // groups)
    y = Standardize(tuple(range(2, wide.ndim)), (1, 2), float(eps)).apply(
        (wide, reshape(gamma, shape), reshape(beta, shape)))[0]
    return reshape(y, x.shape)


def _local_onnx(g: Any, x: str, n: int, k: float, alpha: float, beta: float) -> Any:
    t, size = g.type(x), n // 2 * 2 + 1
    if t.dtype != np.float32 or len(t.shape) != 4:  # others are not to be had everywhere
        return NotImplemented
    return g.LRN(x, alpha=float(alpha) * size, beta=float(beta), bias=float(k), size=size)


@composed(onnx=_local_onnx, name="LocalResponseNormalization")
def local_response_normalization(x: Any, n: int = 5, k: float = 2, alpha: float = 1e-4,
                                 beta: float = 0.75) -> Variable:
    """Divide by a power of the sum of squares over neighbouring channels: ``x / (k + alpha * sum) ** beta``.

    Args:
        x: Floating-point input of shape (N, C, …).
        n: Width of the neighbourhood.
        k: Added to the sum.
        alpha: Factor of the sum.
        beta: Exponent.

    Raises:
        InvalidType: ``x`` is not floating-point, or has no axis of channels.

    See: Krizhevsky et al., `ImageNet Classification with Deep Convolutional Neural Networks
    <https://papers.nips.cc/paper/4824>`_, 2012.
    """
    x = as_variable(x)
    if x.ndim < 2 or x.dtype.kind != "f":
        raise type_check.InvalidType("x: floating-point, x.ndim >= 2", f"{x.dtype}{x.shape}",
                                     "\nInvalid operation is performed in: LocalResponseNormalization (Forward)")
    half, c = n // 2, x.shape[1]
    squares = pad(square(x), ((0, 0), (half, half), *((0, 0),) * (x.ndim - 2)), "constant")
    total = squares[:, :c]
    for i in range(1, 2 * half + 1):
        total = total + squares[:, i:i + c]
    return x * (total * alpha + k) ** -beta
