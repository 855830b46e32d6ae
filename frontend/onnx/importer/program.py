"""An ONNX graph as plain Python: steps over names, so that running it touches no protobuf message."""
from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from ..versions import require_onnx

GRADIENT = ("ai.onnx.preview.training", "Gradient")  # the only operator that reads names of its graph


@dataclass(frozen=True, eq=False)
class Step:
    """One node: an operator of a domain and version of it, on names; ``""`` stands for an input that is left out.

    ``attributes`` are numbers, strings, lists of them, arrays, and a ``Program`` for each subgraph. ``proto`` is the
    node as it was read.
    """

    operator: str
    domain: str
    version: int
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    attributes: dict[str, Any]
    proto: Any
    # Of ONNX's reference, by which inputs there are.
    evaluators: dict[tuple[bool, ...], Any] = field(default_factory=dict)

    def __call__(self, name: str, default: Any = None) -> Any:
        """An attribute."""
        return self.attributes.get(name, default)

    @property
    def title(self) -> str:
        """The operator and the name of the node, for messages."""
        return f"{self.domain + '.' if self.domain else ''}{self.operator}" + (
            f" ({self.proto.name})" if self.proto.name else "")


@dataclass(frozen=True, eq=False)
class Program:
    """Steps in order; ``constants`` are the arrays of initializers by name, ``types`` the dtypes of inputs."""

    name: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    constants: dict[str, np.ndarray[Any, Any]]
    steps: tuple[Step, ...]
    types: dict[str, Any] = field(default_factory=dict)

    free: frozenset[str] = frozenset()  # the names that it reads from around it
    last: dict[int, tuple[str, ...]] = field(default_factory=dict)  # for each step the names that no later one reads


def _program(name: str, inputs: tuple[str, ...], outputs: tuple[str, ...], constants: dict[str, Any],
             steps: tuple[Step, ...], types: dict[str, Any]) -> Program:
    made = {"", *inputs, *constants}
    free: set[str] = set()
    last: dict[str, int] = {}
    for i, step in enumerate(steps):
        read = set(step.inputs).union(*[p.free for p in step.attributes.values() if isinstance(p, Program)])
        free |= read - made
        made.update(step.outputs)
        last.update(dict.fromkeys([*read, *step.outputs], i))
    free.update(set(outputs) - made)
    gone: dict[int, tuple[str, ...]] = {}
    for value, i in last.items():
        if value and value not in outputs:
            gone[i] = (*gone.get(i, ()), value)
    return Program(name, inputs, outputs, constants, steps, types, frozenset(free), gone)


def _with_body(step: Step, before: list[Step]) -> Step:
    """Return a step of `Gradient` whose attribute ``body`` is the program that it differentiates.

    That is made of the steps before it, from the result ``y`` back to the names ``xs`` and ``zs``.
    """
    inputs = (*step("xs"), *(step("zs") or ()))
    wanted, kept = {step("y")}, []
    for other in reversed(before):
        wanted.difference_update(inputs)
        if not wanted.isdisjoint(other.outputs):
            kept.append(other)
            wanted.update(other.inputs, *[p.free for p in other.attributes.values() if isinstance(p, Program)])
    body = _program(step.title, inputs, (step("y"),), {}, tuple(kept[::-1]), {})
    return replace(step, attributes={**step.attributes, "body": body})


class Reader:
    """Reads the graphs of one model: ``versions`` are those of its operators by domain, ``functions`` its own ones."""

    def __init__(self, model: Any) -> None:
        self.onnx = require_onnx()
        self.versions = {_domain(o.domain): o.version for o in model.opset_import}
        self.functions = {(f.domain, f.name): f for f in model.functions}

    def program(self, graph: Any) -> Program:
        """Return a graph, with the model's own functions put in place of their calls."""
        array = self.onnx.numpy_helper.to_array
        constants = {t.name: array(t) for t in graph.initializer}
        for t in graph.sparse_initializer:
            constants[t.values.name] = _dense(array(t.values), array(t.indices), tuple(t.dims))
        inputs = tuple([v.name for v in graph.input if v.name not in constants])
        types = {v.name: self.type(v.type) for v in graph.input}
        steps: list[Step] = []
        for node in graph.node:
            for step in self.steps(node, {}):
                steps.append(_with_body(step, steps) if (step.domain, step.operator) == GRADIENT else step)
        return _program(graph.name, inputs, tuple([v.name for v in graph.output]), constants, tuple(steps), types)

    def type(self, proto: Any) -> Any:
        """The dtype of a tensor; None for anything else."""
        if proto.WhichOneof("value") != "tensor_type" or not proto.tensor_type.elem_type:
            return None
        return self.onnx.helper.tensor_dtype_to_np_dtype(proto.tensor_type.elem_type)

    def steps(self, node: Any, given: dict[str, Any], versions: dict[str, int] | None = None) -> list[Step]:
        """Return the steps of a node: one, or those of the model's own function that it calls.

        ``given`` are attributes of the function around it, which the node may refer to.
        """
        versions = self.versions if versions is None else versions
        attributes = {a.name: self.attribute(a) for a in node.attribute if not a.ref_attr_name}
        attributes.update({a.name: given[a.ref_attr_name] for a in node.attribute if a.ref_attr_name in given})
        function = self.functions.get((node.domain, node.op_type))
        if function is not None:
            return self.inlined(node, function, attributes)
        domain = _domain(node.domain)
        proto = node
        if any(a.ref_attr_name for a in node.attribute):
            proto = self.onnx.helper.make_node(node.op_type, node.input, node.output, name=node.name,
                                               domain=node.domain, **attributes)
        return [Step(node.op_type, domain, versions.get(domain, 1), tuple(node.input), tuple(node.output), attributes,
                     proto)]

    def inlined(self, node: Any, function: Any, attributes: dict[str, Any]) -> list[Step]:
        """Return the steps of a function of the model's, whose inner names begin with the name of its first result."""
        given = {**{a.name: self.attribute(a) for a in function.attribute_proto}, **attributes}
        names = dict(zip(function.input, node.input, strict=False))
        names.update(zip(function.output, node.output, strict=False))
        prefix = next((name for name in node.output if name), node.op_type)
        versions = {_domain(o.domain): o.version for o in function.opset_import}

        def outer(name: str) -> str:
            return names.setdefault(name, f"{prefix}/{name}") if name else ""

        found: list[Step] = []
        for name in function.input[len(node.input):]:
            names[name] = ""
        for inner in function.node:
            copy = self.onnx.NodeProto()
            copy.CopyFrom(inner)
            copy.input[:] = [outer(name) for name in inner.input]
            copy.output[:] = [outer(name) for name in inner.output]
            found += self.steps(copy, given, versions)
        return found

    def attribute(self, proto: Any) -> Any:
        """Return the value of an attribute."""
        value = self.onnx.helper.get_attribute_value(proto)
        if isinstance(value, bytes):
            return value.decode("utf-8", "replace")
        if isinstance(value, self.onnx.GraphProto):
            return self.program(value)
        if isinstance(value, self.onnx.TensorProto):
            return self.onnx.numpy_helper.to_array(value)
        if isinstance(value, self.onnx.SparseTensorProto):
            array = self.onnx.numpy_helper.to_array
            return _dense(array(value.values), array(value.indices), tuple(value.dims))
        if isinstance(value, (int, float)):
            return value
        return [v.decode("utf-8", "replace") if isinstance(v, bytes) else v for v in value]


def _domain(name: str) -> str:
    return "" if name == "ai.onnx" else name


def _dense(values: Any, indices: Any, shape: tuple[int, ...]) -> Any:
    found = np.zeros(shape, values.dtype)
    if indices.ndim == 1:
        found.reshape(-1)[indices] = values
    else:
        found[tuple(indices.T)] = values
    return found
