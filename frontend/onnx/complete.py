"""Finished models as ONNX-Chainer writes them: with all parameters, read or not, and with constants as nodes."""
from __future__ import annotations

import warnings
from typing import Any

from .blame import values_of
from .dialect import STATISTICS
from .files import add_tensor
from .trace import roots, to_array
from .versions import require_onnx


def completed(model: Any, writer: Any, export_params: bool) -> None:
    """Add to a model the parameters and states that nothing reads, and make nodes of its constants."""
    _add_unread(model, writer, export_params)
    _make_nodes(model, {name for name in writer.g.constants if name not in writer.g.stored})


def _add_unread(model: Any, writer: Any, export_params: bool) -> None:
    helper = require_onnx().helper
    arrays = dict(writer.data)
    for root in roots(writer.call.model):
        for path, p in root.namedparams():
            if p.array is None:
                warnings.warn(f"the parameter {path!r} has no array yet, and is not in the file", UserWarning,
                              stacklevel=2)
            else:
                arrays.setdefault(writer.dialect.parameter(path), to_array(p))
    arrays.update(_statistics(writer))
    there = {t.name for t in model.graph.initializer} | {v.name for v in model.graph.input}
    for name, array in arrays.items():
        if name in there:
            continue
        if export_params:
            add_tensor(model.graph, name, array)
        else:
            kind = helper.np_dtype_to_tensor_dtype(array.dtype)
            model.graph.input.append(helper.make_tensor_value_info(name, kind, array.shape))


def _statistics(writer: Any) -> dict[str, Any]:
    """Return the statistics of batches that the model normalizes by and keeps nowhere; the graph computes them anew."""
    nodes = [n for n in writer.functions if n.op.name == "BatchNormalization" and len(n.inputs) == 3]
    values = values_of(writer) if nodes else {}
    return {writer.dialect.constant(writer.functions[n], name, "param"): values[v].reshape(n.inputs[1].shape)
            for n in nodes for name, v in zip(STATISTICS, n.outputs[1:], strict=True) if v in values}


def _make_nodes(model: Any, constants: set[str]) -> None:
    """Turn these initializers into nodes, each before the first node that reads it."""
    onnx = require_onnx()
    waiting = {t.name: t for t in model.graph.initializer if t.name in constants}
    nodes: list[Any] = []
    for node in model.graph.node:
        for name in node.input:
            if name in waiting:
                nodes.append(onnx.helper.make_node(
                    "Constant", [], [name], name=node.name.partition("_tmp")[0], doc_string=node.doc_string,
                    value=waiting.pop(name)))
        nodes.append(node)
    nodes = [onnx.NodeProto.FromString(node.SerializeToString()) for node in nodes]
    del model.graph.node[:]
    model.graph.node.extend(nodes)
    for i, t in reversed(list(enumerate(model.graph.initializer))):
        if t.name in constants:
            del model.graph.initializer[i]
