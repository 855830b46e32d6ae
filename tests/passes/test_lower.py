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
