"""Arrays that NumPy reads before the call itself changes their elements; entries of `config` that the call sets."""
from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from static.models import Model
from static.observed.harness import Rows, before, check

import kusari
import kusari.functions as F
from kusari import config, static_code, using_config

ROWS = Rows()
BUFFER: Any = np.zeros((3, 3, 4), "f")


class Keeping(Model):
    def __init__(self) -> None:
        super().__init__()
        self.buffer: Any = np.arange(36, dtype="f").reshape(3, 3, 4).copy()
        self.add_persistent("queue", np.arange(12, dtype="f").reshape(3, 4).copy())
        self.in_list = [np.zeros((3, 4), "f")]
        self.i = 0
        self.k: Any = 2.0

    def state(self) -> Any:
        return self.buffer.copy(), self.queue.copy(), self.in_list[0].copy(), BUFFER.copy(), self.i


def keeping(decorate: Any, forward: Any) -> Any:
    global BUFFER
    BUFFER = np.zeros((3, 3, 4), "f")
    return type("Decorated", (Keeping,), {"forward": decorate(forward)})()


def seen(model: Any, change: Any = lambda i: None) -> Any:
    return before(lambda x: (model(x), model.state(), model), change)


# -- arrays ----------------------------------------------------------------------------------------------------------

READS: dict[str, Any] = {
    "a row": lambda a: a[1].copy(), "a row as it is": lambda a: a[1] * 1, "the mean": lambda a: a.mean(),
    "means": lambda a: a.mean(axis=0), "the norm": lambda a: float(np.linalg.norm(a)), "all": lambda a: a.copy(),
    "an element": lambda a: a[0, 0], "a number": lambda a: float(a.sum()), "sorted": lambda a: np.sort(a, axis=0)[0],
    "by another name": lambda a: (lambda b: b[2] + 1)(a), "a flat part": lambda a: a.reshape(-1)[:4].copy()}
PLACES: dict[str, Any] = {
    "an attribute": lambda s: s.buffer, "a persistent array": lambda s: s.queue, "a global": lambda s: BUFFER}
WRITES: dict[str, Any] = {
    "a row": lambda a, h: a.__setitem__(0, h.array if a.ndim > 2 else h.array[0]), "filled": lambda a, h: a.fill(1.5),
    "scaled": lambda a, h: np.multiply(a, 0.9, out=a), "shifted": lambda a, h: a.__setitem__(slice(1, None), a[:-1])}


@pytest.mark.parametrize("write", WRITES)
@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("read", READS)
def test_read_before_it_changes(read: str, place: str, write: str) -> None:
    def program(decorate: Any) -> Any:
        def forward(s: Any, x: Any) -> Any:
            h = s.l(x)
            old = READS[read](PLACES[place](s))
            WRITES[write](PLACES[place](s), h)
            return h * old if np.ndim(old) < 3 else h + old[0]
        model = keeping(decorate, forward)
        return seen(model, lambda i: PLACES[place](model).__setitem__(1, i) if i == 5 else None)
    check(program, "replays")


@ROWS.replays
def replaced_from_outside(decorate: Any) -> Any:
    def forward(s: Any, x: Any) -> Any:
        h, old = s.l(x), s.buffer[1].copy()
        s.buffer[1] = h.array
        return h + old
    model = keeping(decorate, forward)
    return seen(model, lambda i: setattr(model, "buffer", np.full((3, 3, 4), i, "f")) if i == 5 else None)


@ROWS.either
def an_argument_from_then_on(decorate: Any) -> Any:
    def forward(s: Any, x: Any) -> Any:
        h, old = s.l(x), s.buffer[1].copy()
        s.buffer[1] = h.array
        return h + old
    model = keeping(decorate, forward)
    return lambda i, x: (model(model.buffer[1] if i > 4 else x), model.state())


@ROWS.either
def returned_as_it_is(decorate: Any) -> Any:
    def forward(s: Any, x: Any) -> Any:
        h, old = s.l(x), s.buffer[1].copy()
        s.buffer[1] = h.array
        return h + old, s.buffer
    return seen(keeping(decorate, forward))


@ROWS.either
def a_view_that_is_kept(decorate: Any) -> Any:
    def forward(s: Any, x: Any) -> Any:
        h, old = s.l(x), s.buffer[s.i]
        s.buffer[s.i] = h.array
        s.i = (s.i + 1) % 3
        return h + old
    return seen(keeping(decorate, forward))


@ROWS.either
def an_array_in_a_list(decorate: Any) -> Any:
    def forward(s: Any, x: Any) -> Any:
        h, old = s.l(x), s.in_list[0].mean()
        s.in_list[0][1] = h.array[0]
        return h + old
    return seen(keeping(decorate, forward))


# -- settings --------------------------------------------------------------------------------------------------------


def _k() -> Any:
    return getattr(config, "user_k", 1.0)


class Scaled(kusari.FunctionNode):
    def forward(self, inputs: Any) -> Any:
        return inputs[0] * np.float32(_k() + config.train),

    def backward(self, indexes: Any, gys: Any) -> Any:
        return gys


@static_code
def scaled(x: Any) -> Any:
    return x * np.float32(_k() + config.train)


def _set(s: Any, x: Any) -> Any:
    with using_config("user_k", 3.0):
        h = s.l(x) * _k()
    return h + _k()


def _nested(s: Any, x: Any) -> Any:
    with using_config("user_k", 3.0), using_config("user_k", s.k):
        with using_config("user_k", 5.0):
            h = s.l(x) * _k()
        return h + _k()


def _left_by_an_exception(s: Any, x: Any) -> Any:
    try:
        with using_config("user_k", s.k):
            h = s.l(x) * _k()
            raise KeyError
    except KeyError:
        return h + _k()


def _of_the_users(s: Any, x: Any) -> Any:
    with using_config("user_k", s.k), using_config("train", False):
        h, = Scaled().apply((s.l(x),))
        h = h + scaled(x)
    return h + Scaled().apply((x,))[0] + scaled(x)


def _computed(s: Any, x: Any) -> Any:
    with using_config("user_k", float(x.max())):
        return s.l(x) * _k()


def _in_a_generator(s: Any, x: Any) -> Any:
    def parts() -> Any:
        with using_config("user_k", 4.0):
            yield s.l(x) * _k()
        yield s.l(x) * _k()
    return sum(parts())


@pytest.mark.parametrize("forward", [_set, _nested, _left_by_an_exception, _of_the_users, _computed, _in_a_generator])
def test_settings_of_the_call(forward: Any) -> None:
    def program(decorate: Any) -> Any:
        model = keeping(decorate, forward)

        def call(i: int, x: Any) -> Any:
            model.k = 2.0 if i < 4 else 0.5
            with using_config("user_k", 7.0 if i > 5 else 1.0):
                return model(x), model.state()
        return call
    check(program, "falls back" if forward is _computed else "replays")


@pytest.mark.parametrize("name", ROWS)
def test_rows(name: str) -> None:
    ROWS.check(name)


def test_a_setting_of_the_call_is_traced_once() -> None:
    def forward(x: Any) -> Any:
        with using_config("user_k", 3.0):
            return F.tanh(x) * _k()
    static = kusari.static_graph(forward)
    x = np.ones((2, 2), "f")
    for _ in range(4):
        assert np.allclose(static(x).array, np.tanh(x) * 3)
    assert [*static.static.caches()[0].retraces.values()] == []
