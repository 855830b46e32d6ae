"""Chainer 7.8.1, on Kusari's own models. ``static``: its ``static_graph`` on forward, as its examples do."""

from __future__ import annotations

import importlib
import os
import sys
import types
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from .case import Case, loss_value, magnitude

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    import chainer

# The models import what they need from kusari; here that is Chainer.
sys.modules["kusari"] = chainer
sys.modules["kusari.commands"] = commands = types.ModuleType("kusari.commands")
commands.__path__ = [str(Path(__file__).resolve().parents[2] / "frontend" / "commands")]
MODELS = {**importlib.import_module("kusari.commands.models").MODELS,
          **importlib.import_module("peers.survey_sequences").SURVEY,
          **importlib.import_module("peers.further").FURTHER}


def build(case: Case) -> tuple[Callable[[int], Any], Callable[[int, Any], float]]:
    """The step of a variant."""
    model = MODELS[case.model].at(**case.sizes)
    kind = model.chain
    if case.variant == "static":
        kind = type(kind.__name__, (kind,), {"forward": chainer.static_graph(kind.forward)})
    chain = model.build(kind)
    chainer.serializers.NpzDeserializer(case.weights).load(chain)
    inputs, labels, count = case.inputs, case.labels, len(case.labels)

    if case.phase == "infer":
        def infer(i: int) -> Any:
            with chainer.using_config("train", False), chainer.no_backprop_mode():
                return chain(*inputs)

        return infer, lambda i, y: magnitude([v.array for v in y] if isinstance(y, (list, tuple)) else y.array)

    optimizer = model.updater(chain)
    if case.input_gradient:
        inputs = tuple(chainer.Variable(x) for x in inputs)

    def step(i: int) -> float:
        chain.cleargrads()
        if case.input_gradient:
            for x in inputs:
                x.cleargrad()
        loss = chain.loss(*inputs, *labels[i % count])
        loss.backward()
        optimizer.update()
        return float(loss.array)

    return step, loss_value


def threads() -> str:
    """The threads of NumPy's BLAS; all else runs on one."""
    return os.environ["OPENBLAS_NUM_THREADS"] + " (BLAS only)"


def version() -> str:
    """The library's version, and what it computes with."""
    return f"{chainer.__version__}, NumPy {np.__version__}"
