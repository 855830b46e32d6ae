"""Accuracies of classifications."""
from __future__ import annotations

from typing import Any

import numpy as np

from kusari.ir.symbol import isnan, logical_and, logical_or, maximum, where

from ... import backend
from ...structured import Structured
from ...utils import type_check
from ...variable import Variable
from ..loss.softmax_cross_entropy import one_hot_of


def ratio(b: Any, correct: Any, valid: Any, dtype: Any) -> Any:
    """Lower the share of ``correct`` among the ``valid`` positions (all when None) to a scalar; 0 of 0 is 0."""
    wide = np.result_type(dtype, np.float32)  # counts do not fit float16
    hits = b.reduce("sum", b.cast(correct, wide))
    if valid is None:
        count = max(int(np.prod(correct.shape)), 1)
        y = b.call("true_divide", hits, float(count))
    else:
        total = b.reduce("sum", b.cast(valid, wide))
        y = b.map(lambda hits, total: hits / maximum(total, 1.0), hits, total)
    return b.reshape(b.cast(y, dtype), ())


class Accuracy(Structured):
    """Share of positions whose greatest score is at the label; no gradient."""

    def __init__(self, ignore_label: int | None) -> None:
        super().__init__()
        self.ignore_label = ignore_label

    def check_type_forward(self, in_types: Any) -> None:
        type_check.argname(in_types, ("x", "t"))
        x_type, t_type = in_types
        type_check.expect(x_type.dtype.kind == "f", t_type.dtype.kind == "i")
        t_ndim = type_check.eval(t_type.ndim)
        type_check.expect(x_type.ndim >= t_type.ndim, x_type.shape[0] == t_type.shape[0],
                          x_type.shape[2: t_ndim + 1] == t_type.shape[1:])
        for i in range(t_ndim + 1, type_check.eval(x_type.ndim)):
            type_check.expect(x_type.shape[i] == 1)

    def evaluate(self, inputs: tuple[Any, ...]) -> tuple[Any, ...]:  # argmax: faster than comparisons
        y, t = inputs
        xp = np if type(y) is np.ndarray else backend.get_array_module(y)
        correct = y.argmax(axis=1).reshape(t.shape) == t
        if self.ignore_label is None:
            return xp.asarray(correct.mean(dtype=np.float64)).astype(y.dtype),
        valid = t != self.ignore_label
        return xp.asarray((correct & valid).sum() / xp.maximum(valid.sum(), 1)).astype(y.dtype),

    @staticmethod
    def lower_holds(inputs: tuple[Any, ...]) -> bool:
        return True  # labels are compared

    def lower(self, b: Any, y: Any, t: Any) -> tuple[Any, ...]:
        t = b.reshape(t, (y.shape[0], *y.shape[2:]))
        classes, label = one_hot_of(b, t, y)
        # The first of the greatest scores decides, or the first NaN, as for argmax.
        found = b.map(lambda y, most, i, n=y.shape[1]: where(logical_or(y == most, isnan(y)), i, n),
                      y, b.reduce("max", y, 1), classes)
        best = b.reduce("min", b.cast(found, np.int32), 1)
        if self.ignore_label is None:
            return ratio(b, b.call("equal", best, label), None, y.tensor.dtype),
        valid = b.call("not_equal", label, self.ignore_label)
        correct = b.map(lambda best, label, valid: logical_and(best == label, valid), best, label, valid)
        return ratio(b, correct, valid, y.tensor.dtype),


def accuracy(y: Any, t: Any, ignore_label: int | None = None) -> Variable:
    """Share of correct classifications.

    Args:
        y: Scores; axis 1 runs over the classes.
        t: Integer labels of shape (N, …).
        ignore_label: Positions with this label do not count.

    Returns:
        Variable: A scalar of the dtype of ``y``; no gradient flows through it.

    Raises:
        InvalidType: The shapes or dtypes do not fit.

    >>> import numpy as np
    >>> import kusari.functions as F
    >>> float(F.accuracy(np.eye(2, dtype="f"), np.array([0, 0])).array)
    0.5
    """
    return Accuracy(ignore_label).apply((y, t))[0]


class BinaryAccuracy(Structured):
    """Share of elements whose sign agrees with the binary label; label -1 does not count; no gradient."""

    def check_type_forward(self, in_types: Any) -> None:
        type_check.argname(in_types, ("x", "t"))
        x_type, t_type = in_types
        type_check.expect(x_type.dtype.kind == "f", t_type.dtype.kind == "i", x_type.shape == t_type.shape)

    def lower(self, b: Any, y: Any, t: Any) -> tuple[Any, ...]:
        valid = b.call("not_equal", t, -1)
        correct = b.map(lambda y, t, valid: logical_and((y >= 0).astype(np.int32) == t, valid), y, t, valid)
        return ratio(b, correct, valid, y.tensor.dtype),


def binary_accuracy(y: Any, t: Any) -> Variable:
    """Share of elements of ``y`` whose sign (0 is positive) agrees with the labels.

    Args:
        y: Scores of any shape.
        t: Integer labels 0 or 1 of the same shape; -1 does not count.

    Raises:
        InvalidType: The shapes or dtypes do not fit.
    """
    return BinaryAccuracy().apply((y, t))[0]
