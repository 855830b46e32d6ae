"""Normalizations that are one operator of ONNX, as one node; made in exports only, and not differentiated."""
from __future__ import annotations

from typing import Any

import numpy as np

from ... import tape as _tape
from ...configuration import config
from ...function_node import FunctionNode
from .statistics import Standardize


def exporting() -> bool:
    """Whether functions are recorded for an export, and nothing asks for gradients."""
    return getattr(_tape.active(), "whole_layers", False) and not config.enable_backprop


class GroupNormalization(FunctionNode):
    """``x, gamma, beta`` to the normalized groups of channels, scaled and shifted by channel."""

    def __init__(self, groups: int, eps: float) -> None:
        super().__init__()
        self.groups = groups
        self.eps = eps

    def _shapes(self, shape: tuple[int, ...]) -> tuple[tuple[int, ...], tuple[int, int], Standardize]:
        parts = self.groups, shape[1] // self.groups
        wide = (shape[0], *parts, *shape[2:])
        return wide, parts, Standardize(tuple(range(2, len(wide))), (1, 2), self.eps)

    def forward(self, inputs: tuple[Any, ...]) -> tuple[Any, ...]:
        x, gamma, beta = inputs
        wide, parts, function = self._shapes(x.shape)
        y = function.apply((x.reshape(wide), gamma.reshape(parts), beta.reshape(parts)))[0]
        return y._array.reshape(x.shape),

    def lower(self, b: Any, x: Any, gamma: Any, beta: Any) -> tuple[Any, ...]:
        wide, parts, function = self._shapes(x.shape)
        y = function.lower(b, b.reshape(x, wide), b.reshape(gamma, parts), b.reshape(beta, parts))[0]
        return b.reshape(y, x.shape),

    def onnx(self, g: Any, x: str, gamma: str, beta: str) -> Any:
        if g.opset < 21:  # what opset 18 has takes a scale per group
            return NotImplemented
        return g.GroupNormalization(x, gamma, beta, epsilon=self.eps, num_groups=self.groups)


class LocalResponseNormalization(FunctionNode):
    """``x / (k + alpha * sum of squares over 2 * half + 1 channels) ** beta``."""

    def __init__(self, half: int, k: float, alpha: float, beta: float) -> None:
        super().__init__()
        self.half = half
        self.k = k
        self.alpha = alpha
        self.beta = beta

    def forward(self, inputs: tuple[Any, ...]) -> tuple[Any, ...]:
        from .normalization import normalized_locally
        return normalized_locally(inputs[0], self.half, self.k, self.alpha, self.beta)._array,

    def lower(self, b: Any, x: Any) -> tuple[Any, ...]:
        n, c, *rest = x.shape
        zeros, ones, half = (0,) * len(x.shape), (1,) * len(x.shape), self.half
        wide = (n, c + 2 * half, *rest)
        squares = b.one("pad_slice", b.call("multiply", x, x), shape=wide, starts=(0, half, *zeros[2:]),
                        stops=(n, half + c, *rest), steps=ones)
        total = b.slice(squares, zeros, x.shape, ones)
        for i in range(1, 2 * half + 1):
            total = b.call("add", total, b.slice(squares, (0, i, *zeros[2:]), (n, i + c, *rest), ones))
        return b.map(lambda x, total: x * (total * self.alpha + self.k) ** -self.beta, x, total),

    def onnx(self, g: Any, x: str) -> Any:
        t, size = g.type(x), 2 * self.half + 1
        if t.dtype != np.float32 or len(t.shape) != 4:  # others are not to be had everywhere
            return NotImplemented
        return g.LRN(x, alpha=self.alpha * size, beta=self.beta, bias=self.k, size=size)
