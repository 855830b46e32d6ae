"""Kusari. Variants of training: define-by-run; a static forward; a static loss; the whole step compiled."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import kusari
from kusari.commands import models
from kusari.commands.models import compiled
from kusari.commands.worker import inference_step, training_step, whole_step
from kusari.serializers import DictionarySerializer, NpzDeserializer

from .case import Case, loss_value, magnitude, save
from .further import FURTHER
from .survey_sequences import SURVEY

MODELS = {**models.MODELS, **SURVEY, **FURTHER}


def prepare(name: str, folder: Path, sizes: str = "{}", exported: str = "yes") -> None:
    """Write weights, data, the optimizer's settings and the exported model for all peers; ``sizes``: tiny, or JSON.

    The model is not ``exported`` where nobody reads it (``no``): that takes longer than all else, and the package onnx.
    """
    model = MODELS[name]
    if sizes != "{}":
        model = model.at(**(model.tiny if sizes == "tiny" else json.loads(sizes)))
    np.random.seed(0)
    chain = model.build()
    inputs = {phase: model.arrays(phase)[0] for phase in ("train", "infer")}
    serializer = DictionarySerializer()
    serializer.save(chain)
    for path, array in serializer.target.items():  # statistics as of a network that has been trained
        if path.endswith("avg_mean"):
            array += 0.1 * np.random.randn(*array.shape)
        elif path.endswith("avg_var"):
            array *= 1 + 0.1 * np.random.rand(*array.shape)
    weights = {path: array for path, array in serializer.target.items() if array.dtype != object}
    NpzDeserializer(weights).load(chain)
    optimizer = model.optimizer()
    save(folder, weights, inputs, model.arrays()[1], sizes=model.sizes, clip=model.clip,
         input_gradient=model.input_gradient, trained=[path.lstrip("/") for path, _ in chain.namedparams()],
         optimizer=type(optimizer).__name__, hyper=optimizer.hyperparam.get_dict())
    if exported == "no":
        return
    import kusari.onnx  # here and below: what a measurement does not need is not part of its memory
    names = [f"x{i}" for i in range(len(inputs["infer"]))]
    kusari.onnx.export(chain, inputs["infer"], str(folder / "model.onnx"), input_names=names)


def build(case: Case) -> tuple[Callable[[int], Any], Callable[[int, Any], float]]:
    """The step of a variant."""
    model = MODELS[case.model].at(**case.sizes)
    kind = model.chain
    if case.variant == "static":
        kind = type(kind.__name__, (kind,), {"forward": kusari.static_graph(kind.forward)})
    elif case.variant != "eager":
        kind = compiled(kind)
    chain = model.build(kind)
    NpzDeserializer(case.weights).load(chain)
    inputs, labels = case.inputs, case.labels
    if case.card is not None:
        device = kusari.get_device(f"@cupy:{case.card}")
        device.use()
        chain.to_device(device)
        inputs, labels = device.send(inputs), device.send(labels)

    if case.phase == "infer":
        return inference_step(chain, inputs), lambda i, y: magnitude(
            [v.array for v in y] if isinstance(y, (list, tuple)) else y.array)

    optimizer = model.updater(chain)
    inputs = [kusari.Variable(x) for x in inputs] if case.input_gradient else inputs
    if case.variant == "whole step":
        before = Before(chain, lambda i: chain.loss(*inputs, *labels[i % len(labels)]))
        return whole_step(chain, optimizer, inputs, labels), before
    return training_step(chain, optimizer, inputs, labels), loss_value


class Before:
    """The loss that a step starts from, computed define-by-run before it: a whole step does not hand it out."""

    def __init__(self, chain: Any, loss: Callable[[int], Any]) -> None:
        self.chain, self.loss = chain, loss
        self.next = self.compute(0)

    def compute(self, i: int) -> float:
        """The loss of step ``i`` with the weights as they are; persistent arrays stay as they were."""
        kept = DictionarySerializer()
        kept.save(self.chain)
        with kusari.using_config("use_static_graph", False), kusari.no_backprop_mode():
            value = float(self.loss(i).array)
        NpzDeserializer({path: array for path, array in kept.target.items() if array.dtype != object}).load(self.chain)
        return value

    def __call__(self, i: int, result: Any) -> float:
        now, self.next = self.next, self.compute(i + 1)
        return now


def synchronize() -> None:
    """Wait for the current card."""
    kusari.cuda.Device().synchronize()


def threads() -> str:
    """The threads that kernels and BLAS use."""
    from kusari.ir.threads import thread_limit
    return f"{thread_limit()} (the BLAS of define-by-run too)"


def version() -> str:
    """The library's version, and what it computes with."""
    cupy = f", CuPy {kusari.cuda.cupy.__version__}" if kusari.cuda.available else ""
    return f"{kusari.__version__}, NumPy {np.__version__}{cupy}"
