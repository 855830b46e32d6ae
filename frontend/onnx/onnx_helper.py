"""Nodes made one after the other: what converters that were written for ONNX-Chainer use."""
from __future__ import annotations

import contextvars
import itertools
import os
from typing import Any

import numpy as np

from .dialect import ONNX_CHAINER
from .files import write
from .versions import require_onnx

_function = contextvars.ContextVar("function", default="")


def set_func_name(func_name: str) -> None:
    """Say which function is being converted; exporting does that."""
    _function.set(func_name)


def get_func_name() -> str:
    """Return the name of the function that is being converted, ``ReLU_0``."""
    return _function.get()


def cleanse_param_name(name: str) -> str:
    """Return what ONNX-Chainer calls a parameter, given its path.

    >>> cleanse_param_name("/l1/W")
    'param_l1_W'
    """
    return ONNX_CHAINER.parameter(name)


def make_node(*args: Any, **kwargs: Any) -> Any:
    """Return an ONNX node, as ``onnx.helper.make_node`` does, with the name of the function."""
    return require_onnx().helper.make_node(*args, **{"name": get_func_name(), **kwargs})


def write_tensor_pb(filename: Any, name: str, value: Any) -> None:
    """Write an array to a file, as a ``TensorProto`` called ``name``."""
    tensor = require_onnx().numpy_helper.from_array(np.ascontiguousarray(value).reshape(np.shape(value)), name)
    write(os.fspath(filename), tensor.SerializeToString(deterministic=True))


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
        self._numbers = itertools.count()

    def node_name(self) -> str:
        """Return a name for the next node: that of the function, with a number."""
        return f"{get_func_name()}_tmp_{next(self._numbers)}"

    def op(self, op_name: str, input_names: Any, num_outputs: int = 1, **kwargs: Any) -> Any:
        """Append a node; returns the name of its output, or a tuple of them."""
        name = self.node_name()
        outputs = [name] if num_outputs == 1 else [f"{name}_{i}" for i in range(num_outputs)]
        return self._append(name, op_name, input_names, outputs, kwargs)

    def op_output_named(self, op_name: str, input_names: Any, output_names: Any, **kwargs: Any) -> Any:
        """Append a node whose outputs have names already; returns the name, or a tuple of them."""
        outputs = [output_names] if isinstance(output_names, str) else list(output_names)
        return self._append(self.node_name(), op_name, input_names, outputs, kwargs)

    def _append(self, name: str, op_name: str, input_names: Any, outputs: list[str], kwargs: dict[str, Any]) -> Any:
        inputs = [input_names] if isinstance(input_names, str) else list(input_names)
        self._nodes.append(make_node(op_name, inputs, outputs, **{"name": name, **kwargs}))
        return outputs[0] if len(outputs) == 1 else tuple(outputs)

    def nodes(self, output_names: Any = None) -> tuple[Any, ...]:
        """Return the nodes; with ``output_names`` these are the outputs of the last one."""
        if output_names is not None:
            if not self._nodes or len(self._nodes[-1].output) != len(output_names):
                raise ValueError(f"the last node must have {len(output_names)} outputs")
            self._nodes[-1].output[:] = output_names
        return tuple(self._nodes)
