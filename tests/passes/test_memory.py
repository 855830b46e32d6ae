"""Slots: what dies makes room, states are written in place where nobody can tell, the checker sees faults."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import pytest

from kusari.ir import Arena, Builder, External, Graph, Op, Plan, Slot, TokenType, Trait, Value, parse_graph, tensor_type
from kusari.passes import PlanError, check_plan, plan, run_pipeline
from kusari.passes.memory import hoist_random, overwritable

F = tensor_type("float32", (100,))
PRINT = Op("print", lambda attrs, *xs: xs, Trait.OPAQUE)


def chain(n: int) -> tuple[Graph, list[Value]]:
    b = Builder()
    values = [Value(F, "x")]
    for _ in range(n):
        values.append(b.call("exp", values[-1]))
    return Graph("g", (values[0],), (), (), tuple(b.nodes), (values[-1],)), values


def test_a_chain_needs_one_buffer() -> None:
    graph, values = chain(6)
    made = check_plan(plan(graph))
    assert made.arena_size == 448  # 400 bytes, padded to whole cache lines
    assert [made.slots[v] for v in values] == [External(0), *[Arena(0)] * 5, External(1)]
    assert made.describe() == "arena 448 bytes for 2,000 bytes of intermediates"


def test_small_inputs_and_outputs_live_in_the_arena() -> None:
    graph, values = chain(2)
    made = check_plan(plan(graph, copy_in_below=401, copy_out_below=401))
    assert [made.slots[v] for v in values] == [Arena(0), Arena(448), Arena(448)]
    assert made.externals == (values[0],)
    made = check_plan(plan(graph, copy_in_below=400, copy_out_below=400))
    assert [made.slots[v] for v in values] == [External(0), Arena(0), External(1)]


def test_kept_outputs_stay_in_the_arena() -> None:
    graph, values = chain(3)
    graph = graph.with_nodes(graph.nodes, [values[1], values[3]])
    made = check_plan(plan(graph, kept=[values[1]]))
    assert [made.slots[v] for v in values[1:]] == [Arena(0), Arena(448), External(1)]


def test_broadcast_operands_are_not_overwritten() -> None:
    b = Builder()
    x = Value(tensor_type("float32", (4, 4)), "x")
    row = b.call("exp", b.slice(x, (0, 0), (1, 4), (1, 1)))
    y = b.call("add", b.call("exp", x), row)
    z = b.call("exp", y)
    made = check_plan(plan(Graph("g", (x,), (), (), tuple(b.nodes), (z,))))
    assert made.slots[y] != made.slots[row]


def test_views_share_and_keep_alive() -> None:
    b = Builder()
    x = Value(F, "x")
    y = b.call("exp", x)
    view = b.reshape(y, (10, 10))
    b.call("tanh", b.call("tanh", y))
    out = b.reduce("sum", view, 0)
    made = check_plan(plan(Graph("g", (x,), (), (), tuple(b.nodes), (out,))))
    assert made.slots[view] == made.slots[y] == Arena(0)


def test_outputs_that_are_views_own_one_buffer() -> None:
    b = Builder()
    x = Value(F, "x")
    y = b.call("exp", x)
    view = b.reshape(y, (10, 10))
    made = check_plan(plan(Graph("g", (x,), (), (), tuple(b.nodes), (view, y, x))))
    assert made.externals == (x, view)
    assert [made.slots[v] for v in (y, view, x)] == [External(1), External(1), External(0)]


def test_empty_values_and_tokens() -> None:
    b = Builder()
    x = Value(tensor_type("float32", (0, 3)), "x")
    token, y = b.fresh(PRINT, [b.call("exp", x)], [TokenType(), x.type])  # type: ignore[list-item]
    out = b.call("exp", y)
    made = check_plan(plan(Graph("g", (x,), (), (), tuple(b.nodes), (out, token))))
    assert token not in made.slots and made.arena_size == 0


STEP = """graph g(%x: f32[4,4]) params(%w: f32[4,4]) {{
  {}
  return %out
}}"""
SCALE = "%n: f32[4,4] = map(%w, %x) {expr=(a0 - a1)}"

IN_PLACE = {
    "an update of the state by itself": [SCALE, "assign(%w, %n)", "%out: f32[4,4] = map(%x) {expr=exp(a0)}"],
    "a product that does not read the state": [
        "%n: f32[4,4] = matmul(%x, %x) {transa=False, transb=False}", "assign(%w, %n)",
        "%out: f32[4,4] = map(%x) {expr=exp(a0)}"],
    "read after it was written, as its new value": [
        SCALE, "assign(%w, %n)", "%out: f32[4,4] = map(%w, %n) {expr=(a0 + a1)}"],
    "through a view": ["%v: f32[16] = reshape(%x) {shape=(16,)}", "%m: f32[16] = map(%v) {expr=exp(a0)}",
                       "%n: f32[4,4] = reshape(%m) {shape=(4, 4)}", "assign(%w, %n)",
                       "%out: f32[4,4] = map(%x) {expr=exp(a0)}"],
}
COPIED = {
    "the state is read between": [SCALE, "%out: f32[4,4] = map(%w) {expr=exp(a0)}", "assign(%w, %n)"],
    "a view of the state is read between": [
        "%v: f32[16] = reshape(%w) {shape=(16,)}", SCALE, "%out: f32[16] = map(%v) {expr=exp(a0)}", "assign(%w, %n)"],
    "the maker reads the state at other places": [
        "%n: f32[4,4] = matmul(%w, %x) {transa=False, transb=False}", "assign(%w, %n)",
        "%out: f32[4,4] = map(%x) {expr=exp(a0)}"],
    "the new value is an output": [SCALE.replace("%n", "%out"), "assign(%w, %out)"],
    "it is read after the state was written again": [
        SCALE, "assign(%w, %n)", "%m: f32[4,4] = map(%x) {expr=exp(a0)}", "assign(%w, %m)",
        "%out: f32[4,4] = map(%n) {expr=tanh(a0)}"],
    "it is an input": ["assign(%w, %x)", "%out: f32[4,4] = map(%x) {expr=exp(a0)}"],
}


@pytest.mark.parametrize("name", [*IN_PLACE, *COPIED])
def test_states_are_written_in_place_when_nobody_can_tell(name: str) -> None:
    graph = parse_graph(STEP.format("\n  ".join({**IN_PLACE, **COPIED}[name])))
    made = check_plan(plan(graph))
    node = next(n for n in graph.nodes if n.op.name == "assign")
    assert (made.slots[node.inputs[0]] == made.slots[node.inputs[1]]) == (name in IN_PLACE)


def test_opaque_nodes_see_the_state_as_it_is() -> None:
    b = Builder()
    x, w = Value(F, "x"), Value(F, "w")
    n = b.call("subtract", w, x)
    b.fresh(PRINT, [x], [F])  # may look at the parameter by other ways
    b.assign(w, n)
    made = check_plan(plan(Graph("g", (x,), (w,), (), tuple(b.nodes), ())))
    assert made.slots[n] != made.slots[w]


def test_an_optimizer_updates_in_place() -> None:
    """Two states in one fused kernel: both new values go where the old ones are."""
    b = Builder()
    g, p, m = (Value(F, n) for n in "gpm")
    m2 = b.call("add", b.call("multiply", m, 0.9), g)
    p2 = b.call("subtract", p, b.call("multiply", m2, 0.1))
    b.assign(m, m2)
    b.assign(p, p2)
    final = run_pipeline(Graph("g", (g,), (p, m), (), tuple(b.nodes), ()))
    made = check_plan(plan(final))
    assert made.arena_size == 0
    assert all(made.slots[n.inputs[0]] == made.slots[n.inputs[1]] for n in final.nodes if n.op.name == "assign")


def test_groups_of_a_foreach_are_overwritten_each_by_its_own() -> None:
    from kusari.ir import PRIMITIVES, Arg, Call
    b = Builder()
    xs = [Value(F, f"x{i}") for i in range(4)]
    b.emit(PRIMITIVES["foreach"], *xs, shared=0, arity=2, exprs=(Call("add", (Arg(0), Arg(1))),))
    node = b.nodes[0]
    assert overwritable(node, 0) == (0, 1) and overwritable(node, 1) == (2, 3)


def test_draws_come_first() -> None:
    b = Builder()
    x = Value(F, "x")
    y = b.call("exp", x)
    r = [b.random("uniform", (), (100,), "float32") for _ in range(2)]
    b.fresh(PRINT, [y], [F])
    late = b.random("uniform", (), (100,), "float32")
    graph = Graph("g", (x,), (), (), tuple(b.nodes), (*r, late))
    after = hoist_random(graph)
    assert [n.outputs[0] for n in after.nodes[:2]] == r
    assert [n.op.name for n in after.nodes] == ["random", "random", "map", "print", "random"]
    assert hoist_random(after) is after


def test_draws_keep_their_order() -> None:
    """A draw that depends on data stays where it is, and so do those behind it."""
    b = Builder()
    shuffle = Op("shuffle", lambda attrs, x: (np.random.permutation(x),), Trait.RANDOM)
    x = Value(F, "x")
    (y,) = b.fresh(shuffle, [x], [F])
    r = b.random("uniform", (), (100,), "float32")
    graph = Graph("g", (x,), (), (), tuple(b.nodes), (y, r))
    assert hoist_random(graph) is graph


def change(made: Plan, changes: Mapping[Value, Slot], **more: int) -> Plan:
    return replace(made, slots={**made.slots, **changes}, **more)


def test_the_checker_sees_conflicts() -> None:
    b = Builder("m.py:5")
    x = Value(tensor_type("float32", (16, 16)), "x")
    y, z = b.call("exp", x), b.call("tanh", x)
    p = b.matmul(y, z)
    q = b.call("add", p, z)
    graph = Graph("g", (x,), (), (), tuple(b.nodes), (q,))
    made = check_plan(plan(graph))
    for changes, message in (
        ({z: made.slots[y]}, "was overwritten"),
        ({p: made.slots[z]}, "would overwrite"),
        ({p: Arena(1024 * 2 + 64)}, "outside the arena"),
        ({y: Arena(4)}, "not aligned"),
        ({q: External(0)}, None),
        ({z: Arena(512)}, "overwritten"),
    ):
        if message is None:
            check_plan(change(made, changes))  # nothing reads the input any more
            continue
        with pytest.raises(PlanError, match=message):
            check_plan(change(made, changes))


def test_the_checker_sees_values_without_a_slot() -> None:
    graph, values = chain(2)
    made = plan(graph)
    with pytest.raises(PlanError, match="has no slot"):
        check_plan(replace(made, slots={v: s for v, s in made.slots.items() if v is not values[1]}))


def test_plans_are_checked_on_request(monkeypatch: pytest.MonkeyPatch) -> None:
    graph, _ = chain(2)
    called: list[Plan] = []
    monkeypatch.setattr("kusari.passes.memory.check_plan", lambda made, alignment: called.append(made))
    plan(graph)
    monkeypatch.setenv("KUSARI_CHECK", "1")
    made = plan(graph)
    assert called == [made]
