"""JAX. The whole training step is one jitted function; parameters, state and moments are donated to it."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

os.environ["JAX_PLATFORMS"] = "cpu"

import jax
import jax.numpy as jnp
from models import MODELS

from .case import Case, loss_value, magnitude


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


def build(case: Case) -> tuple[Callable[[int], Any], Callable[[int, Any], float]]:
    """The step of a variant."""
    forward, loss_of = MODELS[case.model].jax()
    arrays = {path.replace("/", "."): jnp.array(array) for path, array in case.weights.items()}
    parameters = {name: arrays.pop(name) for name in [path.replace("/", ".") for path in case.trained]}
    x = jnp.array(case.x)
    if case.phase == "infer":
        infer = jax.jit(lambda p, state, x: forward(p, state, x, False)[0])
        return lambda i: infer(parameters, arrays, x).block_until_ready(), lambda i, y: magnitude(y)

    labels = [jnp.array(t) for t in case.labels]
    count = len(labels)
    update, first = updater(case)

    def loss(p: Any, state: Any, x: Any, t: Any) -> Any:
        y, state = forward(p, state, x, True)
        return loss_of(y, t), state

    def train(p: Any, state: Any, moments: Any, x: Any, t: Any) -> Any:
        (value, state), gradients = jax.value_and_grad(loss, has_aux=True)(p, state, x, t)
        p, moments = update(p, gradients, moments)
        return (p, state, moments), value

    jitted = jax.jit(train, donate_argnums=(0, 1, 2))
    now = [(parameters, arrays, first(parameters))]

    def step(i: int) -> float:
        now[0], value = jitted(*now[0], x, labels[i % count])
        jax.block_until_ready(now[0])
        return float(value)

    return step, loss_value


def threads() -> str:
    """XLA's pool has a thread per processor that the process may run on."""
    return f"{len(os.sched_getaffinity(0)) if hasattr(os, 'sched_getaffinity') else os.cpu_count()} processors"


def version() -> str:
    """The library's version."""
    return jax.__version__
