"""Kernels that move data: every element at its place, for dtypes by width, shapes with edges and several threads."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from bodies import body
from kernels import call

from kusari.codegen.llvm.data.gather import gather_kernel
from kusari.codegen.llvm.data.move import move_kernel
from kusari.codegen.native import is_move
from kusari.codegen.target import AVX512, GENERIC, NEON, SSE, Target
from kusari.ir import Builder, Kernel, Node, Value

Build = Callable[..., Any]
Types = tuple[tuple[int, ...], ...]


def kernel_of(node: Node, target: Target) -> Kernel:
    return (move_kernel if is_move(node) else gather_kernel)(node, target)


def check(build: Build, arrays: list[np.ndarray], target: Target = AVX512) -> None:
    graph = body(build, *[(a.dtype.str, a.shape) for a in arrays])
    (node,) = graph.nodes
    (want,) = node.op.call(node.attrs, *arrays)
    for threads in (1, 3):
        got = np.full(want.shape, 77, want.dtype)
        call(kernel_of(node, target), [*arrays, got], threads)
        np.testing.assert_array_equal(got, want)


def numbers(dtype: str, *shape: int) -> np.ndarray:
    return np.asarray(np.random.uniform(-9, 9, shape)).astype(dtype)


MOVES: dict[str, list[tuple[Build, Types]]] = {
    "transpose": [(lambda b, x, a=axes: b.transpose(x, a), (shape,)) for shape, axes in (
        ((3, 5), (1, 0)), ((16, 16), (1, 0)), ((33, 70), (1, 0)), ((1, 7), (1, 0)), ((0, 3), (1, 0)),
        ((3, 17, 20), (0, 2, 1)), ((2, 3, 4, 5), (3, 1, 0, 2)), ((17, 3, 33), (2, 1, 0)))],
    "broadcast_to": [(lambda b, x, s=shape: b.broadcast_to(x, s), (own,)) for own, shape in (
        ((3, 1), (3, 37)), ((5,), (2, 5)), ((), (3, 4)), ((1, 4, 1), (2, 4, 20)), ((2, 1, 3), (2, 0, 3)))],
    "slice": [(lambda b, x, a=a: b.slice(x, *a), ((8, 40),)) for a in (
        ((1, 0), (7, 40), (2, 3)), ((6, 30), (-1, -1), (-2, -1)), ((0, 3), (8, 23), (1, 1)), ((3, 3), (3, 9), (1, 1)))],
    "concat": [(lambda b, *xs: b.concat(xs, 1), ((3, 4), (3, 37), (3, 1))),
               (lambda b, *xs: b.concat(xs, 0), ((3, 4), (2, 4))), (lambda b, *xs: b.concat(xs, 0), ((3, 5),) * 11),
               (lambda b, *xs: b.concat(xs, 1), ((1, 7),) * 9), (lambda b, *xs: b.concat(xs, 0), ((1,),) * 8)],
}


def test_operands_that_are_in_place_are_not_copied() -> None:
    arrays = [numbers("float32", 3, 5) for _ in range(9)]
    graph = body(lambda b, *xs: b.concat(xs, 0), *[("float32", a.shape) for a in arrays])
    (node,) = graph.nodes
    placed = tuple(i % 2 == 0 for i in range(9))
    node = Node(node.op, node.inputs, node.outputs, {**node.attrs, "placed": placed})
    got = np.full((27, 5), 77, "float32")
    call(kernel_of(node, AVX512), [*arrays, got])
    want = np.concatenate([np.full_like(a, 77) if there else a for a, there in zip(arrays, placed, strict=True)])
    np.testing.assert_array_equal(got, want)


def pad(shape: tuple[int, ...], starts: Any, stops: Any, steps: Any) -> tuple[Build, Types]:
    own = tuple(len(range(*a)) for a in zip(starts, stops, steps, strict=True))

    def build(b: Builder, x: Value) -> Value:
        return b.one("pad_slice", x, starts=starts, stops=stops, steps=steps, shape=shape)
    return build, (own,)


MOVES["pad_slice"] = [
    pad((8, 40), (1, 0), (7, 40), (2, 3)), pad((8, 40), (6, 30), (-1, -1), (-2, -1)), pad((9,), (3,), (3,), (1,)),
    pad((1, 9), (0, 2), (1, 5), (1, 1)), pad((3, 4, 5), (1, 0, 2), (2, 4, 5), (1, 1, 1))]


@pytest.mark.parametrize("name", MOVES)
def test_moves(name: str) -> None:
    for build, shapes in MOVES[name]:
        for dtype in ("f4", "?", "c16"):
            check(build, [numbers(dtype, *s) for s in shapes])
    build, shapes = MOVES[name][0]
    for dtype, target in (("f2", SSE), ("f8", NEON), ("i1", GENERIC)):
        check(build, [numbers(dtype, *s) for s in shapes], target)


@pytest.mark.parametrize("dtype", ("f4", "f8", "f2", "i4", "?"))
def test_rows(dtype: str) -> None:
    for kind, row in (("i4", (40,)), ("i8", ()), ("u1", (3, 2))):
        indices = np.random.randint(0, 7, (3, 5)).astype(kind)
        if kind != "u1":
            indices[0, 0] = -2
        check(lambda b, x, i: b.take(x, i), [numbers(dtype, 7, *row), indices])
        check(lambda b, i, u, row=row: b.scatter_add(i, u, (7, *row)), [indices, numbers(dtype, 3, 5, *row)])


def test_rows_that_do_not_exist() -> None:
    indices = np.array([1, 9, -1, -5], "i4")
    table = numbers("f4", 4, 3)
    take = body(lambda b, x, i: b.take(x, i), ("f4", (4, 3)), ("i4", (4,))).nodes[0]
    got = np.zeros((4, 3), "f4")
    told = np.zeros(2, "i8")
    call(kernel_of(take, AVX512), [table, indices, got, told])
    assert told[0] in (9, -5) and told[1] == 1
    np.testing.assert_array_equal(got, [table[1], [np.nan] * 3, table[3], [np.nan] * 3])
    add = body(lambda b, i, u: b.scatter_add(i, u, (4, 3)), ("i4", (4,)), ("f4", (4, 3))).nodes[0]
    told[...] = 0
    call(kernel_of(add, AVX512), [indices, np.ones((4, 3), "f4"), got, told], 3)
    assert told[0] in (9, -5) and told[1] == 1
    np.testing.assert_array_equal(got[:, 0], [0, 1, 0, 1])
