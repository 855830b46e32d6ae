"""The rows of functions that read images at positions that are computed, with formulas in loops."""
from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from functions.table import Row, draw

import kusari.functions as F

IMAGES = draw(2, 2, 5, 6)
# Inside, on the border, outside in part, less than a pixel.
REGIONS = np.array([[0.3, 1.2, 4.7, 5.9], [-2, -3, 2.2, 2.9], [4, 4, 9, 11], [5, 5, 5.1, 5.2]], np.float32)
NUMBERS = np.array([0, 1, 0, 1], np.int32)
SCALE = 0.7


def _at(image: Any, y: float, x: float) -> Any:
    """The value between the pixels, nearest pixel by nearest pixel; None a pixel outside."""
    h, w = image.shape[1:]
    if not (-1 <= y <= h and -1 <= x <= w):
        return None
    y, x = min(max(y, 0), h - 1), min(max(x, 0), w - 1)
    return sum(image[:, r, c] * (max(0, 1 - abs(y - r)) * max(0, 1 - abs(x - c)))
               for r in range(h) for c in range(w))


def aligned(judge: Callable[[list[Any]], Any], ratio: Any) -> Callable[..., Any]:
    """Three by two parts of each region, at positions that are not rounded."""
    def formula(x: Any, rois: Any, numbers: Any) -> Any:
        y = np.zeros((len(rois), x.shape[1], 3, 2))
        for n, (top, left, bottom, right) in enumerate(rois.astype(float) * SCALE):
            high, wide = max(bottom - top, 1) / 3, max(right - left, 1) / 2
            rows, columns = (n or math.ceil(size) for n, size in zip(ratio or (None, None), (high, wide), strict=True))
            for i, j in np.ndindex(3, 2):
                y[n, :, i, j] = judge([_at(x[numbers[n]], top + (i + (a + 0.5) / rows) * high,
                                           left + (j + (b + 0.5) / columns) * wide)
                                       for a in range(rows) for b in range(columns)])
        return y
    return formula


def _average(samples: list[Any]) -> Any:
    return sum(s for s in samples if s is not None) / len(samples)


def _largest(samples: list[Any]) -> Any:
    return np.max([s for s in samples if s is not None] or [np.zeros(2)], axis=0)


def binned(judge: Any) -> Callable[..., Any]:
    """Three by two parts of whole pixels."""
    def formula(x: Any, rois: Any, numbers: Any) -> Any:
        y = np.zeros((len(rois), x.shape[1], 3, 2))
        for n, box in enumerate(rois):
            top, left, bottom, right = (round(float(v) * np.float32(SCALE)) for v in box)
            high, wide = max(bottom - top, 1) / 3, max(right - left, 1) / 2
            for i, j in np.ndindex(3, 2):
                part = [x[numbers[n], :, r, c] for r in range(x.shape[2]) for c in range(x.shape[3])
                        if math.floor(i * high) <= r - top < math.ceil((i + 1) * high)
                        and math.floor(j * wide) <= c - left < math.ceil((j + 1) * wide)]
                y[n, :, i, j] = judge(part, axis=0) if part else 0
        return y
    return formula


def regions() -> list[Row]:
    """Regions of interest."""
    inputs = IMAGES, REGIONS, NUMBERS
    found = []
    for name, judge in (("average", _average), ("max", _largest)):
        for ratio in ((2, 3), None, (None, 3)):
            f: Any = getattr(F, f"roi_{name}_align_2d")
            found.append(Row(f"roi_{name}_align_2d {ratio}", lambda x, r, n, f=f, s=ratio: f(x, r, n, (3, 2), SCALE, s),
                             inputs, aligned(judge, ratio), fixed=(1,)))
    for name, judge in (("average", np.mean), ("max", np.max)):
        f = getattr(F, f"roi_{name}_pooling_2d")
        found.append(Row(f"roi_{name}_pooling_2d", lambda x, r, n, f=f: f(x, r, n, (3, 2), SCALE), inputs,
                         binned(judge), fixed=(1,)))
    return found


def _between(image: Any, y: float, x: float) -> Any:
    """The value between the pixels; all that is outside is 0."""
    return sum(image[:, r, c] * (max(0, 1 - abs(y - r)) * max(0, 1 - abs(x - c)))
               for r in range(image.shape[1]) for c in range(image.shape[2]))


def grid(theta: Any) -> Any:
    """Two by three positions, transformed one by one."""
    y = np.zeros((2, 2, 2, 3))
    for n, i, j in np.ndindex(2, 2, 3):
        y[n, :, i, j] = theta[n] @ (j - 1, 2 * i - 1, 1)
    return y


def transformed(x: Any, places: Any) -> Any:
    """Images read at positions from -1 to 1."""
    y = np.zeros((*x.shape[:2], *places.shape[2:]))
    for n, i, j in np.ndindex(len(x), *places.shape[2:]):
        right, down = (places[n, :, i, j].astype(float) + 1) / 2 * (x.shape[3] - 1, x.shape[2] - 1)
        y[n, :, i, j] = _between(x[n], down, right)
    return y


def bent(x: Any, offset: Any, w: Any, b: Any) -> Any:
    """A convolution with steps of (2, 1) and one zero on either side, element by element."""
    (kh, kw), (oh, ow) = w.shape[2:], offset.shape[2:]
    y = np.zeros((len(x), len(w), oh, ow)) + b[:, None, None]
    for n, i, j, r, c in np.ndindex(len(x), oh, ow, kh, kw):
        k = r * kw + c
        place = 2 * i - 1 + r + float(offset[n, kh * kw + k, i, j]), j - 1 + c + float(offset[n, k, i, j])
        y[n, :, i, j] += w[:, :, r, c] @ _between(x[n], *place)
    return y


def transformers() -> list[Row]:
    """Images read at positions that gradients flow to."""
    places = draw(2, 2, 2, 3, low=-1.3, high=1.3)
    offset = draw(2, 8, 2, 5)
    return [
        Row("spatial_transformer_grid", lambda t: F.spatial_transformer_grid(t, (2, 3)), (draw(2, 2, 3),), grid),
        Row("spatial_transformer_sampler", F.spatial_transformer_sampler, (IMAGES[:, :, :4, :5].copy(), places),
            transformed),
        Row("deformable_convolution_2d_sampler", lambda x, o, w, b: F.deformable_convolution_2d_sampler(
            x, o, w, b, stride=(2, 1), pad=(1, 1)), (draw(2, 2, 3, 4), offset, draw(3, 2, 2, 2), draw(3)), bent),
    ]
