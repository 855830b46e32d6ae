"""Blocks of pixels as channels, and back."""
from __future__ import annotations

from typing import Any

from ...utils import type_check
from ...variable import Variable, as_variable
from .axes import transpose
from .shape import reshape


def _image(name: str, X: Any) -> Variable:
    X = as_variable(X)
    if X.dtype.kind != "f" or X.ndim != 4:
        raise type_check.InvalidType("X: floating, 4 axes", f"{X.dtype}, {X.ndim} axes",
                                     f"\nInvalid operation is performed in: {name} (Forward)")
    return X


def depth2space(X: Any, r: int) -> Variable:
    """Turn every ``r * r`` channels into a block of ``r`` by ``r`` pixels.

    Args:
        X: Input of shape (N, C r², H, W).
        r: Upscaling factor.

    Returns:
        Variable: Of shape (N, C, H r, W r).

    See: Shi et al., `Real-Time Single Image and Video Super-Resolution Using an Efficient Sub-Pixel Convolutional
    Neural Network <https://arxiv.org/abs/1609.05158>`_, 2016.
    """
    X = _image("Depth2Space", X)
    n, c, h, w = X.shape
    c //= r * r
    return reshape(transpose(reshape(X, (n, r, r, c, h, w)), (0, 3, 4, 1, 5, 2)), (n, c, h * r, w * r))


def space2depth(X: Any, r: int) -> Variable:
    """Turn every block of ``r`` by ``r`` pixels into ``r * r`` channels: the inverse of `depth2space`.

    Args:
        X: Input of shape (N, C, H r, W r).
        r: Downscaling factor.

    Returns:
        Variable: Of shape (N, C r², H, W).
    """
    X = _image("Space2Depth", X)
    n, c, h, w = X.shape
    h, w = h // r, w // r
    return reshape(transpose(reshape(X, (n, c, h, r, w, r)), (0, 3, 5, 1, 2, 4)), (n, r * r * c, h, w))
