"""Maxout."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ... import functions as F
from ...initializer import Initializer
from ...link import Chain
from ..connection.linear import Linear

__all__ = ["Maxout"]


class _SeenAs(Initializer):
    """An initializer that sees arrays in another shape."""

    def __init__(self, initializer: Callable[..., Any], shape: tuple[int, ...]) -> None:
        super().__init__(getattr(initializer, "dtype", None))
        self.initializer = initializer
        self.shape = shape

    def __call__(self, array: Any) -> None:
        self.initializer(array.reshape(self.shape))


def _seen_as(initializer: Any, shape: tuple[int, ...], flat: tuple[int, ...]) -> Any:
    """Return an initializer of the layer: an array of ``shape`` is reshaped, a function sees that shape."""
    if callable(initializer):
        return _SeenAs(initializer, shape)
    if initializer is None or np.isscalar(initializer):
        return initializer
    if initializer.ndim != len(shape):
        raise ValueError(f"an initial array of Maxout must have {len(shape)} axes, got shape {initializer.shape}")
    return initializer.reshape(flat)


class Maxout(Chain):
    """The largest of ``pool_size`` linear functions, for every output.

    Goodfellow et al., `Maxout Networks <https://arxiv.org/abs/1302.4389>`_ (2013).

    Args:
        in_size: Number of inputs; None to see it from the first input.
        out_size: Number of outputs.
        pool_size: Number of linear functions for each.
        initialW: Initializer of the weights, for the shape (out_size, pool_size, in_size); so is an array's.
        initial_bias: Initializer of the biases, or None for none; the shape is (out_size, pool_size).

    Attributes:
        linear: The :class:`~kusari.links.Linear` layer of all the functions.

    Raises:
        ValueError: An initial array has another number of axes.

    >>> L.Maxout(3, 4, 2)(np.ones((5, 3), "float32")).shape
    (5, 4)
    """

    def __init__(
        self, in_size: int | None, out_size: int, pool_size: int, initialW: Any = None, initial_bias: Any = 0
    ) -> None:
        super().__init__()
        total = out_size * pool_size
        shape = (out_size, pool_size)
        initialW, initial_bias = _seen_as(initialW, (*shape, -1), (total, -1)), _seen_as(initial_bias, shape, (total,))
        self.out_size, self.pool_size = out_size, pool_size
        with self.init_scope():
            self.linear = Linear(in_size, total, initial_bias is None, initialW, initial_bias)

    def forward(self, x: Any) -> Any:
        """Apply the layer to ``x``, whose axis 0 is the batch; the result has the shape (batch, out_size)."""
        return F.maxout(self.linear(x), self.pool_size)
