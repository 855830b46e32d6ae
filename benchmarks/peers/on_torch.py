"""PyTorch. ``compile``: forward and loss; ``compile step``: the optimizer's step too."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from models import MODELS

from .case import Case, loss_value, magnitude

NAMES = {"W": "weight", "b": "bias", "gamma": "weight", "beta": "bias", "avg_mean": "running_mean",
         "avg_var": "running_var"}


def load(module: Any, weights: dict[str, Any]) -> None:
    """Put Chainer's arrays where the module has them; raises ``KeyError`` or ``ValueError`` unless they fit."""
    state = module.state_dict()
    for path, array in weights.items():
        *links, last = path.split("/")
        name = ".".join([*links, NAMES.get(last, last)])
        if last == "N":  # BatchNormalization counts what torch counts elsewhere
            continue
        if tuple(state[name].shape) != array.shape:
            raise ValueError(f"{name}: expected {array.shape}, got {tuple(state[name].shape)}")
        state[name].copy_(torch.from_numpy(array))


def optimizer(case: Case, parameters: list[Any]) -> Any:
    """The optimizer of the case."""
    hyper = case.hyper
    if case.optimizer == "SGD":
        return torch.optim.SGD(parameters, lr=hyper["lr"])
    if case.optimizer == "MomentumSGD":
        return torch.optim.SGD(parameters, lr=hyper["lr"], momentum=hyper["momentum"])
    if case.optimizer == "Adam":
        # Chainer adds eps before it corrects the bias, torch after: so the first step is the same.
        eps = hyper["eps"] / (1 - hyper["beta2"]) ** 0.5
        return torch.optim.Adam(parameters, lr=hyper["alpha"], betas=(hyper["beta1"], hyper["beta2"]), eps=eps)
    raise ValueError("no torch optimizer is known for " + case.optimizer)


def build(case: Case) -> tuple[Callable[[int], Any], Callable[[int, Any], float]]:
    """The step of a variant."""
    torch.set_num_threads(case.threads)
    definition = MODELS[case.model]
    module, loss_of = definition.torch()
    load(module, case.weights)
    x = torch.from_numpy(case.x)
    if case.phase == "infer":
        module.eval()
        forward = module if case.variant == "eager" else torch.compile(module)

        def infer(i: int) -> Any:
            with torch.inference_mode():
                return forward(x)

        return infer, lambda i, y: magnitude(y.numpy())

    module.train()
    labels = [torch.from_numpy(t).to(torch.float32 if definition.float_labels else torch.int64) for t in case.labels]
    count = len(labels)
    update = optimizer(case, list(module.parameters()))
    apply = update.step

    def forward_loss(x: Any, t: Any) -> Any:
        return loss_of(module(x), t)

    if case.variant != "eager":
        forward_loss = torch.compile(forward_loss)
    if case.variant == "compile step":
        apply = torch.compile(apply)

    def step(i: int) -> float:
        update.zero_grad()
        loss = forward_loss(x, labels[i % count])
        loss.backward()
        apply()
        return loss.item()

    return step, loss_value


def threads() -> str:
    """The threads inside an operator."""
    return str(torch.get_num_threads())


def version() -> str:
    """The library's version."""
    return torch.__version__
