"""Losses over vocabularies: negative sampling, BlackOut, the hierarchical softmax, and what draws the words."""

from __future__ import annotations

from types import MappingProxyType
from typing import Any

import numpy as np
import pytest

import kusari
import kusari.functions as F
import kusari.links as L
from kusari.errors import InvalidType
from kusari.utils import WalkerAlias

X = np.random.RandomState(0).randn(4, 3).astype(np.float32)
W = np.random.RandomState(1).randn(5, 3).astype(np.float32)
T = np.array([0, 2, -1, 1], np.int32)
WORDS = np.array([[9, 4, 0], [9, 2, 2], [9, 3, 3], [9, 2, 4]], np.int32)


def softplus(x: np.ndarray) -> np.ndarray:
    return np.log1p(np.exp(x))


def test_walker_alias() -> None:
    sampler = WalkerAlias([5, 1, 0, 1, 7])
    np.random.seed(0)
    drawn = sampler.sample((100, 200))
    assert drawn.shape == (100, 200) and drawn.dtype == np.int32
    np.testing.assert_allclose(np.bincount(drawn.ravel()) / drawn.size, np.array([5, 1, 0, 1, 7]) / 14, atol=0.01)
    np.random.seed(0)  # draws as Chainer's
    assert WalkerAlias([10, 20, 30]).sample((10,)).tolist() == [2, 2, 2, 2, 1, 2, 1, 2, 2, 1]
    for wrong in ([], [1, -1], [0, 0], [[1]]):
        with pytest.raises(ValueError, match="the weights must be"):
            WalkerAlias(wrong)


def test_negative_sampling() -> None:
    expected = []
    for x, t, words in zip(X, T, WORDS, strict=True):
        expected.append(softplus(-x @ W[t]) + softplus(W[words[1:]] @ x).sum() if t >= 0 else 0)
    shapes: list[tuple[int, ...]] = []

    def sampler(shape: tuple[int, ...]) -> np.ndarray:
        shapes.append(shape)
        return WORDS

    each = F.negative_sampling(X, T, W, sampler, 2, reduce="no")
    np.testing.assert_allclose(each.array, expected, rtol=1e-5)
    total, words = F.negative_sampling(X, T, W, sampler, 2, return_samples=True)
    np.testing.assert_allclose(total.array, sum(expected), rtol=1e-5)
    assert words.tolist() == np.column_stack([T, WORDS[:, 1:]]).tolist() and set(shapes) == {(4, 3)}
    kusari.gradient_check.check_backward(
        lambda x, w: F.negative_sampling(x, T, w, sampler, 2), (X, W), None, dtype=np.float64, atol=1e-4, rtol=1e-4)


def test_black_out() -> None:
    t, samples = np.array([0, 2, 3, 1]), WORDS[:, 1:]
    expected = []
    for x, label, words in zip(X, t, samples, strict=True):
        p = np.exp(W[[label, *words]] @ x)
        p /= p.sum()
        expected.append(-np.log(p[0]) - np.log(1 - p[1:]).sum())
    np.testing.assert_allclose(F.black_out(X, t, W, samples, "no").array, expected, rtol=1e-5)
    np.testing.assert_allclose(F.black_out(X, t, W, samples).array, np.mean(expected), rtol=1e-5)
    kusari.gradient_check.check_backward(
        lambda x, w: F.black_out(x, t, w, samples), (X, W), None, dtype=np.float64, atol=1e-4, rtol=1e-4)


def test_black_out_takes_the_words_it_is_given() -> None:
    link, t = L.BlackOut(3, [1] * 5, 2), np.array([0, 2, 3, 1])
    link.W.array[:] = W
    step = kusari.static_graph(lambda x: link(x, t))
    for words in (WORDS[:, 1:], WORDS[:, 1:] % 2, WORDS[:, 1:]):
        link.sample_data = words
        for call in (lambda x: link(x, t), step):
            np.testing.assert_allclose(call(X).array, F.black_out(X, t, W, words).array, rtol=1e-5)


WRONG: list[tuple[Any, type[Exception], str]] = [
    (lambda: F.negative_sampling(X, T, W, len, 2, reduce="mean"), ValueError, "only 'sum' and 'no'"),
    (lambda: F.negative_sampling(X, T.astype("f"), W, len, 2), InvalidType, "integers"),
    (lambda: F.negative_sampling(X, T[:2], W, len, 2), InvalidType, r"\(2,\)"),
    (lambda: F.negative_sampling(X, T, W, len, 2, samples=1), TypeError, "samples"),
    (lambda: F.black_out(X, T, W, WORDS, reduce="sum"), ValueError, "only 'mean' and 'no'"),
    (lambda: F.black_out(X, T, W, WORDS[:2]), InvalidType, "N = 4"),
    (lambda: L.BinaryHierarchicalSoftmax(3, ((0, 1), 2))(X, T), ValueError, "no leaf -1; its 3 leaves"),
    (lambda: L.BinaryHierarchicalSoftmax(3, (0, 2))(X, np.ones(4, "i")), ValueError, "no leaf 1;"),
    (lambda: L.BinaryHierarchicalSoftmax(2, (0, 1))(X, T), InvalidType, "nodes"),
    (lambda: L.BinaryHierarchicalSoftmax(3, (0, 1, 2)), ValueError, "pairs; got 3 branches"),
    (lambda: L.BinaryHierarchicalSoftmax(3, (0, 0)), ValueError, "each of them once; got 0"),
    (lambda: L.BinaryHierarchicalSoftmax.create_huffman_tree({}), ValueError, "no words"),
]


@pytest.mark.parametrize(("call", "error", "message"), WRONG)
def test_wrong_use(call: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        call()


def test_hierarchical_softmax() -> None:
    link = L.BinaryHierarchicalSoftmax(3, ((0, 1), ((2, 3), 4)))
    assert link.W.shape == (4, 3) and abs(link.W.array).max() <= 1
    ways = {0: [(0, 1), (1, 1)], 2: [(0, -1), (2, 1), (3, 1)], 3: [(0, -1), (2, 1), (3, -1)], 1: [(0, 1), (1, -1)]}
    t = np.array([0, 2, 3, 1])
    expected = sum(softplus(-code * (link.W.array[node] @ x)) for x, label in zip(X, t, strict=True)
                   for node, code in ways[label])
    np.testing.assert_allclose(link(X, t).array, expected, rtol=1e-5)
    # The probabilities of all words are those of one word.
    total = sum(np.exp(-float(link(X[:1], np.array([word])).array)) for word in range(5))
    assert total == pytest.approx(1, abs=1e-5)


@pytest.mark.parametrize(("counts", "tree"), [  # as Chainer 7.8.1 breaks ties
    ({0: 1, 1: 1, 2: 1, 3: 1, 4: 1}, ((2, 3), (4, (0, 1)))),
    ({3: 1, 1: 1, 2: 1, 0: 1, 4: 2, 5: 2}, (((3, 1), (2, 0)), (4, 5))),
    ([3, 1, 1], (((1, 2), 0))), ({8: 1}, 8), (MappingProxyType({8: 1, 4: 3}), (8, 4)),
])
def test_huffman_tree(counts: Any, tree: Any) -> None:
    assert L.BinaryHierarchicalSoftmax.create_huffman_tree(counts) == tree


@pytest.mark.parametrize("make", [
    lambda: L.NegativeSampling(3, [1, 2, 3, 4, 5], 2), lambda: L.BlackOut(3, {i: i + 1 for i in range(5)}, 2),
    lambda: L.BinaryHierarchicalSoftmax(3, ((0, 1), ((2, 3), 4)))], ids=["negative", "black out", "tree"])
def test_compiled_with_the_same_draws(make: Any) -> None:
    link = make()
    link.W.array[...] = W[:len(link.W)]
    t = np.array([0, 2, 3, 1])
    static = kusari.static_graph(lambda x, t: link(x, t), strict=True)
    for turn in range(3):
        seen = []
        for call in (link, static):
            np.random.seed(turn)
            link.cleargrads()
            loss = call(X + turn, t)
            loss.backward()
            seen.append((loss.array, link.W.grad, np.random.rand()))
        for a, b in zip(*seen, strict=True):
            np.testing.assert_allclose(b, a, rtol=2e-4, atol=1e-6)
