"""Arrays of ChainerX: their elements, memory and exchange with others."""
from __future__ import annotations

import copy
import pickle
import pkgutil
from typing import Any

import numpy as np
import pytest

import kusari.chainerx as chx
from kusari import backend, initializers

X = np.arange(6, dtype=np.float32).reshape(2, 3)


def same(x: Any, y: Any) -> None:
    assert isinstance(x, chx.ndarray)
    np.testing.assert_array_equal(chx.to_numpy(x), y)


@pytest.mark.parametrize("share", [
    lambda x: chx.array(x, copy=False), chx.asarray, chx.from_dlpack, lambda x: chx.frombuffer(x.data, "float32"),
    backend.to_chx, backend.get_device("native").send, lambda x: chx.asarray(x).view(),
    lambda x: chx.asarray(x).reshape(6), lambda x: chx.asarray(x).T, lambda x: chx.asarray(x)[1:],
    lambda x: chx.asarray(x).as_grad_stopped(),
])  # fmt: skip
def test_memory_is_shared(share: Any) -> None:
    x = X.copy()
    found = share(x)
    x[1, 2] = 9
    assert 9 in found.tolist() or 9 in np.ravel(found.tolist())
    back = chx.to_numpy(found, copy=False)
    back[...] = 7
    assert x[1, 2] == 7


@pytest.mark.parametrize("make", [chx.array, chx.copy, lambda x: chx.asarray(x).copy(), copy.copy, copy.deepcopy,
                                  lambda x: chx.asarray(x).as_grad_stopped(copy=True), lambda x: pickle.loads(
                                      pickle.dumps(chx.asarray(x, device="native:1")))])  # fmt: skip
def test_memory_is_copied(make: Any) -> None:
    x = chx.array(X)
    found = make(x)
    x.fill(0)
    same(found, X)


def test_exchange() -> None:
    x = chx.array(X, device="native:1")
    assert pickle.loads(pickle.dumps(x)).device is x.device is copy.deepcopy(x).device
    assert np.shares_memory(np.from_dlpack(x), chx.to_numpy(x, copy=False))
    assert np.shares_memory(backend.from_chx([x])[0], chx.to_numpy(x, copy=False))
    with pytest.raises(chx.ChainerxError, match="as_grad_stopped"):
        x.require_grad().__dlpack__()
    with pytest.raises(TypeError, match="convert it with chainerx.array"):
        chx.ones(3) + X
    assert backend.get_array_module(x) is chx
    assert backend.get_device_from_array(x).name == "native:1"


def test_elements_are_set() -> None:
    x = chx.array(X)
    alias = x
    x += 1
    x *= chx.array([1, 2, 3], "float32")
    x[0] = 0
    x[1, 1:] = chx.array([5, 6], "float32")
    assert alias is x
    same(x, [[0, 0, 0], [4, 5, 6]])
    for wrong, error in ((lambda: x.astype("int8").__iadd__(0.5), chx.DtypeError),
                         (lambda: x.__iadd__(chx.ones((4, 2, 3))), chx.DimensionError)):
        with pytest.raises(error):
            wrong()
    x.require_grad()
    for use in (lambda: x.__iadd__(1), lambda: x.__setitem__(0, 1), lambda: chx.zeros((2, 3)).__iadd__(x),
                lambda: chx.copyto(x, 0)):
        with pytest.raises(chx.ChainerxError, match="part of a graph"):
            use()
    x.as_grad_stopped().fill(1)
    same(x, np.ones((2, 3)))


def test_shown() -> None:
    assert repr(chx.array(X)) == ("array([[0., 1., 2.],\n       [3., 4., 5.]], shape=(2, 3), dtype=float32, "
                                  "device='native:0')")
    assert repr(chx.ones((), "int8").astype("float32").require_grad()) == (
        "array(1., shape=(), dtype=float32, device='native:0', backprop_ids=['<default>'])")


def test_addresses() -> None:
    x = chx.array(X)
    part = x[1:, 1:]
    assert part.data_ptr + part.offset == x.data_ptr + 16
    assert (x.data_size, part.data_size, part.is_contiguous, x.T.is_contiguous) == (24, 8, True, False)


# Functions that NumPy has as well, on arrays of any type: the same values.
CASES: list[tuple[str, Any]] = [(name, f) for name, f in {
    "add": lambda xp, x: xp.add(x, x), "subtract": lambda xp, x: x - x[0], "remainder": lambda xp, x: x % 2,
    "floor_divide": lambda xp, x: x // 2, "negative": lambda xp, x: -x, "maximum": lambda xp, x: xp.maximum(x, 2),
    "clip": lambda xp, x: x.clip(1, 3), "where": lambda xp, x: xp.where(x > 2, x, 0 * x), "abs": lambda xp, x: abs(x),
    "concatenate": lambda xp, x: xp.concatenate([x, x], 1), "stack": lambda xp, x: xp.stack([x, x], 1),
    "hstack": lambda xp, x: xp.hstack([x, x]), "vstack": lambda xp, x: xp.vstack([x, x]),
    "dstack": lambda xp, x: xp.dstack([x, x]), "split": lambda xp, x: xp.split(x, [1], 1)[1],
    "split in parts": lambda xp, x: xp.split(x, np.array(3), 1)[1], "once": lambda xp, x: xp.repeat(x[::-1], 1, 0),
    "repeat": lambda xp, x: x.repeat(2, 1), "take": lambda xp, x: x.take([2, -1], axis=1),
    "flip": lambda xp, x: xp.flip(x, 1), "moveaxis": lambda xp, x: xp.moveaxis(x, 0, 1), "T": lambda xp, x: x.T,
    "rollaxis": lambda xp, x: xp.rollaxis(x, 1), "expand_dims": lambda xp, x: xp.expand_dims(x, 1),
    "squeeze": lambda xp, x: x[:1].squeeze(0), "sum": lambda xp, x: x.sum(1, keepdims=True),
    "max": lambda xp, x: x.max((0, 1)), "min": lambda xp, x: x.min(0), "argmax": lambda xp, x: x.argmax(1),
    "cumsum": lambda xp, x: xp.cumsum(x, 1), "all": lambda xp, x: (x >= 0).all(), "any": lambda xp, x: (x > 4).any(0),
    "count_nonzero": lambda xp, x: xp.count_nonzero(x, 1), "nonzero": lambda xp, x: xp.nonzero(x)[1],
    "dot": lambda xp, x: x.dot(x.T), "tril": lambda xp, x: xp.tril(x, 1), "triu": lambda xp, x: xp.triu(x),
    "diag": lambda xp, x: xp.diag(x), "diagflat": lambda xp, x: xp.diagflat(x, 1),
    "meshgrid": lambda xp, x: xp.meshgrid(x[0], x[1])[1], "broadcast_to": lambda xp, x: xp.broadcast_to(x, (2, 2, 3)),
    "square": lambda xp, x: xp.square(x), "sign": lambda xp, x: xp.sign(x), "item": lambda xp, x: x[1, [0, 2]],
    "atleast_3d": lambda xp, x: xp.atleast_3d(x), "less": lambda xp, x: x < 3, "isnan": lambda xp, x: xp.isnan(x),
}.items()]  # fmt: skip


@pytest.mark.parametrize("dtype", ["float32", "int8", "float64"])
@pytest.mark.parametrize(("name", "call"), CASES)
def test_values_of_numpy(name: str, call: Any, dtype: str) -> None:
    same(call(chx, chx.array(X, dtype)), call(np, X.astype(dtype)))


@pytest.mark.parametrize("call", [
    lambda xp: xp.arange(2, 9, 3), lambda xp: xp.linspace(0, 1, 5), lambda xp: xp.eye(2, 3, 1),
    lambda xp: xp.full((2,), 3), lambda xp: xp.tri(3, 4, 1), lambda xp: xp.identity(2), lambda xp: xp.zeros((2, 1)),
    lambda xp: xp.fromiter(iter([1, 2]), "int32"), lambda xp: xp.fromfunction(lambda i, j: i + j, (2, 3)),
    lambda xp: xp.array([[1, 2], [3, 4]]), lambda xp: xp.ascontiguousarray(xp.arange(4)[::2]),
])  # fmt: skip
def test_creation(call: Any) -> None:
    same(call(chx), call(np))


@pytest.mark.parametrize("make", [
    initializers.Normal, initializers.Uniform, initializers.Orthogonal, initializers.Identity, initializers.One,
    lambda: initializers.HeNormal(rng=np.random.RandomState(1)), lambda: initializers.Constant(X[0]),
])  # fmt: skip
def test_initializers_fill(make: Any) -> None:
    found, expected = chx.zeros((3, 3), "float32"), np.zeros((3, 3), "f")
    for array in (found, expected):
        np.random.seed(1)
        make()(array)
    same(found, expected)


def test_no_module_is_called_like_a_routine() -> None:
    """An import of one would put it in the routine's place."""
    modules = {module.name for module in pkgutil.iter_modules(chx.__path__)}
    assert not modules & {*chx.FUNCTIONS} and {"arrays", "routines"} <= modules
