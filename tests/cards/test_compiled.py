"""Whole models on a card, compiled: eager = compiled, one launch a step, and the plan's launches and bytes."""
from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import cupy_kernels
import cupy_memory
import numpy as np
import pytest
from cards.machines import SWEEP, Machine

import kusari
import kusari.functions as F
from kusari.commands.models import MODELS, compiled
from kusari.commands.worker import inference_step, training_step, whole_step
from kusari.runtime.card.frame import CardFrame
from kusari.static.step.straight_code import UNTRIED

pytestmark = pytest.mark.filterwarnings("error::kusari.static.StaticGraphWarning")
STEPS = 5

# Launches of a whole step in the sizes of tests, kernels among them that differ, and bytes of a frame.
WHOLE = {"mushroom_mlp": (13, 12, 768), "elementwise": (2, 2, 512), "mnist_mlp": (16, 15, 1792),
         "lenet_cnn": (25, 25, 9472), "ptb_lstm": (89, 34, 12800), "transformer_block": (44, 33, 6656),
         "vgg_cifar": (52, 47, 15360), "resnet18": (116, 78, 156672)}
# Kernels in the graphs of a plain loop's step: joined, where it is one graph, and in parts, where there are three.
LOOPS = {"mushroom_mlp": (14, 14), "elementwise": (4, 3), "mnist_mlp": (18, 23), "lenet_cnn": (27, 32),
         "transformer_block": (44, 46), "vgg_cifar": (54, 59), "resnet18": (118, 123)}
QUICK = ("elementwise",)
SHORT = ("mushroom_mlp", "mnist_mlp", "lenet_cnn")
# Those that are not left to the sweep.
SAMPLE = {"mushroom_mlp": ("parts",), "lenet_cnn": ("whole",), "transformer_block": ("whole",)}

# A bias of all keys shifts the scores of a softmax: its gradient is rounding, which Adam divides by its own size. How
# far it can have come is certain, where to is not.
KEYS = {("transformer_block", "/qkv/b"): (slice(8, 16), 2 * STEPS * 1e-4)}


def slowly(names: Any) -> list[Any]:
    return [name if name in QUICK else pytest.param(name, marks=pytest.mark.slow) for name in names]


def on_card(card: Machine, name: str, kind: str, static: bool) -> tuple[Any, Callable[[int], Any]]:
    """A model in the sizes of tests and its step."""
    np.random.seed(1)
    model = MODELS[name]
    model = model.at(**model.tiny)
    chain = model.build(compiled(model.chain) if static else None)
    chain.to_device("@cupy:0")
    card.xp.random.seed(3)
    inputs, labels = model.arrays()
    inputs = card.sent(inputs)
    if kind == "infer":
        return chain, inference_step(chain, inputs)
    given = [kusari.Variable(x) for x in inputs] if model.input_gradient else inputs
    make = whole_step if kind == "whole" else training_step
    return chain, make(chain, model.updater(chain), given, card.sent(labels))


def state_of(card: Machine, chain: Any) -> dict[str, Any]:
    """Parameters and persistent arrays as NumPy's."""
    found = {name: p.array for name, p in chain.namedparams()}
    for path, link in chain.namedlinks():
        found.update((f"{path}/{name}", getattr(link, name)) for name in link._persistent)
    return {name: card.host(a).copy() for name, a in found.items() if hasattr(a, "device")}


def step_report(card: Machine, name: str) -> Any:
    """The report on the compiled step of a model."""
    chain, step = on_card(card, name, "whole", static=True)
    for i in range(3):
        step(i)
    made = [s for cache in type(chain).loss.static.caches(chain) for entry in cache.entries.values()
            for s, _ in cache.steps(entry) if s is not None]
    return made[-1].compiled.executable.report


@pytest.mark.parametrize("name, kind", [
    pytest.param(name, kind, marks=[] if name in QUICK else pytest.mark.slow if kind in SAMPLE.get(name, ()) else SWEEP)
    for name in WHOLE for kind in ("whole", "parts")])
def test_training_is_that_of_define_by_run(card: Machine, name: str, kind: str) -> None:
    check_training(card, name, kind)


def check_training(card: Machine, name: str, kind: str) -> None:
    """Steps that are compiled, each one graph where whole, change a model as define-by-run does."""
    expected, step = on_card(card, name, kind, static=False)
    for i in range(STEPS):
        step(i)
    found, step = on_card(card, name, kind, static=True)
    for i in range(STEPS):
        card.waits.clear()
        cupy_kernels.launches.clear()
        step(i)
        assert i == 0 or not card.waits or kind == "parts" and dict(card.waits) == {"float": 1}, "it reads the loss"
    if card.simulated and (kind == "whole" or name in LOOPS):
        assert cupy_kernels.launches["graphs"] == 1 and cupy_kernels.launches["kernels"] == 0
    wanted = state_of(card, expected)
    for key, x in state_of(card, found).items():
        if (name, key) in KEYS:
            keys, furthest = KEYS[name, key]
            assert np.abs(x[keys] - wanted[key][keys]).max() < furthest
            x[keys] = wanted[key][keys]
        scale = max(1e-6, float(np.abs(wanted[key]).max()))
        np.testing.assert_allclose(x, wanted[key], rtol=1e-3, atol=2e-5 * scale, err_msg=key)


@pytest.mark.slow
@pytest.mark.parametrize("name", WHOLE)
def test_launches_and_bytes_of_a_step(card: Machine, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cupy_kernels.RawKernel, "_run", lambda *_: None)  # numbers do not depend on results
    monkeypatch.setenv("KUSARI_CUDA_LIBRARIES", "0")
    report = step_report(card, name)
    assert (report.launches, report.kernels, report.frame_bytes) == WHOLE[name]
    assert report.frame_bytes >= report.arena_bytes + report.scratch_bytes and not report.python_instructions


@pytest.mark.skipif(sys.version_info >= UNTRIED, reason="loops are made in parts by this version of Python")
@pytest.mark.parametrize("name", [pytest.param(name, marks=[] if name in QUICK else pytest.mark.slow if name in SHORT
                                               else SWEEP) for name in LOOPS])
def test_launches_of_a_loop(card: Machine, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A loop that is joined is one graph, and reads its loss."""
    if not card.simulated:
        pytest.skip("of the stand-in, which counts")
    launches = cupy_kernels.launches
    monkeypatch.setattr(cupy_kernels.RawKernel, "_run", lambda *_: launches.update(run=1))
    monkeypatch.setenv("KUSARI_CUDA_LIBRARIES", "0")
    for join, graphs, kernels in zip((True, False), (1, 3), LOOPS[name], strict=True):
        with kusari.using_config("join_loops", join):
            _, step = on_card(card, name, "parts", static=True)
            for i in range(4):
                launches.clear()
                card.waits.clear()
                step(i)
        assert launches == {"graphs": graphs, "run": kernels} and card.waits == {"float": 1}


@pytest.mark.parametrize("name", slowly(("mushroom_mlp", "lenet_cnn")))
def test_inference(card: Machine, name: str) -> None:
    found: list[Any] = []
    for static in (False, True):
        chain, step = on_card(card, name, "infer", static)
        for i in range(3):
            step(i)
        with kusari.using_config("train", False), kusari.no_backprop_mode():
            found.append(card.host(chain.forward(*card.sent(MODELS[name].at(**MODELS[name].tiny).arrays()[0])).array))
    np.testing.assert_allclose(found[1], found[0], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("first, second", [
    (("float16", 2, 1, 3, 4), ("float16", 1, 5, 4, 3)),
    *(pytest.param(*case, marks=pytest.mark.slow) for case in (
        (("float32", 2, 1, 3, 4), ("float64", 1, 5, 4, 3)), (("float16", 3, 4), ("float32", 2, 4, 5)))),
], ids=str)
def test_products_of_any_batch_and_two_dtypes_have_kernels(card: Machine, first: Any, second: Any) -> None:
    r = np.random.RandomState(0)
    x, y = (card.xp.asarray(r.normal(size=shape).astype(dtype)) for dtype, *shape in (first, second))
    static = kusari.static_graph(lambda x, y: F.matmul(x, y))
    before, found = list(CardFrame.every), []
    for multiply in (F.matmul, static, static, static):
        variables = kusari.Variable(x), kusari.Variable(y)
        z = multiply(*variables)
        F.sum(z * z).backward()
        found.append([card.host(a).copy() for a in (z.array, *(v.grad for v in variables))])
    made = {f.executable for f in CardFrame.every if f not in before}
    assert made and not any(e.report.python_instructions for e in made)
    for a, b in zip(found[0], found[-1], strict=True):
        assert a.dtype == b.dtype
        np.testing.assert_allclose(b.astype("d"), a.astype("d"), rtol=4e-3, atol=4e-3)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["whole", "parts"])
def test_nothing_leaks(card: Machine, kind: str) -> None:
    if not card.simulated:
        pytest.skip("the pool of the stand-in counts")
    _, step = on_card(card, "mushroom_mlp", kind, static=True)
    used: list[tuple[int, int]] = []
    for i in range(40):
        step(i)
        used.append((cupy_memory.pool.used_bytes(), cupy_memory.pool.most))
    assert len(set(used[8:])) == 1
