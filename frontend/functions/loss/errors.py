"""Losses that measure distances between predictions and targets."""
from __future__ import annotations

from typing import Any

import numpy as np

from kusari.ir.symbol import call

from ... import backend
from ...elementwise import elementwise
from ...structured import Structured
from ...tape import composed
from ...utils import type_check
from ...utils.arrays import for_arrays
from ...variable import Variable, as_variable
from ..activation.rectifiers import relu
from ..array.indexing import looked_up
from ..array.shape import reshape
from ..math.exponential import square
from ..math.matmul import matmul
from ..math.pointwise import squared_error
from ..math.reduction import sum as sum_
from ..math.statistics import mean


class _MeanError(Structured):
    """Mean over all elements of a function of the difference."""

    def check_type_forward(self, in_types: Any) -> None:
        type_check.argname(in_types, ("x0", "x1"))
        type_check.expect(in_types[0].dtype.kind == "f", in_types[0].dtype == in_types[1].dtype,
                          in_types[0].shape == in_types[1].shape)

    scalar = ""

    def lower(self, b: Any, x0: Any, x1: Any) -> tuple[Any, ...]:
        dtype = x0.tensor.dtype
        terms = b.map(lambda x0, x1: call(self.scalar, x0 - x1), x0, x1)
        total = b.reduce("sum", b.cast(terms, np.float32) if dtype == np.float16 else terms)
        size = x0.tensor.size
        return b.reshape(b.cast(b.call("multiply", total, 1.0 / size if size else np.nan), dtype), ()),


class MeanSquaredError(_MeanError):
    """Mean of squared differences."""

    scalar = "square"

    def evaluate(self, inputs: tuple[Any, ...]) -> tuple[Any, ...]:  # a product of vectors: faster than squares
        d = (inputs[0] - inputs[1]).ravel()
        xp = np if type(d) is np.ndarray else backend.get_array_module(d)
        y = d.dot(d) / d.size if d.dtype != np.float16 else xp.square(d.astype(np.float32)).mean()
        return xp.asarray(y, d.dtype),


class MeanAbsoluteError(_MeanError):
    """Mean of absolute differences."""

    scalar = "absolute"


def mean_squared_error(x0: Any, x1: Any) -> Variable:
    """Mean of the squared differences of all elements.

    Args:
        x0: Floating-point input.
        x1: Input of the same shape and dtype.

    Raises:
        InvalidType: The shapes or dtypes differ.

    >>> import numpy as np
    >>> import kusari.functions as F
    >>> float(F.mean_squared_error(np.zeros(2, "f"), np.array([1, 3], "f")).array)
    5.0
    """
    return MeanSquaredError().apply((x0, x1))[0]


def mean_absolute_error(x0: Any, x1: Any) -> Variable:
    """Mean of the absolute differences of all elements.

    Args:
        x0: Floating-point input.
        x1: Input of the same shape and dtype.

    Raises:
        InvalidType: The shapes or dtypes differ.
    """
    return MeanAbsoluteError().apply((x0, x1))[0]


@elementwise("HuberLoss", kind="f=")
def _huber(xp: Any, x: Any, t: Any, delta: float = 1.0) -> Any:
    d = abs(x - t)
    return xp.where(d <= delta, xp.square(x - t) * 0.5, (d - 0.5 * delta) * delta)


@_huber.gradient
def _(xp: Any, gy: Any, y: Any, x: Any, t: Any, delta: float) -> Any:
    g = gy * xp.minimum(xp.maximum(x - t, -delta), delta)
    return g, -g


def huber_loss(x: Any, t: Any, delta: float, reduce: str = "sum_along_second_axis") -> Variable:
    """Huber loss: squared for differences up to ``delta``, linear beyond.

    Args:
        x: Floating-point predictions.
        t: Targets of the same shape and dtype.
        delta: Where the loss turns linear.
        reduce: ``"sum_along_second_axis"`` or ``"no"``.

    Raises:
        ValueError: ``reduce`` has another value.
        InvalidType: The shapes or dtypes do not fit.
    """
    if reduce not in ("sum_along_second_axis", "no"):
        raise ValueError(f"only 'sum_along_second_axis' and 'no' are valid for 'reduce', but '{reduce}' is given")
    y = _huber(x, t, delta=float(delta))
    return y if reduce == "no" else sum_(y, axis=1)


def check_reduce(reduce: str, options: tuple[str, ...] = ("mean", "no")) -> None:
    """Raise ``ValueError`` unless ``reduce`` is one of the options."""
    if reduce not in options:
        listed = ", ".join(map(repr, options[:-1])) + f" and {options[-1]!r}"
        raise ValueError(f"only {listed} are valid for 'reduce', but '{reduce}' is given")


class LabelSigns(Structured):
    """``(N, n)`` floats: -1 where the label points, 1 elsewhere; no gradient."""

    def __init__(self, n: int, dtype: str) -> None:
        super().__init__()
        self.n = n
        self.dtype = dtype

    def lower(self, b: Any, t: Any) -> tuple[Any, ...]:
        place = b.reshape(looked_up(b, t, self.n), (t.shape[0], 1))
        hit = b.call("equal", b.reshape(b.arange(self.n), (1, self.n)), place)
        return b.cast(b.call("where", hit, -1.0, 1.0), self.dtype),


@elementwise("Hinge")
def _hinge(xp: Any, x: Any, sign: Any) -> Any:
    return xp.maximum(x * sign + 1, 0)


@_hinge.gradient
def _(xp: Any, gy: Any, y: Any, x: Any, sign: Any) -> Any:
    return xp.where(y > 0, gy * sign, 0), None


@for_arrays
def hinge(x: Any, t: Any, norm: str = "L1", reduce: str = "mean") -> Variable:
    """One-versus-all hinge loss.

    Args:
        x: Scores of shape (N, C).
        t: Integer labels of shape (N,).
        norm: ``"L1"`` or ``"L2"``: whether the losses are squared.
        reduce: ``"mean"`` (sum over classes, mean over the batch) or ``"no"``.

    Raises:
        NotImplementedError: ``norm`` has another value.
        ValueError: ``reduce`` has another value.
        InvalidType: The shapes or dtypes do not fit.
        IndexError: A label is out of range.
    """
    check_reduce(reduce)
    if norm not in ("L1", "L2"):
        raise NotImplementedError(f"norm should be either 'L1' or 'L2', got {norm!r}")
    if x.dtype.kind != "f" or t.dtype.kind != "i" or x.ndim != 2 or t.ndim != 1 or len(x) != len(t):
        raise type_check.InvalidType("x: floating (N, C), t: integers (N,)", f"{x.dtype}{x.shape}, {t.dtype}{t.shape}",
                                     "\nInvalid operation is performed in: Hinge (Forward)")
    y = _hinge(x, LabelSigns(x.shape[1], x.dtype.name).apply((t,))[0])
    if norm == "L2":
        y = square(y)
    return y if reduce == "no" else sum_(y) / len(x)


@elementwise("Contrastive")
def _contrastive(xp: Any, d: Any, y: Any, margin: float = 1.0) -> Any:
    far = xp.maximum(margin - xp.sqrt(d), 0)
    return xp.where(y > 0, d, xp.square(far)) * 0.5


@_contrastive.gradient
def _(xp: Any, gy: Any, z: Any, d: Any, y: Any, margin: float) -> Any:
    root = xp.sqrt(d)
    far = xp.maximum(margin - root, 0)
    # Where the two are the same, no direction is better than another.
    return xp.where(y > 0, gy * 0.5, xp.where(root > 0, -gy * far / (xp.where(root > 0, root, 1) * 2), 0)), None


@for_arrays
def contrastive(x0: Any, x1: Any, y: Any, margin: float = 1, reduce: str = "mean") -> Variable:
    """Contrastive loss of pairs: squared distance of like ones, squared lack of ``margin`` of unlike ones, halved.

    Args:
        x0: Vectors of shape (N, K).
        x1: Vectors of the same shape.
        y: Integers of shape (N,): 1 for like pairs, 0 for unlike ones.
        margin: Positive distance beyond which unlike pairs cost nothing.
        reduce: ``"mean"`` or ``"no"``.

    Raises:
        ValueError: ``margin`` is not positive, or ``reduce`` has another value.
        InvalidType: The shapes or dtypes do not fit.

    See: Hadsell et al., `Dimensionality Reduction by Learning an Invariant Mapping
    <http://yann.lecun.com/exdb/publis/pdf/hadsell-chopra-lecun-06.pdf>`_, 2006.
    """
    check_reduce(reduce)
    if margin <= 0:
        raise ValueError(f"margin should be positive value, got {margin}")
    if x0.ndim != 2 or x0.shape != x1.shape or y.shape != x0.shape[:1] or y.dtype.kind != "i":
        raise type_check.InvalidType("x0, x1: (N, K), y: integers (N,)", f"{x0.shape}, {x1.shape}, {y.dtype}{y.shape}",
                                     "\nInvalid operation is performed in: Contrastive (Forward)")
    loss = _contrastive(sum_(squared_error(x0, x1), axis=1), y, margin=float(margin))
    return loss if reduce == "no" else mean(loss)


@for_arrays
def triplet(anchor: Any, positive: Any, negative: Any, margin: float = 0.2, reduce: str = "mean") -> Variable:
    """Triplet loss: how far the squared distance to the negative fails to exceed that to the positive by ``margin``.

    Args:
        anchor: Vectors of shape (N, K).
        positive: Vectors that should be near.
        negative: Vectors that should be far.
        margin: Positive margin.
        reduce: ``"mean"`` or ``"no"``.

    Raises:
        ValueError: ``margin`` is not positive, or ``reduce`` has another value.
        InvalidType: The shapes or dtypes differ.

    See: Schroff et al., `FaceNet <https://arxiv.org/abs/1503.03832>`_, 2015.
    """
    check_reduce(reduce)
    if margin <= 0:
        raise ValueError(f"margin should be positive value, got {margin}")
    if anchor.ndim != 2 or not anchor.shape == positive.shape == negative.shape or not len(anchor):
        raise type_check.InvalidType("three inputs of one shape (N, K), N > 0",
                                     f"{anchor.shape}, {positive.shape}, {negative.shape}",
                                     "\nInvalid operation is performed in: Triplet (Forward)")
    loss = relu(sum_(squared_error(anchor, positive) - squared_error(anchor, negative), axis=1) + float(margin))
    return loss if reduce == "no" else mean(loss)


@composed()
def cross_covariance(y: Any, z: Any, reduce: str = "half_squared_sum") -> Variable:
    """Penalty on the covariance between two batches of vectors.

    Args:
        y: Vectors of shape (N, J).
        z: Vectors of shape (N, K).
        reduce: ``"half_squared_sum"`` for a scalar or ``"no"`` for the (J, K) covariances.

    Raises:
        ValueError: ``reduce`` has another value.
        InvalidType: The shapes or dtypes do not fit, or there are no vectors.

    See: Cheung et al., `Discovering Hidden Factors of Variation in Deep Networks
    <https://arxiv.org/abs/1412.6583>`_, 2014.
    """
    check_reduce(reduce, ("half_squared_sum", "no"))
    y, z = as_variable(y), as_variable(z)
    if y.ndim != 2 or z.ndim != 2 or len(y) != len(z) or not len(y) or y.dtype.kind != "f" or y.dtype != z.dtype:
        raise type_check.InvalidType("y: floating (N, J), z: the same dtype, (N, K), N > 0",
                                     f"{y.dtype}{y.shape}, {z.dtype}{z.shape}",
                                     "\nInvalid operation is performed in: CrossCovariance (Forward)")
    centred = [x - reshape(mean(x, axis=0), (1, x.shape[1])) for x in (y, z)]
    c = matmul(centred[0], centred[1], transa=True) * (1 / len(y))
    return c if reduce == "no" else sum_(square(c)) * 0.5


class OffDiagonal(Structured):
    """A square matrix with zeros on its diagonal."""

    def lower(self, b: Any, x: Any) -> tuple[Any, ...]:
        n = x.shape[0]
        on = b.call("equal", b.reshape(b.arange(n), (n, 1)), b.reshape(b.arange(n), (1, n)))
        return b.call("where", on, 0.0, x),


@composed()
def decov(h: Any, reduce: str = "half_squared_sum") -> Variable:
    """Penalty on the covariances between different units of a batch of vectors.

    Args:
        h: Vectors of shape (N, K).
        reduce: ``"half_squared_sum"`` for a scalar or ``"no"`` for the (K, K) covariances, zero on the diagonal.

    Raises:
        ValueError: ``reduce`` has another value.
        InvalidType: ``h`` is not of shape (N, K), or not floating-point.

    See: Cogswell et al., `Reducing Overfitting in Deep Networks by Decorrelating Representations
    <https://arxiv.org/abs/1511.06068>`_, 2015.
    """
    check_reduce(reduce, ("half_squared_sum", "no"))
    c = OffDiagonal().apply((cross_covariance(h, h, "no"),))[0]
    return c if reduce == "no" else sum_(square(c)) * 0.5
