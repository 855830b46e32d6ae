"""What one eager function costs on arrays too small to matter: all overhead. For Kusari and for Chainer."""

from __future__ import annotations

import importlib
import time
from collections.abc import Callable
from typing import Any

import numpy as np

SIDE = 4
BATCH = 50  # calls between two looks at the clock


def operations(functions: Any) -> dict[str, tuple[Callable[..., Any], Callable[..., Any]]]:
    """Name, the function on Variables (x, W, labels), and the least that NumPy has to do for it."""
    return {
        "x + x": (lambda x, w, t: x + x, lambda x, w, t: x + x),
        "x * 2": (lambda x, w, t: x * 2, lambda x, w, t: x * 2),
        "relu": (lambda x, w, t: functions.relu(x), lambda x, w, t: np.maximum(x, 0)),
        "exp": (lambda x, w, t: functions.exp(x), lambda x, w, t: np.exp(x)),
        "sum": (lambda x, w, t: functions.sum(x), lambda x, w, t: x.sum()),
        "reshape": (lambda x, w, t: functions.reshape(x, (SIDE * SIDE,)), lambda x, w, t: x.reshape(SIDE * SIDE)),
        "concat": (lambda x, w, t: functions.concat((x, x)), lambda x, w, t: np.concatenate((x, x), 1)),
        "linear": (lambda x, w, t: functions.linear(x, w), lambda x, w, t: x @ w.T),
        "softmax": (lambda x, w, t: functions.softmax(x), lambda x, w, t: np.exp(x) / np.exp(x).sum(1, keepdims=True)),
        "softmax_cross_entropy": (lambda x, w, t: functions.softmax_cross_entropy(x, t),
                                  lambda x, w, t: -np.log(np.exp(x) / np.exp(x).sum(1, keepdims=True))[t, t].mean()),
    }


def best(call: Callable[[], Any], seconds: float) -> float:
    """Microseconds per call, the smallest of many batches."""
    call()
    found = float("inf")
    end = time.perf_counter() + seconds
    first = True
    while first or time.perf_counter() < end:
        first = False
        start = time.perf_counter()
        for _ in range(BATCH):
            call()
        found = min(found, (time.perf_counter() - start) / BATCH)
    return found * 1e6


def measure(library: str, seconds: float) -> dict[str, dict[str, float]]:
    """Per operation: NumPy's part, the forward without and with a graph, and forward with backward; in microseconds."""
    chainer = importlib.import_module(library)
    functions = importlib.import_module(library + ".functions")
    random = np.random.RandomState(0)
    arrays = random.rand(SIDE, SIDE).astype("f"), random.rand(SIDE, SIDE).astype("f"), np.arange(SIDE, dtype="i")
    x, w = chainer.Variable(arrays[0]), chainer.Variable(arrays[1])
    labels = arrays[2]
    found: dict[str, dict[str, float]] = {}
    for name, (function, plain) in operations(functions).items():
        def forward(function: Callable[..., Any] = function) -> Any:
            return function(x, w, labels)

        gradient = np.ones_like(forward().array)

        def both(function: Callable[..., Any] = function, gradient: Any = gradient) -> None:
            x.cleargrad()
            w.cleargrad()
            y = function(x, w, labels)
            y.grad = gradient
            y.backward()

        found[name] = {"numpy": best(lambda plain=plain: plain(*arrays), seconds), "graph": best(forward, seconds),
                       "backward": best(both, seconds)}
        with chainer.no_backprop_mode():
            found[name]["plain"] = best(forward, seconds)
    return found
