"""One measurement of ``python -m kusari bench``, in a process of its own: prints one line of JSON.

``python -m kusari.commands.worker MODEL 'eager|compiled|whole step' train|infer SECONDS [DEVICE]``
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from typing import Any

import numpy as np

from .. import get_device, no_backprop_mode, using_config
from ..variable import Variable
from .models import MODELS, Model, compiled
from .timing import measure


def training_step(chain: Any, optimizer: Any, inputs: Any, labels: Any) -> Callable[[int], float]:
    """Zero the gradients (of Variables among the inputs, too), forward, loss, backward, update, read the loss."""
    variables = [x for x in inputs if isinstance(x, Variable)]

    def step(i: int) -> float:
        chain.cleargrads()
        for x in variables:
            x.cleargrad()
        loss = chain.loss(*inputs, *labels[i % len(labels)])
        loss.backward()
        optimizer.update()
        return float(loss.array)

    return step


def whole_step(chain: Any, optimizer: Any, inputs: Any, labels: Any) -> Callable[[int], None]:
    """The same as one schedule, which does not hand out the loss."""
    variables = [x for x in inputs if isinstance(x, Variable)]

    def step(i: int) -> None:
        for x in variables:
            x.cleargrad()
        optimizer.update(chain.loss, *inputs, *labels[i % len(labels)])

    return step


def inference_step(chain: Any, inputs: Any) -> Callable[[int], Any]:
    """One forward without gradients."""

    def step(i: int) -> Any:
        with using_config("train", False), no_backprop_mode():
            return chain(*inputs)

    return step


def step_of(model: Model, chain: Any, phase: str, whole: bool = False, device: Any = None) -> Callable[[int], Any]:
    """The step of a model on its own data, on a device (by default where the data is)."""
    inputs, labels = model.arrays(phase)
    if device is not None:
        inputs, labels = device.send(inputs), device.send(labels)
    if phase == "infer":
        return inference_step(chain, inputs)
    inputs = [Variable(x) for x in inputs] if model.input_gradient else inputs
    return (whole_step if whole else training_step)(chain, model.updater(chain), inputs, labels)


def main(arguments: list[str]) -> int:
    """Measure one case and print it."""
    name, mode, phase, seconds, *rest = arguments
    model = MODELS[name]
    np.random.seed(0)
    chain = model.build(None if mode == "eager" else compiled(model.chain))
    device = get_device(rest[0]) if rest else None
    if device is None or device.xp is np:
        result = measure(step_of(model, chain, phase, mode == "whole step"), float(seconds))
    else:
        result = measured_on_card(model, chain, phase, mode, float(seconds), device)
    print(json.dumps(result))
    return 0


def measured_on_card(model: Model, chain: Any, phase: str, mode: str, seconds: float, device: Any) -> dict[str, Any]:
    """Time steps on a card, each until the card has done it."""
    chain.to_device(device)
    device.use()
    device.xp.random.seed(0)
    step = step_of(model, chain, phase, mode == "whole step", device)

    def finished(i: int) -> None:
        step(i)
        device.device.synchronize()
    result = measure(finished, seconds)
    return {**result, "peak_mb": device.xp.get_default_memory_pool().total_bytes() / 2**20}


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
