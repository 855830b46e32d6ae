"""Elements that NumPy changes in a parameter's array: replays change them at the same place among the functions.

Such an array is not another value afterwards: what reads the parameter reads the memory, before the change and behind
it, and so do gradients, as in define-by-run. Passes keep the order of reads and changes. A view that has been read
before is forgotten, and is a part of the memory again when it is next read.
"""
from __future__ import annotations

import functools
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from kusari.ir import Node, Op, Trait, Value
from kusari.runtime.python_rows import RunError

from ...parameter import Parameter
from ..arrays.bindings import ArrayBinding, ParameterBinding
from ..arrays.captured import outside_value, owner, part_of
from ..arrays.overlap import Spans, has_address
from ..errors import is_from_handler
from ..trees import array_of, flatten, unflatten
from .numpy_nodes import RAISING, is_made_of_arrays, operand_value

if TYPE_CHECKING:
    from .observation import Observation
    from .recorder import Tape


def _change(attrs: Any, memory: Any, *arrays: Any) -> tuple[Any, ...]:
    """Change elements of an array in a replay."""
    array = memory if attrs["part"] is None else attrs["part"].of_array(memory)
    it = iter(arrays)
    args, kwargs = unflatten(attrs["spec"], iter([array if own else next(it) for own in attrs["own"]]))
    try:
        with np.errstate(**attrs["errors"]):
            attrs["fn"](*args, **kwargs)
    except Exception as error:  # the user's code may catch it, or see what has happened before
        if is_from_handler(error):
            raise
        raise RunError(f"{attrs['name']} raises {type(error).__name__}: {error}") from error
    return ()


def _copy(attrs: Any, _: Any, array: Any) -> tuple[Any, ...]:
    """Return the array that takes the place of a parameter's."""
    return array.copy(),


NEW_ARRAY = Op("new_array", _copy, Trait.OPAQUE | Trait.WRITES)
CHANGE_IN_PLACE = Op("change_in_place", _change, Trait.OPAQUE | Trait.WRITES)


def region(node: Node, memory: Any) -> Any:
    """Return the elements that a node may change in an array, as a view of it.

    >>> region(Node(CHANGE_IN_PLACE, (), (), {"part": None, "key": (1,)}), np.arange(4).reshape(2, 2))
    array([2, 3])
    """
    array = memory if node.attrs["part"] is None else node.attrs["part"].of_array(memory)
    return array if node.attrs["key"] is None else array[(*node.attrs["key"], ...)]


def is_guarded(tape: Tape) -> bool:
    """Whether a call is traced to be replayed."""
    return tape.observation is not None and tape.observation.guarded


def is_changed(tape: Tape, array: Any) -> bool:
    """Whether a change of an array's elements has to be made in place: it lies in a parameter's memory."""
    return is_guarded(tape) and type(array) is np.ndarray and (
        tape.of_parameters.around(array) is not None)


def adopts(tape: Tape, array: Any) -> bool:
    """Whether an array from outside, in whose memory one lies, is changed in place, as a gradient reads it again."""
    memory, written = owner(array), tape.written
    value = tape.known(memory)
    if not written.is_kept(memory) or written.is_outside(memory) or isinstance(
            None if value is None else tape.bindings.get(value), (ParameterBinding, type(None))):
        return False
    tape.of_parameters.adopt(memory)
    return True


def adopts_rows(tape: Tape, array: Any, operation: Change) -> bool:
    """Whether an array from outside is changed in place, as computed numbers tell where: replays copy none of it."""
    key = operation.args[1] if operation.name == "__setitem__()" else None
    by_number = any(type(i) is np.ndarray and i.dtype.kind == "i" and tape.is_value(i) for i in (
        key if type(key) is tuple else (key,)))
    if not by_number or array.base is not None or tape.written.is_outside(array) or outside_value(tape, array) is None:
        return False
    if tape.of_parameters.keeps_view(array) or not array.flags.carray:
        return False
    tape.of_parameters.adopt(array)
    return True


def change_now(tape: Tape, arrays: Iterable[Any]) -> None:
    """Have replays change arrays at this place, and not at their end: a gradient reads their elements again."""
    for memory in {id(x): x for x in arrays}.values():
        value, source = tape.known(memory), tape.written.source(memory)
        effect = next((e for e in _observation(tape).effects if e.holder is memory and e.changes), None)
        if effect is None or value is None or source is None or source not in tape.bindings or not memory.flags.carray:
            continue
        _observation(tape).effects.remove(effect)
        tape.written.let_go(memory)
        tape.of_parameters.adopt(memory)
        _lies_plainly(tape, memory)
        args = memory, memory.copy()
        tape.append(CHANGE_IN_PLACE, (source, value), (), {
            "fn": np.copyto, "spec": flatten((args, {}), []), "name": "numpy.copyto", "own": (True, False),
            "part": None, "key": None, "errors": {}})
        tape.alias(memory, source)
        tape.of_parameters.change(tape, memory)


class Change(Protocol):
    """An operation of NumPy's that writes to an array; a call does it."""

    name: str
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    written: tuple[Any, ...]

    def __call__(self) -> Any: ...


def change(tape: Tape, operation: Change, fn: Callable[..., Any]) -> Any:
    """Do an operation that changes elements of an array, and record it; replays apply ``fn``."""
    array, name, args, kwargs = operation.written[0], operation.name, operation.args, operation.kwargs
    whole = tape.of_parameters.around(array)
    given: list[Any] = []
    spec = flatten((args, kwargs), given)
    own = tuple([x is array for x in given])
    part = None if array is whole else part_of(array, whole)
    others = [x for x, mine in zip(given, own, strict=True) if not mine]
    found = _operands(tape, whole, others) if tape.written.may_change(tape, array, whole) else None
    if (array is not whole and part is None) or found is None or not is_made_of_arrays((args, kwargs)):
        _refuse(tape)
    elif _observation(tape).silenced or not RAISING.isdisjoint(np.geterr().values()):
        tape.note_at_user(f"{name} changes elements of an array from outside where it may warn or raise, and replays "
                          "would not")
    layout = _layout(whole)
    try:
        result = operation()
    except Exception:
        tape.note_at_user(f"{name} raises, and need not in other calls")
        raise
    if _layout(whole) != layout or not whole.flags.carray:
        _refuse(tape)
    if tape.fault is None and found is not None:
        errors = np.geterr()
        tape.append(CHANGE_IN_PLACE, found, (), {
            "fn": fn, "spec": spec, "name": name, "own": own, "part": part, "key": _static_key(name, args),
            "errors": {} if errors == tape.errors else errors})
        tape.of_parameters.change(tape, whole)
        tape.contents.take(whole)
    return result


def put(tape: Tape, parameter: Parameter, array: Any) -> bool:
    """Give a parameter another array; returns whether replays do it at the same place, each with a new array."""
    before = parameter._array
    if array is before and is_guarded(tape):
        return True
    can = _can_replace(tape, parameter, array)
    value = operand_value(tape, array) if can else None
    place = tape.value_of(parameter, "an assignment") if value is not None else None
    if value is None or place is None or tape.fault is not None:
        parameter.array = array
        return False
    old = tape.of_parameters.value(tape, before) if tape.of_parameters.has(before) else None
    parameter.array = array
    tape.append(NEW_ARRAY, (place, value), (), {"put": functools.partial(_set_array, parameter)})
    tape.of_parameters.replace(tape, before, parameter, old)
    return True


def _can_replace(tape: Tape, parameter: Parameter, array: Any) -> bool:
    """Whether a parameter may get an array: one that only the call has, of the same type."""
    before = parameter._array
    if not is_guarded(tape) or tape.fault is not None or any(type(x) is not np.ndarray for x in (array, before)):
        return False
    made = array in tape.constants or tape.written.owns(array)
    if array.base is not None or not made or tape.written.is_kept(array) or tape.of_parameters.has(array):
        return False
    if (array.shape, array.dtype) != (before.shape, before.dtype) or parameter._sharing is not None:
        return False
    tape.of_parameters.take(before, parameter)
    return _observation(tape).is_outside_part(parameter) and not tape.of_parameters.keeps_view(before) and (
        _lies_plainly(tape, before))


def _is_plain(holder: Any, key: Any = "_array") -> bool:
    """Whether kernels may write to an array, or to that in a place, where it lies."""
    array = holder if isinstance(holder, np.ndarray) else holder[key] if isinstance(holder, dict) else holder._array
    return type(array) is np.ndarray and array.flags.carray


def _lies_plainly(tape: Tape, array: Any) -> bool:
    """Whether that is so, which is guarded then."""
    parameter = tape.of_parameters.parameter(array)
    place = tape.state_entry(array) or ((array,) if parameter is None else (parameter,))
    return _is_plain(*place) and _observation(tape).called_again(
        _is_plain, place, True, "how an array lies in memory that the call changes")


def _set_array(parameter: Parameter, array: Any) -> None:
    parameter.array = array


def _observation(tape: Tape) -> Observation:
    assert tape.observation is not None
    return tape.observation


def _refuse(tape: Tape) -> None:
    tape.note_at_user("elements of a parameter are changed by NumPy, which replays would not repeat; do it before the "
                      "call")


def _layout(array: Any) -> Any:
    return array.shape, array.strides, array.dtype, array.ctypes.data


def _static_key(name: str, args: tuple[Any, ...]) -> Any:
    """Return the index of an assignment to items, where it is one of numbers and slices; None of other changes."""
    key = args[1] if name == "__setitem__()" and len(args) == 3 else None
    keys = key if type(key) is tuple else (key,)
    return keys if all(type(x) is int or type(x) is slice for x in keys) else None


def _operands(tape: Tape, whole: Any, others: Iterable[Any]) -> tuple[Value, ...] | None:
    """Return the values of the memory that changes, and of all arrays that the change reads; None if one has none."""
    variable = tape.of_parameters.variable(whole)
    if tape.of_parameters.keeps_view(whole) or not _observation(tape).is_outside_part(variable) or not (
            variable._array is whole and _lies_plainly(tape, whole)):
        return None
    values = [tape.value_of(variable, "a change in place"), *[operand_value(tape, x) for x in others]]
    return None if tape.fault is not None or None in values else tuple([v for v in values if v is not None])


def refuse_shared(tape: Tape) -> None:
    """Note a fault where memory that the call changes in place is that of other arrays, too."""
    if not (changed := tape.of_parameters.changed):
        return
    spans = Spans(changed.values())
    arrays = [b.array() for b in tape.bindings.values()]
    bound = [x for x in arrays if all(x is not y for y in changed.values())]
    whole = [b.array() for b in tape.bindings.values() if isinstance(b, ArrayBinding)]  # found by other names, too
    others = [*bound, *map(array_of, tape.arguments.values()), *[x for x in tape.states() if id(x) not in changed],
              *[x for x in _observation(tape).seen_arrays() if all(x is not y for y in whole)]]
    if not spans.disjoint or len(arrays) - len(bound) > len(changed) or any(
            has_address(x) and spans.touch(x) for x in others):
        tape.note("a parameter whose elements the call changes shares memory with another array; use a copy",
                  tape.where)
