"""The bilinear layer."""

from __future__ import annotations

from math import prod
from typing import Any

from ... import functions as F
from ...errors import ArgumentError
from ...initializers import _get_initializer
from ...link import Link
from ...parameter import Parameter
from ...utils.arrays import is_array

__all__ = ["Bilinear"]


class Bilinear(Link):
    """A bilinear form of two inputs for every output, and a linear one of each: ``e1 W e2 + e1 V1 + e2 V2 + b``.

    Socher et al., `Reasoning With Neural Tensor Networks for Knowledge Base Completion
    <https://papers.nips.cc/paper/5028>`_ (2013).

    Args:
        left_size: Number of left inputs, or None to see it from the first call.
        right_size: Number of right inputs, or None.
        out_size: Number of outputs.
        nobias: Whether to leave out ``V1``, ``V2`` and ``b``.
        initialW: Initializer of ``W``.
        initial_bias: Initializers of ``V1``, ``V2`` and ``b``, as a tuple.

    Attributes:
        W: Weights, (left, right, out).
        V1: Weights of the left inputs, (left, out).
        V2: Weights of the right inputs, (right, out).
        b: Bias, (out,).

    Raises:
        ArgumentError: An initial array has another shape (also ValueError).
    """

    def __init__(
        self,
        left_size: int | None,
        right_size: int | None,
        out_size: int,
        nobias: bool = False,
        initialW: Any = None,
        initial_bias: tuple[Any, Any, Any] | None = None,
    ) -> None:
        super().__init__()
        if initial_bias is not None and len(initial_bias) != 3:
            raise ValueError(f"initial_bias must be a tuple of three, for V1, V2 and b; got {len(initial_bias)}")
        first, second, bias = initial_bias or (None, None, 0)
        shapes = {"W": (initialW, (left_size, right_size, out_size)), "V1": (first, (left_size, out_size)),
                  "V2": (second, (right_size, out_size)), "b": (bias, (out_size,))}
        for name, (array, shape) in shapes.items():
            if is_array(array) and None not in shape and array.shape != shape:
                raise ArgumentError(f"the initial array of {name} must have the shape {shape}, got {array.shape}")
        self.in_sizes = left_size, right_size
        self.out_size, self.nobias = out_size, nobias
        with self.init_scope():
            self.W = Parameter(_get_initializer(initialW))
            if not nobias:
                self.V1 = Parameter(_get_initializer(first))
                self.V2 = Parameter(_get_initializer(second))
                self.b = Parameter(_get_initializer(bias), out_size)
        if left_size is not None and right_size is not None:
            self._initialize_params(left_size, right_size)

    def _initialize_params(self, left: int, right: int) -> None:
        self.in_sizes = left, right
        self.W.initialize((left, right, self.out_size))
        if not self.nobias:
            self.V1.initialize((left, self.out_size))
            self.V2.initialize((right, self.out_size))

    def forward(self, e1: Any, e2: Any) -> Any:
        """Apply the layer to ``e1`` and ``e2``, whose axes after the batch are taken together."""
        if self.W._array is None:
            self._initialize_params(prod(e1.shape[1:]), prod(e2.shape[1:]))
        if self.nobias:
            return F.bilinear(e1, e2, self.W)
        return F.bilinear(e1, e2, self.W, self.V1, self.V2, self.b)

