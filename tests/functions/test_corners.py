"""Corners: variances of zero in float16, matrices in float16, sizes of zero, places without a derivative."""
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


@pytest.mark.parametrize("function", [
    F.batch_det, F.batch_inv, lambda a: F.cholesky(F.matmul(a[0], a[0].T)),
    lambda a: F.decorrelated_batch_normalization(F.concat([a[0], -a[0].T], 0), groups=1, eps=0.1),
])
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


@pytest.mark.parametrize(("function", "at_zero"), [
    (lambda x: F.leaky_relu(x, 0.25), 0.25), (lambda x: F.leaky_relu(x, -1.0), -1), (lambda x: F.elu(x, 0.5), 0.5),
    (lambda x: F.selu(x, 2.0, 3.0), 6), (F.relu, 0), (lambda x: F.prelu(x, np.full(2, 0.25, "f")), 1),
    (F.absolute, 0), (lambda x: F.clip(x, 0.0, 1.0), 1), (lambda x: F.clipped_relu(x, 1.0), 0), (F.sign, None),
    (lambda x: F.maximum(x, 0 * x), 1),
])
def test_gradients_where_there_is_none(function: Callable[..., Any], at_zero: float | None) -> None:
    """At zero gradients are Chainer's, compiled as well."""
    for f in (function, kusari.static_graph(lambda x: function(x))):
        for _ in range(2):
            x = kusari.Variable(np.zeros((1, 2), "f"))
            y = f(x)
            y.grad = np.ones((1, 2), "f")
            y.backward()
            assert x.grad is None if at_zero is None else (x.grad == at_zero).all(), x.grad


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_unlike_pairs_that_are_the_same(dtype: str) -> None:
    a, b = (kusari.Variable(np.array([[1, 2], [3, 4]], dtype)) for _ in range(2))
    F.contrastive(a, b, np.array([0, 1])).backward()
    assert not a.grad.any()
    assert not b.grad.any()


@pytest.mark.parametrize(("train", "expected"), [(True, [6.5, 0.5]), (False, [3.5, 0.5])])
def test_a_mask_that_is_given_counts_in_any_case(train: bool, expected: list[float]) -> None:
    x, mask = np.array([[1], [2]], "f"), np.array([[[True]], [[False]]])
    y = F.simplified_dropconnect(x, np.full((1, 1), 3, "f"), np.full(1, 0.5, "f"), train=train, mask=mask)
    assert y.array.ravel().tolist() == expected


def test_accuracy_of_scores_that_are_not_a_number() -> None:
    """The first NaN counts as the greatest, compiled as well."""
    y = np.array([[np.nan, 1], [1, np.nan], [np.nan, np.nan], [2, 1]], "f")
    for ignored in (None, 1):
        static = kusari.static_graph(lambda y, t, ignored=ignored: F.accuracy(y, t, ignored))
        for t in ([0, 1, 0, 0], [1, 1, 0, 1], [1, 0, 1, 1]):
            assert static(y, np.array(t)).array == F.accuracy(y, np.array(t), ignored).array
