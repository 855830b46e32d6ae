"""Rows that run side by side give what they give one after the other, and threads wait where they have to."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kusari.codegen import generate
from kusari.ir import Arena, Builder, Graph, Instruction, Value, interpret, tensor_type
from kusari.passes import plan, run_pipeline
from kusari.runtime import Executable
from kusari.runtime.concurrency import NO_BARRIER, access, launch_flags, stages_of
from kusari.runtime.frame import Segment
from kusari.static.compile.target import host_target


@st.composite
def chains(draw: st.DrawFn) -> Graph:
    """Some chains of products and functions of one or more sizes, which meet now and then."""
    b = Builder()
    sizes = draw(st.lists(st.sampled_from([3, 16, 40]), min_size=1, max_size=2, unique=True))
    weights = {n: [Value(tensor_type("float32", (n, n))) for _ in range(2)] for n in sizes}
    ends = {n: [Value(tensor_type("float32", (n, n))) for _ in range(draw(st.integers(2, 5)))] for n in sizes}
    inputs = [v for n in sizes for v in (*ends[n], *weights[n])]
    for _ in range(draw(st.integers(4, 24))):
        own = ends[draw(st.sampled_from(sizes))]
        i, j = draw(st.integers(0, len(own) - 1)), draw(st.integers(0, len(own) - 1))
        kind = draw(st.sampled_from(("product", "tanh", "add", "transpose")))
        if kind == "product":
            own[i] = b.call("tanh", b.matmul(own[i], draw(st.sampled_from(weights[own[i].shape[0]]))))
        elif kind == "add":
            own[i] = b.call("add", own[i], own[j])
        else:
            own[i] = b.transpose(own[i]) if kind == "transpose" else b.call("tanh", own[i])
    outputs = dict.fromkeys(v for own in ends.values() for v in own if v not in inputs)
    return Graph("chains", tuple(inputs), (), (), tuple(b.nodes), tuple(outputs))


@pytest.mark.parametrize("threads", [pytest.param(2, marks=pytest.mark.slow), 3])
@settings(max_examples=20, deadline=None)
@given(graph=chains())
def test_same_bits_with_any_number_of_threads(threads: int, graph: Graph) -> None:
    if not graph.outputs:
        return
    final = run_pipeline(graph)
    made = plan(final)
    program = generate(made, host_target())
    arrays = [np.random.RandomState(i).uniform(-1, 1, v.shape).astype(np.float32) for i, v in enumerate(graph.inputs)]

    def results(n: int) -> list[np.ndarray]:
        frame = Executable(made, program, n).acquire()
        frame.bind_all(arrays)
        frame.fresh_outputs()
        for _ in range(3):
            frame.run()
        return [np.array(y) for y in frame.outputs()]
    alone = results(1)
    for y, same, near in zip(results(threads), alone, interpret(graph, arrays), strict=True):
        np.testing.assert_array_equal(y, same)
        np.testing.assert_allclose(y, near, rtol=1e-4, atol=1e-4)


@given(graph=chains(), threads=st.integers(2, 4))
def test_threads_wait_for_each_other_where_they_have_to(graph: Graph, threads: int) -> None:
    """Whatever two rows between which nobody waits have in common is one thread's, or only read."""
    final = run_pipeline(graph)
    made = plan(final)
    instructions = [Instruction(None, (*n.inputs, *n.outputs), n) for n in final.nodes if not n.op.is_view]
    given_ = len(final.inputs)
    scratch = {i: (Arena(made.arena_size), 0, 64) for i in range(0, len(instructions), 5)}
    steps = [Segment(0, len(instructions), threads)]
    flags = launch_flags(instructions, made, given_, stages_of(instructions, made, given_), steps, scratch)
    found = [access(instruction.node, made, given_, scratch.get(i)) for i, instruction in enumerate(instructions)]
    ends = [-1, *(i for i, h in enumerate(flags) if not h & NO_BARRIER or i == len(flags) - 1)]
    for before, last in pairwise(ends):
        for i in range(before + 1, last + 1):
            for j in range(i):
                if j > before and found[i].meets(found[j], given_):
                    assert flags[i] >> 8 == flags[j] >> 8 > 0
    assert all(0 <= h >> 8 <= threads for h in flags)
