"""Runs a model define-by-run and static, on the same data with the same seed, and compares everything observable."""
from __future__ import annotations

import copy
import linecache
import random
import re
import warnings
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import pytest

import kusari
from kusari.static import StaticGraphWarning
from kusari.static.step import usual


@pytest.fixture(autouse=True)
def _usual(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the usual case of steps be written at once: few tests make as many steps as pay for it."""
    monkeypatch.setattr(usual, "AFTER_STEPS", 1)


def run(make: Callable[[], Any], call: Callable[[Any, Any], Any], data: list[Any], static: bool, *,
        optimizer: Callable[[], Any] | None = None, backward: bool = True) -> list[dict[str, np.ndarray]]:
    """Call ``call(model, item)`` for every item, with backward and update, and return what was seen each time."""
    np.random.seed(1)
    model = make()
    opt = optimizer().setup(model) if optimizer is not None else None
    seen: list[dict[str, np.ndarray]] = []
    with kusari.using_config("use_static_graph", static):
        for i, item in enumerate(data):
            np.random.seed(100 + i)
            model.cleargrads()
            result = call(model, item)
            outputs = result if isinstance(result, (tuple, list)) else [result]
            if backward:
                loss = outputs[0]
                if loss.size != 1:
                    loss.grad = np.ones_like(loss.array)
                loss.backward()
            record = {f"output {k}": np.array(y.array) for k, y in enumerate(outputs) if y is not None}
            if backward:
                record.update({f"grad {n}": np.array(p.grad) for n, p in model.namedparams() if p.grad is not None})
            if opt is not None:
                opt.update()
            record.update({f"param {n}": np.array(p.array) for n, p in model.namedparams()})
            for name, link in model.namedlinks():
                for persistent in sorted(link._persistent):
                    record[f"state {name}/{persistent}"] = np.array(getattr(link, persistent))
            record["random"] = np.array(np.random.rand())
            seen.append(record)
    return seen


def _assert_same(make: Callable[[], Any], call: Callable[[Any, Any], Any], data: list[Any], *, rtol: float = 2e-5,
                atol: float = 1e-6, **options: Any) -> None:
    """Assert that static equals define-by-run at every call."""
    eager = run(make, call, data, False, **options)
    static = run(make, call, data, True, **options)
    for i, (a, b) in enumerate(zip(eager, static, strict=True)):
        assert a.keys() == b.keys(), f"call {i}: {a.keys() ^ b.keys()}"
        for key in a:
            assert a[key].dtype == b[key].dtype, f"call {i}, {key}: {a[key].dtype} became {b[key].dtype}"
            np.testing.assert_allclose(b[key], a[key], rtol=rtol, atol=atol, err_msg=f"call {i}, {key}")


@pytest.fixture
def assert_same() -> Callable[..., None]:
    """The comparison, as a fixture since test modules do not import each other."""
    return _assert_same


def _leaves(tree: Any) -> list[Any]:
    """Flatten a result: arrays of Variables, with the types of all containers on the way."""
    if isinstance(tree, kusari.Variable):
        return ["variable", np.array(tree.array)]
    if isinstance(tree, np.ndarray):
        return ["array", tree.copy()]
    if isinstance(tree, dict):
        return [dict, *tree, *(z for v in tree.values() for z in _leaves(v))]
    if isinstance(tree, (list, tuple)):
        return [type(tree), *(z for v in tree for z in _leaves(v))]
    return [tree]


def _assert_alike(eager: list[list[Any]], static: list[list[Any]], rtol: float, atol: float) -> None:
    """Assert that the leaves of all calls are the same."""
    for i, (a, b) in enumerate(zip(eager, static, strict=True)):
        assert len(a) == len(b), f"call {i}: {a} became {b}"
        for x, y in zip(a, b, strict=True):
            if isinstance(x, np.ndarray):
                assert isinstance(y, np.ndarray) and (x.dtype, x.shape) == (y.dtype, y.shape), f"call {i}: {x}, {y}"
                np.testing.assert_allclose(y, x, rtol=rtol, atol=atol, err_msg=f"call {i}")
            else:
                assert x is y or x == y, f"call {i}: {x} became {y}"


def _both(make: Callable[[Any], Callable[[Any], Any]], data: Iterable[Any], *, aside: str | None = None,
          rtol: float = 2e-5, atol: float = 1e-6) -> None:
    """Assert that ``make(static_graph)`` does what ``make(identity)`` does, item by item.

    ``aside`` is a pattern of the one warning with which the static function must give up; without it, it must not.
    """
    def run_all(decorate: Any) -> list[Any]:
        np.random.seed(0)
        random.seed(0)
        call = make(decorate)
        seen = []
        for item in data:
            seen.append([*_leaves(call(copy.deepcopy(item))), np.random.get_state()[1].sum(), np.random.get_state()[2]])
        return seen

    eager = run_all(lambda f: f)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        static = run_all(kusari.static_graph)
    texts = [str(w.message) for w in caught if issubclass(w.category, StaticGraphWarning)]
    assert len(texts) == len(caught), [str(w.message) for w in caught]
    if aside is None:
        assert texts == []
    else:
        assert len(texts) == 1, texts
        assert re.search(aside, texts[0]), texts[0]
        assert re.search(r"test_\w+\.py:\d+", texts[0]), texts[0]
    _assert_alike(eager, static, rtol, atol)


@pytest.fixture
def both() -> Callable[..., None]:
    """The comparison of a function under two decorators."""
    return _both


def _run_source(text: str, namespace: dict[str, Any]) -> None:
    """Execute a text as if it stood in a file, so that its functions have a source."""
    name = f"test_source_{len(linecache.cache)}.py"
    linecache.cache[name] = len(text), None, text.splitlines(True), name
    exec(compile(text, name, "exec"), namespace)


@pytest.fixture
def run_source() -> Callable[[str, dict[str, Any]], None]:
    """``exec`` with a source."""
    return _run_source


def _outcomes(make: Callable[[Any], Callable[[Any], Any]], decorate: Any, data: Iterable[Any]) -> list[list[Any]]:
    """Return the leaves of what each call gives, or the type of what it raises, and a random number drawn after it."""
    np.random.seed(0)
    call, found = make(decorate), []
    for item in data:
        try:
            leaves = _leaves(call(copy.deepcopy(item)))
        except Exception as error:
            leaves = [type(error)]
        found.append([*leaves, np.random.randn()])
    return found


def _alike(make: Callable[[Any], Callable[[Any], Any]], data: Iterable[Any], *, fallbacks: int = 0, rtol: float = 2e-4,
           atol: float = 1e-5) -> None:
    """Assert that ``make(static_graph)`` gives or raises what ``make(identity)`` does, item by item.

    ``fallbacks`` is the number of warnings of static functions that fall back, -1 for any.
    """
    data = list(data)
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        eager = _outcomes(make, lambda f: f, data)
        warnings.simplefilter("always", StaticGraphWarning)
        with warnings.catch_warnings(record=True) as caught:
            static = _outcomes(make, kusari.static_graph, data)
    texts = [str(w.message) for w in caught]
    assert fallbacks in (-1, len(texts)), texts
    _assert_alike(eager, static, rtol, atol)


@pytest.fixture
def alike() -> Callable[..., None]:
    """The comparison of programs that may raise."""
    return _alike
