"""Operators as older opsets have them; facets write them in their modern form."""
from __future__ import annotations

from typing import Any

import numpy as np

from .errors import NoForm

_REDUCTIONS = ("ReduceMax", "ReduceMin", "ReduceMean", "ReduceProd", "ReduceL1", "ReduceL2", "ReduceLogSum",
               "ReduceLogSumExp", "ReduceSumSquare")
# Where an older opset has attributes in place of inputs:
# operator -> (first opset of the modern form, {number of the input: attribute}).
_AS_ATTRIBUTES: dict[str, tuple[int, dict[int, str]]] = {
    "Squeeze": (13, {1: "axes"}), "Unsqueeze": (13, {1: "axes"}), "Split": (13, {1: "split"}),
    "ReduceSum": (13, {1: "axes"}), **{name: (18, {1: "axes"}) for name in _REDUCTIONS},
    "Clip": (11, {1: "min", 2: "max"}), "Pad": (11, {1: "pads", 2: "value"}),
    "Slice": (10, {1: "starts", 2: "ends", 3: "axes"}), "Dropout": (12, {1: "ratio"}),
    "TopK": (10, {1: "k"}),
}


def fitted(g: Any, operator: str, names: list[str], attributes: dict[str, Any]) -> tuple[list[str], dict[str, Any]]:
    """Return inputs and attributes as the opset of ``g`` has them; raises ``NoForm`` where it has not."""
    special = _SPECIAL.get(operator)
    if special is not None:
        names = special(g, operator, names, attributes)
    modern, places = _AS_ATTRIBUTES.get(operator, (0, {}))
    if g.opset >= modern:
        if places.get(1) == "axes" and attributes.get("axes") is not None:
            axes = g.const(np.array(attributes["axes"], np.int64))
            return [names[0], axes], {k: v for k, v in attributes.items() if k != "axes"}
        return names, attributes
    attributes = dict(attributes)
    for place, attribute in places.items():
        if place < len(names) and names[place]:
            if g.value(names[place]) is None:
                raise NoForm(f"{operator} takes a computed {attribute} from opset {modern} on")
            attributes[attribute] = g.value(names[place]).tolist()
    return [n for i, n in enumerate(names) if i < min(places)], attributes


def _gemm(g: Any, operator: str, names: list[str], attributes: Any) -> list[str]:
    if len(names) == 2 and g.opset < 11:
        return [*names, g.const(np.zeros(1, g.type(names[0]).dtype))]
    return names


def _softmax(g: Any, operator: str, names: list[str], attributes: Any) -> list[str]:
    if g.opset < 13:
        # It was over all axes from `axis` on.
        rank = len(g.type(names[0]).shape)
        if attributes.get("axis", -1) % rank != rank - 1:
            raise NoForm(f"{operator} over an axis that is not the last needs opset 13")
    return names


def _dropout(g: Any, operator: str, names: list[str], attributes: Any) -> list[str]:
    if g.opset < 12 and len(names) == 3:
        raise NoForm("Dropout knows a training mode from opset 12 on")
    return names


def _batch_normalization(g: Any, operator: str, names: list[str], attributes: dict[str, Any]) -> list[str]:
    if g.opset < 14:
        # The reference evaluator takes the default of 0.9 for a wish to train; with 1 it does the same either way.
        attributes["momentum"] = 1.0
    return names


_SPECIAL = {"BatchNormalization": _batch_normalization, "Gemm": _gemm, "Softmax": _softmax, "LogSoftmax": _softmax,
            "Dropout": _dropout}


def decomposed(g: Any, operator: str, names: list[str], attributes: dict[str, Any]) -> str | None:
    """Return the result of an operator that the opset of ``g`` has not in this form, by others; None for the rest."""
    if operator == "Slice" and g.opset < 10 and len(names) == 5:
        return _stepped(g, *names)
    if operator == "Equal" and g.opset < 11 and g.type(names[0]).dtype.kind == "f":
        a, b = names
        unequal = g.Or(g.Or(g.Less(a, b), g.Greater(a, b)), g.Or(g.IsNaN(a), g.IsNaN(b)))
        return g.Not(unequal)
    if operator == "Expand" and (shape := g.value(names[1])) is not None and 0 in shape:
        # ONNX Runtime takes out an Expand to no elements where it thinks that a Reshape follows anyway.
        return g.ConstantOfShape(names[1], value=np.zeros(1, g.type(names[0]).dtype))
    return None


def _stepped(g: Any, x: str, *names: str) -> str | None:
    """Slices with steps, as lookups; None where all steps are 1."""
    parts = [g.value(name) for name in names]
    if any(part is None for part in parts):
        raise NoForm("Slice takes computed bounds from opset 10 on")
    bounds = [tuple(map(int, cut)) for cut in zip(*(part.tolist() for part in parts), strict=True)]
    if all(step == 1 for *_, step in bounds):
        return None
    for start, stop, axis, step in bounds:
        n = g.type(x).shape[axis]
        # ONNX counts the end of a backward slice from the end until it lies before the beginning.
        first, last, step = slice(start, None if step < 0 and stop < -n else stop, step).indices(n)
        places = np.arange(first, last, step, dtype=np.int64)
        if len(places) != n or step != 1:
            x = g.Gather(x, g.const(places), axis=axis)
    return x
