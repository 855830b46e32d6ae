"""Loops on a card whose loss, backward and update are one schedule, and one launch; and which loops those are."""
from __future__ import annotations

import sys
from typing import Any

import cupy_kernels
import pytest
from cards.machines import Machine
from static.test_joined_loops import called, ran, same
from static.training_loops import IN_PARTS, JOINED, STEPS, Called, World, clears_after

import kusari
from kusari import optimizers
from kusari.static.step.straight_code import UNTRIED

pytestmark = pytest.mark.skipif(sys.version_info >= UNTRIED, reason="loops are made in parts by this version of Python")

# A card says later that an index is out of bounds: `test_compiled_hazards.py` has that.
LATE = {"a_label_is_out_of_range"}
QUICK = {"clears_before", "gradients_add_up"}


def both(loop: Any, **world: Any) -> tuple[World, World]:
    """What a loop leaves behind joined, and in parts."""
    now, before = (ran(loop, join, device="@cupy:0", **world) for join in (True, False))
    same(now.state(), before.state())
    assert not before.joined
    return now, before


@pytest.mark.parametrize("loop, joined", [
    pytest.param(loop, joined, id=loop.__name__, marks=[] if loop.__name__ in QUICK else pytest.mark.slow)
    for joined, loops in ((True, JOINED), (False, IN_PARTS)) for loop in loops if loop.__name__ not in LATE])
def test_loops_are_what_they_are_in_parts(card: Machine, loop: Any, joined: bool) -> None:
    assert both(loop)[0].joined is joined


@pytest.mark.slow
@pytest.mark.parametrize("world", [
    {"optimizer": optimizers.SGD, "dropout": True}, {"optimizer": optimizers.RMSprop}, {"kind": Called}], ids=str)
def test_optimizers_draws_and_models_that_are_called(card: Machine, world: Any) -> None:
    assert both(clears_after if "kind" not in world else called, **world)[0].joined


def watched(w: World) -> None:
    """A loop that reads nothing, and notes what each of its steps has launched."""
    model, opt = w.model, w.opt
    for x, t in zip(w.x, w.t, strict=True):
        cupy_kernels.launches.clear()
        loss = model.loss(x, t)
        model.cleargrads()
        loss.backward()
        opt.update()
        w.trace.append((cupy_kernels.launches["graphs"], cupy_kernels.launches["kernels"]))


def test_a_step_is_one_launch_and_waits_for_nothing(card: Machine) -> None:
    if not card.simulated:
        pytest.skip("of the stand-in, which counts")
    for join, launched in (True, (1, 0)), (False, (2, 6)):  # a gradient of zeros is elsewhere in each update
        card.waits.clear()
        w = ran(watched, join, device="@cupy:0")
        assert w.trace[3:STEPS] == [launched] * (STEPS - 3)
        assert not card.waits


def on_streams(w: World) -> None:
    model, opt, streams = w.model, w.opt, [w.device.xp.cuda.Stream(non_blocking=True) for _ in range(2)]
    for i, (x, t) in enumerate(zip(w.x, w.t, strict=True)):
        with streams[i % 2]:
            loss = model.loss(x, t)
            model.cleargrads()
            loss.backward()
            opt.update()
        w.trace.append(loss.array)
    for stream in streams:
        stream.synchronize()


def arrays_change_behind_the_step(w: World) -> None:
    """The next batch is written where the last one was, and gradients, losses and parameters by the caller."""
    model, opt, x, t = w.model, w.opt, w.x[0].copy(), w.t[0].copy()
    for i in range(STEPS):
        x[...], t[...] = w.x[i], w.t[i]
        loss = model.loss(x, t)
        model.cleargrads()
        loss.backward()
        opt.update()
        w.trace += [loss.array.copy(), model.a.W.grad.copy()]
        x[...] = 7
        loss.array[...] = -1
        model.a.W.grad[...] = 3
        model.a.W.array[...] *= 0.5
        if i == 2:
            model.b.W.array = model.b.W.array.copy()
        if i == 4:
            model.a.b.array = w.device.xp.zeros_like(model.a.b.array)


def on_the_host_at_times(w: World) -> None:
    model, opt, host, card = w.model, w.opt, kusari.get_device("@numpy"), w.device
    for i in range(2 * STEPS):
        at = (card, host)[i // 3 % 2]
        model.to_device(at)
        x, t = at.send(w.x[i % STEPS]), at.send(w.t[i % STEPS])
        loss = model.loss(x, t)
        model.cleargrads()
        loss.backward()
        opt.update()
        w.trace.append(float(loss.array))
    model.to_device(card)


@pytest.mark.parametrize("loop", [arrays_change_behind_the_step, *(pytest.param(
    loop, marks=pytest.mark.slow) for loop in (on_streams, on_the_host_at_times))])
def test_what_may_happen_between_steps(card: Machine, loop: Any) -> None:
    assert both(loop)[0].joined
