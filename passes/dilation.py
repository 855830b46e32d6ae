"""Dilated convolutions as dense ones: pixels that are a dilation apart become neighbours in images of their own.

Winograd's algorithm computes windows of 3 x 3 neighbours, with a fraction of the products.
"""
from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from kusari.ir import CONVOLUTIONS, Builder, Graph, Node, Value, windows_of
from kusari.ir.costs import (
    BYTE_PICOSECONDS,
    CYCLE_PICOSECONDS,
    PRODUCT_CYCLES,
    WINOGRAD_OWN_WEIGHT_CYCLES,
    WINOGRAD_SHARED_WEIGHT_CYCLES,
    WINOGRAD_TILE_CYCLES,
)

from .rewrite import Rule, Site, rewrite

_LANES = 16          # of the vectors of which cycles are counted
_DIRECT_RATIO = 1.2  # times the cycles of its multiply-adds: the sums as they are defined
_TILES_RATIO = 1.1   # the same of tiles, which are not all full
_WORTH_SHARE = 0.8   # of the time, at most


def split_dilated(graph: Graph) -> Graph:
    """Convolutions of 3 x 3 windows with gaps become convolutions of more and smaller images."""
    return rewrite(graph, _RULES)


def _dense(b: Site, node: Node) -> tuple[Value, ...] | None:
    """``conv(x, dilate=d) = together(conv(apart(x, d)))``, and so for both gradients, where that is faster"""
    first, second = node.inputs
    op = node.op.name
    w = windows_of(op, node.attrs, first.shape, second.shape)
    near = replace(w, dilate=(1,) * len(w.dilate))
    if near == w or set(w.stride) != {1} or not near.suits_winograd(node.attrs["groups"]):
        return None
    if first.tensor.dtype != np.dtype("float32") or first.tensor.device != "cpu":
        return None
    x, y = {"conv": (first, node.output), "conv_input": (node.output, first), "conv_weight": (first, second)}[op]
    step = w.dilate
    count = tuple(-(-o // d) for o, d in zip(w.out, step, strict=True))       # windows of one image
    shift = tuple(p % d for p, d in zip(w.pad, step, strict=True))            # padding that fills no pixel of one
    extent = tuple(-(-(n + s) // d) for n, s, d in zip(w.size, shift, step, strict=True))
    pad = tuple(p // d for p, d in zip(w.pad, step, strict=True))
    enough = all(m + 2 - e - p >= 0 for m, e, p in zip(count, extent, pad, strict=True))
    if not enough or max(pad) > 2 or not _pays(x.shape, y.shape, step, count, extent):
        return None
    attrs = {**node.attrs, "pad": pad, "dilate": (1, 1)}
    if op == "conv":
        found = b.one(op, _apart(b, x, shift, extent, step), second, **{**attrs, "size": count})
        return (_together(b, found, (0, 0), y.shape, step),)
    if op == "conv_input":
        found = b.one(op, _apart(b, y, (0, 0), count, step), second, **{**attrs, "size": extent})
        return (_together(b, found, shift, x.shape, step),)
    return (b.one(op, _apart(b, x, shift, extent, step), _apart(b, y, (0, 0), count, step), **attrs),)


def _pays(x: Sequence[int], y: Sequence[int], step: Sequence[int], count: Sequence[int],
          extent: Sequence[int]) -> bool:
    """Whether the saved products take longer than moving pixels and transforming tiles."""
    images = x[0] * step[0] * step[1]
    channels, maps = x[1], y[1]
    one = PRODUCT_CYCLES / _LANES  # cycles of a multiply-add
    direct = 9 * _DIRECT_RATIO * one * x[0] * y[2] * y[3] * channels * maps
    if not direct:
        return False
    moved = images * (channels * extent[0] * extent[1] + maps * count[0] * count[1])
    costs: list[float] = []
    for tile, cycles in WINOGRAD_TILE_CYCLES.items():
        tiles = images * -(-count[0] // tile) * -(-count[1] // tile)
        products = _TILES_RATIO * one * (tile + 2) ** 2 * tiles * channels * maps
        shared, own = WINOGRAD_SHARED_WEIGHT_CYCLES[tile], WINOGRAD_OWN_WEIGHT_CYCLES[tile]  # it will be one of both
        weights = (shared + own) / 2 * channels * maps
        costs.append(products + (weights + cycles * tiles * (channels + maps)) / _LANES)
    moving = 8 * moved * BYTE_PICOSECONDS / CYCLE_PICOSECONDS
    return min(costs) + moving < _WORTH_SHARE * direct


def _apart(b: Builder, x: Value, shift: Sequence[int], extent: Sequence[int], step: Sequence[int]) -> Value:
    """Pixels that are ``step`` apart as images of ``extent``, the first pixel ``shift`` after the beginning."""
    n, c, high, wide = x.shape
    whole = (n, c, extent[0] * step[0], extent[1] * step[1])
    if whole != x.shape:
        starts = (0, 0, *shift)
        stops = (n, c, shift[0] + high, shift[1] + wide)
        x = b.one("pad_slice", x, shape=whole, starts=starts, stops=stops, steps=(1, 1, 1, 1))
    x = b.reshape(x, (n, c, extent[0], step[0], extent[1], step[1]))
    x = b.transpose(x, (0, 3, 5, 1, 2, 4))
    return b.reshape(x, (n * step[0] * step[1], c, *extent))


def _together(b: Builder, y: Value, shift: Sequence[int], shape: Sequence[int], step: Sequence[int]) -> Value:
    """The inverse of ``_apart``: the pixels from ``shift`` on, as images of ``shape``."""
    n, c, high, wide = shape
    extent = y.shape[2:]
    y = b.reshape(y, (n, step[0], step[1], c, *extent))
    y = b.transpose(y, (0, 3, 4, 1, 5, 2))
    y = b.reshape(y, (n, c, extent[0] * step[0], extent[1] * step[1]))
    if y.shape == tuple(shape):
        return y
    return b.slice(y, (0, 0, *shift), (n, c, shift[0] + high, shift[1] + wide), (1, 1, 1, 1))


_RULES: dict[str, tuple[Rule, ...]] = {name: (_dense,) for name in sorted(CONVOLUTIONS)}
