"""From a graph to a program: which rows there are, and that running them gives what the interpreter gives."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from bodies import arrays_for, body, cross_entropy, softmax
from graphs import graphs
from hypothesis import given
from hypothesis import strategies as st
from kernels import call

from kusari.codegen.generate import generate
from kusari.codegen.llvm.nest.foreach import foreach_kernel
from kusari.codegen.target import AVX2, AVX512, GENERIC, NEON, SSE, Target
from kusari.ir import (
    PRIMITIVES,
    Arena,
    Arg,
    Builder,
    Call,
    Graph,
    Lit,
    Node,
    Op,
    Plan,
    Program,
    Trait,
    Value,
    interpret,
    tensor_type,
    verify,
)
from kusari.ir.product import epilogue_of, product_of, without_batch
from kusari.passes import plan
from kusari.passes.foreach import foreach
from kusari.passes.fuse import fuse


def run(made: Plan, program: Program, inputs: Sequence[Any], params: Sequence[Any], threads: int) -> list[Any]:
    """A runtime in ten lines: outputs of the program; ``params`` change in place."""
    arena = np.full(made.arena_size, 255, np.uint8)
    buffers = [np.array(x) for x in inputs] + list(params) + [np.array(a) for _, a in made.graph.consts]
    buffers += [np.empty(v.shape, v.tensor.dtype) for v in made.externals[len(buffers):]]

    def view(v: Value) -> Any:
        slot = made.slots[v]
        if isinstance(slot, Arena):
            raw = arena[slot.offset:slot.offset + v.tensor.nbytes]
            return raw.view(v.tensor.dtype).reshape(v.shape)
        return buffers[slot.index].reshape(v.shape)
    for instruction in program.instructions:
        if instruction.kernel is not None:
            call(instruction.kernel, [view(v) for v in instruction.operands], threads)
            continue
        results = instruction.node.op.call(instruction.node.attrs, *map(view, instruction.node.inputs))
        for v, x in zip(instruction.node.outputs, results, strict=True):
            view(v)[...] = x
    return [np.array(view(v)) for v in made.graph.outputs]


def check(graph: Graph, target: Target = AVX512, threads: int = 1, rtol: float = 1e-4) -> Program:
    after = verify(foreach(fuse(graph)))
    made = plan(after)
    program = generate(made, target)
    inputs, got_params, want_params = (arrays_for(vs, seed) for vs, seed in (
        (graph.inputs, 0), (graph.params, 1), (graph.params, 1)))
    with np.errstate(all="ignore"):
        want = interpret(graph, inputs, want_params)
        got = run(made, program, inputs, got_params, threads)
    for x, y in zip([*got, *got_params], [*want, *want_params], strict=True):
        np.testing.assert_allclose(x, y, rtol=rtol, atol=rtol)
    return program


def names(program: Program) -> list[str]:
    return [r.kernel.symbol.partition("_")[0] if r.kernel else f"python {r.node.op.name}" for r in program.instructions]


def attention(b: Builder, q: Value, k: Value, v: Value, mask: Value) -> Value:
    scores = b.call("add", b.call("multiply", b.matmul(q, k, transb=True), 0.35), mask)
    return b.transpose(b.matmul(softmax(b, scores, 3), v), (0, 2, 1, 3))


def test_attention_is_four_kernels() -> None:
    heads = ("f4", (2, 3, 17, 8))
    for mask in ((2, 1, 1, 17), (17,), (2, 3, 17, 17), ()):
        program = check(body(attention, heads, heads, heads, ("f4", mask)), threads=2)
        assert names(program) == ["gemm", "nest", "gemm", "move"]
        scale_and_mask = program.instructions[0].node.attrs["body"].nodes
        # A mask per sample is broadcast over heads in part: the product's kernel cannot read it, the softmax can.
        assert len(scale_and_mask) == (2 if mask == (2, 1, 1, 17) else 3)


def gates(b: Builder, z: Value, c: Value) -> tuple[Value, ...]:
    """A cell with interleaved gates, as an LSTM of Chainer has them."""
    rows, units, _ = z.shape
    a, i, f, o = (b.reshape(b.slice(z, (0, 0, k), (rows, units, k + 1), (1, 1, 1)), (rows, units)) for k in range(4))
    new = b.call("add", b.call("multiply", b.call("tanh", a), i), b.call("multiply", f, c))
    return new, b.call("multiply", o, b.call("tanh", new))


@pytest.mark.parametrize("target", (AVX512, SSE), ids=lambda t: t.name)
def test_slices_are_read_where_they_lie(target: Target) -> None:
    for rows, units in ((5, 33), (3, 200), (1, 1), (7, 3)):
        program = check(body(gates, ("f4", (rows, units, 4)), ("f4", (rows, units))), target, threads=2)
        assert names(program) == ["nest"]
    halves = check(body(lambda b, x: b.call("multiply", b.slice(x, (0, 0), (9, 40), (1, 1)), b.slice(
        x, (0, 40), (9, 80), (1, 1))), ("f4", (9, 80))), target)
    assert names(halves) == ["nest"]
    backwards = body(lambda b, x: softmax(b, b.slice(x, (8, 1), (-1, 60), (-2, 1))), ("f4", (9, 80)))
    assert names(check(backwards, target)) == ["nest"]


def test_a_sliced_operand_is_not_overwritten() -> None:
    def build(b: Builder, x: Value) -> Value:
        y = b.one("transpose", x, axes=(0, 1))
        return b.call("negative", b.call("exp", b.slice(y, (1, 0), (6, 40), (1, 1))))
    check(body(build, ("f4", (9, 40))), threads=3)


def test_one_matrix_for_a_batch_is_one_product() -> None:
    def build(b: Builder, x: Value, w: Value, c: Value) -> Value:
        return b.call("tanh", b.call("add", b.matmul(x, w, transb=True), c))
    for bias, flat in (((7,), True), ((4, 5, 7), True), ((5, 1), False), ((4, 1, 1), False)):
        program = check(body(build, ("f4", (4, 5, 6)), ("f4", (7, 6)), ("f4", bias)), threads=2)
        assert names(program) == ["gemm"]
        epilogue = epilogue_of(program.instructions[0].node.attrs["body"])
        sizes = product_of(epilogue.node)
        assert sizes is not None and (without_batch(sizes, epilogue.operands).batch == 1) == flat


def test_views_and_assignments_in_place_have_no_row() -> None:
    b = Builder()
    x, p, q = (Value(tensor_type("f4", (4, 6))) for _ in range(3))
    b.assign(p, b.call("add", p, x))
    b.assign(q, x)
    y = b.reshape(b.call("exp", x), (24,))
    program = check(Graph("g", (x,), (p, q), (), tuple(b.nodes), (y,)))
    assert sorted(names(program)) == ["move", "nest", "nest"]


def test_what_has_no_kernel_is_left_to_python() -> None:
    b = Builder()
    x, i, c = Value(tensor_type("f4", (4, 6))), Value(tensor_type("i4", (6, 4))), Value(tensor_type("c8", (4,)))
    (y,) = b.fresh(Op("user", lambda attrs, a: (a + 1,), Trait.OPAQUE), (x,), (x.tensor,))
    outputs = (y, b.matmul(i, i, transa=True), b.call("multiply", c, c), b.call("negative", x))
    program = check(verify(Graph("g", (x, i, c), (), (), tuple(b.nodes), outputs)))
    assert sorted(names(program)) == ["nest", "python map", "python matmul", "python user"]


def test_equal_layers_share_kernels() -> None:
    def build(b: Builder, x: Value, w: Value, v: Value) -> Value:
        for weight in (w, v, w):
            x = softmax(b, b.matmul(x, weight))
        return x
    program = check(body(build, ("f4", (5, 8)), ("f4", (8, 8)), ("f4", (8, 8))))
    assert names(program) == ["gemm", "nest"] * 3
    assert len(program.kernels) == 2


def test_texts_do_not_depend_on_the_run() -> None:
    texts = [[k.text for k in check(body(cross_entropy, ("f4", (6, 10)), ("i4", (6,)))).kernels] for _ in range(2)]
    assert texts[0] == texts[1]


def test_an_unknown_language() -> None:
    with pytest.raises(ValueError, match="'fortran'"):
        generate(plan(body(softmax, ("f4", (2, 3)))), AVX512, "fortran")  # type: ignore[arg-type]


@pytest.mark.parametrize("target", (AVX512, AVX2, SSE, NEON, GENERIC), ids=lambda t: t.name)
def test_foreach(target: Target) -> None:
    shapes = [(3, 4), (4,), (7,), (100, 3), (16,), (33,), (1,), (64,), (0,), (129,)]
    scaled = Call("multiply", (Arg(0), Call("add", (Arg(1), Lit(1.0)))))
    exprs = (Call("subtract", (Arg(2), scaled)), Call("exp", (Arg(1),)))
    inputs = [Value(tensor_type("f4", ()))] + [Value(tensor_type("f4", s)) for s in shapes for _ in range(2)]
    outputs = [Value(tensor_type("f4", s)) for s in shapes for _ in range(2)]
    attrs = {"exprs": exprs, "shared": 1, "arity": 2}
    node = Node(PRIMITIVES["foreach"], tuple(inputs), tuple(outputs), attrs)
    arrays = arrays_for(inputs)
    want = node.op.call(attrs, *arrays)
    kernel = foreach_kernel(node, target)
    for threads in (1, 2, 5):
        got = [np.full(v.shape, 77, "f4") for v in outputs]
        call(kernel, [*arrays, *got], threads)
        for x, y in zip(got, want, strict=True):
            np.testing.assert_allclose(x, y, rtol=1e-5)
        copies = [a.copy() for a in arrays]
        for x, y in zip(copies[1:], want, strict=True):  # every output in the place of an operand of its group
            assert x.shape == y.shape
        call(kernel, [*copies, *copies[1:]], threads)
        for x, y in zip(copies[1:], want, strict=True):
            np.testing.assert_allclose(x, y, rtol=1e-5)


@given(graph=graphs(max_nodes=14, dtype="float32"), threads=st.sampled_from((1, 2)))
def test_random_programs(graph: Graph, threads: int) -> None:
    check(graph, threads=threads, rtol=2e-3)
