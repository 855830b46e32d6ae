"""Ops made from function nodes: how a function that define-by-run applies becomes a node of a graph."""
from __future__ import annotations

import copy
import functools
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from kusari.ir import Op, Trait, Value, attrs_key

from ...configuration import config, using_config
from ...elementwise import Elementwise
from ...function_node import FunctionNode
from ...variable import Variable
from ..arrays.captured import outside_value
from ..arrays.overlap import has_address
from .own_functions import apply_own, owners, template

if TYPE_CHECKING:
    from .recorder import Tape

_SCALARS = (bool, int, float, str, type(None))


def pristine(function: FunctionNode) -> FunctionNode:
    """Return a copy of ``function`` as it is before ``forward``, good to be applied any number of times."""
    kind = type(function)
    if is_opaque(function):
        return template(function)
    if not kind.__module__.startswith("kusari.") or hasattr(kind, "__copy__"):
        return copy.copy(function)
    made = object.__new__(kind)  # as ``copy.copy`` of a class that does not define copying
    made.__dict__.update(function.__dict__)
    return made


def static_attributes(function: FunctionNode) -> dict[str, Any]:
    """Return the attributes that the constructor of ``function`` has set and a reader may want to see."""
    return {k: v for k, v in vars(function).items() if not k.startswith("_") and (
        isinstance(v, _SCALARS) or (isinstance(v, tuple) and all(isinstance(x, _SCALARS) for x in v)))
        and k != "rank"}


def asks(function: FunctionNode, inputs: Iterable[Variable]) -> bool:
    """Whether a user's function may be asked for its gradients, by what Variables say that it is applied to."""
    return is_opaque(function) and config.enable_backprop and any([x.requires_grad for x in inputs])


def array_attribute(function: FunctionNode) -> str | None:
    """Return the name of an attribute that holds an array, which nothing of the trace would know of."""
    entries = dict(vars(function))
    if function.is_adapter:
        entries.update(vars(function._function))  # type: ignore[attr-defined]
    return next((name for name, value in entries.items() if _holds_array(value)), None)


def held_arrays(tape: Tape, template: FunctionNode) -> dict[tuple[int, str], Value] | None:
    """Return the values of arrays in attributes of a user's function, by the place where replays put them.

    ``template`` is the copy that replays apply, which loses them. None, with a fault, if there is another array.
    """
    found: dict[tuple[int, str], Value] = {}
    kind: Any = getattr(template, "_own_kind", None)
    for i, name, array, before in () if kind is None else kind.take_arrays():
        value = None
        if array.tobytes() == before and not tape.of_parameters.has(array):  # its forward has not changed it
            value = tape.constants.value(tape, array) or (tape.known(array) if tape.knows_elements(array) else None)
            value = outside_value(tape, array) if value is None else value
        if value is not None:
            tape.written.retain(tape, array)
            found[i, name] = value
            vars(owners(template)[i])[name] = None
    held = array_attribute(template)
    if held is None:
        return found
    tape.note(f"{template.label} has an array in its attribute {held!r}, which replays would not renew; pass arrays "
              "as inputs of the function")
    return None


def _holds_array(x: Any) -> bool:
    if isinstance(x, (tuple, list)):
        return any(map(_holds_array, x))
    if isinstance(x, dict):
        return any(map(_holds_array, x.values()))
    return isinstance(x, Variable) or has_address(x)


def is_opaque(function: FunctionNode) -> bool:
    """Whether nothing is known of ``function`` but how to run it: a user's own function."""
    return _is_opaque(type(function))


@functools.lru_cache(maxsize=1024)
def _is_opaque(kind: type[FunctionNode]) -> bool:
    return not (getattr(kind, "pure", False) or hasattr(kind, "lower") or hasattr(kind, "onnx"))


def runs_users_python(function: FunctionNode) -> bool:
    """Whether Python of the user's runs in a function, in replays as in the traced call."""
    return not type(function).__module__.startswith("kusari.") or is_opaque(function)


def run_forward(function: FunctionNode, arrays: tuple[Any, ...]) -> tuple[Any, ...]:
    """Run the forward of a function node on arrays, outside any graph."""
    with using_config("enable_backprop", False):
        return tuple(v._array for v in function.apply(arrays))


def _call(attrs: Any, *arrays: Any) -> tuple[Any, ...]:
    return run_forward(copy.copy(attrs["function"]), arrays)


def _lower(b: Any, attrs: Any, *values: Any) -> tuple[Any, ...]:
    b.on_card = "on_card" in attrs
    return attrs["function"].lower(b, *values)


def _onnx(g: Any, attrs: Any, *names: Any) -> Any:
    return attrs["function"].onnx(g, *names)


def _key(attrs: Any) -> Any:
    function = attrs["function"]
    return type(function), attrs_key({k: v for k, v in vars(function).items() if k != "stack"})


@functools.cache
def _op(kind: type[FunctionNode], label: str, opaque: bool) -> Op:
    return Op(
        label, apply_own if opaque else _call, Trait.OPAQUE if opaque else Trait.NONE,
        lower=_lower if hasattr(kind, "lower") else None,
        onnx=_onnx if hasattr(kind, "onnx") else None,
        key=None if opaque else _key)


def op_of(function: FunctionNode) -> Op:
    """Return the op that stands for applications of ``function``'s class."""
    label = function.body.label if isinstance(function, Elementwise) else function.label
    return _op(type(function), label, is_opaque(function))
