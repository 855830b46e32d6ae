"""Random chains, exported: in any opset, with a symbolic dimension, with their gradients, as training steps.

The export itself compares with define-by-run, on given and on random data. What it refuses, it says the line of.
"""
from __future__ import annotations

import re
import warnings
from typing import Any

import numpy as np
import pytest
from static import chains

import kusari
import kusari.onnx
from kusari.optimizer_hooks import GradientClipping, WeightDecay

# What chains may do that has no ONNX form, or no gradient.
REFUSED = ("without an onnx method", "has no operator Einsum", "depends on nothing", "depend on nothing",
           "does not depend on the parameter", "must be one extent")
BAKED = ("in a way that cannot be computed from it", "other functions are applied when",
         "it is written for other extents")


def tried(spec: Any, way: str, opset: int, train: bool, r: Any) -> None:
    """Export a chain; what it raises is the result."""
    chain, call = chains.build(spec), spec.calls[-1]
    chain.alpha, chain.flag = call.alpha, call.flag
    args = tuple(chains.data(spec, call))
    if way == "gradient":
        kusari.onnx.export_gradient(lambda *xs: chain.loss(*xs), args, inputs=True, opset_version=opset, train=train)
    elif way == "step":
        names = sorted(kusari.optimizers.__all__)
        optimizer = getattr(kusari.optimizers, names[spec.seed % len(names)])().setup(chain)
        if spec.hook:
            optimizer.add_hook(WeightDecay(0.01) if spec.hook == "decay" else GradientClipping(0.5))
        kusari.onnx.export_train_step(chain, chain.loss, optimizer, args, opset_version=opset)
    else:
        i = int(r.randint(len(spec.inputs)))
        axis = int(r.randint(args[i].ndim))
        dynamic = {f"Input_{i}": {axis: "N"}} if way == "dynamic" and args[i].shape[axis] else None
        kusari.onnx.export(chain, args, opset_version=opset, train=train, dynamic_shapes=dynamic)


def tame(spec: Any) -> bool:
    """Whether define-by-run computes numbers that can be compared."""
    chain, call = chains.build(spec), spec.calls[-1]
    chain.alpha, chain.flag = call.alpha, call.flag
    with np.errstate(all="ignore"), kusari.using_config("use_static_graph", False), kusari.using_config("train", False):
        try:
            ys = chain(*chains.data(spec, call))
        except (ValueError, TypeError, IndexError, ZeroDivisionError, kusari.errors.KusariError):
            return False
    flat = list(ys.values()) if isinstance(ys, dict) else list(ys) if isinstance(ys, (list, tuple)) else [ys]
    return all(np.isfinite(y.array).all() and abs(y.array).max(initial=0) < 100 for y in flat)


def check(seed: int) -> str:
    """Export the chain of a seed; returns what became of it, raises ``AssertionError`` where it is wrong."""
    spec, r = chains.generate(seed), np.random.RandomState(seed + 1)
    opset, train = int(r.randint(9, 27)), bool(r.rand() < 0.5)
    way = str(r.choice(["plain", "dynamic", "gradient", "step"]))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # kernels that ONNX Runtime has not, definitions that are not static
        if not tame(spec):
            return "wild"
        try:
            with np.errstate(all="ignore"):
                tried(spec, way, opset, train, r)
        except kusari.onnx.ExportError as error:
            text = str(error)
            assert any(reason in text for reason in (*REFUSED, *BAKED)), (seed, way, opset, train, text)
            assert re.search(r"\w+\.py:\d+", text) or not any(reason in text for reason in BAKED), (seed, text)
            return "refused"
    return way


@pytest.mark.parametrize("seed", range(6))
def test_chain(seed: int) -> None:
    check(seed)


@pytest.mark.slow
@pytest.mark.parametrize("first", range(10, 250, 40))
def test_chains(first: int) -> None:
    found = [check(seed) for seed in range(first, first + 40)]
    assert {"plain", "dynamic", "gradient"} <= set(found)
