"""Operators that ONNX's own reference computes, in NumPy: of known arrays, and all that Kusari has no function for."""
from __future__ import annotations

import importlib
from collections.abc import Sequence
from typing import Any

import numpy as np

from ...function_node import FunctionNode
from ...variable import Variable
from ..versions import require_onnx
from .program import Program, Step
from .registry import is_float

_SUCCESSORS = {"Scatter": "ScatterElements"}  # the same under another name


def evaluate(step: Step, arrays: Sequence[Any]) -> list[Any]:
    """Return the results of a step for arrays; an array that is None is an input left out."""
    present = tuple([x is not None for x in arrays])
    evaluator = step.evaluators.get(present)
    if evaluator is None:
        evaluator = step.evaluators[present] = _evaluator(step, present)
    found = iter(evaluator.run(None, {f"x{i}": x for i, x in enumerate(arrays) if x is not None}, {}))
    results = [next(found) if name else None for name in step.outputs]
    return [np.asarray(y) if isinstance(y, np.generic) else y for y in results]


def _evaluator(step: Step, present: tuple[bool, ...]) -> Any:
    """ONNX's reference for a step with some of its inputs."""
    helper = require_onnx().helper
    reference: Any = importlib.import_module("onnx.reference")
    if any(isinstance(value, Program) for value in step.attributes.values()):
        raise NotImplementedError(f"{step.title}: graphs inside this operator do not run, only those of If, Loop and "
                                  "Scan (from opset 9 on)")
    names = [f"x{i}" if there else "" for i, there in enumerate(present)]
    outputs = [f"y{i}" if name else "" for i, name in enumerate(step.outputs)]
    node = helper.make_node(_SUCCESSORS.get(step.operator, step.operator), names, outputs, domain=step.domain)
    node.attribute.extend(step.proto.attribute)
    versions = {"": 18, step.domain: step.version}
    function = helper.make_function(
        "kusari", "step", [n for n in names if n], [n for n in outputs if n], [node],
        [helper.make_opsetid(domain, version) for domain, version in versions.items()])
    return reference.ReferenceEvaluator(function)


_CONTAINERS = ("Sequence", "Optional")  # whose values are lists, or None


class Reference(FunctionNode):
    """A step that ONNX's reference computes; it has no gradient.

    The inputs are those of the step in ``places``; of the others, texts or left out, ``known`` has the arrays.
    """

    def __init__(self, step: Step, places: tuple[int, ...], known: tuple[Any, ...]) -> None:
        super().__init__()
        self.step = step
        self.places = places
        self.known = known

    @property
    def label(self) -> str:
        return self.step.operator

    def forward(self, inputs: tuple[Any, ...]) -> tuple[Any, ...]:
        arrays = list(self.known)
        for place, x in zip(self.places, inputs, strict=True):
            arrays[place] = x
        return tuple([np.asarray(y) for y in evaluate(self.step, arrays) if y is not None])

    def onnx(self, g: Any, *xs: str) -> Any:
        """The node as it was read, if its operator means the same in the opset that is written."""
        names = ["" if x is None else g.const(x) for x in self.known]
        for place, x in zip(self.places, xs, strict=True):
            names[place] = x
        made = g.copied(self.step.proto, self.step.version, names)
        return tuple([name for name in made if name])

    def backward(self, indexes: tuple[int, ...], grad_outputs: tuple[Any, ...]) -> tuple[Any, ...]:
        raise NotImplementedError(f"{self.step.title} has no gradient here: it is computed by ONNX's reference; freeze "
                                  "what lies in front of it, or replace the operator")


def apply(step: Step, inputs: Sequence[Any]) -> tuple[Any, ...]:
    """Return the results of a step as Variables, or as arrays if all of ``inputs`` are arrays."""
    if not any(isinstance(x, Variable) for x in inputs) or any(name in step.operator for name in _CONTAINERS):
        return tuple(evaluate(step, [x.array if isinstance(x, Variable) else x for x in inputs]))
    places = tuple([i for i, x in enumerate(inputs) if x is not None and x.dtype.kind in "fiub"])
    known = tuple([None if i in places else x for i, x in enumerate(inputs)])
    results = iter(Reference(step, places, known).apply([inputs[i] for i in places]))
    found = [next(results) if name else None for name in step.outputs]
    return tuple([y if y is None or is_float(y) else y.array if y.dtype.kind not in "fiub" else
                  Variable(y.array, requires_grad=False) for y in found])
