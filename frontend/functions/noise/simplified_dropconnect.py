"""A linear layer whose weights are dropped."""
from __future__ import annotations

from math import prod
from typing import Any

from ...configuration import using_config
from ...utils import type_check
from ...variable import Variable, as_variable
from ..array.broadcast import broadcast_to
from ..array.shape import reshape
from ..math.matmul import matmul
from .dropout import dropout


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
    x, W = as_variable(x), as_variable(W)
    n = x.shape[0]
    x = reshape(x, (n, prod(x.shape[1:])))
    if W.ndim != 2 or W.shape[1] != x.shape[1]:
        raise type_check.InvalidType("W.shape == (outputs, x.shape[1])", f"{W.shape}, x: {x.shape}",
                                     "\nInvalid operation is performed in: SimplifiedDropconnect (Forward)")
    shape = (n, *W.shape) if use_batchwise_mask else W.shape
    if mask is not None and mask.shape != shape:
        raise type_check.InvalidType(f"mask.shape == {shape}", f"{mask.shape}",
                                     "\nInvalid operation is performed in: SimplifiedDropconnect (Forward)")
    if not train:
        ratio = 0.0
    if train or mask is not None:
        with using_config("train", True):
            kept = None if mask is None else mask.astype(W.dtype) / (1 - ratio)
            W = dropout(broadcast_to(W, shape), ratio, mask=kept)
    if W.ndim == 2:
        y = matmul(x, W, transb=True)
    else:
        y = reshape(matmul(W, reshape(x, (n, x.shape[1], 1))), (n, W.shape[1]))
    return y if b is None else y + broadcast_to(as_variable(b), y.shape)
