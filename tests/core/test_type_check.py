"""Type checks: messages, evaluation, the light way and the explaining way."""

from __future__ import annotations

import pickle

import numpy as np
import pytest

from kusari import FunctionNode
from kusari.errors import InvalidType, KusariError
from kusari.utils import type_check as T

A = np.ones((2, 3), np.float32)


@pytest.mark.parametrize(
    ("condition", "expect", "actual"),
    [
        (lambda t: t[0].ndim == 3, "in_types[0].ndim == 3", "2 != 3"),
        (lambda t: t[0].dtype == np.float64, "in_types[0].dtype == <class 'numpy.float64'>",
         "float32 != <class 'numpy.float64'>"),
        (lambda t: t[0].dtype.kind == "i", "in_types[0].dtype.kind == i", "f != i"),
        (lambda t: t[0].shape[0] == t[1].shape[0] * 4, "in_types[0].shape[0] == in_types[1].shape[0] * 4", "2 != 4"),
        (lambda t: T.Variable(np.sum, "sum")(t[0].shape) == 10, "sum(in_types[0].shape) == 10", "5 != 10"),
        (lambda t: t[0].shape[0] == T.Variable(4, "in_size"), "in_types[0].shape[0] == in_size", "2 != 4"),
        (lambda t: t.size() == 3, "in_types.size == 3", "2 != 3"),
        (lambda t: T.prod(t[0].shape) == 3, "prod(in_types[0].shape) == 3", "6 != 3"),
        (lambda t: t[0].shape[1:] == (4,), "in_types[0].shape[1:] == (4,)", "(3,) != (4,)"),
        (lambda t: t[0].shape[-1:] == t[1].shape[::2], "in_types[0].shape[-1:] == in_types[1].shape[::2]",
         "(3,) != (1,)"),
        (lambda t: -t[0].ndim < -5, "-in_types[0].ndim < -5", "-2 >= -5"),
        (lambda t: t[0].ndim != 2, "in_types[0].ndim != 2", "2 == 2"),
        (lambda t: t[0].ndim <= 1, "in_types[0].ndim <= 1", "2 > 1"),
        (lambda t: t[0].ndim >= 3, "in_types[0].ndim >= 3", "2 < 3"),
        (lambda t: t[0].ndim > 4, "in_types[0].ndim > 4", "2 <= 4"),
        (lambda t: (t[0].ndim + 1) * 3 == 5, "(in_types[0].ndim + 1) * 3 == 5", "9 != 5"),
        (lambda t: 1 - t[0].ndim == 5, "1 - in_types[0].ndim == 5", "-1 != 5"),
        (lambda t: 1 - (t[0].ndim - 1) == 5, "1 - (in_types[0].ndim - 1) == 5", "0 != 5"),
        (lambda t: t[0].ndim ** 2 // 3 == 5, "in_types[0].ndim ** 2 // 3 == 5", "1 != 5"),
        (lambda t: (t[0].ndim ** 2) ** 3 == 5, "(in_types[0].ndim ** 2) ** 3 == 5", "64 != 5"),
        (lambda t: (~t[0].ndim & 2 | 4) ^ 1 == 1, "(~in_types[0].ndim & 2 | 4) ^ 1 == 1", "5 != 1"),
        (lambda t: t[0].shape == [2, T.Constant("a")], "in_types[0].shape == [2, a]", "(2, 3) != [2, 'a']"),
        (lambda t: t[0].ndim % 2 << 1 == 1, "in_types[0].ndim % 2 << 1 == 1", "0 != 1"),
    ],
)  # fmt: skip
def test_messages(condition, expect: str, actual: str) -> None:
    types = T.get_types((A, A[:1]), "in_types", False)
    with pytest.raises(InvalidType) as caught:
        T.expect(condition(types))
    assert str(caught.value) == f"Expect: {expect}\nActual: {actual}"
    # The light way says the same about every condition that needs no expression.
    light = condition(T.get_light_types((A, A[:1])))
    assert isinstance(light, T.Expr) or not light


def test_in_order_and_lazily() -> None:
    types = T.get_types((np.ones(()),), "in_types", False)
    with pytest.raises(InvalidType, match=r"ndim == 3"):
        T.expect(types[0].dtype == np.float64, types[0].ndim == 3, types[0].shape[1] == 2)
    T.expect(types[0].ndim == 0, types[0].size == 1)


def test_evaluation() -> None:
    (x,) = T.get_types((A,), "in_types", False)
    assert x.shape.eval() == T.eval(x.shape) == (2, 3)
    assert x.shape[0].eval() == 2
    assert isinstance(x.eval(), T.TypeInfo)
    assert T.eval(7) == T.make_variable(7, "n").eval() == 7
    assert str(T.make_variable(3, "n") + 1) == "n + 1"
    assert str(x) == "in_types[0]"
    assert T.prod((2, 3)) == 6
    assert T.prod(()) == 1


def test_operators_are_made_by_hand() -> None:
    x, y = T.Variable(1, "x"), T.Variable({"a": 2}, "y")
    shown = {
        "x + y": T.BinaryOperator(7, x, y, "+", max), "x + (y)": T.BinaryOperator(8, x, y, "+", max),
        "(x) + y": T.BinaryOperator(8, x, y, "+", max, True), "-x": T.UnaryOperator(8, x, "-", abs),
        "-(x)": T.UnaryOperator(9, x, "-", abs), "x == y": T.BoolBinaryOperator(x, y, "==", "!=", np.equal),
        "y['a']": y["a"], "x[..., 1]": x[..., 1], "x.real": T.GetAttr(x, T.Constant("real")),
        "getattr(x, 3)": T.GetAttr(x, 3), "x(['', 1])": x(["", 1]),
    }
    assert [str(made) for made in shown.values()] == list(shown)
    assert (shown["y['a']"].eval(), shown["x.real"].eval(), shown["-x"].eval()) == (2, 1, 1)
    assert (x | 1).priority < (x ^ 1).priority < (x & 1).priority < (x << 1).priority < (x + 1).priority < (
        x * 1).priority < (-x).priority < (x ** 2).priority < x.priority


def test_not_a_truth_value() -> None:
    (x,) = T.get_types((A,), "in_types", False)
    with pytest.raises(RuntimeError, match="cannot be evaluated as bool"):
        bool(x.ndim == 2)


def test_none() -> None:
    assert T.get_types((None,), "x", True)[0].name == "x[0]"
    with pytest.raises(ValueError, match=r"x\[0\] is None"):
        T.get_types((None,), "x", False)


def test_same_types() -> None:
    assert T.same_types(A, A)
    assert not T.same_types(A, 1)


def test_broadcastable_shapes() -> None:
    T.expect_broadcast_shapes("shapes", (2, 3), (3,), (4, 1, 1))
    types = T.get_types((A,), "in_types", False)
    with pytest.raises(InvalidType) as caught:
        T.expect_broadcast_shapes("shapes", types[0].shape, (4, 1, 2))
    assert str(caught.value) == (
        "Expect: shapes can be broadcast together: in_types[0].shape, (4, 1, 2)\nActual: (2, 3) and (4, 1, 2) cannot"
    )


def test_error_by_hand() -> None:
    error = InvalidType("Shape is expected to be ...", "Shape is ...")
    assert str(error) == "Expect: Shape is expected to be ...\nActual: Shape is ..."
    assert T.InvalidType is InvalidType
    assert issubclass(InvalidType, KusariError)
    again = pickle.loads(pickle.dumps(InvalidType("a", "b", "m", "w")))
    assert str(again) == "m\n\nExpect: a\nActual: b\n\nApplied at: w"


def test_check_that_evaluates_expressions_itself() -> None:
    """The manual's x_type.shape.eval() needs expressions, however harmless the inputs are."""

    class Square(FunctionNode):
        def check_type_forward(self, in_types):
            T.expect(in_types.size() == 1)
            shape = in_types[0].shape.eval()
            if shape[0] != shape[1]:
                raise T.InvalidType("a square", f"{shape}")

        def forward(self, inputs):
            return inputs

    for _ in range(2):
        assert Square().apply((np.ones((2, 2)),))
        with pytest.raises(InvalidType, match=r"Invalid operation is performed in: Square \(Forward\)"):
            Square().apply((A,))
