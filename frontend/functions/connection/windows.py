"""Windows sliding over the last axes of an array: views, sums back, and the same in the compiler's vocabulary.

Convolutions and poolings of any number of dimensions stand on these few functions.
"""
from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from math import prod
from typing import Any, NamedTuple

import numpy as np

from ...callsite import user_location
from ...utils import type_check
from ...utils.conv import get_conv_outsize, get_deconv_outsize
from ..array.cast import cast

# A lowering by windows costs one slice for each offset in the window. With more than these the node runs by Python.
MOST_SLICES = 64

Ints = tuple[int, ...]


def spread(value: Any, ndim: int, name: str) -> Ints:
    """Return a setting given once for all axes, or for each of ``ndim`` axes, as a tuple.

    Raises:
        ValueError: There are more or fewer than ``ndim``, ``ndim`` is less than 1, or a step or distance is.
    """
    if ndim < 1:
        raise ValueError("windows need at least one axis after batch and channels")
    values = tuple([int(v) for v in value]) if hasattr(value, "__len__") else (int(value),) * ndim
    if len(values) != ndim:
        raise ValueError(f"{name} must be one number or {ndim} of them, got {value!r}")
    if name in ("stride", "dilate") and min(values) < 1:
        raise ValueError(f"{name} must be at least 1, got {value!r}")
    return values


def sizes(shape: Sequence[int], ksize: Ints, stride: Ints, pad: Ints, cover_all: bool, dilate: Ints | None = None,
          ) -> Ints:
    """Return how many windows there are along each axis.

    Raises:
        InvalidType: There is none.
    """
    dilate = dilate or (1,) * len(ksize)
    found = tuple([get_conv_outsize(n, k, s, p, cover_all, d)
                   for n, k, s, p, d in zip(shape, ksize, stride, pad, dilate, strict=True)])
    if min(found) <= 0:
        raise type_check.InvalidType("at least one window fits along each axis: output sizes > 0",
                                     f"{found} for input {tuple(shape)}, ksize {ksize}, stride {stride}, pad {pad}, "
                                     f"dilate {dilate}")
    return found


def original_sizes(shape: Sequence[int], ksize: Ints, stride: Ints, pad: Ints, cover_all: bool,
                   dilate: Ints | None = None, least: int = 1) -> Ints:
    """Return the extents on which there are ``shape`` windows.

    Raises:
        InvalidType: One of them is less than ``least``.
    """
    dilate = dilate or (1,) * len(ksize)
    found = tuple([get_deconv_outsize(n, k, s, p, cover_all, d)
                   for n, k, s, p, d in zip(shape, ksize, stride, pad, dilate, strict=True)])
    if min(found) < least:
        raise type_check.InvalidType(f"output sizes > {least - 1}", f"{found} for input {tuple(shape)}, ksize {ksize}, "
                                     f"stride {stride}, pad {pad}, dilate {dilate}")
    return found


def expect_axes(x: Any, ndim: int, name: str = "x") -> None:
    """Raise unless ``x`` has ``ndim`` axes after batch and channels.

    Raises:
        ValueError: It has more or fewer.
    """
    if x.ndim != ndim + 2:
        raise ValueError(f"The number of dimensions under channel dimension of the input '{name}' should be {ndim}. "
                         f"But the actual ndim was {x.ndim - 2}.")


def expect_weights(x: Any, W: Any, b: Any, label: str) -> tuple[int, Any]:
    """Return the number of axes that windows slide over, and the bias in the dtype of ``x``.

    Raises:
        InvalidType: There is no such axis, or the weights have another number of them.
    """
    if x.ndim < 3 or W.ndim != x.ndim:
        raise type_check.InvalidType("x.ndim == W.ndim, which is 2 more than the axes that windows slide over",
                                     f"x: {tuple(x.shape)}, W: {tuple(W.shape)}",
                                     f"\nInvalid operation is performed in: {label} (Forward)", user_location())
    return x.ndim - 2, b if b is None or b.dtype == x.dtype or b.dtype.kind != "f" else cast(b, x.dtype)


class Windows(NamedTuple):
    """``out`` windows of ``ksize`` elements, ``dilate`` apart, every ``stride`` elements, on axes padded by ``pad``.

    Invariant: all fields are as long as the number of sliding axes, the last ones of every array given.
    """

    ksize: Ints
    stride: Ints
    pad: Ints
    dilate: Ints
    out: Ints

    @property
    def reach(self) -> Ints:
        """Extents that the windows cover, from the start of the padding."""
        return tuple([(o - 1) * s + (k - 1) * d + 1 for k, s, d, o in zip(
            self.ksize, self.stride, self.dilate, self.out, strict=True)])

    def padded_sizes(self, shape: Ints) -> Ints:
        """Extents of an array that holds the axes ``shape``, the padding before them, and all that windows cover."""
        return tuple([max(p + n, r) for p, n, r in zip(self.pad, shape, self.reach, strict=True)])

    @property
    def count(self) -> int:
        """Number of elements in a window."""
        return prod(self.ksize)

    @property
    def is_identity(self) -> bool:
        """Whether the windows are the elements themselves."""
        return self.count == 1 and set(self.stride) == {1} and not any(self.pad)

    @property
    def tiles(self) -> bool:
        """Whether windows are adjacent: none overlap, nothing is left out between them."""
        return self.stride == self.ksize and set(self.dilate) == {1} and not any(self.pad)

    @property
    def overlap(self) -> bool:
        """Whether an element may be in several windows (false only if certainly not)."""
        return any(s < (k - 1) * d + 1 for k, s, d in zip(self.ksize, self.stride, self.dilate, strict=True))

    def offsets(self) -> Iterator[tuple[slice, ...]]:
        """For each element of the window, in C order, where it is in all windows: slices of a padded array."""
        return itertools.product(*[[slice(i * d, i * d + (o - 1) * s + 1, s) for i in range(k)] for k, s, d, o in zip(
            self.ksize, self.stride, self.dilate, self.out, strict=True)])

    # -- on arrays ----------------------------------------------------------------------------------------------

    def padded(self, xp: Any, x: Any, value: float = 0) -> Any:
        """Return ``x`` in an array that covers all windows; ``x`` itself where it does."""
        n = len(self.ksize)
        shape = x.shape[x.ndim - n:]
        extents = self.padded_sizes(shape)
        if extents == shape:
            return x
        lead = x.shape[:x.ndim - n]
        y = xp.full(lead + extents, value, x.dtype) if value else xp.zeros(lead + extents, x.dtype)
        y[(..., *[slice(p, p + m) for p, m in zip(self.pad, shape, strict=True)])] = x
        return y

    def pieces(self, xp: Any, x: Any, value: float = 0) -> list[Any]:
        """For each element of the window a view of shape (…, out): that element in every window."""
        x = self.padded(xp, x, value)
        return [x[(..., *where)] for where in self.offsets()]

    def view(self, xp: Any, x: Any) -> Any:
        """All windows of a padded array as a view of shape (lead, ksize, rest, out); ``x`` is (lead, rest, padded).

        ``lead`` is the first axis and ``rest`` the second.
        """
        steps = x.strides[2:]
        strides = (x.strides[0], *[v * d for v, d in zip(steps, self.dilate, strict=True)], x.strides[1],
                   *[v * s for v, s in zip(steps, self.stride, strict=True)])
        return xp.lib.stride_tricks.as_strided(x, (x.shape[0], *self.ksize, x.shape[1], *self.out), strides)

    def cropped(self, y: Any, shape: Ints) -> Any:
        """Undo `padded`: a view of the last axes ``shape``."""
        if y.shape[y.ndim - len(shape):] == shape:
            return y
        return y[(..., *[slice(p, p + m) for p, m in zip(self.pad, shape, strict=True)])]

    # -- in the compiler's vocabulary ---------------------------------------------------------------------------

    def lowered_padded(self, b: Any, x: Any, value: float = 0.0) -> Any:
        """`padded` in primitives."""
        n = len(self.ksize)
        lead, shape = x.shape[:-n], x.shape[-n:]
        extents = self.padded_sizes(shape)
        if extents == shape:
            return x
        where = {"shape": lead + extents, "starts": (0,) * len(lead) + self.pad, "steps": (1,) * len(x.shape),
                 "stops": lead + tuple([p + m for p, m in zip(self.pad, shape, strict=True)])}
        y = b.one("pad_slice", x, **where)
        if value == 0:
            return y
        inside = b.one("pad_slice", b.full(x.shape, 1, x.tensor.dtype), **where)
        return b.cast(b.call("where", b.call("not_equal", inside, 0), y, value), x.tensor.dtype)

    def lowered_pieces(self, b: Any, x: Any, value: float = 0.0) -> list[Any]:
        """`pieces` in primitives."""
        x = self.lowered_padded(b, x, value)
        lead = x.shape[:len(x.shape) - len(self.ksize)]
        whole = tuple([slice(0, n, 1) for n in lead])
        return [_slice(b, x, whole + where) for where in self.offsets()]

    def lowered_sum(self, b: Any, pieces: Sequence[Any], shape: Ints) -> Any:
        """Put each piece where `lowered_pieces` takes it from, add them, and undo the padding."""
        lead = pieces[0].shape[:-len(shape)]
        extents = lead + self.padded_sizes(shape)
        total: Any = None
        for piece, where in zip(pieces, self.offsets(), strict=True):
            whole = (*[slice(0, n, 1) for n in lead], *where)
            y = b.one("pad_slice", piece, shape=extents, starts=tuple([s.start for s in whole]),
                      stops=tuple([s.stop for s in whole]), steps=tuple([s.step for s in whole]))
            total = y if total is None else b.call("add", total, y)
        return _slice(b, total, (*[slice(0, n, 1) for n in lead], *[
            slice(p, p + m, 1) for p, m in zip(self.pad, shape, strict=True)]))

    def lowered_tiles(self, b: Any, y: Any, shape: Ints) -> Any:
        """Make an array of ``shape`` of tiles: ``y`` has shape (lead, out, ksize) with those two interleaved."""
        n = len(shape)
        lead = y.shape[:-2 * n]
        y = b.reshape(y, lead + tuple([o * k for o, k in zip(self.out, self.ksize, strict=True)]))
        kept = lead + tuple([min(a, m) for a, m in zip(y.shape[-n:], shape, strict=True)])
        y = _slice(b, y, tuple([slice(0, m, 1) for m in kept]))
        if kept == lead + shape:
            return y
        return b.one("pad_slice", y, shape=lead + shape, starts=(0,) * len(kept), stops=kept, steps=(1,) * len(kept))


def _slice(b: Any, x: Any, where: Sequence[slice]) -> Any:
    """Slice, unless it takes everything."""
    if all(s.start == 0 and s.step == 1 and s.stop == n for s, n in zip(where, x.shape, strict=True)):
        return x
    # A step over a single element says nothing, but would keep equal slices from being seen as equal.
    return b.slice(x, [s.start for s in where], [s.stop for s in where],
                   [1 if s.stop - s.start == 1 else s.step for s in where])


def interleaved(first: Ints, second: Ints) -> Ints:
    """``(a0, b0, a1, b1, …)``."""
    return tuple([v for pair in zip(first, second, strict=True) for v in pair])


def work_dtype(*dtypes: Any) -> Any:
    """Return the dtype to accumulate in: the widest, at least float32."""
    return np.result_type(*dtypes, np.float32)


def instead_of(*arrays: Any) -> Any:
    """Return the maker of results for the stand-ins on which gradients are derived; None for ordinary arrays."""
    return next((make for x in arrays if (make := getattr(x, "instead", None)) is not None), None)
