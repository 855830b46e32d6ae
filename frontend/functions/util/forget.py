"""Functions that are computed again in backward."""
from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ... import tape
from ...backprop import backward
from ...configuration import config, force_backprop_mode, no_backprop_mode, using_config
from ...function_node import FunctionNode
from ...variable import Variable, as_variable


class Forget(FunctionNode):
    """A whole computation as one node: nothing inside is kept, the backward pass computes it again."""

    def __init__(self, func: Callable[..., Any]) -> None:
        super().__init__()
        self.func = func

    def _call(self, xs: tuple[Any, ...]) -> tuple[Variable, ...]:
        ys = self.func(*xs)
        ys = ys if isinstance(ys, tuple) else (ys,)
        for i, y in enumerate(ys, 1):
            if not isinstance(y, Variable):
                last = {1: "st", 2: "nd", 3: "rd"}.get(i % 10 if i // 10 % 10 != 1 else 0, "th")
                raise RuntimeError("a function given to forget must return Variables, but the type of the "
                                   f"{i}{last} value it returned is {type(y).__name__}")
        return ys

    def forward(self, inputs: tuple[Any, ...]) -> tuple[Any, ...]:
        self.retain_inputs(tuple(range(len(inputs))))
        with no_backprop_mode(), using_config("_will_recompute", True):
            return tuple([y.array for y in self._call(tuple([Variable(x) for x in inputs]))])

    def backward(self, indexes: tuple[int, ...], grad_outputs: tuple[Any, ...]) -> tuple[Any, ...]:
        if config.enable_backprop:
            raise RuntimeError("forget does not support double backward")
        xs = tuple([Variable(x.array) for x in self.get_retained_inputs()])
        with force_backprop_mode(), using_config("in_recomputing", True):
            ys = self._call(xs)
        used = [(y, g) for y, g in zip(ys, grad_outputs, strict=True) if g is not None]
        for y, g in used:
            y.grad_var = g
        # Parameters that the computation uses get their gradients here, on the way.
        backward([y for y, _ in used])
        return tuple([xs[i].grad_var for i in indexes])


def forget(func: Callable[..., Any], *xs: Any) -> Variable | tuple[Variable, ...]:
    """Call a function without keeping its intermediate values; the backward pass computes them again.

    Args:
        func: Takes Variables and returns a Variable or a tuple of Variables. It is called twice, so it must compute the
            same both times; ``config.in_recomputing`` is true the second time.
        xs: Its inputs.

    Returns:
        The results of ``func``.

    Raises:
        RuntimeError: ``func`` returns something else than Variables, or a double backward is asked for.

    >>> import numpy as np
    >>> import kusari.functions as F
    >>> x = kusari.Variable(np.array(2, "f"))
    >>> y = F.forget(lambda v: F.exp(v) * v, x)
    >>> y.backward()
    >>> bool(x.grad == np.exp(np.float32(2)) * 3)
    True
    """
    if not callable(func):
        raise TypeError(f"forget takes a function first, got {type(func).__name__}")
    forgetting = Forget(func)
    # Arrays, too, ask for a gradient: without one the backward pass would not come by and reach parameters.
    if not config.enable_backprop:
        ys = forgetting._call(tuple([as_variable(x) for x in xs]))
    elif tape.active() is None:
        ys = forgetting.apply([x if isinstance(x, Variable) else Variable(x) for x in xs])
    else:  # what keeps arrays is compiled code; a tracer sees the functions inside, and gradients of parameters
        asked = not all(isinstance(x, Variable) and not x.requires_grad for x in xs)
        with using_config("enable_backprop", asked):
            ys = forgetting._call(tuple([as_variable(x) for x in xs]))
    return ys[0] if len(ys) == 1 else ys
