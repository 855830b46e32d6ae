"""Scaled losses in compiled updates: what gradients are divided by, and whether all of them are finite."""
from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from kusari.ir import Builder, Value

from ...epochs import Scaled
from ..errors import NotCompilable


class Scaling:
    """The scale of the gradients of an optimizer's parameters: one number, and none for parameters not reached.

    In a ``whole`` step it is the factor of the loss, and the step says which are ``reached``; otherwise it is the scale
    that the present gradients carry. Where it is dynamic, an update happens only if all gradients are finite, as
    they are before hooks change them.
    """

    def __init__(self, optimizer: Any, params: Sequence[Any], whole: bool) -> None:
        self.optimizer = optimizer
        self.params = params
        self.whole = whole
        self.dynamic = bool(optimizer._loss_scaling_is_dynamic)
        self.reached = {id(p) for p in params if p._loss_scale is not None}

    @classmethod
    def of(cls, optimizer: Any, params: Sequence[Any], whole: bool) -> Scaling | None:
        """Return how gradients are scaled, None if they are not; raises where some are scaled by another number."""
        scales = {p._loss_scale for p in params} - {None} if Scaled.ever else set()
        if optimizer._loss_scale is None and (whole or not scales):
            if scales:
                raise NotCompilable("gradients that are there have been scaled")
            return None
        if len(scales) > 1 and not whole:
            raise NotCompilable("gradients are scaled by different numbers")
        return cls(optimizer, params, whole)

    def holds(self) -> bool:
        """Whether the same gradients are still scaled by one number, dynamic or not as before."""
        optimizer = self.optimizer
        if bool(optimizer._loss_scaling_is_dynamic) is not self.dynamic:
            return False
        if self.whole:
            return optimizer._loss_scale is not None and all(
                [p._loss_scale is None for p in self.params if id(p) not in self.reached])
        scales = {p._loss_scale for p in self.params if id(p) in self.reached}
        return len(scales) < 2 and None not in scales and all(
            [p._loss_scale is None for p in self.params if id(p) not in self.reached])

    def number(self) -> Any:
        """The factor of gradients."""
        if self.whole:
            return self.optimizer._loss_scale
        return next(p._loss_scale for p in self.params if id(p) in self.reached)


def chosen(b: Builder, every: Value | None, new: Value, old: Value) -> Value:
    """Append ``new`` where ``every`` gradient is finite, else ``old``."""
    return new if every is None or new is old else b.call("where", every, new, old)


def emit_finite(b: Builder, gradients: Sequence[Value]) -> tuple[Value, ...]:
    """Append whether all gradients are finite, and whether each of them is."""
    each = [b.reshape(b.reduce("all", b.call("isfinite", g)), ()) for g in gradients]
    every = each[0]
    for one in each[1:]:
        every = b.call("logical_and", every, one)
    return every, *each


def settle(optimizer: Any, params: Sequence[Any], flags: Sequence[Any]) -> None:
    """Note the findings of ``emit_finite``, with a warning for each gradient that is not finite."""
    if flags[0]:
        optimizer._gradients_are_finite = True
        return
    finite = {id(p): bool(f) for p, f in zip(params, flags[1:], strict=True)}
    optimizer._note_finite(lambda param: finite.get(id(param), True))


def full(value: Value, scale: Any) -> np.ndarray:
    """The gradient that a backward starts with."""
    return np.full(value.shape, scale, value.tensor.dtype)
