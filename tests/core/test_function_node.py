"""FunctionNode and Function: application, what is kept, what is refused, debug mode."""

from __future__ import annotations

import gc
import weakref

import numpy as np
import pytest

import kusari
from kusari import Function, FunctionNode, Variable
from kusari.errors import ArrayTypeError, InvalidType, NaNError
from kusari.static.errors import StaticGraphWarning
from kusari.utils import type_check

ONES = np.ones((2, 3), np.float32)


class Product(FunctionNode):
    """x * y, with gradients that can be differentiated."""

    def check_type_forward(self, in_types):
        type_check.argname(in_types, ("x", "y"))
        x_type, y_type = in_types
        type_check.expect(x_type.dtype.kind == "f", x_type.shape == y_type.shape)

    def forward(self, inputs):
        self.retain_inputs((0, 1))
        return (np.asarray(inputs[0] * inputs[1]),)

    def backward(self, target_input_indexes, grad_outputs):
        x, y = self.get_retained_inputs()
        (gz,) = grad_outputs
        return tuple(product(y if i == 0 else x, gz) for i in target_input_indexes)


def product(x, y):
    return Product().apply((x, y))[0]


class Plain(FunctionNode):
    """Whatever ``result`` makes of the inputs."""

    def __init__(self, result):
        self.result = result

    def forward(self, inputs):
        return self.result(*inputs)


def test_graph() -> None:
    x = Variable(ONES)
    f = Product()
    (y,) = f.apply((x, ONES))
    assert y.creator is y.creator_node is f
    assert f.inputs[0] is x.node
    assert f.outputs[0]() is y.node
    assert (f.rank, y.rank, f.label) == (0, 1, "Product")
    assert y.requires_grad
    assert y.node.data is None
    assert x.node.data is x.array
    (z,) = Product().apply((y, y))
    assert (z.creator.rank, z.rank) == (1, 2)
    assert not product(ONES, ONES).requires_grad


def test_no_graph() -> None:
    x = Variable(ONES)
    with kusari.no_backprop_mode():
        y = product(x, x)
        with kusari.force_backprop_mode():
            assert product(x, x).creator is not None
    assert y.creator is None
    assert y.requires_grad


def test_graph_holds_only_retained_arrays() -> None:
    x = Variable(ONES.copy())
    y, alive = Plain(lambda x: (x + 1,)).apply((x,))[0], weakref.ref(x)
    array = weakref.ref(x.array)
    del x
    gc.collect()
    assert alive() is None
    assert array() is None
    assert y.creator.inputs[0].data is None


def test_retained_outputs_come_back_when_they_are_gone() -> None:
    class Twice(FunctionNode):
        def forward(self, inputs):
            self.retain_outputs((1,))
            return inputs[0], inputs[0] * 2

        def backward(self, target_input_indexes, grad_outputs):
            (y,) = self.get_retained_outputs()
            assert y.creator is self
            assert (self.get_retained_outputs()[0]) is y
            return (y,)

    x = Variable(ONES)
    f = Twice()
    y = f.apply((x,))[0]
    assert f.output_data[0] is None
    assert f.output_data[1][0, 0] == 2
    y.grad = ONES
    y.backward()
    assert x.grad[0, 0] == 2


def test_no_output_data() -> None:
    f = Plain(lambda x: (x,))
    y = f.apply((Variable(ONES),))
    with pytest.raises(RuntimeError, match="retained output data is gone"):
        f.output_data  # noqa: B018
    assert f.get_retained_inputs() == f.get_retained_outputs() == ()
    assert len(y) == 1


@pytest.mark.parametrize(
    ("inputs", "error", "message"),
    [
        ((1.0, ONES), ArrayTypeError, "(Product).\nActual: <class 'float'>, <class 'numpy.ndarray'>"),
        ((None, ONES), ValueError, "in_types[0] is None, but an array is expected"),
        ((ONES,), InvalidType, "Expect: 2 arguments (x, y)\nActual: 1 given"),
        ((ONES.astype("i"), ONES), InvalidType, "Expect: x.dtype.kind == f\nActual: i != f"),
        ((ONES, ONES[:1]), InvalidType, "Expect: x.shape == y.shape\nActual: (2, 3) != (1, 3)"),
    ],
)
def test_wrong_inputs(inputs: tuple[object, ...], error: type[Exception], message: str) -> None:
    with pytest.raises(error) as caught:
        Product().apply(inputs)
    assert message in str(caught.value)


def test_type_check_names_function_and_line() -> None:
    with pytest.raises(InvalidType) as caught:
        product(ONES, ONES[:1])
    assert str(caught.value).startswith("\nInvalid operation is performed in: Product (Forward)\n\nExpect: x.shape ==")
    assert f"Applied at: {__file__}:" in str(caught.value)


def test_type_check_off() -> None:
    with kusari.using_config("type_check", False):
        assert product(ONES, ONES[:1]).shape == (2, 3)


@pytest.mark.parametrize(
    ("result", "message"),
    [
        (lambda x: x, "forward output must be a tuple (Plain)\nActual: <class 'numpy.ndarray'>"),
        (lambda x: [x], "Actual: <class 'list'>"),
        (lambda x: (x.sum(),), "kusari.utils.force_array"),
    ],
)
def test_wrong_outputs(result, message: str) -> None:
    with pytest.raises(TypeError) as caught:
        Plain(result).apply((ONES,))
    assert message in str(caught.value)


def test_not_implemented_and_not_callable() -> None:
    with pytest.raises(NotImplementedError, match="neither forward nor forward_cpu"):
        FunctionNode().apply((ONES,))
    with pytest.raises(TypeError, match="apply"):
        Product()(ONES, ONES)


def test_forward_cpu_is_called() -> None:
    class Cpu(FunctionNode):
        def forward_cpu(self, inputs):
            return (inputs[0] * 2,)

    assert Cpu().apply((ONES,))[0].array[0, 0] == 2


def test_nan_in_forward() -> None:
    with kusari.using_config("debug", True):
        with pytest.raises(NaNError) as caught:
            Plain(lambda x: (x * np.nan,)).apply((ONES,))
        assert Plain(lambda x: (x * np.inf,)).apply((ONES,))
    assert "NaN is detected on forward computation of Plain" in str(caught.value)
    assert f"{__file__}:" in str(caught.value)
    assert np.isnan(Plain(lambda x: (x * np.nan,)).apply((ONES,))[0].array).all()


def test_nan_in_backward_names_function_and_line() -> None:
    class Bad(FunctionNode):
        def forward(self, inputs):
            return inputs

        def backward(self, target_input_indexes, grad_outputs):
            return (Variable(grad_outputs[0].array * np.nan),)

    x = Variable(ONES)
    with kusari.using_config("debug", True):
        (y,) = Bad().apply((x,))
        assert y.creator.stack is not None
        y.grad = ONES
        with pytest.raises(NaNError) as caught:
            y.backward()
    text = str(caught.value)
    assert text.startswith("NaN is detected on backward computation of Bad")
    assert __file__ in text
    assert "Bad().apply((x,))" in text


class OldProduct(Function):
    def forward(self, inputs):
        self.retain_inputs((0, 1))
        return (inputs[0] * inputs[1],)

    def backward(self, inputs, grad_outputs):
        x, y = inputs
        return y * grad_outputs[0], x * grad_outputs[0]


def test_old_style() -> None:
    x, y = Variable(ONES * 2), Variable(ONES * 3)
    f = OldProduct()
    z = f(x, y)
    assert z.creator is f
    assert z.creator_node is f.node
    assert f.inputs == (x.node, y.node)
    assert (f.rank, f.label, f.node.label) == (0, "OldProduct", "OldProduct")
    z.grad = ONES
    z.backward()
    assert (x.grad[0, 0], y.grad[0, 0]) == (3, 2)


def test_old_style_many_outputs_and_missing_gradients() -> None:
    seen: list[tuple[object, ...]] = []

    class Two(Function):
        def forward_cpu(self, inputs):
            self.retain_inputs(())
            self.retain_outputs((0,))
            return inputs[0] * 2, inputs[0] * 3

        def backward_cpu(self, inputs, grad_outputs):
            seen.append((*inputs, grad_outputs[0], self.output_data[0][0, 0]))
            return (grad_outputs[1] * 3,)

    x = Variable(ONES)
    _, b = Two()(x)
    b.grad = ONES
    b.backward()
    assert x.grad[0, 0] == 3
    assert seen == [(None, None, 2)]


def test_old_style_cannot_be_differentiated_twice() -> None:
    x = Variable(ONES)
    y = OldProduct()(x, x)
    y.grad = ONES
    y.backward(enable_double_backprop=True)
    gx = x.grad_var
    gx.grad = ONES
    with pytest.raises(RuntimeError, match='cannot twice-differentiate an old style Function "OldProduct"'):
        gx.backward()


class SumOfProducts(FunctionNode):
    """x * a + x * b, where a or b may be None, which counts as 0."""

    def forward(self, inputs):
        self.retain_inputs((0, 1, 2))
        self.retain_outputs((0, 1))
        return sum(inputs[0] * y for y in inputs[1:] if y is not None), None

    def backward(self, target_input_indexes, grad_outputs):
        x, *ys = self.get_retained_inputs()
        assert self.get_retained_outputs()[1] is None
        return tuple([sum(y for y in ys if y is not None) * grad_outputs[0] if i == 0 else x * grad_outputs[0]
                      for i in target_input_indexes])


@pytest.mark.parametrize("send", [lambda x: x, lambda x: x.to_chx()])
def test_none_among_inputs_and_outputs(send) -> None:
    x, a = Variable(ONES * 3), Variable(ONES * 2)
    send(x), send(a)
    y, none = SumOfProducts().apply((x, a, None))
    y.grad = x.xp.ones_like(x.array)
    y.backward()
    assert none.array is None and float(y.array[0, 0]) == 6
    assert float(x.grad[0, 0]) == 2 and float(a.grad[0, 0]) == 3


def test_none_among_inputs_is_not_compiled() -> None:
    @kusari.static_graph
    def f(x, a):
        return SumOfProducts().apply((x, None, a))[0] * 2

    x, a = Variable(ONES * 3), Variable(ONES * 2)
    with pytest.warns(StaticGraphWarning, match="None is among the inputs of SumOfProducts"):
        assert [float(f(x, a).array[0, 0]) for _ in range(3)] == [12, 12, 12]
