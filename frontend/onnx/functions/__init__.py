"""The converters of Kusari's functions by ONNX-Chainer's names, for converters that hand over to them.

``functions.convert_ReLU(param.func, param.opset_version, param.input_names, param.output_names, param.context)``
returns the nodes that the exporter would have made, whatever the name says: it asks ``param.func``.
"""
from __future__ import annotations

from typing import Any

from kusari.ir import Node, Value

from ...function_node import FunctionNode
from ...static.trace.ops import op_of
from ..errors import ExportError, NoForm

_PREFIX = "convert_"


def convert(func: Any, opset_version: int, input_names: Any, output_names: Any, context: Any) -> tuple[Any, ...]:
    """Return the ONNX nodes of a function; raises ``ExportError`` where it has none in this opset."""
    from ..graph import GraphWriter
    g = context.g
    if not isinstance(func, FunctionNode) or opset_version != g.opset:
        raise ExportError(f"expected param.func and param.opset_version, got {type(func).__name__} and {opset_version}")
    inputs = tuple(Value(g.type(name)) for name in input_names)
    outputs = tuple(Value(v.type) for v in context.node.outputs[:len(output_names)])
    writer, mark = GraphWriter(g, {}), len(g.nodes)
    for value, name in zip(inputs, input_names, strict=True):
        writer.define(value, name)
    writer.read.update(outputs)
    try:
        reason = writer.node(Node(op_of(func), inputs, outputs, {"function": func}, g.where))
    except NoForm as error:
        reason = str(error)
    if reason is not None:
        raise ExportError(f"{func.label} cannot be converted: {reason}")
    for value, name in zip(outputs, output_names, strict=True):
        g.append(g.onnx.helper.make_node("Identity", [writer.names[value]], [name]))
    made = tuple(g.nodes[mark:])
    g.rewind(mark)
    return made


def __getattr__(name: str) -> Any:
    if not name.startswith(_PREFIX):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return convert
