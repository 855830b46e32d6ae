"""Updates of parameters, rules and optimizers that change between steps: as define-by-run."""
from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from static.updating import FIRST, LAST, Rows, Run, in_parts, joined, whole

from kusari import Parameter
from kusari.optimizer_hooks import WeightDecay
from kusari.optimizers import SGD, MomentumSGD, RMSprop
from kusari.optimizers.momentum_sgd import MomentumSGDRule
from kusari.optimizers.rmsprop import RMSpropRule
from kusari.optimizers.sgd import SGDRule

ROWS = Rows()


class Unsafe(SGD):
    """Skips every other update."""

    def is_safe_to_update(self) -> bool:
        return self.t % 2 == 0


class Noted(SGDRule):
    """Does more than its expressions say."""

    def update_core(self, param: Any) -> None:
        super().update_core(param)
        param.array *= np.float32(0.9)


@ROWS.program("array: a copy")
def _(i: int, s: Run) -> None:
    if i >= FIRST:
        s.model.l2.b.array = s.model.l2.b.array.copy()


@ROWS.program("array: not contiguous")
def _(i: int, s: Run) -> None:
    if i == FIRST:
        s.model.l2.b.array = np.zeros(6, "f")[::2]


@ROWS.program("array: another dtype")
def _(i: int, s: Run) -> None:
    if i == FIRST:
        s.dtype = "d"
        for p in s.model.params():
            p.array = p.array.astype("d")
            p.cleargrad()
            p.update_rule._state = None


@ROWS.program("array: grows", lambda s: MomentumSGD(0.1))
def _(i: int, s: Run) -> None:
    if i == FIRST:
        for p in (s.model.l1.W, s.model.l1.b, s.model.l2.W):
            axis = p.array.ndim - 1 if p is s.model.l2.W else 0
            p.array = np.concatenate([p.array, p.array], axis)
            p.cleargrad()
            p.update_rule._state = {"v": np.zeros_like(p.array)}


@ROWS.program("parameters: a new one, with a rule later")
def _(i: int, s: Run) -> None:
    if i == 2:
        with s.model.init_scope():
            s.model.extra = Parameter(np.ones(3, "f"))
    if i == 4:
        s.model.extra.update_rule = s.opt.create_update_rule()
        s.model.extra.update_rule.add_hook(WeightDecay(0.5))
    if i == 6:
        del s.model.extra


@ROWS.program("parameters: one that is not there for long", compiled="step")
def _(i: int, s: Run) -> None:
    if i == 1:
        with s.model.init_scope():
            s.model.extra = Parameter(1.0)
        s.model.extra.update_rule = s.opt.create_update_rule()
    if i == 4:
        s.model.extra.initialize((2, 3))


@ROWS.program("parameters: one that is not there and is frozen", compiled="step")
def _(i: int, s: Run) -> None:
    if i == 1:
        with s.model.init_scope():
            s.model.extra = Parameter(1.0)
    if i == 4:
        s.model.extra.initialize((2, 3))
        s.note(s.model.extra.grad)


@ROWS.program("parameters: replaced and renamed")
def _(i: int, s: Run) -> None:
    if i == FIRST:
        rule = s.W.update_rule
        s.W.name = "other"
        with s.model.l1.init_scope():
            s.model.l1.W = Parameter(s.W.array * np.float32(0.5))
        s.W.update_rule = rule


@ROWS.program("parameters: frozen by several ways")
def _(i: int, s: Run) -> None:
    s.model.l2.W.update_rule.enabled = i % 3 != 2
    if i == FIRST:
        s.model.l1.disable_update()
    if i == LAST:
        s.model.l1.enable_update()
        s.more["rule"], s.model.l2.b.update_rule = s.model.l2.b.update_rule, None
    if i == LAST + 1:
        s.model.l2.b.update_rule = s.more["rule"]


@ROWS.program("parameters: frozen ones are overridden")
def _(i: int, s: Run) -> None:
    if i == 1:
        s.model.l1.disable_update()
    if i == FIRST:
        s.W.update = lambda: s.W.array.fill(i)
    if i == LAST:
        del s.W.update


@ROWS.program("rules: two share one")
def _(i: int, s: Run) -> None:
    if i == FIRST:
        s.model.l1.b.update_rule = s.model.l2.b.update_rule = SGDRule(SGD(0.1).hyperparam)


@ROWS.program("rules: another class in place of one's own")
def _(i: int, s: Run) -> None:
    if i in (FIRST, LAST):
        for rule in [p.update_rule for p in s.model.params()]:
            rule.__class__ = type("Own", (MomentumSGDRule,), {
                "update_core_cpu": lambda self, p: None}) if i == FIRST else MomentumSGDRule


@ROWS.program("rules: of another class each")
def _(i: int, s: Run) -> None:
    if i == FIRST:
        s.W.update_rule = Noted(SGD(0.1).hyperparam)
        s.model.l1.b.update_rule = RMSpropRule(RMSprop().hyperparam)
    if i == LAST:
        s.W.update_rule = SGDRule(SGD(0.1).hyperparam)


@ROWS.program("optimizer: another class in place of its own")
def _(i: int, s: Run) -> None:
    s.opt.__class__ = Unsafe if FIRST <= i < LAST else MomentumSGD


@ROWS.program("optimizer: counters and target")
def _(i: int, s: Run) -> None:
    if i == 2:
        s.opt.t = 100
        s.opt.new_epoch()
    if i == FIRST:
        s.opt.setup(s.model.l1)
    if i == LAST:
        s.opt.setup(s.model)
    if i == LAST + 1:
        s.opt.target = s.model.l2


@ROWS.program("optimizer: loss scaling with a check of the user's", compiled="")
def _(i: int, s: Run) -> None:
    if i == 2:
        s.opt.set_loss_scale(8.0)
    if i == FIRST:
        s.opt.loss_scaling(2)
        s.opt.check_nan_in_grads = lambda: setattr(s.opt, "_gradients_are_finite", s.opt.t % 2 == 0)


@ROWS.program("optimizer: loss scaling that is safe when the user says", lambda s: Unsafe(0.1), "")
def _(i: int, s: Run) -> None:
    if i == 2:
        s.opt.loss_scaling(2)


@ROWS.program("optimizer: loss scaling of a class's own")
def _(i: int, s: Run) -> None:
    if i == 2:
        s.opt.loss_scaling(2)
        s.opt.update_loss_scale = lambda: s.opt.set_loss_scale(2.0 ** (i + s.opt.t))


@pytest.mark.parametrize("step", [whole, in_parts, joined])
@pytest.mark.parametrize("name", ROWS)
def test_as_define_by_run(name: str, step: Any) -> None:
    ROWS.check(name, step)
