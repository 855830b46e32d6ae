"""Sigmoid cross entropy."""
from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from kusari.ir.symbol import SCALAR, maximum

from ... import backend
from ...elementwise import elementwise
from ...function_node import FunctionNode
from ...utils import type_check
from ...variable import Variable
from .softmax_cross_entropy import mean_factor

_IGNORE = -1  # the label that never counts


def _term(m: Any, x: Any, t: Any) -> Any:
    """The loss of one element: ``max(x, 0) - x t + log(1 + exp(-|x|))``, which cannot overflow."""
    return m.where(t != _IGNORE, m.maximum(x, 0) - m.where(t > 0, x, 0) + m.log1p(m.exp(-abs(x))), 0)


@elementwise("SigmoidCrossEntropyGrad")
def _slope(xp: Any, x: Any, t: Any, factor: Any, gy: Any) -> Any:
    """``gy * factor * (sigmoid(x) - t)``, 0 where the label is ignored."""
    scale = gy * factor
    return xp.where(t != _IGNORE, (xp.tanh(x * 0.5) * 0.5 + 0.5) * scale - xp.where(t > 0, scale, 0), 0)


@_slope.gradient
def _(xp: Any, ggx: Any, y: Any, x: Any, t: Any, factor: Any, gy: Any) -> Any:
    s = xp.tanh(x * 0.5) * 0.5 + 0.5
    g = xp.where(t != _IGNORE, ggx * factor, 0)
    # The factor depends on the labels alone.
    return g * gy * s * (1 - s), None, None, g * s - xp.where(t > 0, g, 0)


class SigmoidCrossEntropy(FunctionNode):
    """Inputs ``x, t``; the second output is the factor of the sum."""

    def __init__(self, normalize: bool, reduce: str) -> None:
        super().__init__()
        self.normalize = normalize
        self.reduce = reduce

    def check_type_forward(self, in_types: Any) -> None:
        type_check.argname(in_types, ("x", "t"))
        x_type, t_type = in_types
        type_check.expect(x_type.dtype.kind == "f", t_type.dtype.kind == "i", x_type.shape == t_type.shape)

    def forward(self, inputs: tuple[Any, ...]) -> tuple[Any, ...]:
        x, t = inputs
        xp = np if type(x) is np.ndarray else backend.get_array_module(x)
        self.retain_inputs((0, 1))
        self.retain_outputs((1,))
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

    def backward(self, indexes: tuple[int, ...], grad_outputs: tuple[Any, ...]) -> tuple[Any, ...]:
        from ..array.cast import cast
        x, t = self.get_retained_inputs()
        factor, = self.get_retained_outputs()
        return tuple(cast(_slope(x, t, factor, grad_outputs[0]), x.dtype) if i == 0 else None for i in indexes)

    @staticmethod
    def lower_holds(inputs: tuple[Any, ...]) -> bool:
        return True  # any integer is a label

    def lower(self, b: Any, x: Any, t: Any) -> tuple[Any, ...]:
        loss = b.map(partial(_term, SCALAR), x, t)
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
