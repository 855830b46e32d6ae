"""What a model is to the peers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Definition:
    """A model for each library; the functions import theirs when they are called.

    ``chainer()`` is a chain with ``forward(x)`` and ``loss(y, t)``. ``torch()`` is a module and ``loss(y, t)``; the
    names in its ``state_dict`` are Chainer's paths with dots, and torch's own words for W, b, gamma, beta, avg_mean
    and avg_var. ``jax()`` is ``forward(parameters, state, x, train) -> (y, state)`` and ``loss(y, t)``, both dicts
    keyed by Chainer's paths with dots. ``float_labels``: torch wants labels as floating point numbers, not as int64.
    """

    chainer: Callable[[], Any]
    torch: Callable[[], tuple[Any, Callable[[Any, Any], Any]]]
    jax: Callable[[], tuple[Callable[[Any, Any, Any, bool], tuple[Any, Any]], Callable[[Any, Any], Any]]]
    float_labels: bool = False
