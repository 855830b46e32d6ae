"""What follows a static call on a card: compiled as on the CPU, and equal to define-by-run."""
from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import cupy_kernels
import numpy as np
import pytest
from cards.machines import Machine
from static.followed import (
    Model,
    accurate,
    chained,
    cross_entropy,
    data,
    equal,
    joined,
    learned,
    one_of_two,
    penalty,
    runs,
    several,
    siamese,
    squares,
    two,
)

import kusari
import kusari.functions as F
from kusari import optimizers
from kusari.static.follow import follow

LOSSES = [cross_entropy, squares, several, two, one_of_two, siamese, chained, learned, penalty, accurate]
QUICK = (cross_entropy,)


@pytest.fixture(autouse=True)
def _on() -> Iterator[None]:
    with kusari.using_config("follow_static", True), kusari.using_config("keep_define_by_run", False):
        yield


def on_card(card: Machine, i: int) -> tuple[Any, Any]:
    x, t = data(i)
    return card.xp.asarray(x), card.xp.asarray(t)


def gradients(card: Machine, model: Any, loss: Callable[..., Any], *arrays: Any) -> dict[str, Any]:
    model.cleargrads()
    y = loss(model, *arrays)
    y.backward()
    found = {name: p.grad for name, p in model.namedparams() if p.grad is not None}
    return {name: card.host(a).copy() for name, a in {**found, "loss": y.array}.items()}


@pytest.mark.parametrize("loss", [f if f in QUICK else pytest.param(f, marks=pytest.mark.slow) for f in LOSSES],
                         ids=lambda f: f.__name__)
def test_every_loss_equals_define_by_run(card: Machine, loss: Callable[..., Any]) -> None:
    model = Model()
    model.to_device("@cupy:0")
    for i in range(5):
        arrays = on_card(card, i)
        found = gradients(card, model, loss, *arrays)
        with kusari.using_config("use_static_graph", False):
            equal(found, gradients(card, model, loss, *arrays))
    assert [name for name in ("forward", "two", "again") if called(model, name) and joined(model, name)]


def called(model: Any, name: str) -> bool:
    return any(o.entries for o in getattr(type(model), name).static.caches(model))


def test_a_step_is_three_graphs_and_waits_for_nothing(card: Machine) -> None:
    """The forward, the loss, and the backward through both."""
    model = Model()
    model.to_device("@cupy:0")
    updater = optimizers.SGD(0.1).setup(model)
    for i in range(8):
        arrays = on_card(card, i)
        card.waits.clear()
        cupy_kernels.launches.clear()
        model.cleargrads()
        cross_entropy(model, *arrays).backward()
        counted = dict(cupy_kernels.launches)
        updater.update()
    if card.simulated:
        assert (counted.get("graphs"), counted.get("kernels", 0), dict(card.waits)) == (3, 0, {})
    assert runs(model) == {"SoftmaxCrossEntropy": "compiled"}


def test_a_kernel_that_is_one_in_define_by_run_stays_that(card: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(follow, "SMALL_BYTES", 0)  # on the host it would be compiled
    model = Model()
    model.to_device("@cupy:0")
    x = card.xp.asarray(np.ones((16, 5), "f"))
    for _ in range(3):
        F.sum(F.exp(model(x))).backward()
    assert set(runs(model).values()) == {"define-by-run: a kernel would gain nothing"}


def test_labels_out_of_range_are_reported_before_anything_else_changes(card: Machine) -> None:
    model = Model()
    model.to_device("@cupy:0")
    updater = optimizers.SGD(0.1).setup(model)
    x, t = on_card(card, 0)
    for _ in range(4):
        model.cleargrads()
        cross_entropy(model, x, t).backward()
        updater.update()
    before = card.host(model.l.W.array).copy()
    model.cleargrads()
    with pytest.raises(IndexError):
        cross_entropy(model, x, t + 3).backward()
        updater.update()
        for _ in range(20):
            model.cleargrads()
            cross_entropy(model, x, t).backward()
            updater.update()
    np.testing.assert_array_equal(card.host(model.l.W.array), before)


def test_a_second_card(two_cards: Machine) -> None:
    """The schedules of a model on card 1 run there, whichever card is current."""
    model = Model()
    model.to_device("@cupy:1")
    with two_cards.xp.cuda.Device(1):
        arrays = on_card(two_cards, 0)
    for _ in range(4):
        found = gradients(two_cards, model, cross_entropy, *arrays)
    with kusari.using_config("use_static_graph", False):
        equal(found, gradients(two_cards, model, cross_entropy, *arrays))
    assert len(joined(model)) == 1 and model.l.W.grad.device.id == 1
