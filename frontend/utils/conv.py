"""The arithmetic of windows: how many there are, what size they came from, arrays of them and back."""
from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from typing import Any

from .. import backend


def get_conv_outsize(size: int, k: int, s: int, p: int, cover_all: bool = False, d: int = 1) -> int:
    """Number of positions of a window along one axis.

    Args:
        size: Extent of the axis.
        k: Size of the window.
        s: Step from one window to the next.
        p: Padding on either side.
        cover_all: Whether windows go on until every element is in one, beyond the padding if need be.
        d: Distance between the elements of a window.

    >>> get_conv_outsize(6, 3, 2, 0), get_conv_outsize(6, 3, 2, 0, cover_all=True)
    (2, 3)
    """
    reach = d * (k - 1) + 1
    return (size + 2 * p - reach + (s - 1 if cover_all else 0)) // s + 1


def get_deconv_outsize(size: int, k: int, s: int, p: int, cover_all: bool = False, d: int = 1) -> int:
    """Extent of the axis on which ``size`` windows were: the least one, or with ``cover_all`` for such windows.

    Args:
        size: Number of windows.
        k: Size of the window.
        s: Step from one window to the next.
        p: Padding on either side.
        cover_all: Whether the windows went on until every element was in one.
        d: Distance between the elements of a window.

    >>> get_deconv_outsize(3, 2, 2, 0)
    6
    """
    reach = d * (k - 1) + 1
    return s * (size - 1) + reach - 2 * p - (s - 1 if cover_all else 0)


def as_tuple(x: Any, n: int) -> tuple[Any, ...]:
    """Return a number as often as there are axes, and a sequence of that length as a tuple.

    Raises:
        AssertionError: The sequence has another length.
    """
    values = tuple(x) if isinstance(x, Sequence) else (x,) * n
    if len(values) != n:
        raise AssertionError(f"expected {n} numbers, one for each axis, got {x!r}")
    return values


Slices = tuple[Any, ...]


def _places(sizes: Sequence[int], ksize: Sequence[int], outs: Sequence[int], stride: Sequence[int], pad: Sequence[int],
            dilate: Sequence[int]) -> Iterator[tuple[Slices, Slices]]:
    """For every element of a window, where it is in all windows, and which elements of the array these are."""
    for place in itertools.product(*map(range, ksize)):
        windows, elements = [], []
        for i, size, out, s, p, d in zip(place, sizes, outs, stride, pad, dilate, strict=True):
            offset = i * d - p
            first, last = max(0, -(offset // s)), min(out - 1, (size - 1 - offset) // s)
            stop = max(first, last + 1)
            windows.append(slice(first, stop))
            elements.append(slice(first * s + offset, max(stop * s + offset - s + 1, 0) if stop > first else 0, s))
        if all(w.stop > w.start for w in windows):
            yield (slice(None), slice(None), *place, *windows), (slice(None), slice(None), *elements)


def im2col_nd(img: Any, ksize: Any, stride: Any, pad: Any, cover_all: bool = False, dilate: Any = 1,
              pval: float = 0, outs: Sequence[int | None] | None = None) -> Any:
    """Take all windows of an array (N, C, sizes …): an array (N, C, \\*ksize, \\*numbers of windows).

    Args:
        img: The array.
        ksize: Sizes of the window.
        stride: Steps from one window to the next.
        pad: Paddings on either side.
        cover_all: Whether windows go on until every element is in one.
        dilate: Distances between the elements of a window.
        pval: The value of the padding.
        outs: Numbers of windows, where they are known.

    Raises:
        AssertionError: There are not as many sizes, steps or paddings as axes.
    """
    sizes = img.shape[2:]
    ksize, stride, pad, dilate = (as_tuple(v, len(sizes)) for v in (ksize, stride, pad, dilate))
    counts = [get_conv_outsize(size, k, s, p, cover_all, d) if out is None else out for out, size, k, s, p, d in zip(
        outs or (None,) * len(sizes), sizes, ksize, stride, pad, dilate, strict=True)]
    col = backend.get_array_module(img).full((*img.shape[:2], *ksize, *counts), pval, img.dtype)
    for windows, elements in _places(sizes, ksize, counts, stride, pad, dilate):
        col[windows] = img[elements]
    return col


def col2im_nd(col: Any, stride: Any, pad: Any, dims: Any, dilate: Any = 1) -> Any:
    """Add all windows up to an array of sizes ``dims``: what `im2col_nd` transposes to."""
    n = col.ndim // 2 - 1
    dims = as_tuple(dims, n)
    stride, pad, dilate = (as_tuple(v, n) for v in (stride, pad, dilate))
    img = backend.get_array_module(col).zeros((*col.shape[:2], *dims), col.dtype)
    for windows, elements in _places(dims, col.shape[2:2 + n], col.shape[2 + n:], stride, pad, dilate):
        img[elements] += col[windows]
    return img


def im2col(img: Any, kh: int, kw: int, sy: int, sx: int, ph: int, pw: int, cover_all: bool = False, dy: int = 1,
           dx: int = 1, pval: float = 0, out_h: int | None = None, out_w: int | None = None) -> Any:
    """Take all windows of images (N, C, H, W), as `im2col_nd` does: (N, C, kh, kw, rows, columns)."""
    return im2col_nd(img, (kh, kw), (sy, sx), (ph, pw), cover_all, (dy, dx), pval, (out_h, out_w))


def im2col_cpu(img: Any, kh: int, kw: int, sy: int, sx: int, ph: int, pw: int, pval: float = 0,
               cover_all: bool = False, dy: int = 1, dx: int = 1, out_h: int | None = None,
               out_w: int | None = None) -> Any:
    """Take all windows of images, as `im2col` does."""
    return im2col(img, kh, kw, sy, sx, ph, pw, cover_all, dy, dx, pval, out_h, out_w)


def col2im(col: Any, sy: int, sx: int, ph: int, pw: int, h: int, w: int, dy: int = 1, dx: int = 1) -> Any:
    """Add all windows up to images of height ``h`` and width ``w``, as `col2im_nd` does."""
    return col2im_nd(col, (sy, sx), (ph, pw), (h, w), (dy, dx))
