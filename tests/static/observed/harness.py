"""Rows of programs, each run static and define-by-run: all that can be seen of them is compared after each call."""
from __future__ import annotations

import collections
import contextlib
import faulthandler
import inspect
import io
import math
import os
import random
import re
import sys
import types
import warnings
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np

import kusari
import kusari.functions as F
from kusari import Link, Variable
from kusari.static import StaticGraphWarning
from kusari.static.replay.schedule import Schedule

CALLS = 8
CHANGED = 4  # the number of the call before which programs change what earlier ones have left
Call = Callable[[int, Any], Any]
Program = Callable[[Any], Call]
_PLAIN = (type(None), bool, int, str, bytes, type(...), slice, range)
_NAMED = (type, types.FunctionType, types.BuiltinFunctionType, types.ModuleType)


def before(static: Any, change: Callable[[int], Any]) -> Call:
    """Return what changes something before each call."""
    def call(i: int, x: Any) -> Any:
        change(i)
        return static(x)
    return call


def late(static: Any, change: Callable[[], Any], *left: Any) -> Call:
    """Return a call of what is static, with what it leaves besides; before one of the calls something changes."""
    return before(lambda x: (static(x), *left), lambda i: change() if i == CHANGED else None)


def training(model: Any, loss: Any, optimizer: Any, joined: bool) -> Call:
    """Return a call of steps of the static method ``loss``, in a loop or by ``update``, with what they leave."""
    model.__class__.loss = loss
    optimizer.setup(model)

    def loop(x: Any) -> Any:
        model.cleargrads()
        found = model.loss(x)
        found.backward()
        optimizer.update()
        return found.array
    return lambda i, x: (loop(x) if joined else optimizer.update(model.loss, x), model.state(), optimizer.t,
                         [p.array.copy() for p in model.params()])


class Seen:
    """Snapshots of whatever a program returns, in which one object has one number from the first call to the last.

    Invariant: ``kept`` holds all that has a number, so that no address comes again.
    """

    def __init__(self) -> None:
        self.kept: dict[int, tuple[int, Any]] = {}

    def number(self, value: Any) -> int:
        return self.kept.setdefault(id(value), (len(self.kept), value))[0]

    def __call__(self, value: Any, inside: tuple[int, ...] = ()) -> Any:
        kind = type(value)
        if kind in _PLAIN or kind is float or kind is complex:
            return kind, value
        if isinstance(value, _NAMED) or (kind.__module__.startswith("kusari.") and hasattr(value, "__name__")):
            return "named", getattr(value, "__qualname__", value.__name__)
        if isinstance(value, (np.ndarray, np.generic)):
            return kind, value.dtype, value.shape, np.array(value, object if value.dtype.hasobject else None)
        number = self.number(value)
        if number in inside:
            return kind.__qualname__, number
        inside = *inside, number
        return kind.__qualname__, number, *(self(part, inside) for part in _parts(value))


def _parts(value: Any) -> Iterator[Any]:
    if isinstance(value, Variable):
        yield from (value.name, value.requires_grad, value.array, value.grad)
    elif isinstance(value, Link):
        for path, param in sorted((path, param) for path, param in value.namedparams() if param is not None):
            yield from (path, param.array, param.grad, param.requires_grad)
        for path, link in sorted(value.namedlinks()):
            yield from (part for name in sorted(link._persistent) for part in (path, name, getattr(link, name)))
    elif isinstance(value, Mapping):
        yield from (part for item in value.items() for part in item)
    elif isinstance(value, (set, frozenset)):
        yield from sorted(value, key=repr)
    elif isinstance(value, (list, tuple, collections.deque)):
        yield from value
    elif isinstance(value, BaseException):
        yield from (re.sub("0x[0-9a-f]+", "", str(a)) for a in value.args)
    else:
        names = [n for k in type(value).__mro__ for n in getattr(k, "__slots__", ()) if n != "__dict__"]
        for name in (*getattr(value, "__dict__", ()), *(n for n in names if hasattr(value, n))):
            yield from (name, getattr(value, name))


def difference(a: Any, b: Any, tolerance: float) -> str | None:
    """Return the first place where two snapshots differ, None if they do not."""
    if type(a) is tuple and type(b) is tuple:
        if len(a) != len(b):
            return _became(a, b)
        for i, (x, y) in enumerate(zip(a, b, strict=True)):
            if x is not y:
                found = difference(x, y, tolerance)
                if found is not None:
                    return f"/{i}{found}"
        return None
    if isinstance(a, np.ndarray) and isinstance(b, np.ndarray):
        return None if _close(a, b, tolerance) else _became(a, b)
    if isinstance(a, float) and isinstance(b, float):
        same = math.isclose(a, b, rel_tol=tolerance, abs_tol=tolerance) or (math.isnan(a) and math.isnan(b))
        return None if same else _became(a, b)
    return None if type(a) is type(b) and a == b else _became(a, b)


def _became(a: Any, b: Any) -> str:
    before, after = (" ".join(str(v).split())[:100] for v in (a, b))
    return f": {before} became {after}"


def _close(a: np.ndarray, b: np.ndarray, tolerance: float) -> bool:
    if a.shape != b.shape or a.dtype != b.dtype:
        return False
    if a.dtype.kind not in "fc":
        return bool((a == b).all())
    if a.tobytes() == b.tobytes():
        return True
    scale = float(np.abs(a[np.isfinite(a)]).max(initial=0.0))
    return bool(np.allclose(b, a, rtol=tolerance, atol=tolerance * (min(scale, 1.0) + 0.1), equal_nan=True))


class Run:
    """One run of a program: what was seen of every call, and at the end of all results once more."""

    def __init__(self, program: Any, decorate: Callable[[Any], Any], calls: int = CALLS) -> None:
        self.static: list[Any] = []
        self.replays = False
        self.aside: list[str] = []
        self.calls: list[tuple[Any, ...]] = []
        self._decorate = decorate
        self._count = calls
        module = sys.modules[program.__module__]
        before = dict(vars(module))
        np.random.seed(0)
        random.seed(0)
        try:
            with _settings(), contextlib.redirect_stdout(io.StringIO()) as printed, warnings.catch_warnings():
                self._run(program, printed)
        finally:
            vars(module).clear()
            vars(module).update(before)

    def decorate(self, function: Any) -> Any:
        decorated = self._decorate(function)
        self.static.append(decorated)
        return decorated

    def _run(self, program: Program, printed: io.StringIO) -> None:
        call = program(self.decorate)
        links = [value for value in inspect.getclosurevars(call).nonlocals.values() if isinstance(value, Link)]
        data = np.random.RandomState(7)
        seen, results = Seen(), []
        for i in range(self._count):
            x = data.randn(3, 4).astype("f")
            with warnings.catch_warnings(record=True) as caught:
                warnings.simplefilter("always")
                result = _outcome(call, i, x, links)
            self.aside += [str(w.message) for w in caught if issubclass(w.category, StaticGraphWarning)]
            others = [(w.category.__name__, str(w.message)) for w in caught
                      if not issubclass(w.category, StaticGraphWarning)]
            results.append(result)
            state = np.random.get_state()
            self.calls.append((
                ("result", seen(result)), ("links", *(seen(link) for link in links)), ("warnings", *others),
                ("printed", printed.getvalue()), ("argument", seen(x)), ("numpy.random", *state),
                ("random", hash(random.getstate()))))
        self.calls.append((("all results once more", seen(results)),))
        self.replays = any(_replays(f.static) for f in self.static if hasattr(f, "static"))


def _outcome(call: Call, i: int, x: Any, links: list[Link]) -> Any:
    """Call, and where the result is one Variable let the links learn by it."""
    try:
        result = call(i, x)
        if isinstance(result, Variable) and result.requires_grad and result.dtype.kind == "f":
            for link in links:
                link.cleargrads()
            F.sum(F.tanh(result)).backward()
            for p in (p for link in links for p in link.params() if p.grad is not None):
                p.array -= 0.01 * p.grad
    except Exception as error:
        return error.with_traceback(None)
    return result


@contextlib.contextmanager
def _settings() -> Iterator[None]:
    """Put kusari's settings back; meanwhile even what compiling would make slower is compiled."""
    before, local = dict(vars(kusari.global_config)), dict(vars(kusari.config))
    try:
        kusari.config.keep_define_by_run = False
        yield
    finally:
        vars(kusari.config).clear()
        vars(kusari.config).update(local)
        for name in vars(kusari.global_config).keys() - before.keys():
            delattr(kusari.global_config, name)
        for name, value in before.items():
            if vars(kusari.global_config)[name] is not value:
                setattr(kusari.global_config, name, value)


def _replays(static: Any) -> bool:
    """Whether something of a static function was compiled, be it within a whole step."""
    for cache in static.caches():
        for key, entry in list(cache.entries.items()):
            every = [entry, *cache.others(key)]
            if any(isinstance(e, Schedule) for e in every) or any(step for e in every for step, _ in cache.steps(e)):
                return True
    return False


def check(program: Program, expected: str | None = None, pattern: str | None = None, tolerance: float = 2e-5,
          **options: Any) -> str:
    """Assert that a program does static what it does define-by-run; return ``replays`` or ``falls back``.

    Warnings of falling back name a line; where there is a ``pattern``, there must be one warning, which has it.
    ``options`` are those of ``static_graph``.
    """
    plain, static = Run(program, lambda f: f), Run(program, kusari.static_graph(**options))
    for i, (a, b) in enumerate(zip(plain.calls, static.calls, strict=True)):
        found = difference(a, b, tolerance)
        assert found is None, f"call {i}: {a[int(re.split('[/:]', found)[1])][0]}: {found}; {static.aside}"
    for text in static.aside:
        assert re.search(r"test_\w+\.py:\d+", text), text
    assert pattern is None or [re.search(pattern, text) is not None for text in static.aside] == [True], static.aside
    verdict = "replays" if static.replays and not static.aside else "falls back"
    assert expected is None or verdict == expected, f"is right, but {verdict}: {static.aside}"
    return verdict


def check_apart(program: Program, expected: str | None = None, pattern: str | None = None,
                tolerance: float = 2e-5) -> None:
    """Check a program in a process of its own, as what writes to freed memory may end it."""
    if not hasattr(os, "fork"):
        check(program, expected, pattern, tolerance)
        return
    reads, writes = os.pipe()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of forks where there are threads
        child = os.fork()
    if child == 0:
        faulthandler.disable()
        text = ""
        try:
            check(program, expected, pattern, tolerance)
        except BaseException as error:
            text = f"{type(error).__name__}: {error}"
        os.write(writes, text.encode()[:60000])
        os._exit(0)
    os.close(writes)
    with open(reads, encoding="utf-8") as pipe:
        text = pipe.read()
    status = os.waitpid(child, 0)[1]
    assert status == 0, f"the process was ended by signal {status & 127}"
    assert not text, text


class Rows(dict[str, tuple[Program, str | None, str | None]]):
    """A table of programs by name, with what is expected of each; None where replaying and falling back are right.

    A program makes a static function and returns a call of it together with all that define-by-run leaves behind; the
    call is told its number, so that somebody else changes things in between.
    """

    def add(self, program: Program, expected: str | None, pattern: str | None = None) -> Program:
        assert program.__name__ not in self, program.__name__
        self[program.__name__] = program, expected, pattern
        return program

    def replays(self, program: Program) -> Program:
        return self.add(program, "replays")

    def either(self, program: Program) -> Program:
        return self.add(program, None)

    def falls_back(self, pattern: str | None = None) -> Callable[[Program], Program]:
        """A row whose one warning has ``pattern``; without a pattern it may fall back in silence."""
        return lambda program: self.add(program, "falls back", pattern)

    def check(self, name: str) -> None:
        check(*self[name])

    def check_apart(self, name: str) -> None:
        check_apart(*self[name])
