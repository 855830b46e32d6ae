"""Links of activations, group normalization, bilinear and highway layers, inception modules."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import kusari
import kusari.functions as F
import kusari.links as L


def array(*shape: int) -> np.ndarray:
    return np.random.randn(*shape).astype(np.float32)


def sigmoid(x: np.ndarray) -> np.ndarray:
    return 1 / (1 + np.exp(-x))


def test_prelu() -> None:
    x = array(3, 4, 2)
    assert L.PReLU()(x).array.tolist() == np.where(x > 0, x, x * np.float32(0.25)).tolist()
    link = L.PReLU((4,), init=np.arange(4))
    np.testing.assert_array_equal(link(x).array, np.where(x > 0, x, x * np.arange(4, dtype="f")[:, None]))


def test_swish() -> None:
    x = array(3, 4, 2)
    np.testing.assert_allclose(L.Swish((), 2)(x).array, x * sigmoid(2 * x), rtol=1e-5, atol=1e-7)
    link = L.Swish(None)
    assert link.beta.array is None
    np.testing.assert_allclose(link(x).array, x * sigmoid(x), rtol=1e-5, atol=1e-7)
    assert link.beta.shape == (4, 2)


def test_maxout() -> None:
    x, w, b = array(5, 3), array(4, 2, 3), array(4, 2)
    link = L.Maxout(3, 4, 2, initialW=w, initial_bias=b)
    np.testing.assert_allclose(link(x).array, (np.einsum("ni,oki->nok", x, w) + b).max(2), rtol=1e-5)
    lazy = L.Maxout(None, 4, 2, initial_bias=None)
    assert lazy(x).shape == (5, 4) and [n for n, _ in lazy.namedparams()] == ["/linear/W"]
    assert (L.Maxout(3, 4, 2).linear.b.array == 0).all()


def test_highway() -> None:
    x = array(5, 3)
    link = L.Highway(3, activate=F.tanh)
    assert (link.transform.b.array == -1).all() and (link.plain.b.array == 0).all()
    gate = sigmoid(x @ link.transform.W.array.T - 1)
    np.testing.assert_allclose(link(x).array, gate * np.tanh(x @ link.plain.W.array.T) + (1 - gate) * x, rtol=1e-5,
                               atol=1e-6)
    assert sorted(n for n, _ in L.Highway(3, nobias=True).namedparams()) == ["/plain/W", "/transform/W"]


def test_bilinear() -> None:
    left, right = array(5, 2), array(5, 1, 3)
    link = L.Bilinear(None, None, 4, initial_bias=(1, 2, 3))
    y = link(left, right).array
    expected = np.einsum("nj,nk,jkl->nl", left, right[:, 0], link.W.array)
    expected += left.sum(1, keepdims=True) + 2 * right[:, 0].sum(1, keepdims=True) + 3
    np.testing.assert_allclose(y, expected, rtol=1e-4, atol=1e-5)
    assert {n: p.shape for n, p in link.namedparams()} == {
        "/W": (2, 3, 4), "/V1": (2, 4), "/V2": (3, 4), "/b": (4,)}
    assert sorted(n for n, _ in L.Bilinear(2, 3, 4, nobias=True).namedparams()) == ["/W"]
    with pytest.raises(ValueError, match="tuple of three"):
        L.Bilinear(2, 3, 4, initial_bias=(0,))


def test_group_normalization() -> None:
    x = array(2, 6, 5)
    link = L.GroupNormalization(3)
    y = link(x).array.reshape(2, 3, 10)
    np.testing.assert_allclose(y.mean(2), 0, atol=1e-6)
    np.testing.assert_allclose(y.std(2), 1, rtol=1e-3)
    assert link.gamma.shape == link.beta.shape == (6,)
    with pytest.raises(ValueError, match="must divide the number of channels, got 4 for 6"):
        L.GroupNormalization(4, 6)(x)
    with pytest.raises(ValueError, match="at least 2"):
        L.GroupNormalization(4)(array(3))


def test_parameter() -> None:
    link = L.Parameter(np.ones(2, "f"))
    y = link()
    assert y.array.tolist() == [1, 1]
    y.grad = np.full(2, 3, "f")
    assert link.W.grad is None  # until the backward
    y.backward()
    assert link.W.grad.tolist() == [3, 3]


def test_simplified_dropconnect() -> None:
    x, link = array(2, 3), L.SimplifiedDropconnect(None, 4, 0.25, initial_bias=1)
    link(x)  # sees the shapes
    np.random.seed(0)
    y = link(x).array
    np.random.seed(0)
    mask = np.random.rand(2, 4, 3) >= 0.25
    expected = np.einsum("ni,noi->no", x, mask * link.W.array) / 0.75 + 1
    np.testing.assert_allclose(y, expected, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(link(x, mask=mask).array, expected, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(link(x, train=False).array, x @ link.W.array.T + 1, rtol=1e-5, atol=1e-6)
    with kusari.using_config("train", False):  # the argument decides
        np.testing.assert_allclose(link(x, mask=mask[0], use_batchwise_mask=False).array,
                                   x @ (mask[0] * link.W.array).T / 0.75 + 1, rtol=1e-5, atol=1e-6)
    for call, message in ((lambda: link(array(2, 5)), "5 != 3"),
                          (lambda: link(x, mask=mask[0]), r"mask.shape == \(2, 4, 3\)")):
        with pytest.raises(kusari.errors.InvalidType, match=message):
            call()
    with pytest.raises(ValueError, match="ratio"):
        F.simplified_dropconnect(x, link.W, ratio=1)


@pytest.mark.parametrize(("link", "channels", "extent"), [
    (lambda: L.Inception(None, 2, 3, 4, 5, 6, 7), 2 + 4 + 6 + 7, 6),
    (lambda: L.InceptionBN(3, 2, 3, 4, 5, 6, "avg", 7), 2 + 4 + 6 + 7, 6),
    (lambda: L.InceptionBN(3, 0, 3, 4, 5, 6, "max", None, 2), 4 + 6 + 3, 3),
])
def test_inception(link: Any, channels: int, extent: int) -> None:
    made = link()
    y = made(array(2, 3, 6, 6))
    assert y.shape == (2, channels, extent, extent)
    F.sum(y).backward()
    assert all(p.grad is not None for p in made.params())


def test_inception_names() -> None:
    assert sorted(n for n, _ in L.InceptionBN(3, 2, 3, 4, 5, 6, "avg", 7).namedlinks(skipself=True)) == sorted(
        f"/{n}{last}" for n in "conv1 conv3 conv33a conv33b poolp proj3 proj33".split() for last in ("", "n"))
    assert sorted(n for n, _ in L.Inception(3, 2, 3, 4, 5, 6, 7).namedlinks(skipself=True)) == [
        "/conv1", "/conv3", "/conv5", "/proj3", "/proj5", "/projp"]
    with pytest.raises(NotImplementedError, match="'max' or 'avg', got 'sum'"):
        L.InceptionBN(3, 2, 3, 4, 5, 6, "sum")
    for more in ((None,), (7, 2)):
        with pytest.raises(AssertionError, match="out1 > 0 needs"):
            L.InceptionBN(3, 2, 3, 4, 5, 6, "avg", *more)
    assert L.InceptionBN(3, 0, 3, 4, 5, 6, "avg", 7, 2)(np.ones((1, 3, 4, 4), "f")).shape == (1, 17, 2, 2)


@pytest.mark.parametrize("make", [
    lambda: L.PReLU((4,)), lambda: L.Swish(()), lambda: L.Maxout(4, 3, 2), lambda: L.Highway(4),
    lambda: L.GroupNormalization(2, 4)], ids=["prelu", "swish", "maxout", "highway", "group"])
def test_compiled(make: Any) -> None:
    link = make()
    static = kusari.static_graph(lambda x: F.sum(link(x) ** 2))
    for _ in range(3):
        x, grads = array(3, 4), []
        for call in (lambda x: F.sum(link(x) ** 2), static):
            link.cleargrads()
            call(x).backward()
            grads.append([p.grad.copy() for _, p in sorted(link.namedparams())])
        for a, b in zip(*grads, strict=True):
            np.testing.assert_allclose(b, a, rtol=2e-4, atol=1e-5)
