"""Functions made of others that export as one operator of your own."""
from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Sequence
from typing import Any

from .. import compat_classes
from .. import tape as _tape
from ..function_node import FunctionNode
from ..static.trees import ARRAY, VARIABLE, flatten, unflatten
from ..tape import recording
from ..variable import Variable
from .errors import NoForm
from .trace import ExportTape, holds_arrays


class Faked(FunctionNode):
    """A call of a function as one node; its other arguments are attributes, for the converter."""

    pure = True

    def __init__(self, name: str, function: Callable[..., Any], spec: Any, attributes: dict[str, Any]) -> None:
        super().__init__()
        self._label = name
        self._function = function
        self._spec = spec
        self._attributes = attributes
        vars(self).update(attributes)

    @property
    def label(self) -> str:
        return self._label

    def forward(self, inputs: tuple[Any, ...]) -> tuple[Any, ...]:
        args, kwargs = unflatten(self._spec, iter([Variable(x, requires_grad=False) for x in inputs]))
        with recording(None):
            result = self._function(*args, **kwargs)
        leaves: list[Any] = []
        self._made = flatten(result, leaves)
        return tuple(x._array if isinstance(x, Variable) else x for x in leaves)

    def tree(self, outputs: Any) -> Any:
        """Return the outputs as the function returned them: one, a tuple, a list or a dict."""
        return unflatten(_as_variables(self._made), iter(outputs))

    def onnx(self, g: Any, *xs: str) -> Any:
        operator = _OPERATORS.get((self._label, len(xs)))
        if operator is not None:
            return operator(g, *xs)
        raise NoForm(f"external_converters has no {self._label!r}, and no function of this name has such attributes")

    def known(self) -> FunctionNode | None:
        """Return the function of Kusari's that is called like this, with its attributes."""
        return compat_classes.node_of(self._label, self._attributes)


# Operators that no function of Kusari's stands for: name, number of inputs.
_OPERATORS: dict[tuple[str, int], Callable[..., Any]] = {
    ("Shape", 1): lambda g, x: g.Shape(x),
    ("Reshape", 2): lambda g, x, shape: g.Reshape(x, g.cast(shape, "int64")),
}


def fake_as_funcnode(alt_func: Callable[..., Any], name: str,
                     rename_attributes: Sequence[tuple[Any, str]] | None = None) -> Callable[..., Any]:
    """Return ``alt_func`` such that exporting sees one function called ``name``, whatever it applies.

    Outside of an export nothing changes. ``external_converters`` of `export` says what the function becomes. Names of
    Chainer's classes are known (``"Add"``, ``"AddConstant"`` with an attribute ``value``), and two operators:
    ``"Shape"``, an int64 Variable of the extents, and ``"Reshape"`` of an array and a computed shape.

    Args:
        alt_func: Takes at least one Variable, and returns Variables (or a tuple, list or dict of them).
        name: Label of the function: the key for ``external_converters``.
        rename_attributes: Pairs of an argument's position or keyword and the attribute's name. Arguments that hold no
            Variable are attributes of ``param.func``; by default ``argN``, or the keyword. Keywords that are not given
            count with their defaults.

    Returns:
        Callable: In an export it returns Variables in place of arrays.
    """
    names = dict(rename_attributes or ())
    defaults = _defaults(alt_func)

    @functools.wraps(alt_func)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        leaves: list[Any] = []
        spec = flatten((args, kwargs), leaves)
        if not isinstance(_tape.active(), ExportTape) or not any(isinstance(x, Variable) for x in leaves):
            return alt_func(*args, **kwargs)
        attributes = {names.get(key, f"arg{key}" if isinstance(key, int) else key): value
                      for key, value in [*enumerate(args), *kwargs.items(), *(
                          (key, value) for place, key, value in defaults if place >= len(args) and key not in kwargs)]
                      if not holds_arrays(value)}
        faked = Faked(name, alt_func, spec, attributes)
        return faked.tree(faked.apply(tuple(leaves)))
    return wrapper


def _defaults(function: Callable[..., Any]) -> list[tuple[int, str, Any]]:
    """Return place, name and value of the arguments that have a default."""
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):  # written in C
        return []
    return [(i if p.kind is p.POSITIONAL_OR_KEYWORD else len(parameters), p.name, p.default)
            for i, p in enumerate(parameters) if p.default is not p.empty]


def _as_variables(spec: Any) -> Any:
    """Return the specification of a tree with Variables in place of arrays."""
    if spec is ARRAY:
        return VARIABLE
    if not isinstance(spec, tuple) or spec[:1] in (("static",), ("object",)):
        return spec
    return tuple([_as_variables(part) for part in spec])


def as_funcnode(name: str, rename_attributes: Sequence[tuple[Any, str]] | None = None) -> Callable[..., Any]:
    """Decorator form of `fake_as_funcnode`.

    Example:
        >>> import kusari.functions as F
        >>> @as_funcnode("ScaledTanh", rename_attributes=[(1, "scale")])
        ... def scaled_tanh(x, a):
        ...     return F.tanh(x) * a
    """
    return lambda function: fake_as_funcnode(function, name, rename_attributes)
