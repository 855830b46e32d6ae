"""Whole steps with scaled losses, mixed precision and noise on gradients are define-by-run's, overflows included."""
from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import kusari
import kusari.functions as F
import kusari.links as L
from kusari import static_graph
from kusari.optimizer_hooks import (
    GradientClipping,
    GradientHardClipping,
    GradientLARS,
    GradientNoise,
    Lasso,
    WeightDecay,
)
from kusari.optimizers import SGD, Adam, MomentumSGD, RMSprop

MIXED = kusari.mixed16


class Model(kusari.Chain):
    def __init__(self, unused: bool) -> None:
        super().__init__()
        with self.init_scope():
            self.l1 = L.Linear(5, 7, nobias=True)  # before a normalization its gradient is rounding
            self.norm = L.BatchNormalization(7)
            self.l2 = L.Linear(7, 3)
            if unused:
                self.unused = L.Linear(2, 2)

    @static_graph
    def loss(self, x: Any, t: Any) -> Any:
        h = F.dropout(F.tanh(self.norm(self.l1(x))), 0.2)
        return F.softmax_cross_entropy(self.l2(h), t)


def whole(opt: Any, model: Model, x: Any, t: Any) -> None:
    opt.update(model.loss, x, t)


def in_parts(opt: Any, model: Model, x: Any, t: Any) -> None:
    loss = model.loss(x, t)
    model.cleargrads()
    loss.backward(loss_scale=opt._loss_scale)
    opt.update()


def train(prepare: Callable[[Any, Model], None], optimizer: Any, static: bool, dtype: Any = np.float32, steps: int = 10,
          bad: tuple[int, ...] = (), step: Callable[..., None] = whole) -> tuple[list[Any], Any]:
    np.random.seed(0)
    with kusari.using_config("dtype", dtype):
        model = Model(step is whole)
    opt = optimizer().setup(model)
    prepare(opt, model)
    rs = np.random.RandomState(3)
    seen: list[Any] = []
    real = np.float32 if dtype == np.float32 else np.float16
    with kusari.using_config("use_static_graph", static):
        for i in range(steps):
            x, t = rs.randn(8, 5).astype(real), rs.randint(0, 3, 8).astype("i")
            if i in bad:
                x[0, 0] = np.inf
            if i == 3:
                compiled = list(opt.__dict__["_steps"].by_loss.values()) if static and step is whole else []
            with warnings.catch_warnings(record=True) as caught:
                warnings.simplefilter("always")
                step(opt, model, x, t)
            seen.append([opt.t, opt._loss_scale, opt.is_safe_to_update(), np.random.get_state()[2],
                         sorted(str(w.message) for w in caught if "Non finite" in str(w.message)),
                         [(p._loss_scale, p.update_rule.t) for p in model.params()]])
            seen += [a.copy() for _, p in sorted(model.namedparams()) for a in (p.array, p.grad)]
            seen += [s.copy() for _, p in sorted(model.namedparams()) for s in (p.update_rule.state or {}).values()]
            if i in bad:
                model.norm.avg_mean[...] = 0
                model.norm.avg_var[...] = 1
    if compiled and compiled[0][1] is not None:  # and it has done all steps since
        assert list(opt._steps.by_loss.values()) == compiled and compiled[0][1].in_parts == 0
    return seen, opt


def compare(found: list[Any], expected: list[Any], half: bool) -> None:
    assert len(found) == len(expected)
    for a, b in zip(found, expected, strict=True):
        if isinstance(b, list):
            assert a == b
        else:
            size = np.abs(b[np.isfinite(b)]).max(initial=0)
            np.testing.assert_allclose(a, b, rtol=0, atol=(2e-2 if half else 2e-5) * size + 1e-7)


def check(prepare: Any, optimizer: Any, **more: Any) -> None:
    expected, _ = train(prepare, optimizer, False, **more)
    found, opt = train(prepare, optimizer, True, **more)
    compare(found, expected, more.get("dtype", np.float32) is not np.float32)
    if more.get("step") is in_parts:
        assert opt._compiled is not None
    else:
        text = str(opt.target.static.explain("plan"))
        assert "whole step of" in text, text


def plain(opt: Any, model: Model) -> None:
    pass


def fixed(opt: Any, model: Model) -> None:
    opt.set_loss_scale(1000.0)


def dynamic(opt: Any, model: Model) -> None:
    opt.loss_scaling(interval=3)


def decay(opt: Any, model: Model) -> None:
    opt.add_hook(WeightDecay(0.1))
    opt.add_hook(Lasso(0.01))


def clipping(opt: Any, model: Model) -> None:
    opt.add_hook(GradientClipping(0.3))


def hard(opt: Any, model: Model) -> None:
    opt.add_hook(GradientHardClipping(-0.05, 0.04))


def lars(opt: Any, model: Model) -> None:
    opt.add_hook(GradientLARS(0.5, 0.01))


def noise(opt: Any, model: Model) -> None:
    opt.add_hook(GradientNoise(0.3))


def of_rules(opt: Any, model: Model) -> None:
    for p in (model.l1.W, model.l2.W):
        p.update_rule.add_hook(WeightDecay(0.01))
        p.update_rule.add_hook(GradientHardClipping(-0.05, 0.04))
        p.update_rule.add_hook(Lasso(0.01), timing="post")


def fp32(opt: Any, model: Model) -> None:
    opt.use_fp32_update()


def both(*each: Callable[[Any, Model], None]) -> Callable[[Any, Model], None]:
    def prepare(opt: Any, model: Model) -> None:
        for one in each:
            one(opt, model)
    return prepare


@pytest.mark.parametrize(("hooks", "optimizer", "scale"), [
    pytest.param(hooks, *way, marks=() if i % 2 == k else pytest.mark.slow)
    for i, hooks in enumerate((plain, decay, clipping, hard, lars, noise, of_rules))
    for k, way in enumerate(((SGD, fixed), (Adam, dynamic)))])
def test_scaled_losses(scale: Any, hooks: Any, optimizer: Any) -> None:
    check(both(scale, hooks), optimizer, bad=(4, 6) if scale is dynamic else ())


@pytest.mark.parametrize(("hooks", "scale"), [(plain, fixed), (clipping, dynamic), (of_rules, dynamic)])
def test_updates_alone(scale: Any, hooks: Any) -> None:
    check(both(scale, hooks), MomentumSGD, bad=(4, 6) if scale is dynamic else (), step=in_parts)


@pytest.mark.parametrize(("dtype", "scale", "optimizer"), [
    (np.float16, plain, SGD), (np.float16, fixed, MomentumSGD), (np.float16, dynamic, Adam), (MIXED, plain, Adam),
    (MIXED, fixed, SGD), (MIXED, dynamic, RMSprop), (MIXED, dynamic, MomentumSGD)])
def test_float16_parameters_with_copies_in_float32(dtype: Any, scale: Any, optimizer: Any) -> None:
    check(both(fp32, scale, decay, of_rules), optimizer, dtype=dtype, bad=(4,) if scale is dynamic else ())


@pytest.mark.parametrize(("optimizer", "scale"), [(SGD, dynamic), (MomentumSGD, plain), (RMSprop, dynamic)])
def test_float16_parameters(scale: Any, optimizer: Any) -> None:
    check(both(scale, hard), optimizer, dtype=np.float16, bad=(4,) if scale is dynamic else ())


@pytest.mark.parametrize("memory", ["speed", "low"])
def test_parameters_that_somebody_changes(memory: str) -> None:
    """The copy in float32 then starts anew, of all elements; also where the array is another one."""
    results: list[list[Any]] = []
    for static in (False, True):
        np.random.seed(0)
        with kusari.using_config("dtype", np.float16):
            layer = L.Linear(3, 2, initialW=1)
        opt = SGD(2.0**-9).setup(layer)
        opt.use_fp32_update()

        @static_graph(memory=memory)
        def loss(x: Any, layer: Any = layer) -> Any:
            return F.sum(layer(x))
        results.append([])
        with kusari.using_config("use_static_graph", static):
            for i in range(9):
                opt.update(loss, np.full((2, 3), 0.25, "e"))
                if i == 4:
                    layer.W.array[0, 0] = 3
                if i == 6:
                    layer.W.array = np.full((2, 3), 1.5, "e")
                results[-1] += [layer.W.array.copy(), layer.W.update_rule._fp32_param.array.copy()]
    for a, b in zip(*results, strict=True):
        np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("disabled", [False, True])
def test_noise_is_define_by_runs(disabled: bool) -> None:
    """Bit for bit, in the order of hooks and parameters, behind what the forward draws."""
    def prepare(opt: Any, model: Model) -> None:
        noise(opt, model)
        decay(opt, model)
        opt.add_hook(GradientNoise(0.1), name="more")
        if disabled:
            model.l1.disable_update()
    for optimizer in (SGD, Adam):
        check(prepare, optimizer)


def own_noise(opt: Any, model: Model) -> None:
    opt.add_hook(GradientNoise(0.1, lambda xp, shape, dtype, hook, rule: xp.ones(shape, dtype)))


def clipped_half(opt: Any, model: Model) -> None:
    fp32(opt, model)
    clipping(opt, model)


class Unaware(WeightDecay):
    def grad_expr(self, xp: Any, param: Any, grad: Any) -> Any:
        return grad + self.rate * param

    def __call__(self, rule: Any, param: Any) -> None:
        param.grad += self.rate * param.array


def unaware(opt: Any, model: Model) -> None:
    fixed(opt, model)
    opt.add_hook(Unaware(0.1))


def noisy_rule(opt: Any, model: Model) -> None:
    model.l1.W.update_rule.add_hook(GradientNoise(0.1))


@pytest.mark.parametrize(("prepare", "optimizer", "dtype", "reason"), [
    (own_noise, SGD, np.float32, "has a noise function of the user's own"),
    (noisy_rule, SGD, np.float32, "of a rule draws random numbers between updates"),
    (clipped_half, SGD, np.float16, "takes norms of float16 gradients, which may overflow"),
    (unaware, SGD, np.float32, "states nothing of scaled losses"),
    (plain, Adam, np.float16, "rounds its states to float16 before it uses them"),
])
def test_steps_in_parts(prepare: Any, optimizer: Any, dtype: Any, reason: str) -> None:
    expected, _ = train(prepare, optimizer, False, dtype, 5)
    found, opt = train(prepare, optimizer, True, dtype, 5)
    compare(found, expected, dtype is not np.float32)
    assert reason in str(opt.target.static.explain("plan"))


def test_scales_that_come_and_go() -> None:
    def scenario(static: bool) -> list[Any]:
        np.random.seed(0)
        model = L.Linear(3, 2)
        opt = MomentumSGD(0.1).setup(model)
        loss = static_graph(lambda x: F.sum(model(x) ** 2))
        x = kusari.Variable(np.random.randn(4, 3).astype("f"))
        seen: list[Any] = []
        with kusari.using_config("use_static_graph", static):
            for i in range(24):
                if i == 4:
                    opt.set_loss_scale(64.0)
                if i == 8:
                    opt.loss_scaling(interval=2)
                if i == 12:
                    opt.set_loss_scale(3.0)
                if i == 16:
                    opt._loss_scale, opt._loss_scaling_is_dynamic = None, False
                x.cleargrad()
                opt.update(loss, x)
                if i == 20:
                    opt.update()  # the same gradients once more
                seen += [model.W.array.copy(), model.W.grad.copy(), x.grad.copy(), [x._loss_scale, opt._loss_scale]]
        return seen
    compare(scenario(True), scenario(False), False)


@pytest.mark.parametrize(("transa", "transb", "lead"), [(False, True, ()), (True, False, (2,)), (False, False, (3, 1))])
def test_products_of_float16_are_added_up_in_float32(transa: bool, transb: bool, lead: tuple[int, ...]) -> None:
    """As NumPy's are, to the last rounding; compiled they are no row of Python's."""
    rs = np.random.RandomState(0)
    a, b = rs.randn(*lead, 300, 300).astype("e"), rs.randn(*lead, 300, 300).astype("e")
    product = static_graph(lambda a, b: F.matmul(a, b, transa, transb))
    wide = a.astype("d"), b.astype("d")
    expected = np.matmul(*(x.swapaxes(-1, -2) if t else x for x, t in zip(wide, (transa, transb), strict=True)))
    for _ in range(3):
        y = product(a, b)
        assert y.dtype == np.float16
        np.testing.assert_allclose(y.array, expected, rtol=6e-4, atol=1e-4)
    (_, schedule), = product.static.signatures()
    assert all(row.kernel is not None for row in schedule.forward.program.instructions)
    assert np.isinf(F.matmul(np.full((1, 300), 300, "e"), np.full((300, 1), 300, "e")).array).all()
