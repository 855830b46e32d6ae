"""Signatures for which define-by-run is quicker stay so; the program tells, whatever a clock says."""
from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import kusari
from kusari import functions as F
from kusari import links as L

X = np.linspace(-1, 1, 200 * 100).reshape(200, 100).astype(np.float32)
TINY = X[:3, :4].copy()


def compiled(f: Callable[..., Any], x: Any, train: bool = True) -> str:
    """What ``explain`` says after two calls, whose results and gradients are those of define-by-run."""
    static = kusari.static_graph(f)
    with kusari.using_config("enable_backprop", train):
        for _ in range(3):
            found = []
            for g in (f, static):
                v = kusari.Variable(x.copy())
                y = g(v)
                if train:
                    y.grad = np.linspace(0, 1, y.size).reshape(y.shape).astype(x.dtype)
                    y.backward()
                found.append((y.array, v.grad))
            np.testing.assert_allclose(found[1][0], found[0][0], rtol=1e-5, atol=1e-6)
            if train:
                np.testing.assert_allclose(found[1][1], found[0][1], rtol=1e-5, atol=1e-6)
    return str(static.static.explain("ir"))


VIEWS: dict[str, Callable[[Any], Any]] = {
    "transpose": F.transpose, "flip": lambda x: F.flip(x, 1), "half": lambda x: x[:, :50],
    "steps": lambda x: x[:, ::-2], "two views": lambda x: F.transpose(x[:, 10:])}


@pytest.mark.parametrize("train", [True, False])
@pytest.mark.parametrize("name", VIEWS)
def test_views_stay_views(name: str, train: bool) -> None:
    text = compiled(VIEWS[name], X, train)
    assert "fell back" in text and "bytes that define-by-run hands out as views" in text
    assert "after the passes" in compiled(VIEWS[name], TINY, train)  # costs as little as to find out


def test_gradients_that_are_views_count() -> None:
    assert "hands out as views" in compiled(lambda x: F.pad(x, 1, "constant"), X)


@pytest.mark.parametrize("f", [
    lambda x: F.transpose(F.tanh(x)), lambda x: F.sum(F.transpose(x), axis=0), lambda x: F.tile(x, (2, 1)),
    lambda x: F.broadcast_to(x, (2, 200, 100)), F.relu, lambda x: F.cumsum(F.tanh(x) * x, 0), lambda x: x + 0],
    ids=["of a result", "of an operand", "tile", "broadcast_to", "relu", "cumsum", "copy"])
def test_what_computes_is_compiled(f: Callable[[Any], Any]) -> None:
    assert "after the passes" in compiled(f, X)


def test_the_switch() -> None:
    assert kusari.config.keep_define_by_run
    with kusari.using_config("keep_define_by_run", False):
        assert "after the passes" in compiled(F.transpose, X)


def test_no_clock_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever the time, what is chosen is the same."""
    for step in (0.0, 1e-9, 1e3):
        now = [0.0]

        def clock(step: float = step, now: list[float] = now) -> float:
            now[0] += step
            return now[0]

        with monkeypatch.context() as patch:
            for name in ("perf_counter", "time", "monotonic", "process_time", "thread_time"):
                patch.setattr(time, name, clock)
            for x in (X, TINY):
                assert "after the passes" in compiled(lambda x: F.tanh(x) * x, x)
            assert "fell back" in compiled(F.transpose, X)


def test_a_network_is_compiled() -> None:
    """Copies of a few results weigh little against products."""
    np.random.seed(0)
    layer = L.Linear(100, 200)
    assert "after the passes" in compiled(lambda x: F.reshape(F.transpose(layer(x)), (-1,)), X)


def test_calls_that_stay_as_they_are_and_others() -> None:
    static = kusari.static_graph(F.transpose)
    turned = []
    with kusari.no_backprop_mode():
        for x in (X, X, X, X, TINY, TINY, TINY, X, TINY, X.astype(np.float64), X):
            y = static(x)
            turned.append(np.shares_memory(y.array, x))
            np.testing.assert_array_equal(y.array, x.T)
    assert all(turned)
    compiled_now = [e.schedule is not None for _, e in static.static.signatures()]
    assert compiled_now == [True, False, False]  # TINY, one seen once, X
    x = kusari.Variable(X)
    y = static(x)
    assert y.creator is not None  # in another mode
