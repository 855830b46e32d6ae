"""Softmax cross entropy, with hard labels and with soft targets."""
from __future__ import annotations

from typing import Any

import numpy as np

from kusari.ir import NO_INDEX
from kusari.ir.symbol import maximum, where

from ... import backend
from ...elementwise import elementwise
from ...structured import Structured
from ...utils import type_check
from ...utils.arrays import for_arrays
from ...utils.ranges import check_range
from ...variable import Variable
from ..activation.softmax import log_softmax
from ..array.cast import cast
from ..math.reduction import sum as sum_
from ..math.statistics import LogSumExp, mean


def column(shape: tuple[int, ...]) -> tuple[int, ...]:
    """Return the shape of labels as one channel beside scores."""
    return (shape[0], 1, *shape[1:])


def mean_factor(xp: Any, x: Any, valid: Any) -> Any:
    """Return one over the number of labels that count (None: of samples) as an array without dimensions."""
    inverse = 1.0 / max(len(x), 1) if valid is None else 1.0 / xp.maximum(valid.sum(), 1)
    return xp.asarray(inverse, np.float32 if x.dtype == np.float16 else x.dtype)


def one_hot_of(b: Any, t: Any, x: Any) -> tuple[Any, Any]:
    """Return int32 channel numbers ``(1, C, 1…)`` and labels ``(N, 1, …)``: equal where the label points."""
    classes = b.reshape(b.arange(x.shape[1]), (1, x.shape[1], *(1,) * (len(x.shape) - 2)))
    return classes, b.reshape(t, column(t.shape))


class SoftmaxCrossEntropy(Structured):
    """Softmax cross entropy with hard labels: inputs ``x, t[, class_weight]``.

    Two further outputs serve the gradient: the log-sum-exp of every position, and the factor of the sum.
    Invariant: ``loss = factor * sum(w[t] * (logsumexp(x) - x[t]))`` over the labels that are not ignored.
    """

    def __init__(self, normalize: bool, ignore_label: int, reduce: str, cache_score: bool = True) -> None:
        super().__init__()
        self._cache_score = cache_score
        self.normalize = normalize
        self.ignore_label = ignore_label
        self.reduce = reduce

    @property
    def y(self) -> Any:
        """The softmax of the scores, as long as they are there; None without ``cache_score``."""
        if not self._cache_score or self.inputs is None or self.inputs[0].data is None:
            return None
        x, lse = self.inputs[0].data, self.output_data[1]
        return backend.get_array_module(x).exp(x - lse)

    def check_type_forward(self, in_types: Any) -> None:
        type_check.argname(in_types, ("x", "t", "class_weight")[:max(2, len(in_types))])
        x_type, t_type = in_types[0], in_types[1]
        type_check.expect(x_type.dtype.kind == "f", t_type.dtype.kind == "i", t_type.ndim == x_type.ndim - 1,
                          x_type.shape[0] == t_type.shape[0], x_type.shape[2:] == t_type.shape[1:])
        if len(in_types) == 3:
            type_check.expect(in_types[2].shape[0] == x_type.shape[1])

    def evaluate(self, inputs: tuple[Any, ...]) -> tuple[Any, ...]:  # in place, and flat: faster for few scores
        x, t = inputs[0], inputs[1]
        xp = np if type(x) is np.ndarray else backend.get_array_module(x)
        check_range("t", t, x.shape[1], self.ignore_label)
        m = x.max(axis=1, keepdims=True) if x.size else x.sum(axis=1, keepdims=True)
        e = x - m
        lse = xp.exp(e, out=e).sum(axis=1, keepdims=True)
        xp.log(lse, out=lse)
        lse += m
        valid = t != self.ignore_label
        label = xp.where(valid, t, 0)
        if xp is np and label.size and label.min() < 0:  # NumPy would count from the end
            least = int(label.min())
            raise IndexError(f"label {least} is no class; labels that are left out are ignore_label="
                             f"{self.ignore_label}{', -100 is of PyTorch' if least == -100 else ''}")
        if x.ndim == 2:
            picked = x[xp.arange(len(x)), label]
        else:
            picked = xp.take_along_axis(x, label[:, None], 1)[:, 0]
        loss = lse[:, 0] - picked
        if len(inputs) == 3:
            loss *= inputs[2][label]
        if self.reduce == "no":
            return xp.where(valid, loss, 0), lse, xp.ones((), x.dtype)
        factor = mean_factor(xp, x, valid if self.normalize else None)
        total = xp.where(valid, loss, 0).sum(dtype=factor.dtype)
        return xp.asarray(total * factor).astype(x.dtype, copy=False), lse, factor

    def lower_holds(self, inputs: tuple[Any, ...]) -> bool:
        x, t = inputs[:2]
        if not t.size or int(t.view(f"u{t.itemsize}").max()) < x.shape[1]:  # no negative one, either
            return True
        return bool((((t >= 0) & (t < x.shape[1])) | (t == self.ignore_label)).all())

    def lower(self, b: Any, x: Any, t: Any, weight: Any = None) -> tuple[Any, ...]:
        dtype = x.tensor.dtype
        lse, = b.apply(LogSumExp((1,), True), x)
        label = b.reshape(t, column(t.shape))
        wide_label = b.cast(label, np.dtype("int32")) if label.tensor.dtype.itemsize < 4 else label
        place = b.map(lambda t: where(t == self.ignore_label, 0, where(t < 0, NO_INDEX, t)), wide_label)
        values = [label, lse, b.gather(x, place, 1)]
        if weight is not None:
            values.append(b.take(weight, place))
        loss = b.map(lambda t, lse, x, w=1: where(t != self.ignore_label, (lse - x) * w, 0.0), *values)
        if self.reduce == "no":
            return b.reshape(loss, t.shape), lse, b.full((), 1.0, dtype)
        wide = "float32" if dtype == np.float16 else dtype.name
        if self.normalize:
            count = b.reduce("sum", b.map(lambda t: (t != self.ignore_label).astype(wide), label))
            factor = b.map(lambda count: 1.0 / maximum(count, 1.0), count)
        else:
            factor = b.full((), 1.0 / max(x.shape[0], 1), wide)
        total = b.reduce("sum", b.cast(loss, wide))
        y = b.cast(b.call("multiply", total, factor), dtype)
        return b.reshape(y, ()), lse, b.reshape(factor, ())

    def onnx(self, g: Any, x: str, t: str, weight: str | None = None) -> Any:
        if g.opset < 12:
            return NotImplemented
        loss = g.SoftmaxCrossEntropyLoss(x, t, weight, ignore_index=self.ignore_label,
                                         reduction="none" if self.reduce == "no" else "sum")
        if self.reduce == "no":
            return loss
        # Not reduction="mean": that divides by weights, and by 0 when all labels are ignored.
        dtype = g.type(x).dtype
        one = g.const(np.array(1, dtype))
        if self.normalize:
            label = g.const(np.array(self.ignore_label, g.type(t).dtype))
            count = g.Max(g.ReduceSum(g.Cast(g.Not(g.Equal(t, label)), to=dtype), keepdims=0), one)
        else:
            count = g.const(np.array(max(g.type(t).shape[0], 1), dtype))
        return g.Div(loss, count)


@for_arrays
def softmax_cross_entropy(x: Any, t: Any, normalize: bool = True, cache_score: bool = True, class_weight: Any = None,
                          ignore_label: int = -1, reduce: str = "mean", enable_double_backprop: bool = False,
                          soft_target_loss: str = "cross-entropy") -> Variable:
    """Cross entropy between the softmax of scores and labels.

    Args:
        x: Scores of shape (N, C, …).
        t: Integer labels of shape (N, …), or floating-point target distributions of the shape of ``x``, which get no
            gradient.
        normalize: Whether the mean is over the labels that count rather than over the batch.
        cache_score: Whether the loss's ``creator`` gives the softmax of the scores, as ``y``; nothing large is cached.
        class_weight: Array of shape (C,) by which each label's loss is multiplied, or None; not for soft targets.
        ignore_label: Labels of this value contribute neither loss nor gradient.
        reduce: ``"mean"`` for a scalar, ``"no"`` for one loss per label.
        enable_double_backprop: Accepted for compatibility; double backward always works.
        soft_target_loss: ``"cross-entropy"`` or ``"kl-divergence"``, for floating-point targets.

    Returns:
        Variable: A scalar, or an array of the shape of the labels, of the dtype of ``x``.

    Raises:
        InvalidType: The shapes or dtypes do not fit.
        ValueError: An option has an unknown value, or ``class_weight`` is not a floating-point vector array.
        IndexError: A label is no class and not ``ignore_label``; of arrays of a card compiled code alone sees it.

    >>> import numpy as np
    >>> import kusari.functions as F
    >>> round(float(F.softmax_cross_entropy(np.zeros((2, 4), "f"), np.array([0, -1])).array), 6)
    1.386294
    """
    if reduce not in ("mean", "no"):
        raise ValueError(f"only 'mean' and 'no' are valid for 'reduce', but '{reduce}' is given")
    if soft_target_loss not in ("cross-entropy", "kl-divergence"):
        raise ValueError(f"soft_target_loss must be 'cross-entropy' or 'kl-divergence', got {soft_target_loss!r}")
    if class_weight is not None:
        if isinstance(class_weight, Variable):
            raise ValueError("class_weight should be a numpy.ndarray or cupy.ndarray, not a Variable; pass its array")
        if class_weight.ndim != 1:
            raise ValueError(f"class_weight.ndim should be 1, got {class_weight.ndim}")
        if class_weight.dtype.kind != "f":
            raise ValueError(f"the dtype of class_weight should be floating, got {class_weight.dtype}")
    if t.dtype.kind == "f" and t.ndim == x.ndim:
        return _soft(x, t, reduce, soft_target_loss)
    node = SoftmaxCrossEntropy(bool(normalize), int(ignore_label), reduce, bool(cache_score))
    if class_weight is None:
        return node.apply((x, t))[0]
    return node.apply((x, t, cast(class_weight, x.dtype)))[0]


@elementwise("SoftTarget")
def _cross_entropy(xp: Any, log_p: Any, t: Any) -> Any:
    return -t * log_p


@_cross_entropy.gradient
def _(xp: Any, gy: Any, y: Any, log_p: Any, t: Any) -> Any:
    return -t * gy, None


@elementwise("SoftTargetKL")
def _divergence(xp: Any, log_p: Any, t: Any) -> Any:
    return t * (xp.log(xp.where(t > 0, t, 1)) - log_p)


@_divergence.gradient
def _(xp: Any, gy: Any, y: Any, log_p: Any, t: Any) -> Any:
    return -t * gy, None


def _soft(x: Any, t: Any, reduce: str, kind: str) -> Variable:
    if x.shape != t.shape:
        raise type_check.InvalidType("x.shape == t.shape", f"{x.shape} != {t.shape}",
                                     "\nInvalid operation is performed in: SoftmaxCrossEntropy (Forward)")
    term = (_divergence if kind == "kl-divergence" else _cross_entropy)(log_softmax(x), t)
    loss = sum_(term, axis=1)
    return loss if reduce == "no" else mean(loss)
