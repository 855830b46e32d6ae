"""Precision, recall and F scores, and the coefficient of determination."""
from __future__ import annotations

from typing import Any

import numpy as np

from ... import backend
from ...function_node import FunctionNode
from ...utils import type_check
from ...variable import Variable


class ClassificationSummary(FunctionNode):
    """Precision, recall, F score and support of every class; no gradient."""

    pure = True

    def __init__(self, label_num: int | None, beta: float, ignore_label: int) -> None:
        super().__init__()
        self.label_num = label_num
        self.beta = beta
        self.ignore_label = ignore_label

    def check_type_forward(self, in_types: Any) -> None:
        type_check.argname(in_types, ("y", "t"))
        y_type, t_type = in_types
        type_check.expect(y_type.dtype.kind == "f", t_type.dtype.kind == "i", y_type.ndim >= 2)
        type_check.expect(y_type.shape[0] == t_type.shape[0], y_type.shape[2:] == t_type.shape[1:])

    def forward(self, inputs: tuple[Any, ...]) -> tuple[Any, ...]:
        y, t = inputs
        xp = backend.get_array_module(y)
        n = y.shape[1] if self.label_num is None else self.label_num
        best = y.argmax(axis=1)
        used = t != self.ignore_label
        best, t = best[used], t[used]
        relevant = xp.bincount(t, minlength=n)[:n]
        found = xp.bincount(best, minlength=n)[:n]
        hits = xp.bincount(t[best == t], minlength=n)[:n]

        square = self.beta * self.beta
        with np.errstate(all="ignore"):  # 0 / 0 is NaN: undefined
            precision, recall = hits / found, hits / relevant
            f = (1 + square) * precision * recall / (square * precision + recall)
        return precision, recall, f, relevant

    def backward(self, indexes: tuple[int, ...], grad_outputs: tuple[Any, ...]) -> tuple[Any, ...]:
        return tuple(None for _ in indexes)

    def onnx(self, g: Any, y: str, t: str) -> Any:
        n = g.type(y).shape[1] if self.label_num is None else self.label_num

        def i64(*values: Any) -> str:
            return g.const(np.array(*values, dtype=np.int64))

        def count(hits: str) -> str:
            return g.ReduceSum(g.Cast(hits, to="int64"), i64([0]), keepdims=0)
        label, best = (g.Reshape(x, i64([-1, 1])) for x in (g.cast(t, "int64"), g.ArgMax(y, axis=1, keepdims=0)))
        classes = i64(np.arange(n)[None])
        used = g.Not(g.Equal(label, i64(self.ignore_label)))
        is_label, is_best = (g.And(g.Equal(x, classes), used) for x in (label, best))
        support = count(is_label)
        hits, relevant, found = (g.Cast(x, to="float64") for x in (
            count(g.And(is_label, is_best)), support, count(is_best)))
        precision, recall = g.Div(hits, found), g.Div(hits, relevant)
        square, more = (g.const(np.array(v)) for v in (self.beta * self.beta, 1 + self.beta * self.beta))
        f = g.Div(g.Mul(g.Mul(more, precision), recall), g.Add(g.Mul(square, precision), recall))
        return precision, recall, f, support


def classification_summary(y: Any, t: Any, label_num: int | None = None, beta: float = 1.0,
                           ignore_label: int = -1) -> tuple[Variable, ...]:
    """Precision, recall, F score and number of occurrences of every class.

    Args:
        y: Scores; axis 1 runs over the classes.
        t: Integer labels.
        label_num: Number of classes; None for the extent of axis 1.
        beta: Weight of recall against precision in the F score.
        ignore_label: Positions with this label do not count.

    Returns:
        tuple of Variable: Precision, recall, F score, support: each of shape (number of classes,); NaN where a class
        does not occur.

    Raises:
        InvalidType: The shapes or dtypes do not fit.
    """
    return ClassificationSummary(label_num, float(beta), int(ignore_label)).apply((y, t))


def precision(y: Any, t: Any, label_num: int | None = None, ignore_label: int = -1) -> tuple[Variable, Variable]:
    """Precision and support of every class; see `classification_summary`."""
    p, _, _, support = classification_summary(y, t, label_num, 1.0, ignore_label)
    return p, support


def recall(y: Any, t: Any, label_num: int | None = None, ignore_label: int = -1) -> tuple[Variable, Variable]:
    """Recall and support of every class; see `classification_summary`."""
    _, r, _, support = classification_summary(y, t, label_num, 1.0, ignore_label)
    return r, support


def f1_score(y: Any, t: Any, label_num: int | None = None, ignore_label: int = -1) -> tuple[Variable, Variable]:
    """F1 score and support of every class; see `classification_summary`."""
    _, _, f, support = classification_summary(y, t, label_num, 1.0, ignore_label)
    return f, support


class R2Score(FunctionNode):
    """Coefficient of determination; no gradient."""

    pure = True

    def __init__(self, multioutput: str) -> None:
        super().__init__()
        self.multioutput = multioutput

    def check_type_forward(self, in_types: Any) -> None:
        type_check.argname(in_types, ("pred", "true"))
        type_check.expect(in_types[0].dtype.kind == "f", in_types[1].dtype.kind == "f",
                          in_types[0].shape == in_types[1].shape)

    def forward(self, inputs: tuple[Any, ...]) -> tuple[Any, ...]:
        pred, true = inputs
        xp = backend.get_array_module(pred)
        residual = xp.asarray(xp.square(pred - true).sum(axis=0))
        total = xp.asarray(xp.square(true - true.mean(axis=0)).sum(axis=0))
        r2 = xp.where(total != 0, 1 - residual / xp.where(total != 0, total, 1), 0).astype(pred.dtype)
        return (xp.asarray(r2.mean()) if self.multioutput == "uniform_average" else r2),

    def backward(self, indexes: tuple[int, ...], grad_outputs: tuple[Any, ...]) -> tuple[Any, ...]:
        return tuple(None for _ in indexes)

    def onnx(self, g: Any, pred: str, true: str) -> Any:
        dtype, first = g.type(pred).dtype, g.const(np.array([0], np.int64))
        zero, one = (g.const(np.array(v, dtype)) for v in (0, 1))

        def squares(a: str, b: str) -> str:
            d = g.Sub(a, b)
            return g.ReduceSum(g.Mul(d, d), first, keepdims=0)
        residual, total = squares(pred, true), squares(true, g.ReduceMean(true, first, keepdims=1))
        constant = g.Equal(total, zero)
        r2 = g.Where(constant, zero, g.Sub(one, g.Div(residual, g.Where(constant, one, total))))
        return g.ReduceMean(r2, keepdims=0) if self.multioutput == "uniform_average" else r2


def r2_score(pred: Any, true: Any, sample_weight: None = None, multioutput: str = "uniform_average") -> Variable:
    """Coefficient of determination, 1 for perfect predictions.

    Args:
        pred: Predictions.
        true: Targets of the same shape.
        sample_weight: Must be None.
        multioutput: ``"uniform_average"`` for the mean over outputs, ``"raw_values"`` for each.

    Raises:
        NotImplementedError: ``sample_weight`` is given.
        ValueError: ``multioutput`` has another value.
        InvalidType: The shapes or dtypes do not fit.
    """
    if sample_weight is not None:
        raise NotImplementedError("r2_score does not support sample_weight")
    if multioutput not in ("uniform_average", "raw_values"):
        raise ValueError(f"multioutput must be 'uniform_average' or 'raw_values', got {multioutput!r}")
    return R2Score(multioutput).apply((pred, true))[0]
