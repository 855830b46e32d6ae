"""Variables of ChainerX arrays, and functions applied to them.

Such a Variable shows an array of ChainerX, outside of graphs; its node holds, as that of any other, arrays of NumPy or
CuPy. Functions are applied to carriers, Variables of those with the same node, and only results are shown again.
"""
from __future__ import annotations

import sys
from typing import Any

import numpy as np

from .. import tape as _tape
from ..backends import chainerx as _backend
from ..function_node import Fallback, FunctionNode
from ..variable import Variable, output_variable
from .apply import device_of, left_by
from .arrays import ndarray
from .graph import Through, of_variable

__all__ = ["applied", "carrier_of", "connected", "join", "shown_on"]


def carrier_of(variable: Variable) -> Variable:
    """Return a Variable of NumPy's or CuPy's array in the place of one of ChainerX's."""
    made = output_variable(variable._array._elements, variable._requires_grad)
    made._node = variable.node
    return made


def shown_on(variable: Variable, device: Any) -> Variable:
    """Return a Variable that shows an array of ChainerX, in the place of one of NumPy's or CuPy's."""
    made = output_variable(ndarray.of(variable._array, device), variable._requires_grad)
    made._node = variable.node
    return made


def connected(variable: Variable) -> ndarray:
    """Return the array of a Variable, with its place in the graph."""
    return of_variable(variable, variable._array.device)


def join(variable: Variable, array: ndarray) -> None:
    """Put a new Variable into the place that its array has in a graph."""
    before = array._variable
    if before is None:
        return
    if not variable._requires_grad:
        raise ValueError("a Variable that requires no gradient cannot hold an array that is part of a graph; "
                         "use x.as_grad_stopped()")
    variable._array = array.as_grad_stopped()
    if isinstance(before._array, ndarray):  # another Variable is there already
        y, = Through(lambda x: x).apply((carrier_of(before),))
        variable._node = y.node
    else:
        variable._node = before.node
        variable._grad, variable._grad_var = before._grad, before._grad_var
        array._variable = variable
    variable.node.take(variable)


def applied(function: FunctionNode, inputs: tuple[Any, ...]) -> tuple[Variable, ...]:
    """Apply a function to arrays of ChainerX, and to Variables of them."""
    faces = [connected(x) if isinstance(x, Variable) else x for x in inputs
             if x is not None and not isinstance(x, np.ndarray)]
    device = function.chainerx_device = device_of(faces)
    found: Any = function.forward_chainerx(tuple(faces)) if len(faces) == len(inputs) else Fallback
    if found is not Fallback:
        return tuple([Variable(y, requires_grad=y.is_backprop_required()) for y in found])
    left = left_by(faces)
    tape = _tape.current.tape
    if tape is not None:
        tape.note("arrays of ChainerX are not compiled; move model and data to '@numpy' or '@cupy:0'")
    with device.active(), _tape.recording(None):
        carriers = [device.put(x) if isinstance(x, np.ndarray) else None if x is None else _carrier(x, left is None)
                    for x in inputs]
        outputs = function.apply(tuple(carriers))
        if left:
            outputs = tuple([Through(lambda x: x, left=left).apply((y,))[0] for y in outputs])
    for y in outputs:
        if y._array is not None:
            y._array = ndarray.of(y._array, device)
    return outputs


def _carrier(x: Any, unconnected: bool) -> Any:
    if isinstance(x, Variable):
        return output_variable(x._array._elements, False) if unconnected else carrier_of(x)
    variable = x._variable
    if variable is None or unconnected:
        return x._elements
    made = output_variable(x._elements, True)
    made._node = variable.node
    return made


_backend.variables = sys.modules[__name__]
