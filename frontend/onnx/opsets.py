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


def _slice(g: Any, operator: str, names: list[str], attributes: Any) -> list[str]:
    if g.opset < 10 and len(names) == 5:
        steps = g.value(names[4])
        if steps is None or (steps != 1).any():
            raise NoForm("Slice takes steps from opset 10 on")
    return names


def _dropout(g: Any, operator: str, names: list[str], attributes: Any) -> list[str]:
    if g.opset < 12 and len(names) == 3:
        raise NoForm("Dropout knows a training mode from opset 12 on")
    return names


_SPECIAL = {"Gemm": _gemm, "Softmax": _softmax, "LogSoftmax": _softmax, "Slice": _slice, "Dropout": _dropout}
