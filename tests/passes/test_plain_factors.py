"""Factors of products as a card's kernels take them: halves, one dtype, whole batches."""
from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pytest
from graphs import assert_same, graphs
from hypothesis import given

from kusari.ir import Builder, Graph, Value, interpret, tensor_type, verify
from kusari.passes import plain_factors


def value(dtype: str, *shape: int) -> Value:
    return Value(tensor_type(dtype, shape))


def arrays(graph: Graph) -> list[np.ndarray]:
    r = np.random.RandomState(0)
    return [np.asarray(r.normal(0, 3, v.shape)).astype(v.tensor.dtype) for v in (*graph.inputs, *graph.params)]


def check(b: Builder, inputs: tuple[Value, ...], *outputs: Value, params: tuple[Value, ...] = ()) -> Graph:
    """The graph behind the pass, which computes the same, bit for bit."""
    before = verify(Graph("g", inputs, params, (), tuple(b.nodes), outputs))
    after = verify(plain_factors(before))
    found = [[np.array(y) for y in interpret(g, arrays(g)[:len(inputs)], arrays(g)[len(inputs):])]
             for g in (before, after)]
    for x, y in zip(*found, strict=True):
        assert x.dtype == y.dtype
        np.testing.assert_array_equal(x, y)
    return after


def test_halves_are_multiplied_as_they_are() -> None:
    b, x, w = Builder(), value("float16", 5, 7), value("float16", 4, 7)
    graph = check(b, (x, w), b.matmul(x, w, False, True))
    product, cast = graph.nodes
    assert (product.inputs, product.attrs["wide"], product.output.tensor.dtype) == ((x, w), True, np.float32)
    assert cast.output.tensor.dtype == np.float16


def test_moves_between_a_cast_and_a_product_move_halves() -> None:
    b, x, w = Builder(), value("float16", 2, 3, 4), value("float16", 6, 4)
    wide = b.transpose(b.concat([b.reshape(b.cast(x, "float32"), (6, 4)), b.cast(w, "float32")], 0))
    graph = check(b, (x, w), b.one("matmul", wide, wide, transa=True, transb=False))
    assert [(n.op.name, n.output.tensor.dtype.name) for n in graph.nodes] == [
        ("reshape", "float16"), ("concat", "float16"), ("transpose", "float16"), ("matmul", "float32")]


def test_a_convolution_of_halves() -> None:
    attrs = dict(stride=(1, 1), pad=(1, 1), dilate=(1, 1), groups=1)
    for op, first, second, size in (("conv", (2, 3, 5, 5), (4, 3, 3, 3), (5, 5)),
                                    ("conv_input", (2, 4, 5, 5), (4, 3, 3, 3), (5, 5)),
                                    ("conv_weight", (2, 3, 5, 5), (2, 4, 5, 5), (3, 3))):
        b, x, w = Builder(), value("float16", *first), value("float16", *second)
        y = b.one(op, b.cast(x, "float32"), b.cast(w, "float32"), size=size, **attrs)
        graph = check(b, (x, w), b.cast(y, "float16"))
        assert [n.op.name for n in graph.nodes] == [op, "map"] and graph.nodes[0].inputs == (x, w)


def test_a_half_that_was_written_to_since_its_cast_is_not_read() -> None:
    b, x, w, other = Builder(), value("float16", 5, 7), value("float16", 7, 4), value("float16", 7, 4)
    before = b.cast(w, "float32")
    b.assign(w, other)
    y = b.one("matmul", b.cast(x, "float32"), before, transa=False, transb=False)
    graph = check(b, (x, other), y, params=(w,))
    assert "wide" not in next(n for n in graph.nodes if n.op.name == "matmul").attrs


def test_a_single_beside_a_half_stays_one() -> None:
    b, x, w = Builder(), value("float16", 5, 7), value("float32", 7, 4)
    graph = check(b, (x, w), b.one("matmul", b.cast(x, "float32"), w, transa=False, transb=False))
    assert [n.op.name for n in graph.nodes] == ["map", "matmul"]


@pytest.mark.parametrize("one, other", [("int8", "int32"), ("float32", "float64"), ("float16", "int8"),
                                        ("bool", "bool"), ("uint64", "int64")])
def test_factors_of_two_dtypes_get_that_of_the_result(one: str, other: str) -> None:
    b, x, w = Builder(), value(one, 5, 7), value(other, 7, 4)
    graph = check(b, (x, w), b.one("matmul", x, w, transa=False, transb=False))
    product = next(n for n in graph.nodes if n.op.name == "matmul")
    dtypes = {v.tensor.dtype for v in product.inputs}
    assert len(dtypes) == 1 and dtypes.pop().kind in "iuf"


@pytest.mark.parametrize("first, second, moves", [
    ((2, 1, 3, 4), (1, 5, 4, 3), 2), ((2, 5, 3, 4), (5, 4, 3), 1), ((2, 5, 3, 4), (4, 3), 0),
    ((3, 4), (2, 5, 4, 3), 0)])
def test_batches_become_whole(first: Any, second: Any, moves: int) -> None:
    b, x, w = Builder(), value("float32", *first), value("float32", *second)
    graph = check(b, (x, w), b.matmul(x, w))
    assert Counter(n.op.name for n in graph.nodes)["broadcast_to"] == moves


@given(graph=graphs(dtype="float16"))
def test_random_graphs(graph: Graph) -> None:
    assert_same(graph, verify(plain_factors(graph)), rtol=0)
