"""JAX. The whole training step is one jitted function; parameters, state and moments are donated to it."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

os.environ.setdefault("JAX_PLATFORMS", "cpu")  # cuda, where cards are measured

import jax
import jax.numpy as jnp

from .case import Case, loss_value, magnitude
from .jax_models import MODELS, arrays, forward_of
from .jax_survey import SURVEY


def updater(case: Case) -> tuple[Callable[[Any, Any, Any], Any], Callable[[Any], Any]]:
    """``update(parameters, gradients, moments)``, which returns new parameters and moments, and the first moments."""
    hyper, each = case.hyper, jax.tree_util.tree_map
    if case.optimizer == "SGD":
        return lambda p, g, m: (each(lambda w, d: w - hyper["lr"] * d, p, g), m), lambda p: ()
    if case.optimizer == "MomentumSGD":
        def momentum(p: Any, g: Any, m: Any) -> Any:
            m = each(lambda v, d: hyper["momentum"] * v - hyper["lr"] * d, m, g)
            return each(jnp.add, p, m), m

        return momentum, lambda p: each(jnp.zeros_like, p)
    if case.optimizer == "RMSprop":
        def rmsprop(p: Any, g: Any, m: Any) -> Any:
            m = each(lambda s, d: s + (1 - hyper["alpha"]) * (d * d - s), m, g)
            return each(lambda w, d, s: w - hyper["lr"] * d / (jnp.sqrt(s) + hyper["eps"]), p, g, m), m

        return rmsprop, lambda p: each(jnp.zeros_like, p)
    if case.optimizer == "AdaGrad":
        def adagrad(p: Any, g: Any, m: Any) -> Any:
            m = each(lambda s, d: s + d * d, m, g)
            return each(lambda w, d, s: w - hyper["lr"] * d / (jnp.sqrt(s) + hyper["eps"]), p, g, m), m

        return adagrad, lambda p: each(jnp.zeros_like, p)
    if case.optimizer == "Adam":
        b1, b2 = hyper["beta1"], hyper["beta2"]

        def adam(p: Any, g: Any, moments: Any) -> Any:
            m, v, t = moments
            t = t + 1
            m = each(lambda m, d: m + (1 - b1) * (d - m), m, g)
            v = each(lambda v, d: v + (1 - b2) * (d * d - v), v, g)
            rate = hyper["alpha"] * jnp.sqrt(1 - b2**t) / (1 - b1**t)
            return each(lambda w, m, v: w - rate * m / (jnp.sqrt(v) + hyper["eps"]), p, m, v), (m, v, t)

        return adam, lambda p: (each(jnp.zeros_like, p), each(jnp.zeros_like, p), jnp.zeros(()))
    raise ValueError("no update is known for " + case.optimizer)


def clipped(gradients: Any, limit: float) -> Any:
    """Gradients with at most this norm."""
    norm = jnp.sqrt(sum((d * d).sum() for d in gradients.values()))
    return {name: d * jnp.minimum(1, limit / norm) for name, d in gradients.items()}


def build(case: Case) -> tuple[Callable[[int], Any], Callable[[int, Any], float]]:
    """The step of a variant."""
    if case.card is not None:
        jax.config.update("jax_default_device", jax.devices()[case.card])
        jax.config.update("jax_default_matmul_precision", "highest")
    entry = {**MODELS, **SURVEY}[case.model]
    forward = forward_of(entry, case.sizes)
    weights = {path.replace("/", "."): array for path, array in case.weights.items()}
    persistent = weights.keys() - {path.replace("/", ".") for path in case.trained}
    if entry.arrange is not None:
        weights = entry.arrange(weights, case.sizes)
    state = {name: jnp.array(array) for name, array in weights.items()}
    parameters = {name: state.pop(name) for name in [*state] if name not in persistent}
    inputs = arrays(entry, case.inputs)
    if case.phase == "infer":
        infer = jax.jit(lambda p, state, inputs: forward(p, state, False, *inputs)[0])
        return (lambda i: jax.block_until_ready(infer(parameters, state, inputs))), lambda i, y: magnitude(y)

    labels = [arrays(entry, t) for t in case.labels]
    count = len(labels)
    update, first = updater(case)

    def loss(p: Any, inputs: Any, state: Any, labels: Any) -> Any:
        y, state = forward(p, state, True, *inputs)
        return entry.loss(y, *labels), state

    def train(p: Any, state: Any, moments: Any, inputs: Any, labels: Any) -> Any:
        wanted = (0, 1) if case.input_gradient else (0,)
        (value, state), found = jax.value_and_grad(loss, wanted, has_aux=True)(p, inputs, state, labels)
        gradients = found[0] if case.clip is None else clipped(found[0], case.clip)
        p, moments = update(p, gradients, moments)
        return (p, state, moments), value, found[1:]

    jitted = jax.jit(train, donate_argnums=(0, 1, 2))
    now = [(parameters, state, first(parameters))]

    def step(i: int) -> float:
        now[0], value, rest = jitted(*now[0], inputs, labels[i % count])
        jax.block_until_ready((now[0], rest))
        return float(value)

    return step, loss_value


def synchronize() -> None:
    """Nothing: every step waits for its results."""


def threads() -> str:
    """XLA's pool has a thread per processor that the process may run on."""
    return f"{len(os.sched_getaffinity(0)) if hasattr(os, 'sched_getaffinity') else os.cpu_count()} processors"


def version() -> str:
    """The library's version."""
    return jax.__version__
