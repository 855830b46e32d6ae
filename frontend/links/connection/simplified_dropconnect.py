"""The linear layer whose weights are dropped."""

from __future__ import annotations

from math import prod
from typing import Any

from ... import functions as F
from ...initializers import _get_initializer
from ...link import Link
from ...parameter import Parameter

__all__ = ["SimplifiedDropconnect"]


class SimplifiedDropconnect(Link):
    """A linear layer of which a share of the weights is dropped in training.

    Args:
        in_size: Number of inputs; None to see it from the first input.
        out_size: Number of outputs.
        ratio: Share of the weights to drop.
        nobias: Whether to leave out ``b``.
        initialW: Initializer of ``W``.
        initial_bias: Initializer of ``b``; by default zero.

    Attributes:
        W: Weights, (out, in).
        b: Bias, (out,); None with ``nobias``.

    See: :func:`~kusari.functions.simplified_dropconnect`.
    """

    def __init__(
        self, in_size: int | None, out_size: int, ratio: float = 0.5, nobias: bool = False, initialW: Any = None,
        initial_bias: Any = None,
    ) -> None:  # fmt: skip
        super().__init__()
        self.out_size, self.ratio = out_size, ratio
        with self.init_scope():
            self.W = Parameter(_get_initializer(initialW))
            if in_size is not None:
                self.W.initialize((out_size, in_size))
            self.b = None if nobias else Parameter(
                _get_initializer(0 if initial_bias is None else initial_bias), out_size)

    def forward(self, x: Any, train: bool = True, mask: Any = None, use_batchwise_mask: bool = True) -> Any:
        """Apply the layer to ``x``; for the other arguments see the function."""
        if self.W._array is None:
            self.W.initialize((self.out_size, prod(x.shape[1:])))
        return F.simplified_dropconnect(x, self.W, self.b, self.ratio, train, mask, use_batchwise_mask)
