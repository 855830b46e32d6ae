"""Tables of the operators that are functions of Kusari's, and what their functions share."""
from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ...variable import Variable
from .program import Step

# ``function(step, *inputs)``: the result, or a tuple of results. Inputs are Variables, arrays that are known before
# anything is computed of the model's inputs, or None. ``NotImplemented``: ONNX's reference computes it.
Operator = Callable[..., Any]


class Table(dict[str, Operator]):
    """Operators of ONNX's own domain, by name."""

    def add(self, *names: str) -> Callable[[Operator], Operator]:
        """Decorator: the function computes the operators of these names."""
        def register(function: Operator) -> Operator:
            self.update(dict.fromkeys(names, function))
            return function
        return register


def ints(x: Any) -> tuple[int, ...]:
    """Return the elements of a list or of an array as ints; those of a Variable are read."""
    return tuple([int(n) for n in np.ravel(x.array if isinstance(x, Variable) else x)])


def number(x: Any) -> Any:
    """Return the one element of an array or a Variable."""
    return np.ravel(x.array if isinstance(x, Variable) else x)[0].item()


def axes_of(step: Step, x: Any, given: Any = None) -> tuple[int, ...] | None:
    """Return the axes that an attribute names, or an input from the opset on that made it one; None for none."""
    axes = step("axes") if given is None else given
    return None if axes is None else tuple([a % max(x.ndim, 1) for a in ints(axes)])


def is_float(x: Any) -> bool:
    """Whether an array or a Variable has elements that gradients exist for."""
    return x is not None and x.dtype.kind == "f" and x.dtype.itemsize >= 2 and x.dtype.name in (
        "float16", "float32", "float64")
