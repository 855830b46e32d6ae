"""Every link, optimizer, hook and initializer with arrays of a card: results, gradients and states are the CPU's."""
from __future__ import annotations

from typing import Any

import cupy_kernels
import numpy as np
import pytest
from cards.machines import Machine
from links.every_link import CASES, X

import kusari
import kusari.functions as F
import kusari.links as L
from kusari import initializers, link_hooks, optimizer_hooks, optimizers, update_kernels

WAITING = {"BinaryHierarchicalSoftmax"}  # whether the labels are in the tree


def trained(link: Any, f: Any, arrays: Any, xp: Any) -> list[Any]:
    """Two steps: results, gradients, persistent values."""
    found: list[Any] = []
    for step in range(2):
        xs = [kusari.Variable(xp.asarray((x * (1 + 0.1 * step)).astype("f"))) if x.dtype.kind == "f" else xp.asarray(x)
              for x in arrays]
        link.cleargrads()
        if hasattr(link, "reset_state"):
            link.reset_state()
        xp.random.seed(step)
        ys = f(*xs)
        ys = ys if isinstance(ys, tuple) else (ys,)
        for i, y in enumerate(ys):
            y.grad = xp.asarray(np.random.RandomState(i).uniform(-1, 1, y.shape).astype("f"))
        kusari.backward(ys)
        found += [y.array for y in ys] + [x.grad for x in xs if isinstance(x, kusari.Variable)]
        found += [p.grad for _, p in sorted(link.namedparams())]
        found += [getattr(k, n) for _, k in sorted(link.namedlinks()) for n in sorted(k._persistent)]
    return found


def equal(card: Machine, found: list[Any], expected: list[Any], tolerance: float = 1e-4) -> None:
    """Arrays on the card, None and numbers are the CPU's."""
    for y, e in zip(found, expected, strict=True):
        if isinstance(e, np.ndarray):
            y = card.host(y)
            assert y.dtype == e.dtype
            np.testing.assert_allclose(y, e, rtol=tolerance, atol=tolerance * max(1, abs(e).max(initial=0)))
        else:
            assert y == e


@pytest.mark.parametrize("name", CASES)
def test_link(name: str, card: Machine) -> None:
    make, arrays = CASES[name]
    both: list[list[Any]] = []
    for xp in (np, card.xp):
        np.random.seed(0)
        made = make()
        call, link = made if isinstance(made, tuple) else (made, made)
        with kusari.using_config("train", False):
            np.random.seed(1)
            call(*arrays)  # parameters whose shapes follow the input
        if xp is not np:
            if hasattr(link, "reset_state"):
                link.reset_state()
            link.to_device("@cupy:0")
        if name in ("StatefulZoneoutLSTM", "SimplifiedDropconnect") and not card.simulated:
            pytest.skip("CuPy draws other numbers than NumPy")
        before = dict(card.waits)
        both.append(trained(link, call, arrays, xp))
        assert card.waits == before or name in WAITING
    equal(card, both[1], both[0])


RULES = {"SGD": {}, "MomentumSGD": {}, "CorrectedMomentumSGD": {}, "NesterovAG": {}, "AdaGrad": {}, "AdaDelta": {},
         "RMSprop": {}, "RMSpropGraves": {}, "SMORMS3": {}, "MSVAG": {}, "Adam": {}, "AMSGrad": {}, "AdaBound": {},
         "AMSBound": {}, "AdamW": {"weight_decay_rate": 0.1}}
HOOKS = [optimizer_hooks.WeightDecay(0.1), optimizer_hooks.Lasso(0.1), optimizer_hooks.GradientClipping(0.5),
         optimizer_hooks.GradientHardClipping(-0.2, 0.3), optimizer_hooks.GradientLARS(),
         optimizer_hooks.GradientNoise(0.3)]


def stepped(xp: Any, optimizer: Any, hook: Any, dtype: str, wide: bool) -> list[Any]:
    """The parameters and states after three updates."""
    draw = np.random.RandomState(0)
    link = kusari.Link()
    with link.init_scope():
        link.p, link.q = (kusari.Parameter(draw.randn(*shape).astype(dtype)) for shape in ((3, 4), (4,)))
    if xp is not np:
        link.to_device("@cupy:0")
    optimizer.setup(link)
    if wide:
        optimizer.use_fp32_update()
    if hook is not None:
        optimizer.add_hook(hook)
    xp.random.seed(1)
    for _ in range(3):
        link.p.grad, link.q.grad = (xp.asarray(draw.randn(*p.shape).astype(dtype)) for p in (link.p, link.q))
        optimizer.update()
    states = [v for p in (link.p, link.q) for _, v in sorted(p.update_rule.state.items())]
    return [link.p.array, link.q.array, *states]


@pytest.mark.parametrize(("name", "dtype", "wide"), [
    *((name, "f", False) for name in RULES), ("Adam", "e", False), ("Adam", "e", True), ("MomentumSGD", "e", True)])
def test_optimizer(name: str, dtype: str, wide: bool, card: Machine) -> None:
    make = getattr(optimizers, name)
    expected = stepped(np, make(**RULES[name]), None, dtype, wide)
    found = stepped(card.xp, make(**RULES[name]), None, dtype, wide)
    assert not card.waits
    equal(card, found, expected, 1e-5 if dtype == "f" else 2e-3)


@pytest.mark.parametrize("name", RULES)
def test_an_update_is_one_kernel_for_any_learning_rate(name: str, card: Machine) -> None:
    if not card.simulated:
        pytest.skip("counts the launches of a simulated card")
    make, before = getattr(optimizers, name), len(update_kernels._kernels)
    launches = cupy_kernels.launches["kernels"]
    for rate in (0.1, 0.01):
        optimizer = make(**RULES[name])
        if name != "AdaDelta":
            setattr(optimizer, "alpha" if hasattr(optimizer, "beta1") else "lr", rate)
        stepped(card.xp, optimizer, None, "f", False)
    assert cupy_kernels.launches["kernels"] - launches == 2 * 3 * 2  # two of three updates of two parameters
    assert len(update_kernels._kernels) - before <= 1


@pytest.mark.parametrize("hook", HOOKS, ids=lambda hook: hook.name)
def test_hook(hook: Any, card: Machine) -> None:
    if isinstance(hook, optimizer_hooks.GradientNoise) and not card.simulated:
        pytest.skip("CuPy draws other numbers than NumPy")
    expected = stepped(np, optimizers.SGD(), hook, "f", False)
    found = stepped(card.xp, optimizers.SGD(), hook, "f", False)
    assert not card.waits
    equal(card, found, expected, 1e-5)


@pytest.mark.parametrize("hook", [link_hooks.SpectralNormalization, link_hooks.WeightStandardization])
def test_hook_of_a_link(hook: Any, card: Machine) -> None:
    both: list[list[Any]] = []
    for xp in (np, card.xp):
        np.random.seed(0)
        link = L.Linear(4, 3).add_hook(hook())
        if xp is not np:
            link.to_device("@cupy:0")
        both.append(trained(link, link, (X,), xp))
    equal(card, both[1], both[0])


@pytest.mark.parametrize("initializer", [
    initializers.Constant(np.arange(4.0)), initializers.Identity(2), initializers.Normal(), initializers.HeNormal(),
    initializers.GlorotUniform(), initializers.Uniform(), initializers.Orthogonal(), initializers.NaN(),
    initializers.Normal(rng=np.random.RandomState(3))], ids=lambda i: type(i).__name__)
def test_initializer(initializer: Any, card: Machine) -> None:
    np.random.seed(0)
    if isinstance(initializer, initializers.Normal) and initializer.rng is not None:
        initializer.rng.seed(3)
    expected = initializers.generate_array(initializer, (4, 4), np)
    card.xp.random.seed(0)
    own = initializer.__dict__.get("rng")
    if own is not None:  # a generator of NumPy's draws for a card, too
        own.seed(3)
    found = initializers.generate_array(initializer, (4, 4), device="@cupy:0")
    assert card.host(found).dtype == np.float32
    if card.simulated or own is not None:
        np.testing.assert_allclose(card.host(found), expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("name", ["UpsamplingDeconvFilter", "DownsamplingConvFilter"])
def test_filters(name: str, card: Machine) -> None:
    made = [initializers.generate_array(getattr(initializers, name)(), (2, 2, 3, 3), device=d)
            for d in ("@cupy:0", "@numpy")]
    equal(card, made[:1], made[1:])


def test_parameters_are_made_where_the_link_is(card: Machine) -> None:
    link = L.Linear(None, 3).to_device("@cupy:0")
    y = link(card.xp.asarray(X))
    assert all(card.host(v).dtype == np.float32 for v in (link.W.array, link.b.array, y.array))
    y = F.sum(y)
    y.backward()
    assert card.host(link.W.grad).shape == (3, 4) and link.device.name == "@cupy:0" and link.xp is card.xp
