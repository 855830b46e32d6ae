"""The three ops of convolution: forward, the gradient of the input (a transposed convolution), that of the weights.

Arrays are ``x`` (N, C, d1 …), ``W`` (O, C / groups, k1 …) and ``y`` (N, O, o1 …), with one to three sliding axes or
more. Output ``o`` along an axis sees the elements ``o * stride - pad + t * dilate`` for every offset ``t`` of the
window; those outside are zero. ``size`` are the extents that the operands leave open: of ``y`` for ``conv``, of ``x``
for ``conv_input``, of the window for ``conv_weight``. ``pad`` is the padding before an axis; the padding after it
follows from the windows. With ``wide`` operands are halves, and results, added up in float32, stay that.
"""
from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from math import prod
from typing import Any

from .op import Attrs
from .primitives import like, module_of, primitive, wide_dtype, widened
from .types import TensorType, Type

Ints = tuple[int, ...]


@dataclass(frozen=True)
class Windows:
    """Windows of ``kernel`` elements on axes of extents ``size``, ``out`` of them along each axis."""

    size: Ints
    out: Ints
    kernel: Ints
    stride: Ints
    pad: Ints
    dilate: Ints

    def __post_init__(self) -> None:
        rank = len(self.kernel)
        fields = (self.size, self.out, self.stride, self.pad, self.dilate)
        if rank < 1 or any(len(f) != rank for f in fields) or min((*self.stride, *self.dilate)) < 1:
            raise ValueError(f"expected {rank} extents, steps and paddings, got {self!r}")

    @property
    def reach(self) -> Ints:
        """Extents from the start of the padding to the end of the last window."""
        return tuple([max(o - 1, 0) * s + max(k - 1, 0) * d + 1 for k, s, d, o in zip(
            self.kernel, self.stride, self.dilate, self.out, strict=True)])

    def suits_winograd(self, groups: int) -> bool:
        """Whether Winograd's algorithm can take fewer products: 3 x 3 neighbours in each window, channels in one group.

        Gradients take steps of one from window to window, others two as well.
        """
        return groups == 1 and (self.kernel, self.dilate) == ((3, 3), (1, 1)) and self.stride in ((1, 1), (2, 2))

    def taps(self) -> Iterator[Ints]:
        """The offsets of a window, in C order."""
        return itertools.product(*map(range, self.kernel))

    def padded(self, xp: Any, x: Any, value: float = 0) -> Any:
        """``x`` surrounded by zeros (or by ``value``) up to the end of the last window."""
        extents = [max(p + n, r) for p, n, r in zip(self.pad, self.size, self.reach, strict=True)]
        y = xp.full((*x.shape[:2], *extents), value, x.dtype)
        y[self._inside(x.shape)] = x
        return y

    def _inside(self, shape: Ints) -> tuple[Any, ...]:
        return (..., *(slice(p, p + n) for p, n in zip(self.pad, shape[2:], strict=True)))

    def cropped(self, y: Any, shape: Ints) -> Any:
        """The part of a padded array that is not padding."""
        return y[self._inside(shape)]

    def at(self, tap: Ints) -> tuple[Any, ...]:
        """The element ``tap`` of every window of a padded array."""
        return (..., *(slice(t * d, t * d + (o - 1) * s + 1 if o else t * d, s) for t, d, s, o in zip(
            tap, self.dilate, self.stride, self.out, strict=True)))


def windows_of(op: str, attrs: Attrs, first: Ints, second: Ints) -> Windows:
    """Return the geometry of a node of ``op`` from the shapes of its operands."""
    size: Ints = tuple(attrs["size"])
    if op == "conv":
        extents = (first[2:], size, second[2:])
    elif op == "conv_input":
        extents = (size, first[2:], second[2:])
    else:
        extents = (first[2:], second[2:], size)
    return Windows(*extents, tuple(attrs["stride"]), tuple(attrs["pad"]), tuple(attrs["dilate"]))


def _check(ok: bool, op: str, attrs: Attrs, a: TensorType, b: TensorType) -> None:
    if not ok or a.dtype != b.dtype or len(a.shape) != len(b.shape) or attrs["groups"] < 1:
        raise ValueError(f"{op} of {a!r} and {b!r} with {dict(attrs)}: dtypes or extents do not fit each other")
    windows_of(op, attrs, a.shape, b.shape)


@primitive("conv")
class CONV:
    """``y[n, o, p] = sum of x[n, c, p * stride - pad + t * dilate] * W[o, c, t]``, ``c`` in the group of ``o``."""

    @staticmethod
    def call(attrs: Attrs, x: Any, W: Any) -> tuple[Any, ...]:
        x, weights = widened(attrs, x, W)
        xp, groups, windows = module_of(x), attrs["groups"], windows_of("conv", attrs, x.shape, W.shape)
        n, o, positions = len(x), len(W), prod(windows.out)
        padded = windows.padded(xp, x)
        w = weights.reshape(1, groups, o // groups, W.shape[1], prod(windows.kernel))
        y = xp.zeros((n, groups, o // groups, positions), x.dtype)
        for i, tap in enumerate(windows.taps()):
            y += xp.matmul(w[..., i], padded[windows.at(tap)].reshape(n, groups, W.shape[1], positions))
        return (y.reshape(n, o, *windows.out),)

    @staticmethod
    def types(attrs: Attrs, x: TensorType, W: TensorType) -> tuple[Type, ...]:
        groups = attrs["groups"]
        _check(x.shape[1] == W.shape[1] * groups and W.shape[0] % groups == 0, "conv", attrs, x, W)
        return like(x, (x.shape[0], W.shape[0], *attrs["size"]), wide_dtype(attrs, x, W))


@primitive("conv_input")
class CONV_INPUT:
    """The gradient of ``conv`` with regard to ``x``, from that of ``y`` and ``W``; also a transposed convolution."""

    @staticmethod
    def call(attrs: Attrs, gy: Any, W: Any) -> tuple[Any, ...]:
        gy, weights = widened(attrs, gy, W)
        xp, groups, windows = module_of(gy), attrs["groups"], windows_of("conv_input", attrs, gy.shape, W.shape)
        n, o, channels = len(gy), len(W), W.shape[1] * groups
        shape = (n, channels, *windows.size)
        w = weights.reshape(1, groups, o // groups, W.shape[1], prod(windows.kernel)).swapaxes(2, 3)
        g = gy.reshape(n, groups, o // groups, prod(windows.out))
        total = windows.padded(xp, xp.zeros(shape, gy.dtype))
        for i, tap in enumerate(windows.taps()):
            total[windows.at(tap)] += xp.matmul(w[..., i], g).reshape(n, channels, *windows.out)
        return (xp.ascontiguousarray(windows.cropped(total, shape)),)

    @staticmethod
    def types(attrs: Attrs, gy: TensorType, W: TensorType) -> tuple[Type, ...]:
        groups = attrs["groups"]
        _check(gy.shape[1] == W.shape[0] and W.shape[0] % groups == 0, "conv_input", attrs, gy, W)
        return like(gy, (gy.shape[0], W.shape[1] * groups, *attrs["size"]), wide_dtype(attrs, gy, W))


@primitive("conv_weight")
class CONV_WEIGHT:
    """The gradient of ``conv`` with regard to ``W``, from ``x`` and that of ``y``."""

    @staticmethod
    def call(attrs: Attrs, x: Any, gy: Any) -> tuple[Any, ...]:
        x, gy = widened(attrs, x, gy)
        xp, groups, windows = module_of(x), attrs["groups"], windows_of("conv_weight", attrs, x.shape, gy.shape)
        n, o, c = len(x), gy.shape[1], x.shape[1] // groups
        padded = windows.padded(xp, x)
        g = gy.reshape(n, groups, o // groups, prod(windows.out))
        parts = [xp.matmul(g, padded[windows.at(tap)].reshape(g.shape[:2] + (c, g.shape[3])).swapaxes(2, 3)).sum(0)
                 for tap in windows.taps()]
        gW = xp.stack(parts, -1) if parts else xp.zeros((o * c, 0), x.dtype)
        return (xp.ascontiguousarray(gW.reshape(o, c, *windows.kernel)),)

    @staticmethod
    def types(attrs: Attrs, x: TensorType, gy: TensorType) -> tuple[Type, ...]:
        groups = attrs["groups"]
        fits = x.shape[0] == gy.shape[0] and x.shape[1] % groups == 0 and gy.shape[1] % groups == 0
        _check(fits, "conv_weight", attrs, x, gy)
        return like(x, (gy.shape[1], x.shape[1] // groups, *attrs["size"]), wide_dtype(attrs, x, gy))


CONVOLUTIONS = frozenset(("conv", "conv_input", "conv_weight"))


def padding_after(windows: Windows) -> Ints:
    """The padding after each axis, negative where windows leave elements out."""
    return tuple([r - n - p for r, n, p in zip(windows.reach, windows.size, windows.pad, strict=True)])

