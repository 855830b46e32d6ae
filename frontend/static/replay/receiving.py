"""Gradients on their way to Variables, as ``backward`` hands them out."""
from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ...backprop import Scaled
from ...utils.arrays import add_arrays


def receive(variables: Sequence[Any], gradients: Sequence[Any], scale: float | None = None) -> None:
    """Add each gradient to that of its Variable; None stands for Variables that are gone, and for no gradient.

    All or nothing: where one does not fit what a Variable has, none has got any.
    """
    added: list[tuple[Any, Any, Any]] = []
    scaled = Scaled.ever
    try:
        for x, gx in zip(variables, gradients):  # noqa: B905  # as many by construction
            if gx is None or x is None:
                continue
            if x._grad is None and x._grad_var is None:
                x._grad = gx
            else:
                total = add_arrays(x.grad, gx)
                added.append((x, x._grad, x._grad_var))
                x.grad = total
            if scaled:
                x._loss_scale = scale
    except Exception:
        for x, grad, grad_var in reversed(added):
            x._grad, x._grad_var = grad, grad_var
        for x, gx in zip(variables, gradients, strict=True):
            if gx is not None and x is not None and x._grad is gx:
                x._grad = None
        raise
