"""The observer of one function call: its instrumented copy calls it for every read and write outside its locals.

`instrument` puts the names of the methods into the copy. Invariant: each does what Python does in its
place, also when nothing needs to be observed any more.
"""
from __future__ import annotations

import sys
import types
import weakref
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np

from ....variable import Variable
from ...arrays import cards
from ...computed_numbers import ComputedNumber, plain, settled
from ...guards import guard as guards
from ...guards.guard import MISSING, is_plain
from ..net import is_library
from ..observation import Observation, is_ours
from . import builtin_functions, calls, containers, lookup, operations, stores, texts
from .builtin_functions import BINARY, COMPARE, INPLACE, UNARY
from .stores import Counted

_SCALARS = frozenset((bool, int, float, complex, str, bytes, type(None)))
_SPECIAL = {
    "+": "add", "-": "sub", "*": "mul", "/": "truediv", "//": "floordiv", "%": "mod", "**": "pow", "@": "matmul",
    "&": "and", "|": "or", "^": "xor", "<<": "lshift", ">>": "rshift"}
_COMPARED = {"==": ("__eq__", "__eq__"), "!=": ("__ne__", "__ne__"), "<": ("__lt__", "__gt__"),
             "<=": ("__le__", "__ge__"), ">": ("__gt__", "__lt__"), ">=": ("__ge__", "__le__")}
_Try = tuple[Any, Any, str]  # an operand, the other one, and the special method of the first
_ONE_OPERAND = {"-": "__neg__", "+": "__pos__", "~": "__invert__"}


class Observer:
    """One call of a Python function; None for a call from no function."""

    __slots__ = ("observation", "_code", "_closure", "globals", "is_copy", "is_ours")

    def __init__(self, observation: Observation, function: types.FunctionType | None = None) -> None:
        self.observation = observation
        if function is None:
            self.is_copy = self.is_ours = False
            self._closure: tuple[Any, ...] = ()
        else:
            self.globals = function.__globals__
            name = self.globals.get("__name__")
            self.is_copy = name == "copy"  # its keys are ids
            self.is_ours = is_ours(name)
            self._code, self._closure = function.__code__, function.__closure__ or ()

    def _cell(self, name: str) -> Any:
        return self._closure[self._code.co_freevars.index(name)]

    def inside(self, function: types.FunctionType) -> Observer:
        """Return the observer of a call that is made in this one."""
        return Observer(self.observation, function)

    # -- names --------------------------------------------------------------------------------------------------

    def name(self, name: str) -> Any:
        """Read a global or built-in name."""
        return lookup.read_global(self, self.globals, name)

    def set_name(self, name: str, value: Any) -> None:
        """Store a global."""
        self.observation.holds(value, lambda: _settle(self.globals, name, value))
        self.globals[name] = value
        self.observation.stored(self.globals, name, value, f"the global {name}")

    def del_name(self, name: str) -> None:
        """Delete a global."""
        self.observation.presence(self.globals, name, f"the global {name}")
        if name not in self.globals:
            raise NameError(f"name {name!r} is not defined")
        del self.globals[name]
        self.observation.stored(self.globals, name, MISSING, f"the global {name}")

    def cell(self, name: str, value: Any) -> Any:
        """Read a closure variable, whose value is given."""
        cell, o = self._cell(name), self.observation
        if o.is_outside(cell) and (id(cell), None) not in o._stored and o.guard(
                "cell", cell, None, lambda where: guards.Cell(cell, value, f"the closure variable {name}", where)):
            o.found(value, f"the closure variable {name}")
        return value

    def set_cell(self, name: str, value: Any) -> Any:
        """Observe the store of a closure variable: the copy then stores the value that is returned."""
        cell = self._cell(name)
        self.observation.holds(value, lambda: _settle_cell(cell, value))
        self.observation.stored(cell, None, value, f"the closure variable {name}", None,
                                (setattr, (cell, "cell_contents")))
        return value

    def del_cell(self, name: str) -> None:
        """Delete a closure variable: the copy does it."""
        self.observation.note(f"the closure variable {name} is deleted inside the static function, which replays "
                              "cannot repeat")

    # -- attributes, items, iteration ---------------------------------------------------------------------------

    def attr(self, x: Any, name: str) -> Any:
        """Read an attribute."""
        return getattr(x, name) if self.observation.off else lookup.reader_of(type(x))(self, x, name)

    def counted_attr(self, x: Any, name: str) -> Any:
        """Read an attribute that an augmented assignment stores next."""
        found = None if self.observation.off else stores.of_attribute(self, x, name)
        return self.attr(x, name) if found is None else found

    def set_attr(self, x: Any, name: str, value: Any) -> None:
        """Store an attribute."""
        if type(value) is Counted:
            setattr(x, name, value.made)
            self._counted(value)
            return
        stores.write(self, x, name, value)

    def del_attr(self, x: Any, name: str) -> None:
        """Delete an attribute."""
        stores.write(self, x, name, MISSING)

    def item(self, x: Any, key: Any) -> Any:
        """Read an item."""
        return x[key] if self.observation.off else containers.read(self, x, key)

    def counted_item(self, x: Any, key: Any) -> Any:
        """Read an item that an augmented assignment stores next."""
        found = None if self.observation.off else stores.of_item(self, x, key)
        return self.item(x, key) if found is None else found

    def _counted(self, c: Counted) -> None:
        """Take note of an addition to a number in an entry."""
        if not self.observation.off:
            self.observation.additions.note(c.holder, c.key, c.value, c.operation, c.operand, c.what)

    def set_item(self, x: Any, key: Any, value: Any) -> None:
        """Store an item."""
        if type(value) is Counted:
            x[key] = value.made
            self._counted(value)
            return
        containers.write(self, x, key, value)

    def del_item(self, x: Any, key: Any) -> None:
        """Delete an item."""
        containers.write(self, x, key, MISSING)

    def slice(self, start: Any, stop: Any, step: Any) -> slice:
        """Return a slice."""
        return slice(start, stop, step)

    def iterate(self, x: Any) -> Iterable[Any]:
        """Return an iterable over the items of anything."""
        return x if self.observation.off else containers.iterate(self, x)

    def mapping(self, x: Any) -> Mapping[Any, Any]:
        """Return a mapping that is unpacked."""
        if type(x) is dict and not self.observation.off:
            self.observation.items(x, containers.name_of(x))
        elif type(x) is not dict and not self.observation.off:
            self.observation.note(f"a {type(x).__name__} is unpacked as keyword arguments, which is not observed")
        return x

    def new(self, x: Any) -> Any:
        """Take note of a list, dictionary or set that the copy has made."""
        return self.observation.fresh(x)

    # -- operators ----------------------------------------------------------------------------------------------

    def binary(self, op: str, a: Any, b: Any) -> Any:
        """Apply a binary operator."""
        if self.observation.off or type(a) in _SCALARS and type(b) in _SCALARS:
            return BINARY[op](plain(a), plain(b))
        return self._operator(op, a, b, BINARY[op], None)

    def inplace(self, op: str, a: Any, b: Any) -> Any:
        """Apply a binary operator in place, where the operand has such a one."""
        if type(a) is Counted:
            return stores.applied(self, op, INPLACE[op], a, b)
        if self.observation.off or type(a) in _SCALARS and type(b) in _SCALARS:
            return INPLACE[op](plain(a), plain(b))
        if cards.reads(self.observation.tape, f"the operator {op}=", a, b):
            return INPLACE[op](a, b)
        if issubclass(type(a), np.ndarray):
            return operations.inplace(self, INPLACE[op], BINARY[op], a, b)
        kind = type(a)
        if kind in containers.MUTABLE:
            return containers.inplace(self, op, a, b, INPLACE[op])
        return self._operator(op, a, b, INPLACE[op], f"__i{_SPECIAL[op]}__")

    def _operator(self, op: str, a: Any, b: Any, native: Callable[[Any, Any], Any], own: str | None) -> Any:
        if isinstance(a, ComputedNumber) or isinstance(b, ComputedNumber):
            found = operations.of_numbers(self, BINARY[op], a, b)
            if found is not NotImplemented:
                return found
            a, b = settled((a, b), op)
        if issubclass(type(a), Variable) or issubclass(type(b), Variable):
            return self._of_variables(native, a, b)
        if cards.reads(self.observation.tape, f"the operator {op}", a, b):
            return native(a, b)
        if issubclass(type(a), np.ndarray) or issubclass(type(b), np.ndarray):
            return operations.binary(self, native, a, b)
        name = _SPECIAL[op]
        tries = _tries(a, b, f"__{name}__", f"__r{name}__")
        if own is not None:
            tries.insert(0, (a, b, own))
        if not _any_in_python(tries):
            for x in (a, b):
                if op == "%" or type(x) not in (list, tuple):
                    containers.look(self, x)
                elif type(x) is list:
                    self.observation.items(x, containers.name_of(x))
            if op == "%" and type(a) is str:
                b = tuple([texts.shown(self, x) for x in b]) if type(b) is tuple else b if type(b) is dict else (
                    texts.shown(self, b))
            with self.observation.tape.net:
                made = native(a, b)
            return self.observation.fresh(made) if type(made) in containers.MUTABLE else made
        result = self._first_result(tries)
        return native(a, b) if result is NotImplemented else result

    def _first_result(self, tries: list[_Try]) -> Any:
        """Return the result of the first special method that implements its operands, else NotImplemented."""
        for x, y, special in tries:
            found = lookup.find(self, type(x), special)
            if isinstance(found, types.FunctionType):
                result = self.call(found, x, y)
            elif found is MISSING:
                continue
            else:
                with self.observation.tape.net:
                    result = found(x, y)
            if result is not NotImplemented:
                return result
        return NotImplemented

    def _of_variables(self, native: Callable[..., Any], *operands: Any) -> Any:
        """Apply an operator of Variables, which is a recorded function."""
        for x in operands:
            if isinstance(x, (list, dict)):
                containers.look(self, x)
        return native(*operands)

    def unary(self, op: str, a: Any) -> Any:
        """Apply a unary operator."""
        if self.observation.off or type(a) in _SCALARS:
            return UNARY[op](plain(a))
        if isinstance(a, ComputedNumber):
            found = operations.of_numbers(self, UNARY[op], a)
            return UNARY[op](settled(a, op)) if found is NotImplemented else found
        if issubclass(type(a), Variable):
            return self._of_variables(UNARY[op], a)
        if cards.reads(self.observation.tape, f"the operator {op}", a):
            return UNARY[op](a)
        if issubclass(type(a), np.ndarray):
            return operations.unary(self, UNARY[op], a)
        found = lookup.find(self, type(a), _ONE_OPERAND[op])
        return self.call(found, a) if isinstance(found, types.FunctionType) else UNARY[op](a)

    def compare(self, op: str, a: Any, b: Any) -> Any:
        """Compare two values."""
        o = self.observation
        if op == "is" or op == "is not":
            if not o.off:
                operations.identity(self, a, b)
            return a is b if op == "is" else a is not b
        if op == "in" or op == "not in":
            found = a in b if o.off else containers.contains(self, b, a)
            return found if op == "in" else not found
        if o.off or type(a) in _SCALARS and type(b) in _SCALARS:
            return COMPARE[op](plain(a), plain(b))
        if isinstance(a, ComputedNumber) or isinstance(b, ComputedNumber):
            found = operations.of_numbers(self, COMPARE[op], a, b)
            if found is not NotImplemented:
                return found
            a, b = settled((a, b), op)
        if issubclass(type(a), Variable) or issubclass(type(b), Variable):
            return self._of_variables(COMPARE[op], a, b)
        if cards.reads(self.observation.tape, f"the operator {op}", a, b):
            return COMPARE[op](a, b)
        if issubclass(type(a), np.ndarray) or issubclass(type(b), np.ndarray):
            return operations.binary(self, COMPARE[op], a, b)
        tries = _tries(a, b, *_COMPARED[op])
        if not _any_in_python(tries):
            for x in (a, b):
                containers.look(self, x)
            with self.observation.tape.net:
                return COMPARE[op](a, b)
        result = self._first_result(tries)
        if result is not NotImplemented:
            return result
        if op == "==":
            return a is b
        return a is not b if op == "!=" else COMPARE[op](a, b)

    def operand(self, x: Any) -> Any:
        """Take note of an operand of a chained comparison, which Python itself makes."""
        if type(x) not in _SCALARS and not self.observation.off:
            if isinstance(x, (np.generic, np.dtype)) or is_plain(x):
                return x
            self.observation.note(f"a chained comparison has a {type(x).__name__} as an operand, which is not "
                                  "observed; compare two at a time")
        return x

    def truth(self, x: Any) -> bool:
        """Return the truth of a value."""
        if type(x) in _SCALARS or self.observation.off:
            return bool(x)
        return containers.truth(self, x)

    def seen(self, x: Any) -> Any:
        """Return a value whose truth Python looks at next."""
        self.truth(x)
        kind = type(x)
        if kind not in _SCALARS and any(isinstance(getattr(kind, name, None), types.FunctionType)
                                        for name in ("__bool__", "__len__")) and not issubclass(type(x), Variable):
            self.observation.note(f"the truth of a {kind.__name__} is asked for by `and` or `or`, whose Python is not "
                                  "observed there; use `if`")
        return x

    def format(self, x: Any, conversion: str, spec: str) -> str:
        """Format a value, as in an f-string."""
        if conversion:
            x = texts.text(self, {"r": repr, "s": str, "a": ascii}[conversion], x)
        if type(x) in _SCALARS or self.observation.off:
            return format(x, spec)
        return texts.text(self, format, x, spec)

    # -- calls --------------------------------------------------------------------------------------------------

    def call(self, function: Any, /, *args: Any, **kwargs: Any) -> Any:
        """Call anything."""
        if self.observation.off and not (
                type(function) is types.BuiltinFunctionType and function in builtin_functions.OF_FRAMES):
            return function(*map(plain, args), **{name: plain(x) for name, x in kwargs.items()})
        return calls.call(self, function, args, kwargs)

    def super(self, cls: type, x: Any) -> Any:
        """Return ``super()`` of a method."""
        return super(cls, x)

    def function(self, made: Any) -> Any:
        """Take note of a function that the copy has made, with its closure."""
        o = self.observation
        o.fresh(made)
        for cell in made.__closure__ or ():
            if not any(cell is mine for mine in self._closure):
                o.fresh(cell)
        return made

    def decorator(self, d: Any) -> Any:
        """Return a callable that applies a decorator."""
        return lambda f: self.call(d, f)

    def generator(self, made: Any) -> Any:
        """Take note of a generator that the copy has made."""
        self.observation.fresh(made)
        self.observation.generators.append(weakref.ref(made))
        return made

    def manager(self, x: Any) -> Any:
        """Return a context manager whose entrance and exit are observed."""
        return x if self.observation.off else _Manager(self, x)

    # -- the rest -----------------------------------------------------------------------------------------------

    def subject(self, x: Any, names: tuple[str, ...]) -> Any:
        """Note the reads that patterns may make of a value that is matched."""
        if not self.observation.off:
            self._matched(x, names)
        return x

    def _matched(self, x: Any, names: tuple[str, ...]) -> None:
        kind = type(x)
        if kind in _SCALARS:
            return
        if issubclass(type(x), (np.ndarray, Variable)):
            operations.identity(self, x, None)
            return
        if isinstance(x, (list, tuple, dict)):
            containers.look(self, x)
            for item in x.values() if isinstance(x, dict) else x:
                self._matched(item, names)
            return
        of_class = lookup.find(self, kind, "__match_args__")
        for name in (*names, *(of_class if of_class is not MISSING else ())):
            if hasattr(x, name):
                self._matched(self.attr(x, name), ())

    def importing(self) -> None:
        """Begin an import: the code of modules, run when they are imported, is not observed."""
        self.observation.modules = len(sys.modules), set(sys.modules)

    def importing_done(self) -> None:
        """End an import."""
        count, before = self.observation.modules
        if len(sys.modules) != count and not all(map(is_library, set(sys.modules) - before)):
            self.observation.imported = True

    def imported(self, name: str, level: int) -> None:
        """Take note of an imported module."""
        self._module(name, level)

    def imported_from(self, name: str, level: int, attribute: str, value: Any) -> None:
        """Note a name imported from a module."""
        module = self._module(name, level)
        if module is not None and vars(module).get(attribute, MISSING) is value:
            lookup.read(self, module, attribute)

    def _module(self, name: str, level: int) -> types.ModuleType | None:
        if level:
            package = self.globals.get("__package__") or ""
            name = ".".join([*package.split(".")[:len(package.split(".")) - level + 1], *([name] if name else [])])
        module = sys.modules.get(name)
        if module is not None:
            self.observation.entry(sys.modules, name, module, f"the module {name}")
        return module


def _tries(a: Any, b: Any, mine: str, theirs: str) -> list[_Try]:
    """Return the special methods of an operator, in the order in which Python tries them."""
    tries = [(a, b, mine), (b, a, theirs)]
    if type(b) is not type(a) and issubclass(type(b), type(a)):
        tries.reverse()
    return tries


def _any_in_python(tries: list[_Try]) -> bool:
    return any(isinstance(getattr(type(x), special, None), types.FunctionType) for x, _, special in tries)


def _settle(entries: dict[str, Any], name: str, value: Any) -> None:
    """Put plain numbers into an entry, if it still has a value that the call has stored."""
    if entries.get(name) is value:
        entries[name] = settled(value, name)


def _settle_cell(cell: Any, value: Any) -> None:
    """Put plain numbers into a closure variable, if it still has a value that the call has stored."""
    try:
        if cell.cell_contents is value:
            cell.cell_contents = settled(value, "a closure variable")
    except ValueError:  # it is empty
        pass


class _Manager:
    """A context manager in place of another one, whose methods are called through a frame."""

    def __init__(self, k: Observer, x: Any) -> None:
        self._frame = k
        self._managed = x
        kind = type(x)
        self._enter = lookup.find(k, kind, "__enter__")
        self._exit = lookup.find(k, kind, "__exit__")

    def __enter__(self) -> Any:
        if self._enter is MISSING or self._exit is MISSING:
            raise TypeError(f"{type(self._managed).__name__!r} object does not support the context manager protocol")
        return self._frame.call(self._enter, self._managed)

    def __exit__(self, *error: Any) -> Any:
        return self._frame.call(self._exit, self._managed, *error)
