"""Recomputation keeps the meaning of a graph, never draws twice, and takes less memory where that can be."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from graphs import assert_same, graphs
from hypothesis import given
from hypothesis import strategies as st

from kusari.ir import PRIMITIVES, Arg, Builder, Call, Graph, Node, Op, Trait, Value, tensor_type, verify
from kusari.passes import check_plan, plan, search
from kusari.passes.cut import Cut
from kusari.passes.recompute import alternatives, fullest
from kusari.passes.tidy import remove_dead
from kusari.passes.update_early import update_early, update_in_parts


def effects(graph: Graph) -> list[str]:
    return [n.op.name for n in graph.nodes if n.op.traits & (Trait.WRITES | Trait.RANDOM | Trait.OPAQUE)]


@given(graph=graphs(max_nodes=20), where=st.floats(0, 1), data=st.data())
def test_any_cut_and_any_choice_keep_the_meaning(graph: Graph, where: float, data: Any) -> None:
    cut = round(where * len(graph.nodes))
    made = [v for n in graph.nodes[:cut] for v in n.outputs]
    kept = data.draw(st.lists(st.sampled_from(made), max_size=4)) if made else []
    for way in (Cut(graph, cut).attempt(kept), *alternatives(Cut(graph, cut), 8)):
        verify(way.graph)
        assert_same(graph, way.graph, rtol=0)
        assert effects(way.graph) == effects(graph)
        assert way.graph.nodes[:cut] == graph.nodes[:cut]
        check_plan(plan(remove_dead(way.graph), copy_in_below=100))
        read = {v for n in way.graph.nodes[cut:] for v in n.inputs}
        assert read.intersection(made) <= set(way.kept)


def layers(depth: int, random: bool = False, width: int = 32) -> tuple[Graph, int]:
    """A chain of products and squares, then what a backward of it reads, last first."""
    b = Builder()
    x = Value(tensor_type(np.float32, (64, width)), "x")
    weights = [Value(tensor_type(np.float32, (width, width)), f"w{i}") for i in range(depth)]
    h, activations = x, []
    for w in weights:
        h = b.call("square", b.matmul(h, w))
        if random:
            mask = b.random("random_sample", (), (64, width), "float64")
            h = b.call("multiply", h, b.cast(mask, "float32"))
        activations.append(h)
    cut = len(b.nodes)
    g = h
    for h, w in zip(reversed(activations), reversed(weights), strict=True):
        g = b.call("multiply", b.matmul(g, w), h)
    return Graph("layers", (x,), tuple(weights), (), tuple(b.nodes), (g,)), cut


def size(way: Any) -> int:
    return plan(remove_dead(way.graph)).arena_size


def bytes_of(graph: Graph) -> int:
    return plan(graph).arena_size


@pytest.mark.parametrize(("depth", "most"), [(4, 1.0), (16, 0.7), (64, 0.4)])
def test_low_grows_with_the_root_of_the_depth(depth: int, most: float) -> None:
    graph, cut = layers(depth)
    now = plan(graph).arena_size
    way, found = search(graph, "low", now, size, cut)
    assert found <= most * now
    assert (way.clones == 0) == (found == now)
    if way.clones:
        products = sum(n.op.name == "matmul" for n in way.graph.nodes)
        assert products < 3 * depth  # at most one forward more


def test_balanced_repeats_no_product() -> None:
    graph, cut = layers(8)
    way, _ = search(graph, "balanced", plan(graph).arena_size, size, cut)
    assert sum(n.op.name == "matmul" for n in way.graph.nodes) == 16


@pytest.mark.slow
def test_a_limit_takes_the_cheapest_way_within() -> None:
    graph, cut = layers(64)
    now = plan(graph).arena_size
    whole, unchanged = search(graph, float(now), now, size, cut)
    assert (whole.graph, whole.clones, unchanged) == (graph, 0, now)
    low, least = search(graph, "low", now, size, cut)
    half, found = search(graph, now * 0.6, now, size, cut)
    assert least <= found <= now * 0.6
    assert half.picoseconds <= low.picoseconds
    assert search(graph, 1.0, now, size, cut)[1] == least  # nothing is that small


@pytest.mark.slow
@pytest.mark.parametrize("part", [0.95, 0.9, 0.75, 0.6, 0.5, 0.4, 0.3])
def test_a_limit_costs_what_it_has_to(part: float) -> None:
    """Of a chain of 64 layers about as many are done again as do not fit, and an eighth more."""
    graph, _ = layers(64)
    now = plan(graph).arena_size
    found, nbytes = search(graph, part * now, now, size)
    assert nbytes == bytes_of(found.graph) <= part * now
    more = len(found.graph.nodes) - len(graph.nodes)  # without squares that other kernels take in
    assert more / 2 <= (1 - part) * 64 + 9            # a product and a square each
    verify(found.graph)


@given(graph=graphs(max_nodes=20), memory=st.sampled_from(["balanced", "low", 0.5]))
def test_steps_that_are_cut_again_keep_the_meaning(graph: Graph, memory: Any) -> None:
    now = bytes_of(graph)
    found, nbytes = search(graph, memory if isinstance(memory, str) else memory * now, now, size)
    verify(found.graph)
    assert_same(graph, found.graph, rtol=0)
    assert effects(found.graph) == effects(graph)
    assert nbytes == bytes_of(found.graph) if found.clones else nbytes == now
    assert nbytes <= now


def test_a_step_is_cut_until_that_does_not_help() -> None:
    """Two chains one after the other, each with a backward of its own: one cut is not enough."""
    b = Builder()
    x = g = Value(tensor_type(np.float32, (64, 64)), "x")
    w = Value(tensor_type(np.float32, (64, 64)), "w")
    for depth in (30, 10):
        h, activations = g, []
        for _ in range(depth):
            h = b.call("square", b.matmul(h, w))
            activations.append(h)
        g = h
        for h in reversed(activations):
            g = b.call("multiply", b.matmul(g, w), h)
    graph = Graph("twice", (x,), (w,), (), tuple(b.nodes), (g,))
    now = bytes_of(graph)
    way, once = search(graph, "low", now, size, fullest(graph))
    assert way.clones and once < 0.5 * now
    assert search(graph, "low", now, size)[1] < 0.95 * once


def test_draws_are_not_repeated() -> None:
    graph, cut = layers(6, random=True)
    for way in alternatives(Cut(graph, cut), 8):
        assert effects(way.graph) == effects(graph)


def test_what_was_written_since_is_not_read_again() -> None:
    b = Builder()
    x, state = (Value(tensor_type(np.float32, (64, 64)), name) for name in ("x", "state"))
    y = b.call("multiply", x, state)
    z = b.call("square", y)
    b.assign(state, z)
    cut = len(b.nodes)
    out = b.call("add", b.call("tanh", y), state)
    graph = Graph("state", (x,), (state,), (), tuple(b.nodes), (out,))
    assert y in Cut(graph, cut).attempt(()).kept
    assert_same(graph, Cut(graph, cut).attempt(()).graph, rtol=0)


def test_a_view_of_a_param_that_is_written_since_stays() -> None:
    b = Builder()
    x, state = (Value(tensor_type(np.float32, (4, 2)), name) for name in ("x", "state"))
    view = b.reshape(state, (2, 4))
    b.assign(state, x)
    cut = len(b.nodes)
    out = b.call("square", view)
    graph = Graph("view", (x,), (state,), (), tuple(b.nodes), (out,))
    assert view in Cut(graph, cut).attempt(()).kept
    assert_same(graph, Cut(graph, cut).attempt(()).graph, rtol=0)


def test_the_fullest_position_is_the_turn() -> None:
    graph, cut = layers(16)
    assert abs(fullest(graph) - cut) <= 2


def test_updates_come_when_nobody_needs_the_state_any_more() -> None:
    b = Builder()
    x, *weights = (Value(tensor_type(np.float32, (2 if name == "x" else 16, 16)), name) for name in "xuvw")
    h = [x]
    for w in weights:
        h.append(b.matmul(h[-1], w))
    g, grads = h[-1], []
    for w, before in zip(reversed(weights), reversed(h[:-1]), strict=True):
        grads.append(b.matmul(before, g, transa=True))
        g = b.matmul(g, w, transb=True)
    operands = [v for w, grad in zip(reversed(weights), grads, strict=True) for v in (w, grad)]
    new = b.emit(PRIMITIVES["foreach"], *operands, exprs=(Call("subtract", (Arg(0), Arg(1))),), shared=0, arity=2)
    for w, value in zip(reversed(weights), new, strict=True):
        b.assign(w, value)
    graph = Graph("step", (x,), tuple(weights), (), tuple(b.nodes), (g,))
    early = update_early(graph)
    verify(early)
    assert_same(graph, early, rtol=0)
    names = [n.op.name for n in early.nodes]
    assert names == ["matmul"] * 3 + ["matmul", "matmul", "foreach", "assign"] * 3
    assert bytes_of(early) < bytes_of(graph)
    assert [n.op.name for n in update_early(early).nodes] == names


@pytest.mark.parametrize(("traits", "names"), [
    (Trait.OPAQUE, ["bring", "bring", "foreach", "assign", "assign", "assign"]),
    (Trait.OPAQUE | Trait.CONFINED, ["bring", "foreach", "assign", "assign", "bring", "foreach", "assign"])])
def test_updates_go_before_python_that_reads_no_state(traits: Trait, names: list[str]) -> None:
    b = Builder()
    weights = [Value(tensor_type(np.float32, (3,)), name) for name in "uvw"]
    bring = Op("bring", lambda attrs: tuple(np.full(3, x, np.float32) for x in attrs["values"]), traits)
    grads = [Value(w.type, "grad") for w in weights]
    nodes = [Node(bring, (), tuple(grads[:2]), {"values": (1, 2)}), Node(bring, (), tuple(grads[2:]), {"values": (3,)})]
    operands = [v for pair in zip(weights, grads, strict=True) for v in pair]
    new = b.emit(PRIMITIVES["foreach"], *operands, exprs=(Call("subtract", (Arg(0), Arg(1))),), shared=0, arity=2)
    for w, value in zip(weights, new, strict=True):
        b.assign(w, value)
    graph = Graph("step", (), tuple(weights), (), (*nodes, *b.nodes), ())
    found = update_in_parts(graph)
    verify(found)
    assert_same(graph, found, rtol=0)
    assert [n.op.name for n in found.nodes] == names
