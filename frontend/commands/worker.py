"""One measurement of ``python -m kusari bench``, in a process of its own: prints one line of JSON.

``python -m kusari.commands.worker MODEL eager|compiled train|infer SECONDS``
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from typing import Any

import numpy as np

from .. import no_backprop_mode, using_config
from ..variable import Variable
from .models import MODELS, Model, compiled
from .timing import measure


def training_step(model: Model, chain: Any) -> Callable[[int], Any]:
    """Zero the gradients, forward, loss, backward, update, read the loss."""
    inputs, labels = model.arrays()
    optimizer = model.updater(chain)
    variables = tuple(Variable(x) for x in inputs) if model.input_gradient else ()
    inputs = variables or inputs

    def step(i: int) -> float:
        chain.cleargrads()
        for x in variables:
            x.cleargrad()
        loss = chain.loss(*inputs, *labels[i % len(labels)])
        loss.backward()
        optimizer.update()
        return float(loss.array)

    return step


def inference_step(model: Model, chain: Any) -> Callable[[int], Any]:
    """One forward without gradients."""
    inputs, _ = model.arrays("infer")

    def step(i: int) -> Any:
        with using_config("train", False), no_backprop_mode():
            return chain(*inputs)

    return step


def main(arguments: list[str]) -> int:
    """Measure one case and print it."""
    name, mode, phase, seconds = arguments
    model = MODELS[name]
    np.random.seed(0)
    chain = model.build(compiled(model.chain) if mode == "compiled" else None)
    make = training_step if phase == "train" else inference_step
    result = measure(make(model, chain), float(seconds))
    print(json.dumps(result))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
