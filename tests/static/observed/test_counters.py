"""Models that count, in attributes, a dictionary and a global, and what they compute with that: all of it replays."""
from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from static.models import Model
from static.observed.harness import before, check

STEP = 0


def set_step(number: int) -> None:
    """Set the global that `_of_a_global` counts in."""
    global STEP
    STEP = number


class Counting(Model):
    def __init__(self) -> None:
        super().__init__()
        self.t: Any = 0
        self.i: Any = 0
        self.scale: Any = 0.5
        self.average = np.zeros((3, 4), "f")
        self.buffer = np.zeros((3, 3, 4), "f")
        self.seen = {"n": 0}
        self.log: list[Any] = []

    def state(self) -> Any:
        return (self.t, self.i, self.scale, self.average.copy(), self.buffer.copy(), dict(self.seen), list(self.log))


class Pickled(Counting):
    """With a static method that pickles find again."""

    def forward(self, x: Any) -> Any:
        self.t += 1
        return self.l(x) * (0.9 ** self.t)


def counting(decorate: Any, forward: Any, **attributes: Any) -> Any:
    set_step(0)
    model = type("Decorated", (Counting,), {"forward": decorate(forward)})()
    for name, value in attributes.items():
        setattr(model, name, value)
    return model


def seen(model: Any, change: Any = lambda i: None) -> Any:
    """Return calls of a model with what it keeps."""
    return before(lambda x: (model(x), model.state(), model), change)


def at(number: int, change: Any) -> Any:
    return lambda i: change() if i == number else None


def _counted(s: Any, x: Any) -> Any:
    s.t += 1
    return s.l(x) * (s.scale * 0.99 ** s.t)


def _counted_afterwards(s: Any, x: Any) -> Any:
    h = s.l(x) * (1 / (1 + s.t))
    s.t = s.t + 1
    return h


def _twice(s: Any, x: Any) -> Any:
    h = s.l(x)
    for _ in range(2):
        s.t += 1
        h = h * (1 + 0.1 * s.t)
    return h


def _ring(s: Any, x: Any) -> Any:
    h = s.l(x)
    s.buffer[s.i] = h.array
    s.i = (s.i + 1) % len(s.buffer)
    return h + s.buffer.mean(axis=0)


def _ring_read(s: Any, x: Any) -> Any:
    h = s.l(x)
    old = s.buffer[s.i].copy()
    s.buffer[s.i] = h.array
    s.i = (s.i + 1) % 3
    return h + old


def _corrected(s: Any, x: Any) -> Any:
    h = s.l(x)
    s.t += 1
    s.average = 0.9 * s.average + 0.1 * h.array
    return h - s.average / (1 - 0.9 ** s.t)


def _in_dictionary(s: Any, x: Any) -> Any:
    s.seen["n"] += 1
    return s.l(x) / s.seen["n"]


def _of_a_global(s: Any, x: Any) -> Any:
    global STEP
    STEP += 1
    return s.l(x) * (1.0 / STEP)


def _decayed(s: Any, x: Any) -> Any:
    s.scale *= 0.9
    return s.l(x) * s.scale


def _warmed_up(s: Any, x: Any) -> Any:
    s.t += 1
    return s.l(x) * min(1.0, s.t / 4)


def _limited(s: Any, x: Any) -> Any:
    s.scale = max(0.1, min(0.6, s.scale * 1.01))
    return s.l(x) * s.scale


def _by_math(s: Any, x: Any) -> Any:
    s.t += 1
    return s.l(x) + math.sin(0.1 * s.t) + np.sqrt(s.t) + abs(-s.t) + pow(2, s.t)


def _returned(s: Any, x: Any) -> Any:
    s.t += 1
    return s.l(x) * s.t, s.t, {"half": s.t / 2}


def _appended(s: Any, x: Any) -> Any:
    s.t += 1
    h = s.l(x) * (0.1 * s.t)
    s.log.append(s.t)
    return h


def _row_by_number(s: Any, x: Any) -> Any:
    h = s.l(x) * s.m.W[s.i] + x[s.i - 1]
    s.i = (s.i + 1) % 3
    return h


def _slice_by_number(s: Any, x: Any) -> Any:
    h = s.l(x)[:, s.i:s.i + 2] + x[s.i:s.i + 1, 1:3]
    s.i = (s.i + 1) % 3
    return h


def _stored_slice(s: Any, x: Any) -> Any:
    h = s.l(x)
    s.average[:, s.i:s.i + 2] = h.array[:, 2:]
    s.i = (s.i + 1) % 3
    return h + s.average


FOLLOWED = {f.__name__: f for f in (
    _counted, _counted_afterwards, _twice, _ring, _ring_read, _corrected, _in_dictionary, _of_a_global, _decayed,
    _warmed_up, _limited, _by_math, _returned, _appended, _row_by_number, _slice_by_number, _stored_slice)}


@pytest.mark.parametrize("name", FOLLOWED)
def test_followed(name: str) -> None:
    check(lambda decorate: seen(counting(decorate, FOLLOWED[name])), "replays")


@pytest.mark.parametrize("name", FOLLOWED)
def test_set_back_from_outside(name: str) -> None:
    def program(decorate: Any) -> Any:
        model = counting(decorate, FOLLOWED[name])

        def set_back() -> None:
            set_step(7)
            model.t, model.i, model.scale, model.seen["n"] = 0, 1, 0.25, 3
        return seen(model, at(6, set_back))
    check(program, "replays")
