"""Arrays in the hands of the user's code: identity, texts, places, subclasses, memory, layouts, indices."""
from __future__ import annotations

import collections
import sys
import types
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from static.models import Model
from static.observed.harness import check

import kusari
import kusari.functions as F
from kusari import Parameter, Variable

KEPT: Any = None


class Tagged(np.ndarray):
    """An array with a unit."""

    def __array_finalize__(self, obj: Any) -> None:
        self.unit = getattr(obj, "unit", "m")

    def total(self) -> float:
        return float(self.sum())


class Doubling(np.ndarray):
    def __mul__(self, other: Any) -> Any:
        return np.multiply(np.asarray(self), other) * 2


class MyVariable(Variable):
    def scaled(self) -> Any:
        return self * 3

    @property
    def kind(self) -> str:
        return "mine"


class Slots:
    __slots__ = ("a",)


# Two arrays, which may be one.
PAIRS: dict[str, Callable[[Any, Any], Any]] = {
    "is": lambda a, b: F.tanh(a) if a is b else F.relu(a) + b,
    "is not": lambda a, b: F.tanh(a) if a is not b else F.relu(a) + b,
    "id": lambda a, b: F.tanh(a) if id(a) == id(b) else F.relu(a) + b,
    "in a list of ids": lambda a, b: F.tanh(a) if id(b) in [id(a)] else F.relu(a),
    "in a dictionary of ids": lambda a, b: F.tanh(a) * {id(a): 2.0}.get(id(b), 1.0),
    "shares_memory": lambda a, b: F.tanh(a) if np.shares_memory(a, b) else F.relu(a) + b,
    "may_share_memory": lambda a, b: F.tanh(a) if np.may_share_memory(a, b) else F.relu(a) + b,
    "base": lambda a, b: F.tanh(a) if b.base is a else F.relu(a) + b,
    "no base": lambda a, b: F.tanh(a) if b.base is None else F.relu(a) + b,
    "address": lambda a, b: F.tanh(a) if a.ctypes.data == b.ctypes.data else F.relu(a) + b,
    "array interface": lambda a, b: F.tanh(a) if (
        a.__array_interface__["data"] == b.__array_interface__["data"]) else F.relu(b),
    "array_equal": lambda a, b: F.tanh(a) if np.array_equal(a, b) else F.relu(a) + b,
    "elements compared": lambda a, b: F.tanh(a) if (a == b).all() else F.relu(a) + b,
    "Variables of them": lambda a, b: F.tanh(a) if (
        kusari.as_variable(a).array is kusari.as_variable(b).array) else F.relu(b),
    "strides": lambda a, b: F.tanh(a) * (a.strides[0] + b.strides[0]),
    "contiguous": lambda a, b: F.tanh(a) if b.flags.c_contiguous else F.relu(a),
    "writeable": lambda a, b: F.tanh(a) if b.flags.writeable else F.relu(a),
    "owndata": lambda a, b: F.tanh(a) if b.flags.owndata else F.relu(a),
    "reference count": lambda a, b: F.tanh(a) * (1 + 0 * sys.getrefcount(a)) + b,
    "size of": lambda a, b: F.tanh(a) * (1 + (sys.getsizeof(b) > 10**6)),
}
SECONDS: list[Callable[[Any], Any]] = [lambda x: x, lambda x: x.copy(), lambda x: x[:], lambda x: x.T.copy().T]


@pytest.mark.parametrize("name", PAIRS)
@pytest.mark.parametrize("first", [0, 1])
def test_pairs_of_arrays(first: int, name: str) -> None:
    """The kind of the second array changes, and the first call has either."""
    body = PAIRS[name]

    def program(decorate: Any) -> Any:
        static = decorate(lambda a, b: body(a, b))

        def call(i: int, x: Any) -> Any:
            order = [first, first, 1 - first, 1 - first, first, 2, 3, 2]
            return static(x, SECONDS[order[i]](x))
        return call

    check(program)


@pytest.mark.parametrize("name", ["is", "is not", "id", "in a list of ids", "in a dictionary of ids"])
@pytest.mark.parametrize("first", [True, False])
def test_pairs_of_variables(first: bool, name: str) -> None:
    body = PAIRS[name]

    def program(decorate: Any) -> Any:
        static = decorate(lambda a, b: body(a, b))

        def call(i: int, x: Any) -> Any:
            v = Variable(x)
            y = static(v, v if (i // 2 % 2 == 0) is first else Variable(x))
            F.sum(F.tanh(y)).backward()
            return y, v
        return call

    check(program)


# What is done with an array, and what the caller finds afterwards; ``o`` is a model, a result follows.
def kept_in(name: str, wrap: Callable[[Any], Any] = lambda a: a) -> Callable[[Any, Any], Any]:
    def body(s: Any, x: Any) -> Any:
        setattr(s, name, wrap(x))
        return F.tanh(s.l(x))
    return body


def looked_at(value: Callable[[Any], Any]) -> Callable[[Any, Any], Any]:
    return kept_in("kept", value)


def kept_in_class(s: Any, x: Any) -> Any:
    type(s).last = x
    return F.tanh(s.l(x))


def kept_in_slot(s: Any, x: Any) -> Any:
    s.slots.a = x
    return F.tanh(s.l(x))


def kept_in_global(s: Any, x: Any) -> Any:
    global KEPT
    KEPT = x
    return F.tanh(s.l(x))


def kept_and_used(s: Any, x: Any) -> Any:
    y = F.tanh(s.l(x)) if s.kept is None else F.tanh(s.l(x)) + s.kept
    s.kept = x
    return y


KEEPING: dict[str, Callable[[Any, Any], Any]] = {
    "attribute": kept_in("kept"),
    "tuple": kept_in("kept", lambda a: (a, 1)),
    "list": kept_in("kept", lambda a: [a]),
    "dictionary": kept_in("kept", lambda a: {"a": a}),
    "namespace": kept_in("kept", lambda a: types.SimpleNamespace(a=a)),
    "deque": kept_in("kept", lambda a: collections.deque([a])),
    "closure": kept_in("kept", lambda a: (lambda: a)()),
    "nested": kept_in("kept", lambda a: ([(a,)], {"k": [a]})),
    "a Variable of it": kept_in("kept", Variable),
    "a view": kept_in("kept", lambda a: a[1:]),
    "transposed": kept_in("kept", lambda a: a.T),
    "copy": kept_in("kept", lambda a: a.copy()),
    "twice": kept_in("kept", lambda a: a * 2),
    "slot": kept_in_slot,
    "attribute of the class": kept_in_class,
    "global": kept_in_global,
    "list's append": lambda s, x: (s.list.append(x), F.tanh(s.l(x)))[1],
    "list's item": lambda s, x: (s.list.__setitem__(slice(None), [x]), F.tanh(s.l(x)))[1],
    "dictionary's item": lambda s, x: (s.dict.__setitem__("x", x), F.tanh(s.l(x)))[1],
    "setdefault": lambda s, x: (s.dict.setdefault("x", x), F.tanh(s.l(x)))[1],
    "used in the next call": kept_and_used,
    "persistent": lambda s, x: (setattr(s, "state", x[0] * 0.5), F.tanh(s.l(x)))[1],
    "str": looked_at(lambda a: str(a)),
    "repr": looked_at(lambda a: repr(a)),
    "f-string": looked_at(lambda a: f"{a[0]}"),
    "format": looked_at(lambda a: f"{a.shape} {a[0, 0]:.2f}"),
    "tolist": looked_at(lambda a: a.tolist()),
    "item": looked_at(lambda a: a.item(0)),
    "element": looked_at(lambda a: a[0, 0]),
    "float": looked_at(lambda a: float(a.sum())),
    "bytes": looked_at(lambda a: a.tobytes()),
    "memoryview": looked_at(lambda a: memoryview(a).tolist()),
    "min and max": looked_at(lambda a: (a.min(), np.max(a))),
    "argmax": looked_at(lambda a: int(a.argmax())),
    "sorted": looked_at(lambda a: sorted(a[0])),
    "sum of rows": looked_at(lambda a: [float(r.sum()) for r in a]),
    "nonzero": looked_at(lambda a: np.nonzero(a > 0)),
    "unique": looked_at(lambda a: np.unique(np.sign(a))),
    "type": looked_at(lambda a: type(a)),
    "class": looked_at(lambda a: a.__class__),
    "isinstance": looked_at(lambda a: (isinstance(a, np.ndarray), isinstance(a, Variable))),
    "shape": looked_at(lambda a: (a.shape, a.ndim, a.size, len(a), a.nbytes, a.itemsize)),
    "dtype": looked_at(lambda a: (a.dtype, a.dtype.name)),
    "hash of bytes": looked_at(lambda a: hash(a.tobytes())),
    "truth": looked_at(lambda a: bool(a[:1, :1] > 0)),
    "dir": looked_at(lambda a: "sum" in dir(a)),
    "allclose": looked_at(lambda a: np.allclose(a, a * 2)),
    "linalg": looked_at(lambda a: float(np.linalg.norm(a))),
    "savetxt": looked_at(lambda a: np.array2string(a, precision=2)),
}


@pytest.mark.parametrize("name", KEEPING)
@pytest.mark.parametrize("variable", [False, True])
def test_arrays_that_are_kept(variable: bool, name: str) -> None:
    body = KEEPING[name]

    def program(decorate: Any) -> Any:
        class Decorated(Model):
            last: Any = None

            def __init__(self) -> None:
                super().__init__()
                self.kept: Any = None
                self.list: list[Any] = []
                self.dict: dict[str, Any] = {}
                self.slots = Slots()
                self.slots.a = None
                self.add_persistent("state", np.zeros(4, "f"))

            @decorate
            def forward(self, x: Any) -> Any:
                return body(self, x.array if variable else x)

        model = Decorated()

        def call(i: int, x: Any) -> Any:
            y = model(Variable(x) if variable else x)
            return y, model.kept, Decorated.last, model.slots, KEPT, list(model.list), dict(model.dict), model
        return call

    check(program)


# Subclasses after plain ones and the other way round.
SUBCLASSES: dict[str, tuple[list[Callable[[Any], Any]], Callable[[Any], Any]]] = {
    "ndarray's method": ([lambda x: x, lambda x: x.view(Tagged)], lambda x: F.tanh(x) * (
        x.total() if hasattr(x, "total") else 1.0)),
    "ndarray's attribute": ([lambda x: x, lambda x: x.view(Tagged)],
                            lambda x: F.tanh(x) * len(getattr(x, "unit", "abc"))),
    "ndarray's operator": ([lambda x: x, lambda x: x.view(Doubling)], lambda x: F.tanh(x * 2.0)),
    "ndarray's type": ([lambda x: x, lambda x: x.view(Tagged)],
                       lambda x: F.tanh(x) if type(x) is np.ndarray else F.relu(x)),
    "ndarray by isinstance": ([lambda x: x, lambda x: x.view(Tagged)],
                              lambda x: F.tanh(x) if isinstance(x, Tagged) else F.relu(x)),
    "two of ndarray": ([lambda x: x.view(Doubling), lambda x: x.view(Tagged)], lambda x: F.tanh(x * 2.0)),
    "masked": ([lambda x: x, lambda x: np.ma.masked_array(x, x > 0)],
               lambda x: F.tanh(np.asarray(x)) * float(x.mean())),
    "Variable's method": ([Variable, MyVariable], lambda v: F.tanh(v.scaled() if hasattr(v, "scaled") else v)),
    "Variable's property": ([Variable, MyVariable], lambda v: F.tanh(v) * len(getattr(v, "kind", "variable"))),
    "Variable's type": ([Variable, MyVariable], lambda v: F.tanh(v) if type(v) is Variable else F.relu(v)),
    "Variable by isinstance": ([Variable, MyVariable], lambda v: F.tanh(v) if isinstance(v, MyVariable) else F.relu(v)),
    "Parameter": ([Variable, Parameter], lambda v: F.tanh(v) if isinstance(v, Parameter) else F.relu(v)),
    "array or Variable": ([lambda x: x, Variable], lambda v: F.tanh(v) if isinstance(v, Variable) else F.relu(v)),
    "array or list": ([lambda x: x, lambda x: x.tolist()],
                      lambda v: F.tanh(v if isinstance(v, np.ndarray) else np.array(v, "f"))),
    "array or scalar": ([lambda x: x[0, 0], lambda x: float(x[0, 0])], lambda v: F.tanh(np.full(3, v, "f"))),
    "another dtype": ([lambda x: x, lambda x: x.astype("d")], lambda v: F.tanh(v) * v.dtype.itemsize),
    "another byte order": ([lambda x: x, lambda x: x.astype(">f4")], lambda v: F.tanh(np.asarray(v, "f")) * (
        1 if v.dtype.isnative else 2)),
}


@pytest.mark.parametrize("name", SUBCLASSES)
@pytest.mark.parametrize("order", [1, -1])
def test_subclasses(order: int, name: str) -> None:
    kinds, body = SUBCLASSES[name]

    def program(decorate: Any) -> Any:
        static = decorate(lambda x: body(x))
        return lambda i, x: static(kinds[::order][i // 2 % 2](x))

    check(program)


def indexed(index: Callable[[int], Any], body: Callable[[Any, Any], Any]) -> Any:
    def program(decorate: Any) -> Any:
        static = decorate(lambda x, k: body(F.tanh(x), k))

        def call(i: int, x: Any) -> Any:
            try:
                return static(x, index(i))
            except (IndexError, ValueError, kusari.errors.KusariError) as error:
                return type(error)
        return call
    return program


def constant(values: list[Any]) -> Callable[[int], Any]:
    return lambda i: values[i % len(values)]


INDICES: dict[str, tuple[Callable[[int], Any], Callable[[Any, Any], Any]]] = {
    "below -n": (lambda i: np.array([0, -1, -4 if i == 5 else -3]), lambda h, k: h[k]),
    "beyond n": (lambda i: np.array([0, 3 if i == 5 else 2]), lambda h, k: h[k]),
    "below -n in a pair": (lambda i: np.array([0, -9 if i == 5 else -4]), lambda h, k: h[[0, 1], k]),
    "a number below -n": (lambda i: -4 if i == 5 else -3, lambda h, k: h[k]),
    "embedded below 0": (lambda i: np.array([0, -1 if i == 5 else 2], "i"), lambda h, k: F.embed_id(k, h)),
    "embedded beyond n": (lambda i: np.array([0, 3 if i == 5 else 2], "i"), lambda h, k: F.embed_id(k, h)),
    "embedded with ignored": (lambda i: np.array([-1, i % 3], "i"), lambda h, k: F.embed_id(k, h, ignore_label=-1)),
    "selected beyond n": (lambda i: np.array([0, 1, 9 if i == 5 else 2], "i"), lambda h, k: F.select_item(h, k)),
    "selected below 0": (lambda i: np.array([0, 1, -1 if i == 5 else 2], "i"), lambda h, k: F.select_item(h, k)),
    "permutated": (lambda i: np.array([[0, 1, 2], [2, 0, 1], [1, 1, 0]][i % 3], "i"), lambda h, k: F.permutate(h, k)),
    "labels beyond n": (lambda i: np.array([0, 1, 7 if i == 5 else 2], "i"),
                        lambda h, k: F.softmax_cross_entropy(h, k)),
    "labels below -1": (lambda i: np.array([0, 1, -2 if i == 5 else -1], "i"),
                        lambda h, k: F.softmax_cross_entropy(h, k)),
    "masks with another count": (lambda i: np.array([True, i % 3 > 0, i % 2 > 0]), lambda h, k: h[k]),
    "masks of elements": (lambda i: (np.arange(12).reshape(3, 4) * (i + 1)) % 3 == 0, lambda h, k: h[k]),
    "masks in a list": (lambda i: [True, i % 3 > 0, True], lambda h, k: h[k]),
    "masks of columns": (lambda i: np.array([True, i % 3 > 0, i % 2 > 0, True]), lambda h, k: h[:, k]),
    "masks that select nothing": (lambda i: np.zeros(3, bool) if i % 3 == 2 else np.ones(3, bool), lambda h, k: h[k]),
    "masks in a product": (lambda i: np.array([[True], [i % 3 > 0], [i % 2 > 0]]), lambda h, k: h * k),
    "masks in where": (lambda i: np.arange(12).reshape(3, 4) % (i + 2) == 0, lambda h, k: F.where(k, h, -h)),
    "other masks of the same count": (lambda i: np.roll([True, True, False], i), lambda h, k: h[k]),
    "slices": (lambda i: slice(0, 2 + i // 3), lambda h, k: h[k]),
    "slices that step back": (lambda i: slice(None, None, -1 if i // 3 == 1 else 1), lambda h, k: h.array[k] * h[k]),
    "numbers of NumPy": (constant([np.int64(0), np.int64(0), np.int64(0), np.int32(1), np.int64(2)]),
                         lambda h, k: h[k]),
    "lists": (lambda i: [0, i // 3], lambda h, k: h[k]),
    "scattered beyond n": (lambda i: np.array([0, 9 if i == 5 else 2]),
                           lambda h, k: F.scatter_add(h, k, np.ones((2, 4), "f"))),
    "repeated": (lambda i: [1, 1 + i // 3, 2], lambda h, k: F.repeat(h, k, axis=0)),
    "split": (lambda i: [1, 2 + i // 3], lambda h, k: F.split_axis(h, k, 1)[1]),
    "one-hot": (lambda i: np.array([0, 1, -4 if i == 5 else -1]), lambda h, k: h * np.eye(3, 4, dtype="f")[k]),
}


@pytest.mark.parametrize("name", INDICES)
def test_indices(name: str) -> None:
    check(indexed(*INDICES[name]))
