"""The observer of one function call: its instrumented copy calls it for every read and write outside its locals.

`instrument` puts the names of the methods into the copy. Invariant: each does what Python does in its
place, also when nothing needs to be observed any more.
"""
from __future__ import annotations

import functools
import sys
import types
import warnings
import weakref
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from ....configuration import ConfigScope, config
from ....variable import Variable
from ...arrays import cards
from ...computed_numbers import ComputedNumber, plain, settled
from ...guards.guard import IMMUTABLE, MISSING, is_plain
from ..net import is_library
from ..observation import Observation, is_ours
from . import builtin_functions, calls, container_methods, containers, lookup, operations, texts
from .container_methods import Counted
from .operators import BINARY, COMPARE, INPLACE, UNARY, Operator


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
        return self.observation.attribute(self._cell(name), "cell_contents", value, f"the closure variable {name}")

    def set_cell(self, name: str, value: Any) -> Any:
        """Observe the store of a closure variable: the copy then stores the value that is returned."""
        cell = self._cell(name)
        self.observation.holds(value, lambda: _settle_cell(cell, value))
        self.observation.stored(cell, "cell_contents", value, f"the closure variable {name}", None,
                                (setattr, (cell, "cell_contents")))
        return value

    def del_cell(self, name: str) -> None:
        """Delete a closure variable: the copy does it."""
        self.observation.note(f"the closure variable {name} is deleted inside the static function, which replays "
                              "cannot repeat")

    # -- attributes, items, iteration ---------------------------------------------------------------------------

    attr, del_attr, item = lookup.read, functools.partialmethod(lookup.write, value=MISSING), containers.read
    del_item = functools.partialmethod(containers.write, value=MISSING)
    iterate = containers.iterate
    slice, super = staticmethod(slice), staticmethod(super)

    def counted_attr(self, x: Any, name: str) -> Any:
        """Read an attribute that an augmented assignment stores next."""
        found = None if self.observation.off else container_methods.of_attribute(self, x, name)
        return self.attr(x, name) if found is None else found

    def set_attr(self, x: Any, name: str, value: Any) -> None:
        """Store an attribute."""
        if type(value) is not Counted or not value.is_of(lookup.entries_in(x), name):
            lookup.write(self, x, name, value if type(value) is not Counted else value.settled(self))
            return
        setattr(x, name, value.made)
        self._count(value)

    def counted_item(self, x: Any, key: Any) -> Any:
        """Read an item that an augmented assignment stores next."""
        found = None if self.observation.off else container_methods.of_item(self, x, key)
        return self.item(x, key) if found is None else found

    def set_item(self, x: Any, key: Any, value: Any) -> None:
        """Store an item."""
        if type(value) is not Counted or not value.is_of(x, key):
            containers.write(self, x, key, value if type(value) is not Counted else value.settled(self))
            return
        if type(x) is np.ndarray:
            operations.add_to_element(self, x, key, value.operation, value.operand)
            return
        x[key] = value.made
        self._count(value)

    def _count(self, c: Counted) -> None:
        """Take note of an addition to a number in an entry."""
        if not self.observation.off:
            self.observation.additions.note(c.holder, c.key, c.value, c.operation, c.operand, c.what)

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
        return self.operator(BINARY[op], a, b) if type(a) is not Counted else a.applied(self, BINARY[op], b)

    def inplace(self, op: str, a: Any, b: Any) -> Any:
        """Apply a binary operator in place, where the operand has such a one."""
        return self.operator(INPLACE[op], a, b) if type(a) is not Counted else a.applied(self, INPLACE[op], b)

    def unary(self, op: str, a: Any) -> Any:
        """Apply a unary operator."""
        return self.operator(UNARY[op], a)

    def compare(self, op: str, a: Any, b: Any) -> Any:
        """Compare two values."""
        o = self.observation
        if op == "is" or op == "is not":
            if not o.off:
                containers.identity(self, a, b)
            return a is b if op == "is" else a is not b
        if op == "in" or op == "not in":
            found = a in b if o.off else containers.contains(self, b, a)
            return found if op == "in" else not found
        return self.operator(COMPARE[op], a, b)

    def operator(self, op: Operator, *operands: Any) -> Any:
        """Apply any operator."""
        o, kinds = self.observation, [*map(type, operands)]
        if o.off:
            return op.function(*map(plain, operands))
        if IMMUTABLE.issuperset(kinds):
            return op.function(*operands)
        is_array = [issubclass(kind, np.ndarray) for kind in kinds]
        is_written = bool(op.own) and (is_array[0] or kinds[0] in containers.MUTABLE)
        if not is_written and any([issubclass(kind, ComputedNumber) for kind in kinds]):
            found = operations.of_numbers(self, op, *operands)
            if found is not NotImplemented:
                return found
            operands = settled(operands, op.sign)
        if not is_written and any([issubclass(kind, Variable) for kind in kinds]):
            return self.of_variables(op.function, *operands)
        if cards.reads(o.tape, f"the operator {op.sign}{'=' * bool(op.own)}", *operands):
            return op.function(*operands)
        if any(is_array) and (is_array[0] or not is_written):
            return operations.operator_of_arrays(self, op, *operands)
        return container_methods.inplace(self, op, *operands) if is_written else self._operator_of_objects(op, operands)

    def _operator_of_objects(self, op: Operator, operands: tuple[Any, ...]) -> Any:
        tries = op.tries(*operands)
        if not any([isinstance(getattr(type(x), method, None), types.FunctionType) for x, _, method in tries]):
            for x in operands:
                if op.plain.sign in ("+", "*") and type(x) in (list, tuple):  # whose items it takes as they are
                    containers.look_at_items(self, x)
                else:
                    containers.look(self, x)
            if op.plain.sign == "%" and type(operands[0]) is str:
                a, b = operands
                operands = a, tuple([texts.shown(self, x) for x in b]) if type(b) is tuple else (
                    b if type(b) is dict else texts.shown(self, b))
            with self.observation.tape.net:
                made = op.function(*operands)
            return self.observation.fresh(made) if type(made) in containers.MUTABLE else made
        for x, others, method in tries:
            found = lookup.find(self, type(x), method)
            if found is MISSING:
                continue
            if isinstance(found, types.FunctionType):
                result = self.call(found, x, *others)
            else:
                with self.observation.tape.net:
                    result = found(x, *others)
            if result is not NotImplemented:
                return result
        if op.sign in ("==", "!="):
            return (operands[0] is operands[1]) is (op.sign == "==")
        return op.function(*operands)

    def of_variables(self, function: Callable[..., Any], *operands: Any) -> Any:
        """Apply an operator of Variables, which is a recorded function."""
        for x in operands:
            if isinstance(x, (list, dict)):
                containers.look(self, x)
        return function(*operands)

    def operand(self, x: Any) -> Any:
        """Take note of an operand of a chained comparison, which Python itself makes."""
        if type(x) not in IMMUTABLE and not self.observation.off:
            x = settled(x, "a chained comparison")
            if isinstance(x, (np.generic, np.dtype)) or is_plain(x):
                return x
            self.observation.note(f"a chained comparison has a {type(x).__name__} as an operand, which is not "
                                  "observed; compare two at a time")
        return x

    truth = containers.truth

    def seen(self, x: Any) -> Any:
        """Return a value whose truth Python looks at next."""
        x = settled(x, "and, or") if isinstance(x, ComputedNumber) else x
        self.truth(x)
        kind = type(x)
        if kind not in IMMUTABLE and any(isinstance(getattr(kind, name, None), types.FunctionType)
                                        for name in ("__bool__", "__len__")) and not issubclass(type(x), Variable):
            self.observation.note(f"the truth of a {kind.__name__} is asked for by `and` or `or`, whose Python is not "
                                  "observed there; use `if`")
        return x

    def format(self, x: Any, conversion: str, spec: str) -> str:
        """Format a value, as in an f-string."""
        if conversion:
            x = texts.text(self, {"r": repr, "s": str, "a": ascii}[conversion], x)
        if type(x) in IMMUTABLE or self.observation.off:
            return format(x, spec)
        return texts.text(self, format, x, spec)

    # -- calls --------------------------------------------------------------------------------------------------

    def call(self, function: Any, /, *args: Any, **kwargs: Any) -> Any:
        """Call anything."""
        if self.observation.off and not (
                type(function) is types.BuiltinFunctionType and function in builtin_functions.OF_FRAMES):
            return function(*map(plain, args), **{name: plain(x) for name, x in kwargs.items()})
        if not self.observation.off:
            self.observation.tape.picked.settle_all((args, kwargs))
        return calls.call(self, function, args, kwargs)

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
        if self.observation.off:
            return x
        if type(x) is ConfigScope and x._config is config:
            return _Setting(self.observation, x)
        return _Silence(self.observation, x) if type(x) is warnings.catch_warnings else _Manager(self, x)

    # -- the rest -----------------------------------------------------------------------------------------------

    def subject(self, x: Any, names: tuple[str, ...]) -> Any:
        """Note the reads that patterns may make of a value that is matched."""
        if not self.observation.off:
            self._matched(x, names)
        return x

    def _matched(self, x: Any, names: tuple[str, ...]) -> None:
        kind = type(x)
        if kind in IMMUTABLE:
            return
        if issubclass(type(x), (np.ndarray, Variable)):
            containers.identity(self, x, None)
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


class _Silence:
    """A ``catch_warnings`` in place of the user's, which is no state that replays would set."""

    def __init__(self, observation: Observation, x: Any) -> None:
        self._observation, self._managed = observation, x

    def __enter__(self) -> Any:
        self._observation.silenced += 1
        return self._managed.__enter__()

    def __exit__(self, *error: Any) -> Any:
        self._observation.silenced -= 1
        return self._managed.__exit__(*error)


class _Setting:
    """A ``using_config`` of the call's own: reads of that entry inside have the value that the call has set."""

    def __init__(self, observation: Observation, x: Any) -> None:
        self._settings, self._managed = observation.settings, x

    def __enter__(self) -> Any:
        self._settings[self._managed._name] = self._settings.get(self._managed._name, 0) + 1
        return self._managed.__enter__()

    def __exit__(self, *error: Any) -> Any:
        self._settings[self._managed._name] -= 1
        return self._managed.__exit__(*error)


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
