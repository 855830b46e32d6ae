"""Random graphs through everything: passes, plan, code generation, loading, running; several times, with new data."""

from __future__ import annotations

import numpy as np
import pytest
from graphs import arrays_for, graphs
from hypothesis import given
from hypothesis import strategies as st

from kusari.codegen import generate
from kusari.codegen.target import TARGETS
from kusari.ir import Arg, Builder, Call, Expr, Graph, Lit, Value, interpret, tensor_type
from kusari.passes import check_plan, plan, run_pipeline
from kusari.runtime import Executable, host

TARGET = TARGETS["avx512" if host().vector_bytes == 64 else "avx2" if host().has("fma") else
                 "neon" if host().has("neon") else "generic"]


def check(graph: Graph, limit: int, threads: int) -> None:
    final = run_pipeline(graph)
    planned = check_plan(plan(final, copy_in_below=limit, copy_out_below=limit))
    exe = Executable(planned, generate(planned, TARGET), threads)
    frame = exe.acquire()
    for seed in (0, 7, 14):
        inputs, params = arrays_for(graph.inputs, seed), arrays_for(graph.params, seed + 1)
        own = [p.copy() for p in params]
        want = [np.array(y) for y in interpret(graph, inputs, params)]
        frame.bind_all([*inputs, *own])
        frame.fresh_outputs()
        frame.run()
        for a, b in zip((*want, *params), (*frame.outputs(), *own), strict=True):
            np.testing.assert_allclose(b, a, rtol=tolerance(graph), atol=tolerance(graph))


def tolerance(graph: Graph) -> float:
    return 1e-4 if any(v.tensor.dtype == np.float32 for v in graph.inputs) else 1e-9


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_compiled_equals_interpreted(dtype: str) -> None:
    @given(graphs(max_nodes=14, dtype=dtype), st.sampled_from((0, 10**6)), st.integers(1, 3))
    def run(graph: Graph, limit: int, threads: int) -> None:
        check(graph, limit, threads)

    run()


@pytest.mark.parametrize("literal", [0, 1, 0.0, True])
def test_a_literal_is_not_taken_for_a_step(literal: float) -> None:
    """``maximum(x, 0)`` and ``maximum(x, x)`` are different kernels, in one process and on one disk."""
    for operands in ((Arg(0), Lit(literal)), (Arg(0), Arg(0)), (Lit(literal), Arg(0))):
        x = Value(tensor_type("float32", (3, 5)))
        b = Builder()
        y = b.map(Call("maximum", operands), x)
        check(Graph("g", (x,), (), (), tuple(b.nodes), (y,)), 0, 1)


@pytest.mark.parametrize("expr", [Lit(2.5), Call("where", (Call("less", (Arg(0), Lit(0))), Lit(2), Lit(2)))], ids=str)
def test_a_map_that_depends_on_no_operand(expr: Expr) -> None:
    x = Value(tensor_type("float32", (3, 5)))
    b = Builder()
    y = b.map(expr, x)
    outputs = y, b.reduce("sum", y, 1)
    check(Graph("g", (x,), (), (), tuple(b.nodes), outputs), 0, 1)
