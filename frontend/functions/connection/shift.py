"""Channels moved in all directions."""
from __future__ import annotations

from typing import Any

from ...utils import type_check
from ...variable import Variable, as_variable
from ..array.join import concat
from ..array.rearrange import pad


def shift(x: Any, ksize: Any = 3, dilate: Any = 1) -> Variable:
    """Move every group of channels by one of the offsets of a window; zeros come in from outside.

    There is one group for every position of the window, row by row; the last one and the channels that are left over
    stay where they are, and the group of the middle goes where the last position is.

    Args:
        x: Floating-point images, (N, C, height, width).
        ksize: Height and width of the window, both odd, or one number for both.
        dilate: Distance of neighbouring positions of the window, or a pair.

    Returns:
        Variable: Of the shape of ``x``.

    Raises:
        InvalidType: ``x`` is not of four axes, or not of floating point.
        ValueError: A size of the window is even.

    See: Wu et al., `Shift: A Zero FLOP, Zero Parameter Alternative to Spatial Convolutions
    <https://arxiv.org/abs/1711.08141>`_, 2017.

    Example:
        >>> x = np.arange(6, dtype="float32").reshape(1, 3, 1, 2)
        >>> kusari.functions.shift(x, (1, 3)).array.reshape(3, 2)
        array([[1., 0.],
               [0., 2.],
               [4., 5.]], dtype=float32)
    """
    x = as_variable(x)
    (kh, kw), (dy, dx) = _pair(ksize), _pair(dilate)
    for name, size in (("height", kh), ("width", kw)):
        if size % 2 == 0:
            raise ValueError(f"the {name} of the window must be odd, got {size}")
    if x.ndim != 4 or x.dtype.kind != "f":
        raise type_check.InvalidType("x: floating-point images of four axes", f"{x.dtype}{x.shape}",
                                     "\nInvalid operation is performed in: Shift (Forward)")
    h, w = x.shape[2:]
    size = x.shape[1] // (kh * kw)
    offsets = [(dy * (i - kh // 2), dx * (j - kw // 2)) for i in range(kh) for j in range(kw)]
    middle = len(offsets) // 2
    offsets[middle], offsets[-1] = offsets[-1], offsets[middle]
    above, before = dy * (kh // 2), dx * (kw // 2)
    wide = pad(x, ((0, 0), (0, 0), (above, above), (before, before)), "constant")
    parts: list[Variable] = []
    if size:
        for g, (down, right) in enumerate(offsets[:-1]):
            top, left = above - down, before - right
            parts.append(wide[:, g * size:(g + 1) * size, top:top + h, left:left + w])
    parts.append(x[:, size * (len(offsets) - 1):])
    return concat(parts, axis=1)


def _pair(value: Any) -> tuple[int, int]:
    return (int(value), int(value)) if isinstance(value, int) else (int(value[0]), int(value[1]))
