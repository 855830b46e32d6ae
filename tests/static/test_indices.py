"""Numbers of rows, columns and labels from the end, and beyond both ends: compiled code does what NumPy does."""
from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import kusari
import kusari.functions as F
import kusari.links as L
from kusari.optimizers import SGD

N = 5  # rows, columns or labels that there are; the largest table has 200
LINK = L.NegativeSampling(3, [3, 2, 1, 1, 2], 2)
LINK.W.array[...] = np.linspace(-1, 1, 15).reshape(5, 3)

# Each: the shape of a parameter, and a function of it and of four integers.
FUNCTIONS: dict[str, tuple[tuple[int, ...], Callable[[Any, Any], Any]]] = {
    "embed_id": ((N, 3), lambda W, t: F.embed_id(t, W)),
    "embed_id, two axes": ((N, 3), lambda W, t: F.embed_id(t.reshape(2, 2), W)),
    "embed_id, ignored": ((N, 3), lambda W, t: F.embed_id(t, W, ignore_label=-1)),
    "embed_id, many": ((200, 3), lambda W, t: F.embed_id(t, W)),
    "rows": ((N, 3), lambda W, t: W[t]),
    "rows, Variable": ((N, 3), lambda W, t: W[kusari.Variable(t)]),
    "rows, two axes": ((N, 3), lambda W, t: W[t.reshape(2, 2)]),
    "rows, many": ((200, 3), lambda W, t: W[t]),
    "columns": ((3, N), lambda W, t: W[:, t]),
    "rows one by one": ((N, 3), lambda W, t: F.stack([W[i] for i in t])),
    "rows from numbers of others": ((N, 3), lambda W, t: W[t[0] // 2] * W[t[1]]),
    "a column by its number": ((3, N), lambda W, t: W[1:, t[2]]),
    "an element by its numbers": ((N, N), lambda W, t: W[t[0], t[1]]),
    "middle axis": ((2, N, 3), lambda W, t: W[:, t]),
    "one number and rows": ((2, N, 3), lambda W, t: W[1, t]),
    "a slice and rows": ((3, N, 3), lambda W, t: W[1:, t]),
    "two axes": ((7, N), lambda W, t: W[t, t]),
    "two axes, many": ((200, 201), lambda W, t: W[t, t]),
    "two axes apart": ((N, 2, 6), lambda W, t: W[t, :, t]),
    "a list and an array": ((7, N), lambda W, t: W[[0, 1, 2, 3], t]),
    "rows of two functions": ((N, 3), lambda W, t: F.embed_id(t, W) * W[t]),
    "select_item": ((4, N), lambda W, t: F.select_item(W, t)),
    "select_item, many": ((4, 200), lambda W, t: F.select_item(W, t)),
    "softmax_cross_entropy": ((4, N), lambda W, t: F.softmax_cross_entropy(W, t)),
    "softmax_cross_entropy, each": ((4, N), lambda W, t: F.softmax_cross_entropy(W, t, reduce="no")),
    "softmax_cross_entropy, weights": (
        (4, N), lambda W, t: F.softmax_cross_entropy(W, t, class_weight=np.arange(1, N + 1, dtype="f"))),
    "softmax_cross_entropy, ignored": ((4, N), lambda W, t: F.softmax_cross_entropy(W, t, ignore_label=2)),
    "softmax_cross_entropy, images": ((4, N, 1), lambda W, t: F.softmax_cross_entropy(W, t[:, None])),
    "softmax_cross_entropy, many": ((4, 3000), lambda W, t: F.softmax_cross_entropy(W, t)),
    "sigmoid_cross_entropy": ((4,), lambda W, t: F.sigmoid_cross_entropy(W, t)),
    "hinge": ((4, N), lambda W, t: F.hinge(W, t)),
    "scatter_add": ((N, 3), lambda W, t: F.scatter_add(W, t, F.broadcast_to(W[:1], (4, 3)))),
    "scatter_add, two axes": ((6, N), lambda W, t: F.scatter_add(W, (t, t), F.broadcast_to(F.sum(W), (4,)))),
    "crf1d": ((N, N), lambda W, t: F.crf1d(W, [W[:2]], [t[:2]])),
    "ctc": ((3, 1, N), lambda W, t: F.connectionist_temporal_classification([W[0], W[1], W[2]], t[:1, None], 0)),
    "regions": ((N, 2, 6, 6), lambda W, t: F.roi_average_align_2d(W, np.full((4, 4), 3, "f"), t, 2, 1., 2)),
    "accuracy": ((4, N), lambda W, t: F.sum(W) * F.accuracy(W, t, ignore_label=-1)),
    "negative_sampling": ((4, 3), lambda W, t: LINK(W, t)),
}
NUMBERS = [
    [0, 1, 4, 2], [-1, -2, -5, 0], [0, 1, 4, 2], [-6, 0, 1, 2], [-10, 0, 1, 2], [0, 1, -11, 3], [1, -7, 0, 1],
    [0, 1, 5, 2], [0, 6, 1, 2], [1, 2, 3, 10], [1, 2, 3, 100], [1, 2, 3, 127], [-128, 3, 2, 1], [3, 2, 2**31 - 1, 0],
    [-2**31, 0, 1, 2], [2**62, 0, 1, 2], [2**32 + 1, 0, 1, 2], [-2**63, 0, 1, 2], [-2**32, 0, 1, 2], [4, 3, 2, 1]]


@pytest.mark.slow
@pytest.mark.parametrize("dtype", ["i1", "i4", "i8"])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_numbers_at_and_beyond_the_ends(alike: Any, name: str, dtype: str) -> None:
    extents, function = FUNCTIONS[name]
    limits = np.iinfo(dtype)

    def make(decorate: Any) -> Any:
        class Decorated(kusari.Chain):
            def __init__(self) -> None:
                super().__init__()
                with self.init_scope():
                    self.W = kusari.Parameter(np.random.RandomState(0).randn(*extents).astype("f"))
                    self.scale = kusari.Parameter(np.ones((), "f"))

            def loss(self, t: Any, computed: bool) -> Any:
                y = function(self.W * F.broadcast_to(self.scale, self.W.shape) if computed else self.W, t)
                return F.sum(y * y)
            loss = decorate(loss)

        model = Decorated()
        opt = SGD(0.01).setup(model)

        def each(t: Any) -> Any:
            with kusari.no_backprop_mode():
                yield model.loss(t, False)
            model.cleargrads()
            y = model.loss(t, True)
            y.backward()
            yield y, model.W.grad.copy()
            opt.update(model.loss, t, False)
            yield opt.t

        def call(t: Any) -> Any:
            try:
                return list(each(t))
            except Exception as error:
                return type(error), [p.array.copy() for p in model.params()]

        def step(t: Any) -> Any:
            try:
                opt.update(model.loss, t, False)
            except Exception as error:
                return type(error), [p.array.copy() for p in model.params()]
            return [p.array.copy() for p in model.params()]
        return lambda t: (call(t), step(t))

    data = [np.array(t, dtype) for t in NUMBERS if all(limits.min <= x <= limits.max for x in t)]
    alike(make, data, rtol=1e-3, atol=1e-4)


def rows(i: int) -> tuple[Any, Any]:
    r = np.random.RandomState(i)
    return r.rand(5, 4).astype("f"), r.permutation(5)


def _part_set(x: Any, t: Any) -> Any:
    h = F.exp(x)
    h[t[0]].array[...] = 0
    return F.sum(h * 2), h


def _whole_set(x: Any, t: Any) -> Any:
    h = F.exp(x)
    part, whole = h[t[0]], h.array
    whole[...] = 0
    return F.sum(part * 2), h


@pytest.mark.parametrize("body", [_part_set, _whole_set, lambda x, t: ((h := F.exp(x))[t[0]], h)])
def test_rows_by_integers_of_arrays_are_views(body: Any) -> None:
    """A replay has no views of another place, so the function falls back where that shows."""
    static = kusari.static_graph(body)
    with pytest.warns(kusari.static.StaticGraphWarning, match="takes data out|returns a view"):
        for i in range(4):
            for found, expected in zip(static(*rows(i)), body(*rows(i)), strict=True):
                np.testing.assert_array_equal(found.array, expected.array)
    part, whole = static(*rows(1)), body(*rows(1))
    for y in (part, whole):
        y[0].array[...] = 7
    np.testing.assert_array_equal(part[1].array, whole[1].array)
