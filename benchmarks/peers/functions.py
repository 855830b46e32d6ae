"""Single functions on arrays of given shapes, for Kusari (compiled), NumPy and PyTorch: what ``functions.py`` times."""


from __future__ import annotations

import math
import time
from collections.abc import Callable
from typing import Any

import numpy as np


def numpy_softmax(x: Any) -> Any:
    """Softmax of rows."""
    e = np.exp(x - x.max(1, keepdims=True))
    return e / e.sum(1, keepdims=True)


def numpy_layer_norm(x: Any) -> Any:
    """Normalization of rows, without scale and shift."""
    d = x - x.mean(1, keepdims=True)
    return d / np.sqrt((d * d).mean(1, keepdims=True) + 1e-5)


def gelu(tanh: Any, x: Any) -> Any:
    """The approximation by tanh."""
    return 0.5 * x * (1 + tanh(0.7978845608028654 * (x + 0.044715 * (x * x * x))))


def normalized(F: Any, x: Any) -> Any:
    """The same of Kusari's functions."""
    d = x - F.mean(x, axis=1, keepdims=True)
    return d / F.sqrt(F.mean(d * d, axis=1, keepdims=True) + 1e-5)


# Each as (kusari.functions, arrays), as (numpy, arrays) and as (torch, tensors).
FUNCTIONS: dict[str, tuple[Callable[..., Any], Callable[..., Any], Callable[..., Any]]] = {
    "sum": (lambda F, x: F.sum(x), lambda m, x: x.sum(), lambda m, x: x.sum()),
    "column-sum": (lambda F, x: F.sum(x, axis=0), lambda m, x: x.sum(0), lambda m, x: x.sum(0)),
    "max": (lambda F, x: F.max(x, axis=1), lambda m, x: x.max(1), lambda m, x: x.amax(1)),
    "softmax": (lambda F, x: F.softmax(x), lambda m, x: numpy_softmax(x), lambda m, x: m.softmax(x, 1)),
    "layer-norm": (normalized, lambda m, x: numpy_layer_norm(x),
                   lambda m, x: m.nn.functional.layer_norm(x, x.shape[1:])),
    "exp": (lambda F, x: F.exp(x), lambda m, x: m.exp(x), lambda m, x: m.exp(x)),
    "tanh": (lambda F, x: F.tanh(x), lambda m, x: m.tanh(x), lambda m, x: m.tanh(x)),
    "log2": (lambda F, x: F.log2(x), lambda m, x: m.log2(x), lambda m, x: m.log2(x)),
    "power": (lambda F, x, y: x ** y, lambda m, x, y: x ** y, lambda m, x, y: x ** y),
    "gelu": (lambda F, x: gelu(F.tanh, x), lambda m, x: gelu(m.tanh, x),
             lambda m, x: m.nn.functional.gelu(x, approximate="tanh")),
    "matmul": (lambda F, x, y: F.matmul(x, y), lambda m, x, y: x @ y, lambda m, x, y: x @ y),
    "linear": (lambda F, x, w: F.linear(x, w), lambda m, x, w: x @ w.T, lambda m, x, w: m.nn.functional.linear(x, w)),
    "transpose": (lambda F, x: F.transpose(x) * 1, lambda m, x: m.ascontiguousarray(x.T),
                  lambda m, x: x.t().contiguous()),
}


def read(case: str) -> tuple[str, list[tuple[int, ...]]]:
    """The function and the shapes of a case; raises ``ValueError`` for what is neither.

    >>> read("matmul 1x40 40x30")
    ('matmul', [(1, 40), (40, 30)])
    """
    name, *shapes = case.split()
    if name not in FUNCTIONS or not shapes:
        raise ValueError(f"expected a function of {', '.join(FUNCTIONS)} and shapes, as softmax 32x1000, got {case}")
    return name, [tuple(int(size) for size in shape.split("x")) for shape in shapes]


def call_of(library: str, case: str, threads: int) -> tuple[Callable[[], Any], Callable[[Any], Any]]:
    """A call of a case, ready to be timed, and what makes a NumPy array of its result."""
    name, shapes = read(case)
    random = np.random.RandomState(0)
    arrays = [(0.5 + random.rand(*shape)).astype(np.float32) for shape in shapes]
    ours, plain, theirs = FUNCTIONS[name]
    if library == "numpy":
        return lambda: plain(np, *arrays), np.asarray
    if library == "torch":
        import torch
        torch.set_num_threads(threads)
        tensors = [torch.from_numpy(x) for x in arrays]

        def run() -> Any:
            with torch.inference_mode():
                return theirs(torch, *tensors)

        return run, lambda y: y.numpy()
    import kusari
    from kusari import functions
    static = kusari.static_graph(strict=True)(lambda *x: ours(functions, *map(kusari.as_variable, x)))

    def compiled() -> Any:
        with kusari.no_backprop_mode():
            return static(*arrays)

    for _ in range(3):
        compiled()
    return compiled, lambda y: y.array


class Server:
    """Times cases, each as often as it is asked to."""

    def __init__(self, library: str, threads: int) -> None:
        self.library, self.threads = library, threads
        self.case, self.call, self.array = "", None, None

    def __call__(self, case: str, seconds: float) -> dict[str, float]:
        """The best seconds of a call, and a figure of its result; of Kusari also those of its kernels alone."""
        if case != self.case:
            self.case, (self.call, self.array) = case, call_of(self.library, case, self.threads)
        result = float(np.abs(self.array(self.call())).sum(dtype=np.float64))
        found = {"call": best(self.call, seconds), "result": result}
        if self.library == "kusari":
            import executables
            live = [(e, frames) for e, frames in executables.live() if frames]
            found["kernels"] = sum(row.seconds for e, frames in live for row in executables.profile(e, frames[0]))
        return found


def best(call: Callable[[], Any], seconds: float) -> float:
    """The smallest time of a call, of many looks at the clock."""
    start = time.perf_counter()
    call()
    count = max(1, math.ceil(1e-4 / max(1e-7, time.perf_counter() - start)))
    found, end, first = float("inf"), time.perf_counter() + seconds, True
    while first or time.perf_counter() < end:
        first, start = False, time.perf_counter()
        for _ in range(count):
            call()
        found = min(found, (time.perf_counter() - start) / count)
    return found
