"""Scratch lies where nothing is: whatever the values' lives, a kernel that fills its scratch destroys none of them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from graphs import graphs
from hypothesis import given
from hypothesis import strategies as st

from kusari.ir import Arena, Builder, External, Graph, Plan, Slot, Value, tensor_type
from kusari.passes import plan
from kusari.runtime import scratch


def simulate(made: Plan, slots: dict[Any, Slot], needs: dict[Any, int], end: int) -> None:
    """Run the plan on numbers that stand for values: what is read must be what was written last."""
    graph, roots = made.graph, made.graph.roots()
    memory = np.zeros(end, np.int64)
    outputs = {i: np.zeros(v.tensor.nbytes, np.int64) for i, v in enumerate(made.externals)}
    number = {v: i + 1 for i, v in enumerate(roots)}

    def at(v: Value) -> np.ndarray[Any, Any]:
        slot = made.slots[v]
        where = memory if isinstance(slot, Arena) else outputs[slot.index]
        start = slot.offset
        return where[start:start + v.tensor.nbytes]

    def check(v: Value) -> None:
        assert (at(v) == number[roots[v]]).all(), f"{v!r} is gone"

    for v in graph.sources():
        at(v)[...] = number[v]
    for node in graph.nodes:
        reads = node.inputs[1:] if node.op.name == "assign" else node.inputs
        for v in reads:
            check(v)
        if node in slots:
            slot, size = slots[node], needs[node]
            if isinstance(slot, Arena):
                assert slot.offset % 64 == 0 and slot.offset + size <= end
                memory[slot.offset:slot.offset + size] = -1
            else:
                assert size + 64 <= outputs[slot.index].size
                outputs[slot.index][:] = -1
        for v in reads:
            check(v)
        if node.op.name == "assign":
            state, new = (roots[v] for v in node.inputs)
            number[state] = number[new]
            at(state)[...] = number[state]
        for v in node.outputs:
            if roots[v] is v:
                at(v)[...] = number[v]
                for u in made.in_place(node):  # parts of what is joined
                    number[roots[u]] = number[v]
        if node in slots and isinstance(slots[node], Arena):  # rows of one node find there what others left
            slot, size = slots[node], needs[node]
            for v in node.outputs:
                if isinstance(there := made.slots[v], Arena):
                    assert there.offset >= slot.offset + size or there.offset + v.tensor.nbytes <= slot.offset
    for v in graph.outputs:
        check(v)


@given(graphs(), st.data())
def test_nothing_that_lives_is_overwritten(graph: Graph, data: st.DataObject) -> None:
    before, scratch.LEAST_SEPARATE_BYTES = scratch.LEAST_SEPARATE_BYTES, data.draw(st.sampled_from([0, 64, 300]))
    try:
        small = data.draw(st.sampled_from([0, 64]))
        made = plan(graph, copy_in_below=small, copy_out_below=small)
        nodes = [n for n in graph.nodes if not n.op.is_view]
        needs = {n: data.draw(st.integers(1, 700), label="bytes") for n in nodes if data.draw(st.booleans())}
        slots, end = scratch.plan_scratch(made, needs, len(list(graph.sources())))
    finally:
        scratch.LEAST_SEPARATE_BYTES = before
    assert set(slots) == set(needs) and made.arena_size <= end <= made.arena_size + 64 + max(needs.values(), default=0)
    simulate(made, slots, needs, end)


def test_a_gradient_that_is_not_made_yet_holds_scratch() -> None:
    """The first node has the array of the last one's result, the last one the dead value in between."""
    b, kind = Builder(), tensor_type("float32", (1 << 16,))
    x = Value(kind, "x")
    y = b.call("exp", x)
    z = b.call("exp", b.call("add", y, y))
    out = b.call("exp", b.call("add", z, x))
    graph = Graph("g", (x,), (), (), tuple(b.nodes), (out,))
    made = plan(graph)
    size = kind.nbytes - 64
    slots, end = scratch.plan_scratch(made, {n: size for n in graph.nodes}, 1)
    assert slots[graph.nodes[0]] == External(1)
    assert not isinstance(slots[graph.nodes[-1]], External) and end <= made.arena_size + size
    simulate(made, slots, {n: size for n in graph.nodes}, end)


@pytest.mark.parametrize(("need", "more"), [(0, 0), (1, 1), (1 << 16, 1 << 16)])
def test_a_little_is_not_worth_a_search(monkeypatch: pytest.MonkeyPatch, need: int, more: int) -> None:
    monkeypatch.delattr(scratch, "_Free")
    b, x = Builder(), Value(tensor_type("float32", (64,)), "x")
    y = b.call("exp", b.call("exp", x))
    made = plan(Graph("g", (x,), (), (), tuple(b.nodes), (y,)))
    assert scratch.plan_scratch(made, {b.nodes[0]: need}, 1)[1] == made.arena_size + more
