"""Softmax cross entropy, with hard labels and with soft targets."""
from __future__ import annotations

from typing import Any

import numpy as np

from kusari.ir.symbol import exp, logical_and, maximum, where

from ... import backend
from ...elementwise import elementwise
from ...function_node import FunctionNode
from ...utils import type_check
from ...utils.ranges import check_range
from ...variable import Variable
from ..array.cast import cast
from ..array.indexing import looked_up
from ..math.statistics import lowered_logsumexp


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


def checked(b: Any, t: Any, x: Any, ignore_label: int) -> Any:
    """Return the channel that each label points at, 0 where it is ignored; labels that point nowhere are an error."""
    return looked_up(b, b.map(lambda t: where(t == ignore_label, 0, t), t), x.shape[1])


def picked(b: Any, classes: Any, place: Any, x: Any) -> Any:
    """Return the elements of ``x`` whose channel is that of ``place``."""
    return b.reduce("sum", b.map(lambda i, place, x: where(i == place, x, 0.0), classes, place, x), 1)


class SoftmaxCrossEntropy(FunctionNode):
    """Softmax cross entropy with hard labels: inputs ``x, t[, class_weight]``.

    Two further outputs serve the gradient: the log-sum-exp of every position, and the factor of the sum.
    Invariant: ``loss = factor * sum(w[t] * (logsumexp(x) - x[t]))`` over the labels that are not ignored.
    """

    def __init__(self, normalize: bool, ignore_label: int, reduce: str) -> None:
        super().__init__()
        self.normalize = normalize
        self.ignore_label = ignore_label
        self.reduce = reduce

    def check_type_forward(self, in_types: Any) -> None:
        type_check.argname(in_types, ("x", "t", "class_weight")[:max(2, len(in_types))])
        x_type, t_type = in_types[0], in_types[1]
        type_check.expect(x_type.dtype.kind == "f", t_type.dtype.kind == "i", t_type.ndim == x_type.ndim - 1,
                          x_type.shape[0] == t_type.shape[0], x_type.shape[2:] == t_type.shape[1:])
        if len(in_types) == 3:
            type_check.expect(in_types[2].shape[0] == x_type.shape[1])

    def forward(self, inputs: tuple[Any, ...]) -> tuple[Any, ...]:
        x, t = inputs[0], inputs[1]
        xp = np if type(x) is np.ndarray else backend.get_array_module(x)
        self.retain_inputs(tuple(range(len(inputs))))
        self.retain_outputs((1, 2))
        check_range("t", t, x.shape[1], self.ignore_label)
        m = x.max(axis=1, keepdims=True) if x.size else x.sum(axis=1, keepdims=True)
        e = x - m
        lse = xp.exp(e, out=e).sum(axis=1, keepdims=True)
        xp.log(lse, out=lse)
        lse += m
        valid = t != self.ignore_label
        label = xp.where(valid, t, 0)
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

    def backward(self, indexes: tuple[int, ...], grad_outputs: tuple[Any, ...]) -> tuple[Any, ...]:
        x, t, *weight = self.get_retained_inputs()
        lse, factor = self.get_retained_outputs()
        gx = SoftmaxCrossEntropyGrad(self.ignore_label, self.reduce).apply(
            (x, t, lse, factor, grad_outputs[0], *weight))[0]
        return tuple(gx if i == 0 else None for i in indexes)

    def lower_holds(self, inputs: tuple[Any, ...]) -> bool:
        x, t = inputs[:2]
        if not t.size or int(t.view(f"u{t.itemsize}").max()) < x.shape[1]:  # no negative one, either
            return True
        return bool((((t >= 0) & (t < x.shape[1])) | (t == self.ignore_label)).all())

    def lower(self, b: Any, x: Any, t: Any, weight: Any = None) -> tuple[Any, ...]:
        dtype = x.tensor.dtype
        lse = lowered_logsumexp(b, x, 1)
        classes, place = one_hot_of(b, checked(b, t, x, self.ignore_label), x)
        label = b.reshape(t, place.shape)
        values = [label, lse, picked(b, classes, place, x)]
        if weight is not None:
            values.append(picked(b, classes, place, b.reshape(weight, classes.shape)))
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


class SoftmaxCrossEntropyGrad(FunctionNode):
    """Gradient with respect to the scores: inputs ``x, t, lse, factor, gy[, class_weight]``.

    Invariant: ``lse`` and ``factor`` are functions of ``x`` and ``t``; gradients through them are in that of ``x``.
    """

    def __init__(self, ignore_label: int, reduce: str) -> None:
        super().__init__()
        self.ignore_label = ignore_label
        self.reduce = reduce

    def _scale(self, xp: Any, t: Any, factor: Any, gy: Any, weight: list[Any], dtype: Any) -> Any:
        valid = t != self.ignore_label
        scale = xp.where(valid, gy * factor, 0)
        if weight:
            scale = scale * weight[0][xp.where(valid, t, 0)]
        return scale.astype(dtype, copy=False)[:, None]

    def forward(self, inputs: tuple[Any, ...]) -> tuple[Any, ...]:
        self.retain_inputs(tuple(range(len(inputs))))
        x, t, lse, factor, gy, *weight = inputs
        xp = np if type(x) is np.ndarray else backend.get_array_module(x)
        gx = x - lse
        xp.exp(gx, out=gx)
        label = xp.where(t != self.ignore_label, t, 0)
        if x.ndim == 2:
            gx[xp.arange(len(x)), label] -= 1
        else:
            label = xp.where(label < 0, label + x.shape[1], label)
            gx -= xp.arange(x.shape[1]).reshape(1, -1, *(1,) * (x.ndim - 2)) == label[:, None]
        gx *= self._scale(xp, t, factor, gy, weight, x.dtype)
        return gx,

    def backward(self, indexes: tuple[int, ...], grad_outputs: tuple[Any, ...]) -> tuple[Any, ...]:
        from .. import broadcast_to, softmax
        from .. import sum as sum_
        ggx, = grad_outputs
        x, t, _lse, factor, gy, *weight = self.get_retained_inputs()
        scale = LabelScale(self.ignore_label, self.reduce).apply((t, factor, gy, *weight))[0]
        p = softmax(x)
        inner = sum_(ggx * p, axis=1, keepdims=True)
        grads: list[Any] = []
        for i in indexes:
            if i == 0:
                grads.append(broadcast_to(scale, x.shape) * p * (ggx - broadcast_to(inner, x.shape)))
            elif i == 4:
                along = LabelScale(self.ignore_label, "no").apply(
                    (t, factor, inner[:, 0] - pick(ggx, t, self.ignore_label), *weight))[0]
                grads.append(sum_(along) if self.reduce != "no" else along[:, 0])
            else:
                grads.append(None)
        return tuple(grads)

    def lower(self, b: Any, x: Any, t: Any, lse: Any, factor: Any, gy: Any, weight: Any = None) -> tuple[Any, ...]:
        classes, place = one_hot_of(b, checked(b, t, x, self.ignore_label), x)
        label = b.reshape(t, place.shape)
        if self.reduce == "no":
            gy = b.reshape(gy, label.shape)
        dtype, values = x.tensor.dtype, [classes, label, x, lse, gy, factor, place]
        if weight is not None:
            values.append(picked(b, classes, place, b.reshape(weight, classes.shape)))

        def slope(i: Any, t: Any, x: Any, lse: Any, gy: Any, factor: Any, place: Any, w: Any = 1) -> Any:
            scale = where(t != self.ignore_label, gy * factor, 0.0) * w
            return (exp(x - lse) - (i == place).astype(dtype)) * scale
        return b.cast(b.map(slope, *values), dtype),


class LabelScale(FunctionNode):
    """What each position's gradient is multiplied by: ``gy * factor * w[t]``, 0 where the label is ignored.

    Inputs ``t, factor, gy[, class_weight]``, output of shape ``(N, 1, …)``.
    """

    def __init__(self, ignore_label: int, reduce: str) -> None:
        super().__init__()
        self.ignore_label = ignore_label
        self.reduce = reduce

    def forward(self, inputs: tuple[Any, ...]) -> tuple[Any, ...]:
        t, factor, gy, *weight = inputs
        xp = backend.get_array_module(t)
        self.retain_inputs((0, 1, *range(3, len(inputs))))
        return SoftmaxCrossEntropyGrad._scale(self, xp, t, factor, gy, weight, gy.dtype),  # type: ignore[arg-type]

    def backward(self, indexes: tuple[int, ...], grad_outputs: tuple[Any, ...]) -> tuple[Any, ...]:
        from .. import sum as sum_
        t, factor, *weight = self.get_retained_inputs()
        g = LabelScale(self.ignore_label, "no").apply((t, factor, grad_outputs[0][:, 0], *weight))[0]
        return tuple((g[:, 0] if self.reduce == "no" else sum_(g)) if i == 2 else None for i in indexes)

    def lower(self, b: Any, t: Any, factor: Any, gy: Any, weight: Any = None) -> tuple[Any, ...]:
        label = b.reshape(t, column(t.shape))
        if self.reduce == "no":
            gy = b.reshape(gy, label.shape)
        values = [label, factor, gy]
        if weight is not None:
            values.append(b.take(weight, b.map(lambda t: where(t == self.ignore_label, 0, t), label)))
        scale = b.map(lambda t, factor, gy, w=1: where(t != self.ignore_label, factor * gy, 0.0) * w, *values)
        return b.cast(scale, gy.tensor.dtype),


def pick(x: Any, t: Any, ignore_label: int) -> Variable:
    """Return ``x[i, t[i], …]``, and 0 where the label is ``ignore_label``."""
    return PickLabel(ignore_label).apply((x, t))[0]


def _at_label(ignore_label: int) -> Any:
    return lambda i, t, x: where(logical_and(i == t, t != ignore_label), x, 0.0)


class PickLabel(FunctionNode):
    """Select along axis 1 by labels; 0 where the label is ignored."""

    def __init__(self, ignore_label: int) -> None:
        super().__init__()
        self.ignore_label = ignore_label

    def forward(self, inputs: tuple[Any, ...]) -> tuple[Any, ...]:
        x, t = inputs
        xp = backend.get_array_module(x)
        self.retain_inputs((1,))
        valid = t != self.ignore_label
        picked = xp.take_along_axis(x, xp.where(valid, t, 0)[:, None], 1)[:, 0]
        return xp.where(valid, picked, 0).astype(x.dtype, copy=False),

    def backward(self, indexes: tuple[int, ...], grad_outputs: tuple[Any, ...]) -> tuple[Any, ...]:
        t, = self.get_retained_inputs()
        gx = PlaceLabel(self.ignore_label, self.inputs[0].shape[1]).apply((grad_outputs[0], t))[0]
        return tuple(gx if i == 0 else None for i in indexes)

    def lower(self, b: Any, x: Any, t: Any) -> tuple[Any, ...]:
        classes, label = one_hot_of(b, t, x)
        return b.reshape(b.reduce("sum", b.map(_at_label(self.ignore_label), classes, label, x), 1), t.shape),


class PlaceLabel(FunctionNode):
    """Zeros of ``n_classes`` channels with the input where the label points: the gradient of `PickLabel`."""

    def __init__(self, ignore_label: int, n_classes: int) -> None:
        super().__init__()
        self.ignore_label = ignore_label
        self.n_classes = n_classes

    def forward(self, inputs: tuple[Any, ...]) -> tuple[Any, ...]:
        g, t = inputs
        xp = backend.get_array_module(g)
        self.retain_inputs((1,))
        classes = xp.arange(self.n_classes).reshape(1, -1, *(1,) * (t.ndim - 1))
        hit = (classes == t[:, None]) & (t != self.ignore_label)[:, None]
        return xp.where(hit, g[:, None], 0).astype(g.dtype, copy=False),

    def backward(self, indexes: tuple[int, ...], grad_outputs: tuple[Any, ...]) -> tuple[Any, ...]:
        t, = self.get_retained_inputs()
        g = PickLabel(self.ignore_label).apply((grad_outputs[0], t))[0]
        return tuple(g if i == 0 else None for i in indexes)

    def lower(self, b: Any, g: Any, t: Any) -> tuple[Any, ...]:
        label = b.reshape(t, column(t.shape))
        classes = b.reshape(b.arange(self.n_classes), (1, self.n_classes, *(1,) * (len(t.shape) - 1)))
        return b.map(_at_label(self.ignore_label), classes, label, b.reshape(g, column(t.shape))),


def softmax_cross_entropy(x: Any, t: Any, normalize: bool = True, cache_score: bool = True, class_weight: Any = None,
                          ignore_label: int = -1, reduce: str = "mean", enable_double_backprop: bool = False,
                          soft_target_loss: str = "cross-entropy") -> Variable:
    """Cross entropy between the softmax of scores and labels.

    Args:
        x: Scores of shape (N, C, …).
        t: Integer labels of shape (N, …), or floating-point target distributions of the shape of ``x``.
        normalize: Whether the mean is over the labels that count rather than over the batch.
        cache_score: Accepted for compatibility; nothing large is cached in any case.
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
    node = SoftmaxCrossEntropy(bool(normalize), int(ignore_label), reduce)
    if class_weight is None:
        return node.apply((x, t))[0]
    return node.apply((x, t, cast(class_weight, x.dtype)))[0]


@elementwise("SoftTarget")
def _cross_entropy(xp: Any, log_p: Any, t: Any) -> Any:
    return -t * log_p


@elementwise("SoftTargetKL")
def _divergence(xp: Any, log_p: Any, t: Any) -> Any:
    return t * (xp.log(xp.where(t > 0, t, 1)) - log_p)


def _soft(x: Any, t: Any, reduce: str, kind: str) -> Variable:
    from .. import log_softmax, mean
    from .. import sum as sum_
    if x.shape != t.shape:
        raise type_check.InvalidType("x.shape == t.shape", f"{x.shape} != {t.shape}",
                                     "\nInvalid operation is performed in: SoftmaxCrossEntropy (Forward)")
    term = (_divergence if kind == "kl-divergence" else _cross_entropy)(log_softmax(x), t)
    loss = sum_(term, axis=1)
    return loss if reduce == "no" else mean(loss)
