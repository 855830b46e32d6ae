"""NumPy as the user's code applies it in a traced call: recorded, repeated by guards, or a reason to fall back.

The arrays are the user's own; the tape knows each by its identity. NumPy's functions on arguments are recorded as the
functions that the compiler has for them. Results of constants alone are constants, and so are results of elements of
arrays from outside, which a guard then compares. Where there is no function, Python runs NumPy's in replays. Everything
else cannot be replayed.
"""
from __future__ import annotations

import functools
import operator
import types
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

import numpy as np

from ....variable import Variable
from ...arrays import cards, numpy_calls
from ...arrays import picked as picks
from ...arrays.captured import owner
from ...arrays.picked import copied, is_mask
from ...arrays.written import with_item
from ...computed_numbers import ComputedNumber, number_of, numbers_in, plain, settled
from ...guards.guard import MISSING
from ...trees import array_of
from .. import in_place, numpy_nodes
from ..effects import refilled
from ..numpy_nodes import by_python
from ..own_functions import GENERATORS
from .c_code import unknown, wrapped
from .operators import INPLACE, Operation, Operator

if TYPE_CHECKING:
    from ..recorder import Tape
    from .observer import Observer

_FREE = cards.FREE | {"__doc__", "__array_priority__"}
_HARMLESS = {np.shape, np.ndim, np.size, np.result_type, np.iscomplexobj, np.isrealobj, np.broadcast_shapes,
             np.can_cast, np.promote_types, np.isscalar, np.issubdtype, np.min_scalar_type, np.finfo, np.iinfo}
_OF_MEMORY = {np.may_share_memory, np.shares_memory}
_LIKE = {np.zeros_like, np.ones_like, np.empty_like, np.full_like}
_UNSET = {np.empty, np.empty_like}
_WRITING = {np.copyto, np.put, np.place, np.putmask, np.fill_diagonal, np.put_along_axis}  # to their first argument
_IN_PLACE = frozenset(("fill", "sort", "partition", "resize", "put", "setflags", "setfield", "__setitem__",
                       "__delitem__", "__setstate__", *[op.own for op in INPLACE.values()]))
_VIEWS = frozenset(("__getitem__", "reshape", "transpose", "swapaxes", "squeeze", "ravel", "view", "T", "real", "imag",
                    "diagonal", "mT", "expand_dims", "moveaxis", "rollaxis", "broadcast_to", "asarray",
                    "ascontiguousarray", "flip", "atleast_1d", "atleast_2d"))  # methods, attributes and functions
_OPAQUE = frozenset(("data", "ctypes", "flat", "base", "strides", "flags", "__array_interface__", "__array_struct__"))
_OUTSIDE_MODULES = ("numpy.lib._npyio_impl", "numpy.lib._format_impl", "numpy.testing")
_GLOBAL_STATE = frozenset(("seterr", "geterr", "seterrcall", "set_printoptions", "get_printoptions", "save", "load",
                           "savez", "savetxt", "loadtxt", "fromfile", "memmap", "open_memmap", "genfromtxt",
                           "setbufsize", "frombuffer", "asarray_chkfinite"))
_DISPATCHER = type(np.concatenate)
_INTEGERS = (int, np.integer)


def is_function(f: Any) -> bool:
    """Whether something is a function of NumPy's that is applied to arrays."""
    if isinstance(f, np.ufunc) or type(f) is _DISPATCHER:
        return True
    if isinstance(f, (types.BuiltinFunctionType, types.FunctionType)):
        module = getattr(f, "__module__", None) or ""
        return module.partition(".")[0] == "numpy" and not isinstance(
            getattr(f, "__self__", None), (*GENERATORS, np.ndarray, np.generic, np.ufunc, np.dtype, type))
    return type(f).__name__ == "cython_function_or_method"


def _arrays_in(k: Observer, tree: Any, found: list[Any]) -> list[Any]:
    """Append the arrays and Variables in a tree of arguments, whose lists NumPy reads."""
    if issubclass(type(tree), (np.ndarray, Variable)):
        found.append(tree)
        return found
    if type(tree) is list:
        k.observation.items(tree, "a list")
    parts = tree if isinstance(tree, (tuple, list)) else tree.values() if type(tree) is dict else (
        tree.start, tree.stop, tree.step) if type(tree) is slice else ()
    for x in parts:
        _arrays_in(k, x, found)
    return found


def read_elements(k: Observer, array: Any, what: str) -> None:
    """Take note that anything but a function reads elements of an array."""
    o = k.observation
    if o.off or array in o.tape.constants:
        return
    if o.tape.is_value(array) or o.tape.of_parameters.has(array):
        o.tape.read(array, what)
    else:
        o.elements(array)


def constant(k: Observer, result: Any) -> Any:
    """Take in a result of NumPy on constants; returns it."""
    if not k.observation.guarded:
        if type(result) is np.ndarray:
            k.observation.tape.written.made(result)
        return result
    if issubclass(type(result), np.ndarray):
        k.observation.tape.constants.add(result)
    elif type(result) in (tuple, list):
        if type(result) is list:
            k.observation.fresh(result)
        for x in result:
            constant(k, x)
    return result


def _apply(k: Observer, operation: Operation, fn: Callable[..., Any] | None = None, operands: Any = None) -> Any:
    """Do an operation on the arrays in ``operands``, which are its arguments; replays apply ``fn`` in its place."""
    o, name, written = k.observation, operation.name, operation.written
    if o.off:
        operation.args = tuple(map(plain, operation.args))
        return operation()
    tape = o.tape
    operation.args, operation.kwargs = _plain(operation.args, name), _plain(operation.kwargs, name)
    operands = (operation.args, operation.kwargs) if operands is None else operands
    arrays = _arrays_in(k, operands, [])
    refused = [x for x in written if operation.rewrite is None or not tape.is_value(x)]
    if _changes_in_place(k, operation):
        return operation() if _is_refused(k, name, arrays, []) else in_place.change(tape, operation, fn or operation.fn)
    if _is_refused(k, name, arrays, refused):
        return operation()
    known = next((x for x in arrays if tape.is_value(x) or tape.of_parameters.has(x)), None)
    follows = bool(written) and (_is_outside(k, written[0]) or tape.constants.was_read(written[0]))
    if known is None and not follows:
        others = [x for x in arrays if x not in tape.constants]
        return _apply_to_others(k, operation, others, written, operation.view)
    found = None if operation.record is None or written else operation.record()
    if found is not None:
        return found
    return _write(k, operation, known) if written else _by_python(k, operation, fn or operation.fn, known)


def _by_python(k: Observer, operation: Operation, fn: Callable[..., Any], known: Any) -> Any:
    """Do an operation that no function of ours does; replays apply ``fn``. ``known`` is a value among its operands."""
    o, name = k.observation, operation.name
    try:
        result = operation()
    except Exception:
        o.note(f"{name} raises, and need not in other calls")
        raise
    recorded = by_python(o.tape, name, fn, operation.args, operation.kwargs, result)
    if recorded is None:
        read_elements(k, known, name)
        return o.fresh_tree(result)
    return o.fresh_tree(recorded)


def _changes_in_place(k: Observer, operation: Operation) -> bool:
    """Whether replays change the one array that is written to at this place, where it lies."""
    tape, written = k.observation.tape, operation.written
    return len(written) == 1 and (in_place.is_changed(tape, written[0]) or (_is_outside(k, written[0]) and (
        in_place.adopts(tape, written[0]) or in_place.adopts_rows(tape, written[0], operation))))


def _write(k: Observer, operation: Operation, known: Any) -> Any:
    """Do an operation that writes to an array; ``known`` is a value among its operands, if there is one."""
    o, array, value = k.observation, operation.written[0], None
    is_outside = _is_outside(k, array)
    try:
        if o.tape.fault is None and not (is_outside or _is_own(k, array)) and (
                array in o.tape.written or o.tape.is_state(array)):
            o.note(f"the array {o.arrays.get(id(array), (None, 'in an attribute'))[1]} is a view of another one, and "
                   "changes inside the static function, which replays cannot repeat; keep a copy in its place")
        if o.tape.fault is None and len(operation.written) == 1:
            value = o.tape.written.write(o.tape, array, functools.partial(_rewrite, k, operation))
        if value is None and (is_outside or known is not None):
            _refuse_write(k, array, operation.name) if is_outside else read_elements(k, known, operation.name)
        result = operation()
    except Exception:
        o.note(f"{operation.name} raises, and need not in other calls")
        raise
    if value is not None and is_outside:
        refilled(o, owner(array), value)
        o.tape.contents.take(owner(array))
    return result


def _rewrite(k: Observer, operation: Operation, before: Any) -> Any:
    """Return the value after an operation of an array that it writes to, whose elements are those of ``before``."""
    found = None if operation.rewrite is None else operation.rewrite(before)
    places = [i for i, x in enumerate(operation.args) if x is operation.written[0]]
    if found is not None or len(places) != 1 or "out" in operation.kwargs:  # else it would be written to twice
        return found
    position = places[0]
    args, native = (*operation.args[:position], before, *operation.args[position + 1:]), operation.fn

    def fn(*args: Any, **kwargs: Any) -> Any:
        written = args[position].copy()
        native(*args[:position], written, *args[position + 1:], **kwargs)
        return written
    return by_python(k.observation.tape, operation.name, fn, args, operation.kwargs, fn(*args, **operation.kwargs))


def read_number(k: Observer, fn: Callable[[Any], Any], array: Any, name: str) -> Any:
    """Return ``fn(array)``, a number or a truth value."""
    return _apply(k, Operation(name, fn, (array,)))


def of_numbers(k: Observer, op: Operator, *operands: Any) -> Any:
    """Apply an operator to numbers of which one is computed; NotImplemented if that cannot be recorded."""
    on_arrays = functools.partial(operator_of_arrays, k, op.plain)
    return numpy_nodes.of_numbers(k.observation.tape, op.plain.function, operands, on_arrays)


def _plain(tree: Any, name: str, kinds: Any = np.floating) -> Any:
    """Return arguments with arrays in place of computed numbers of NumPy's ``kinds``, and plain numbers for others."""
    if isinstance(tree, ComputedNumber):
        return tree.kusari_array if issubclass(tree.kusari_kind, kinds) else settled(tree, name)
    if not numbers_in(tree):
        return tree
    if isinstance(tree, slice):
        return slice(*[_plain(x, name) for x in (tree.start, tree.stop, tree.step)])
    if isinstance(tree, dict):
        return {key: _plain(x, name, kinds) for key, x in tree.items()}
    return type(tree)([_plain(x, name, kinds) for x in tree])


def _is_refused(k: Observer, what: str, arrays: list[Any], written: list[Any]) -> bool:
    """Whether an operation of NumPy's writes to an array that is not the call's own, or reads a Variable: a fault."""
    tape = k.observation.tape
    for x in written:
        if issubclass(type(x), np.ndarray) and not _is_own(k, x) and not _is_outside(k, x):
            _refuse_write(k, x, what)
            for y in arrays:
                if tape.is_value(y):
                    read_elements(k, y, what)
            return True
    for x in arrays:
        if issubclass(type(x), Variable):
            tape.escape(x, what)
            return True
    return False


def _apply_to_others(k: Observer, native: Callable[[], Any], outside: list[Any], written: tuple[Any, ...],
                     view: bool) -> Any:
    """Do an operation on constants and on arrays from ``outside``, whose elements guards compare."""
    o = k.observation
    result = native()
    if view and len(outside) == 1 and issubclass(type(result), np.ndarray) and owner(result) is owner(outside[0]):
        o.arrays.setdefault(id(result), (result, o.arrays.get(id(outside[0]), (None, "an array"))[1]))
        return result
    for x in outside:
        if not o.elements(x):
            return result
    return result if any(result is x for x in written) else constant(k, result)


def _is_own(k: Observer, array: Any) -> bool:
    return array in k.observation.tape.constants or k.observation.tape.written.owns(array)


def _is_outside(k: Observer, array: Any) -> bool:
    """Whether an array lies in one from outside that replays may write to: no guard compares its elements."""
    o, memory = k.observation, owner(array)
    return o.guarded and type(memory) is np.ndarray and (o.tape.is_state(memory) or o.owns(memory)) and not any(
        owner(x) is memory for x in o.read_elements())


def _refuse_write(k: Observer, array: Any, what: str) -> None:
    o = k.observation
    if o.tape.of_parameters.has(array):
        o.note("elements of a parameter are changed by NumPy, which replays would not repeat; do it before the call")
        return
    if o.tape.is_value(array):
        o.tape.read(array, what)
        return
    name = o.arrays.get(id(array), (None, None))[1]
    o.followed.learn_array(o, owner(array))
    if o.tape.written.is_kept(array):
        o.note(f"the array {name or 'from outside'} changes after a function has read it that keeps it for its "
               "gradient; give that function a copy")
        return
    if name is None and o.tape.is_state(array):
        o.note("the elements of a persistent array are changed by NumPy, which replays would not repeat; assign to it "
               "what functions compute, or do it in a function decorated with static_code")
        return
    o.note(f"the array {name or 'from outside'} changes inside the static function, which replays cannot repeat")


# -- operators -----------------------------------------------------------------------------------------------------


def _foreign(x: Any) -> bool:
    """Whether an operand may have operators of its own."""
    return not isinstance(x, (np.ndarray, np.generic, int, float, complex, str, bytes, list, tuple, type(None)))


def operator_of_arrays(k: Observer, op: Operator, *operands: Any) -> Any:
    """Apply an operator of which an operand is an array; one that writes to an array if it is the first."""
    tape = k.observation.tape
    if op.own and issubclass(type(operands[0]), np.ndarray):
        a, b = operands[0], _plain(operands[1], op.function.__name__)

        def rewrite(x: Any) -> Any:
            made = numpy_calls.of_ufunc(tape, op.ufunc, (x, b))
            return made if made is not None and made.dtype == x.dtype and made.shape == x.shape else None
        return _apply(k, Operation(op.function.__name__, op.function, (a, b), written=(a,), rewrite=rewrite))
    odd = [x for x in operands if _foreign(x)]
    if odd:
        k.observation.note(f"an operator of NumPy's is applied to a {type(odd[-1]).__name__}")
        return op.function(*operands)
    return _apply(k, Operation(f"numpy.{op.ufunc.__name__}", op.function, operands,
                                record=lambda: numpy_calls.of_ufunc(tape, op.ufunc, operands)))


# -- attributes, items, iteration ----------------------------------------------------------------------------------


def attribute(k: Observer, x: Any, name: str) -> Any:
    """Read an attribute of an array."""
    if not k.observation.off:
        k.observation.tape.picked.settle(x)
    if name in _FREE or name.startswith("__") and name not in _OPAQUE:
        value = getattr(x, name)
        o = k.observation
        if name in ("shape", "dtype", "ndim", "size") and not o.off and x not in o.tape.constants and (
                o.owns(x) or o.tape.of_parameters.has(x)):
            parameter = o.tape.of_parameters.parameter(x)
            o.attribute(x if parameter is None else parameter, name, value, f"the {name} of an array")
        return value
    found = getattr(type(x), name, MISSING)
    if isinstance(found, types.FunctionType | property):
        k.observation.note(f"{type(x).__name__} is a class derived from ndarray, whose attributes are not observed")
        return getattr(x, name)
    if found is MISSING or callable(found):
        return getattr(x, name)
    tape = k.observation.tape
    if name in _OPAQUE and (x not in tape.constants or name in ("data", "ctypes")):
        if tape.is_value(x) or tape.of_parameters.has(x):
            read_elements(k, x, f".{name}")
        elif not k.observation.off:
            k.observation.note(f".{name} of an array may be used to read or write its memory, which is not observed; "
                               "do it outside, or in a function decorated with static_code")
        return getattr(x, name)
    record = (lambda: numpy_calls.of_function(tape, np.transpose, (x,))) if name == "T" else None
    return _apply(k, Operation(f".{name}", operator.attrgetter(name), (x,), record=record, view=name in _VIEWS))


def set_attribute(k: Observer, x: Any, name: str, value: Any) -> None:
    """Store an attribute of an array."""
    _apply(k, Operation(f".{name} =", setattr, (x, name, value), written=(x,)))


def item(k: Observer, x: Any, key: Any) -> Any:
    """Read an item or a part of an array."""
    keys = key if type(key) is tuple else (key,)
    is_view = bool(numbers_in(keys)) and not any(isinstance(i, (list, np.ndarray)) for i in keys)
    tape, whole = k.observation.tape, x
    if is_view and not k.observation.off:
        whole, key = picks.taken(functools.partial(numpy_nodes.rows_of_slice, tape), x, key,
                                 lambda y, rows: method(k, y, "__getitem__", (rows,), {}))
    key = _plain(key, "__getitem__()", _INTEGERS)
    if is_mask(key) and not k.observation.off and (tape.is_value(x) or tape.is_value(key)) and (
            found := numpy_nodes.picked(tape, x, key)) is not None:
        return found
    found = method(k, whole, "__getitem__", (key,), {})
    if not is_view or type(found) is not np.ndarray:
        return found
    view = x[picks.plain_index(keys)]
    if (value := tape.known(found)) is not None and not k.observation.off:
        tape.lend(view, value)
        tape.written.view_by_number(x)
        tape.constants.view_by_number(view)
    return view


def set_item(k: Observer, x: Any, key: Any, value: Any) -> None:
    """Store an item or a part of an array."""
    tape = k.observation.tape
    if numbers_in(key) and not k.observation.off:
        key = picks.stored(functools.partial(numpy_nodes.rows_of_slice, tape), x, key)
    value = numpy_nodes.stored_number(value, x.dtype) if isinstance(value, ComputedNumber) else _plain(
        value, "__setitem__()")
    key = _plain(key, "__setitem__()", _INTEGERS)
    source = tape.picked.source(tape, key, value) if is_mask(key) and not k.observation.off else None
    if source is not None:
        _apply(k, Operation("__setitem__()", operator.setitem, (x, key, value), written=(x,),
                             rewrite=lambda y: copied(tape, y, key, source)), operands=(x, key, source))
        return
    _apply(k, Operation("__setitem__()", operator.setitem, (x, key, value), written=(x,),
                         rewrite=lambda y: with_item(tape, y, key, value)))


def counts(k: Observer, x: Any, key: Any) -> bool:
    """Whether items of an array are elements that `add_to_element` may change: not such that stay constants, or views.
    """
    keys, is_outside = key if type(key) is tuple else (key,), _is_outside(k, x)
    if len(keys) == x.ndim and all(isinstance(i, (int, np.integer)) and type(i) is not bool for i in keys):
        return is_outside or k.observation.tape.is_value(x) or bool(numbers_in(keys)) and _is_own(k, x)
    return is_outside and not k.observation.tape.is_value(x) and any(isinstance(i, (list, np.ndarray)) for i in keys)


def add_to_element(k: Observer, x: Any, key: Any, operation: Callable[[Any, Any], Any], operand: Any) -> None:
    """Change elements of an array in place."""
    kind = None
    if isinstance(operand, ComputedNumber):
        kind, operand = operand.kusari_kind, operand.kusari_array

    def fn(array: Any, key: Any, operand: Any) -> None:
        array[key] = operation(array[key], operand if kind is None else number_of(kind, operand))
    key = _plain(key, "__setitem__()", _INTEGERS)
    _apply(k, Operation("__setitem__()", fn, (x, key, operand), written=(x,)))


def iterate(k: Observer, x: Any) -> Iterable[Any]:
    """Return an iterable over an array."""
    tape = k.observation.tape
    if not k.observation.off:
        tape.picked.settle(x)
    if x.ndim > 1 or x.ndim and x.size <= numpy_nodes.MOST_CHECKED_NODES and (
            tape.is_value(x) or tape.of_parameters.has(x)):
        return (item(k, x, i) for i in range(x.shape[0]))
    if x.ndim:
        read_elements(k, x, "__iter__()")
    return x


# -- methods and functions -----------------------------------------------------------------------------------------


def method(k: Observer, x: Any, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Call a method of an array."""
    tape, args, kwargs = k.observation.tape, _plain(args, f".{name}"), _plain(kwargs, f".{name}")
    if name == "__len__":
        return len(x)
    written = (x,) if name in _IN_PLACE or name == "byteswap" and (args or kwargs) else _written(kwargs)
    is_known = name in numpy_calls.METHODS or name == "dot"
    record = (lambda: numpy_calls.of_method(tape, name, x, args, kwargs)) if is_known else None
    label = f".{name}" if not name.startswith("__") else f"{name}()"

    def fn(array: Any, *args: Any, **kwargs: Any) -> Any:
        return getattr(array, name)(*args, **kwargs)
    return _apply(k, Operation(label, fn, (x, *args), kwargs, record, written, name in _VIEWS))


def function(k: Observer, f: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Call a function of NumPy's."""
    o = k.observation
    tape = o.tape
    name = getattr(f, "__name__", "")
    if o.off:
        return f(*map(plain, args), **kwargs)
    if name in _GLOBAL_STATE or (getattr(f, "__module__", None) or "").startswith(_OUTSIDE_MODULES):
        return unknown(k, f, args, kwargs)
    known = None if type(f).__hash__ is None else f
    if known in _HARMLESS:
        return f(*[x.kusari_value if isinstance(x, ComputedNumber) else x for x in args], **kwargs)
    if known in _OF_MEMORY and any(not _is_own(k, x) for x in _arrays_in(k, args, [])):
        o.note(f"numpy.{name} asks where arrays lie in memory, which may be elsewhere in every call")
        return f(*args, **kwargs)
    again, args = numpy_nodes.of_single_numbers(f, args)
    args, kwargs = tuple([wrapped(k, x) for x in _plain(args, f"numpy.{name}")]), _plain(kwargs, f"numpy.{name}")

    def fn(*args: Any, **kwargs: Any) -> Any:
        with tape.net:
            result = again(*args, **kwargs)
        if known in _UNSET:
            result[...] = 0  # as good as any other content, and the same every time
        return result
    if known in _LIKE and args and isinstance(args[0], (np.ndarray, Variable)):  # of which only the type counts
        args = (array_of(args[0]), *args[1:])
        return _apply(k, Operation(f"numpy.{name}", fn, args, kwargs), again, (args[1:], kwargs))
    record = functools.partial(numpy_calls.of_function, tape, f, args, kwargs) if again is f else None
    by_place = args[:1] if known in _WRITING else args[f.nin:] if isinstance(f, np.ufunc) else ()
    written = _written(kwargs, *by_place)
    rewrite = functools.partial(_filled, tape, again, f, args, written) if (
        isinstance(f, np.ufunc) and f.nout == 1 and len(written) == 1 and kwargs.keys() <= {"out"}) else None
    return _apply(k, Operation(f"numpy.{name}", fn, args, kwargs, record, written, name in _VIEWS, rewrite), again)


def _filled(tape: Tape, again: Callable[..., Any], ufunc: Any, args: tuple[Any, ...], out: tuple[Any, ...],
            before: Any) -> Any:
    """Return the array that a universal function writes to ``out``, whose elements were those of ``before``."""
    given = tuple([before if x is out[0] else x for x in args[:ufunc.nin]])
    made = numpy_calls.of_ufunc(tape, ufunc, given) if again is ufunc else None
    if made is not None and made.dtype == before.dtype and made.shape == before.shape:
        return made

    def filled(*given: Any) -> Any:
        return again(*given, out=np.empty_like(before))
    return by_python(tape, f"numpy.{ufunc.__name__}", filled, given, {}, filled(*given))


def _written(kwargs: dict[str, Any], *more: Any) -> tuple[Any, ...]:
    """Return the arrays that NumPy writes to: its argument ``out``, and others."""
    out = kwargs.get("out")
    return tuple([x for x in (*(out if isinstance(out, tuple) else (out,)), *more) if x is not None])


def ufunc_method(k: Observer, ufunc: Any, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Call a method of a universal function: ``np.add.reduce``, ``np.add.at`` …"""
    return _apply(k, Operation(f"numpy.{ufunc.__name__}", getattr(ufunc, name), args, kwargs,
                                written=_written(kwargs, *(args[:1] if name == "at" else ()))))
