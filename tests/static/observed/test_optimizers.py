"""Optimizers that are overridden, by subclasses or on objects, their rules and hooks, in whole steps and alone."""
from __future__ import annotations

import types
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from static.models import build
from static.observed.harness import check, check_apart

import kusari.functions as F
from kusari import Parameter, optimizer_hooks, optimizers

SEEN: list[Any] = []
Change = Callable[[Any, int], Any]


def nothing(o: Any, i: int) -> None:
    """Change nothing between calls."""


class Updating(optimizers.SGD):
    def update(self, lossfun: Any = None, *args: Any, **kwds: Any) -> None:
        SEEN.append("update")
        super().update(lossfun, *args, **kwds)
        for p in self.target.params():
            p.array *= 0.5


class UpdatingParams(optimizers.SGD):
    def update_params(self) -> None:
        super().update_params()
        for p in self.target.params():
            p.array += 0.25


class Safe(optimizers.SGD):
    def is_safe_to_update(self) -> bool:
        SEEN.append(self.t)
        return self.t % 2 == 1


class Hooked(optimizers.SGD):
    def call_hooks(self, timing: str = "pre") -> None:
        SEEN.append(timing)
        super().call_hooks(timing)


class HookCalling(optimizers.SGD):
    def call_hook(self, hook: Any) -> None:
        SEEN.append("hook")
        super().call_hook(hook)


class Checking(optimizers.SGD):
    def check_nan_in_grads(self) -> None:
        SEEN.append([p.grad is None for p in self.target.params()])
        super().check_nan_in_grads()


class Reallocating(optimizers.SGD):
    def reallocate_cleared_grads(self) -> None:
        SEEN.append("reallocate")
        super().reallocate_cleared_grads()
        for p in self.target.params():
            if p.grad is not None:
                p.grad *= 2


class Scaling(optimizers.SGD):
    def update_loss_scale(self) -> None:
        SEEN.append(self._loss_scale)
        super().update_loss_scale()


class OwnRule(optimizers.SGD):
    class Rule(optimizers.sgd.SGDRule):
        def update(self, param: Any) -> None:
            SEEN.append("rule")
            super().update(param)
            param.array *= 0.9

    def create_update_rule(self) -> Any:
        return self.Rule(self.hyperparam)


class OwnCore(optimizers.SGD):
    class Rule(optimizers.sgd.SGDRule):
        def update_core(self, param: Any) -> None:
            if param.grad is not None:
                param.array -= np.float32(0.1) * np.sign(param.grad)

    def create_update_rule(self) -> Any:
        return self.Rule(self.hyperparam)


class OwnValues(optimizers.SGD):
    """Its rate depends on an object of the user's."""

    class Rule(optimizers.sgd.SGDRule):
        factor = types.SimpleNamespace(k=1.0)

        def hyper_values(self) -> dict[str, float]:
            values = dict(super().hyper_values())
            values["lr"] *= self.factor.k
            return values

    def create_update_rule(self) -> Any:
        return self.Rule(self.hyperparam)


class Rated:
    name = "Rated"
    call_for_each_param = True
    timing = "pre"

    def __init__(self) -> None:
        self.k = 0.1

    def __call__(self, rule: Any, param: Any) -> None:
        param.grad += np.float32(self.k) * param.array


class ByProperty(optimizer_hooks.WeightDecay):
    factor = 1.0

    def __init__(self) -> None:
        self._rate = 0.1

    @property
    def rate(self) -> float:
        return self._rate * self.factor

    @rate.setter
    def rate(self, value: float) -> None:
        self._rate = value


class ByClass(optimizer_hooks.WeightDecay):
    rate = 0.1

    def __init__(self) -> None:
        """The rate is the class's."""


class ByTime(optimizer_hooks.Lasso):
    """Its rate counts its own reads."""

    def __init__(self) -> None:
        self.reads = 0

    @property
    def rate(self) -> float:
        self.reads += 1
        return 0.01 * self.reads

    @rate.setter
    def rate(self, value: float) -> None:
        """Whoever sets it is ignored."""


class OwnClipping(optimizer_hooks.GradientClipping):
    def __call__(self, opt: Any) -> None:
        SEEN.append("clip")
        super().__call__(opt)


class OwnDecay(optimizer_hooks.WeightDecay):
    def __call__(self, rule: Any, param: Any) -> None:
        param.grad += np.float32(0.5) * np.sign(param.array)


def overridden(o: Any, i: int) -> None:
    """Override on the object itself, from the fourth update on."""
    if i == 3:
        kind = type(o)

        def update_params(self: Any) -> None:
            SEEN.append("own")
            kind.update_params(self)
            for p in self.target.params():
                p.array *= 0.5
        o.update_params = types.MethodType(update_params, o)


def on_object(name: str, f: Callable[..., Any], at: int = 0) -> Change:
    def change(o: Any, i: int) -> None:
        if i == at:
            original = getattr(o, name)
            setattr(o, name, lambda *args: f(original, *args))
    return change


def on_class(name: str, f: Callable[..., Any]) -> Change:
    def change(o: Any, i: int) -> None:
        kind = type(o)
        if i == 3:
            original = getattr(kind, name)
            setattr(kind, name, lambda self, *args: f(lambda *a: original(self, *a), *args))
    return change


def seen(original: Any, *args: Any) -> Any:
    SEEN.append(len(args))
    return original(*args)


def skipped(original: Any, *args: Any) -> Any:
    return False


def on_target(name: str, at: int = 3) -> Change:
    """Override a method of the model on the model."""
    def change(o: Any, i: int) -> None:
        if i == at:
            original = getattr(o.target, name)
            setattr(o.target, name, lambda *args: (SEEN.append(name), original(*args))[1])
    return change


def on_parameter(name: str) -> Change:
    def change(o: Any, i: int) -> None:
        if i == 3:
            p = o.target.l.W
            original = getattr(p, name)
            setattr(p, name, lambda *args: (SEEN.append(name), original(*args))[1])
    return change


def rule_replaced(o: Any, i: int) -> None:
    if i == 3:
        o.target.l.W.update_rule = optimizers.Adam(0.1).setup(o.target.l).create_update_rule()
        o.setup(o.target)


def another_rule(o: Any, i: int) -> None:
    if i == 3:
        o.target.m.W.update_rule = optimizers.MomentumSGD(0.1).create_update_rule()


def rule_overridden(o: Any, i: int) -> None:
    if i == 3:
        rule = o.target.l.W.update_rule
        rule.update = lambda param: (SEEN.append("own rule"), setattr(param, "array", param.array * 0.5))


def rule_class_overridden(o: Any, i: int) -> None:
    if i == 3:
        class Own(type(o.target.l.W.update_rule)):
            def update_core(self, param: Any) -> None:
                param.array *= 0.5
        o.target.l.W.update_rule.__class__ = Own


def hook(make: Callable[[], Any], change: Change = nothing, at: int = 0) -> Change:
    def changing(o: Any, i: int) -> None:
        if i == at:
            o.own = make()
            o.add_hook(o.own, "own")
        if i >= at:
            change(o.own, i)
    return changing


def rule_hook(o: Any, i: int) -> None:
    if i == 3:
        o.target.l.W.update_rule.add_hook(lambda rule, param: SEEN.append(param.shape), "own")
    if i == 6:
        o.target.l.W.update_rule.remove_hook("own")


def growing(o: Any, i: int) -> None:
    """The shape of a parameter grows between updates."""
    if i in (3, 6):
        p = o.target.extra
        p.array = np.concatenate([p.array, np.ones((1, 4), "f")])
        p.cleargrad()


def growing_with_state(o: Any, i: int) -> None:
    growing(o, i)
    if i in (3, 6):
        o.target.extra.update_rule = o.create_update_rule()


def new_parameter(o: Any, i: int) -> None:
    if i == 3:
        o.target.add_param("late", (4,), initializer=1.0)
        o.target.late.update_rule = o.create_update_rule()


def removed_rule(o: Any, i: int) -> None:
    o.target.l.W.update_rule.enabled = i not in (3, 4)
    if i == 6:
        o.target.m.b.update_rule = None


def resized(o: Any, i: int) -> None:
    if i == 4:
        p, a = o.target.extra, np.ones((3, 4), "f")
        a.resize((9, 4), refcheck=False)
        p.array = a
        p.cleargrad()


def resized_in_place(o: Any, i: int) -> None:
    if i in (4, 6):
        p = o.target.extra
        a = p.array
        a.resize((3 + i, 4), refcheck=False)
        p.array = a
        p.cleargrad()


def rates(o: Any, i: int) -> None:
    o.lr = 0.01 * (1 + i % 3)


def rate_of_one_parameter(o: Any, i: int) -> None:
    if i == 3:
        o.target.l.W.update_rule.hyperparam.lr = 0.2


def rate_that_is_an_array(o: Any, i: int) -> None:
    o.lr = np.float32(0.01 * (1 + i // 3)) if i % 2 else np.array(0.02)


def not_a_number(o: Any, i: int) -> None:
    if i == 4:
        o.target.l.W.array[0, 0] = np.nan


def SGD() -> Any:
    return optimizers.SGD(0.1)


OPTIMIZERS: dict[str, tuple[Callable[[], Any], Change]] = {
    "update": (Updating, nothing),
    "update_params": (UpdatingParams, nothing),
    "is_safe_to_update": (Safe, nothing),
    "call_hooks": (Hooked, nothing),
    "call_hook": (HookCalling, hook(lambda: optimizer_hooks.WeightDecay(0.1))),
    "check_nan_in_grads": (Checking, nothing),
    "reallocate_cleared_grads": (Reallocating, nothing),
    "update_loss_scale": (Scaling, nothing),
    "a rule's update": (OwnRule, nothing),
    "a rule's update_core": (OwnCore, nothing),
    "a rule's values": (OwnValues, lambda o, i: setattr(OwnValues.Rule.factor, "k", 1.0 + i // 3)),
    "update on the object": (SGD, on_object("update", seen)),
    "update_params on the object": (SGD, overridden),
    "is_safe_to_update on the object": (SGD, on_object("is_safe_to_update", skipped, 4)),
    "call_hooks on the object": (SGD, on_object("call_hooks", seen, 3)),
    "check_nan_in_grads on the object": (SGD, on_object("check_nan_in_grads", seen)),
    "reallocate_cleared_grads on the object": (SGD, on_object("reallocate_cleared_grads", seen, 3)),
    "update_loss_scale on the object": (SGD, on_object("update_loss_scale", seen, 3)),
    "update_params later on the class": (lambda: type("Mine", (optimizers.SGD,), {})(),
                                         on_class("update_params", seen)),
    "is_safe_to_update later on the class": (lambda: type("Mine", (optimizers.SGD,), {})(),
                                             on_class("is_safe_to_update", skipped)),
    "cleargrads of the model": (SGD, on_target("cleargrads")),
    "params of the model": (SGD, on_target("params")),
    "cleargrad of a parameter": (SGD, on_parameter("cleargrad")),
    "update of a parameter": (SGD, on_parameter("update")),
    "another rule for one": (SGD, another_rule),
    "rules replaced": (SGD, rule_replaced),
    "a rule's own update": (SGD, rule_overridden),
    "a rule of another class": (SGD, rule_class_overridden),
    "a rule's hook": (SGD, rule_hook),
    "a hook of the user's": (SGD, hook(Rated, lambda h, i: setattr(h, "k", 0.1 * (1 + i // 3)))),
    "a hook later": (SGD, hook(Rated, at=4)),
    "a hook's rate": (SGD, hook(lambda: optimizer_hooks.WeightDecay(0.1),
                                lambda h, i: setattr(h, "rate", 0.1 * (1 + i // 3)))),
    "a rate that is a property": (SGD, hook(ByProperty, lambda h, i: setattr(ByProperty, "factor", 1.0 + i // 3))),
    "a rate behind a property": (SGD, hook(ByProperty, lambda h, i: setattr(h, "_rate", 0.1 * (1 + i // 3)))),
    "a rate that is the class's": (SGD, hook(ByClass, lambda h, i: setattr(ByClass, "rate", 0.1 * (1 + i // 3)))),
    "a rate that counts": (SGD, hook(ByTime)),
    "a threshold": (SGD, hook(lambda: optimizer_hooks.GradientClipping(0.5),
                              lambda h, i: setattr(h, "threshold", 0.5 / (1 + i // 3)))),
    "bounds": (SGD, hook(lambda: optimizer_hooks.GradientHardClipping(-0.1, 0.1),
                         lambda h, i: setattr(h, "upper_bound", 0.1 / (1 + i // 3)))),
    "clipping of the user's": (SGD, hook(lambda: OwnClipping(0.5))),
    "decay of the user's": (SGD, hook(lambda: OwnDecay(0.5))),
    "decay whose call is replaced": (SGD, hook(lambda: type("Mine", (optimizer_hooks.WeightDecay,), {})(0.1),
                                               lambda h, i: setattr(type(h), "__call__", OwnDecay.__call__)
                                               if i == 4 else None)),
    "noise": (SGD, hook(lambda: optimizer_hooks.GradientNoise(0.1))),
    "a function as hook": (SGD, hook(lambda: lambda opt: SEEN.append(opt.t))),
    "hooks' timing": (SGD, hook(lambda: type("Post", (Rated,), {"timing": "post"})())),
    "parameters that grow": (SGD, growing),
    "parameters that grow, with momentum": (lambda: optimizers.MomentumSGD(0.1), growing_with_state),
    "parameters that grow, with old states": (lambda: optimizers.MomentumSGD(0.1), growing),
    "parameters that grow, with Adam": (optimizers.Adam, growing_with_state),
    "a new parameter": (SGD, new_parameter),
    "rules that are removed": (SGD, removed_rule),
    "parameters that are resized": (SGD, resized),
    "parameters that are resized in place": (SGD, resized_in_place),
    "rates": (SGD, rates),
    "rates of one parameter": (SGD, rate_of_one_parameter),
    "rates that are arrays": (SGD, rate_that_is_an_array),
    "rates by a property": (lambda: type("Mine", (optimizers.SGD,), {"lr": property(
        lambda self: 0.1 / (1 + self.t), lambda self, v: None)})(), nothing),
    "NaN": (SGD, not_a_number),
    "loss scaling": (SGD, lambda o, i: o.loss_scaling() if i == 2 else None),
    "a fixed loss scale": (SGD, lambda o, i: o.set_loss_scale(2.0 ** (i // 3))),
    "t is set": (optimizers.Adam, lambda o, i: setattr(o, "t", 10) if i == 4 else None),
    "t of a rule is set": (optimizers.Adam,
                           lambda o, i: setattr(o.target.l.W.update_rule, "t", 10) if i == 4 else None),
    "the state is cleared": (lambda: optimizers.MomentumSGD(0.1),
                             lambda o, i: o.target.l.W.update_rule.state["v"].fill(0) if i == 4 else None),
    "the state is replaced": (lambda: optimizers.MomentumSGD(0.1), lambda o, i: o.target.l.W.update_rule.state.update(
        v=np.ones((4, 4), "f")) if i == 4 else None),
    "zeros for gradients": (SGD, lambda o, i: pytest.deprecated_call(o.use_cleargrads, i // 3 != 1)),
    "another target": (SGD, lambda o, i: o.setup(o.target.l) if i == 4 else None),
}


@pytest.mark.parametrize("name", OPTIMIZERS)
@pytest.mark.parametrize("whole", [True, False])
def test_optimizers(whole: bool, name: str) -> None:
    """The loss is given to the update, or its backward was called before."""
    make, change = OPTIMIZERS[name]

    def program(decorate: Any) -> Any:
        SEEN.clear()
        ByProperty.factor, ByClass.rate, OwnValues.Rule.factor.k = 1.0, 0.1, 1.0
        np.random.seed(1)
        model = build(decorate(lambda s, x: F.sum(F.tanh(s.m(F.tanh(s.l(x))))) + F.mean(F.tanh(s.extra) ** 2)))
        with model.init_scope():
            model.extra = Parameter(np.full((3, 4), 0.5, "f"))
        optimizer = make().setup(model)

        def call(i: int, x: Any) -> Any:
            change(optimizer, i)
            try:
                if whole:
                    optimizer.update(model, x)
                else:
                    model.cleargrads()
                    model(x).backward()
                    optimizer.update()
            except (ValueError, RuntimeError, TypeError) as error:
                return type(error), SEEN.copy()
            states = [p.update_rule and (p.update_rule.t, p.update_rule.state) for p in model.params()]
            return model, optimizer.t, SEEN.copy(), states, optimizer._loss_scale
        return call

    (check_apart if "resized" in name else check)(program, tolerance=1e-4)
