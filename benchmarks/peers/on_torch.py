"""PyTorch. ``compile``: forward and loss; ``compile step``: the optimizer's step too.

On a card ``torch.compile`` looks for the quickest kernels and makes CUDA graphs (``max-autotune``), and float32 is
computed in float32, as the other libraries are told, too.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from .case import Case, loss_value, magnitude
from .torch_models import MODELS
from .torch_survey import SURVEY

NAMES = {"W": "weight", "b": "bias", "gamma": "weight", "beta": "bias", "avg_mean": "running_mean",
         "avg_var": "running_var"}


def load(module: Any, weights: dict[str, Any]) -> None:
    """Put Chainer's arrays where the module has them; raises ``KeyError`` or ``ValueError`` unless they fit."""
    state = module.state_dict()
    for path, array in getattr(module, "renamed", dict)(weights).items():
        *links, last = path.split("/")
        if last == "N":  # BatchNormalization counts what torch counts elsewhere
            continue
        name = ".".join([*links, NAMES.get(last, last) if links else last])
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
    if case.optimizer == "RMSprop":
        return torch.optim.RMSprop(parameters, lr=hyper["lr"], alpha=hyper["alpha"], eps=hyper["eps"])
    if case.optimizer == "AdaGrad":
        return torch.optim.Adagrad(parameters, lr=hyper["lr"], eps=hyper["eps"])
    if case.optimizer == "Adam":
        # Chainer adds eps before it corrects the bias, torch after: so the first step is the same.
        eps = hyper["eps"] / (1 - hyper["beta2"]) ** 0.5
        return torch.optim.Adam(parameters, lr=hyper["alpha"], betas=(hyper["beta1"], hyper["beta2"]), eps=eps)
    raise ValueError("no torch optimizer is known for " + case.optimizer)


def tensors(arrays: tuple[Any, ...], stacked: bool, card: int | None = None) -> tuple[Any, ...]:
    """Arrays as torch wants them."""
    found = [torch.from_numpy(x).long() if x.dtype.kind == "i" else torch.from_numpy(x) for x in arrays]
    if card is not None:
        found = [x.to(f"cuda:{card}") for x in found]
    return (torch.stack(found, 1),) if stacked else tuple(found)


def build(case: Case) -> tuple[Callable[[int], Any], Callable[[int, Any], float]]:
    """The step of a variant."""
    torch.set_num_threads(case.threads)
    entry = {**MODELS, **SURVEY}[case.model]
    module = (entry.module if case.variant == "eager" else entry.compiled)(**case.sizes)
    load(module, case.weights)
    mode = None
    if case.card is not None:
        mode = "max-autotune"
        torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
        module.to(f"cuda:{case.card}")
    inputs = tensors(case.inputs, entry.stacked, case.card)
    if case.phase == "infer":
        module.eval()
        forward = module if case.variant == "eager" else torch.compile(module, mode=mode)

        def infer(i: int) -> Any:
            with torch.inference_mode():
                return forward(*inputs)

        return infer, lambda i, y: magnitude([v.cpu().numpy() for v in y] if isinstance(y, tuple) else y.cpu().numpy())

    module.train()
    labels = [tensors(t, entry.stacked, case.card) for t in case.labels]
    count = len(labels)
    parameters = [p for p in module.parameters() if p.requires_grad]
    update = optimizer(case, parameters)
    if case.input_gradient:
        for x in inputs:
            x.requires_grad_(True)

    def apply() -> None:
        if case.clip is not None:
            torch.nn.utils.clip_grad_norm_(parameters, case.clip)
        update.step()

    def forward_loss(inputs: Any, labels: Any) -> Any:
        return entry.loss(module(*inputs), *labels)

    if case.variant != "eager":
        forward_loss = torch.compile(forward_loss, mode=mode)
    if case.variant == "compile step":
        apply = torch.compile(apply)

    def step(i: int) -> float:
        update.zero_grad()
        if case.input_gradient:
            for x in inputs:
                x.grad = None
        loss = forward_loss(inputs, labels[i % count])
        loss.backward()
        apply()
        return loss.item()

    return step, loss_value


def synchronize() -> None:
    """Wait for the current card."""
    torch.cuda.synchronize()


def threads() -> str:
    """The threads inside an operator."""
    return str(torch.get_num_threads())


def version() -> str:
    """The library's version."""
    return torch.__version__
