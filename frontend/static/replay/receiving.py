"""Gradients on their way to Variables, as ``backward`` and whole steps give them."""
from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ...epochs import Scaled
from ...utils.arrays import add_arrays
from ..source import Source


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


def clearing(params: Sequence[Any]) -> Callable[[], None]:
    """Return a function that takes their gradients from parameters, and the first ones from those without an array."""
    source = Source("gradients", "clear()")
    for p in params:
        name = source.name(p, "p")
        source.line(f"{name}._grad = {name}._grad_var = None" + f"; {name}._grad_fill = None" * (p._array is None))
    return source.function()


def none_has_gradients(params: Sequence[Any]) -> Callable[[], bool]:
    """Return a function that says whether no parameter has a gradient."""
    source = Source("gradients", "none()")
    for p in params:
        name = source.name(p, "p")
        source.line(f"if {name}._grad is not None or {name}._grad_var is not None: return False")
    source.line("return True")
    return source.function()


def giving(params: Sequence[Any]) -> Callable[[Sequence[Any]], Sequence[Any]]:
    """Return a function that gives parameters the first of some arrays as gradients, and returns the others."""
    source, count = Source("gradients", "give(found)"), len(params)
    if params:  # no starred target for the others: Python allows 255 targets before one
        source.line(f"{gradients_of(source, params)} = found[:{count}]")
    source.line(f"return found[{count}:]")
    return source.function()


def gradients_of(source: Source, params: Sequence[Any]) -> str:
    """Return the gradients of parameters as targets of an assignment."""
    return "".join([f"{source.name(p, 'p')}._grad, " for p in params]).rstrip()
