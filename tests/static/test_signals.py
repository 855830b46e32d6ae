"""Exceptions that handlers of signals raise, whatever they interrupt, arrive at the caller."""
from __future__ import annotations

import functools
import signal
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any

import numpy as np
import pytest

import kusari
import kusari.functions as F
from kusari.static.errors import is_from_handler
from kusari.static.guards import guard

pytestmark = pytest.mark.skipif(not hasattr(signal, "SIGUSR1"), reason="the system has no such signal")


class OutOfTime(Exception):
    pass


def raises(number: int, frame: FrameType | None) -> None:
    raise OutOfTime


def passes_on(*args: Any) -> None:
    raises(*args)


class Handler:
    def raises(self, number: int, frame: FrameType | None) -> None:
        raise OutOfTime


@pytest.fixture
def handled(request: pytest.FixtureRequest) -> Iterator[None]:
    before = signal.signal(signal.SIGUSR1, getattr(request, "param", raises))
    yield
    signal.signal(signal.SIGUSR1, before)


def error_of(run: Callable[[], Any]) -> BaseException:
    with pytest.raises(OutOfTime) as caught:
        run()
    return caught.value


def interrupted() -> None:
    signal.raise_signal(signal.SIGUSR1)


@pytest.mark.parametrize("handled", [raises, passes_on, Handler().raises, functools.partial(passes_on)], indirect=True)
def test_errors_of_handlers_are_known(handled: None) -> None:
    assert is_from_handler(error_of(interrupted))


@pytest.mark.parametrize("run", [lambda: raises(1, None), functools.partial(passes_on, 1, 2)])
def test_other_errors_are_not_of_handlers(run: Callable[[], Any]) -> None:
    assert not is_from_handler(error_of(run))


class Model(kusari.Chain):
    def __init__(self) -> None:
        super().__init__()
        self.numbers = [2.0, 3.0]

    @kusari.static_graph
    def forward(self, x: Any) -> Any:
        for n in self.numbers:
            x = F.relu(x) * n
        return F.sum(x)


def test_a_signal_in_a_guard_arrives(handled: None, monkeypatch: pytest.MonkeyPatch) -> None:
    signals = [False]
    original = guard.same_items

    def same_items(now: Any, before: list[Any]) -> bool:
        if signals[0]:
            interrupted()
        return original(now, before)
    monkeypatch.setattr(guard, "same_items", same_items)
    model, x = Model(), np.ones(3, "f")
    for _ in range(4):
        model(x)
    signals[0] = True
    error_of(lambda: model(x))
    signals[0] = False
    model.numbers[0] = 5.0
    assert float(model(x).array) == 45.0
