"""Dropout and zoneout: functions that draw masks."""
from __future__ import annotations

from typing import Any

import numpy as np

from kusari.ir.symbol import cast, where

from ... import backend
from ...broadcasting import broadcast_to
from ...callsite import caller
from ...configuration import config
from ...function_node import FunctionNode
from ...pytorch_keywords import explain
from ...utils import type_check
from ...utils.arrays import force_array
from ...variable import Variable, as_variable


def uniform(xp: Any, shape: tuple[int, ...]) -> Any:
    """Draw from [0, 1) as Chainer does: float64 with NumPy, float32 with CuPy."""
    return np.random.rand(*shape) if xp is np else xp.random.rand(*shape, dtype=np.float32)


def draw_uniform(b: Any, shape: tuple[int, ...]) -> Any:
    """The same draw in the compiler's vocabulary."""
    return b.random("random_sample", (), shape, np.float32 if b.on_card else np.float64)


class Dropout(FunctionNode):
    """``x * mask`` with a mask drawn here, which is the second output."""

    def __init__(self, ratio: float) -> None:
        super().__init__()
        self.ratio = ratio

    @property
    def mask(self) -> Any:
        """The factors of the input, zeros among them."""
        return self.output_data[1]

    def check_type_forward(self, in_types: Any) -> None:
        type_check.argname(in_types, ("x",))
        type_check.expect(in_types[0].dtype.kind == "f")

    def forward(self, inputs: tuple[Any, ...]) -> tuple[Any, ...]:
        x, = inputs
        xp = np if type(x) is np.ndarray else backend.get_array_module(x)
        self.retain_outputs((1,))
        mask = (uniform(xp, x.shape) >= self.ratio) * x.dtype.type(1.0 / (1 - self.ratio))
        return xp.asarray(x * mask), xp.asarray(mask)

    def backward(self, indexes: tuple[int, ...], grad_outputs: tuple[Any, ...]) -> tuple[Any, ...]:
        mask, = self.get_retained_outputs()
        return Masked().apply((grad_outputs[0], mask))[0],

    def lower(self, b: Any, x: Any) -> tuple[Any, ...]:
        dtype = x.tensor.dtype
        scale, zero = (cast(v, dtype) for v in (dtype.type(1.0 / (1 - self.ratio)), 0.0))
        mask = b.map(lambda u: where(u >= self.ratio, scale, zero), draw_uniform(b, x.shape))
        return b.call("multiply", x, mask), mask

    def onnx(self, g: Any, x: str) -> Any:
        # Gradients read the mask; it is one draw with the result.
        y, kept = g.Dropout(x, g.const(np.array(self.ratio, np.float32)), g.const(np.array(True)), outputs=2)
        dtype = g.type(x).dtype
        return y, g.Mul(g.Cast(kept, to=dtype), g.const(np.array(1 / (1 - self.ratio), dtype)))


class Masked(FunctionNode):
    """``x * mask``; the mask is a constant."""

    def check_type_forward(self, in_types: Any) -> None:
        type_check.argname(in_types, ("x", "mask"))
        type_check.expect(in_types[0].dtype.kind == "f", in_types[0].shape == in_types[1].shape)

    def forward(self, inputs: tuple[Any, ...]) -> tuple[Any, ...]:
        x, mask = inputs
        self.retain_inputs((1,))
        return force_array(x * mask, x.dtype),

    def backward(self, indexes: tuple[int, ...], grad_outputs: tuple[Any, ...]) -> tuple[Any, ...]:
        mask, = self.get_retained_inputs()
        return tuple(Masked().apply((grad_outputs[0], mask))[0] if i == 0 else None for i in indexes)

    def lower(self, b: Any, x: Any, mask: Any) -> tuple[Any, ...]:
        return b.cast(b.call("multiply", x, mask), x.tensor.dtype),

    def onnx(self, g: Any, x: str, mask: str) -> Any:
        return g.Mul(x, mask)


def dropout(x: Any, ratio: float = 0.5, **kwargs: Any) -> Any:
    """Set elements to zero at random and scale the others, in training; the identity otherwise.

    Args:
        x: Floating-point input.
        ratio: Probability of zero, in [0, 1).
        mask (array or None): Keyword only. Multiply by this (broadcast) instead of drawing a mask.
        return_mask (bool): Keyword only. Whether to return the mask too.

    Returns:
        Variable, or with ``return_mask`` a pair of it and the mask (None where nothing was drawn).

    Raises:
        ValueError: ``ratio`` is out of range; an unknown or removed keyword is given.
        InvalidType: ``x`` is not floating-point, or the mask's shape does not broadcast to its.

    See: Srivastava et al., `Dropout: A Simple Way to Prevent Neural Networks from Overfitting
    <https://jmlr.org/papers/v15/srivastava14a.html>`_, 2014.
    """
    mask, return_mask = kwargs.pop("mask", None), kwargs.pop("return_mask", False)
    reject(kwargs, train="use kusari.using_config('train', ...)")
    if not config.train:
        return (as_variable(x), None) if return_mask else as_variable(x)
    if not 0 <= ratio < 1:
        raise ValueError(f"dropout_ratio must be in the range [0, 1), got {ratio}")
    if mask is not None:
        fits = mask.ndim <= x.ndim and all(m in (1, n) for m, n in zip(mask.shape[::-1], x.shape[::-1], strict=False))
        y = Masked().apply((x, broadcast_to(mask, x.shape) if fits and mask.shape != x.shape else mask))[0]
    else:
        y, mask = Dropout(float(ratio)).apply((x,))
        mask = mask.array if return_mask else None
    return (y, mask) if return_mask else y


def reject(kwargs: dict[str, Any], **removed: str) -> None:
    """Raise for keywords that are unknown, or were removed in favour of something else."""
    for name in kwargs:
        if name in removed:
            raise ValueError(f"the {name} argument is not supported anymore; {removed[name]}")
        error = TypeError(f"{caller()}() got an unexpected keyword argument {name!r}")
        explain(error)
        raise error


class Zoneout(FunctionNode):
    """``h * mask + x * (1 - mask)`` with a mask of 0 and 1 drawn here, which is the second output."""

    def __init__(self, ratio: float) -> None:
        super().__init__()
        self.ratio = ratio

    @property
    def flag_h(self) -> Any:
        """The elements of the state that were kept: 1, and 0 elsewhere."""
        return self.output_data[1]

    @property
    def flag_x(self) -> Any:
        """The elements that were updated: 1, and 0 elsewhere."""
        return 1 - self.output_data[1]

    def check_type_forward(self, in_types: Any) -> None:
        type_check.argname(in_types, ("h", "x"))
        h_type, x_type = in_types
        type_check.expect(h_type.dtype.kind == "f", h_type.dtype == x_type.dtype, h_type.shape == x_type.shape)

    def forward(self, inputs: tuple[Any, ...]) -> tuple[Any, ...]:
        h, x = inputs
        xp = np if type(x) is np.ndarray else backend.get_array_module(x)
        self.retain_outputs((1,))
        keep = xp.asarray(uniform(xp, x.shape) < self.ratio)
        return xp.where(keep, h, x), keep.astype(x.dtype)

    def backward(self, indexes: tuple[int, ...], grad_outputs: tuple[Any, ...]) -> tuple[Any, ...]:
        mask, = self.get_retained_outputs()
        gh = Masked().apply((grad_outputs[0], mask))[0]
        return tuple(gh if i == 0 else grad_outputs[0] - gh for i in indexes)

    def lower(self, b: Any, h: Any, x: Any) -> tuple[Any, ...]:
        keep = b.call("less", draw_uniform(b, x.shape), self.ratio)
        return b.call("where", keep, h, x), b.cast(keep, x.tensor.dtype)


def zoneout(h: Any, x: Any, ratio: float = 0.5, **kwargs: Any) -> Variable:
    """Keep elements of the previous state at random, in training; return the update as it is otherwise.

    Args:
        h: Previous state.
        x: Its update, of the same shape and dtype.
        ratio: Probability that an element of ``h`` is kept.

    See: Krueger et al., `Zoneout <https://arxiv.org/abs/1606.01305>`_, 2016.
    """
    reject(kwargs, train="use kusari.using_config('train', ...)")
    if config.train:
        return Zoneout(float(ratio)).apply((h, x))[0]
    return as_variable(x)
