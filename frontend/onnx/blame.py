"""Which nodes of an exported model compute something else than the functions that they were made of."""
from __future__ import annotations

from typing import Any

import numpy as np

from kusari.ir import TensorType, Value

from ..static.tape import recording
from .trace import to_array, unchanged

MOST = 5  # nodes that a message lists


def differing_nodes(writer: Any, run_with: Any, difference: Any) -> list[str]:
    """Return a line for each node that differs from its function, in order; the first is where it begins.

    ``run_with(model)`` returns what runs a model, ``difference(actual, expected)`` says how they differ, or None.
    """
    expected = _values(writer)
    model = writer.model(True, "Graph")
    made = {name: proto for proto in model.graph.node for name in proto.output if name}
    shown: dict[str, tuple[Any, Value]] = {}
    for node in writer.recording.graph.nodes:
        for v in node.outputs:
            name = writer.renamed.get(writer.names.get(v), writer.names.get(v))
            if isinstance(v.type, TensorType) and name in made and v in expected:
                shown.setdefault(name, (node, v))
    info = {i.name: i for i in [*model.graph.value_info, *model.graph.output]}
    names = [name for name in shown if name in info]
    del model.graph.output[:]
    model.graph.output.extend(info[name] for name in names)
    if not names:
        return []
    arrays = run_with(model)(dict(zip(writer.call.names, writer.call.arrays, strict=True)))
    lines: list[str] = []
    for name, array in zip(names, arrays, strict=True):
        node, v = shown[name]
        how = difference(np.asarray(array), expected[v])
        if how is not None:
            lines.append(f"  {node.where}: {node.op.name}, as {made[name].op_type} {made[name].name!r}: {how}")
    return lines[:MOST] + [f"  … and {len(lines) - MOST} more"] * (len(lines) > MOST)


def _values(writer: Any) -> dict[Value, Any]:
    """Apply the recorded functions one by one; returns what each value is."""
    rec, graph = writer.recording, writer.recording.graph
    found: dict[Value, Any] = dict(zip(rec.leaves, writer.call.arrays, strict=True))
    # Copies: functions may write to persistent arrays.
    found.update((v, to_array(b.array()).copy()) for v, b in zip(graph.params, rec.bindings, strict=True))
    found.update((v, to_array(array)) for v, array in graph.consts)
    with unchanged(writer.call.model), recording(None), np.errstate(all="ignore"):
        for node in graph.nodes:
            if any(v not in found for v in node.inputs):
                continue
            results = node.op.call(node.attrs, *(found[v] for v in node.inputs))
            # Copies here, too: what a function returns may be a view of what a later one writes to.
            found.update((v, np.array(to_array(x))) for v, x in zip(node.outputs, results, strict=False))
    return found
