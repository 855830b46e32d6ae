"""Parameter: lazy initialization, gradients before and after, copies, update."""

from __future__ import annotations

import copy
import pickle

import numpy as np
import pytest

import kusari
from kusari import Parameter
from kusari.errors import KusariError, UninitializedParameterError


@pytest.mark.parametrize(
    ("initializer", "shape", "array"),
    [
        (2.0, (2,), [2, 2]),
        (0, 2, [0, 0]),
        (np.array([1, 2], np.float32), None, [1, 2]),
        (np.array([1, 2], np.float32), (2,), [1, 2]),
        (kusari.initializers.One(), (1,), [1]),
        (None, (2,), [np.nan, np.nan]),
    ],
)
def test_initialized_at_once(initializer: object, shape: object, array: list[float]) -> None:
    p = Parameter(initializer, shape)
    assert p.is_initialized
    assert p.dtype == np.float32
    np.testing.assert_array_equal(p.array, array)


def test_lazy() -> None:
    p = Parameter(3, name="W")
    assert not p.is_initialized
    assert repr(p) == "variable W(None)"
    assert p.array is None
    for read in (lambda: p.shape, lambda: p.size, lambda: p.ndim):
        with pytest.raises(UninitializedParameterError, match="'W' is not initialized"):
            read()
    assert not hasattr(p, "shape")
    with pytest.raises(RuntimeError, match="Cannot retrieve Variable.grad"):
        p.grad  # noqa: B018
    p.initialize((2,))
    assert p.array.tolist() == [3, 3]
    assert np.isnan(p.grad).all()
    assert p.node.shape == (2,)


@pytest.mark.parametrize(("method", "grad"), [("cleargrad", None), ("zerograd", [0, 0])])
def test_gradient_before_initialization(method: str, grad: object) -> None:
    p = Parameter(3)
    getattr(p, method)()
    p.initialize((2,))
    np.testing.assert_array_equal(p.grad, grad)


@pytest.mark.parametrize(("dtype", "expected"), [(np.float64, np.float64), (kusari.mixed16, np.float16)])
def test_dtype_is_that_of_the_moment(dtype: object, expected: type) -> None:
    p = Parameter(3)
    with kusari.using_config("dtype", dtype):
        assert p.dtype == expected
        p.initialize((2,))
    assert p.array.dtype == expected


def test_copydata_initializes_either() -> None:
    a, b = Parameter(1, (2,)), Parameter()
    b.copydata(a)
    assert b.array.tolist() == [1, 1]
    c = Parameter(5)
    a.copydata(c)
    assert a.array.tolist() == c.array.tolist() == [5, 5]


def test_addgrad_initializes() -> None:
    p = Parameter(1)
    source = Parameter(2, (2,))
    source.grad = np.array([3, 4], np.float32)
    p.addgrad(source)
    assert p.array.tolist() == [1, 1]
    assert p.grad.tolist() == [3, 4]


@pytest.mark.parametrize("duplicate", [copy.copy, copy.deepcopy, lambda p: pickle.loads(pickle.dumps(p))])
def test_copies(duplicate) -> None:
    lazy = duplicate(Parameter(3, name="W"))
    assert (lazy.name, lazy.is_initialized) == ("W", False)
    lazy.initialize(1)
    assert lazy.array.tolist() == [3]
    p = Parameter(np.ones(2, np.float32))
    p.grad = np.ones(2, np.float32)
    copied = duplicate(p)
    assert type(copied) is Parameter
    assert copied.grad.tolist() == [1, 1]
    assert copied.node.get_variable() is copied


def test_update_uses_the_rule() -> None:
    seen: list[Parameter] = []

    class Rule:
        def update(self, param: Parameter) -> None:
            seen.append(param)

    p = Parameter(0, (1,))
    p.update()
    p.update_rule = Rule()
    p.update()
    assert len(seen) == 1
    assert seen[0] is p


def test_uninitialized_given_to_a_function() -> None:
    with pytest.raises(KusariError, match="has no array yet"):
        kusari.functions.exp(Parameter(name="W"))
