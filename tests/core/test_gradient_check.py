"""Gradient checks: they pass what is right and refuse what is wrong."""

from __future__ import annotations

import numpy as np
import pytest

from kusari import FunctionNode, Parameter, Variable, testing
from kusari import functions as F
from kusari.gradient_check import NondifferentiableError, check_backward, check_double_backward, numerical_grad
from kusari.utils import type_check

X = np.array([[0.5, 1.0, 2.0], [-1.0, 0.3, 1.5]])


class Square(FunctionNode):
    """x ** 2 whose gradient is wrong by a factor."""

    def __init__(self, factor=1.0):
        self.factor = factor

    def forward(self, inputs):
        self.retain_inputs((0,))
        return (inputs[0] ** 2,)

    def backward(self, target_input_indexes, grad_outputs):
        (x,) = self.get_retained_inputs()
        return (x * grad_outputs[0] * (2 * self.factor),)


def test_numerical_grad() -> None:
    x, y = X.copy(), X + 1
    gx, gy = numerical_grad(lambda: (x * y, None, x), (x, y), (np.full_like(X, 2), None, np.ones_like(X)))
    np.testing.assert_allclose(gx, 2 * y + 1, atol=1e-8)
    np.testing.assert_allclose(gy, 2 * x, atol=1e-8)
    np.testing.assert_array_equal(x, X)
    with pytest.raises(ValueError, match="1 outputs"):
        numerical_grad(lambda: (x,), (x,), (x, x))


def test_kinks() -> None:
    x = np.array([0.0, 1.0])
    with pytest.raises(NondifferentiableError, match="non-differentiable point"):
        numerical_grad(lambda: (abs(x),), (x,), (np.ones(2),), detect_nondifferentiable=True)
    x[0] = 0.5
    numerical_grad(lambda: (abs(x), 3 * x + 7), (x,), (np.ones(2), None), detect_nondifferentiable=True)


@pytest.mark.parametrize("dtype", [None, np.float64])
def test_backward(dtype: object) -> None:
    x = X.astype(np.float32) if dtype else X
    check_backward(lambda x: Square().apply((x,)), x, np.ones_like(x), dtype=dtype)
    check_backward(lambda x: F.sum(x * x), x, None, dtype=dtype, atol=1e-3, rtol=1e-3)
    with pytest.raises(AssertionError, match=r"check_backward failed \(eps=0.001"):
        check_backward(lambda x: Square(1.1).apply((x,)), x, np.ones_like(x), dtype=dtype)


def test_backward_with_parameters() -> None:
    w = Parameter(np.array([1.0, 2.0, 3.0]))
    check_backward(lambda x: x * F.broadcast_to(w, x.shape), X, np.ones_like(X), w)
    assert w.array.tolist() == [1, 2, 3]


def test_backward_arguments() -> None:
    labels = np.zeros(2, np.int32)
    check_backward(lambda x, t: (x * 2, x), (X, labels), (X, None))
    with pytest.raises(ValueError, match="y_grad argument cannot be omitted"):
        check_backward(lambda x: x * 2, X, None)
    with pytest.raises(ValueError, match=r"\(2, 3\):float32"):
        check_backward(lambda x: x * 2, X, np.ones((2, 3), np.float32))
    check_backward(lambda x, y: x * 2, (X, X), X)  # a gradient that is missing is zero
    with pytest.raises(AssertionError):
        check_backward(lambda x, y: x * y.array, (X, X), X)
    with pytest.raises(RuntimeError, match=r"inputs\[1\], which no_grads says"):
        check_backward(lambda x, y: x * y, (X, X), X, no_grads=[False, True])
    check_backward(lambda x, y: x * 2, (X, X), X, no_grads=[False, True])


@pytest.mark.parametrize("given", [lambda g: g, lambda g: (g, None)])
def test_double_backward_of_inputs_without_gradients(given) -> None:
    check_double_backward(lambda x, t: x * x, (X, np.zeros(2, "i")), X, given(X), eps=1e-2, rtol=1e-2)


@pytest.mark.parametrize("function", [lambda x: Square().apply((x,)), lambda x: x * 3, lambda x: x * x * x + x])
def test_double_backward(function) -> None:
    check_double_backward(function, X, np.ones_like(X) * 0.7, np.ones_like(X) * 1.3)


def test_wrong_double_backward() -> None:
    class Once(FunctionNode):
        def forward(self, inputs):
            self.retain_inputs((0,))
            return (inputs[0] ** 3,)

        def backward(self, target_input_indexes, grad_outputs):
            (x,) = self.get_retained_inputs()
            return (Variable(3 * x.array**2) * grad_outputs[0],)

    check_backward(lambda x: Once().apply((x,)), X, np.ones_like(X))
    with pytest.raises(AssertionError, match="check_double_backward failed"):
        check_double_backward(lambda x: Once().apply((x,)), X, np.ones_like(X), np.ones_like(X))


def test_double_backward_with_parameters() -> None:
    w = Parameter(X + 2)
    check_double_backward(lambda x: x * w * w, X, np.ones_like(X), np.ones_like(X), w, np.ones_like(X))


def test_assert_allclose() -> None:
    testing.assert_allclose(Variable(X), X + 1e-6)
    with pytest.raises(AssertionError):
        testing.assert_allclose(X, X + 1e-2)


def test_dtype_is_that_of_the_numerical_gradient_alone() -> None:
    seen: list[tuple[str, str]] = []

    class Square(FunctionNode):
        def check_type_forward(self, in_types):
            type_check.expect(in_types[0].dtype == in_types[1].dtype)

        def forward(self, inputs):
            self.retain_inputs((0, 1))
            return ((inputs[0] * inputs[1]).astype(inputs[0].dtype),)

        def backward(self, indexes, grad_outputs):
            x, w = self.get_retained_inputs()
            seen.append((str(x.dtype), str(grad_outputs[0].dtype)))
            return w * grad_outputs[0], x * grad_outputs[0]

    w = Parameter(np.array([2, 3], "f"))  # not among the params: it stays float32
    x = np.array([1.5, -0.5], "f")
    check_backward(lambda x: Square().apply((x, w))[0], x, np.ones(2, "f"), dtype="d")
    assert seen == [("float32", "float32")]


def test_functions_see_their_graph_each_time() -> None:
    def seen(x: Variable) -> Variable:
        y = x * 2
        assert y.creator is not None
        return y

    check_backward(seen, X, X)


def test_second_derivatives_at_inputs_with_nan_that_outputs_do_not_depend_on() -> None:
    x = np.array([[1, np.nan, 3], [2, 4, np.nan]], np.float32)

    def f(x: Variable) -> Variable:
        return F.sum(F.where(np.isnan(x.array), np.zeros_like(x.array), x) ** 2, axis=0)

    check_double_backward(f, x, np.ones(3, "f"), np.ones((2, 3), "f"), dtype="d", atol=1e-3, rtol=1e-3)


@pytest.mark.parametrize("x", [X, X[:, ::2], X.T])
def test_backward_gets_inputs_that_are_as_contiguous_as_those_given(x: np.ndarray) -> None:
    seen: set[bool] = set()

    class Watched(Square):
        def backward(self, target_input_indexes, grad_outputs):
            seen.add(self.get_retained_inputs()[0].array.flags.c_contiguous)
            return super().backward(target_input_indexes, grad_outputs)

    check_backward(lambda v: Watched().apply((v,))[0], x, np.ones(x.shape))
    assert seen == {x.flags.c_contiguous}


def test_a_dtype_by_its_place():
    g, seen = np.ones(3, "f"), set()

    def square(x):
        seen.add(x.dtype)
        return x * x

    check_backward(square, g, g, (), 1e-3, 1e-5, 1e-4, None, np.float64)
    check_double_backward(square, g, g, g, (), (), 1e-3, 1e-4, 1e-3, None, np.float64)
    assert np.dtype("d") in seen
