"""The context of converters of functions, as converters written for ONNX-Chainer expect it."""
from __future__ import annotations

import copy
from dataclasses import dataclass
from typing import Any

import numpy as np

from kusari.ir import Node

from ..backends import cuda
from ..elementwise import Elementwise
from ..function_names import OPERATORS, class_name
from ..link import Link
from ..link.namespace import entries_of
from ..parameter import Parameter
from .emitter import Emitter
from .errors import ExportError
from .versions import require_onnx


@dataclass(frozen=True)
class Context:
    """Where converters get the names of arrays and links from."""

    g: Emitter
    node: Node | None = None
    roots: tuple[Link, ...] = ()

    def add_const(self, array: Any, name: str = "") -> str:
        """Add a constant; returns the name that it got, which need not be ``name``."""
        return self.g.const(cuda.to_cpu(array))

    def add_param(self, array: Any, name: str = "", use_original_name: bool = False) -> str:
        """Add an array; returns its name. It is a constant: what is to be trained is an input of the function."""
        return self.g.const(cuda.to_cpu(array))

    def get_name(self, variable: Any) -> str:
        """Return the name of a parameter, its path; raises ``ExportError`` for other Variables."""
        for root in self.roots:
            for path, p in root.namedparams():
                if p is variable:
                    return path
        raise ExportError("the context knows the names of the model's parameters only, a function's inputs are called "
                          f"param.input_names; got {variable!r}")

    def get_link(self, param: Parameter) -> tuple[str, Link] | None:
        """Return the path and the link that hold a parameter, or None."""
        for root in self.roots:
            for path, link in root.namedlinks():
                if any(entries_of(link).get(name) is param for name in link._params):
                    return path, link
        return None


@dataclass
class ConverterParameter:
    """The argument of an external converter: the function, its names, and the emitter for converters that use it."""

    func: Any
    opset_version: int
    input_names: list[str]
    output_names: list[str]
    context: Context

    @property
    def g(self) -> Emitter:
        """The maker of nodes: ``param.g.Relu(name)``."""
        return self.context.g


def convert_parameter(parameter: Any, context: Context) -> Any:
    """Return a parameter as a ``TensorProto`` with the name that it has in the file."""
    array = parameter.array if hasattr(parameter, "requires_grad") else parameter
    return require_onnx().numpy_helper.from_array(
        np.ascontiguousarray(cuda.to_cpu(array)), context.get_name(parameter))


def known_as(node: Node, names: list[str]) -> tuple[str, Any, list[str]]:
    """Return what Chainer calls the function of a node, the function as its converter sees it, and its inputs.

    Of an operator with a number Chainer's class has the number in its attribute ``value``.
    """
    function: Any = node.attrs.get("function")
    label = node.op.name
    literals: tuple[Any, ...] = function.body.literals if isinstance(function, Elementwise) else ()
    number = next((v for v in literals if v is not None), None)
    if number is not None and label in OPERATORS:
        function = copy.copy(function)
        function.value = number if literals[0] is number else OPERATORS[label].value_of(number)
    return class_name(label, literals), function, names
