"""Optimizers: set-up, hooks, counters, loss scaling, float32 copies, states and snapshots."""

from __future__ import annotations

import copy
import warnings
from types import SimpleNamespace

import numpy as np
import pytest

import kusari
import kusari.functions as F
import kusari.links as L
from kusari import optimizer_hooks, optimizers
from kusari.optimizer import GradientMethod, Hyperparameter, Optimizer, UpdateRule


def weights(*shape: int, dtype: str = "float32") -> kusari.Link:
    link = kusari.Link()
    with link.init_scope():
        link.W = kusari.Parameter(np.ones(shape, dtype))
    return link


def test_hyperparameters_are_inherited() -> None:
    optimizer = optimizers.MomentumSGD(0.5).setup(link := weights(2))
    own = link.W.update_rule.hyperparam
    optimizer.lr = 0.25
    assert (own.lr, own.momentum, own.parent) == (0.25, 0.9, optimizer.hyperparam)
    own.lr = 3
    assert (optimizer.lr, repr(own), own.get_dict()) == (
        0.25, "Hyperparameter(lr=3, momentum=0.9)", {"lr": 3, "momentum": 0.9}
    )  # fmt: skip
    with pytest.raises(AttributeError, match="'alpha'; there are: lr, momentum"):
        _ = own.alpha
    assert repr(copy.deepcopy(own)) == repr(own) and copy.copy(own).parent is optimizer.hyperparam


@pytest.mark.parametrize(
    ("make", "changed"),
    [
        (optimizers.Adam, {}), (optimizers.AdamW, {}), (optimizers.AMSGrad, {"amsgrad": True}),
        (optimizers.AdaBound, {"adabound": True}), (optimizers.AMSBound, {"amsgrad": True, "adabound": True}),
    ],
)  # fmt: skip
def test_defaults_of_adam(make, changed) -> None:
    assert make().hyperparam.get_dict() == {
        "alpha": 0.001, "beta1": 0.9, "beta2": 0.999, "eps": 1e-8, "eta": 1.0, "weight_decay_rate": 0,
        "amsgrad": False, "adabound": False, "final_lr": 0.1, "gamma": 0.001, **changed,
    }  # fmt: skip


def test_learning_rate_of_adam() -> None:
    optimizer = optimizers.AdaBound(alpha=0.5, final_lr=0.1).setup(link := weights(2))
    for wrong in (lambda: optimizer.alpha_t, lambda: link.W.update_rule.bounds):
        with pytest.raises(RuntimeError, match="have not been started"):
            wrong()
    link.W.grad = np.ones(2, "f")
    optimizer.update()
    assert optimizer.alpha_t == link.W.update_rule.alpha_t == pytest.approx(0.5 * np.sqrt(0.001) / 0.1)
    low, high = link.W.update_rule.bounds
    optimizer.alpha = 1.0  # the bounds follow
    assert link.W.update_rule.bounds == pytest.approx((2 * low, 2 * high))


class Log:
    """A hook that notes its calls."""

    def __init__(self, log: list, name: str, timing: str = "pre", each: bool = False) -> None:
        self.log, self.name, self.timing, self.call_for_each_param = log, name, timing, each

    def __call__(self, *args) -> None:
        self.log.append((self.name, *(type(arg).__name__ for arg in args)))


def test_order_of_hooks() -> None:
    log: list = []
    optimizer = optimizers.SGD().setup(link := weights(2))
    link.W.grad = np.ones(2, "f")
    for hook in (Log(log, "a"), Log(log, "b", each=True), Log(log, "c", "post"), Log(log, "d", "post", each=True)):
        optimizer.add_hook(hook)
    optimizer.add_hook(Log(log, "e"), timing="post")
    optimizer.add_hook(Log(log, "gone"))
    optimizer.remove_hook("gone")
    link.W.update_rule.add_hook(Log(log, "x"))
    link.W.update_rule.add_hook(Log(log, "y", "post"))
    optimizer.update()
    one, each = ("SGD",), ("SGDRule", "Parameter")
    assert [entry[0] for entry in log] == ["a", "b", "x", "y", "c", "d", "e"]
    assert [entry[1:] for entry in log] == [one, each, each, each, one, each, one]


@pytest.mark.parametrize(
    ("act", "error", "words"),
    [
        (lambda o: o.setup(3), TypeError, "must be a link"),
        (lambda o: o.add_hook(3), TypeError, "callable"),
        (lambda o: o.add_hook(print, timing="late"), ValueError, "timing must be one of"),
        (lambda o: o.add_hook(optimizer_hooks.Lasso(1)), KeyError, "already exists"),
        (lambda o: o.remove_hook("WeightDecay"), KeyError, "there are: Lasso"),
        (lambda o: o.new_epoch(auto=True), RuntimeError, "use_auto_new_epoch = True"),
        (lambda o: optimizers.SGD().update(), RuntimeError, "not set up"),
        (lambda o: optimizers.SGD().add_hook(print), RuntimeError, "not set up"),
        (lambda o: optimizers.SGD().serialize(kusari.serializers.DictionarySerializer()), RuntimeError, "not set up"),
        (lambda o: Optimizer().update(), NotImplementedError, "update"),
        (lambda o: GradientMethod().setup(weights(1)), NotImplementedError, "create_update_rule"),
        (lambda o: UpdateRule().update(o.target.W), NotImplementedError, "update_exprs"),
    ],
)
def test_wrong_use(act, error, words) -> None:
    optimizer = optimizers.SGD().setup(weights(2))
    optimizer.add_hook(optimizer_hooks.Lasso(1))
    with pytest.raises(error, match=words):
        act(optimizer)


def test_epochs() -> None:
    optimizer = optimizers.SGD()
    optimizer.new_epoch()
    optimizer.use_auto_new_epoch = True
    optimizer.new_epoch(auto=True)
    assert optimizer.epoch == 2
    with pytest.raises(RuntimeError, match="auto_new_epoch=False"):
        optimizer.new_epoch()
    optimizer.t = 5
    assert optimizer.setup(weights(1)) is optimizer and (optimizer.t, optimizer.epoch) == (0, 0)


@pytest.mark.filterwarnings("ignore:.* is deprecated:DeprecationWarning")
def test_update_with_a_loss_clears_gradients_first() -> None:
    link, x = L.Linear(3, 2), np.ones((1, 3), "f")
    optimizer = optimizers.SGD(1.0).setup(link)
    for use in (True, False):
        optimizer.use_cleargrads(use)
        link.W.grad = np.full((2, 3), 100, "f")
        before = link.W.array.copy()
        optimizer.update(lambda x, k: F.sum(link(x)) * k, x, k=2)
        np.testing.assert_allclose(before - link.W.array, 2, rtol=1e-5)
    assert optimizer.t == 2


@pytest.mark.parametrize("loss", [{"loss": 1}, (1, 2), 1.0, None], ids=repr)
def test_update_with_a_loss_that_is_no_variable(loss: object) -> None:
    optimizer = optimizers.SGD().setup(weights(2))

    def total(x: object) -> object:
        return loss

    for lossfun in (total, kusari.static_graph(total)):
        with pytest.raises(TypeError, match=rf"total returned <class '{type(loss).__name__}'>: the loss must be a Var"):
            optimizer.update(lossfun, np.ones(2, "f"))


def test_optimizers_show_their_settings() -> None:
    assert repr(optimizers.MomentumSGD(lr=0.5)) == "MomentumSGD(lr=0.5, momentum=0.9)"


def test_what_is_not_updated() -> None:
    model = kusari.Sequential(L.Linear(2, 2), L.Linear(2))
    optimizer = optimizers.Adam().setup(model)
    model[0].disable_update()
    before = model[0].W.array.copy()
    model.cleargrads()
    optimizer.update()
    assert (model[0].W.array == before).all() and model[0].W.update_rule.t == 0 and not model[0].W.update_rule.state
    assert not model[1].W.is_initialized and not model[1].W.update_rule.state
    optimizer.update(lambda: F.sum(model(np.ones((1, 2), "f"))))  # shape and states come to be
    assert set(model[1].W.update_rule.state) == {"m", "v"}
    model[0].W.update_rule = None
    optimizer.update()


def test_a_parameter_that_stands_twice_is_updated_twice() -> None:
    link = weights(2)
    optimizer = optimizers.SGD(1.0).setup(kusari.ChainList(link, link))
    link.W.grad = np.ones(2, "f")
    optimizer.update()
    assert link.W.array.tolist() == [-1, -1] and link.W.update_rule.t == 2


def test_clipping() -> None:
    model = kusari.ChainList(weights(2), weights(2), L.Linear(1))
    optimizer = optimizers.SGD().setup(model)
    optimizer.add_hook(optimizer_hooks.GradientClipping(1.0))
    model[0].W.grad, model[1].W.grad = np.array([3, 0], "f"), np.array([0, 4], "f")
    model[2].cleargrads()
    optimizer.call_hooks()
    np.testing.assert_allclose(np.hstack([model[0].W.grad, model[1].W.grad]), [0.6, 0, 0, 0.8], rtol=1e-6)
    optimizer.call_hooks()
    np.testing.assert_allclose(model[0].W.grad, [0.6, 0], rtol=1e-6)
    model[0].W.grad[...] = model[1].W.grad[...] = 0
    optimizer.call_hooks()
    assert (model[0].W.grad == 0).all()


@pytest.mark.parametrize(
    "hook",
    [
        optimizer_hooks.WeightDecay(0.1), optimizer_hooks.Lasso(0.1), optimizer_hooks.GradientHardClipping(-0.5, 0.25),
        optimizer_hooks.GradientClipping(0.5), optimizer_hooks.GradientClipping(100.0),
    ],
)  # fmt: skip
def test_the_compilers_formula_of_hooks(hook) -> None:
    optimizer = optimizers.SGD().setup(link := weights(5))
    optimizer.add_hook(hook)
    param, grad = np.random.randn(2, 5).astype("f")
    link.W.array, link.W.grad = param, grad.copy()
    optimizer.call_hooks()
    norm = (np.sqrt(grad @ grad),) if hook.needs_norm else ()
    np.testing.assert_allclose(hook.grad_expr(np, param, grad, *norm), link.W.grad, rtol=1e-6)


def test_static_loss_scaling() -> None:
    link, x = L.Linear(3, 2, initialW=1), np.ones((1, 3), "f")
    optimizer = optimizers.SGD(1.0).setup(link)
    optimizer.set_loss_scale(16.0)
    optimizer.add_hook(optimizer_hooks.WeightDecay(0.5))
    seen = []
    optimizer.add_hook(lambda o: seen.append(link.W.grad.copy()), name="see")
    optimizer.update(lambda: F.sum(link(x)))
    np.testing.assert_allclose(seen[0], 16 * 1.5)
    np.testing.assert_allclose(link.W.array, 1 - 1.5)


def test_dynamic_loss_scaling() -> None:
    optimizer = optimizers.SGD(1.0).setup(link := weights(2))
    with pytest.raises(ValueError, match="interval must be greater than or equal to 1. Actual: 0"):
        optimizer.loss_scaling(interval=0)
    optimizer.loss_scaling(interval=2)
    scales = []
    for grad in (1, 1, 1, np.inf, 1, 1, np.inf):
        link.W.grad = np.full(2, grad, "f")
        before = link.W.array.copy()
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            optimizer.update()
        scales.append(optimizer._loss_scale)
        assert optimizer.is_safe_to_update() == np.isfinite(grad) == (link.W.array != before).all()
        expected = ["Non finite number found in param.grad of /W ("] * (grad == np.inf)
        assert [str(w.message)[:45] for w in caught] == expected
    np.testing.assert_allclose(scales, [2, 4, 8, 4, 4 * 2**0.5, 8, 4])
    optimizer.loss_scaling()  # from the start
    scales = []
    for grad in [1] * 17 + [np.inf] * 17:
        link.W.grad = np.full(2, grad, "f")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            optimizer.update()
        scales.append(optimizer._loss_scale)
    assert scales == [*[2.0**k for k in range(1, 16)], 65504, 65504, *[max(65504 / 2**k, 1) for k in range(1, 18)]]


def test_a_fixed_scale_looks_for_nothing() -> None:
    optimizer = optimizers.SGD(1.0).setup(link := weights(2))
    optimizer.set_loss_scale(4.0)
    link.W.grad = np.full(2, np.inf, "f")
    optimizer.update()
    assert np.isinf(link.W.array).all() and optimizer._loss_scale == 4 and optimizer.is_safe_to_update()


# What Chainer's hooks do to the gradient 8 * 0.5 of a parameter that is 2, when the loss is scaled by 8.
@pytest.mark.parametrize(("hook", "expected"), [
    (optimizer_hooks.WeightDecay(0.1), 4 + 0.1 * 8 * 2), (optimizer_hooks.Lasso(0.1), 4 + 0.1),
    (optimizer_hooks.GradientHardClipping(-1, 1), 1), (optimizer_hooks.GradientClipping(2.0), 2),
    (optimizer_hooks.GradientLARS(0.01, 0.1), (4 + 0.1 * 2) * 2 / (4 + 0.1 * 2)),
])  # fmt: skip
def test_hooks_see_scaled_gradients(hook, expected) -> None:
    optimizer = optimizers.SGD(1.0).setup(link := weights(1))
    optimizer.set_loss_scale(8.0)
    optimizer.add_hook(hook)
    link.W.array[...] = 2
    optimizer.update(lambda: F.sum(link.W * 0.5))
    np.testing.assert_allclose(link.W.grad, expected / 8, rtol=1e-6)
    np.testing.assert_allclose(link.W.array, 2 - expected / 8, rtol=1e-6)


def test_fp32_update() -> None:
    optimizer = optimizers.SGD(2.0**-12).setup(link := weights(2, dtype="float16"))
    optimizer.use_fp32_update()
    for _ in range(4):  # each step alone would be lost in float16
        link.W.grad = np.ones(2, "float16")
        optimizer.update()
    assert link.W.array.tolist() == [1 - 2.0**-10] * 2
    link.W.array[...] = 5  # loaded from a snapshot, say
    link.W.grad = np.zeros(2, "float16")
    optimizer.update()
    assert link.W.array.tolist() == [5, 5]
    adam = optimizers.Adam().setup(link)
    adam.use_fp32_update()
    adam.update()
    assert link.W.update_rule.state["m"].dtype == np.float32


def test_rules_that_the_compiler_may_take() -> None:
    class Custom(optimizers.adam.AdamRule):
        def update_core_cpu(self, param) -> None:
            param.array += 1

    class Scheduled(optimizers.adam.AdamRule):
        def hyper_values(self):
            return {**super().hyper_values(), "eta": 0.5}

    rules = (optimizers.sgd.SGDRule, optimizers.nesterov_ag.NesterovAGRule, Scheduled, Custom, UpdateRule)
    assert [rule.has_exprs() for rule in rules] == [True, True, True, False, False]


def test_expressions_can_be_traced() -> None:
    """The formulas use only operators and functions of ``xp``, so that the compiler's symbols work too."""
    from kusari.ir.scalar import SCALARS

    used: list = []

    class Symbols:
        def __getattr__(self, name):
            assert name in SCALARS
            return lambda *xs: used.append(name) or getattr(np, name)(*xs)

    for name in optimizers.__all__:
        optimizer = getattr(optimizers, name)()
        rule = optimizer.setup(link := weights(2)).target.W.update_rule
        link.W.grad = np.ones(2, "f")
        rule.update(link.W)
        new = rule.update_exprs(
            Symbols(), SimpleNamespace(**rule.hyper_values()), link.W.array, link.W.grad, **(rule.state or {})
        )
        assert set(new) == {"param", *(rule.state or ())}
    assert set(used) == {"absolute", "sqrt", "maximum", "minimum", "where"}


def test_hyperparameters_that_a_rule_does_not_have() -> None:
    with pytest.raises(TypeError, match="AdaGradRule has no hyperparameter 'rate'; it has lr, eps"):
        optimizers.ada_grad.AdaGradRule(rate=0.1)
    rule = optimizers.rmsprop.RMSpropRule(optimizers.RMSprop(lr=0.3).hyperparam, alpha=0.5)
    assert (rule.hyperparam.lr, rule.hyperparam.alpha) == (0.3, 0.5)



def test_snapshot_of_an_optimizer_goes_on_as_if_nothing_had_been() -> None:
    def step(optimizer, link) -> None:
        link.W.grad = link.W.array * np.float32(0.5) + 1
        optimizer.update()

    one = optimizers.AMSGrad(0.1).setup(a := weights(3))
    step(one, a)
    serializer = kusari.serializers.DictionarySerializer()
    serializer.save(one)
    assert sorted(serializer.target) == ["W/m", "W/t", "W/v", "W/vhat", "epoch", "t"]
    two = optimizers.AMSGrad(0.1).setup(b := weights(3))
    b.copyparams(a)
    kusari.serializers.NpzDeserializer(serializer.target).load(two)
    for _ in range(3):
        step(one, a)
        step(two, b)
    assert (a.W.array == b.W.array).all() and two.t == 4


def test_snapshots_that_do_not_fit() -> None:
    sgd = optimizers.SGD().setup(link := weights(2))
    link.W.grad = np.ones(2, "f")
    fresh = kusari.serializers.DictionarySerializer()
    fresh.save(sgd)
    adam = optimizers.Adam().setup(weights(2))
    kusari.serializers.NpzDeserializer(fresh.target).load(adam)  # made before the first update: no states
    assert adam.target.W.update_rule.state is None
    sgd.update()
    used = kusari.serializers.DictionarySerializer()
    used.save(sgd)
    with pytest.raises(kusari.errors.MissingEntryError, match="'W/m'"):
        kusari.serializers.NpzDeserializer(used.target).load(adam)


def test_hyperparameter_of_its_own_parent_chain() -> None:
    a, b = Hyperparameter(), None
    b = Hyperparameter(a)
    a.x, b.y = 1, 2
    assert (b.x, b.get_dict()) == (1, {"x": 1, "y": 2})
    del b.y
    assert b.get_dict() == {"x": 1}


def test_a_hook_that_clears_gradients_leaves_zeros_to_the_next() -> None:
    link, seen = L.Linear(2, 1), []
    optimizer = optimizers.SGD().setup(link)
    link.cleargrads()

    def clear(optimizer):
        optimizer.target.cleargrads()
    optimizer.add_hook(clear)
    optimizer.add_hook(lambda optimizer: seen.append(optimizer.target.W.grad.tolist()), "see")
    optimizer.update()
    assert seen == [[[0, 0]]]


def test_the_base_of_optimizers_calls_hooks_for_each_parameter() -> None:
    class Hook:
        call_for_each_param = True
        name = "hook"

        def __call__(self, rule, param):
            seen.append((rule, param.name))

    seen: list[object] = []
    optimizer = kusari.Optimizer()
    optimizer.setup(L.Linear(2, 1))
    optimizer.add_hook(Hook())
    optimizer.call_hooks()
    assert seen == [(None, "W"), (None, "b")]


def test_states_that_a_function_fills_are_loaded() -> None:
    rule = kusari.UpdateRule()

    def fill(param):
        rule.state["a"] = 0
    rule.init_state = fill
    rule.serialize(kusari.serializers.NpzDeserializer({"t": np.array(3), "a": np.array(5)}))
    assert (rule.t, rule.state) == (3, {"a": 5})
