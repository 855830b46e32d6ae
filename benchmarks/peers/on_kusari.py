"""Kusari. Variants of training: define-by-run; a static forward; a static loss; the whole step compiled."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import kusari
import kusari.onnx
from kusari.commands.models import MODELS, compiled
from kusari.runtime.target import thread_limit
from kusari.serializers import DictionarySerializer, NpzDeserializer

from .case import Case, loss_value, magnitude


def prepare(name: str, folder: Path) -> None:
    """Write weights, data, the optimizer's settings and the exported model for all peers."""
    model = MODELS[name]
    np.random.seed(0)
    chain = model.chain()
    x, labels = model.data(np.random.RandomState(1))
    with kusari.using_config("train", False), kusari.no_backprop_mode():
        chain(x)  # parameters that wait for their shape get it
    serializer = DictionarySerializer()
    serializer.save(chain)
    arrays = {"w:" + key: array for key, array in serializer.target.items()}
    arrays.update({f"t:{i}": t for i, t in enumerate(labels)})
    np.savez(folder / "arrays.npz", x=x, **arrays)
    optimizer = model.optimizer()
    facts = {"labels": len(labels), "trained": [path.lstrip("/") for path, _ in chain.namedparams()],
             "optimizer": type(optimizer).__name__, "hyper": optimizer.hyperparam.get_dict()}
    (folder / "facts.json").write_text(json.dumps(facts), encoding="utf-8")
    kusari.onnx.export(chain, x, str(folder / "model.onnx"), input_names="x", output_names="y")


def build(case: Case) -> tuple[Callable[[int], Any], Callable[[int, Any], float]]:
    """The step of a variant."""
    model = MODELS[case.model]
    kind: Any = model.chain
    if case.variant == "static":
        kind = type(kind.__name__, (kind,), {"forward": kusari.static_graph(kind.forward)})
    elif case.variant != "eager":
        kind = compiled(kind)
    chain = kind()
    NpzDeserializer(case.weights).load(chain)
    x, labels, count = case.x, case.labels, len(case.labels)

    if case.phase == "infer":
        def infer(i: int) -> Any:
            with kusari.using_config("train", False), kusari.no_backprop_mode():
                return chain(x)

        return infer, lambda i, y: magnitude(y.array)

    optimizer = model.optimizer().setup(chain)

    if case.variant == "whole step":
        def whole(i: int) -> None:
            optimizer.update(chain.loss, x, labels[i % count])

        return whole, Before(lambda i: chain.loss(x, labels[i % count]))

    def step(i: int) -> float:
        chain.cleargrads()
        loss = chain.loss(x, labels[i % count])
        loss.backward()
        optimizer.update()
        return float(loss.array)

    return step, loss_value


class Before:
    """The loss that a step starts from, computed define-by-run before it: a whole step does not hand it out."""

    def __init__(self, loss: Callable[[int], Any]) -> None:
        self.loss = loss
        self.next = self.compute(0)

    def compute(self, i: int) -> float:
        """The loss of step ``i`` with the weights as they are."""
        with kusari.using_config("use_static_graph", False), kusari.no_backprop_mode():
            return float(self.loss(i).array)

    def __call__(self, i: int, result: Any) -> float:
        now, self.next = self.next, self.compute(i + 1)
        return now


def threads() -> str:
    """The threads that kernels and BLAS use."""
    return f"{thread_limit()} (the BLAS of define-by-run too)"


def version() -> str:
    """The library's version, and what it computes with."""
    return f"{kusari.__version__}, NumPy {np.__version__}"
