"""Gradients compared with finite differences."""
from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from . import graph
from .arrays import ndarray
from .errors import GradientCheckError
from .routines.creation import to_numpy

__all__ = ["check_backward", "check_double_backward"]

_Function = Callable[[Sequence[ndarray]], Sequence[ndarray]]


def check_backward(func: _Function, inputs: Sequence[ndarray], grad_outputs: Sequence[ndarray],
                   eps: Sequence[ndarray], atol: float = 1e-5, rtol: float = 1e-4,
                   backprop_id: Any = None) -> None:  # fmt: skip
    """Compare gradients of a function with finite differences.

    Args:
        func: It takes and returns a sequence of arrays.
        inputs (list of ndarrays): Its arguments; gradients are checked of arrays that want one.
        grad_outputs (list of ndarrays): Gradients of its results.
        eps (list of ndarrays): The distances of the differences, for each argument.
        atol (float): The absolute tolerance.
        rtol (float): The relative tolerance.
        backprop_id (BackpropId): The graph; None is the default one.

    Raises:
        GradientCheckError: They differ.
    """
    checked = [x for x in inputs if x.is_grad_required(backprop_id)]
    outputs = list(func(inputs))
    if len(outputs) != len(grad_outputs):
        raise GradientCheckError(f"the function has {len(outputs)} results, not {len(grad_outputs)}")
    found = graph.grad(outputs, checked, backprop_id, grad_outputs=grad_outputs)
    for x, gradient, step in zip(checked, found, [e for x, e in zip(inputs, eps, strict=True) if any(
            x is one for one in checked)], strict=True):  # fmt: skip
        expected = _differences(func, inputs, x, grad_outputs, to_numpy(step))
        actual = np.zeros(x.shape) if gradient is None else to_numpy(gradient)
        if not np.allclose(actual, expected, rtol, atol):
            raise GradientCheckError(f"gradient {actual} differs from finite differences {expected}")


def _differences(func: _Function, inputs: Sequence[ndarray], x: ndarray, gys: Sequence[ndarray],
                 step: np.ndarray) -> np.ndarray:  # fmt: skip
    found = np.zeros(x.shape)
    for index in np.ndindex(x.shape):
        values = []
        for sign in (1, -1):
            moved = x.as_grad_stopped(copy=True)
            moved._elements[index] += sign * step[index]
            ys = func([moved if one is x else one.as_grad_stopped() for one in inputs])
            values.append(sum(float(np.vdot(to_numpy(y).astype(float), to_numpy(gy))) for y, gy in zip(
                ys, gys, strict=True)))  # fmt: skip
        found[index] = (values[0] - values[1]) / (2 * float(step[index]))
    return found


def check_double_backward(func: _Function, inputs: Sequence[ndarray], grad_outputs: Sequence[ndarray],
                          grad_grad_inputs: Sequence[ndarray], eps: Sequence[ndarray], atol: float = 1e-5,
                          rtol: float = 1e-4, backprop_id: Any = None) -> None:  # fmt: skip
    """Compare gradients of gradients with finite differences, see `check_backward`.

    Args:
        func: It takes and returns a sequence of arrays.
        inputs (list of ndarrays): Its arguments.
        grad_outputs (list of ndarrays): Gradients of its results.
        grad_grad_inputs (list of ndarrays): Gradients of the gradients of its arguments.
        eps (list of ndarrays): The distances of the differences, for arguments and gradients of results.
        atol (float): The absolute tolerance.
        rtol (float): The relative tolerance.
        backprop_id (BackpropId): The graph; None is the default one.

    Raises:
        GradientCheckError: They differ.
    """
    count = len(inputs)

    def gradients(xs: Sequence[ndarray]) -> Sequence[ndarray]:
        given = [x if x.is_backprop_required(backprop_id) else x.require_grad(backprop_id) for x in xs[:count]]
        return graph.grad(list(func(given)), given, backprop_id, True, grad_outputs=xs[count:])

    check_backward(gradients, [*inputs, *grad_outputs], grad_grad_inputs, eps, atol, rtol, backprop_id)
