"""Rates that change, and values that follow from the number of updates: of all optimizers, in each kind of step."""
from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from static.updating import Model, Rows, Run, in_parts, joined, whole

from kusari import optimizers
from kusari.static.step import usual
from kusari.static.step.rule_groups import timed_values

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


@pytest.mark.parametrize("step", [whole, in_parts, joined])
@pytest.mark.parametrize("name", ROWS)
def test_as_define_by_run(name: str, step: Callable[..., None]) -> None:
    ROWS.check(name, step)


def test_values_that_follow_from_the_clock() -> None:
    """Those of library's rules are known, unless they follow from more than hyperparameters and the clock."""
    found = {}
    for kind in EVERY:
        model = Model()
        kind().setup(model)
        found[kind.__name__] = timed_values(model.l1.b.update_rule)
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
