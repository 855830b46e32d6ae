"""Lowering: over and over, until nothing is left that knows how."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from kusari.ir import Builder, Graph, Op, Value, interpret, tensor_type
from kusari.passes import LowerError, lower

F = tensor_type("float32", (4,))


def op(name: str, lowering: Any, call: Any = None) -> Op:
    return Op(name, call or (lambda attrs, *xs: xs), types=lambda attrs, *ts: ts[:1], lower=lowering)


DOUBLE = op("double", lambda b, attrs, x: (b.call("add", x, x),))
QUADRUPLE = op("quadruple", lambda b, attrs, x: b.emit(DOUBLE, *b.emit(DOUBLE, x)))
SAME = op("same", lambda b, attrs, x: (x,))
DECLINES = op("declines", lambda b, attrs, x: None)
WIDER = op("wider", lambda b, attrs, x: (b.call("float64", x),))
FOREVER = op("forever", lambda b, attrs, x: b.emit(FOREVER, x))


def graph_of(*ops: Op) -> Graph:
    x = v = Value(F, "x")
    b = Builder("model.py:9")
    for o in ops:
        (v,) = b.emit(o, v)
    return Graph("g", (x,), (), (), tuple(b.nodes), (v,))


def test_nested_ops_become_primitives() -> None:
    after = lower(graph_of(QUADRUPLE, SAME, DOUBLE))
    assert [n.op.name for n in after.nodes] == ["map"] * 3
    assert {n.where for n in after.nodes} == {"model.py:9"}
    np.testing.assert_array_equal(interpret(after, [np.ones(4, "f")])[0], 8)


def test_an_op_may_decline() -> None:
    graph = graph_of(DECLINES, DECLINES)
    assert lower(graph) is graph


def test_an_op_may_hand_on_its_input() -> None:
    after = lower(graph_of(SAME, SAME, SAME))
    assert after.nodes == () and after.outputs == after.inputs


def test_a_param_that_is_handed_on_is_copied_before_it_changes() -> None:
    x, w = Value(F, "x"), Value(F, "w")
    b = Builder()
    (y,) = b.emit(SAME, w)
    b.assign(w, x)
    after = lower(Graph("g", (x,), (w,), (), tuple(b.nodes), (y,)))
    old = np.full(4, 5, "f")
    assert interpret(after, [np.ones(4, "f")], [old])[0].tolist() == [5] * 4
    assert old.tolist() == [1] * 4


def test_equal_nodes_lower_once_and_others_for_themselves() -> None:
    """Attributes, types, and which operands are the same value: an op may make use of all of them."""
    asked: list[Any] = []
    other = Value(F, "other")

    def lowering(b: Builder, attrs: Any, x: Value, y: Value) -> Value:
        asked.append((attrs["by"], x.type, x is y))
        if attrs["by"] == 7:
            return b.call("add", x, other)
        return b.call("multiply", x, float(attrs["by"])) if x is y else b.call("add", b.call("exp", x), y)
    scaled = Op("scaled", lambda attrs, *xs: xs[:1], types=lambda attrs, *ts: ts[:1], lower=lowering,
                key=lambda attrs: attrs["by"])
    x, wide = Value(F, "x"), Value(tensor_type("float64", (4,)), "wide")
    b = Builder("model.py:9")
    values, results = [x], []
    for by in (2, 2, 3, 7, 7):
        for left, right in ((values[-1], values[-1]), (values[-1], x), (wide, wide)):
            if by < 7 or left is not wide:
                b.where = f"model.py:{len(b.nodes)}"
                results += b.emit(scaled, left, right, by=by)
        values.append(results[-2 if by < 7 else -1])
    graph = Graph("g", (x, wide, other), (), (), tuple(b.nodes), tuple(results))
    after = lower(graph)
    assert len(asked) == len(set(asked[:-4])) + 4, "what reads another value is asked each time"
    assert [n.where for n in after.nodes if n.op.name == "map"][-1] == b.where
    arrays = [np.arange(4, dtype="f") / 9, np.ones(4), np.full(4, 5, "f")]
    found = interpret(after, arrays)
    singly = [interpret(lower(Graph("g", graph.inputs, (), (), graph.nodes[:i + 1], (v,))), arrays)[0]
              for i, v in enumerate(results)]
    for a, c in zip(found, singly, strict=True):
        np.testing.assert_array_equal(a, c)


def test_names_are_kept() -> None:
    graph = graph_of(DOUBLE)
    graph.outputs[0].hint = "loss"
    assert lower(graph).outputs[0].hint == "loss"


@pytest.mark.parametrize(("bad", "message"), [
    (WIDER, r"wider at model.py:9 should lower to \[f32\[4\]\], got \[f64\[4\]\]"),
    (FOREVER, "forever at model.py:9 lowers to itself"),
])
def test_faults(bad: Op, message: str) -> None:
    with pytest.raises(LowerError, match=message):
        lower(graph_of(bad))
