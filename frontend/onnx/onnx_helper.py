"""Nodes made one after the other: what converters that were written for ONNX-Chainer use."""
from __future__ import annotations

import itertools
from typing import Any

from .versions import require_onnx

_numbers = itertools.count()


def make_node(operator: str, inputs: Any, outputs: Any, **attributes: Any) -> Any:
    """Return an ONNX node, as ``onnx.helper.make_node`` does; exporting names it."""
    return require_onnx().helper.make_node(operator, inputs, outputs, **attributes)


def is_support_non_standard_domain() -> bool:
    """Whether models may have operators of other domains than ONNX's own: always."""
    return True


class GraphBuilder:
    """Collects the nodes of a converter.

    Example:
        >>> def relu(param):
        ...     builder = GraphBuilder()
        ...     negative = builder.op("Neg", builder.op("Relu", [builder.op("Neg", param.input_names)]))
        ...     builder.op("Add", [param.input_names[0], negative])
        ...     return builder.nodes(output_names=param.output_names)
    """

    def __init__(self) -> None:
        self._nodes: list[Any] = []

    def op(self, op_name: str, input_names: Any, num_outputs: int = 1, **kwargs: Any) -> Any:
        """Append a node; returns the name of its output, or a tuple of them."""
        return self.op_output_named(
            op_name, input_names, [f"{op_name}_converted_{next(_numbers)}" for _ in range(num_outputs)], **kwargs)

    def op_output_named(self, op_name: str, input_names: Any, output_names: Any, **kwargs: Any) -> Any:
        """Append a node whose outputs have names already; returns the name, or a tuple of them."""
        inputs = [input_names] if isinstance(input_names, str) else list(input_names)
        outputs = [output_names] if isinstance(output_names, str) else list(output_names)
        self._nodes.append(make_node(op_name, inputs, outputs, **kwargs))
        return outputs[0] if len(outputs) == 1 else tuple(outputs)

    def nodes(self, output_names: Any = None) -> tuple[Any, ...]:
        """Return the nodes; with ``output_names`` these are the outputs of the last one."""
        if output_names is not None:
            if not self._nodes or len(self._nodes[-1].output) != len(output_names):
                raise ValueError(f"the last node must have {len(output_names)} outputs")
            self._nodes[-1].output[:] = output_names
        return tuple(self._nodes)
