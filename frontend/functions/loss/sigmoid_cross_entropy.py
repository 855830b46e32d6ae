"""Sigmoid cross entropy."""
from __future__ import annotations

from typing import Any

import numpy as np

from kusari.ir.symbol import absolute, exp, log1p, maximum, tanh, where

from ... import backend
from ...structured import Structured
from ...utils import type_check
from ...variable import Variable
from .softmax_cross_entropy import mean_factor

_IGNORE = -1  # the label that never counts


class SigmoidCrossEntropy(Structured):
    """Inputs ``x, t``; the second output is the factor of the sum."""

    def __init__(self, normalize: bool, reduce: str) -> None:
        super().__init__()
        self.normalize = normalize
        self.reduce = reduce

    def check_type_forward(self, in_types: Any) -> None:
        type_check.argname(in_types, ("x", "t"))
        x_type, t_type = in_types
        type_check.expect(x_type.dtype.kind == "f", t_type.dtype.kind == "i", x_type.shape == t_type.shape)

    def evaluate(self, inputs: tuple[Any, ...]) -> tuple[Any, ...]:
        x, t = inputs
        xp = np if type(x) is np.ndarray else backend.get_array_module(x)
        valid = t != _IGNORE
        # max(x, 0) - x t + log(1 + exp(-|x|)) cannot overflow
        loss = xp.asanyarray(xp.exp(-abs(x)))
        xp.log1p(loss, out=loss)
        loss += xp.maximum(x, 0)
        loss -= xp.where(t > 0, x, 0)
        loss = xp.where(valid, loss, 0)
        if self.reduce == "no":
            return loss, xp.ones((), x.dtype)
        factor = mean_factor(xp, x, valid if self.normalize else None)
        return xp.asarray(loss.sum(dtype=factor.dtype) * factor).astype(x.dtype, copy=False), factor

    @staticmethod
    def lower_holds(inputs: tuple[Any, ...]) -> bool:
        return True  # any integer is a label

    def lower(self, b: Any, x: Any, t: Any) -> tuple[Any, ...]:
        # max(x, 0) - x t + log(1 + exp(-|x|)) cannot overflow
        loss = b.map(lambda x, t: where(t != _IGNORE, maximum(x, 0) - where(t > 0, x, 0) + log1p(exp(-absolute(x))), 0),
                     x, t)
        wide = "float32" if x.tensor.dtype == np.float16 else x.tensor.dtype.name
        if self.reduce == "no":
            return loss, b.full((), 1.0, x.tensor.dtype)
        if self.normalize:
            count = b.reduce("sum", b.map(lambda t: (t != _IGNORE).astype(wide), t))
            factor = b.map(lambda count: 1.0 / maximum(count, 1.0), count)
        else:
            factor = b.full((), 1.0 / max(x.shape[0], 1), wide)
        y = b.cast(b.call("multiply", b.reduce("sum", b.cast(loss, wide)), factor), x.tensor.dtype)
        return b.reshape(y, ()), b.reshape(factor, ())

    def gradient(self, b: Any, inputs: Any, outputs: Any, gys: Any) -> tuple[Any, ...]:
        """``gy * factor * (sigmoid(x) - t)``, at 0 too; the factor depends on the labels alone."""
        (x, t), factor, gy = inputs, outputs[1], gys[0]
        if gy is None:
            return None, None

        def slope(x: Any, t: Any, factor: Any, gy: Any) -> Any:
            scale = gy * factor
            return where(t != _IGNORE, (tanh(x * 0.5) * 0.5 + 0.5) * scale - where(t > 0, scale, 0), 0)
        return b.map(slope, x, t, factor, gy), None


def sigmoid_cross_entropy(x: Any, t: Any, normalize: bool = True, reduce: str = "mean") -> Variable:
    """Cross entropy between the sigmoid of scores and binary labels.

    Args:
        x: Scores of any shape.
        t: Integer labels 0 or 1 of the same shape; -1 is ignored.
        normalize: Whether the mean is over the labels that count rather than over the batch.
        reduce: ``"mean"`` for a scalar, ``"no"`` for one loss per element.

    Raises:
        InvalidType: The shapes differ, or the dtypes do not fit.
        ValueError: ``reduce`` has another value.
    """
    if reduce not in ("mean", "no"):
        raise ValueError(f"only 'mean' and 'no' are valid for 'reduce', but '{reduce}' is given")
    return SigmoidCrossEntropy(bool(normalize), reduce).apply((x, t))[0]
