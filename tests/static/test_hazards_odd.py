"""What code reads where no name in it says so: computed names, odd containers, generators' states, what comes later."""
from __future__ import annotations

import copy
import ctypes
import sys
import types
import weakref
from typing import Any

import numpy as np
import pytest

import kusari
import kusari.functions as F


def items(values: Any) -> list[Any]:
    values = list(values)
    rs = np.random.RandomState(7)
    return [(v, rs.randn(3, 4).astype("f")) for v in values]


class Pair:
    __slots__ = ("k1", "__weakref__")

    def __init__(self) -> None:
        self.k1 = 1.0


def scaled(x: Any) -> Any:
    function: Any = scaled
    return F.tanh(x) * function.k


class Nameless:
    """Its ``__module__`` is no text, as that of classes made by Cython."""

    __module__: Any = property(lambda self: "nowhere")
    k2 = 1.0

    def __init__(self) -> None:
        self.k1 = 1.0

    def scaled(self, x: Any) -> Any:
        return F.tanh(x) * self.k1 * self.k2


def setting(o: Any, i: int) -> None:
    o.k1 = float(i)


def item(o: Any, i: int) -> None:
    o.items["a"] = i


# What makes the place, what reads it, what changes it.
ODD: dict[str, Any] = {
    "computed name": (lambda: types.SimpleNamespace(k1=1.0), lambda o, x: F.tanh(x) * getattr(o, f"k{len(x) - 2}"),
                      setting),
    "computed slot": (Pair, lambda o, x: F.tanh(x) * getattr(o, f"k{len(x) - 2}"), setting),
    "vars": (lambda: types.SimpleNamespace(k1=1.0), lambda o, x: F.tanh(x) * vars(o)["k1"], setting),
    "dictionary view": (lambda: types.SimpleNamespace(items=(d := {"a": 1}), view=d.values()),
                        lambda o, x: F.tanh(x) * sum(o.view), item),
    "proxy": (lambda: (p := Pair(), weakref.proxy(p)), lambda o, x: F.tanh(x) * o[1].k1,
              lambda o, i: setattr(o[0], "k1", i)),
    "array of objects": (lambda: np.array([1, {"k": 2}], object), lambda o, x: F.tanh(x) * o[1]["k"],
                         lambda o, i: o[1].__setitem__("k", i)),
    "class without a module": (Nameless, lambda o, x: o.scaled(x) * isinstance(o, type(o)), setting),
    "attribute of a class without a module": (lambda: (setattr(Nameless, "k2", 1.0), Nameless())[1],
                                              lambda o, x: o.scaled(x), lambda o, i: setattr(Nameless, "k2", i)),
    "attribute of a function": (lambda: setattr(scaled, "k", 1), lambda o, x: scaled(x),
                                lambda o, i: setattr(scaled, "k", i)),
}


@pytest.mark.parametrize("name", ODD)
def test_odd_places(both: Any, name: str) -> None:
    both(odd(*ODD[name]), items(range(9)))


def odd(made: Any, read: Any, change: Any) -> Any:
    """What makes a function that reads a place, and changes it every third call."""
    def make(decorate: Any) -> Any:
        o = made()
        f = decorate(lambda x: read(o, x))

        def call(given: Any) -> Any:
            i, x = given
            if i % 3 == 2:
                change(o, i)
            return f(x)
        return call
    return make


@pytest.mark.parametrize("made", [lambda: (ctypes.c_int * 3)(1, 2, 3), lambda: memoryview(bytearray(3))],
                         ids=["ctypes", "memoryview"])
def test_memory_is_not_observed(both: Any, made: Any) -> None:
    make = odd(made, lambda o, x: F.tanh(x) * o[1], lambda o, i: o.__setitem__(1, i))
    both(make, items(range(9)), aside="items of a .* are read, which is not observed")


def test_modules_by_their_names(both: Any) -> None:
    def make(decorate: Any) -> Any:
        global WEIGHT
        WEIGHT = 1.0
        f = decorate(lambda x: F.tanh(x) * sys.modules[__name__].WEIGHT)

        def call(given: Any) -> Any:
            global WEIGHT
            WEIGHT = float(given[0] // 3)
            return f(given[1])
        return call

    both(make, items(range(12)))


WEIGHT = 1.0
GENERATOR = np.random.RandomState(3)
ANYWHERE: dict[str, Any] = {
    "eval": (lambda x: F.tanh(x) * eval("WEIGHT"), "eval"),
    "globals": (lambda x: F.tanh(x) * globals()["WEIGHT"], "globals"),
    "copied generator": (lambda x: F.tanh(x) * float(copy.deepcopy(GENERATOR).rand()), "RandomState"),
    "read generator": (lambda x: F.tanh(x) * int(np.random.get_state()[2] % 7), "state of a generator"),
}


@pytest.mark.parametrize("name", ANYWHERE)
def test_what_reads_anything_steps_aside(both: Any, name: str) -> None:
    body, reason = ANYWHERE[name]

    def make(decorate: Any) -> Any:
        global WEIGHT
        WEIGHT = 1.0
        GENERATOR.seed(3)
        f = decorate(lambda x: body(x))

        def call(given: Any) -> Any:
            global WEIGHT
            WEIGHT = float(given[0])
            GENERATOR.rand()
            np.random.rand()
            return f(given[1])
        return call

    both(make, items(range(5)), aside=reason)


def test_modules_imported_inside(both: Any, tmp_path: Any, monkeypatch: Any) -> None:
    (tmp_path / "settings_of_a_test.py").write_text("k = 1.0\n")
    monkeypatch.syspath_prepend(str(tmp_path))

    def make(decorate: Any) -> Any:
        sys.modules.pop("settings_of_a_test", None)

        @decorate
        def f(x: Any) -> Any:
            from settings_of_a_test import k
            return F.tanh(x) * k

        def call(given: Any) -> Any:
            if given[0] > 3:
                module: Any = sys.modules["settings_of_a_test"]
                module.k = given[0]
            return f(given[1])
        return call

    both(make, items(range(7)))
    sys.modules.pop("settings_of_a_test", None)


def test_entries_of_the_configuration_that_come_later(both: Any) -> None:
    def make(decorate: Any) -> Any:
        f = decorate(lambda x: F.tanh(x) * getattr(kusari.config, "of_a_test", 1.0))

        def call(given: Any) -> Any:
            if given[0] in (3, 5):
                kusari.global_config.of_a_test = float(given[0])
            if given[0] == 7:
                del kusari.global_config.of_a_test
            return f(given[1])
        return call

    both(make, items(range(9)))


def test_attributes_of_classes_that_come_later(both: Any) -> None:
    def make(decorate: Any) -> Any:
        class Above(kusari.Chain):
            later: float

        class Late(Above):
            forward = decorate(lambda self, x: F.tanh(x) * getattr(self, "later", 1.0))
        model = Late()

        def call(given: Any) -> Any:
            if given[0] in (3, 5):
                (Above, Late)[given[0] == 5].later = float(given[0])
            return model(given[1])
        return call

    both(make, items(range(7)))


@pytest.mark.parametrize("argument", [Nameless(), np.random.default_rng, type(np.random.default_rng)],
                         ids=["object", "function", "class"])
def test_arguments_without_a_module(both: Any, argument: Any) -> None:
    """Functions of NumPy's generators are of a class that Cython made."""
    def make(decorate: Any) -> Any:
        f = decorate(lambda x, a: F.tanh(x) * (len(type(a).__name__) + len(type(type(a)).__name__)))
        return lambda x: f(x, argument)

    both(make, [x for _, x in items(range(4))])
