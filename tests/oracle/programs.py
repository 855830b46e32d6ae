"""Random arguments of programs, and results that two libraries can be compared by.

Everything is drawn with ``numpy.random.RandomState``, which gives both sides the same numbers.
"""
from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import numpy as np

TIMES = 12  # draws of arguments for each program
R = np.random.RandomState


def arguments(seed: int) -> dict[str, Any]:
    """Draw what the expressions may use."""
    r = R(seed)
    dtype = "fffde"[r.randint(5)]
    shape = tuple(r.randint(1, 4, r.randint(1, 5)).tolist())

    def uniform(low: float, high: float, *shape: int) -> Any:
        return r.uniform(low, high, shape).astype(dtype)

    b, rows = uniform(-1, 1, 3, 4), uniform(0.1, 1, 3, 4)
    spread = R(seed + 1).uniform(-1, 1, (2, 3, 3)).astype(dtype)
    return {
        "x": uniform(-1, 1, *shape), "y": uniform(-1, 1, *shape), "p": uniform(0.1, 0.9, *shape), "b": b,
        "m": uniform(-1, 1, 2, 3), "n": uniform(-1, 1, *((2, 3), (3, 2))[r.randint(2)]),
        "i": uniform(-1, 1, 2, 4, 6, 4), "w": np.cos(np.arange(16)).reshape(4, 4).astype(dtype),
        "o": R(seed + 2).uniform(0.5, 2, shape).astype("fde"[seed % 3]), "s": np.array(0.3, dtype),
        "e": np.zeros((0, 3), dtype), "q": spread @ spread.transpose(0, 2, 1) + np.eye(3, dtype=dtype),
        "t": r.randint(0, 4, 3).astype("i"), "axis": int(r.randint(-len(shape) - 1, len(shape) + 1)),
        "axes": tuple(r.permutation(len(shape)).tolist()), "flag": bool(r.randint(2)), "k": int(r.randint(0, 4)),
        "l": int(r.randint(1, 4)), "simplex": rows / rows.sum(1, keepdims=True), "np": np, "order": r.permutation(8),
        "data": np.arange(8) * 10,
    }  # fmt: skip


def plain(value: Any) -> Any:
    """Return what can be pickled and compared: arrays, numbers, texts, and lists, tuples and dictionaries of them."""
    if hasattr(value, "creator") or type(value).__name__ == "Parameter":
        value = value.array
    if isinstance(value, dict):
        return {str(k): plain(v) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(v) for v in value]
    if isinstance(value, np.ndarray) and value.dtype == object:
        return [plain(v) for v in value.tolist()]
    if isinstance(value, (np.ndarray, np.generic, bool, int, float, str, type(None))):
        return value
    if hasattr(value, "__len__") and hasattr(value, "__getitem__"):
        return [plain(value[i]) for i in range(len(value))] + [plain(value[::2]), plain(value[len(value):])]
    return type(value).__name__


def outputs(y: Any) -> list[Any]:
    """The variables in a result that have a gradient."""
    if isinstance(y, (list, tuple)):
        return [v for x in y for v in outputs(x)]
    return [y] if hasattr(y, "creator") and y.dtype.kind == "f" and y.creator is not None else []


def attempt(program: Callable[[], Any]) -> Any:
    """Return what a program gives, or that it fails."""
    np.random.seed(0)
    random.seed(0)
    try:
        return plain(program())
    except Exception as error:
        return f"{type(error).__name__} {str(error)[:200]}", "fails"
