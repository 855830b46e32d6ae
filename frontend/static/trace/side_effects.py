"""Python inside a static function: ``static_code``, ``report``, and functions of which nothing is known.

Each becomes a node that runs Python at its place in every replay.
"""
from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np

from kusari.ir import Node, Op, Trait, Value

from ... import tape as _tape
from ...configuration import using_config
from ...function_node import FunctionNode
from ...variable import Variable, output_variable
from ..trees import VARIABLE, array_of, flatten, leaf_kinds, unflatten
from .bindings import ArrayBinding
from .tape import Tape, recording


def static_code(fn: Callable[..., Any] | None = None, **options: Any) -> Any:
    """Mark a function or method whose code runs at every call of the static function around it.

    Outside a static function the decorated function just runs. Inside, it runs at its place in every replay as well:
    arrays and Variables among its arguments are those of the replay, arrays listed in the keyword argument
    ``outputs`` are what it writes in place, arrays that it returns are its results. Source: the manual, "Static
    Subgraph Optimizations: Design Notes".

    Example:
        >>> import kusari
        >>> class Counter:
        ...     calls = 0
        ...     @kusari.static_code
        ...     def count(self):
        ...         self.calls += 1
        >>> counter = Counter()
        >>> counter.count()
        >>> counter.calls
        1
    """
    if fn is None:
        return functools.partial(static_code, **options)

    @functools.wraps(fn)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        tape = _tape.current.tape
        if tape is None:
            return fn(*args, **kwargs)
        if hasattr(tape, "code"):  # the call goes on define-by-run: see resume.py
            return tape.code(fn, args, kwargs)
        tape.settle()
        if tape.observation is not None and tape.observation.effects:
            tape.note("code that replays run comes after something that the call has stored, which replays store at "
                      "their end; store it after that code, or in it")
        leaves: list[Any] = []
        flatten((args, kwargs), leaves)
        fresh = tape.constants.give_away([array_of(x) for x in leaves])
        with recording(None), tape.unobserved():
            result = fn(*args, **kwargs)
        tape.expect_draws()
        tape.contents.take_all()
        _record_code(tape, fn, args, kwargs, result, fresh)
        return result
    wrapper.__dict__["is_static_code"] = True
    return wrapper


def _call_code(attrs: Any, *arrays: Any) -> tuple[Any, ...]:
    """Run side-effect code on the arrays of a replay; written outputs come first, then returned arrays."""
    args, kwargs = _rebuild(attrs, arrays)
    written = [array_of(x) for x in kwargs.get("outputs", ())]
    with recording(None):
        result = attrs["fn"](*args, **kwargs)
    for buffer, array in zip(attrs["buffers"], written, strict=True):
        if buffer is not None:
            buffer[...] = array
    returned: list[Any] = []
    flatten(result, returned)
    return tuple(written + [array_of(x) for x in returned])


def _rebuild(attrs: Any, arrays: tuple[Any, ...]) -> Any:
    leaves: list[Any] = []
    for array, is_variable, owned in zip(arrays, attrs["variables"], attrs["copied"], strict=True):
        array = np.array(array) if owned else array
        leaves.append(Variable(array, requires_grad=False) if is_variable else array)
    return unflatten(attrs["spec"], iter(leaves))


STATIC_CODE = Op("static_code", _call_code, Trait.OPAQUE)


def _values(tape: Tape, leaves: list[Any], fresh: dict[int, Any]) -> tuple[Value, ...]:
    values: list[Value] = []
    for leaf in leaves:
        array = array_of(leaf)
        if id(array) in fresh:  # made in the call, as it was before the code saw it
            tape.constant(fresh[id(array)])
            array = fresh[id(array)]
        value = tape.known(array)
        # A buffer of the side-effect code's own: the same object at every replay.
        values.append(value if value is not None else tape.bind(array, ArrayBinding(array), "buffer"))
    return tuple(values)


def _record_code(tape: Tape, fn: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any],
                 result: Any, fresh: dict[int, Any]) -> None:
    leaves: list[Any] = []
    spec = flatten((args, kwargs), leaves)
    written = [array_of(x) for x in kwargs.get("outputs", ())]
    inputs = _values(tape, leaves, fresh)
    buffers = tuple(a if (v := tape.known(a)) is not None and isinstance(tape.bindings.get(v), ArrayBinding) else None
                    for a in written)
    copied = tuple(id(array_of(leaf)) in fresh or any(array_of(leaf) is w for w in written) for leaf in leaves)
    returned: list[Any] = []
    given = flatten(result, returned)
    variables = tuple(kind is VARIABLE for kind in leaf_kinds(spec))
    attrs = {"fn": fn, "spec": spec, "variables": variables, "copied": copied, "buffers": buffers, "result": given}
    tape.append(STATIC_CODE, inputs, written + [array_of(x) for x in returned], attrs)


def _call_report(attrs: Any, *arrays: Any) -> tuple[Any, ...]:
    """Report the values of a replay."""
    from ...reporter import report
    it = iter(arrays)
    values = {k: output_variable(np.array(next(it)), False) if v is None else v
              for k, v in attrs["values"].items()}
    with recording(None):
        report(values, attrs["observer"])
    return ()


REPORT = Op("report", _call_report, Trait.OPAQUE)


def record_report(tape: Tape, values: dict[str, Any], observer: Any) -> None:
    """Record that ``values`` are reported; traced ones are those of each replay, others are what they were."""
    inputs: list[Value] = []
    kept: dict[str, Any] = {}
    for key, x in values.items():
        value = tape.known(array_of(x)) if hasattr(x, "dtype") else None
        if value is not None:
            inputs.append(value)
        kept[key] = None if value is not None else x
    tape.append(REPORT, tuple(inputs), (), {"values": kept, "observer": observer})


class _Surrogate(FunctionNode):
    """Stands for an opaque function while gradients are derived: its backward is one opaque node."""

    def __init__(self, node: Node, results: tuple[Any, ...]) -> None:
        super().__init__()
        self.node = node
        self.results = results

    def forward(self, inputs: tuple[Any, ...]) -> tuple[Any, ...]:
        return self.results

    def backward(self, indexes: tuple[int, ...], grad_outputs: tuple[Any, ...]) -> tuple[Any, ...]:
        types = tuple((self.inputs[i].shape, self.inputs[i].dtype) for i in indexes)
        gradient = _OpaqueGradient(self.node, tuple(indexes), tuple(g is not None for g in grad_outputs), types)
        return gradient.apply(tuple(g for g in grad_outputs if g is not None))


class _OpaqueGradient(FunctionNode):
    """The gradient of an opaque node while it is derived: only its types count, the user's code does not run."""

    def __init__(self, node: Node, indexes: tuple[int, ...], given: tuple[bool, ...], types: tuple[Any, ...]) -> None:
        super().__init__()
        self.node = node
        self.attrs = {"label": f"{node.op.name}.backward", "indexes": indexes, "given": given, "types": types}

    def forward(self, inputs: tuple[Any, ...]) -> tuple[Any, ...]:
        return tuple(np.ones(shape, dtype) for shape, dtype in self.attrs["types"])

    def record(self, tape: Tape, inputs: tuple[Value, ...], outputs: Any) -> None:
        """Append the node that runs the user's backward on the function kept by the forward node's token."""
        tape.append(OPAQUE_GRADIENT, (self.node.outputs[-1], *inputs), outputs, self.attrs)


def _call_opaque_gradient(attrs: Any, function: FunctionNode, *gys: Any) -> tuple[Any, ...]:
    it = iter(gys)
    gys_or_none = tuple(Variable(next(it), requires_grad=False) if g else None for g in attrs["given"])
    with using_config("enable_backprop", False):  # as in a backward that is not to be differentiated again
        grads = function.backward(attrs["indexes"], gys_or_none)
    return tuple(np.zeros(shape, dtype) if g is None else g._array
                 for (shape, dtype), g in zip(attrs["types"], grads, strict=True))


OPAQUE_GRADIENT = Op("opaque_gradient", _call_opaque_gradient, Trait.OPAQUE)


def surrogate(node: Node, inputs: list[Variable]) -> list[Variable]:
    """Apply the stand-in of an opaque function; its outputs are those of the node without the token."""
    results = tuple(np.ones(v.shape, v.tensor.dtype) for v in node.outputs[:-1])
    return [*_Surrogate(node, results).apply(tuple(inputs))]
