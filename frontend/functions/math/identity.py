"""The identity."""
from __future__ import annotations

from typing import Any

from ...function_node import FunctionNode
from ...variable import Variable


class Identity(FunctionNode):
    """Return the inputs as they are."""

    def forward(self, inputs: tuple[Any, ...]) -> tuple[Any, ...]:
        return inputs

    def backward(self, indexes: tuple[int, ...], grad_outputs: tuple[Any, ...]) -> tuple[Any, ...]:
        return tuple([grad_outputs[i] for i in indexes])

    def lower(self, b: Any, *xs: Any) -> tuple[Any, ...]:
        return xs

    def onnx(self, g: Any, *xs: str) -> Any:
        names = tuple([g.Identity(x) for x in xs])
        return names[0] if len(names) == 1 else names


def identity(*inputs: Any) -> Variable | tuple[Variable, ...]:
    """Return the inputs as outputs of a function.

    Returns:
        One Variable for one input, else a tuple.
    """
    outputs = Identity().apply(inputs)
    return outputs[0] if len(outputs) == 1 else outputs
