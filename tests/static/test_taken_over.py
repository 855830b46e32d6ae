"""What compiled updates and whole steps take over may be overridden, by classes and objects, early and late."""
from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from typing import Any
from unittest import mock

import numpy as np
import pytest
from static.updating import FIRST, LAST, Model, OwnRule, Rows, Run, in_parts, joined, whole

from kusari import Link, Parameter, UpdateRule, Variable
from kusari.optimizer import GradientMethod
from kusari.optimizer_hooks import WeightDecay
from kusari.optimizers import SGD, Adam, MomentumSGD
from kusari.optimizers.adam import AdamRule
from kusari.optimizers.momentum_sgd import MomentumSGDRule

ROWS = Rows()


def noted(kind: Any, name: str, s: Run) -> Any:
    """A subclass whose method notes that it has been called."""
    def method(self: Any, *args: Any, **kwargs: Any) -> Any:
        s.note(name)
        return getattr(super(made, self), name)(*args, **kwargs)
    made = type(f"Noted{kind.__name__}", (kind,), {name: method})
    return made


for method in ("update_params", "reallocate_cleared_grads", "check_nan_in_grads", "is_safe_to_update", "call_hooks",
               "call_hook", "update_loss_scale", "create_update_rule"):
    def of_class(s: Run, method: str = method) -> Any:
        opt = noted(MomentumSGD, method, s)(0.1).setup(s.model)
        opt.add_hook(WeightDecay(0.1))
        return opt
    ROWS.row(f"class of an optimizer: {method}", of_class,
        compiled="parts" if method in ("call_hooks", "call_hook") else
        "whole" if method in ("update_loss_scale", "create_update_rule") else "")

for method in ("update", "update_core", "update_core_cpu", "init_state", "hyper_values", "_prepare_state",
               "_update", "_apply_exprs"):
    def of_rule(s: Run, method: str = method) -> Any:
        class Own(MomentumSGD):
            def create_update_rule(self) -> Any:
                return rule(self.hyperparam)
        rule = noted(MomentumSGDRule, method, s)
        if method in ("init_state", "hyper_values"):  # Called when it is: only its results count.
            rule = type("Own", (MomentumSGDRule,), {"init_state": lambda self, p: self.state.update(
                v=np.ones_like(p.array))}) if method == "init_state" else type("Own", (AdamRule,), {
                    "hyper_values": lambda self: {**AdamRule.hyper_values(self), "eta": 1 / self.t}})
        opt = Adam(0.1) if method == "hyper_values" else Own(0.1)
        if method == "hyper_values":
            opt.create_update_rule = lambda: rule(opt.hyperparam)
        return opt
    ROWS.row(f"class of a rule: {method}", of_rule,
        compiled="whole" if method in ("init_state", "hyper_values") else "")


class Unsafe(SGD):
    """Skips every other update."""

    def is_safe_to_update(self) -> bool:
        return self.t % 2 == 0


ROWS.row("updates are skipped", Unsafe)


class OwnParameter(Parameter):
    def update(self) -> None:
        super().update()
        self.array *= np.float32(0.9)


class Kept(Parameter):
    """Its gradients add up."""

    def cleargrad(self) -> None:
        pass


class Clipped(Parameter):
    @property
    def grad(self) -> Any:
        found = Parameter.grad.fget(self)
        return found if found is None else np.clip(found, -0.01, 0.01)

    @grad.setter
    def grad(self, value: Any) -> None:
        Parameter.grad.fset(self, value)


class Frozen(Parameter):
    update_rule = property(lambda self: None, lambda self, value: None)


for kind in (OwnParameter, Kept, Clipped, Frozen):
    def with_parameter(s: Run, kind: Any = kind) -> Any:
        with s.model.l1.init_scope():
            s.model.l1.b = kind(np.zeros(7, "f"))
        return MomentumSGD(0.1)
    ROWS.row(f"class of a parameter: {kind.__name__}", with_parameter, compiled="parts" if kind is Kept else "")


class KeptGradients(Model):
    def cleargrads(self) -> None:
        for p in self.params():
            if p.grad is not None:
                p.grad *= np.float32(0.5)


class Half(Model):
    """Only some of its parameters are known to optimizers."""

    def params(self, include_uninit: bool = True) -> Iterator[Any]:
        yield from self.l2.params(include_uninit)


for kind in (KeptGradients, Half):
    def with_model(s: Run, kind: Any = kind) -> Any:
        s.model = kind()
        return MomentumSGD(0.1)
    ROWS.row(f"class of a link: {kind.__name__}", with_model, compiled="whole" if kind is Half else "parts")


class Doubled(MomentumSGD):
    def update(self, lossfun: Any = None, *args: Any, **kwds: Any) -> None:
        super().update(lossfun, *args, **kwds)
        for p in self.target.params():
            p.array *= np.float32(0.99)


class Twice(MomentumSGD):
    def update(self, lossfun: Any = None, *args: Any, **kwds: Any) -> None:
        super().update(lossfun, *args, **kwds)
        super().update()


ROWS.row("update() is overridden: Doubled", Doubled, compiled="whole")
ROWS.row("update() is overridden: Twice", Twice, compiled="whole")


# What comes late and goes again: on objects and on classes.

class Plain(UpdateRule):
    def update_exprs(self, xp: Any, hyper: Any, param: Any, grad: Any) -> Any:
        return {"param": param - hyper.lr * grad}


def halving(s: Run, name: str, plain: Any) -> Any:
    """A stand-in for a method that does what it does, and halves a parameter."""
    def method(self: Any, *args: Any, **kwargs: Any) -> Any:
        found = plain(self, *args, **kwargs)
        s.note(name)
        s.W.array = s.W.array * np.float32(0.5)
        return found
    return method


def late(name: str, owner: Callable[[Run], Any], method: str, make: Any = MomentumSGD) -> None:
    @ROWS.program(f"late: {name}.{method}", make)
    def _(i: int, s: Run) -> None:
        if i == FIRST:
            found = owner(s)
            if isinstance(found, type):
                new: Any = halving(s, method, getattr(found, method))
            else:
                plain = halving(s, method, getattr(type(found), method))
                new = functools.partial(plain, found)
            s.open.enter_context(mock.patch.object(found, method, new))
        if i == LAST:
            s.open.close()


for method in ("update", "cleargrad"):
    late("parameter", lambda s: s.W, method)
    late("Parameter", lambda s: Parameter, method)
for method in ("update", "update_core", "update_core_cpu"):
    late("rule", lambda s: s.W.update_rule, method)
for method in ("update_core", "update"):
    late("UpdateRule", lambda s: UpdateRule, method)
for method in ("update_core_cpu", "update"):
    late("MomentumSGDRule", lambda s: MomentumSGDRule, method)
for method in ("update_params", "reallocate_cleared_grads", "check_nan_in_grads", "is_safe_to_update", "call_hooks",
               "update_loss_scale"):
    late("optimizer", lambda s: s.opt, method)
    late("GradientMethod", lambda s: GradientMethod, method)
late("MomentumSGD", lambda s: MomentumSGD, "is_safe_to_update")
late("model", lambda s: s.model, "cleargrads")
late("Link", lambda s: Link, "cleargrads")
late("Variable", lambda s: Variable, "backward")


def decaying(s: Run) -> Any:
    opt = MomentumSGD(0.1).setup(s.model)
    opt.add_hook(WeightDecay(0.1))
    return opt


late("GradientMethod", lambda s: GradientMethod, "call_hook", decaying)
late("optimizer", lambda s: s.opt, "call_hook", decaying)
late("WeightDecay", lambda s: WeightDecay, "__call__", decaying)


@ROWS.program("late: a rule's expressions", lambda s: OwnRule(Plain))
def _(i: int, s: Run) -> None:
    if i == FIRST:
        s.W.update_rule.update_exprs = lambda xp, hyper, param, grad: {"param": param + hyper.lr * grad}
    if i == LAST:
        del s.W.update_rule.update_exprs


@ROWS.program("late: a rule class's expressions", lambda s: OwnRule(Plain))
def _(i: int, s: Run) -> None:
    if i == FIRST:
        s.open.enter_context(mock.patch.object(
            Plain, "update_exprs", lambda self, xp, hyper, param, grad: {"param": param + hyper.lr * grad}))
    if i == LAST:
        s.open.close()


@ROWS.program("late: the hyperparameters of a rule")
def _(i: int, s: Run) -> None:
    rule = s.W.update_rule
    if i == FIRST:
        rule.update_core_cpu = lambda p: None
        rule.hyper_values = lambda: {"lr": 0.0, "momentum": 0.0}
    if i == LAST:
        del rule.hyper_values, rule.update_core_cpu


@ROWS.program("late: hyper_values of a rule", lambda s: OwnRule(Plain))
def _(i: int, s: Run) -> None:
    if i == FIRST:
        s.W.update_rule.hyper_values = lambda: {"lr": 0.5}
    if i == LAST:
        del s.W.update_rule.hyper_values


@ROWS.program("late: hyper_values of a rule class", lambda s: OwnRule(Plain))
def _(i: int, s: Run) -> None:
    if i == FIRST:
        s.open.enter_context(mock.patch.object(UpdateRule, "hyper_values", lambda self: {"lr": 0.5}))
    if i == LAST:
        s.open.close()


@ROWS.program("late: one attribute goes as another comes")
def _(i: int, s: Run) -> None:
    p, rule = s.W, s.W.update_rule
    if i == FIRST - 1:
        p.mine = rule.mine = 1
    if i == FIRST:
        del p.mine, rule.mine
        p.update = lambda: Parameter.update(p) if s.opt.t % 2 else None
        rule.update = lambda q: None
    if i == LAST:
        del p.update, rule.update


@ROWS.program("use_cleargrads, and zerograd of an object")
def _(i: int, s: Run) -> None:
    if i == 2:
        pytest.deprecated_call(s.opt.use_cleargrads, False)
    if i == FIRST:
        s.W.zerograd = lambda: s.note("zerograd")
    if i == LAST:
        del s.W.zerograd


@pytest.mark.parametrize("step", [whole, in_parts, joined])
@pytest.mark.parametrize("name", ROWS)
def test_as_define_by_run(name: str, step: Any) -> None:
    ROWS.check(name, step)
