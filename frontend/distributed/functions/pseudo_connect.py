"""The connection of parts of a graph that other ranks lie between."""
from __future__ import annotations

from typing import Any

from ... import backend
from ...function_node import FunctionNode
from ...variable import as_variable
from .collective_communication import complete, dummy_input

__all__ = ["pseudo_connect"]


class PseudoConnect(FunctionNode):
    """Returns its inputs but the first, which gets a gradient of zeros."""

    def forward(self, inputs: tuple[Any, ...]) -> tuple[Any, ...]:
        """Return the inputs."""
        self._first = [(inputs[0].shape, inputs[0].dtype)]
        return inputs[1:]

    def backward(self, target_input_indexes: Any, grad_outputs: Any) -> tuple[Any, ...]:
        """Return the gradients, and zeros."""
        return (*complete(self._first, [None]), *grad_outputs)


def pseudo_connect(delegate_variable: Any, *actual_variables: Any) -> Any:
    """Return Variables whose backward also comes to a delegate.

    A rank whose model sends and receives several times has a graph of parts that are connected through other ranks
    only. `send` returns an empty Variable, the delegate, that stands for its part: given to `recv` or to this
    function, it makes backward come to that part as well.

    Args:
        delegate_variable: The result of `send`, or None.
        actual_variables: The Variables.

    Returns:
        tuple of Variable: The values of ``actual_variables``; the tuple's only Variable where there is one would be
        unpacked as ``y, = pseudo_connect(phi, y)``.
    """
    first = dummy_input() if delegate_variable is None else as_variable(delegate_variable)
    found = PseudoConnect().apply((first, *actual_variables))
    for y in found:
        if y.array.size == 0 and y.grad_var is None and y.creator_node is not None:
            y.grad = backend.get_array_module(y.array).zeros_like(y.array)
    return found
