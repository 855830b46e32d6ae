"""What rules and hooks of the user's state, and what that depends on: their attributes, hyperparameters and globals."""
from __future__ import annotations

from collections.abc import Callable
from typing import Any
from unittest import mock

import numpy as np
import pytest
from static.updating import FIRST, LAST, OwnRule, Rows, Run, in_parts, joined, whole

from kusari import UpdateRule
from kusari.optimizer import Hyperparameter
from kusari.optimizer_hooks import GradientClipping, GradientHardClipping, GradientNoise, Lasso, WeightDecay
from kusari.optimizers import SGD, Adam, MomentumSGD, RMSprop
from kusari.optimizers.sgd import SGDRule

ROWS = Rows()
RATE = 1.0
RATES = [1.0]


class ExpressedAbove(SGDRule):
    """Define-by-run takes the method of `SGDRule`, in place."""

    def update_exprs(self, xp: Any, hyper: Any, param: Any, grad: Any) -> Any:
        return {"param": param - 2 * hyper.lr * grad}


class Plain(UpdateRule):
    """Reads more than it is given."""

    power = 1.0

    def __init__(self, parent: Any = None) -> None:
        super().__init__(parent)
        self.scale = 1.0
        self.table = {"a": 1.0}

    def update_exprs(self, xp: Any, hyper: Any, param: Any, grad: Any) -> Any:
        return {"param": param - hyper.lr * grad * self.scale * self.power}


class FromHyperparam(UpdateRule):
    def update_exprs(self, xp: Any, hyper: Any, param: Any, grad: Any) -> Any:
        return {"param": param - self.hyperparam.lr * grad}


class Branching(UpdateRule):
    def update_exprs(self, xp: Any, hyper: Any, param: Any, grad: Any) -> Any:
        return {"param": param - (hyper.lr if hyper.lr > 0.05 else 2 * hyper.lr) * grad}


class FromClock(UpdateRule):
    def update_exprs(self, xp: Any, hyper: Any, param: Any, grad: Any) -> Any:
        return {"param": param - hyper.lr / self.t * grad}


class FromRates(UpdateRule):
    def update_exprs(self, xp: Any, hyper: Any, param: Any, grad: Any) -> Any:
        return {"param": param - hyper.rates[0] * hyper.rates[1] * grad}


class ByKind(UpdateRule):
    """Asks for the types of numbers."""

    scale: Any = 1.0

    def update_exprs(self, xp: Any, hyper: Any, param: Any, grad: Any) -> Any:
        rates = {bool: 0.01, int: 0.02, float: 0.03, np.float32: 0.04, np.float64: 0.05}
        return {"param": param - rates[type(hyper.lr)] * rates[type(self.scale)] * grad}


class FromTable(Plain):
    def update_exprs(self, xp: Any, hyper: Any, param: Any, grad: Any) -> Any:
        return {"param": param - hyper.lr * self.table["a"] * grad}


class Counting(UpdateRule):
    def update_exprs(self, xp: Any, hyper: Any, param: Any, grad: Any) -> Any:
        self.count = getattr(self, "count", 0) + 1
        return {"param": param - hyper.lr * self.count * grad}


class OfNumPy(UpdateRule):
    def update_exprs(self, xp: Any, hyper: Any, param: Any, grad: Any) -> Any:
        return {"param": param - hyper.lr * np.sign(grad)}


class WithProperty(UpdateRule):
    @property
    def rate(self) -> float:
        return 0.1 / self.t

    def update_exprs(self, xp: Any, hyper: Any, param: Any, grad: Any) -> Any:
        return {"param": param - self.rate * grad}


class Stepping(UpdateRule):
    """The property of a setting."""

    enabled = property(lambda self: self.t < 4, lambda self, value: None)

    def update_exprs(self, xp: Any, hyper: Any, param: Any, grad: Any) -> Any:
        return {"param": param - hyper.lr * grad}


class Inherited(Plain):
    def update_exprs(self, xp: Any, hyper: Any, param: Any, grad: Any) -> Any:
        return super().update_exprs(xp, hyper, param, 2 * grad)


class FromGlobal(UpdateRule):
    def update_exprs(self, xp: Any, hyper: Any, param: Any, grad: Any) -> Any:
        return {"param": param - helped(hyper.lr) * grad}


class FromList(UpdateRule):
    def update_exprs(self, xp: Any, hyper: Any, param: Any, grad: Any) -> Any:
        return {"param": param - RATES[0] * hyper.lr * grad}


def helped(rate: Any) -> Any:
    return rate * RATE


def closing(rate: float) -> tuple[Any, Callable[[float], None]]:
    """A rule that reads a variable of an outer function, and what changes that."""
    def change(value: float) -> None:
        nonlocal rate
        rate = value

    class FromCell(UpdateRule):
        def update_exprs(self, xp: Any, hyper: Any, param: Any, grad: Any) -> Any:
            return {"param": param - rate * hyper.lr * grad}

    return FromCell, change


def rules(s: Run) -> list[Any]:
    return [p.update_rule for p in s.model.params()]


def slower(i: int, s: Run) -> None:
    s.opt.lr = 0.1 / (1 + i)


for kind, compiled in ((ExpressedAbove, ""), (Plain, "whole"), (FromHyperparam, "whole"), (Branching, ""),
                       (FromClock, ""), (FromTable, ""), (Counting, ""), (OfNumPy, ""),
                       (WithProperty, ""), (Stepping, ""), (Inherited, "whole")):
    ROWS.row(f"rule that states expressions: {kind.__name__}", lambda s, kind=kind: OwnRule(kind), slower, compiled)


@ROWS.program("a rule's own setting changes", lambda s: OwnRule(Plain))
def _(i: int, s: Run) -> None:
    s.W.update_rule.scale = 1.0 + i // 3


@ROWS.program("a rule's own class's setting changes", lambda s: OwnRule(type("Own", (Plain,), {})))
def _(i: int, s: Run) -> None:
    type(s.W.update_rule).power = 1.0 + i // 3


@ROWS.program("a rule gets a setting of its class", lambda s: OwnRule(type("Own", (Plain,), {})))
def _(i: int, s: Run) -> None:
    if i == FIRST:
        s.W.update_rule.power = 3.0
    if i == LAST:
        del s.W.update_rule.power


@ROWS.program("a global that a rule's expressions read changes", lambda s: OwnRule(FromGlobal))
def _(i: int, s: Run) -> None:
    globals()["RATE"] = 1.0 + i // 3


@ROWS.program("a list that a rule's expressions read changes", lambda s: OwnRule(FromList), "")
def _(i: int, s: Run) -> None:
    RATES[0] = 1.0 + i // 3


def of_cell(s: Run) -> Any:
    kind, s.more["change"] = closing(1.0)
    return OwnRule(kind)


@ROWS.program("a variable that a rule's expressions read changes", of_cell)
def _(i: int, s: Run) -> None:
    s.more["change"](1.0 + i // 3)


# Hooks.

class FromClass(WeightDecay):
    rate: Any = 0.1

    def __init__(self) -> None:
        pass


class Scheduled(WeightDecay):
    def __init__(self) -> None:
        self.calls = 0

    rate: Any = property(lambda self: 0.05 * (1 + np.random.get_state()[2] % 2))


class OtherDirection(WeightDecay):
    def _direction(self, xp: Any, param: Any) -> Any:
        return param * param


class DirectionOfNumPy(WeightDecay):
    def _direction(self, xp: Any, param: Any) -> Any:
        return np.sign(param)


class NotCalled(GradientClipping):
    call_for_each_param = True

    def __call__(self, rule: Any, param: Any) -> None:
        param.grad *= np.float32(0.5)


class Recording(GradientHardClipping):
    def __init__(self) -> None:
        super().__init__(-0.01, 0.01)
        self.bounds = {"low": -0.02}

    def grad_expr(self, xp: Any, param: Any, grad: Any) -> Any:
        return xp.maximum(grad, self.bounds["low"])

    def __call__(self, rule: Any, param: Any) -> None:
        param.grad[...] = np.maximum(param.grad, self.bounds["low"])


def hooked(kind: Any, of_rule: bool = False) -> Callable[[Run], Any]:
    def make(s: Run) -> Any:
        opt = MomentumSGD(0.1).setup(s.model)
        s.more["hook"] = kind()
        (s.W.update_rule if of_rule else opt).add_hook(s.more["hook"])
        return opt
    return make


for of_rule in (False, True):
    where = "rule" if of_rule else "optimizer"

    @ROWS.program(f"hook of a {where}: attribute of its class", hooked(
        lambda: type("Own", (FromClass,), {})(), of_rule))
    def _(i: int, s: Run) -> None:
        type(s.more["hook"]).rate = 0.1 * (1 + i // 3)

    @ROWS.program(f"hook of a {where}: a property", hooked(Scheduled, of_rule), "" if of_rule else "parts")
    def _(i: int, s: Run) -> None:
        np.random.rand(i)

    @ROWS.program(f"hook of a {where}: what it holds changes", hooked(Recording, of_rule), "" if of_rule else "parts")
    def _(i: int, s: Run) -> None:
        s.more["hook"].bounds["low"] = -0.001 * i

    @ROWS.program(f"hook of a {where}: an array as its rate", hooked(
        lambda: WeightDecay(np.array(0.1, "f")), of_rule), "" if of_rule else "parts")
    def _(i: int, s: Run) -> None:
        s.more["hook"].rate[...] = 0.1 * i

    @ROWS.program(f"hook of a {where}: other arrays as its rate", hooked(
        lambda: WeightDecay(0.1), of_rule), "" if of_rule else "parts")
    def _(i: int, s: Run, of_rule: bool = of_rule) -> None:
        s.more["hook"].rate = np.full(s.W.shape if of_rule else (1,), 0.1 * i, "f")

    @ROWS.program(f"hook of a {where}: its class changes", hooked(lambda: WeightDecay(0.1), of_rule))
    def _(i: int, s: Run) -> None:
        s.more["hook"].__class__ = Lasso if FIRST <= i < LAST else WeightDecay

    @ROWS.program(f"hook of a {where}: late direction", hooked(lambda: WeightDecay(0.1), of_rule))
    def _(i: int, s: Run) -> None:
        if i == FIRST:
            s.open.enter_context(mock.patch.object(WeightDecay, "_direction", lambda self, xp, param: xp.sign(param)))
        if i == LAST:
            s.open.close()

    @ROWS.program(f"hook of a {where}: replaced under its name", hooked(lambda: WeightDecay(0.1), of_rule))
    def _(i: int, s: Run, of_rule: bool = of_rule) -> None:
        if i in (FIRST, LAST):
            owner = s.W.update_rule if of_rule else s.opt
            owner._hooks.pre["WeightDecay"] = WeightDecay(0.1 * i)

    ROWS.row(f"hook of a {where}: direction of the user's", hooked(lambda: OtherDirection(0.1), of_rule),
             compiled="whole")
    ROWS.row(f"hook of a {where}: direction by NumPy", hooked(lambda: DirectionOfNumPy(0.1), of_rule),
             compiled="" if of_rule else "parts")


ROWS.row("hook: another call for each parameter", hooked(lambda: NotCalled(0.1)), compiled="parts")


@ROWS.program("hook: noise of a class")
def _(i: int, s: Run) -> None:
    np.random.seed(i)
    if i == FIRST:
        s.opt.add_hook(type("Noise", (GradientNoise,), {"name": "n", "normal_deviation": lambda self, t: 0.1})(0.01))
    if i == LAST:
        s.opt.remove_hook("n")


@ROWS.program("hook: a function that replaces gradients", compiled="parts")
def _(i: int, s: Run) -> None:
    def halve(opt: Any) -> None:
        for p in opt.target.params():
            p.grad = p.grad * np.float32(0.5)
    if i == FIRST:
        s.opt.add_hook(halve)


@ROWS.program("hook: a function that changes rules", compiled="parts")
def _(i: int, s: Run) -> None:
    def change(opt: Any) -> None:
        opt.lr = 0.1 / (1 + opt.t)
        s.W.update_rule.enabled = opt.t % 2 == 0
        s.model.l2.b.array = s.model.l2.b.array * np.float32(0.5)
    if i == 2:
        s.opt.add_hook(change)


@ROWS.program("hook: a function that removes itself")
def _(i: int, s: Run) -> None:
    def once(opt: Any) -> None:
        opt.remove_hook("once")
        s.model.l2.W.update_rule.add_hook(WeightDecay(0.5))
        s.model.l1.b.update_rule = None
    if i == FIRST:
        s.opt.add_hook(once)


@ROWS.program("hook: a function that clears gradients", compiled="parts")
def _(i: int, s: Run) -> None:
    if i == FIRST:
        s.opt.add_hook(lambda opt: s.W.cleargrad(), name="clear")


@ROWS.program("hook: a schedule after updates")
def _(i: int, s: Run) -> None:
    def schedule(opt: Any) -> None:
        opt.lr *= 0.5
        opt.momentum = 0.5 + 0.01 * opt.t
    if i == 2:
        s.opt.add_hook(schedule, timing="post")


@ROWS.program("hook: one of an optimizer is told another name and time")
def _(i: int, s: Run) -> None:
    if i == 0:
        s.opt.add_hook(WeightDecay(0.1), name="a")
        s.opt.add_hook(Lasso(0.1), name="b", timing="post")
    if i == FIRST:
        s.opt._hooks.pre["a"].timing = "post"
    if i == LAST:
        s.opt.remove_hook("a")


# Hyperparameters.

class Halving(Hyperparameter):
    """Its entry is a property."""

    @property
    def lr(self) -> float:
        return 0.1 / (1 + self.__dict__["count"])

    def get_dict(self) -> dict[str, Any]:
        return {**super().get_dict(), "lr": self.lr}


@ROWS.program("hyperparameters: a property", lambda s: OwnRule(Plain))
def _(i: int, s: Run) -> None:
    if i == 0:
        s.opt.hyperparam = Halving()
        for rule in rules(s):
            rule.hyperparam = Hyperparameter(s.opt.hyperparam)
    s.opt.hyperparam.count = i // 2


@ROWS.program("hyperparameters: a property that counts by itself", lambda s: OwnRule(FromHyperparam))
def _(i: int, s: Run) -> None:
    class Own(Hyperparameter):
        @property
        def lr(self) -> float:
            return 0.1 / (1 + s.opt.t)
    if i == 0:
        for rule in rules(s):
            rule.hyperparam = Own()


@ROWS.program("hyperparameters: get_dict is overridden late", lambda s: OwnRule(Plain))
def _(i: int, s: Run) -> None:
    if i == FIRST:
        s.open.enter_context(mock.patch.object(Hyperparameter, "get_dict", lambda self: {"lr": 0.01 * s.opt.t}))
    if i == LAST:
        s.open.close()


@ROWS.program("hyperparameters: an array that changes in place")
def _(i: int, s: Run) -> None:
    if i == 1:
        s.opt.lr = s.more["lr"] = np.array(0.1)
    if i > 1:
        s.more["lr"][...] = 0.1 / i


@ROWS.program("hyperparameters: one number per element", SGD, "")
def _(i: int, s: Run) -> None:
    if i == FIRST:
        s.W.update_rule.hyperparam.lr = np.linspace(0, 1, 5, dtype="f")


@ROWS.program("hyperparameters: a switch is turned again and again", RMSprop)
def _(i: int, s: Run) -> None:
    s.opt.eps_inside_sqrt = i % 2 == 0
    s.opt.eps = 0.1


@ROWS.program("hyperparameters: bounds come and go", lambda s: Adam(0.1, final_lr=0.01))
def _(i: int, s: Run) -> None:
    s.opt.adabound = i in (2, 3, 5)
    s.opt.amsgrad = i == 4


@ROWS.program("hyperparameters: of all kinds, of one rule", Adam)
def _(i: int, s: Run) -> None:
    if i > 1:
        s.W.update_rule.hyperparam.alpha = np.float32(0.01 * i)
        s.model.l1.b.update_rule.hyperparam.eta = True if i % 2 else 0.5
    if i == LAST:
        del s.W.update_rule.hyperparam.alpha


KINDS = [1.0, 1.0, 1.0, True, True, np.float64(1), 1, 1]  # all equal


@ROWS.program("hyperparameters: equal numbers of other types", lambda s: OwnRule(ByKind))
def _(i: int, s: Run) -> None:
    s.opt.lr = KINDS[i]


@ROWS.program("hyperparameters: equal numbers of other types, of one rule", lambda s: OwnRule(ByKind))
def _(i: int, s: Run) -> None:
    s.opt.lr = 1.0
    s.W.update_rule.hyperparam.lr = KINDS[i]


@ROWS.program("a rule's own setting becomes an equal number of another type", lambda s: OwnRule(ByKind))
def _(i: int, s: Run) -> None:
    s.opt.lr = 1.0
    if i > 1:
        s.W.update_rule.scale = KINDS[i]


@ROWS.program("hyperparameters: a list that changes in place", lambda s: OwnRule(FromRates), "")
def _(i: int, s: Run) -> None:
    if i == 0:
        s.opt.hyperparam.rates = [0.1, 0.2]
    s.opt.hyperparam.rates[i >= FIRST] *= 0.5


@ROWS.program("hyperparameters: those of the optimizer are replaced")
def _(i: int, s: Run) -> None:
    if i == FIRST:
        new = MomentumSGD(0.5, 0.2).hyperparam
        s.opt.hyperparam = new
        for rule in rules(s)[1:]:
            rule.hyperparam._parent = new


@pytest.mark.parametrize("step", [whole, in_parts, joined])
@pytest.mark.parametrize("name", ROWS)
def test_as_define_by_run(name: str, step: Any) -> None:
    ROWS.check(name, step)
