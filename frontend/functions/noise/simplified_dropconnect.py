"""A linear layer whose weights are dropped."""
from __future__ import annotations

from math import prod
from typing import Any

import numpy as np

from ...structured import Structured
from ...utils import type_check
from ...variable import Variable, as_variable
from ..array.shape import reshape
from .dropout import draw_uniform


class SimplifiedDropconnect(Structured):
    """The product of rows with weights of which some count: inputs ``x, W[, b][, mask]``, outputs ``y, mask``.

    A mask that is not given is drawn; with ``ratio`` 0 all weights count, and nothing is.
    """

    def __init__(self, ratio: float, batchwise: bool, biased: bool) -> None:
        super().__init__()
        self.biased = biased
        self.ratio = ratio
        self.batchwise = batchwise

    @property
    def mask(self) -> Any:
        """The weights that count: true."""
        if self.ratio == 0:  # no gradient reads it
            (n, _), shape = self.inputs[0].shape, self.inputs[1].shape
            return np.ones((n, *shape) if self.batchwise else shape, bool)
        return self.output_data[1]

    def check_type_forward(self, in_types: Any) -> None:
        names = ("x", "W", "b", "mask") if self.biased else ("x", "W", "mask")
        type_check.argname(in_types, names[:max(2 + self.biased, len(in_types))])
        x_type, w_type = in_types[:2]
        type_check.expect(x_type.dtype.kind == "f", w_type.dtype.kind == "f", x_type.ndim == 2, w_type.ndim == 2,
                          x_type.shape[1] == w_type.shape[1])
        if self.biased:
            type_check.expect(in_types[2].dtype.kind == "f", in_types[2].ndim == 1,
                              in_types[2].shape[0] == w_type.shape[0])
        if len(in_types) == 3 + self.biased:
            shape = type_check.eval(x_type.shape[:1] + w_type.shape if self.batchwise else w_type.shape)
            type_check.expect(in_types[2 + self.biased].shape == shape)

    def lower(self, b: Any, x: Any, W: Any, *more: Any) -> tuple[Any, ...]:
        mask = more[self.biased] if len(more) > self.biased else None
        n, k = x.shape
        m, dtype = W.shape[0], x.tensor.dtype
        wide = np.result_type(dtype, W.tensor.dtype, np.float32)
        every = mask is None and self.ratio == 0
        shape = (n, m, k) if self.batchwise else (m, k)
        if every:
            mask = b.full(shape, True, np.bool_)
        elif mask is None:
            mask = b.call("greater_equal", draw_uniform(b, shape), self.ratio)
        x, W = b.cast(x, wide), b.cast(W, wide)
        if not every:
            W = b.map(lambda w, mask: w * mask * (1 / (1 - self.ratio)), W, b.cast(mask, wide))
        if len(W.shape) == 2:
            y = b.matmul(x, W, False, True)
        else:
            y = b.matmul(W, b.reshape(x, (n, k, 1)))
        y = b.cast(b.reshape(y, (n, m)), dtype)
        return b.cast(b.call("add", y, more[0]), dtype) if self.biased else y, mask


def simplified_dropconnect(x: Any, W: Any, b: Any = None, ratio: float = 0.5, train: bool = True, mask: Any = None,
                           use_batchwise_mask: bool = True) -> Variable:
    """Linear layer of which each weight counts with probability ``1 - ratio``, scaled up to keep the sum.

    Args:
        x: Inputs, (N, …); the axes after the first are taken together.
        W: Weights, (outputs, inputs).
        b: Bias, (outputs,), or None.
        ratio: Share of the weights to drop.
        train: Whether to draw a mask and to scale up; ``config.train`` is not asked.
        mask: True for the weights to keep, (N, outputs, inputs) or (outputs, inputs); None to draw one. One that is
            given counts in any case.
        use_batchwise_mask: Whether every sample has a mask of its own.

    Returns:
        Variable: Of shape (N, outputs).

    Raises:
        ValueError: ``ratio`` is not in [0, 1).
        InvalidType: The shapes do not fit.

    See: Wan et al., `Regularization of Neural Networks using DropConnect
    <https://proceedings.mlr.press/v28/wan13.html>`_, 2013.
    """
    if not 0 <= ratio < 1:
        raise ValueError(f"ratio must be in the range [0, 1), got {ratio}")
    x = as_variable(x)
    x = reshape(x, (x.shape[0], prod(x.shape[1:])))
    node = SimplifiedDropconnect(float(ratio) if train else 0.0, bool(use_batchwise_mask), b is not None)
    return node.apply(tuple([v for v in (x, W, b, mask) if v is not None]))[0]
