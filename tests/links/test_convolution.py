"""The links of convolution: what Chainer 7.8.1 gives from the same seed, lazy and short forms, errors, files."""
from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import kusari
import kusari.functions as F
import kusari.links as L

# Sums of |y|, the last y, sums of |W.grad| and |x.grad| for the loss sum(y * y), all from Chainer with seed 3.
GOLDEN: list[tuple[str, Callable[[], Any], tuple[int, ...], tuple[int, ...], tuple[float, ...]]] = [
    ("Convolution1D", lambda: L.Convolution1D(3, 4, 3, pad=1), (2, 3, 5), (2, 4, 5),
     (11.7645, -0.3588, 83.5394, 38.8072)),
    ("Convolution2D", lambda: L.Convolution2D(None, 6, 3, stride=2, pad=1, dilate=(1, 2), groups=2), (2, 4, 6, 7),
     (2, 6, 3, 3), (43.6838, 0.3569, 520.4014, 102.171)),
    ("Convolution3D", lambda: L.Convolution3D(2, 3, 2, nobias=True), (1, 2, 3, 3, 4), (1, 3, 2, 2, 3),
     (23.5284, -1.0375, 380.606, 106.6012)),
    ("ConvolutionND", lambda: L.ConvolutionND(1, 2, 3, 2, cover_all=True, stride=2), (1, 2, 5), (1, 3, 3),
     (2.3851, -0.1087, 6.1157, 4.7948)),
    ("DilatedConvolution2D", lambda: L.DilatedConvolution2D(2, 3, 2, dilate=2), (1, 2, 5, 5), (1, 3, 3, 3),
     (6.2602, -0.2925, 42.0353, 19.663)),
    ("DepthwiseConvolution2D", lambda: L.DepthwiseConvolution2D(3, 2, 3, pad=1), (1, 3, 4, 4), (1, 6, 4, 4),
     (19.0001, -0.3164, 84.3625, 20.7582)),
    ("Deconvolution1D", lambda: L.Deconvolution1D(2, 4, 3, stride=2), (1, 2, 3), (1, 4, 7),
     (7.884, 0.145, 23.0632, 9.5532)),
    ("Deconvolution2D", lambda: L.Deconvolution2D(4, 6, 4, 2, 1, groups=2), (1, 4, 3, 3), (1, 6, 6, 6),
     (36.3413, -0.1841, 223.5372, 34.2536)),
    ("Deconvolution3D", lambda: L.Deconvolution3D(2, 3, 2, outsize=(3, 3, 3)), (1, 2, 2, 2, 2), (1, 3, 3, 3, 3),
     (14.2471, 0.0337, 59.8288, 14.4422)),
    ("DeconvolutionND", lambda: L.DeconvolutionND(2, 2, 3, 3, stride=2, outsize=(6, 6)), (1, 2, 3, 3), (1, 3, 6, 6),
     (15.9671, 0.2676, 51.2288, 13.0109)),
    ("LocalConvolution2D", lambda: L.LocalConvolution2D(2, 3, (4, 5), 2), (2, 2, 4, 5), (2, 3, 3, 4),
     (10.1655, 0.302, 80.2148, 9.8059)),
    ("MLPConvolution2D", lambda: L.MLPConvolution2D(2, (4, 3), 3, pad=1), (1, 2, 4, 4), (1, 3, 4, 4),
     (5.8628, -0.1078, 52.3102, 13.6806)),
]


@pytest.mark.parametrize("make,shape,out,expected", [g[1:] for g in GOLDEN], ids=[g[0] for g in GOLDEN])
def test_chainer_gives_the_same(make: Callable[[], Any], shape: Any, out: Any, expected: Any) -> None:
    np.random.seed(3)
    link = make()
    x = kusari.Variable(np.random.rand(*shape).astype("f"))
    link.cleargrads()
    y = link(x)
    F.sum(y * y).backward()
    W = next(p for name, p in link.namedparams() if name.endswith("W"))
    found = (abs(y.array).sum(), y.array.ravel()[-1], abs(W.grad).sum(), abs(x.grad).sum())
    assert y.shape == out
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-4)


IMAGES = np.ones((2, 3, 5, 5), "f")


@pytest.mark.parametrize("make,W,b", [
    (lambda: L.Convolution2D(4, 2), (4, 3, 2, 2), (4,)), (lambda: L.Convolution2D(None, 4, 2), (4, 3, 2, 2), (4,)),
    (lambda: L.ConvolutionND(2, 4, (2, 1)), (4, 3, 2, 1), (4,)), (lambda: L.Deconvolution2D(4, 2), (3, 4, 2, 2), (4,)),
    (lambda: L.DilatedConvolution2D(4, 2, dilate=2), (4, 3, 2, 2), (4,)),
    (lambda: L.DeconvolutionND(2, None, 6, 2, groups=3), (3, 2, 2, 2), (6,)),
    (lambda: L.DepthwiseConvolution2D(None, 2, 3), (2, 3, 3, 3), (6,)),
    (lambda: L.LocalConvolution2D(4, 3), (4, 3, 3, 3, 3, 3), (4, 3, 3)),
])
def test_channels_seen_at_the_first_call(make: Callable[[], Any], W: Any, b: Any) -> None:
    link = make()
    assert not link.W.is_initialized
    fresh = pickle.loads(pickle.dumps(link))
    y = link(IMAGES)
    assert (link.W.shape, link.b.shape) == (W, b)
    assert copy.deepcopy(link)(IMAGES).array.tolist() == y.array.tolist()
    assert fresh(IMAGES).shape == y.shape


def test_lazy_links_are_loaded(tmp_path: Any) -> None:
    trained, fresh = L.Convolution2D(4, 2), L.Convolution2D(4, 2)
    y = trained(IMAGES)
    kusari.serializers.save_npz(tmp_path / "link.npz", trained)
    kusari.serializers.load_npz(tmp_path / "link.npz", fresh)
    np.testing.assert_array_equal(fresh(IMAGES).array, y.array)


def test_settings() -> None:
    link = L.Convolution2D(4, 2, pad=(1, 2), nobias=True, groups=1)
    assert str(link) == ("Convolution2D(in_channels=None, out_channels=4, ksize=2, stride=(1, 1), pad=(1, 2), "
                         "nobias=True, dilate=(1, 1), groups=1)")
    assert link.b is None and [name for name, _ in link.namedparams()] == ["/W"]
    assert L.Convolution2D(3, 4, 2, initialW=2, initial_bias=1)(IMAGES * 0).array.tolist() == np.ones(
        (2, 4, 4, 4)).tolist()
    assert L.DepthwiseConvolution2D(3, 2, 3, nobias=True).b is None
    seen: list[int] = []
    L.MLPConvolution2D((4, 5, 6), 3, activation=lambda x: seen.append(x.shape[1]) or x)(IMAGES)
    assert seen == [4, 5]


@pytest.mark.parametrize("make,error,message", [
    (lambda: L.Convolution2D(3, 4, 2, groups=2), ValueError, "input channels must be divisible"),
    (lambda: L.Convolution2D(4, 3, 2, groups=2), ValueError, "output channels must be divisible"),
    (lambda: L.Deconvolution2D(4, 3, 2, groups=2), ValueError, "output channels"),
    (lambda: L.Convolution2D(3, 4, 2, deterministic=True), ValueError, "cudnn_deterministic"),
    (lambda: L.Deconvolution2D(3, 4, 2, dilation=2), TypeError, "dilation"),
    (lambda: L.Convolution2D(3, 4, (1, 2, 3)), ValueError, "ksize must be one number or 2"),
    (lambda: L.MLPConvolution2D(3, (), 3), ValueError, "out_channels"),
    (lambda: L.Convolution2D(3, 4, 2)(IMAGES[0]), kusari.errors.InvalidType, "x.ndim == W.ndim"),
    (lambda: L.Convolution2D(4, 4, 2)(IMAGES), kusari.errors.InvalidType, r"x.shape\[1\] == W.shape\[1\] \* 1"),
])
def test_errors(make: Callable[[], Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        make()
