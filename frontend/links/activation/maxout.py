"""Maxout."""

from __future__ import annotations

from typing import Any

import numpy as np

from ... import functions as F
from ...link import Chain
from ..connection.linear import Linear

__all__ = ["Maxout"]


class Maxout(Chain):
    """The largest of ``pool_size`` linear functions, for every output.

    Goodfellow et al., `Maxout Networks <https://arxiv.org/abs/1302.4389>`_ (2013).

    Args:
        in_size: Number of inputs; None to see it from the first input.
        out_size: Number of outputs.
        pool_size: Number of linear functions for each.
        initialW: Initializer of the weights; an array has the shape (out_size, pool_size, in_size).
        initial_bias: Initializer of the biases, or None for none; an array has the shape (out_size, pool_size).

    Attributes:
        linear: The :class:`~kusari.links.Linear` layer of all the functions.

    >>> L.Maxout(3, 4, 2)(np.ones((5, 3), "float32")).shape
    (5, 4)
    """

    def __init__(
        self, in_size: int | None, out_size: int, pool_size: int, initialW: Any = None, initial_bias: Any = 0
    ) -> None:
        super().__init__()
        total = out_size * pool_size
        if not np.isscalar(initialW) and hasattr(initialW, "ndim"):
            initialW = initialW.reshape(total, -1)
        if not np.isscalar(initial_bias) and hasattr(initial_bias, "ndim"):
            initial_bias = initial_bias.reshape(total)
        self.out_size, self.pool_size = out_size, pool_size
        with self.init_scope():
            self.linear = Linear(in_size, total, initial_bias is None, initialW, initial_bias)

    def forward(self, x: Any) -> Any:
        """Apply the layer to ``x``, whose axis 0 is the batch; the result has the shape (batch, out_size)."""
        return F.maxout(self.linear(x), self.pool_size)
