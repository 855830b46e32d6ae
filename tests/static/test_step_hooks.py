"""Whole steps with hooks of update rules, and with settings that change nothing for these parameters."""
from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from static.updating import Model

import kusari
from kusari.optimizer_hooks import GradientClipping, GradientHardClipping, GradientLARS, Lasso, WeightDecay
from kusari.optimizers import SGD, Adam, MomentumSGD


def weights(model: Model) -> list[Any]:
    return [model.l1.W, model.l2.W]


def decay_of_weights(opt: Any, model: Model) -> None:
    for p in weights(model):
        p.update_rule.add_hook(WeightDecay(0.1))


def several(opt: Any, model: Model) -> None:
    opt.add_hook(GradientClipping(0.3))
    for p in model.params():
        p.update_rule.add_hook(GradientHardClipping(-0.05, 0.04))
    decay_of_weights(opt, model)
    model.l1.W.update_rule.add_hook(Lasso(0.02))


def after(opt: Any, model: Model) -> None:
    for p in weights(model):
        p.update_rule.add_hook(Lasso(0.01), timing="post")
        p.update_rule.add_hook(WeightDecay(0.1), timing="post")


def lars(opt: Any, model: Model) -> None:
    opt.add_hook(GradientLARS(threshold=0.5, weight_decay=0.01))


def lars_of_weights(opt: Any, model: Model) -> None:
    for p in weights(model):
        p.update_rule.add_hook(GradientLARS())


def float32_update(opt: Any, model: Model) -> None:
    opt.use_fp32_update()


def whole(opt: Any, model: Model, x: Any, t: Any) -> None:
    opt.update(model.loss, x, t)


def in_parts(opt: Any, model: Model, x: Any, t: Any) -> None:
    loss = model.loss(x, t)
    model.cleargrads()
    loss.backward()
    opt.update()


def train(prepare: Callable[[Any, Model], None], optimizer: Any, static: bool, steps: int = 20,
          change: Callable[[Any, Model], None] = lambda opt, model: None, step: Callable[..., None] = whole,
          ) -> tuple[dict[str, Any], Any]:
    np.random.seed(0)
    model = Model()
    opt = optimizer().setup(model)
    prepare(opt, model)
    rs = np.random.RandomState(3)
    with kusari.using_config("use_static_graph", static):
        for i in range(steps):
            if i == steps // 2:
                change(opt, model)
            step(opt, model, rs.randn(8, 5).astype("f"), rs.randint(0, 3, 8).astype("i"))
    arrays = {n: p.array for n, p in model.namedparams()}
    arrays.update({f"{n} grad": p.grad for n, p in model.namedparams()})
    assert {p.update_rule.t for p in model.params()} == {steps}
    return arrays, opt


def compare(found: dict[str, Any], expected: dict[str, Any]) -> None:
    for name, array in expected.items():
        ulp = np.spacing(np.abs(array).max())
        np.testing.assert_allclose(found[name], array, rtol=0, atol=256 * ulp, err_msg=name)


@pytest.mark.parametrize("optimizer", [SGD, pytest.param(MomentumSGD, marks=pytest.mark.slow), Adam])
@pytest.mark.parametrize("prepare", [decay_of_weights, several, after, lars, lars_of_weights, float32_update])
def test_whole_steps(prepare: Any, optimizer: Any) -> None:
    expected, _ = train(prepare, optimizer, False)
    found, opt = train(prepare, optimizer, True)
    compare(found, expected)
    assert [s is not None for _, s in opt._steps.by_loss.values()] == [True]
    assert "whole step of" in str(opt.target.static.explain("plan"))


@pytest.mark.parametrize("optimizer", [SGD, Adam])
@pytest.mark.parametrize("prepare", [decay_of_weights, several, after])
def test_update_alone(prepare: Any, optimizer: Any) -> None:
    """Where only the forward is static, hooks of rules change the gradients in place as well."""
    with kusari.using_config("join_loops", False):
        found, opt = train(prepare, optimizer, True, 8, step=in_parts)
    compare(found, train(prepare, optimizer, False, 8, step=in_parts)[0])
    assert opt._compiled is not None


def more_rate(opt: Any, model: Model) -> None:
    model.l1.W.update_rule._hooks.pre["WeightDecay"].rate = 0.5


def one_more(opt: Any, model: Model) -> None:
    model.l1.b.update_rule.add_hook(Lasso(0.1))


def one_less(opt: Any, model: Model) -> None:
    model.l1.W.update_rule.remove_hook("WeightDecay")


def later(opt: Any, model: Model) -> None:
    hooks = model.l1.W.update_rule._hooks
    hooks.post["WeightDecay"] = hooks.pre.pop("WeightDecay")


@pytest.mark.parametrize("change", [more_rate, one_more, one_less, later])
def test_hooks_that_change_between_steps(change: Any) -> None:
    expected, _ = train(decay_of_weights, MomentumSGD, False, 8, change)
    found, opt = train(decay_of_weights, MomentumSGD, True, 8, change)
    compare(found, expected)
    assert [s is not None for _, s in opt._steps.by_loss.values()] == [True]


class Halved(WeightDecay):
    """It states the arithmetic of another."""

    def __call__(self, rule: Any, param: Any) -> None:
        param.grad *= np.float32(0.5)


def of_the_optimizer(opt: Any, model: Model) -> None:
    opt.add_hook(Halved(0.1))


def of_a_rule(opt: Any, model: Model) -> None:
    model.l1.W.update_rule.add_hook(Halved(0.1))


@pytest.mark.parametrize(("prepare", "reason"), [
    (of_the_optimizer, "the hook 'WeightDecay' states no expression"),
    (of_a_rule, "the hook 'WeightDecay' of a rule states no expression"),
])
def test_hooks_that_do_something_else(prepare: Any, reason: str) -> None:
    expected, _ = train(prepare, SGD, False, 6)
    found, opt = train(prepare, SGD, True, 6)
    compare(found, expected)
    assert f"made in parts: {reason}" in str(opt.target.static.explain("plan"))
