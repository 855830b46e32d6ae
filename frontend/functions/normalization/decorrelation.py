"""Decorrelated batch normalization."""
from __future__ import annotations

from typing import Any

from ... import backend
from ...broadcasting import broadcast_to
from ...configuration import config
from ...function_node import FunctionNode
from ...structured import Structured
from ...utils import type_check
from ...variable import Variable, as_variable
from ..array.axes import swapaxes
from ..array.cast import cast
from ..array.shape import reshape
from ..math.matmul import matmul
from ..math.statistics import mean as mean_
from .statistics import mix_in, wide


def _turned(xp: Any, a: Any) -> Any:
    return a.swapaxes(-1, -2)


class InverseRoot(FunctionNode):
    """``(a + eps I) ** -0.5`` of symmetric matrices, positive definite, (G, C, C)."""

    pure = True

    def __init__(self, eps: float) -> None:
        super().__init__()
        self.eps = eps

    def forward(self, inputs: tuple[Any, ...]) -> tuple[Any, ...]:
        a, = inputs
        self.retain_inputs((0,))
        self.retain_outputs((0,))
        if hasattr(a, "instead"):  # gradients are derived on stand-ins
            return a.instead(a.shape, a.dtype),
        xp = backend.get_array_module(a)
        work = wide(a.dtype)
        values, vectors = xp.linalg.eigh(a + self.eps * xp.eye(a.shape[-1], dtype=work))
        return xp.matmul(vectors / xp.sqrt(values)[:, None, :], _turned(xp, vectors)).astype(a.dtype, copy=False),

    def backward(self, indexes: tuple[int, ...], grad_outputs: tuple[Any, ...]) -> tuple[Any, ...]:
        # The root's own derivative solves root X + X root = da.
        a, = self.get_retained_inputs()
        y, = self.get_retained_outputs()
        root = matmul(a, y) + y * self.eps
        return Sylvester().apply((root, -matmul(matmul(y, grad_outputs[0]), y)))[0],


class Sylvester(FunctionNode):
    """The solution X of ``a X + X a = b`` for symmetric, positive definite matrices a: inputs ``a, b``."""

    pure = True

    def forward(self, inputs: tuple[Any, ...]) -> tuple[Any, ...]:
        a, b = inputs
        self.retain_inputs((0,))
        self.retain_outputs((0,))
        if hasattr(a, "instead"):
            return a.instead(a.shape, a.dtype),
        xp = backend.get_array_module(a)
        values, vectors = xp.linalg.eigh(((a + _turned(xp, a)) * 0.5).astype(wide(a.dtype), copy=False))
        turned = _turned(xp, vectors)
        inner = xp.matmul(xp.matmul(turned, b), vectors) / (values[:, :, None] + values[:, None, :])
        return xp.matmul(xp.matmul(vectors, inner), turned).astype(a.dtype, copy=False),

    def backward(self, indexes: tuple[int, ...], grad_outputs: tuple[Any, ...]) -> tuple[Any, ...]:
        a, = self.get_retained_inputs()
        x, = self.get_retained_outputs()
        z = Sylvester().apply((a, grad_outputs[0]))[0]
        return tuple([z if i == 1 else -(matmul(z, x, transb=True) + matmul(x, z, transa=True)) for i in indexes])


class KeepStatistics(Structured):
    """The projection, with running statistics updated in place: ``projection, mean, running_mean, running_projection``.

    The running projection takes the new one times ``factor``.
    """

    def __init__(self, decay: float, factor: float) -> None:
        super().__init__()
        self.decay = decay
        self.factor = factor

    def lower(self, b: Any, projection: Any, mean: Any, *running: Any) -> tuple[Any, ...]:
        for state, new, f in zip(running, (mean, projection), (1.0, self.factor), strict=True):
            mix_in(b, state, new, self.decay, (1 - self.decay) * f)
        return b.call("add", projection, 0.0),


def _grouped(x: Any, groups: int) -> Variable:
    """Channels in groups, all the rest in one axis: (groups, channels, rest)."""
    x = as_variable(x)
    where = "\nInvalid operation is performed in: DecorrelatedBatchNormalization (Forward)"
    if x.dtype.kind != "f" or x.ndim < 2:
        raise type_check.InvalidType("x: floating-point, of two axes or more", f"{x.dtype}{x.shape}", where)
    if groups < 1 or x.shape[1] % groups:
        raise type_check.InvalidType(f"x.shape[1] % {groups} == 0", f"{x.shape[1]} % {groups} != 0", where)
    return reshape(swapaxes(x, 0, 1), (groups, x.shape[1] // groups, x.size // max(x.shape[1], 1)))


def _back(y: Any, shape: tuple[int, ...]) -> Variable:
    return swapaxes(reshape(y, (shape[1], shape[0], *shape[2:])), 0, 1)


def decorrelated_batch_normalization(x: Any, **kwargs: Any) -> Variable:
    """Normalize by the batch's means and covariances: groups of channels come out uncorrelated, with variance 1.

    Args:
        x: Floating-point input (N, C, …).
        groups (int): Keyword only, 16. Number of groups of channels; divides C.
        eps (float): Keyword only, 2e-5. Added to the variances.
        running_mean (array): Keyword only. (groups, C / groups), updated in place.
        running_projection (array): Keyword only. (groups, C / groups, C / groups), updated in place.
        decay (float): Keyword only, 0.9. Weight of the old running statistics in their update.

    Raises:
        TypeError: Another keyword is given.
        InvalidType: ``groups`` does not divide the channels, or ``x`` is not floating-point.

    See: Huang et al., `Decorrelated Batch Normalization <https://arxiv.org/abs/1804.08450>`_, 2018.

    >>> import numpy as np
    >>> import kusari.functions as F
    >>> x = np.array([[0, 1], [2, 5], [4, 3]], "f")
    >>> y = F.decorrelated_batch_normalization(x, groups=1).array
    >>> (y.T @ y / 3).round(2)
    array([[1., 0.],
           [0., 1.]], dtype=float32)
    """
    groups, eps, decay = kwargs.pop("groups", 16), kwargs.pop("eps", 2e-5), kwargs.pop("decay", 0.9)
    running = kwargs.pop("running_mean", None), kwargs.pop("running_projection", None)
    if kwargs:
        raise TypeError(f"decorrelated_batch_normalization() got unexpected keyword argument(s) {sorted(kwargs)}")
    x = as_variable(x)
    wide = _grouped(x, int(groups))
    m = wide.shape[2]
    mean = mean_(wide, axis=2, keepdims=True)
    centred = wide - broadcast_to(mean, wide.shape)
    projection = InverseRoot(float(eps)).apply((matmul(centred, centred, transb=True) / max(m, 1),))[0]
    if running[0] is not None and running[1] is not None and not config.in_recomputing:
        # Chainer keeps the unbiased estimate's factor, though the projection is the root of an inverse.
        projection = KeepStatistics(float(decay), m / max(m - 1.0, 1.0)).apply((projection, mean, *running))[0]
    return _back(matmul(projection, centred), x.shape)


def fixed_decorrelated_batch_normalization(x: Any, mean: Any, projection: Any, groups: int = 16) -> Variable:
    """Normalize by given means and projections.

    Args:
        x: Floating-point input (N, C, …).
        mean: Means, (groups, C / groups).
        projection: Matrices that decorrelate, (groups, C / groups, C / groups).
        groups: Number of groups of channels; divides C.

    Raises:
        InvalidType: The shapes or dtypes do not fit.
    """
    x = as_variable(x)
    mean, projection = (cast(as_variable(v), x.dtype) for v in (mean, projection))
    wide = _grouped(x, int(groups))
    if mean.shape != wide.shape[:2]:
        raise type_check.InvalidType(f"mean.shape == {wide.shape[:2]}", f"{mean.shape}")
    return _back(matmul(projection, wide - broadcast_to(reshape(mean, (*mean.shape, 1)), wide.shape)), x.shape)


