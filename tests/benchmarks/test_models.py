"""The models of the benchmarks, in tiny sizes: compiled training is define-by-run's, step by step."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import kusari
from kusari.commands.models import MODELS, Model, compiled

TABLE = ("mushroom_mlp", "mnist_mlp", "lenet_cnn", "vgg_cifar", "resnet18", "ptb_lstm", "elementwise",
         "transformer_block")
SLOW = {"ptb_lstm", "transformer_block", "lenet_cnn", "vgg_cifar", "resnet18", "gru_tagger", "vae"}
STEPS = 4


def tiny(name: str) -> Model:
    return MODELS[name].at(**MODELS[name].tiny)


def losses(model: Model, chain: Any, steps: int, *, whole: bool = False) -> list[float]:
    """The loss before each step; the gradients of inputs are added where a model has them."""
    inputs, labels = model.arrays()
    inputs = tuple(map(kusari.Variable, inputs)) if model.input_gradient else inputs
    optimizer = model.updater(chain)
    found = []
    for i in range(steps):
        arrays = (*inputs, *labels[i % len(labels)])
        for x in inputs if model.input_gradient else ():
            x.cleargrad()
        if whole:
            optimizer.update(chain.loss, *arrays)
        else:
            chain.cleargrads()
            loss = chain.loss(*arrays)
            loss.backward()
            optimizer.update()
            found.append(float(loss.array))
        found.extend(float(abs(x.grad).sum()) for x in inputs if model.input_gradient)
    return found


def parameters(chain: Any) -> dict[str, Any]:
    return {path: p.array for path, p in chain.namedparams()}


def pair(model: Model) -> tuple[Any, Any]:
    """Two chains with the same numbers, define-by-run and compiled."""
    np.random.seed(0)
    eager = model.build()
    fast = model.build(compiled(model.chain))
    fast.copyparams(eager)
    return eager, fast


def test_the_table_is_there() -> None:
    assert set(TABLE) <= set(MODELS)
    assert all(model.about.endswith(".") for model in MODELS.values())


@pytest.mark.parametrize("name", MODELS)
def test_sizes_and_data(name: str) -> None:
    model = tiny(name)
    for phase in ("train", "infer"):
        first, again = model.arrays(phase)[0], model.arrays(phase)[0]
        assert all(np.array_equal(a, b) for a, b in zip(first, again, strict=True))
    inputs, labels = model.arrays()
    chain = model.build()
    with kusari.using_config("train", False), kusari.no_backprop_mode():
        chain(*inputs)
        assert np.isfinite(chain.loss(*inputs, *labels[0]).array)
    if MODELS[name].infer:
        full, other = MODELS[name].arrays()[0], MODELS[name].arrays("infer")[0]
        assert full[0].shape != other[0].shape


@pytest.mark.parametrize("name", [pytest.param(n, marks=pytest.mark.slow) if n in SLOW else n for n in MODELS])
def test_compiled_training_is_define_by_run(name: str) -> None:
    model = tiny(name)
    # Batch normalization of a handful of numbers, eighteen times, enlarges the last bit.
    rtol = 1e-3 if name == "resnet18" else 1e-5
    eager, fast = pair(model)
    expected = losses(model, eager, STEPS)
    assert losses(model, fast, STEPS) == pytest.approx(expected, rel=rtol)
    _, whole = pair(model)
    losses(model, whole, STEPS, whole=True)
    for path, array in parameters(eager).items():
        if (name, path) == ("transformer_block", "/qkv/b"):
            continue  # the gradient of a shift of all scores is rounding, which Adam divides by its own size
        np.testing.assert_allclose(parameters(whole)[path], array, rtol=rtol, atol=rtol * abs(array).max(),
                                   err_msg=path)
