"""Convolutions and poolings beyond their rows: errors, ties, places, dtypes, empty batches, hazards of the lowering."""
from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from functions.lowered import lowering

import kusari
import kusari.functions as F
from kusari.errors import InvalidType
from kusari.functions.connection import convolution
from kusari.utils.conv import get_conv_outsize, get_deconv_outsize

X = np.arange(180, dtype="f").reshape(2, 3, 5, 6)
W = np.ones((4, 3, 2, 2), "f")
D = np.ones((3, 4, 2, 2), "f")

REFUSED: list[tuple[str, Callable[[], Any], str, str]] = [
    ("axes", lambda: F.convolution_2d(X[0], W), "x.ndim == 4", "3 != 4"),
    ("channels", lambda: F.convolution_2d(X, W[:, :2]), "x.shape[1] == W.shape[1] * 1", "3 != 2"),
    ("groups", lambda: F.convolution_2d(X, W[:, :1], groups=3), "W.shape[0] % 3 == 0", "1 != 0"),
    ("bias", lambda: F.convolution_2d(X, W, np.ones(3, "f")), "b.shape[0] == W.shape[0]", "3 != 4"),
    ("bias dtype", lambda: F.convolution_2d(X, W, np.ones(4)), "b.dtype == x.dtype", "float64 != float32"),
    ("integers", lambda: F.convolution_2d(X.astype("i"), W), "x.dtype.kind == f", "i != f"),
    ("too large", lambda: F.convolution_2d(X, np.ones((4, 3, 6, 6), "f")), "output sizes > 0", "(0, 1)"),
    ("weights' axes", lambda: F.convolution_nd(X, W[0]), "x.ndim == W.ndim", "W: (3, 2, 2)"),
    ("transposed", lambda: F.deconvolution_2d(X, W), "x.shape[1] == W.shape[0]", "3 != 4"),
    ("transposed bias", lambda: F.deconvolution_2d(X, D, np.ones(3, "f")), "b.shape[0] == W.shape[1] * 1", "3 != 4"),
    ("outsize", lambda: F.deconvolution_2d(X, D, outsize=(9, 9)), "x.shape[2] >= 8", "5 < 8"),
    ("outsize small", lambda: F.deconvolution_2d(X, D, outsize=(5, 7)), "x.shape[2] <= 4", "5 > 4"),
    ("transposed away", lambda: F.deconvolution_2d(X, D, pad=3), "output sizes > 0", "(0, 1)"),
    ("image", lambda: F.convolution_nd(X[0], W, stride=(1, 2)), "x.ndim == W.ndim", "x: (3, 5, 6), W: (4, 3, 2, 2)"),
    ("rows", lambda: F.deconvolution_nd(X[0, 0], D), "x.ndim == W.ndim", "x: (5, 6)"),
    ("pooled axes", lambda: F.max_pooling_nd(X.astype("i"), 2), "x.dtype.kind == f", "i != f"),
    ("pool too large", lambda: F.average_pooling_2d(X, 6), "output sizes > 0", "(0, 1)"),
    ("no window", lambda: F.max_pooling_2d(X, 6, cover_all=False), "output sizes > 0", "(0, 1)"),
    ("unpooled", lambda: F.unpooling_2d(X, 2, outsize=(13, 12)), "x.shape[2:] == (7, 6)", "(5, 6) != (7, 6)"),
    ("places", lambda: F.upsampling_2d(X, np.zeros((1, 3, 5, 6), "i"), 2), "x.shape == indexes.shape", "(1, 3, 5, 6)"),
    ("places dtype", lambda: F.upsampling_2d(X, X, 2), "indexes.dtype.kind == i", "f != i"),
    ("local", lambda: F.local_convolution_2d(X, np.ones((4, 4, 4, 3, 2, 2), "f")), "W.shape[1:4] == (4, 5, 3)",
     "(4, 4, 3)"),
    ("local axes", lambda: F.local_convolution_2d(X, W), "W.ndim == 6", "4 != 6"),
    ("local bias", lambda: F.local_convolution_2d(X, np.ones((4, 4, 5, 3, 2, 2), "f"), np.ones(4, "f")),
     "b.shape == (4, 4, 5)", "(4,)"),
]


@pytest.mark.parametrize("call,expect,actual", [r[1:] for r in REFUSED], ids=[r[0] for r in REFUSED])
def test_invalid_type(call: Callable[[], Any], expect: str, actual: str) -> None:
    with pytest.raises(InvalidType) as caught:
        call()
    before, _, after = str(caught.value).partition("Actual:")
    assert expect in before, str(caught.value)
    assert actual in after, str(caught.value)


WRONG: list[tuple[str, Callable[[], Any], type[Exception], str]] = [
    ("keyword", lambda: F.convolution_2d(X, W, foo=1), TypeError, "foo"),
    ("removed", lambda: F.deconvolution_2d(X, D, deterministic=True), ValueError, "cudnn_deterministic"),
    ("stride", lambda: F.convolution_2d(X, W, stride=(1, 2, 3)), ValueError, "stride must be one number or 2"),
    ("1d", lambda: F.convolution_1d(X, W), ValueError, "should be 1. But the actual ndim was 2"),
    ("3d", lambda: F.deconvolution_3d(X, D), ValueError, "should be 3"),
    ("no axes", lambda: F.max_pooling_nd(X[0, 0], 2), ValueError, "at least one axis"),
    ("pool 2d", lambda: F.max_pooling_2d(X[0], 2), ValueError, "should be 2. But the actual ndim was 1"),
    ("pad_value", lambda: F.average_pooling_nd(X, 2, pad_value=3), ValueError, "either 0 or None, not 3"),
    ("pyramid", lambda: F.spatial_pyramid_pooling_2d(X, 2, "avg"), ValueError, "'avg'"),
    ("resize mode", lambda: F.resize_images(X, 2, mode="cubic"), ValueError, "'cubic'"),
    ("resize size", lambda: F.resize_images(X, (0, 2)), ValueError, "positive"),
]


@pytest.mark.parametrize("call,error,message", [w[1:] for w in WRONG], ids=[w[0] for w in WRONG])
def test_wrong_use(call: Callable[[], Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        call()


CALLS: list[Callable[[Any], Any]] = [
    lambda x: F.convolution_2d(x, W.astype(x.dtype), np.ones(4, x.dtype), pad=1),
    lambda x: F.convolution_2d(x, W, pad=1), lambda x: F.convolution_2d(x, W[:, :, :1, :1]),
    lambda x: F.deconvolution_2d(x, D, stride=2), lambda x: F.deconvolution_2d(x, D[:, :, :1, :1]),
    lambda x: F.max_pooling_2d(x, 3, 2), lambda x: F.average_pooling_2d(x, 2, pad=1),
    lambda x: F.average_pooling_nd(x, 3, 1, 1, None), lambda x: F.unpooling_2d(x, 3, 2),
    lambda x: F.im2col(x, 2), lambda x: F.resize_images(x, (3, 3)), lambda x: F.resize_images(x, 4, mode="nearest"),
]


@pytest.mark.parametrize("dtype", ["float16", "float64"])
@pytest.mark.parametrize("call", CALLS)
def test_dtype_stays(call: Callable[[Any], Any], dtype: str) -> None:
    """Also where the weights have another dtype; computed in float32 at least, the lowering says the same."""
    with lowering(2e-3 if dtype == "float16" else 1e-6):
        x = kusari.Variable((X / 100).astype(dtype))
        y = call(x)
        gx, = kusari.grad([y], [x], [kusari.Variable(np.ones(y.shape, dtype))])
    assert (y.dtype, gx.dtype) == (dtype, dtype)
    single = call(kusari.Variable(x.array.astype("f"))).array
    np.testing.assert_allclose(y.array, single, rtol=2e-3)


@pytest.mark.parametrize("call", CALLS)
def test_empty_batches(call: Callable[[Any], Any]) -> None:
    x = kusari.Variable(X[:0])
    y = call(x)
    y.grad = np.zeros(y.shape, "f")
    y.backward()
    assert y.shape[0] == 0 and x.grad.shape == x.shape


def test_weights_gradients_keep_the_weights_dtype() -> None:
    for function, w in ((F.convolution_2d, W), (F.deconvolution_2d, D)):
        v = kusari.Variable(w.astype("d"))
        y = function(X, v)
        y.grad = np.ones(y.shape, "f")
        y.backward()
        assert (y.dtype, v.grad.dtype) == (np.float32, np.float64)


def test_the_first_of_equal_maxima_gets_the_gradient() -> None:
    def pool(x: Any) -> Any:
        return F.max_pooling_2d(x, 2)
    for function in (pool, kusari.static_graph(pool)):
        for _ in range(3):
            x = kusari.Variable(np.ones((1, 1, 3, 4), "f"))
            y = function(x)
            y.grad = np.array([[[[2, 3], [4, 5]]]], "f")
            y.backward()
            assert x.grad.tolist() == [[[[2, 0, 3, 0], [0, 0, 0, 0], [4, 0, 5, 0]]]]


@pytest.mark.parametrize("ksize,stride", [(2, 2), (3, 1)])
def test_infinite_and_undefined_numbers(ksize: int, stride: int) -> None:
    """The maximum of a window with NaN is NaN; infinite gradients stay where they belong."""
    data = np.zeros((1, 1, 4, 4), "f")
    data[0, 0, 0, 0], data[0, 0, 3, 3] = np.nan, np.inf
    x = kusari.Variable(data)
    y = F.max_pooling_2d(x, ksize, stride)
    assert np.isnan(y.array[0, 0, 0, 0]) and y.array[0, 0, -1, -1] == np.inf
    y.grad = np.full(y.shape, np.inf, "f")
    y.backward()
    assert not np.isnan(x.grad).any() and x.grad[0, 0, 3, 3] == np.inf


def test_places() -> None:
    """Places count in the window, padding included, and lead back."""
    y, places = F.max_pooling_2d(X, 3, 2, 1, return_indices=True)
    assert isinstance(places, np.ndarray) and places.dtype == np.int64
    assert places[0, 0].tolist() == [[8, 8, 8, 6], [8, 8, 8, 6], [5, 5, 5, 3]]
    back = F.upsampling_2d(np.ones(y.shape, "f"), places, 3, 2, 1, outsize=X.shape[2:]).array
    np.testing.assert_array_equal(np.unique(X[back != 0]), np.unique(y.array))
    assert back.sum() == y.size
    ones = F.upsampling_2d(np.ones((1, 1, 1, 2), "f"), np.array([[[[3, 0]]]]), 2, cover_all=False).array
    assert ones.tolist() == [[[[0, 0, 1, 0], [0, 1, 0, 0]]]]


def test_pooling_and_unpooling_in_one_static_function() -> None:
    """Places stay inside the trace."""
    def auto(x: Any) -> Any:
        y, places = F.max_pooling_2d(x, 2, return_indices=True)
        return F.upsampling_2d(y, places, 2, outsize=x.shape[2:])
    static = kusari.static_graph(auto)
    for scale in (1, -1, 2):
        np.testing.assert_array_equal(static(X * scale).array, auto(X * scale).array)


def test_samples_beyond_the_cache_are_taken_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    def run() -> list[Any]:
        x, w, d = (kusari.Variable(v) for v in (X, W, D))
        y = F.deconvolution_2d(F.convolution_2d(x, w)[:, :3], d)
        y.grad = np.ones(y.shape, "f")
        y.backward()
        return [y.array, x.grad, w.grad, d.grad]
    whole = run()
    monkeypatch.setattr(convolution, "_COLUMN_ELEMENTS", 1)
    for a, b in zip(whole, run(), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-6)


def test_large_windows_run_by_python() -> None:
    """More offsets than slices are worth: the node stays as it is, and the compiled function is right."""
    x, w = np.random.rand(2, 1, 12, 12).astype("f"), np.random.rand(2, 1, 9, 9).astype("f")

    def call(x: Any, w: Any) -> Any:
        return F.max_pooling_2d(F.convolution_2d(x, w, pad=4), 9, 3)
    static = kusari.static_graph(call)
    for _ in range(3):
        found, expected = [], []
        for function, out in ((static, found), (call, expected)):
            v, u = kusari.Variable(x), kusari.Variable(w)
            y = function(v, u)
            y.grad = np.ones(y.shape, "f")
            y.backward()
            out += [y.array, v.grad, u.grad]
        for a, b in zip(found, expected, strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-5)


def test_sizes_are_each_others_inverse() -> None:
    for n in range(1, 9):
        for k, s, p, d in ((1, 1, 0, 1), (3, 1, 1, 1), (2, 2, 0, 1), (3, 2, 1, 1), (2, 3, 0, 2)):
            for cover_all in (False, True):
                size = get_deconv_outsize(n, k, s, p, cover_all, d)
                assert size <= 0 or get_conv_outsize(size, k, s, p, cover_all, d) == n
