"""What a forward keeps for its backward, and cheapest cuts."""
from __future__ import annotations

import itertools
import random
from typing import Any

import numpy as np
import pytest

import kusari
import kusari.functions as F
from kusari.ir import Builder, Graph, Value, interpret, tensor_type
from kusari.passes import choose_kept
from kusari.passes.min_cut import INFINITE, Network

N = 1 << 20


def value(*shape: int) -> Value:
    return Value(tensor_type(np.float32, shape))


def forward(build: Any, params: int = 0) -> tuple[Graph, dict[str, Value]]:
    """A graph that begins with a value ``x`` that is there anyway, as an output, but is no input."""
    given = value(1, N)
    ps = [value(N) for _ in range(params)]
    b = Builder()
    x = b.reshape(b.reduce("sum", given, (0,)), (N,))
    named: dict[str, Value] = build(b, x, *ps)
    return Graph("f", (given,), tuple(ps), (), tuple(b.nodes), (named["out"], x)), {"x": x, **named}


def backward_of(*values: Value, fn: str = "multiply") -> tuple[Any, ...]:
    b = Builder()
    y = values[0]
    for v in values:
        y = b.call(fn, y, v)
    return tuple(b.nodes)


def names(named: dict[str, Value], values: Any) -> set[str]:
    return {k for k, v in named.items() if v in values}


def chain(b: Builder, x: Value) -> dict[str, Value]:
    scaled = b.call("multiply", x, 2.0)
    t = b.call("tanh", scaled)
    one = b.call("add", t, 1.0)
    out = b.reduce("sum", b.call("multiply", one, scaled), (0,))
    return {"scaled": scaled, "t": t, "one": one, "out": out}


def test_cheap_values_are_computed_again_and_expensive_ones_are_kept() -> None:
    graph, named = forward(chain)
    kept = choose_kept(graph, backward_of(named["scaled"], named["t"], named["one"]), ())
    assert names(named, kept.saved) == {"t", "x"}
    assert names(named, {v for n in kept.again for v in n.outputs}) == {"scaled", "one"}
    assert not kept.copies


def test_what_runs_again_gives_the_same_values() -> None:
    graph, named = forward(chain)
    wanted = [named["scaled"], named["t"], named["one"]]
    kept = choose_kept(graph, backward_of(*wanted), ())
    x = np.random.default_rng(0).normal(size=(1, N)).astype("f")
    (*saved, scaled, t, one) = interpret(
        Graph("f", graph.inputs, (), (), graph.nodes, (*kept.saved, *wanted)), (x,))
    again = interpret(Graph("b", (*kept.saved, *graph.inputs), (), (), kept.again, tuple(wanted)), (*saved, x))
    for a, b in zip(again, (scaled, t, one), strict=True):
        np.testing.assert_array_equal(a, b)


def two_costly(b: Builder, x: Value) -> dict[str, Value]:
    e, s = b.call("exp", x), b.call("tanh", x)
    both = b.call("add", e, s)
    return {"e": e, "s": s, "both": both, "out": b.reduce("sum", both, (0,))}


@pytest.mark.parametrize(("reads", "saved"), [
    (("both",), {"both"}),                  # one instead of the two it comes from
    (("both", "e", "s"), {"e", "s"}),
    (("e",), {"e"}),
])
def test_the_cheapest_cut(reads: tuple[str, ...], saved: set[str]) -> None:
    graph, named = forward(two_costly)
    assert names(named, choose_kept(graph, backward_of(*(named[r] for r in reads)), ()).saved) == saved


def long(b: Builder, x: Value) -> dict[str, Value]:
    y = b.call("multiply", x, 2.0)
    return {"y": y, "out": b.reduce("sum", y, (0,))}


def test_results_and_what_is_compared_are_kept() -> None:
    graph, named = forward(long)
    x, y = named["x"], named["y"]
    assert choose_kept(graph, backward_of(y), ()).saved == (x,)
    assert choose_kept(graph, backward_of(y), (y,)).saved == (y,)
    assert choose_kept(graph, backward_of(y, fn="equal"), ()).saved == (y,)


def test_what_a_product_reads_is_kept() -> None:
    x = value(1024, 1024)
    b = Builder()
    y = b.call("multiply", x, 2.0)
    graph = Graph("f", (x,), (), (), (*b.nodes,), (y,))
    c = Builder()
    c.matmul(y, y)
    assert choose_kept(graph, c.nodes, ()).saved == (y,)


def test_params_are_kept_as_they_were() -> None:
    graph, named = forward(lambda b, x, p: long(b, b.call("multiply", b.call("add", x, p), x)), params=1)
    (p,) = graph.params
    small = Graph("f", graph.inputs, (p,), (), graph.nodes, graph.outputs)
    kept = choose_kept(small, backward_of(named["y"]), ())
    assert names(named, kept.saved) == {"y"}  # a copy of a large param would cost as much
    q = Value(tensor_type(np.float32, (1024,)))
    b = Builder()
    x = b.reduce("sum", value(1024, 1024, 1), (2,))
    x = b.reshape(x, (1024, 1024))
    y = b.call("multiply", x, q)
    graph = Graph("f", (b.nodes[0].inputs[0],), (q,), (), tuple(b.nodes), (b.reduce("sum", y, (1,)), x))
    kept = choose_kept(graph, backward_of(y), ())
    (copy,) = kept.copies
    assert set(kept.saved) == {copy.output, x} and copy.inputs == (q,)
    assert kept.again[0].inputs == (x, copy.output)


def test_inputs_are_kept_as_they_were() -> None:
    """Whose they are may change them before the backward."""
    x, row = value(1024, 1024), value(1, 1024)
    b = Builder()
    y = b.call("add", b.call("multiply", x, 2.0), row)
    kept = choose_kept(Graph("f", (x, row), (), (), tuple(b.nodes), ()), backward_of(y), ())
    assert kept.saved == (y,) and not kept.again


def test_small_tensors_are_not_worth_it() -> None:
    x = value(100, 10)
    b = Builder()
    y = b.call("multiply", x, 2.0)
    graph = Graph("f", (x,), (), (), (*b.nodes,), ())
    kept = choose_kept(graph, backward_of(y), ())
    assert kept.saved == (y,) and not kept.again


@pytest.mark.parametrize("seed", range(30))
def test_cuts_are_cheapest(seed: int) -> None:
    rng = random.Random(seed)
    n = rng.randint(3, 7)
    edges = [(rng.randrange(n), rng.randrange(n), rng.choice((1, 2, 3, 5, INFINITE))) for _ in range(2 * n)]
    edges = [(a, b, c) for a, b, c in edges if a != b and not (a == 0 and b == 1 and c == INFINITE)]
    network = Network()
    for _ in range(n - 2):
        network.vertex()
    for e in edges:
        network.edge(*e)

    def cost(near: Any) -> int:
        return sum(c for a, b, c in edges if near[a] and not near[b])
    best = min(cost((True, False, *rest)) for rest in itertools.product((False, True), repeat=n - 2))
    if best < INFINITE:
        near = network.near_source()
        assert near[0] and not near[1] and cost(near) == best


# -- in schedules ------------------------------------------------------------------------------------------------------

class Model(kusari.Chain):
    def __init__(self) -> None:
        super().__init__()
        with self.init_scope():
            self.gamma = kusari.Parameter(np.linspace(.5, 1.5, 512, dtype="f"))

    def forward(self, x: Any) -> Any:
        h = F.tanh(x * x * .5) * self.gamma
        return F.sum(h * F.sigmoid(h + 1))


class Static(Model):
    @kusari.static_graph
    def forward(self, x: Any) -> Any:
        return super().forward(x)


def test_an_update_between_forward_and_backward_does_not_change_gradients() -> None:
    grads: list[list[np.ndarray]] = []
    for model in (Model(), Static()):
        found: list[np.ndarray] = []
        for i in range(4):
            x = kusari.Variable(np.random.default_rng(i).normal(size=(512, 512)).astype("f"))
            model.cleargrads()
            y = model(x)
            model.gamma.array *= 1.25
            y.backward()
            found += [x.grad, model.gamma.grad]
        grads.append(found)
    for a, b in zip(*grads, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-5 * np.abs(a).max())


def test_a_schedule_keeps_less() -> None:
    model = Static()
    x = kusari.Variable(np.ones((512, 512), "f"))
    for _ in range(2):
        model(x).backward()
    (schedule,) = [e for f in kusari.static.static_functions() for _, e in f.signatures(model)]
    large = [v for v in schedule.saved if v.tensor.nbytes >= x.array.nbytes]
    assert len(large) == 2 and schedule.kept.again  # of tanh and of the sigmoid


