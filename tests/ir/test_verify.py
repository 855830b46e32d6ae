"""The checker finds every kind of fault and points at the node."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from graphs import graphs
from hypothesis import given

from kusari.ir import PRIMITIVES, Builder, Graph, Node, Op, Value, VerifyError, interpret, tensor_type, verify

F = tensor_type("float32", (3,))


def good() -> Graph:
    b = Builder("model.py:8")
    x, w = Value(F, "x"), Value(F, "w")
    y = b.call("exp", x)
    b.assign(w, y)
    return Graph("g", (x,), (w,), (), tuple(b.nodes), (y,))


def test_a_good_graph_passes() -> None:
    graph = good()
    assert verify(graph) is graph


def bad_graphs() -> dict[str, Graph]:
    g = good()
    x, w, (exp, assign), y = g.inputs[0], g.params[0], g.nodes, g.outputs[0]
    other = Value(F, "other")
    fails = Op("fails", lambda attrs, v: (v,), types=lambda attrs, t: 1 / 0)
    return {
        "is listed twice": replace(g, params=(w, x)),
        "is used before it is defined": replace(g, nodes=(assign, exp)),
        "is defined twice": replace(g, nodes=(exp, exp, assign)),
        "output <other: f32\\[3\\]> is not defined": replace(g, outputs=(other,)),
        "writes to a value that is not a param": replace(
            g, nodes=(exp, Node(PRIMITIVES["assign"], (y, x), (), {}, "model.py:8"))),
        "map gives .*f32\\[3\\].*its outputs say .*f64": replace(
            g, nodes=(replace(exp, outputs=(Value(tensor_type("float64", (3,))),)),), outputs=()),
        "the type rule of fails fails: division by zero": replace(g, nodes=(exp, Node(fails, (x,), (other,)), assign)),
        "holds an array of float64\\[3\\]": replace(g, consts=((other, np.zeros(3)),)),
        "holds an array of float32\\[4\\]": replace(g, consts=((other, np.zeros(4, "f")),)),
    }


@pytest.mark.parametrize("message", bad_graphs())
def test_faults_are_found(message: str) -> None:
    with pytest.raises(VerifyError, match=message) as info:
        verify(bad_graphs()[message], ("lower", "fuse"))
    assert "after the passes: lower, fuse" in str(info.value)
    assert "graph g(" in str(info.value)


def test_the_node_is_marked() -> None:
    g = bad_graphs()["is used before it is defined"]
    with pytest.raises(VerifyError) as info:
        verify(g)
    (line,) = [line for line in str(info.value).splitlines() if line.startswith("-->")]
    assert "assign" in line and "model.py:8" in line


@given(graph=graphs())
def test_random_graphs_pass(graph: Graph) -> None:
    verify(graph)


def test_interpret_wants_the_right_number_of_arrays() -> None:
    with pytest.raises(ValueError, match="g takes 1 inputs and 1 params, got 2 and 0"):
        interpret(good(), [1, 2])


def test_interpret_writes_to_params() -> None:
    w = np.zeros(3, "f")
    (y,) = interpret(good(), [np.ones(3, "f")], [w])
    np.testing.assert_array_equal(w, y)
    np.testing.assert_allclose(y, np.e, rtol=1e-6)


def test_interpret_forgets_what_is_not_needed_any_more() -> None:
    import weakref
    alive: list[weakref.ref[np.ndarray]] = []
    most = [0]

    def call(attrs: object, x: np.ndarray) -> tuple[np.ndarray]:
        y = x + 1
        alive.append(weakref.ref(y))
        most[0] = max(most[0], sum(r() is not None for r in alive))
        return (y,)

    op = Op("step", call, types=lambda attrs, t: (t,))
    b = Builder()
    x = v = Value(F, "x")
    for _ in range(10):
        (v,) = b.emit(op, v)
    interpret(Graph("g", (x,), (), (), tuple(b.nodes), (v,)), [np.zeros(3, "f")])
    assert most[0] <= 3
