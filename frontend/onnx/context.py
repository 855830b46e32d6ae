"""The context of converters of functions, as converters written for ONNX-Chainer expect it."""
from __future__ import annotations

import copy
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import numpy as np

from kusari.ir import Node

from ..backends import cuda
from ..elementwise import Elementwise
from ..function_names import OF_OTHER_RANKS, OPERATORS, class_name
from ..link import Link
from ..link.namespace import entries_of
from ..parameter import Parameter
from .emitter import Emitter
from .errors import ExportError
from .versions import require_onnx


class Context:
    """Where converters get the names of arrays and links from; one for all functions of an export."""

    def __init__(self, g: Emitter, roots: tuple[Link, ...] = ()) -> None:
        self.g = g
        self.node: Node | None = None  # of the function that is being converted
        self.roots = roots
        self._names: dict[int, tuple[str, bool, Any]] = {}

    def add_const(self, array: Any, name: str = "") -> str:
        """Add a constant of the function; returns the name that it got, in which ``name`` need not occur."""
        return self._added(array, self.g.dialect.constant(self.g.function, name), self.g.dialect.names_constants)

    def add_param(self, array: Any, name: str = "", use_original_name: bool = False) -> str:
        """Add an array as data of the model; returns its name. What is to be trained is an input of the function."""
        stem = name if use_original_name else self.g.dialect.constant(self.g.function, name, "param")
        return self._added(array, stem, use_original_name or self.g.dialect.names_constants, stored=True)

    def _added(self, array: Any, stem: str, named: bool, stored: bool = False) -> str:
        g = self.g
        name = g.constant(cuda.to_cpu(getattr(array, "array", array)), g.free if named else g.fresh, stem, stored)
        self.set_name(array, name)
        return name

    def get_name(self, variable: Any) -> str:
        """Return the name of a parameter, or the one given to an array; raises ``ExportError`` for others."""
        if id(variable) in self._names:
            return self._names[id(variable)][0]
        for root in self.roots:
            for path, p in root.namedparams():
                if p is variable:
                    return self.g.dialect.parameter(path)
        raise ExportError("the context knows parameters of the model and what has been given a name; a function's "
                          f"inputs are called param.input_names; got {variable!r}")

    def set_name(self, variable: Any, name: str, pinned: bool = False) -> None:
        """Let `get_name` return ``name`` for an array or a Variable; a ``pinned`` name stays."""
        if self.is_pinned(variable):
            raise ExportError(f"{self.get_name(variable)!r} is a pinned name; it cannot become {name!r}")
        self._names[id(variable)] = name, pinned, variable  # kept alive: another object must not get its id

    def is_pinned(self, variable: Any) -> bool:
        """Whether the name of an array or a Variable must stay."""
        return id(variable) in self._names and self._names[id(variable)][1]

    def get_link(self, param: Parameter) -> tuple[str, Link] | None:
        """Return the name and the link that hold a parameter, or None."""
        for root in self.roots:
            for path, link in root.namedlinks():
                if any(entries_of(link).get(name) is param for name in link._params):
                    return self.g.dialect.parameter(path), link
        return None


@dataclass
class ConverterParameter:
    """The argument of an external converter: the function, its names, and the emitter for converters that use it."""

    func: Any = None
    opset_version: Any = None
    input_names: Any = None
    output_names: Any = None
    context: Any = None

    @property
    def g(self) -> Emitter:
        """The maker of nodes: ``param.g.Relu(name)``."""
        return self.context.g


def convert_parameter(parameter: Any, context: Context) -> Any:
    """Return a parameter as a ``TensorProto`` with the name that it has in the file."""
    array = parameter.array if hasattr(parameter, "requires_grad") else parameter
    return require_onnx().numpy_helper.from_array(
        np.ascontiguousarray(cuda.to_cpu(array)), context.get_name(parameter))


def known_as(node: Node) -> tuple[str, Any]:
    """Return what Chainer calls the function of a node, and the function as its converter sees it.

    Of an operator with a number Chainer's class has the number in its attribute ``value``; a function that is composed
    of others here has its arguments as attributes.
    """
    function: Any = node.attrs.get("function")
    label = node.op.name
    if function is None and "shown" in node.attrs:
        function = SimpleNamespace(**node.attrs["shown"])
    literals: tuple[Any, ...] = function.body.literals if isinstance(function, Elementwise) else ()
    number = next((v for v in literals if v is not None), None)
    if number is not None and label in OPERATORS:
        function = copy.copy(function)
        function.value = number if literals[0] is number else OPERATORS[label].value_of(number)
    name = class_name(label, literals)
    if name in OF_OTHER_RANKS and len(node.inputs[0].shape) != 4:
        name = OF_OTHER_RANKS[name]
    return name, function
