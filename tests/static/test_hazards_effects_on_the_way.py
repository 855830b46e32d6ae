"""What a static function does on its way, by generators, handlers, streams, replays do as well, or it falls back."""
from __future__ import annotations

import contextlib
import functools
import io
import sys
import types
import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from static.observed.harness import Call, Rows, late

import kusari
import kusari.functions as F

ROWS = Rows()


@ROWS.replays
def generators(decorate: Any) -> Call:
    log: list[Any] = []

    def numbers(n: int) -> Iterator[int]:
        for j in range(n):
            log.append(j)
            yield j
        log.append("end")

    @decorate
    def f(x: Any) -> Any:
        return sum(F.relu(x) * j for j in numbers(3))

    return late(f, log.clear, log)


@ROWS.replays
def context_managers(decorate: Any) -> Call:
    class Manager:
        depth = 0
        on: Any = None

        def __enter__(self) -> Any:
            Manager.depth = 1
            self.on = True
            return self

        def __exit__(self, kind: Any, *_: object) -> bool:
            Manager.depth = 0
            self.on = False
            return kind is KeyError

    manager, log = Manager(), []

    @decorate
    def f(x: Any) -> Any:
        with manager as m:
            log.append((Manager.depth, m.on))
            raise KeyError
        log.append((Manager.depth, manager.on))
        return F.relu(x)

    def call(i: int, x: Any) -> Any:
        Manager.depth, manager.on = i, None
        return f(x), log, Manager.depth, manager.on
    return call


@ROWS.replays
def stores_that_an_exception_skips(decorate: Any) -> Call:
    table: dict[str, Any] = {}

    @decorate
    def f(x: Any) -> Any:
        with contextlib.suppress(KeyError):
            table["first"] = 1
            table["nope"]
            table["never"] = 1
        table["h"] = F.relu(x)
        return table["h"] * 2

    def call(i: int, x: Any) -> Any:
        y, seen = f(x), dict(table)
        table.clear()
        return y, seen
    return call


@ROWS.replays
def all_clauses_of_try(decorate: Any) -> Call:
    log: list[str] = []

    @decorate
    def f(x: Any) -> Any:
        for k in (0, 1):
            try:
                if k:
                    raise KeyError("k")
                log.append("tried")
            except KeyError as e:
                log.append(str(e))
            else:
                log.append("else")
            finally:
                log.append("finally")
        return F.relu(x)

    return lambda i, x: (f(x), log)


@ROWS.replays
def an_exception_after_effects(decorate: Any) -> Call:
    """The call that raises has done what stands before; the next one is a replay again."""
    log: list[str] = []
    box = types.SimpleNamespace(fails=False, h=None)

    @decorate
    def f(x: Any) -> Any:
        log.append("begin")
        box.h = F.relu(x)
        if box.fails:
            raise ValueError("stop")
        log.append("end")
        return box.h * 2

    def call(i: int, x: Any) -> Any:
        box.fails = i in (0, 3, 4)
        try:
            y = f(x)
        except ValueError as e:
            y = str(e)
        return y, log, box.h
    return call


@ROWS.replays
def an_error_of_a_function_after_effects(decorate: Any) -> Call:
    log: list[str] = []

    @decorate
    def f(x: Any) -> Any:
        log.append("begin")
        h = F.reshape(F.relu(x), (2, 6))
        log.append("end")
        return h

    def call(i: int, x: Any) -> Any:
        try:
            return f(x if i not in (2, 4) else x[:2]), log
        except kusari.utils.type_check.InvalidType as e:
            return type(e).__name__, log
    return call


@ROWS.replays
def callbacks(decorate: Any) -> Call:
    log: list[Any] = []
    calls = [lambda h: log.append(h.shape), log.append, functools.partial(log.insert, 0)]

    @decorate
    def f(x: Any) -> Any:
        h = F.relu(x)
        for c in calls:
            c(h)
        return h * 2

    return late(f, lambda: calls.append(lambda h: log.append("late")), log)


@ROWS.replays
def attributes_that_are_computed_once(decorate: Any) -> Call:
    log: list[str] = []

    class Computing:
        k = 2

        @functools.cached_property
        def v(self) -> int:
            log.append("attribute")
            return self.k * 3

    box = Computing()

    @decorate
    def f(x: Any) -> Any:
        return F.relu(x) * box.v

    def change() -> None:
        del box.v
        box.k = 5
    return late(f, change, log)


@ROWS.replays
def functions_that_are_computed_once(decorate: Any) -> Call:
    log: list[str] = []

    @functools.cache
    def squared(n: int) -> int:
        log.append("function")
        return n * n

    @decorate
    def f(x: Any) -> Any:
        return F.relu(x) + squared(3)

    return late(f, squared.cache_clear, log)


@ROWS.replays
def functions_that_sort_by_effect(decorate: Any) -> Call:
    log: list[int] = []

    def key(v: int) -> int:
        log.append(v)
        return -v

    @decorate
    def f(x: Any) -> Any:
        return F.relu(x) * sorted([3, 1, 2], key=key)[0]

    return lambda i, x: (f(x), log)


# -- text, warnings ----------------------------------------------------------------------------------------------------


@ROWS.replays
def prints(decorate: Any) -> Call:
    out = io.StringIO()

    @decorate
    def f(x: Any) -> Any:
        print("start", x.shape, end=";", file=out)
        h = F.relu(x)
        print(h.shape, 3, 2.5, sep="|", file=out)
        out.write("written\n")
        return h

    return lambda i, x: (f(x), out.getvalue())


@ROWS.replays
def prints_to_the_stream_of_the_moment(decorate: Any) -> Call:
    @decorate
    def f(x: Any) -> Any:
        print("an array:", x)
        return F.relu(x)

    def call(i: int, x: Any) -> Any:
        with contextlib.redirect_stdout(io.StringIO()) as out:
            y = f(x)
        return y, out.getvalue()
    return call


@ROWS.replays
def warns(decorate: Any) -> Call:
    log: list[str] = []

    @decorate
    def f(x: Any) -> Any:
        log.append("before")
        warnings.warn("careful", UserWarning, stacklevel=1)
        log.append("after")
        return F.relu(x)

    def call(i: int, x: Any) -> Any:
        with warnings.catch_warnings(record=True) as seen:
            warnings.simplefilter("error" if i in (3, 4) else "always")
            try:
                y = f(x)
            except UserWarning as e:
                y = str(e)
        return y, log, [(str(w.message), w.lineno) for w in seen]
    return call


# -- what replays cannot do --------------------------------------------------------------------------------------------


@ROWS.falls_back("a generator that the call has begun goes on after it")
def generators_that_go_on(decorate: Any) -> Call:
    box = types.SimpleNamespace()

    @decorate
    def f(x: Any) -> Any:
        box.g = (F.relu(x) * j for j in range(3))
        return next(box.g) + next(box.g)

    return lambda i, x: (f(x), next(box.g))


@ROWS.falls_back("is given an object that the call has made")
def objects_of_the_users(decorate: Any) -> Call:
    class Kept:
        def __init__(self, h: Any) -> None:
            self.h = h

    log: list[Any] = []

    @decorate
    def f(x: Any) -> Any:
        log.append(Kept(F.relu(x)))
        return log[-1].h * 2

    return lambda i, x: (f(x), [k.h for k in log])


@ROWS.replays
def numbers_that_are_computed(decorate: Any) -> Call:
    log: list[float] = []

    @decorate
    def f(x: Any) -> Any:
        h = F.relu(x)
        log.append(float(F.sum(h).array))
        return h

    return lambda i, x: (f(x), np.array(log))


@ROWS.falls_back("takes data out of the traced computation")
def prints_of_variables(decorate: Any) -> Call:
    out = io.StringIO()

    @decorate
    def f(x: Any) -> Any:
        h = F.tanh(x)
        print(h, file=out)
        return h

    return lambda i, x: (f(x), out.getvalue())


@ROWS.falls_back("changes in every call")
def lists_of_a_length(decorate: Any) -> Call:
    log: list[Any] = []

    @decorate
    def f(x: Any) -> Any:
        log.append(F.relu(x))
        if len(log) > 3:
            log.pop(0)
        return log[-1] * 2

    return lambda i, x: (f(x), log)


@ROWS.falls_back("changes in every call")
def redirected_inside(decorate: Any) -> Call:
    out = io.StringIO()

    @decorate
    def f(x: Any) -> Any:
        with contextlib.redirect_stdout(out):
            sys.stdout.write("inside ")
        sys.stdout.write("outside ")
        return F.relu(x)

    def call(i: int, x: Any) -> Any:
        with contextlib.redirect_stdout(io.StringIO()) as other:
            y = f(x)
        return y, out.getvalue(), other.getvalue()
    return call


@pytest.mark.parametrize("name", ROWS)
def test_as_define_by_run(name: str) -> None:
    ROWS.check(name)
