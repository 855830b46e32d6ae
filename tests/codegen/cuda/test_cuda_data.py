"""Kernels of the card that move, gather, pool and add up data, as OpenCL on the CPU against the interpreter."""
from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from card import examples, the_card
from hypothesis import given, settings
from hypothesis import strategies as st
from kernels import assert_untouched, guarded
from primitive_cases import POOLINGS, SCANS

from kusari.codegen.cuda.data.fill import fill_kernel
from kusari.codegen.cuda.data.gather import gather_kernel
from kusari.codegen.cuda.data.move import move_kernel
from kusari.codegen.cuda.data.pool import pool_kernel
from kusari.codegen.cuda.data.scan import scan_kernel
from kusari.codegen.cuda.nest.foreach import foreach_kernel
from kusari.ir import PRIMITIVES, Arg, Builder, Call, Lit, Node, Value, tensor_type

KINDS = ("float32", "float64", "float16", "int64", "bool", "complex128")


def filled(shape: tuple[int, ...], dtype: str, seed: int = 0) -> np.ndarray:
    return np.asarray(np.random.RandomState(seed).randn(*shape) * 9).astype(dtype)


def node_of(name: str, arrays: Sequence[np.ndarray], **attrs: Any) -> Node:
    b = Builder()
    inputs = [Value(tensor_type(x.dtype, x.shape)) for x in arrays]
    b.emit(PRIMITIVES[name], *inputs, **attrs)
    return b.nodes[0]


def check(make: Any, node: Node, arrays: Sequence[np.ndarray], extra: Sequence[np.ndarray] = (),
          rtol: float = 0) -> None:
    """The kernel that ``make`` writes gives what the primitive gives, and writes nothing around it."""
    kernel = make(node)
    assert kernel is not None
    with np.errstate(all="ignore"):
        want = node.op.call(node.attrs, *arrays)
    outputs, buffers = zip(*(guarded(v.shape, v.tensor.dtype) for v in node.outputs), strict=True)
    the_card().run(kernel, [*arrays, *outputs, *extra])
    for x, y, raw in zip(outputs, want, buffers, strict=True):
        np.testing.assert_allclose(x, y, rtol=rtol, atol=rtol)
        assert_untouched(raw)


@pytest.mark.parametrize("dtype", KINDS)
def test_moves(dtype: str) -> None:
    x, y = filled((5, 37, 40), dtype), filled((5, 3, 40), dtype, 1)
    for axes in ((2, 1, 0), (0, 2, 1), (1, 0, 2), (2, 0, 1)):
        check(move_kernel, node_of("transpose", [x], axes=axes), [x])
    for axis, arrays in ((1, [x, y, x]), (0, [x, x]), (2, [y, y, y])):
        check(move_kernel, node_of("concat", arrays, axis=axis), arrays)
    for starts, stops, steps in (((0, 0, 0), (5, 37, 40), (1, 1, 1)), ((4, 3, 1), (-1, 30, 39), (-2, 3, 1)),
                                 ((0, 8, 8), (4, 24, 40), (1, 1, 1)), ((1, 1, 39), (2, 36, -1), (1, 1, -1))):
        attrs = dict(starts=starts, stops=stops, steps=steps)
        check(move_kernel, node_of("slice", [x], **attrs), [x])
        part = np.ascontiguousarray(x[tuple(slice(a, b if b >= 0 else None, s)
                                            for a, b, s in zip(starts, stops, steps, strict=True))])
        check(move_kernel, node_of("pad_slice", [part], shape=x.shape, **attrs), [part])
    row = filled((1, 40), dtype)
    check(move_kernel, node_of("broadcast_to", [row], shape=(3, 7, 40)), [row])


@settings(max_examples=examples())
@given(st.data())
def test_moves_of_any_shape(data: Any) -> None:
    shape = tuple(data.draw(st.lists(st.sampled_from((1, 2, 3, 8, 17, 33)), min_size=1, max_size=4)))
    x = filled(shape, data.draw(st.sampled_from(KINDS)))
    rank = len(shape)
    check(move_kernel, node_of("transpose", [x], axes=tuple(data.draw(st.permutations(range(rank))))), [x])
    axis, count = data.draw(st.integers(0, rank - 1)), data.draw(st.integers(1, 4))
    check(move_kernel, node_of("concat", [x] * count, axis=axis), [x] * count)
    cut = [(data.draw(st.integers(0, n - 1)), data.draw(st.integers(-3, 3).filter(bool))) for n in shape]
    attrs = dict(starts=tuple(a for a, _ in cut), stops=tuple(n if s > 0 else -1 for n, (_, s) in zip(
        shape, cut, strict=True)), steps=tuple(s for _, s in cut))
    check(move_kernel, node := node_of("slice", [x], **attrs), [x])
    part = filled(node.output.shape, str(x.dtype), 3)
    check(move_kernel, node_of("pad_slice", [part], shape=shape, **attrs), [part])


def test_many_operands_come_in_a_table() -> None:
    arrays = [filled((3, 5), "float32", k) for k in range(70)]
    node = node_of("concat", arrays, axis=1)
    kernel = move_kernel(node)
    assert kernel is not None and kernel.facts.by_table
    check(move_kernel, node, arrays)


def test_an_assignment_and_operands_in_place() -> None:
    state, new = filled((7, 9), "float32"), filled((7, 9), "float32", 1)
    kernel = move_kernel(node_of("assign", [state, new]))
    assert kernel is not None
    the_card().run(kernel, [new, state])
    np.testing.assert_array_equal(state, new)
    node = node_of("concat", [new, new], axis=0)
    there = Node(node.op, node.inputs, node.outputs, {**node.attrs, "placed": (True, False)})
    kernel, out = move_kernel(there), np.zeros((14, 9), "f")
    assert kernel is not None
    the_card().run(kernel, [new, new, out])
    assert not out[:7].any() and (out[7:] == new).all()


ROWS = [(5, 3, 4), (70, 33, 8), (3000, 500, 5), (4, 1000, 300), (9, 7, 1)]


@pytest.mark.parametrize("rows, count, length", ROWS)
def test_rows_are_gathered_and_scattered(rows: int, count: int, length: int) -> None:
    for dtype, kind in (("float32", "int32"), ("float16", "int64"), ("float64", "uint8"), ("int32", "int32")):
        low, high = (0, min(rows, 256)) if kind == "uint8" else (-rows, rows)
        numbers = np.random.RandomState(0).randint(low, high, (count,)).astype(kind)
        table, updates = filled((rows, length), dtype), filled((count, length), dtype, 1)
        told = np.zeros(2, np.int64)
        check(gather_kernel, node_of("take", [table, numbers]), [table, numbers], [told])
        check(gather_kernel, node_of("scatter_add", [numbers, updates], shape=table.shape), [numbers, updates], [told])
        assert not told.any()


def test_rows_that_do_not_exist_are_reported() -> None:
    numbers, table = np.array([1, 9, -1, -5], "i4"), filled((4, 3), "float32")
    got, told = np.zeros((4, 3), "f"), np.zeros(2, np.int64)
    the_card().run(gather_kernel(node_of("take", [table, numbers])), [table, numbers, got, told])
    assert told[0] in (9, -5) and told[1] == 1
    np.testing.assert_array_equal(got, [table[1], [np.nan] * 3, table[3], [np.nan] * 3])
    told[...] = 0
    node = node_of("scatter_add", [numbers, np.ones((4, 3), "f")], shape=(4, 3))
    the_card().run(gather_kernel(node), [numbers, np.ones((4, 3), "f"), got, told])
    assert told[0] in (9, -5) and told[1] == 1
    np.testing.assert_array_equal(got[:, 0], [0, 1, 0, 1])


@pytest.mark.parametrize("name", POOLINGS)
def test_pooling(name: str) -> None:
    case = dict(POOLINGS[name])
    size, out = case.pop("size"), case.pop("out")
    rng = np.random.default_rng(1)
    for dtype in ("float32", "float64"):
        x = rng.integers(-4, 4, size=(2, 3, *size)).astype(dtype)   # with ties, and sums that are exact
        x[0, 1].flat[3], x[1, 2].flat[5] = np.nan, -np.inf
        check(pool_kernel, node_of("pool", [x], fn="max", size=out, places=True, **case), [x])
        check(pool_kernel, node_of("pool", [x], fn="sum", size=out, places=False, **case), [x])
        g = rng.integers(-4, 4, size=(2, 3, *out)).astype(dtype)
        places = rng.integers(0, int(np.prod(case["kernel"])), size=g.shape).astype("i")
        check(pool_kernel, node_of("unpool", [g, places], size=size, **case), [g, places])
        check(pool_kernel, node_of("unpool", [g], size=size, **case), [g])


@pytest.mark.parametrize("shape, axis", SCANS)
def test_running_totals(shape: tuple[int, ...], axis: int) -> None:
    x = np.random.default_rng(0).uniform(0.5, 1.5, shape)
    for dtype, rtol in (("float32", 1e-4), ("float64", 1e-12)):
        a = x.astype(dtype)
        for name, attrs in (("cumsum", {"reverse": False}), ("cumsum", {"reverse": True}), ("cumprod", {})):
            check(scan_kernel, node_of(name, [a], axis=axis % len(shape), **attrs), [a], rtol=rtol)


ADAM = (Call("subtract", (Arg(1), Call("multiply", (Arg(0), Arg(2))))),
        Call("add", (Call("multiply", (Arg(3), Lit(0.9))), Call("square", (Arg(2),)))))


@pytest.mark.parametrize("sizes", [[(5,)], [(3, 7), (0,), (4096,), (4097,), (1,)], [(100, 100)] * 3], ids=str)
def test_updates_of_many_tensors(sizes: list[tuple[int, ...]]) -> None:
    for dtype in ("float32", "float16", "float64"):
        arrays = [filled((), dtype, 9)]
        for k, shape in enumerate(sizes):
            arrays += [filled(shape, dtype, 3 * k + i) for i in range(3)]
        node = node_of("foreach", arrays, exprs=ADAM, shared=1, arity=3)
        check(foreach_kernel, node, arrays, rtol=1e-2 if dtype == "float16" else 1e-6)


def test_numbers_everywhere_and_views_that_are_copies() -> None:
    for dtype, value in (("float32", -np.inf), ("float16", 1.5), ("bool", True), ("int64", -2**63), ("uint64", 2**63)):
        check(fill_kernel, node_of("full", [], shape=(7, 41), value=value, dtype=dtype), [])
    x = filled((9, 5, 4), "float32")
    check(move_kernel, node_of("reshape", [x], shape=(45, 4)), [x])
    check(move_kernel, node_of("part", [x], start=3, stop=8), [x])
