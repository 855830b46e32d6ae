"""Python inside a static function: ``static_code``, ``report``, and functions of which nothing is known.

Each becomes a node that runs Python at its place in every replay.
"""
from __future__ import annotations

import functools
from collections.abc import Callable, Container, Iterable
from typing import TYPE_CHECKING, Any, TypeVar, overload

import numpy as np

from kusari.ir import Node, Op, Trait, Value

from ... import tape as _tape
from ...function_node import FunctionNode
from ...reporter import report
from ...tape import recording
from ...variable import Variable, output_variable
from ..arrays.bindings import ArrayBinding
from ..computed_numbers import ComputedNumber, number_of, numbers_in, settled
from ..guards.changing import READ
from ..guards.reached import Reached
from ..trees import SCALARS, VARIABLE, array_of, flatten, leaf_kinds, parts_of, unflatten
from .effects import LOOK
from .numpy_nodes import look_again
from .own_functions import Applied, Unforeseen, operands, own_settings, raising, settings

if TYPE_CHECKING:
    from .recorder import Tape

Function = TypeVar("Function", bound=Callable[..., Any])


@overload
def static_code(fn: Function, /) -> Function: ...
@overload
def static_code(fn: None = None, **options: Any) -> Callable[[Function], Function]: ...
def static_code(fn: Callable[..., Any] | None = None, **options: Any) -> Any:
    """Mark a function or method whose code runs at every call of the static function around it.

    Outside a static function the decorated function just runs. Inside, it runs at its place in every replay as well:
    arrays and Variables among its arguments are those of the replay, arrays listed in the keyword argument
    ``outputs`` are written in place, arrays that it returns are its results; it returns no numbers. Source: the manual,
    "Static Subgraph Optimizations: Design Notes".

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
        tape.at_work += 1
        reached = Reached([fn, args, kwargs] if tape.observation is not None and tape.fault is None else ())
        reached.require_known(tape, fn.__name__, {id(x) for x in (*leaves, *map(array_of, leaves),
                                                                  *numbers_in((args, kwargs)))})
        plain = functools.partial(fn, *map(_unread, args), **{name: _unread(x) for name, x in kwargs.items()})
        with recording(None), tape.unobserved():
            result = plain()
        tape.at_work -= 1
        tape.expect_draws()
        tape.contents.take_all()
        _record_code(tape, fn, args, kwargs, result, fresh)
        if tape.observation is not None and tape.fault is None:
            reached.compare(tape.observation)
            tape.reached.append(reached)
            look_again(tape, reached, map(array_of, leaves))
        return result
    wrapper.__dict__["is_static_code"] = True
    return wrapper


def _unread(x: Any) -> Any:
    """Return a plain number in place of a computed one, as code gets it in replays."""
    return x.kusari_value if isinstance(x, ComputedNumber) else x


def _call_code(attrs: Any, *arrays: Any) -> tuple[Any, ...]:
    """Run side-effect code on the arrays of a replay; written outputs come first, then returned arrays."""
    args, kwargs = _rebuild(attrs, arrays)
    written = [array_of(x) for x in kwargs.get("outputs", ())]
    with recording(None), settings(attrs["settings"]), raising():
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
    if _has_plain(given):
        tape.note_at_user(f"{fn.__name__} returns a number or a text, and replays would take it for the same each "
                          "time; return an array")
    if any(isinstance(x, Variable) and x.requires_grad and (
            x.creator_node is not None or any(x is y for y in leaves)) for x in returned):
        tape.note_at_user(f"{fn.__name__} returns a Variable through which gradients go, and in replays they would "
                          "not; return its array")
    variables = tuple(kind is VARIABLE for kind in leaf_kinds(spec))
    attrs = {"fn": fn, "spec": spec, "variables": variables, "copied": copied, "buffers": buffers, "result": given,
             "settings": {} if tape.observation is None else own_settings(tape.observation)}
    tape.append(STATIC_CODE, inputs, written + [array_of(x) for x in returned], attrs)


def _has_plain(spec: Any) -> bool:
    """Whether a tree has numbers or texts, None apart."""
    if type(spec) is tuple and spec[0] == "static":
        return issubclass(spec[1], (*SCALARS[:-1], np.generic))
    return any(map(_has_plain, parts_of(spec) or ()))


def _call_report(attrs: Any, *arrays: Any) -> tuple[Any, ...]:
    """Report the values of a replay."""
    it = iter(arrays)
    kinds = attrs["kinds"]
    values = {k: v if v is not None else _reported(kinds[k], next(it)) for k, v in attrs["values"].items()}
    with recording(None):
        report(values, attrs["observer"])
    return ()


def _reported(kind: type, array: Any) -> Any:
    """Return a value of a replay as the user's code reports it: a Variable, an array or a number."""
    if kind is Variable:
        return output_variable(np.array(array), False)
    return np.array(array) if kind is np.ndarray else number_of(kind, array)


REPORT = Op("report", _call_report, Trait.OPAQUE)


def record_report(tape: Tape, values: dict[str, Any], observer: Any) -> dict[str, Any]:
    """Record that ``values`` are reported; traced ones are computed by each replay, others stay the same.

    Returns them with plain numbers.
    """
    inputs: list[Value] = []
    kept: dict[str, Any] = {}
    kinds: dict[str, type] = {}
    plain: dict[str, Any] = {}
    for key, x in values.items():
        plain[key] = x.kusari_value if isinstance(x, ComputedNumber) else settled(x, "a report")
        if isinstance(x, ComputedNumber):
            kinds[key], x = x.kusari_kind, x.kusari_array
        value = tape.known(array_of(x)) if hasattr(x, "dtype") else None
        if value is not None:
            inputs.append(value)
            kinds.setdefault(key, Variable if isinstance(x, Variable) else np.ndarray)
        kept[key] = None if value is not None else x
    tape.append(REPORT, tuple(inputs), (), {"values": kept, "kinds": kinds, "observer": observer})
    return plain


class _Surrogate(FunctionNode):
    """The stand-in of an opaque function while gradients are derived: its backward is one opaque node.

    ``exact`` is whether gradients that the function has not given are left out; else they are zeros. ``changing`` are
    values that may have changed since the function was applied to them.
    """

    exact = False
    changing: Container[Value] = ()

    def __init__(self, node: Node, results: tuple[Any, ...]) -> None:
        super().__init__()
        self.node = node
        self.results = results

    def forward(self, inputs: tuple[Any, ...]) -> tuple[Any, ...]:
        return self.results

    def backward(self, indexes: tuple[int, ...], grad_outputs: tuple[Any, ...]) -> tuple[Any, ...]:
        types = tuple((self.inputs[i].shape, self.inputs[i].dtype) for i in indexes)
        given = tuple(g is not None for g in grad_outputs)
        expected = self.node.attrs["function"]._own_kind.expected(indexes, given)
        present = expected if self.exact else (True,) * len(indexes)
        gradient = _OpaqueGradient(self.node, indexes, given, types, present, expected, self.exact,
                                   self.changing)
        found = iter(gradient.apply(tuple(g for g in grad_outputs if g is not None)))
        return tuple(next(found) if p else None for p in present)


class _OpaqueGradient(FunctionNode):
    """The gradient of an opaque node while it is derived: only its types count, the user's code does not run."""

    def __init__(self, node: Node, indexes: tuple[int, ...], given: tuple[bool, ...], types: tuple[Any, ...],
                 present: tuple[bool, ...], expected: tuple[bool, ...], exact: bool,
                 changing: Container[Value]) -> None:
        super().__init__()
        self.node = node
        kind = node.attrs["function"]._own_kind
        own = (*kind.inputs, *range(len(operands(node)), len(node.inputs))), kind.outputs
        retained = tuple([tuple([i for i in numbers if values[i] in changing]) for numbers, values in zip(
            own, (node.inputs, node.outputs), strict=True)])
        self.attrs = {"label": f"{node.op.name}.backward", "indexes": indexes, "given": given, "types": types,
                      "present": present, "expected": expected, "exact": exact, "retained": retained}

    def forward(self, inputs: tuple[Any, ...]) -> tuple[Any, ...]:
        return tuple(np.ones(shape, dtype)
                     for (shape, dtype), p in zip(self.attrs["types"], self.attrs["present"], strict=True) if p)

    def record(self, tape: Tape, inputs: tuple[Value, ...], outputs: Any) -> None:
        """Append the node that runs the user's backward on the function kept by the forward node's token."""
        ins, outs = self.attrs["retained"]
        read = (*(self.node.inputs[i] for i in ins), *(self.node.outputs[i] for i in outs))
        tape.append(OPAQUE_GRADIENT, (self.node.outputs[-1], *read, *inputs), outputs, self.attrs)


def _call_opaque_gradient(attrs: Any, applied: Applied, *arrays: Any) -> tuple[Any, ...]:
    ins, outs = attrs["retained"]
    count = len(ins) + len(outs)
    applied.renew(ins, outs, arrays[:count])
    it = iter(arrays[count:])
    gys = tuple(Variable(next(it), requires_grad=False) if g else None for g in attrs["given"])
    grads = applied.backward(attrs["indexes"], gys)
    expected = zip(attrs["present"], attrs["types"], grads, strict=True)
    if attrs["exact"] and any(p is (g is None) or p and (g.shape, g.dtype) != kind for p, kind, g in expected):
        raise Unforeseen
    return tuple(np.zeros(shape, dtype) if g is None else g._array
                 for p, (shape, dtype), g in zip(attrs["present"], attrs["types"], grads, strict=True) if p)


OPAQUE_GRADIENT = Op("opaque_gradient", _call_opaque_gradient, Trait.OPAQUE)


def surrogate(node: Node, inputs: list[Variable]) -> list[Variable]:
    """Apply the stand-in of an opaque function; its outputs are the node's without the token."""
    results = tuple(np.ones(v.shape, v.tensor.dtype) for v in node.outputs[:-1])
    return [*_Surrogate(node, results).apply(tuple(inputs))]


def prepare(functions: Iterable[FunctionNode], exact: bool, changing: Container[Value]) -> None:
    """Tell the stand-ins among ``functions`` how to treat gradients that are not given; see `_Surrogate`."""
    for function in functions:
        if type(function) is _Surrogate:
            function.exact, function.changing = exact, changing


def runs_once(node: Node) -> bool:
    """Whether Python in a node would do or find another thing if it ran again: it acts, draws, or reads the outside."""
    return node.op in (STATIC_CODE, LOOK, READ) or "generator" in node.attrs


def gap(nodes: Iterable[Node]) -> Node | None:
    """Return the node of a gradient that a user's function has not always given."""
    return next((n for n in nodes if n.op is OPAQUE_GRADIENT and not all(n.attrs["expected"])), None)
