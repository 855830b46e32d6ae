"""The rows of convolutions and poolings, with formulas in loops over windows."""
from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
from functions.table import Row, draw

import kusari.functions as F


def _many(v: Any, n: int) -> tuple[int, ...]:
    return (v,) * n if isinstance(v, int) else tuple(v)


def _windows(shape: Any, k: Any, s: Any, p: Any, cover_all: bool, d: Any = 1) -> Any:
    """The number of windows along each axis; where the elements of each window are, None for those in the padding."""
    n = len(shape)
    k, s, p, d = (_many(v, n) for v in (k, s, p, d))
    out: list[int] = []
    for m, kk, ss, pp, dd in zip(shape, k, s, p, d, strict=True):
        count, reach = 0, dd * (kk - 1) + 1
        while count * ss + reach <= m + 2 * pp:
            count += 1
        if cover_all and (count - 1) * ss + reach < m + 2 * pp:
            count += 1
        out.append(count)
    places: dict[Any, list[Any]] = {}
    for at in np.ndindex(*out):
        row: list[Any] = []
        for element in np.ndindex(*k):
            where = tuple(a * ss - pp + e * dd for a, ss, pp, e, dd in zip(at, s, p, element, d, strict=True))
            row.append(where if all(0 <= w < m for w, m in zip(where, shape, strict=True)) else None)
        places[at] = row
    return tuple(out), places


def convolved(x: Any, w: Any, b: Any = None, stride: Any = 1, pad: Any = 0, cover_all: bool = False, dilate: Any = 1,
              groups: int = 1) -> Any:
    """Convolution, element by element."""
    out, places = _windows(x.shape[2:], w.shape[2:], stride, pad, cover_all, dilate)
    y = np.zeros((len(x), len(w), *out))
    c, o = w.shape[1], len(w) // groups
    for at, row in places.items():
        for where, element in zip(row, np.ndindex(*w.shape[2:]), strict=True):
            if where is not None:
                for j in range(len(w)):
                    g = j // o
                    y[(slice(None), j, *at)] += x[(slice(None), slice(g * c, g * c + c), *where)] @ w[
                        (j, slice(None), *element)]
    return y if b is None else y + b.reshape(-1, *(1,) * len(out))


def deconvolved(x: Any, w: Any, b: Any = None, stride: Any = 1, pad: Any = 0, outsize: Any = None, dilate: Any = 1,
                groups: int = 1) -> Any:
    """Transposed convolution: every element of the input adds its window of weights."""
    n = x.ndim - 2
    s, p, d = (_many(v, n) for v in (stride, pad, dilate))
    size = outsize or tuple((m - 1) * ss + dd * (k - 1) + 1 - 2 * pp for m, k, ss, pp, dd in zip(
        x.shape[2:], w.shape[2:], s, p, d, strict=True))
    o, c = w.shape[1], x.shape[1] // groups
    y = np.zeros((len(x), o * groups, *size))
    for at, element in itertools.product(np.ndindex(*x.shape[2:]), list(np.ndindex(*w.shape[2:]))):
        where = tuple(a * ss - pp + e * dd for a, ss, pp, e, dd in zip(at, s, p, element, d, strict=True))
        if all(0 <= v < m for v, m in zip(where, size, strict=True)):
            for i in range(x.shape[1]):
                g = i // c
                y[(slice(None), slice(g * o, g * o + o), *where)] += x[(slice(None), i, *at)][:, None] * w[
                    (i, slice(None), *element)]
    return y if b is None else y + b.reshape(-1, *(1,) * n)


def pooled(x: Any, how: Any, k: Any, s: Any = None, p: Any = 0, cover_all: bool = True, count: Any = None) -> Any:
    """``how`` of the elements of each window (a list of arrays), and of the number of elements to divide by."""
    out, places = _windows(x.shape[2:], k, k if s is None else s, p, cover_all)
    y = np.zeros((*x.shape[:2], *out))
    for at, row in places.items():
        inside = [x[(slice(None), slice(None), *where)] for where in row if where is not None]
        y[(slice(None), slice(None), *at)] = how(inside, len(row))
    return y


def largest(values: Any, n: int) -> Any:
    """The maximum."""
    return np.max(values, 0) if values else -np.inf


def mean(values: Any, n: int) -> Any:
    """The average, padding included."""
    return np.sum(values, 0) / n


def valid_mean(values: Any, n: int) -> Any:
    """The average without padding."""
    return np.mean(values, 0)


def unpooled(x: Any, size: Any, k: Any, s: Any, p: Any = 0, cover_all: bool = True) -> Any:
    """Every element added to its window."""
    _, places = _windows(size, k, s, p, cover_all)
    y = np.zeros((*x.shape[:2], *size))
    for at, row in places.items():
        for where in row:
            if where is not None:
                y[(slice(None), slice(None), *where)] += x[(slice(None), slice(None), *at)]
    return y


IMAGES = draw(2, 4, 5, 6)
LINES = draw(2, 3, 7)
SOLIDS = draw(1, 2, 4, 3, 5)
BIAS = draw(6, seed=3)
# With these, the last windows have nothing but padding: they give -inf, where differences say nothing.
NOTHING = {"pad": (1, 0)}


def convolutions() -> list[Row]:
    """Convolutions, forward and transposed."""
    cases: list[tuple[str, Any, Any, Any, dict[str, Any]]] = [
        ("convolution_2d", IMAGES, draw(6, 4, 3, 2), BIAS, {}),
        ("convolution_2d", IMAGES, draw(3, 4, 3, 3), None, {"stride": 2, "pad": 1}),
        ("convolution_2d", IMAGES, draw(3, 4, 2, 3), None, {"stride": (2, 3), "pad": (0, 2), "cover_all": True}),
        ("convolution_2d", IMAGES, draw(6, 2, 2, 2), BIAS, {"dilate": (2, 3), "groups": 2}),
        ("convolution_2d", IMAGES, draw(6, 4, 1, 1), BIAS, {}),
        ("convolution_2d", IMAGES[:1], draw(6, 4, 1, 1), None, {"stride": 2}),
        ("convolution_2d", draw(2, 3, 1, 1), draw(2, 3, 3, 3), None, {"pad": 1}),
        ("convolution_1d", LINES, draw(2, 3, 3), None, {"stride": 2, "pad": 2}),
        ("convolution_1d", LINES, draw(6, 1, 2), BIAS, {"groups": 3}),
        ("convolution_3d", SOLIDS, draw(3, 2, 2, 1, 3), None, {"pad": (1, 0, 1), "stride": (1, 2, 2)}),
        ("convolution_nd", LINES, draw(6, 3, 2), BIAS, {"dilate": 3, "cover_all": True, "stride": 2}),
        ("deconvolution_2d", draw(2, 4, 2, 3), draw(4, 6, 3, 2), BIAS, {}),
        ("deconvolution_2d", draw(2, 4, 3, 2), draw(4, 3, 4, 4), None, {"stride": 2, "pad": 1}),
        ("deconvolution_2d", draw(2, 4, 3, 2), draw(4, 3, 3, 3), None, {"stride": 2, "pad": 1, "outsize": (6, 4)}),
        ("deconvolution_2d", draw(2, 4, 3, 2), draw(4, 3, 3, 3), None, {"stride": 3, "outsize": (7, 4)}),
        ("deconvolution_2d", draw(2, 4, 3, 2), draw(4, 3, 2, 2), BIAS, {"dilate": 2, "groups": 2, "pad": (1, 0)}),
        ("deconvolution_2d", draw(2, 4, 3, 2), draw(4, 3, 1, 1), None, {}),
        ("deconvolution_1d", draw(2, 3, 4), draw(3, 2, 3), BIAS, {"groups": 3, "stride": 2}),
        ("deconvolution_3d", draw(1, 2, 2, 3, 2), draw(2, 3, 2, 1, 2), None, {"stride": (2, 1, 1)}),
        ("deconvolution_nd", draw(1, 3, 4), draw(3, 2, 3), None, {"pad": 3, "stride": 3}),
    ]
    found: list[Row] = []
    for name, x, w, b, settings in cases:
        formula: Any = deconvolved if name.startswith("de") else convolved
        function: Any = getattr(F, name)
        found.append(Row(f"{name} {settings or ''}{w.shape}".replace("'", ""),
                         lambda *xs, f=function, kw=settings: f(*xs, **kw), (x, w) if b is None else (x, w, b),
                         lambda *xs, f=formula, kw=settings: f(*xs, **kw), tolerance=2e-5))
    return [
        *found,
        Row("dilated_convolution_2d", lambda *xs: F.dilated_convolution_2d(*xs, stride=2, pad=1, dilate=(1, 2)),
            (IMAGES, draw(6, 4, 2, 2), BIAS), lambda *xs: convolved(*xs, stride=2, pad=1, dilate=(1, 2))),
        Row("depthwise_convolution_2d", lambda *xs: F.depthwise_convolution_2d(*xs, stride=(1, 2), pad=1),
            (IMAGES[:, :3], draw(2, 3, 2, 3), BIAS), lambda x, w, b: convolved(
                x, w.swapaxes(0, 1).reshape(6, 1, 2, 3), b, (1, 2), 1, groups=3)),
    ]


def columns(x: Any, *settings: Any) -> Any:
    """The elements of windows as channels."""
    k, s, p, cover_all, d = settings
    out, places = _windows(x.shape[2:], k, s, p, cover_all, d)
    y = np.zeros((*x.shape[:2], int(np.prod(k)), *out))
    for at, row in places.items():
        for i, where in enumerate(row):
            if where is not None:
                y[(slice(None), slice(None), i, *at)] = x[(slice(None), slice(None), *where)]
    return y.reshape(len(x), -1, *out)


def _sample(x: Any, out: Any, align: bool) -> Any:
    """Bilinear interpolation, pixel by pixel."""
    y = np.zeros((*x.shape[:2], *out))
    for at in np.ndindex(*out):
        v, u = (i * (m - 1) / (o - 1) if align else min(max((i + 0.5) * m / o - 0.5, 0), m - 1)
                for i, m, o in zip(at, x.shape[2:], out, strict=True))
        a, b = int(v), int(u)
        c, d = min(a + 1, x.shape[2] - 1), min(b + 1, x.shape[3] - 1)
        y[(slice(None), slice(None), *at)] = (
            (x[:, :, a, b] * (1 - u + b) + x[:, :, a, d] * (u - b)) * (1 - v + a)
            + (x[:, :, c, b] * (1 - u + b) + x[:, :, c, d] * (u - b)) * (v - a))
    return y


def images() -> list[Row]:
    """Windows as channels, weights for every position, other sizes."""
    def local(x: Any, w: Any, b: Any = 0) -> Any:
        y = np.zeros((len(x), *w.shape[:3]))
        for at in np.ndindex(*w.shape[1:3]):
            part = x[:, :, 2 * at[0]:2 * at[0] + w.shape[4], 2 * at[1]:2 * at[1] + w.shape[5]]
            y[(slice(None), slice(None), *at)] = np.einsum("nchw,ochw->no", part, w[(slice(None), *at)])
        return y + b
    small = draw(2, 3, 4, 3)
    w, b = draw(2, 2, 2, 3, 2, 1), draw(2, 2, 2)
    return [
        Row("im2col", lambda x: F.im2col(x, (2, 3), 2, 1), (IMAGES,),
            lambda x: columns(x, (2, 3), 2, 1, False, 1)),
        Row("im2col dilate", lambda x: F.im2col(x, 2, (1, 2), (0, 1), True, (3, 2)), (IMAGES,),
            lambda x: columns(x, (2, 2), (1, 2), (0, 1), True, (3, 2))),
        Row("local_convolution_2d", lambda *xs: F.local_convolution_2d(*xs, stride=2), (small, w, b), local),
        Row("local_convolution_2d nobias", lambda *xs: F.local_convolution_2d(*xs, stride=2), (small, w), local),
        Row("resize_images", lambda x: F.resize_images(x, (3, 7)), (small,), lambda x: _sample(x, (3, 7), True)),
        Row("resize_images borders", lambda x: F.resize_images(x, (6, 2), align_corners=False), (small,),
            lambda x: _sample(x, (6, 2), False)),
        Row("resize_images one", lambda x: F.resize_images(x, (1, 1)), (small,), lambda x: x[:, :, :1, :1]),
        Row("resize_images nearest", lambda x: F.resize_images(x, (3, 7), mode="nearest"), (small,),
            lambda x: x[:, :, [0, 1, 2]][..., [0, 0, 0, 1, 1, 2, 2]]),
    ]


def poolings() -> list[Row]:
    """Poolings and their inverses."""
    cases: list[tuple[str, Any, tuple[Any, ...], dict[str, Any]]] = [
        ("max_pooling_2d", IMAGES, (2,), {}), ("max_pooling_2d", IMAGES, (2,), {"cover_all": False}),
        ("max_pooling_2d", IMAGES, (3, 2), {"pad": 1}),
        ("max_pooling_2d", IMAGES, ((3, 2), (1, 2)), {"pad": (1, 0), "cover_all": False}),
        ("max_pooling_2d", IMAGES[..., :5], (2, 3), {}), ("max_pooling_2d", IMAGES, ((5, 6),), {}),
        ("max_pooling_2d", IMAGES, (1,), {}),
        ("max_pooling_1d", LINES, (3, 2), {"pad": 1}), ("max_pooling_3d", SOLIDS, (2, 1), {"pad": (1, 0, 1)}),
        ("max_pooling_2d", IMAGES, (2,), NOTHING),
        ("max_pooling_nd", LINES, (3,), {}),
        ("average_pooling_2d", IMAGES, (2,), {}), ("average_pooling_2d", IMAGES, (3, 2, 1), {}),
        ("average_pooling_2d", IMAGES, ((5, 6),), {}), ("average_pooling_2d", draw(2, 3, 9, 10), ((9, 8),), {}),
        ("average_pooling_2d", draw(1, 2, 9, 20), (9,), {}),
        ("average_pooling_1d", LINES, (3, 2, 1, None), {}), ("average_pooling_3d", SOLIDS, (2, 1, (1, 0, 1)), {}),
        ("average_pooling_nd", IMAGES, (3, (2, 3), (1, 2), None), {}),
    ]
    found: list[Row] = []
    for name, x, given, settings in cases:
        function: Any = getattr(F, name)
        how: Any = largest if name.startswith("max") else valid_mean if None in given else mean
        cover_all = settings.get("cover_all", True) and how is largest
        k, s, p = (*given[:3], *(None, 0)[len(given[:3]) - 1:])
        p = settings.get("pad", p)
        found.append(Row(f"{name} {given} {settings or ''}{x.shape}".replace("'", ""),
                         lambda x, f=function, a=given, kw=settings: f(x, *a, **kw), (x,),
                         lambda x, a=(how, k, s, p, cover_all): pooled(x, *a), gradient=settings != NOTHING))
    small = draw(2, 3, 2, 3)
    places = np.random.RandomState(0).randint(0, 4, small.shape).astype(np.int64)
    back: list[tuple[str, Any, tuple[Any, ...], dict[str, Any]]] = [
        ("unpooling_2d", small, ((4, 6), 2, 2, 0, False), {"cover_all": False}),
        ("unpooling_2d", small, ((3, 5), 2, 2), {}), ("unpooling_2d", small, ((4, 5), 2, 2), {"outsize": (4, 5)}),
        ("unpooling_2d", small, ((4, 6), 3, 2, 1, False), {"pad": 1, "outsize": (4, 6), "cover_all": False}),
        ("unpooling_1d", LINES, ((17,), 3, 3, 2), {"pad": 2, "outsize": (17,)}),
        ("unpooling_3d", draw(1, 2, 1, 2, 3), ((2, 4, 6), 2, 2, 0, False), {"cover_all": False}),
        ("unpooling_nd", LINES, ((20,), 3, 3), {"outsize": (20,)}),
    ]
    for name, x, given, settings in back:
        function = getattr(F, name)
        found.append(Row(f"{name} {given} {settings or ''}".replace("'", ""),
                         lambda x, f=function, a=given, kw=settings: f(x, *a[1:3], **kw), (x,),
                         lambda x, a=given: unpooled(x, *a)))
    return [
        *found,
        Row("max_pooling_2d tie", lambda x: F.max_pooling_2d(x, 2), (np.ones((1, 1, 3, 4), "f"),),
            lambda x: np.ones((1, 1, 2, 2)), False),
        Row("spatial_pyramid_pooling_2d", lambda x: F.spatial_pyramid_pooling_2d(x, 3, "max"), (draw(2, 3, 8, 7),),
            lambda x: np.concatenate([pooled(x, largest, *bins).reshape(2, -1, 1, 1) for bins in (
                ((8, 7),), ((4, 4), (4, 4), (0, 0)), ((2, 2), (2, 2), (0, 0)))], 1)),
        Row("roi_pooling_2d", lambda x, rois: F.roi_pooling_2d(x, rois, 3, 2, 0.5), (draw(2, 3, 8, 7), REGIONS),
            regions, fixed=(1,)),
        Row("upsampling_2d", lambda x: F.upsampling_2d(x, places, 2, outsize=(4, 5)), (small,),
            lambda x: _placed(x, places, (4, 5))),
    ]


# In whole pixels: on both sides of the border, small, and half ones, which are rounded to even.
REGIONS = np.array([[0, 2, 2, 9, 8], [1, 4, 0, 4, 1], [0, 10, 6, 30, 31], [1, 3, 5, 7, 9]], np.float32)


def regions(x: Any, rois: Any) -> Any:
    """The maxima of 3 by 2 parts of each region at half the scale, pixel by pixel; an empty part is 0."""
    y = np.full((len(rois), x.shape[1], 3, 2), -np.inf)
    for n, (image, *box) in enumerate(rois):
        left, top, right, bottom = (round(float(v) * 0.5) for v in box)
        high, wide = max(bottom - top + 1, 1) / 3, max(right - left + 1, 1) / 2
        for i, j in np.ndindex(3, 2):
            for r, c in np.ndindex(*x.shape[2:]):
                inside = math.floor(i * high) <= r - top < math.ceil((i + 1) * high)
                if inside and math.floor(j * wide) <= c - left < math.ceil((j + 1) * wide):
                    y[n, :, i, j] = np.maximum(y[n, :, i, j], x[int(image), :, r, c])
    return np.where(np.isinf(y), 0, y)


def _placed(x: Any, places: Any, size: Any) -> Any:
    y = np.zeros((*x.shape[:2], 4, 6))
    for at in np.ndindex(*x.shape):
        y[(*at[:2], 2 * at[2] + places[at] // 2, 2 * at[3] + places[at] % 2)] += x[at]
    return y[(slice(None), slice(None), *[slice(0, n) for n in size])]
