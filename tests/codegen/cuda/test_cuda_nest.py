"""Loop nests for the card: kernels run as OpenCL on the CPU against the interpreter, in odd shapes and in place."""
from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from bodies import arrays_for, bodies, body, normalize, softmax
from card import examples, the_card
from hypothesis import given, settings
from kernels import assert_untouched, guarded, overwriting
from nest_bodies import BODIES

from kusari.codegen.cuda.nest.kernels import nest_kernels
from kusari.codegen.cuda.nest.layout import launches_of, layout_of
from kusari.ir import Graph, Kernel, interpret
from kusari.ir.alignment import NotANest
from kusari.ir.nest import nest_of


def call(kernels: Sequence[Kernel], arrays: Sequence[np.ndarray]) -> None:
    """Run the kernels of a node, which leave results to each other."""
    memory = np.full(max(k.shared for k in kernels), 255, np.uint8)
    for kernel in kernels:
        the_card().run(kernel, [*arrays, memory] if kernel.shared else arrays)


def check(graph: Graph, arrays: Sequence[np.ndarray] | None = None, rtol: float = 3e-5) -> Sequence[Kernel]:
    """The kernels give what the interpreter gives, also when outputs take the operands' buffers."""
    arrays = arrays_for(graph.inputs) if arrays is None else arrays
    kernels = nest_kernels(nest_of(graph))
    with np.errstate(all="ignore"):
        want = interpret(graph, arrays)
    outputs, buffers = zip(*(guarded(v.shape, v.tensor.dtype) for v in graph.outputs), strict=True)
    call(kernels, [*arrays, *outputs])
    compare(outputs, want, rtol)
    for raw in buffers:
        assert_untouched(raw)
    if (found := overwriting(graph, arrays)) is not None:
        operands, reused = found
        call(kernels, [*operands, *reused])
        compare(reused, want, rtol)
    return kernels


def compare(got: Sequence[np.ndarray], want: Sequence[np.ndarray], rtol: float) -> None:
    for x, y in zip(got, want, strict=True):
        assert x.dtype == y.dtype
        np.testing.assert_allclose(x, y, rtol=rtol, atol=rtol)


@pytest.mark.parametrize("name", BODIES)
def test_every_pattern(name: str) -> None:
    check(BODIES[name])


@pytest.mark.parametrize("shape", [(1, 1), (1, 4), (3, 2), (2, 67), (33, 31), (5, 516), (2, 1030), (130, 64)], ids=str)
def test_rows_and_columns_of_any_length(shape) -> None:
    for axis in (0, 1):
        check(body(lambda b, x, axis=axis: softmax(b, x, axis), ("f4", shape)))


@pytest.mark.parametrize("dtype", ["float16", "float64"])
def test_other_precisions(dtype: str) -> None:
    rtol = 2e-2 if dtype == "float16" else 1e-12
    check(body(lambda b, x: softmax(b, x), (dtype, (9, 128))), rtol=rtol)
    check(body(normalize, (dtype, (5, 30)), (dtype, (30,)), (dtype, (30,))), rtol=rtol)
    check(body(lambda b, x, y: b.call("add", x, b.call("tanh", y)), (dtype, (7, 24)), (dtype, (7, 1))), rtol=rtol)


LONG = {
    "all": (lambda b, x: (b.reduce("sum", x), b.reduce("max", x)), [("f4", (3, 70000))]),
    "columns": (lambda b, x: (b.reduce("sum", x, 0), b.reduce("sum", b.call("square", x), 0)), [("f4", (9000, 20))]),
    "maps": (lambda b, *xs: normalize(b, *xs, axes=(0, 2)),
             [("f4", (40, 3, 1500)), ("f4", (1, 3, 1)), ("f4", (1, 3, 1))]),
    "softmax": (softmax, [("f4", (1, 70001))]),
    "half": (lambda b, x: b.reduce("sum", x), [("f2", (100000,))]),
    "any": (lambda b, x: b.reduce("any", b.call("greater", x, 1.9999), 1), [("f4", (2, 60000))]),
}


@pytest.mark.parametrize("name", LONG)
def test_blocks_share_few_long_rows(name: str) -> None:
    build, types = LONG[name]
    kernels = check(body(build, *types), rtol=2e-3 if name == "half" else 2e-4)
    assert len(kernels) > 1 and all(k.facts.blocks > 3 for k in kernels)


def test_threads_keep_values_of_short_rows() -> None:
    short, long = (layout_of(nest_of(body(softmax, ("f4", (64, n))))) for n in (1024, 65536))
    assert (short.turns, long.turns) == (1, 0)
    assert short.lanes == 4 and short.shares == 256
    assert launches_of(nest_of(BODIES["softmax"])) == 1


def test_packs_need_alignment_only_when_they_run() -> None:
    graph = body(lambda b, x, y: b.call("add", x, y), ("f4", (1003,)), ("f4", (1003,)))
    for k in (0, 1, 4):
        a, b = (np.random.default_rng(k).normal(size=1003 + 8).astype("f")[s:s + 1003] for s in (k, 4))
        check(graph, (a, b))
    rows = body(softmax, ("f4", (3, 64)))
    for k in (0, 3):
        x = np.random.default_rng(k).normal(size=3 * 64 + 8).astype("f")[k:k + 3 * 64].reshape(3, 64)
        check(rows, (x,))


def test_slices_are_read_where_they_lie() -> None:
    def gate(b, z, c):
        i = b.reshape(b.slice(z, (0, 0, 3), (5, 33, 4), (1, 1, 1)), (5, 33))
        return b.call("multiply", b.call("tanh", i), c)
    check(body(gate, ("f4", (5, 33, 4)), ("f4", (5, 33))))
    check(body(lambda b, x, y: b.call("add", b.slice(x, (0, 40), (9, 80), (1, 1)), y), ("f4", (9, 80)), ("f4", (40,))))
    check(body(lambda b, x: softmax(b, b.slice(x, (8, 1), (-1, 60), (-2, 1))), ("f4", (9, 80))))


def test_empty_arrays() -> None:
    check(body(lambda b, x: b.call("exp", x), ("f4", (0, 5))))
    check(body(lambda b, x: b.reduce("sum", x, 1), ("f4", (4, 0))))
    check(body(lambda b, x: b.reduce("sum", x, 1), ("f4", (0, 4))))


@settings(max_examples=examples())
@given(graph=bodies())
def test_random_nests(graph: Graph) -> None:
    try:
        nest_of(graph)
    except NotANest:
        return
    check(graph, rtol=2e-3)
