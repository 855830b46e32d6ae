"""Functions that fall back in signature after signature: further ones are looked at in few of their calls."""
from __future__ import annotations

import warnings
from collections.abc import Iterable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import kusari
import kusari.functions as F
from kusari import static_graph
from kusari.static import StaticGraphError, function
from kusari.static.replay import schedule_cache
from kusari.static.replay.schedule_cache import ALIKE_SIGNATURES


class Reading(kusari.Chain):
    """Falls back where it reads elements of its argument."""

    reads = True

    @static_graph
    def forward(self, x: Any) -> Any:
        return F.relu(x)[:len(x.tobytes()) if self.reads else 1]


def seen(model: Reading, sizes: Iterable[int]) -> int:
    """How many signatures there are after calls with so many rows."""
    for n in sizes:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            model(np.ones((n, 2), "f"))
    return len(Reading.forward.static.signatures(model))


def test_signatures_of_which_all_fall_back_are_looked_at_seldom(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(schedule_cache, "UNSEEN_CALLS", 6)
    model = Reading()
    assert seen(model, range(1, 20)) == ALIKE_SIGNATURES + 1  # five calls are passed over, one is traced, and so on
    assert "as 8 in turn fell back" in str(model.static.explain())
    model.reads = False
    assert seen(model, [50] * 12) == ALIKE_SIGNATURES + 2  # by then one has been looked at again
    assert "in turn" not in str(model.static.explain())
    assert seen(model, [51, 52]) == ALIKE_SIGNATURES + 4


def test_signatures_of_other_modes_are_looked_at() -> None:
    model = Reading()
    seen(model, range(1, 20))
    model.reads = False
    with kusari.using_config("train", False):
        assert seen(model, [50, 51]) == ALIKE_SIGNATURES + 2


def test_calls_with_other_objects_each_time_are_looked_at_seldom(monkeypatch: pytest.MonkeyPatch) -> None:
    looked: list[Any] = []
    signature = function.signature
    monkeypatch.setattr(function, "signature", lambda *args: (looked.append(args), signature(*args))[1])
    body = static_graph(lambda x, sampled: F.relu(x)[:len(x.tobytes())])
    for sampled in [SimpleNamespace() for _ in range(40)]:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            body(np.ones((3, 2), "f"), sampled)
    assert len(body.static.signatures()) < len(looked) == ALIKE_SIGNATURES


def test_signatures_beside_one_that_is_compiled_are_looked_at() -> None:
    model = Reading()
    model.reads = False
    seen(model, [50, 50])
    model.reads = True
    assert seen(model, range(1, 20)) == 20


def test_strict_functions_raise_for_each_signature() -> None:
    class Strict(Reading):
        @static_graph(strict=True)
        def forward(self, x: Any) -> Any:
            return F.relu(x)[:len(x.tobytes())]
    model = Strict()
    for n in range(1, 12):
        with pytest.raises(StaticGraphError, match="reads elements of"):
            model(np.ones((n, 2), "f"))


def test_calls_with_the_same_objects_have_no_signature(monkeypatch: pytest.MonkeyPatch) -> None:
    looked: list[Any] = []
    signature = function.signature
    monkeypatch.setattr(function, "signature", lambda *args: (looked.append(args), signature(*args))[1])
    body = static_graph(lambda rows, n: F.relu(rows[0])[:bool(rows[0].tobytes()) + n])
    given = [[np.full((3, 2), i, "f")] for i in range(3)]

    def count() -> int:
        looked.clear()
        for rows in given:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                assert (body(rows, 0).array == rows[0][:1]).all()
        return len(looked)
    counts = [count() for _ in range(4)]
    assert counts[0] >= 3 and counts[2:] == [0, 0], counts
    given[1][0] += 1  # whatever they contain
    assert count() == 0
    given[1] = [np.zeros((3, 2), "f")]
    assert count() >= 1
    with kusari.using_config("train", False):
        assert count() >= 3
