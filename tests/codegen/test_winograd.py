"""Winograd convolutions in LLVM IR against sums in float64: shapes, padding, epilogues, targets, threads, errors."""
from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from kusari.codegen.contractions import GemmOperand
from kusari.codegen.llvm.contraction.winograd import gradient as winograd_gradient
from kusari.codegen.llvm.contraction.winograd.algebra import (
    POINTS,
    STRIDED_POINTS,
    forward_algebra,
    gradient_algebra,
    strided_algebra,
)
from kusari.codegen.llvm.contraction.winograd.kernel import winograd_kernel
from kusari.codegen.llvm.contraction.winograd.launches import launches
from kusari.codegen.llvm.contraction.winograd.spec import TILES, WinogradSpec, gradient_blocking
from kusari.codegen.target import AVX512, TARGETS
from kusari.ir import Arg, Call, Lit

GUARD = 64
EPS = 2.0 ** -24

# The bounds of docs/limits.md: the root of the mean squared error in units of EPS * sqrt(terms) * that of the result.
BOUND = {2: 1.0, 4: 2.5}


def winograd_kernels(spec, target):
    return [winograd_kernel(spec, target, number) for number in (0, 1)]


def gradient_of(spec):
    return dataclasses.replace(spec, way="gradient")


def guarded(shape, value=77.0):
    flat = np.full(int(np.prod(shape)) + GUARD, value, np.float32)
    return flat, flat[:-GUARD].reshape(shape)


def run(jit, kernels, arguments, target, nth, byte=255):
    """Both kernels one after the other, on scratch full of NaN; returns that."""
    size = max(k.shared + nth * k.scratch for k in kernels)
    scratch = np.full(size + 64, byte, np.uint8)
    scratch = scratch[-scratch.ctypes.data % 64:][:size]
    for kernel, arrays in zip(kernels, arguments, strict=True):
        jit.compile(kernel.text, kernel.symbol, target)(*arrays, scratch, nth=nth)
    return scratch


def patches(spec, x):
    top, bottom, left, right = spec.pad
    padded = np.pad(x.astype("d"), ((0, 0), (0, 0), (top, bottom), (left, right)))
    step, high, wide = spec.stride, spec.out_height * spec.stride, spec.out_width * spec.stride
    return {(i, j): padded[:, :, i:i + high:step, j:j + wide:step] for i in range(3) for j in range(3)}


def convolved(spec, x, w):
    if spec.transposed:
        w = w.transpose(1, 0, 2, 3)[:, :, ::-1, ::-1]
    return sum(np.einsum("oc,nchw->nohw", w[:, :, i, j].astype("d"), p) for (i, j), p in patches(spec, x).items())


def weights_gradient(spec, x, gy):
    result = np.zeros((spec.maps, spec.channels, 3, 3))
    for (i, j), p in patches(spec, x).items():
        result[:, :, i, j] = np.einsum("nohw,nchw->oc", gy.astype("d"), p)
    return result


def data(spec, seed=0):
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(spec.batch, spec.channels, spec.height, spec.width)).astype("f")
    ends = (spec.channels, spec.maps) if spec.transposed else (spec.maps, spec.channels)
    return x, rng.normal(size=(*ends, 3, 3)).astype("f")


def forward(jit, spec, target="avx512", nth=1, arrays=None):
    factors = data(spec) if arrays is None else arrays
    flat, y = guarded((spec.batch, spec.maps, spec.out_height, spec.out_width))
    first, second = ([factors[i] for i in launch.factors] for launch in launches(spec))
    arguments = [first, (*second, flat)]
    run(jit, winograd_kernels(spec, TARGETS[target]), arguments, target, nth)
    assert (flat[-GUARD:] == 77).all(), "wrote past the end"
    return y, convolved(spec, *factors)


def rms(x):
    return float(np.sqrt((x * x).mean()))


def check(actual, expected, terms, tile):
    bound = BOUND[tile] * EPS * np.sqrt(terms + 8) * rms(expected)
    assert rms(actual - expected) <= bound
    assert abs(actual - expected).max() <= 10 * bound


def test_tiles_are_those_with_points() -> None:
    assert {stride: tuple(points) for stride, points in ((1, POINTS), (2, STRIDED_POINTS))} == TILES


@pytest.mark.parametrize("tile", POINTS)
@pytest.mark.parametrize("matrices", [forward_algebra, gradient_algebra, strided_algebra])
def test_matrices_compute_convolutions(matrices, tile: int) -> None:
    if matrices is strided_algebra and tile not in STRIDED_POINTS:
        with pytest.raises(ValueError, match="expected tiles of 4, got 2"):
            WinogradSpec(1, 16, 1, 9, 9, (0, 0, 0, 0), tile, way="maps", stride=2)
        return
    a = matrices(tile)
    outputs, taps = len(a.out), len(a.taps[0])
    rng = np.random.default_rng(0)
    d, g = rng.normal(size=outputs + taps - 1), rng.normal(size=taps)
    b, k, o = (np.array(m, float) for m in (a.data, a.taps, a.out))
    np.testing.assert_allclose(o @ ((k @ g) * (b @ d)), np.correlate(d, g, "valid"), rtol=1e-12, atol=1e-12)
    assert (b == b.astype("f")).all(), "the coefficients of the data are exact in float32"


# batch, channels, maps, height, width, (above, below, left, right), target, threads
SHAPES = [
    (1, 1, 1, 1, 1, (1, 1, 1, 1), "avx2", 1), (2, 3, 1, 3, 3, (0, 0, 0, 0), "avx512", 2),
    (2, 5, 7, 13, 14, (1, 1, 1, 1), "avx512", 3), (3, 16, 33, 7, 7, (1, 1, 1, 1), "sse", 2),
    (1, 33, 40, 7, 9, (2, 1, 0, 2), "avx512", 2), (2, 20, 50, 9, 35, (2, 2, 1, 0), "avx2", 1),
]


@pytest.mark.parametrize("shape", [*SHAPES, (2, 200, 70, 5, 6, (1, 1, 1, 1), "avx512", 2)], ids=str)
@pytest.mark.parametrize(("tile", "way"), [
    (4, "tiles"), (4, "maps"), *(pytest.param(2, way, marks=pytest.mark.slow) for way in ("tiles", "maps"))])
def test_convolution_and_input_gradient(jit, shape, way, tile: int) -> None:
    *sizes, pad, target, nth = shape
    transposed = bool((shape[1] + tile // 2) % 2)
    spec = WinogradSpec(*sizes, pad, tile, transposed, way=way)
    check(*forward(jit, spec, target, nth), 9 * spec.channels, tile)


@pytest.mark.parametrize(("maps", "transposed"), [(144, False), (144, True), (130, True), (18, False)])
def test_nothing_behind_the_weights_is_read(jit, maps: int, transposed: bool) -> None:
    """The last panel has vectors without an output channel."""
    spec = WinogradSpec(1, 3, maps, 4, 4, (1, 1, 1, 1), 4, transposed, way="maps")
    x, w = data(spec)
    flat = np.full(w.size + 32 * 9 * 3, np.nan, "f")
    flat[:w.size] = w.ravel()
    y = np.zeros((1, maps, 4, 4), "f")
    scratch = run(jit, winograd_kernels(spec, AVX512), [(x,), (flat, y)], "avx512", 1, 0)
    assert np.isfinite(scratch.view("f")).all()
    check(y, convolved(spec, x, w), 27, 4)


# As above; all channels are whole vectors.
STRIDED = [
    (1, 16, 1, 3, 3, (0, 0, 0, 0), "avx512", 1), (2, 16, 5, 14, 15, (1, 0, 1, 1), "avx512", 3),
    (3, 24, 33, 7, 9, (1, 1, 1, 1), "avx2", 2), (1, 48, 130, 21, 9, (0, 0, 2, 2), "avx512", 2),
    (2, 12, 9, 9, 37, (2, 0, 1, 1), "sse", 2), (1, 96, 40, 16, 16, (1, 0, 1, 0), "avx512", 2),
]


@pytest.mark.parametrize(("shape", "way"), [
    pytest.param(shape, way, marks=() if (i + k) % 2 == 0 else pytest.mark.slow)
    for i, shape in enumerate(STRIDED) for k, way in enumerate(("tiles", "maps"))], ids=str)
def test_convolution_with_strides(jit, shape, way) -> None:
    *sizes, pad, target, nth = shape
    spec = WinogradSpec(*sizes, pad, 4, way=way, stride=2)
    check(*forward(jit, spec, target, nth), 9 * spec.channels, 4)


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("tile", POINTS)
def test_weights_gradient(jit, shape, tile: int, monkeypatch: pytest.MonkeyPatch) -> None:
    *sizes, pad, target, nth = shape
    owned = bool((SHAPES.index(shape) + tile // 2) % 2)
    monkeypatch.setattr(winograd_gradient, "gradient_blocking",
                        lambda *a: dataclasses.replace(gradient_blocking(*a), owned=owned))
    spec = WinogradSpec(*sizes, pad, tile)
    x, _ = data(spec)
    gy = np.random.default_rng(1).normal(size=(spec.batch, spec.maps, spec.out_height, spec.out_width)).astype("f")
    flat, gw = guarded((spec.maps, spec.channels, 3, 3))
    run(jit, winograd_kernels(gradient_of(spec), TARGETS[target]), [(x, gy), (flat,)], target, nth)
    assert (flat[-GUARD:] == 77).all(), "wrote past the end"
    check(gw, weights_gradient(spec, x, gy), spec.batch * spec.out_height * spec.out_width, tile)


def test_many_channels_are_as_accurate(jit) -> None:
    """The bound grows with the root of the number of terms; data with a mean, as after ReLU, does not break it."""
    spec = WinogradSpec(1, 200, 16, 16, 16, (1, 1, 1, 1))
    x, w = data(spec)
    check(*forward(jit, spec, "avx512", 2, (np.maximum(x, 0), w)), 9 * spec.channels, 4)


acc, bias, residual = Arg(0), Arg(1), Arg(2)


def test_epilogue(jit) -> None:
    """A sum with bias and residual, its ReLU, and where it is positive."""
    total = Call("add", (Call("add", (acc, bias)), residual))
    exprs = (Call("maximum", (total, Lit(0.0))), Call("greater", (total, Lit(0.0))))
    spec = WinogradSpec(2, 6, 18, 7, 5, (1, 1, 1, 1), exprs=exprs, operands=(
        GemmOperand(np.dtype("f"), 1, 0, 0), GemmOperand(np.dtype("f"), 35, 1, 18 * 35)))
    x, w = data(spec)
    rng = np.random.default_rng(3)
    b, r = rng.normal(size=18).astype("f"), rng.normal(size=(2, 18, 7, 5)).astype("f")
    flat, y = guarded((2, 18, 7, 5))
    positive = np.full((2, 18, 7, 5), 9, np.int8)
    run(jit, winograd_kernels(spec, AVX512), [(w,), (x, b, r, flat, positive)], "avx512", 2)
    expected = convolved(spec, x, w) + b[:, None, None] + r
    np.testing.assert_allclose(y, np.maximum(expected, 0), atol=1e-4)
    sure = abs(expected) > 1e-4
    assert (positive.astype(bool) == (expected > 0))[sure].all()
    assert set(positive.ravel()) <= {0, 1}


@pytest.mark.parametrize("value", [np.nan, pytest.param(np.inf, marks=pytest.mark.slow)])
def test_what_is_not_finite_with_strides(jit, value: float) -> None:
    spec = WinogradSpec(1, 16, 18, 23, 21, (1, 1, 1, 1), 4, way="maps", stride=2)
    x, w = data(spec)
    for row, column in ((8, 9), (7, 7), (9, 12)):
        x[:] = 1
        x[0, 3, row, column] = value
        y, expected = forward(jit, spec, arrays=(x, w))
        lost = np.argwhere(~np.isfinite(expected))
        assert not np.isfinite(y[tuple(lost.T)]).any()
        for place in np.argwhere(~np.isfinite(y)):
            assert (place[2:] // 4 == lost[:, 2:] // 4).all(axis=1).any(), "only tiles that hold it are lost"


@pytest.mark.parametrize(("tile", "value"), [(2, np.inf), (4, np.nan)])
def test_what_is_not_finite_reaches_all_that_depends_on_it(jit, tile: int, value: float) -> None:
    spec = WinogradSpec(2, 3, 18, 11, 10, (1, 1, 1, 1), tile)
    x, w = data(spec)
    w[2] = 0
    x[1, 2, 5, 6] = value
    y, _ = forward(jit, spec, arrays=(x, w))
    assert not np.isfinite(y[1, :, 4:7, 5:8]).any()
    assert np.isfinite(y[0]).all()
    reach = tile + 2
    assert np.isfinite(y[1, :, :6 - reach]).all(), "only tiles that hold it are lost"
    assert np.isfinite(y[1, :, 6 + reach:]).all()
    gy = np.zeros((2, 18, 11, 10), "f")
    gw = np.zeros((18, 3, 3, 3), "f")
    run(jit, winograd_kernels(gradient_of(spec), AVX512), [(x, gy), (gw,)], "avx512", 1)
    assert np.isnan(gw[:, 2]).all()
    assert np.isfinite(gw[:, :2]).all()


def test_texts_do_not_grow_with_the_shape() -> None:
    small, large = (WinogradSpec(n, c, c, e, e, (1, 1, 1, 1)) for n, c, e in ((1, 64, 16), (64, 512, 224)))
    for pair in ((small, large), (gradient_of(small), gradient_of(large))):
        for a, b in zip(*(winograd_kernels(spec, AVX512) for spec in pair), strict=True):
            assert abs(len(b.text) / len(a.text) - 1) < 0.4


@pytest.mark.parametrize("changes", [
    {"tile": 3}, {"pad": (0, 0, -1, 0)}, {"batch": 0}, {"height": 2, "pad": (0, 0, 1, 1)},
    {"stride": 2, "pad": (1, 1, 1, 1)}, {"operands": (GemmOperand(np.dtype("f"), 1, 2),)}])
def test_what_cannot_be_described_is_refused(changes) -> None:
    with pytest.raises(ValueError, match="expected"):
        dataclasses.replace(WinogradSpec(1, 2, 3, 4, 5, (1, 1, 1, 1)), **changes)
