"""Chainer 7.8.1. ``static``: its ``static_graph`` on the network's forward, the loss outside it, as its examples do."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
from models import MODELS

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    import chainer

from .case import Case, loss_value, magnitude


def build(case: Case) -> tuple[Callable[[int], Any], Callable[[int, Any], float]]:
    """The step of a variant."""
    chain = MODELS[case.model].chainer()
    if case.variant == "static":
        type(chain).forward = chainer.static_graph(type(chain).forward)
    chainer.serializers.NpzDeserializer(case.weights).load(chain)
    x, labels, count = case.x, case.labels, len(case.labels)

    if case.phase == "infer":
        def infer(i: int) -> Any:
            with chainer.using_config("train", False), chainer.no_backprop_mode():
                return chain(x)

        return infer, lambda i, y: magnitude(y.array)

    optimizer = getattr(chainer.optimizers, case.optimizer)()
    for name, setting in case.hyper.items():
        setattr(optimizer.hyperparam, name, setting)
    optimizer.setup(chain)

    def step(i: int) -> float:
        chain.cleargrads()
        loss = chain.loss(chain(x), labels[i % count])
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
