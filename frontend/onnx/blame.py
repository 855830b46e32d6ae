"""Which nodes of an exported model compute something else than the functions that they were made of."""
from __future__ import annotations

import copy
from typing import Any

import numpy as np

from kusari.ir import TensorType, Value

from ..tape import recording
from .graph import prune
from .trace import to_array, unchanged

MOST = 5  # nodes that a message lists


def differing_nodes(writer: Any, run_with: Any, difference: Any) -> list[str]:
    """Return a line for each node that differs from its function, in order; the first is where it begins.

    ``run_with(model)`` returns what runs a model, ``difference(actual, expected)`` says how they differ, or None.
    """
    expected = values_of(writer)
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


def baked_node(model: Any, writer: Any, run_with: Any, difference: Any, feeds: Any, random: bool) -> str | None:
    """Return a line for the first node of a model for all extents that is not what ``writer``'s model has there.

    None where both make the same.
    """
    exact = writer.model(True, "Graph")
    ours, theirs = ([proto for proto in each.graph.node if proto.doc_string] for each in (model, exact))
    made = _made(model, ours, run_with, feeds)
    expected = _made(exact, theirs, run_with, {name: feeds[name] for name in writer.call.names})
    for mine, proto in zip(ours, theirs, strict=False):
        line = f"  {proto.doc_string}: {function_of(proto)}, as {proto.op_type} {proto.name!r}"
        if mine.op_type != proto.op_type:
            return f"{line}, in place of {mine.op_type}"
        for name, other in zip(mine.output, proto.output, strict=False):
            if other not in expected:
                continue
            if name not in made:
                return f"{line}, cannot be computed"
            a, e = np.asarray(made[name]), expected[other]
            how = difference(a, e) if a.shape != e.shape or not random else None
            if how is not None:
                return f"{line}: {how}"
    return None


def _made(model: Any, protos: list[Any], run_with: Any, feeds: Any) -> dict[str, Any]:
    """Run a model as far as it can be; returns what its nodes ``protos`` make."""
    info = {i.name: i for i in [*model.graph.value_info, *model.graph.output]}
    names = [name for proto in protos for name in proto.output if name in info]

    def first(count: int) -> dict[str, Any] | None:
        part = copy.deepcopy(model)
        nodes = prune(list(part.graph.node), names[:count])
        for field, values in ((part.graph.node, nodes), (part.graph.output, [info[n] for n in names[:count]])):
            kept = [copy.deepcopy(v) for v in values]
            del field[:]
            field.extend(kept)
        try:
            return dict(zip(names, run_with(part)(feeds) or (), strict=False))
        except Exception:
            return None
    found = first(len(names))
    low, high = 0, len(names)  # so many can be computed, so many cannot
    done: dict[str, Any] = {} if found is None else found
    while found is None and high - low > 1:
        middle = (low + high) // 2
        part = first(middle)
        if part is None:
            high = middle
        else:
            low, done = middle, part
    return done


def function_of(proto: Any) -> str:
    """Return the function that an ONNX node was made of."""
    return next((p.value for p in proto.metadata_props if p.key == "kusari.function"), proto.op_type)


def values_of(writer: Any) -> dict[Value, Any]:
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
