"""backward and grad. The numbers are those of Chainer 7.8.1."""

from __future__ import annotations

import math

import numpy as np
import pytest

import kusari
from kusari import FunctionNode, Variable
from kusari.errors import GradientError

ONES = np.ones(2, np.float32)


class Product(FunctionNode):
    def forward(self, inputs):
        self.retain_inputs((0, 1))
        return (np.asarray(inputs[0] * inputs[1]),)

    def backward(self, target_input_indexes, grad_outputs):
        inputs = self.get_retained_inputs()
        return tuple(mul(inputs[1 - i], grad_outputs[0]) for i in target_input_indexes)


class Total(FunctionNode):
    def forward(self, inputs):
        self.shape = inputs[0].shape
        return (np.asarray(inputs[0].sum()),)

    def backward(self, target_input_indexes, grad_outputs):
        return Spread(self.shape).apply(grad_outputs)


class Spread(FunctionNode):
    def __init__(self, shape):
        self.shape = shape

    def forward(self, inputs):
        return (np.broadcast_to(inputs[0], self.shape).copy(),)

    def backward(self, target_input_indexes, grad_outputs):
        return Total().apply(grad_outputs)


def mul(x, y):
    return Product().apply((x, y))[0]


def total(x):
    return Total().apply((x,))[0]


def variable(*values: float) -> Variable:
    return Variable(np.array(values, np.float32))


def test_leaf_gradients_accumulate() -> None:
    x = variable(1, 2)
    for times in (1, 2, 3):
        total(mul(x, x)).backward()
        np.testing.assert_array_equal(x.grad, [2 * times, 4 * times])


def test_intermediate_gradients() -> None:
    x = variable(1, 2)
    y = mul(x, x)
    z = total(y)
    z.backward(retain_grad=True)
    assert (z.grad, y.grad.tolist()) == (1, [1, 1])
    z.backward()
    assert z.grad is None
    assert y.grad.tolist() == [1, 1]
    y.grad = ONES * 5
    z.backward()
    assert y.grad.tolist() == [5, 5]
    y.backward()
    assert y.grad is None


def test_start() -> None:
    x = Variable(np.ones((1, 1), np.float32))
    with pytest.warns(DeprecationWarning, match="one element as a scalar"):
        x.backward()
    assert x.grad.tolist() == [[1]]
    y = variable(1, 2)
    with pytest.raises(GradientError, match=r"expected a variable of one element, got shape \(2,\) "):
        mul(y, y).backward()
    with pytest.warns(RuntimeWarning, match="without a gradient"):
        kusari.backward([mul(y, y), total(y), y])
    assert y.grad is None


def test_loss_scale() -> None:
    x = variable(1, 2)
    total(mul(x, x)).backward(loss_scale=4)
    assert x.grad.tolist() == [8, 16]
    assert x._loss_scale == 4


def test_many_outputs_at_once() -> None:
    x = variable(1, 2)
    y = mul(x, x)
    one = Variable(np.ones((), np.float32))
    kusari.backward([total(mul(y, x)), total(y)], [one, one])
    assert x.grad.tolist() == [5, 16]
    x.cleargrad()
    y.grad = ONES  # is not read where gradients are given
    kusari.backward([y, mul(y, x), x], [Variable(ONES), None, Variable(ONES)])
    assert x.grad.tolist() == [3, 5] and y.grad is not None
    kusari.backward([y, x])
    assert x.grad.tolist() == [5, 9] and y.grad is None


def test_deep_and_wide_graphs() -> None:
    x = y = Variable(np.ones((), np.float64))
    for _ in range(3000):
        y = mul(y, variable_one)
    y.backward()
    assert x.grad == 1
    x.cleargrad()
    y = x
    for _ in range(20):
        y = mul(y, y)
    y.backward()
    assert x.grad == 2**20


variable_one = Variable(np.ones((), np.float64), requires_grad=False)


def test_requires_grad_stops() -> None:
    x, y = variable(1, 2), Variable(ONES, requires_grad=False)
    total(mul(x, y)).backward()
    assert x.grad.tolist() == [1, 1]
    assert y.grad is None


@pytest.mark.parametrize("double", [False, True])
@pytest.mark.parametrize("lazy", [False, True])
def test_lazy_sums_change_nothing(lazy: bool, double: bool) -> None:
    x = variable(2, 3)
    with kusari.using_config("lazy_grad_sum", lazy):
        y = mul(mul(mul(x, x), x), mul(x, x))
        total(y).backward(enable_double_backprop=double)
        np.testing.assert_allclose(x.grad, 5 * x.array**4)
        total(y).backward(enable_double_backprop=double)
    np.testing.assert_allclose(x.grad, 10 * x.array**4)


def test_two_leaves_do_not_share_a_gradient() -> None:
    class Both(FunctionNode):
        def forward(self, inputs):
            return (inputs[0] + inputs[1],)

        def backward(self, target_input_indexes, grad_outputs):
            return grad_outputs[0], grad_outputs[0]

    x, y = variable(1, 2), variable(3, 4)
    total(Both().apply((x, y))[0]).backward()
    x.grad += 1
    assert y.grad.tolist() == [1, 1]


def test_double_backward() -> None:
    x = variable(2, 3)
    total(mul(mul(x, x), x)).backward(enable_double_backprop=True)
    gx = x.grad_var
    assert gx.creator is not None
    assert gx.array is x.grad
    x.cleargrad()
    gx.grad = ONES
    gx.backward()
    assert x.grad.tolist() == [12, 18]
    total(mul(x, x)).backward()
    assert x.grad_var.creator is None


def test_many_derivatives() -> None:
    x = Variable(np.array(2.0))
    y = x
    for _ in range(4):
        y = mul(y, x)
    for order in range(1, 6):
        (y,) = kusari.grad([y], [x], enable_double_backprop=True)
        assert y.array == math.perm(5, order) * 2.0 ** (5 - order)


def test_grad_table() -> None:
    x = variable(1, 2)
    y = mul(x, x)
    z = mul(y, x)
    table = [
        (dict(outputs=[z], inputs=[x, y]), [[3, 12], [1, 2]]),
        (dict(outputs=(z,), inputs=(x,), grad_outputs=[variable(2, 3)]), [[6, 36]]),
        (dict(outputs=[z], inputs=[x], grad_inputs=[variable(10, 10)]), [[13, 22]]),
        (dict(outputs=[z], inputs=[x], loss_scale=2.0), [[6, 24]]),
        (dict(outputs=[y], inputs=[x], grad_outputs=[variable(3, 3)], loss_scale=2.0), [[6, 12]]),
        (dict(outputs=[y, z], inputs=[x, y]), [[5, 16], [2, 3]]),
        (dict(outputs=[z], inputs=[z]), [[1, 1]]),
        (dict(outputs=[x], inputs=[x]), [[1, 1]]),
        (dict(outputs=[z], inputs=[variable(1, 1)]), [None]),
        (dict(outputs=[variable(1, 1)], inputs=[x]), [None]),
        (dict(outputs=[z], inputs=[x, x]), [[3, 12], [3, 12]]),
    ]
    for arguments, expected in table:
        found = kusari.grad(**arguments)
        assert [None if g is None else g.array.tolist() for g in found] == expected, arguments
        assert x.grad is y.grad is z.grad is None
        assert all(g is None or g.creator is None for g in found)


def test_grad_sets_what_it_is_told_to() -> None:
    x = variable(1, 2)
    y = mul(x, x)
    z = mul(y, x)
    kusari.grad([z], [x], set_grad=True)
    assert x.grad.tolist() == [3, 12]
    assert y.grad is None
    x.cleargrad()
    kusari.grad([z], [x], retain_grad=True)
    assert x.grad is None
    assert (y.grad.tolist(), z.grad.tolist()) == ([1, 2], [1, 1])


def test_grad_runs_only_functions_between() -> None:
    class Refuses(FunctionNode):
        def forward(self, inputs):
            return (inputs[0] * 2,)

        def backward(self, target_input_indexes, grad_outputs):
            raise AssertionError("not on the path")

    x, w = variable(1, 2), variable(3, 4)
    (side,) = Refuses().apply((w,))
    (gx,) = kusari.grad([mul(side, x)], [x])
    assert gx.array.tolist() == [6, 8]


@pytest.mark.parametrize(
    ("arguments", "name"),
    [
        (lambda x: (x, [x]), "outputs"),
        (lambda x: ([x], x), "inputs"),
        (lambda x: ([x], [x], x), "grad_outputs"),
        (lambda x: ([x], [x], None, x), "grad_inputs"),
    ],
)
def test_grad_wants_sequences(arguments, name: str) -> None:
    with pytest.raises(TypeError, match=f"{name} must be a tuple or a list"):
        kusari.grad(*arguments(variable(1)))


@pytest.mark.parametrize(
    ("returned", "error", "message"),
    [
        (lambda g: (g, g, g), GradientError, "gradients returned from backward is incorrect: 3 != expected 1"),
        (lambda g: (variable(1, 2, 3),), GradientError, "input-index=0, actual (3,) != expected (2,)"),
        (lambda g: None, TypeError, "must return a tuple of variables, not NoneType"),
        (lambda g: (g.array,), TypeError, "backward must return variables"),
    ],
)
def test_wrong_backward(returned, error: type[Exception], message: str) -> None:
    class Bad(FunctionNode):
        def forward(self, inputs):
            return (inputs[0] * 2,)

        def backward(self, target_input_indexes, grad_outputs):
            return returned(grad_outputs[0])

    x = variable(1, 2)
    y = total(Bad().apply((x,))[0])
    with pytest.raises(error) as caught:
        y.backward()
    assert message in str(caught.value)
    assert x.grad is None


@pytest.mark.parametrize("gradients", [(None,), [None]])
def test_no_gradient(gradients) -> None:
    class Stop(FunctionNode):
        def forward(self, inputs):
            return (inputs[0] * 2,)

        def backward(self, target_input_indexes, grad_outputs):
            return gradients

    x = variable(1, 2)
    total(Stop().apply((x,))[0]).backward()
    assert x.grad is None


def test_backward_accumulate_sees_what_is_there() -> None:
    calls: list[object] = []

    class Own(Product):
        def backward_accumulate(self, target_input_indexes, grad_outputs, grad_inputs):
            calls.append([None if g is None else g.array.tolist() for g in grad_inputs])
            return super().backward_accumulate(target_input_indexes, grad_outputs, grad_inputs)

    x = variable(1, 2)
    y = variable(3, 4)
    for _ in range(2):
        total(Own().apply((x, y))[0]).backward()
    assert calls == [[None, None], [[3, 4], [1, 2]]]
    assert x.grad.tolist() == [6, 8]
    x.cleargrad()
    total(Own().apply((x, x))[0]).backward()
    assert calls[-1] == [None, None]
    assert x.grad.tolist() == [2, 4]


def test_exception_leaves_gradients_alone() -> None:
    class Fails(FunctionNode):
        def forward(self, inputs):
            return (inputs[0] * 2,)

        def backward(self, target_input_indexes, grad_outputs):
            raise ValueError("on purpose")

    x = variable(1, 2)
    with pytest.raises(ValueError, match="on purpose"):
        total(mul(Fails().apply((x,))[0], x)).backward()
    assert x.grad is None
    assert kusari.config.enable_backprop


def test_an_output_that_is_named_twice_counts_its_own_gradient_once() -> None:
    x = Variable(np.ones(2, np.float32))
    y = x * 3
    y.grad = np.full(2, 2, np.float32)
    with pytest.warns(RuntimeWarning, match="counts once"):
        kusari.backward([y, y])
    assert x.grad.tolist() == [6, 6]
    x.cleargrad()
    gy = Variable(np.ones(2, np.float32))
    kusari.backward([y, y], [gy, gy])
    assert x.grad.tolist() == [6, 6]
