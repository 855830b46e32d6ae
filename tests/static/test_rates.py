"""Rates that change, and values that follow from the number of updates: of all optimizers, in each kind of step."""
from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any
from weakref import WeakSet

import numpy as np
import pytest
from static.updating import Model, Rows, Run, in_parts, joined, whole

from kusari import optimizers
from kusari.epochs import Scaled
from kusari.hyperparameter import Hyperparameter
from kusari.optimizers import AdaBound, Adam, MomentumSGD, adam
from kusari.static.step import rule_groups, usual

ROWS = Rows()
EVERY = [getattr(optimizers, name) for name in (
    "AMSBound", "AMSGrad", "AdaBound", "AdaDelta", "AdaGrad", "Adam", "AdamW", "CorrectedMomentumSGD", "MSVAG",
    "MomentumSGD", "NesterovAG", "RMSprop", "RMSpropGraves", "SGD", "SMORMS3")]


def rates(i: int, s: Run) -> None:
    """Rates that change, once only and in steps that follow each other, and clocks of all rules."""
    for name in ("lr", "alpha", "eps", "beta1", "momentum"):
        if i in (3, 5, 6) and name in vars(s.opt.hyperparam):
            setattr(s.opt, name, getattr(s.opt, name) * 0.75)
    if i == 4:
        for p in s.model.params():
            p.update_rule.t += 3


for kind in EVERY:
    ROWS.row(f"rates of {kind.__name__} change", lambda s, kind=kind: kind(), rates, "whole")


class Half(Hyperparameter):
    """Hyperparameters of which half the rate is used."""

    def get_dict(self) -> dict[str, Any]:
        found = super().get_dict()
        return {**found, "lr": found["lr"] / 2}


@ROWS.program("the hyperparameters of a rule become some of another class")
def half_of_a_rule(i: int, s: Run) -> None:
    if i == 4:
        s.W.update_rule.hyperparam = Half(s.opt.hyperparam)


@ROWS.program("the hyperparameters of a rule take another class")
def half_in_place(i: int, s: Run) -> None:
    if i == 4:
        s.W.update_rule.hyperparam.__class__ = Half


@ROWS.program("the hyperparameters of the optimizer take another class")
def half_of_all(i: int, s: Run) -> None:
    if i == 4:
        s.opt.hyperparam.__class__ = Half


@ROWS.program("entries of the optimizer's hyperparameters become inherited ones")
def inherited(i: int, s: Run) -> None:
    h = s.opt.hyperparam
    if i == 4:
        h._parent = s.more["parent"] = Hyperparameter()
        h.parent.lr = h.lr
        del h.lr
    if i == 6:
        h.parent.lr *= 4


@ROWS.program("a function of the user's gives the entries of hyperparameters")
def own_entries(i: int, s: Run) -> None:
    h = s.opt.hyperparam
    if i == 4:
        h.get_dict = lambda: {**{n: v for n, v in vars(h).items() if n not in ("_parent", "get_dict")},
                              "lr": 0.001 * len(s.seen)}


@ROWS.program("a function of the user's corrects the bias", Adam)
def own_correction(i: int, s: Run) -> None:
    s.more["now"] = i
    if i == 0:
        s.open.callback(setattr, adam, "bias_corrected", adam.bias_corrected)
        adam.bias_corrected = lambda *_: 0.001 * 2 ** s.more["now"]


LEAST = 0.001


class Least(adam.AdamRule):
    """A rule whose rates are at least a number that stands elsewhere."""

    def _bounds(self, h: dict[str, Any]) -> tuple[Any, Any]:
        return LEAST, 1.0


class WithLeast(AdaBound):
    def create_update_rule(self) -> Least:
        return Least(self.hyperparam)


@ROWS.program("a number changes that bounds follow from", lambda s: WithLeast())
def another_bound(i: int, s: Run) -> None:
    global LEAST
    LEAST = 0.001 if i < 4 else 0.01 * i


@ROWS.program("the bounds of one rule change", lambda s: AdaBound(0.01))
def another_start(i: int, s: Run) -> None:
    if i == 4:
        s.W.update_rule.initial_alpha = 0.02


@ROWS.program("rates are others, with an array, for one step", lambda s: MomentumSGD(0.1), "parts")
def tried(i: int, s: Run) -> None:
    entries = vars(s.opt.hyperparam)
    if i in (1, 2):
        s.opt.lr *= 0.9
    if i == 4:
        s.more["entries"] = {**entries}
        s.opt.lr, s.opt.momentum = 0.5, np.full(1, 0.5)
    if i == 5:
        entries.update(s.more["entries"])


def failing(name: str, value: Any, make: Any) -> None:
    """Append a row of a hyperparameter with which rules raise, for one step, where it has been another before."""
    def between(i: int, s: Run) -> None:
        if i in (1, 2):
            setattr(s.opt, name, getattr(s.opt, name) * 0.9)
        if i == 4:
            s.more["before"] = getattr(s.opt, name)
            setattr(s.opt, name, value)
        if i == 5:
            setattr(s.opt, name, s.more["before"])
    ROWS.row(f"{name} = {str(value)[:4]} of {make.__name__} raises", lambda s: make(), between, "whole")


failing("beta1", 1.0, Adam)  # ZeroDivisionError
failing("beta2", 1.5, Adam)  # ValueError
failing("alpha", 10 ** 400, Adam)  # OverflowError
failing("lr", 10 ** 400, MomentumSGD)
failing("momentum", "", MomentumSGD)
failing("beta", 1.0, optimizers.MSVAG)


@ROWS.program("clocks go back to where there is no rate", Adam, "")
def back(i: int, s: Run) -> None:
    if i == 4:
        for p in s.model.params():
            p.update_rule.t = -1


@ROWS.program("a state is gone", Adam)
def state_gone(i: int, s: Run) -> None:
    if i == 4:
        del s.W.update_rule.state["m"]
    if i == 5:
        s.W.update_rule._state = None


@ROWS.program("rules get a state more, which makes them others", Adam)
def largest(i: int, s: Run) -> None:
    for p in s.model.params() if i == 4 else ():
        p.update_rule.state["vhat"] = np.full_like(p.array, 0.5)


@ROWS.program("a state gets another dtype as a rate changes", compiled="")
def wide_state(i: int, s: Run) -> None:
    if i == 4:
        s.opt.lr *= 0.5
        state = s.W.update_rule.state
        state["v"] = state["v"].astype("d")


@ROWS.program("a parameter gets another dtype as a rate changes")
def wide_parameter(i: int, s: Run) -> None:
    if i == 4:
        s.opt.lr *= 0.5
        s.W.update_rule._state = None
        s.W.array = s.W.array.astype("d")


@ROWS.program("a shallow copy of the optimizer makes a step", Adam)
def shallow(i: int, s: Run) -> None:
    if i in (3, 4):
        s.opt, s.more["other"] = s.more.get("other") or copy.copy(s.opt), s.opt
        s.note(s.opt.t)


@pytest.mark.parametrize("step", [whole, in_parts, joined])
@pytest.mark.parametrize("name", ROWS)
def test_as_define_by_run(name: str, step: Callable[..., None], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Scaled, "ever", False)  # or there would be no usual case
    monkeypatch.setattr(rule_groups, "_branching", WeakSet())  # nor with a class that a text has been given to
    ROWS.check(name, step)


def test_values_that_follow_from_the_clock() -> None:
    """Names of the library's values are known, unless those follow from more than hyperparameters and the clock."""
    found = {}
    for kind in EVERY:
        model = Model()
        kind().setup(model)
        found[kind.__name__] = rule_groups.timed_values(model.l1.b.update_rule)
    adam = ("alpha_t",)
    assert found == {kind.__name__: () for kind in EVERY} | dict.fromkeys(("Adam", "AMSGrad", "AdamW"), adam) | {
        "AMSBound": None, "AdaBound": None, "MSVAG": ("correction", "share")}


@pytest.mark.parametrize("step", [whole, in_parts])
def test_the_usual_case_is_written_when_it_pays(step: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """After four steps of the general kind, before which one is define-by-run."""
    monkeypatch.setattr(usual, "AFTER_STEPS", 4)
    s, found = Run(lambda s: optimizers.Adam()), []
    for i in range(8):
        step(s, np.full((8, 5), i, "f"), np.zeros(8, "i"))
        steps = s.opt.__dict__.get("_steps")
        made = s.opt._compiled if step is in_parts else None if steps is None else [*steps.by_loss.values()][-1][1]
        found.append(made is not None and made.usual.__name__ in ("step", "update"))
    assert found == [False] * 4 + [True] * 4


@pytest.mark.parametrize("kind", [k for k in EVERY if k not in (optimizers.AMSBound, optimizers.AdaBound)])
def test_steps_and_updates_have_a_usual_case(kind: Any) -> None:
    for step, part in ((whole, "step"), (in_parts, "update")):
        s = Run(lambda s: kind())
        for i in range(4):
            step(s, np.full((8, 5), i, "f"), np.zeros(8, "i"))
        made = s.opt._compiled if step is in_parts else next(iter(s.opt._steps.by_loss.values()))[1]
        assert made.usual.__name__ == part
