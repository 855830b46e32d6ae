"""Globals that are replaced, appear, disappear, hide built-ins or are patched, and what else a process has one of."""
from __future__ import annotations

import argparse
import builtins
import collections
import functools
import importlib
import logging
import math
import operator
import os
import sys
import time
import types
from collections.abc import Callable
from typing import Any
from unittest import mock

import numpy as np
import pytest
from static.observed.harness import Rows, check

import kusari.functions as F
import kusari.links as L

ROWS = Rows()
K: Any = 1.0
LATER: float  # some programs set it
ACT: Any = F.relu
LOSS: Any = F.mean_squared_error
args = argparse.Namespace(scale=1.0, act="relu", inner=types.SimpleNamespace(k=1.0, kinds=["a"]))
log = logging.getLogger("observed")


class Scaling:
    def __init__(self, k: float) -> None:
        self.k = k

    def __call__(self, x: Any) -> Any:
        return F.tanh(x) * self.k


def helper(use: Any, x: Any) -> Any:
    return use(K, x)


def changed(set_value: Callable[[Any], Any], values: Any, static: Any) -> Any:
    """Return a call that sets the first value, from the fourth call on the second, and at last the first again."""
    def call(i: int, x: Any) -> Any:
        set_value(values[i in (3, 4, 5)])
        return static(x)
    return call


@ROWS.replays
def loss_function(decorate: Any) -> Any:
    return changed(lambda v: globals().update(LOSS=v), (F.mean_squared_error, F.mean_absolute_error),
                   decorate(lambda x: LOSS(F.tanh(x), x)))


@ROWS.replays
def parsed_arguments(decorate: Any) -> Any:
    args.act = "relu"
    static = decorate(lambda x: F.tanh(x) * args.scale if args.act == "relu" else F.relu(x) * args.scale)

    def call(i: int, x: Any) -> Any:
        args.scale = float(i // 3)
        args.act = "tanh" if i == 7 else "relu"
        return static(x)
    return call


@ROWS.replays
def arguments_parsed_again(decorate: Any) -> Any:
    def read(*words: str) -> Any:
        parser = argparse.ArgumentParser()
        parser.add_argument("--scale", type=float, default=1.0)
        return parser.parse_args(words)
    return changed(lambda v: globals().update(args=v), (read(), read("--scale", "3")),
                   decorate(lambda x: F.tanh(x) * args.scale))


@ROWS.replays
def namespace_in_a_namespace(decorate: Any) -> Any:
    args.inner.kinds[:] = ["a"]

    def call(i: int, x: Any) -> Any:
        args.inner.k = 1.0 + i // 4
        args.inner.kinds[0] = "b" if i in (2, 3) else "a"
        return static(x)
    static = decorate(lambda x: F.tanh(x) * args.inner.k if "a" in args.inner.kinds else F.relu(x))
    return call


@ROWS.replays
def attributes_of_vars(decorate: Any) -> Any:
    return changed(lambda v: setattr(args, "scale", v), (1.0, 2.0), decorate(lambda x: F.tanh(x) * vars(args)["scale"]))


@ROWS.replays
def namespaces_compared(decorate: Any) -> Any:
    one, two = types.SimpleNamespace(k=1.0), types.SimpleNamespace(k=1.0)
    return changed(lambda v: setattr(one, "k", v), (1.0, 2.0),
                   decorate(lambda x: F.tanh(x) if one == two else F.relu(x)))


@ROWS.replays
def deque_that_rolls(decorate: Any) -> Any:
    last: Any = collections.deque([1.0, 2.0], maxlen=2)
    return changed(lambda v: last.append(v), (1.0, 5.0), decorate(lambda x: F.tanh(x) * (last[0] + 2 * last[-1])))


@ROWS.replays
def keywords_of_a_partial(decorate: Any) -> Any:
    act = functools.partial(F.leaky_relu, slope=0.1)
    globals().update(ACT=act)
    return changed(lambda v: act.keywords.update(slope=v), (0.1, 0.6), decorate(lambda x: ACT(x)))


@ROWS.replays
def places_in_a_partial(decorate: Any) -> Any:
    """From Python 3.14 on a partial may leave places to later arguments; before, this is the same with all given."""
    later: Any = getattr(functools, "Placeholder", None)
    table = {"k": 1.0}
    act = functools.partial(lambda x, t, y, s: F.tanh(x) * t["k"] - y * s, later, table, later, 3.0)
    globals().update(ACT=act if later is not None else lambda x, y: act.func(x, table, y, 3.0))
    return changed(lambda v: table.update(k=v), (0.1, 0.6), decorate(lambda x: ACT(x, 2 * x)))


@ROWS.replays
def partial_of_a_partial(decorate: Any) -> Any:
    table = {"k": 1.0}
    act = functools.partial(functools.partial(lambda t, s, x: F.tanh(x) * t["k"] * s, table), 2.0)
    globals().update(ACT=act)
    return changed(lambda v: table.update(k=v), (1.0, 3.0), decorate(lambda x: ACT(x)))


@ROWS.replays
def module_in_a_global(decorate: Any) -> Any:
    other = types.ModuleType("other")
    other.__dict__.update(relu=F.tanh)
    return changed(lambda v: globals().update(ACT=v), (F, other), decorate(lambda x: ACT.relu(x)))


@ROWS.falls_back("it may read what it does not name")
def module_in_sys_modules(decorate: Any) -> Any:
    first, second = types.ModuleType("of_the_user"), types.ModuleType("of_the_user")
    first.__dict__.update(k=1.0)
    second.__dict__.update(k=2.0)

    def body(x: Any) -> Any:
        return F.tanh(x) * __import__("of_the_user").k

    return changed(lambda v: sys.modules.update(of_the_user=v), (first, second), decorate(body))


@ROWS.replays
def module_by_import_module(decorate: Any) -> Any:
    module = types.ModuleType("of_another_user")
    sys.modules["of_another_user"] = module
    return changed(lambda v: module.__dict__.update(k=v), (1.0, 2.0),
                   decorate(lambda x: F.tanh(x) * importlib.import_module("of_another_user").k))


@ROWS.falls_back("it may read what it does not name")
def global_by_globals(decorate: Any) -> Any:
    return changed(lambda v: globals().update(K=v), (1.0, 2.0), decorate(lambda x: F.tanh(x) * globals()["K"]))


@ROWS.replays
def global_by_the_module(decorate: Any) -> Any:
    return changed(lambda v: globals().update(K=v), (1.0, 2.0),
                   decorate(lambda x: F.tanh(x) * vars(sys.modules[__name__])["K"]))


@ROWS.falls_back("it may read what it does not name")
def global_by_eval(decorate: Any) -> Any:
    return changed(lambda v: globals().update(K=v), (1.0, 2.0), decorate(lambda x: F.tanh(x) * eval("K + 1")))


@ROWS.falls_back("by eval it may read")
def names_for_eval_by_keyword(decorate: Any) -> Any:
    """From Python 3.13 on."""
    names = {"K": 1.0, "J": 2.0}
    globals().update(J=5.0)

    def body(x: Any) -> Any:
        if sys.version_info < (3, 13):
            return F.tanh(x) * eval("K + J", names) * eval("K + J", {**globals()}, names)
        return F.tanh(x) * eval("K + J", globals=names) * eval("K + J", locals={"K": names["K"]})
    return changed(lambda v: names.update(K=v), (1.0, 2.0), decorate(body))


@ROWS.replays
def global_counted_by_the_function(decorate: Any) -> Any:
    def body(x: Any) -> Any:
        global K
        K += 1
        return F.tanh(x) * K

    globals().update(K=0)
    static = decorate(body)
    return lambda i, x: (static(x), K)


@ROWS.replays
def global_that_hides_a_builtin(decorate: Any) -> Any:
    static = decorate(lambda x: F.tanh(x) * abs(-2.0))

    def call(i: int, x: Any) -> Any:
        if i == 3:
            globals()["abs"] = lambda v: v
        if i == 6:
            del globals()["abs"]
        return static(x)
    return call


@ROWS.replays
def global_that_hides_a_builtin_of_a_helper(decorate: Any) -> Any:
    def inner(x: Any) -> Any:
        return [F.tanh(x) * k for k in sorted([2.0, 1.0])][0]
    static = decorate(lambda x: inner(x))

    def call(i: int, x: Any) -> Any:
        if i == 4:
            globals()["sorted"] = list
        return static(x)
    return call


@ROWS.replays
def name_added_to_builtins(decorate: Any) -> Any:
    def call(i: int, x: Any) -> Any:
        with mock.patch.object(builtins, "round", (lambda v: v) if i in (3, 4) else round):
            return static(x)
    static = decorate(lambda x: F.tanh(x) * round(1.6))
    return call


@ROWS.replays
def global_that_comes_and_goes(decorate: Any) -> Any:
    def body(x: Any) -> Any:
        try:
            return F.tanh(x) * LATER
        except NameError:
            return F.relu(x)

    static = decorate(body)

    def call(i: int, x: Any) -> Any:
        if i == 3:
            globals()["LATER"] = 2.0
        if i == 6:
            del globals()["LATER"]
        return static(x)
    return call


PATCHES: dict[str, tuple[Any, str, Any, Callable[[Any], Any]]] = {
    "a function of the library": (F, "tanh", lambda x: F.sigmoid(x), lambda x: F.tanh(x)),
    "a function another calls": (F, "sigmoid", lambda x: F.relu(x), lambda x: (lambda h: F.sigmoid(h))(F.tanh(x))),
    "a method of a link of the library": (L.PReLU, "forward", lambda self, x: F.tanh(x), lambda x: PRELU(x)),
    "a function of math": (math, "sqrt", lambda v: 3.0, lambda x: F.tanh(x) * math.sqrt(4.0)),
    "a number of math": (math, "pi", 3.0, lambda x: F.tanh(x) * math.pi),
    "a number of numpy": (np, "pi", 3.0, lambda x: F.tanh(x) * np.pi),
    "a function of numpy": (np, "hypot", lambda a, b: 1.0, lambda x: F.tanh(x) * float(np.hypot(3.0, 4.0))),
    "a clock": (time, "time", lambda: 5.0, lambda x: F.tanh(x) * (1.0 if time.time() < 10 else 2.0)),
    "a built-in": (builtins, "oct", lambda n: "0o77777", lambda x: F.tanh(x) * len(oct(2))),  # nobody else calls it
    "a built-in class": (builtins, "bytearray", lambda n: b"12345", lambda x: F.tanh(x) * len(bytearray(3))),
    "a function of functools": (functools, "reduce", lambda f, s: 4.0,
                                lambda x: F.tanh(x) * functools.reduce(operator.add, [1.0, 2.0])),
    "a function of operator": (operator, "neg", lambda v: v, lambda x: F.tanh(x) * operator.neg(2.0)),
    "a class of the library": (L, "PReLU", L.Linear, lambda x: F.tanh(x) if isinstance(PRELU, L.PReLU) else F.relu(x)),
    "a method of a user's class": (Scaling, "__call__", lambda self, x: F.relu(x), lambda x: SCALING(x)),
    "an attribute of a user's class": (Scaling, "k2", 2.0, lambda x: F.tanh(x) * getattr(Scaling, "k2", 1.0)),
    "a function of this module": (sys.modules[__name__], "helper", lambda use, x: F.relu(x), lambda x: helper(mul, x)),
    "arguments of the process": (sys, "argv", ["a", "b", "c"], lambda x: F.tanh(x) * len(sys.argv)),
    "a dictionary of the process": (os, "environ", {"HOME": "abcdef"}, lambda x: F.tanh(x) * len(os.environ["HOME"])),
    "the working directory": (os, "getcwd", lambda: "/a", lambda x: F.tanh(x) * len(os.getcwd())),
}
PRELU, SCALING, mul = L.PReLU(), Scaling(2.0), lambda k, x: F.tanh(x) * 2.0


@pytest.mark.parametrize("name", PATCHES)
def test_patched_names(name: str) -> None:
    of, attribute, new, body = PATCHES[name]

    def program(decorate: Any) -> Any:
        static = decorate(body)

        def call(i: int, x: Any) -> Any:
            if i not in (3, 4):
                return static(x)
            with mock.patch.object(of, attribute, new, create=True):
                return static(x)
        return call

    check(program)


@ROWS.replays
def variables_of_the_environment(decorate: Any) -> Any:
    return changed(lambda v: os.environ.update(OBSERVED=v) if v else os.environ.pop("OBSERVED", None), ("", "3"),
                   decorate(lambda x: F.tanh(x) * float(os.environ.get("OBSERVED", 1))))


@ROWS.replays
def level_of_a_logger(decorate: Any) -> Any:
    return changed(log.setLevel, (logging.ERROR, logging.INFO),
                   decorate(lambda x: F.tanh(x) if log.isEnabledFor(logging.INFO) else F.relu(x)))


@ROWS.falls_back("is implemented in C")
def options_of_numpy(decorate: Any) -> Any:
    def call(i: int, x: Any) -> Any:
        with np.errstate(divide="ignore" if i // 2 % 2 else "warn"):
            return static(x)
    static = decorate(lambda x: F.tanh(x) if np.geterr()["divide"] == "ignore" else F.relu(x))
    return call


@ROWS.replays
def depth_of_the_interpreter(decorate: Any) -> Any:
    before = sys.getrecursionlimit()

    def call(i: int, x: Any) -> Any:
        sys.setrecursionlimit(before + i // 4)
        try:
            return static(x)
        finally:
            sys.setrecursionlimit(before)
    static = decorate(lambda x: F.tanh(x) * (sys.getrecursionlimit() % 7))
    return call


@pytest.fixture(autouse=True)
def _world(monkeypatch: pytest.MonkeyPatch) -> None:
    """Modules and variables of the environment that programs set go when the test ends."""
    for name in ("of_the_user", "of_another_user"):
        monkeypatch.setitem(sys.modules, name, types.ModuleType(name))
    monkeypatch.setenv("OBSERVED", "1")


@pytest.mark.parametrize("name", ROWS)
def test_programs(name: str) -> None:
    ROWS.check(name)
