"""Builders infer types and leave out what does nothing."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from kusari.ir import SCALAR, Builder, Graph, Op, TensorType, Trait, Value, interpret, tensor_type
from kusari.ir.types import parse_type

X = tensor_type("float32", (2, 3))


def made(build: Any) -> tuple[Any, Builder]:
    b = Builder("m.py:1")
    return build(b, Value(X, "x")), b


@pytest.mark.parametrize("build", [
    lambda b, x: b.reshape(x, (2, 3)), lambda b, x: b.cast(x, "float32"), lambda b, x: b.transpose(x, (0, 1)),
    lambda b, x: b.broadcast_to(x, (2, 3)), lambda b, x: b.reduce("sum", x, ()), lambda b, x: b.sum_to(x, (2, 3)),
])
def test_what_does_nothing_is_left_out(build: Any) -> None:
    value, b = made(build)
    assert b.nodes == [] and value.type == X


@pytest.mark.parametrize(("build", "want"), [
    (lambda b, x: b.call("add", x, 1), lambda x: x + 1),
    (lambda b, x: b.call("true_divide", 1.0, x), lambda x: 1 / x),
    (lambda b, x: b.map(lambda x, m: SCALAR.where(x < m, 1 - x / m, m ** 2), x, b.reduce("max", x)),
     lambda x: np.where(x < x.max(), 1 - x / x.max(), x.max() ** 2)),
    (lambda b, x: b.map(SCALAR.exp, x), np.exp),
    (lambda b, x: b.cast(x, "int64"), lambda x: x.astype("int64")),
    (lambda b, x: b.cast(x, bool), lambda x: x.astype(bool)),
    (lambda b, x: b.full((2, 3), 0.1, "float32"), lambda x: np.full_like(x, 0.1)),
    (lambda b, x: b.full((), 3, "int8"), lambda x: np.int8(3)),
    (lambda b, x: b.reduce("max", x, -1), lambda x: x.max(1, keepdims=True)),
    (lambda b, x: b.reduce("sum", x), lambda x: x.sum(keepdims=True)),
    (lambda b, x: b.reshape(x, (3, 2)), lambda x: x.reshape(3, 2)),
    (lambda b, x: b.transpose(x), lambda x: x.T),
    (lambda b, x: b.sum_to(x, (3,)), lambda x: x.sum(0)),
    (lambda b, x: b.sum_to(x, (2, 1)), lambda x: x.sum(1, keepdims=True)),
    (lambda b, x: b.sum_to(x, ()), lambda x: x.sum()),
    (lambda b, x: b.matmul(x, x, False, True), lambda x: x @ x.T),
    (lambda b, x: b.arange(4), lambda x: np.arange(4, dtype="int32")),
    (lambda b, x: b.take(x, b.arange(2)), lambda x: x[:2]),
    (lambda b, x: b.scatter_add(b.arange(2), x, (4, 3)), lambda x: np.concatenate([x, np.zeros((2, 3), "f")])),
    (lambda b, x: b.slice(x, (0, 2), (2, -1), (1, -1)), lambda x: x[:, ::-1]),
    (lambda b, x: b.slice(x, (1, 0), (2, 3), (1, 2)), lambda x: x[1:, ::2]),
    (lambda b, x: b.concat([x, x], -1), lambda x: np.concatenate([x, x], 1)),
    (lambda b, x: b.one("pad_slice", x, starts=(1, 0), stops=(3, 3), steps=(1, 1), shape=(4, 3)),
     lambda x: np.pad(x, ((1, 1), (0, 0)))),
])
def test_values(build: Any, want: Any) -> None:
    x = Value(X, "x")
    b = Builder("m.py:1")
    y = build(b, x)
    array = np.random.RandomState(0).rand(2, 3).astype("f") + 0.5
    (got,) = interpret(Graph("g", (x,), (), (), tuple(b.nodes), (y,)), [array])
    expected = np.asarray(want(array))
    assert (y.shape, y.tensor.dtype) == (got.shape, got.dtype) == (expected.shape, expected.dtype)
    np.testing.assert_allclose(got, expected, rtol=1e-6)
    assert all(n.where == "m.py:1" for n in b.nodes)


@pytest.mark.parametrize("build", [
    lambda b, x: b.reshape(x, (4, 2)), lambda b, x: b.broadcast_to(x, (2, 4)), lambda b, x: b.matmul(x, x),
    lambda b, x: b.assign(x, b.reshape(x, (6,))), lambda b, x: b.call("add", x, b.reshape(x, (3, 2))),
    lambda b, x: b.reduce("any", x),
])
def test_types_that_do_not_fit_are_refused(build: Any) -> None:
    with pytest.raises(ValueError):
        made(build)


def test_an_op_without_a_type_rule_needs_observed_types() -> None:
    op = Op("mystery", lambda attrs, x: (x,), Trait.OPAQUE)
    b, x = Builder(), Value(X)
    with pytest.raises(TypeError, match="no type rule"):
        b.emit(op, x)
    (y,) = b.fresh(op, [x], [X], attr=3)
    assert b.nodes[0].attrs == {"attr": 3} and b.nodes[0].output is y and b.nodes[0].has_effect


@pytest.mark.parametrize("t", [X, tensor_type("bool", ()), tensor_type("int64", (0, 1)),
                               TensorType(np.dtype("f2"), (1,), "cuda")])
def test_types_print_as_they_are_read(t: TensorType) -> None:
    assert parse_type(repr(t)) == t
