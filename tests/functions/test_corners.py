"""Corners: variances of zero in float16, matrices in float16, sizes of zero."""
from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import kusari
import kusari.functions as F

ONES = np.ones(3)


@pytest.mark.parametrize("function", [
    lambda x, g: F.batch_normalization(x, g, ONES.astype(g.dtype)),
    lambda x, g: F.layer_normalization(x, g, ONES.astype(g.dtype)),
    lambda x, g: F.group_normalization(x, 1, g, ONES.astype(g.dtype)),
    lambda x, g: F.fixed_batch_normalization(x, g, *[(ONES * 0).astype(g.dtype)] * 3),
])
def test_second_derivatives_of_constant_data_in_float16(function: Callable[..., Any]) -> None:
    """The cube of an inverse deviation is out of float16's range, the second derivatives are not."""
    found = []
    for dtype in ("float16", "float32"):
        draw = np.random.RandomState(0)
        x, gamma = kusari.Variable(np.ones((4, 3), dtype)), kusari.Variable(ONES.astype(dtype))
        gy = kusari.Variable(draw.uniform(-1, 1, (4, 3)).astype(dtype))
        gxs = kusari.grad([function(x, gamma)], [x, gamma], [gy], enable_double_backprop=True)
        ggs = [kusari.Variable(draw.uniform(-1, 1, g.shape).astype(dtype)) for g in gxs]
        found.append([g.array for g in kusari.grad(gxs, [x, gamma, gy], ggs)])
    for half, single in zip(*found, strict=True):
        assert half.dtype == np.float16
        np.testing.assert_allclose(half, single, rtol=2e-2, atol=2e-2 * abs(single).max())


@pytest.mark.parametrize("function", [F.batch_det, F.batch_inv, lambda a: F.cholesky(F.matmul(a[0], a[0].T))])
def test_matrices_in_float16(function: Callable[..., Any]) -> None:
    a = np.array([[[2, 1], [0.5, 3]]])
    results = []
    for dtype in ("float16", "float32"):
        x = kusari.Variable(a.astype(dtype))
        y = function(x)
        assert y.dtype == dtype
        results.append((y.array, kusari.grad([y], [x], [kusari.Variable(np.ones(y.shape, dtype))])[0].array))
    for half, single in zip(*results, strict=True):
        np.testing.assert_allclose(half, single, rtol=1e-2, atol=1e-2)


@pytest.mark.parametrize(("function", "shapes"), [
    (lambda x, w: F.convolution_2d(x, w, None, 1, 1), [(1, 0, 3, 3), (2, 0, 3, 3)]),
    (lambda x, w: F.convolution_2d(x, w, None, 2), [(0, 2, 3, 3), (2, 2, 3, 3)]),
    (lambda x, w: F.deconvolution_2d(x, w, None, 2), [(2, 0, 3, 3), (0, 2, 3, 3)]),
    (lambda x: F.prod(x, 1), [(0, 3)]),
    (lambda x: F.unpooling_nd(x, 2, 3, 1, cover_all=False), [(2, 1, 1)]),
    (lambda x: F.unpooling_2d(x, (2, 1), (2, 2), (0, 0)), [(2, 3, 1, 1)]),
    (lambda x, y, w: F.bilinear(x, y, w), [(0, 2), (0, 3), (2, 3, 4)]),
    (lambda w: F.embed_id(np.zeros(100, "i"), w), [(3, 0)]),
])
def test_nothing_to_compute(function: Callable[..., Any], shapes: list[Any]) -> None:
    xs = [kusari.Variable(np.ones(s, "f")) for s in shapes]
    y = function(*xs)
    y.grad = np.ones(y.shape, "f")
    y.backward(enable_double_backprop=True)
    for x in xs:
        assert x.grad.shape == x.shape
        assert not x.grad.any()
