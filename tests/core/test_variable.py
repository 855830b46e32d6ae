"""Variable: its array, gradient, graph, text and copies."""

from __future__ import annotations

import copy
import pickle

import numpy as np
import pytest

import kusari
from kusari import Variable
from kusari import functions as F
from kusari.errors import DeviceError, GradientError, GradientTypeError

ONES = np.ones((2, 3), np.float32)


@pytest.mark.parametrize(
    ("variable", "represented", "text"),
    [
        (Variable(ONES, name="x"), "variable x([[1., 1., 1.],\n            [1., 1., 1.]])",
         "variable x([[1. 1. 1.]\n            [1. 1. 1.]])"),
        (Variable(ONES), "variable([[1., 1., 1.],\n          [1., 1., 1.]])",
         "variable([[1. 1. 1.]\n          [1. 1. 1.]])"),
        (Variable(np.array(2.5)), "variable(2.5)", "variable(2.5)"),
        (Variable(None), "variable(None)", "variable(None)"),
        (Variable(np.zeros((0, 2))), "variable([], shape=(0, 2))", "variable([])"),
    ],
)  # fmt: skip
def test_shown(variable: Variable, represented: str, text: str) -> None:
    assert repr(variable) == represented
    assert str(variable) == text


def test_formatted() -> None:
    loss = Variable(np.array(2.5, "f"))
    assert f"{loss:.3f} {loss:8.1e} {loss}" == "2.500  2.5e+00 variable(2.5)"
    with pytest.raises(ValueError, match="size 1"):
        f"{Variable(ONES):.3f}"


def test_facts() -> None:
    x = Variable(ONES.astype(np.float16), name="x")
    assert (x.shape, x.ndim, x.size, x.dtype, len(x)) == ((2, 3), 2, 6, np.float16, 2)
    assert (x.name, x.label, x.rank, x.creator, x.requires_grad) == ("x", "(2, 3), float16", 0, None, True)
    assert x.summary() == "<variable x>"
    assert x.xp is np
    assert str(x.device) == "@numpy"
    assert x.data is x.array is x.raw_array
    assert np.asarray(x).dtype == np.float16
    assert x.debug_print() == (
        "<variable x>\n- device: CPU\n- backend: <class 'numpy.ndarray'>\n- shape: (2, 3)\n- dtype: float16\n"
        "- statistics: mean=1.00000000, std=0.00000000\n- grad: None"
    )


def test_name_follows_to_the_node() -> None:
    x = Variable(ONES)
    x.name = "late"
    assert x.node.name == "late"
    assert Variable(np.array(1.0)).label == "float64"


def test_numbers() -> None:
    x = Variable(np.array([2.5]))
    assert x.item() == float(x) == 2.5
    assert int(x) == 2
    with pytest.raises(ValueError, match="size 1"):
        Variable(ONES).item()
    with pytest.raises(TypeError):
        len(Variable(np.array(1.0)))
    assert [v.array.tolist() for v in Variable(np.arange(2.0))] == [0, 1]


@pytest.mark.parametrize(
    "compare",
    [lambda x: x == x, lambda x: x != x, lambda x: x < x, lambda x: x <= x, lambda x: x > x, lambda x: x >= x],
)
def test_no_comparison(compare) -> None:
    with pytest.raises(TypeError, match="Variables do not support"):
        compare(Variable(ONES))


def test_no_truth_and_no_hash() -> None:
    with pytest.raises(TypeError, match="Variables cannot be evaluated as Python bool"):
        bool(Variable(ONES))
    with pytest.raises(TypeError, match="unhashable"):
        hash(Variable(ONES))


@pytest.mark.parametrize("wrong", [3.0, [1, 2], np.float32(1), "x"])
def test_only_arrays(wrong: object) -> None:
    with pytest.raises(TypeError, match="numpy.asarray"):
        Variable(wrong)
    with pytest.raises(TypeError, match="numpy.asarray"):
        Variable(ONES).array = wrong


def test_arguments() -> None:
    with pytest.raises(TypeError, match="'foo'"):
        Variable(ONES, foo=1)
    with pytest.raises(ValueError, match="volatile"):
        Variable(ONES, volatile=True)


def test_replacing_the_array_updates_the_node() -> None:
    x = Variable(ONES)
    x.array = np.zeros(5)
    assert (x.node.shape, x.node.dtype) == ((5,), np.float64)


@pytest.mark.parametrize(
    ("grad", "error", "message"),
    [
        (np.ones((3, 2), np.float32), GradientError, "grad: (3, 2) != data: (2, 3)"),
        (np.ones((2, 3)), GradientTypeError, "grad: float64 != data: float32"),
        ([1], GradientTypeError, "Actual: <class 'list'>"),
    ],
)
def test_wrong_gradient(grad: object, error: type[Exception], message: str) -> None:
    x = Variable(ONES)
    with pytest.raises(error) as caught:
        x.grad = grad
    assert message in str(caught.value)
    assert x.grad is None


def test_gradient_and_its_variable_are_one() -> None:
    x = Variable(ONES)
    g = Variable(ONES * 2)
    x.grad_var = g
    g.array = ONES * 3
    assert x.grad[0, 0] == 3
    x.grad = ONES * 4
    assert x.grad_var is not None
    assert x.grad_var.array is x.grad
    assert x.grad_var is x.grad_var
    x.cleargrad()
    assert x.grad is x.grad_var is None
    with pytest.warns(DeprecationWarning, match="cleargrad"):
        x.zerograd()
    assert not x.grad.any()
    with pytest.raises(TypeError, match="must be a Variable"):
        x.grad_var = ONES


def test_addgrad_and_copydata() -> None:
    x = Variable(ONES)
    y = Variable(ONES * 2, grad=ONES * 3)
    x.addgrad(Variable(ONES))
    assert x.grad is None
    x.addgrad(y)
    assert x.grad is not y.grad
    x.addgrad(y)
    assert x.grad[0, 0] == 6
    array = np.zeros((2, 3), np.float32)
    x = Variable(array)
    x.copydata(y)
    assert x.array is array
    assert array[0, 0] == 2


def test_copies_have_no_history() -> None:
    x = Variable(ONES, name="x", grad=ONES * 2, requires_grad=False)
    y = F.exp(x)
    for copied in (copy.copy(x), copy.deepcopy(x), pickle.loads(pickle.dumps(x))):
        assert (copied.name, copied.requires_grad, copied.grad[0, 0]) == ("x", False, 2)
        assert copied.node is not x.node
        assert copied.node.get_variable() is copied
    assert copy.copy(x).array is x.array
    assert copy.deepcopy(x).array is not x.array
    assert copy.deepcopy(y).creator is copy.copy(y).creator is None


@pytest.mark.parametrize(
    ("call", "shape"),
    [
        (lambda x: x.reshape(3, 2), (3, 2)),
        (lambda x: x.reshape((3, 2)), (3, 2)),
        (lambda x: x.reshape([6]), (6,)),
        (lambda x: x.reshape(-1), (6,)),
        (lambda x: x.T, (3, 2)),
        (lambda x: x.transpose(), (3, 2)),
        (lambda x: x.transpose(None), (3, 2)),
        (lambda x: x.transpose(1, 0), (3, 2)),
        (lambda x: x.transpose((1, 0)), (3, 2)),
        (lambda x: x.transpose([0, 1]), (2, 3)),
    ],
)
def test_shapes(call, shape: tuple[int, ...]) -> None:
    x = Variable(np.arange(6, dtype=np.float32).reshape(2, 3))
    y = call(x)
    assert y.shape == shape
    y.grad = np.ones(shape, np.float32)
    y.backward()
    assert x.grad.shape == (2, 3)


def test_unchain() -> None:
    x = Variable(ONES)
    y = F.exp(F.exp(x))
    middle = y.creator.inputs[0]
    y.unchain_backward()
    assert y.creator is None
    assert middle.creator is None
    z = F.exp(x)
    z.unchain()
    assert z.creator is None


def test_devices_without_a_gpu() -> None:
    x = Variable(ONES, grad=ONES)
    x.to_cpu()
    x.to_device("@numpy")
    assert x.array is ONES
    if not kusari.cuda.available:
        with pytest.raises(DeviceError, match=r"kusari\[gpu\]"):
            x.to_gpu()


def test_as_variable_and_as_array() -> None:
    x = Variable(ONES)
    assert kusari.as_variable(x) is x
    assert not kusari.as_variable(ONES).requires_grad
    assert kusari.as_array(x) is kusari.as_array(ONES) is ONES


def test_numpy_on_the_left_defers() -> None:
    assert isinstance(ONES * Variable(ONES), Variable)
    assert isinstance(np.float32(2) * Variable(ONES), Variable)
    with pytest.raises(TypeError):
        np.sin(Variable(ONES))
