"""Guards: single conditions on state outside a call, each with the value that the call has read.

A guard tests itself (`now`, `holds`), writes its test as an expression (`test`) for the generated functions that run
before each replay, and describes itself (`what`, `where`) for warnings and ``explain()``.
"""
from __future__ import annotations

import operator
from abc import ABC, abstractmethod
from collections import Counter, OrderedDict, defaultdict
from collections.abc import Callable
from types import BuiltinFunctionType, FunctionType, MappingProxyType, ModuleType
from typing import Any, cast

import numpy as np

from ...variable import Variable
from ..errors import is_from_handler
from ..source import Source
from ..trees import SCALARS, array_of


class _Missing:
    """The value of a name that is not there."""

    def __repr__(self) -> str:
        return "nothing"


MISSING: Any = _Missing()
_class_of: Callable[[Any], Any] = type  # of unknown objects, for the type checker
_OWN_ORDER = (dict, OrderedDict, defaultdict, Counter)  # and not one that a class of the user's may have
LARGEST_ARRAY_BYTES = 1 << 16  # elements of larger arrays are not compared in every call
_SHOWN_CHARACTERS = 60
_DTYPE: type[Any] = np.dtype
_NUMBERS: tuple[type[Any], ...] = (*SCALARS, np.generic)
_DICT: Any = dict  # whose own methods are called, not those of a class of the user's
_PLAIN_DEPTH = 6
IMMUTABLE = frozenset((*SCALARS, type(Ellipsis), slice, range, type(NotImplemented)))


def same(new: Any, old: Any) -> bool:
    """Whether two values are identical, equal scalars of one type, or equal tuples of such."""
    if new is old:
        return True
    kind = _class_of(new)
    if kind is not type(old):
        return False
    if kind is float or kind is complex or isinstance(new, (np.generic, _DTYPE)):
        return repr(new) == repr(old)
    if kind is tuple:
        return len(new) == len(old) and all(map(same, new, old))
    if kind is slice or kind is range:
        return same((new.start, new.stop, new.step), (old.start, old.stop, old.step))
    return kind in SCALARS and new == old


def same_items(now: Any, before: list[Any]) -> bool:
    """Whether a container has the items it had."""
    kind = _class_of(now)
    items = now if kind is list else items_of(now)
    return len(items) == len(before) and (all(map(operator.is_, items, before)) or all(map(same, items, before)))


def items_of(container: Any) -> list[Any]:
    """Return the items of a container, for mappings the keys and then the values."""
    kind = _class_of(container)
    if kind in _OWN_ORDER or kind is MappingProxyType:
        return [*container, *container.values()]
    return [*_DICT.keys(container), *_DICT.values(container)] if issubclass(kind, dict) else list(container)


def is_plain(x: Any, depth: int = 0) -> bool:
    """Whether a value consists of scalars, functions and classes, and has no state that changes."""
    kind = _class_of(x)
    if kind in IMMUTABLE or kind in (FunctionType, BuiltinFunctionType) or issubclass(kind, type):
        return True
    if kind in (tuple, frozenset) and depth < _PLAIN_DEPTH:
        return all([is_plain(y, depth + 1) for y in x])
    return kind is dict and depth == 1 and all([is_plain(y, depth + 1) for y in x.values()])


def type_of(state: Any) -> Any:
    """Return shape, dtype and ``requires_grad`` of a Variable that has data; None of anything else."""
    array = array_of(state) if type(state) is Variable else None
    return None if array is None else (array.shape, array.dtype, state.requires_grad)


def _are_numbers(value: Any) -> bool:
    """Whether a value is a tuple of numbers or texts."""
    return type(value) is tuple and all([isinstance(item, _NUMBERS) for item in cast("tuple[Any, ...]", value)])


def shown(value: Any) -> str:
    """Return a short text for a value."""
    if isinstance(value, _DTYPE):
        text = value.name
    elif value is MISSING or isinstance(value, _NUMBERS) or _are_numbers(value):
        text = repr(value)
    elif isinstance(value, ModuleType):
        text = f"module {value.__name__}"
    elif isinstance(value, type) or hasattr(value, "__qualname__"):
        text = f"{getattr(value, '__module__', 'builtins')}.{value.__qualname__}"
    else:
        text = f"{type(value).__name__} object"
    return text if len(text) <= _SHOWN_CHARACTERS else f"{text[:_SHOWN_CHARACTERS]}…"


class Guard(ABC):
    """A condition. What it is about changes only together with a version, if ``versioned`` names one."""

    is_shown = True  # whether the value means something to people

    def __init__(self, holder: Any, value: Any, what: str, where: str, versioned: str | None = None) -> None:
        self.holder = holder
        self.value = value
        self.what = what
        self.where = where
        self.versioned = versioned

    @abstractmethod
    def now(self) -> Any:
        """Return the present value; MISSING if there is none."""

    def holds(self) -> bool:
        """Whether the value is the one that was read."""
        try:
            return same(self.now(), self.value)
        except Exception as error:  # whatever reading raises now, it did not then
            if is_from_handler(error):
                raise
            return False

    @abstractmethod
    def test(self, source: Source) -> str:
        """Return an expression that is true where the guard holds; where it raises, the guard does not hold."""

    def line(self) -> str:
        """Return the line of ``explain()``."""
        where = f" ({self.where})" if self.where else ""
        return f"{self.what}{where}" + f" = {shown(self.value)}" * self.is_shown

    def change(self) -> str:
        """Return a text for people on the change since, where the guard does not hold."""
        if not self.is_shown or not isinstance(self.value, SCALARS):
            return self.what
        try:
            now = shown(self.now())
        except Exception as error:  # which the call will raise where it asks
            now = f"an error, {type(error).__name__}"
        return f"{self.what} ({self.value!r} became {now})"


def _compared(now: str, value: Any, source: Source) -> str:
    """Return the test that the expression ``now`` is ``value``."""
    known = source.literal(value, "value")
    if isinstance(value, (*SCALARS, tuple, slice, range, np.generic, np.dtype)) and not isinstance(
            value, (bool, type(None))):
        x = source.fresh("now")
        return f"(({x} := {now}) is {known} or {_call(source, same, x, known)})"
    return f"{now} is {known}"


def _call(source: Source, function: Callable[..., Any], *args: str) -> str:
    """Return the call of a function."""
    return f"{source.name(function, function.__name__)}({', '.join(args)})"


def _equal(source: Source, function: Callable[..., Any], now: str, value: Any) -> str:
    """Return the test that ``function`` of the expression ``now`` equals ``value``."""
    return f"{_call(source, function, now)} == {source.name(value, 'value')}"


class Entry(Guard):
    """An entry of a namespace, dictionary, list or other container, by its key."""

    state: Any = None    # of a Variable that functions read: its type
    chained = False      # and whether there was a graph behind it
    twin: Entry | None = None  # an earlier guard with the same Variable

    def __init__(self, holder: Any, key: Any, value: Any, what: str, where: str, versioned: str | None = None) -> None:
        super().__init__(holder, value, what, where, versioned)
        self.key = key

    def now(self) -> Any:
        kind = _class_of(self.holder)
        if issubclass(kind, (dict, MappingProxyType)):
            own: Any = _DICT if issubclass(kind, dict) else MappingProxyType
            return own.get(self.holder, self.key, MISSING)
        try:
            return self.holder[self.key]
        except (IndexError, KeyError):
            return MISSING

    def holds(self) -> bool:
        now = self.now()
        if self.twin is not None and self.twin.state is not None:
            return now is self.twin.now()
        if self.state is not None:
            return type_of(now) == self.state
        if self.value is ANY_VARIABLE:
            return type(now) is Variable
        return same(now, self.value)

    def test(self, source: Source) -> str:
        holder, key = source.name(self.holder, "held"), repr(self.key) if type(self.key) in (str, int) else None
        key = source.name(self.key, "key") if key is None else key
        kind = _class_of(self.holder)
        is_subclass = kind is not dict and issubclass(kind, dict)  # whose methods may differ
        if self.value is MISSING:
            return f"not dict.__contains__({holder}, {key})" if is_subclass else f"{key} not in {holder}"
        now = f"dict.__getitem__({holder}, {key})" if is_subclass else f"{holder}[{key}]"
        if self.twin is not None and self.twin.state is not None:
            return f"{now} is {source.name(self.twin.holder, 'held')}[{self.twin.key!r}]"
        if self.state is not None:
            return _equal(source, type_of, now, self.state)
        if self.value is ANY_VARIABLE:
            return f"type({now}) is {source.name(Variable, 'Variable')}"
        return _compared(now, self.value, source)


def type_of_array(entries: Any, name: str) -> Any:
    """Return the class, dtype and shape of an array in a namespace; None if there is none."""
    x: Any = entries.get(name)
    return (type(x), x.dtype, x.shape) if issubclass(type(x), np.ndarray) else None


class EntryType(Entry):
    """The type of the number that an entry is."""

    def holds(self) -> bool:
        return type(self.now()) is type(self.value)

    def test(self, source: Source) -> str:
        holder, key = source.name(self.holder, "held"), source.name(self.key, "key")
        return f"type(dict.__getitem__({holder}, {key})) is {source.name(type(self.value), 'kind')}"

    def line(self) -> str:
        return f"{self.what} ({self.where}) is of type {type(self.value).__name__}"


ANY_VARIABLE = Variable()  # in place of the value of an entry, which only has to be a Variable


class Attribute(Guard):
    """An attribute that only an ordinary lookup finds: a slot, a configuration entry, the content of a cell."""

    def __init__(self, holder: Any, name: str, value: Any, what: str, where: str) -> None:
        super().__init__(holder, value, what, where)
        self.name = name

    def now(self) -> Any:
        return getattr(self.holder, self.name, MISSING)

    def test(self, source: Source) -> str:
        holder = source.name(self.holder, "held")
        if self.value is MISSING:
            return f"not hasattr({holder}, {self.name!r})"
        return _compared(f"{holder}.{self.name}", self.value, source)


class Code(Guard):
    """The code and the defaults of a function that has run: editors reload code into functions that exist."""

    is_shown = False

    def __init__(self, function: Any, where: str) -> None:
        super().__init__(function, (function.__code__, function.__defaults__, _keyword_defaults(function)),
                         f"the code of {function.__name__}", where)

    def now(self) -> Any:
        f = self.holder
        return self.value if f.__code__ is self.value[0] and same(f.__defaults__, self.value[1]) and same(
            _keyword_defaults(f), self.value[2]) else MISSING

    def test(self, source: Source) -> str:
        f = source.name(self.holder, "held")
        code, defaults, keywords = self.value
        tests = [_compared(f"{f}.__code__", code, source), _compared(f"{f}.__defaults__", defaults, source)]
        if keywords:
            tests.append(_compared(_call(source, _keyword_defaults, f), keywords, source))
        return " and ".join(tests)


def _keyword_defaults(function: Any) -> Any:
    defaults = function.__kwdefaults__
    return () if not defaults else tuple([x for item in defaults.items() for x in item])


class ClassOf(Guard):
    """The class of an object."""

    def __init__(self, holder: Any, what: str, where: str, versioned: str | None = None) -> None:
        super().__init__(holder, type(holder), what, where, versioned)

    def now(self) -> Any:
        return _class_of(self.holder)

    def test(self, source: Source) -> str:
        known, holder = source.name(self.value, "value"), source.name(self.holder, "held")
        return f"type({holder}) is {known} and {known}.__mro__ is {source.name(self.value.__mro__, 'bases')}"


class CallResult(Guard):
    """The result of a function that only looks at state: it is called again before each replay."""

    def __init__(self, function: Callable[..., Any], args: tuple[Any, ...], value: Any, what: str, where: str,
                 versioned: str | None = None) -> None:
        super().__init__(function, value, what, where, versioned)
        self.args = args
        self.is_shown = function not in (same_content, same_items, has_no_hooks, is_one_array)

    def now(self) -> Any:
        return self.holder(*self.args)

    def test(self, source: Source) -> str:
        args = [source.name(x, "held") for x in self.args]
        if self.holder is has_no_hooks:  # as every link is asked, without a call
            return f"not {args[0]}.get('_local_link_hooks')"
        return _compared(f"{source.name(self.holder, 'asked')}({', '.join(args)})", self.value, source)


def content_of(array: Any) -> tuple[Any, ...]:
    """Return shape, dtype and elements of an array."""
    return array.shape, array.dtype, array.tobytes() if not array.dtype.hasobject else tuple(map(id, array.flat))


def same_content(array: Any, before: tuple[Any, ...]) -> bool:
    """Whether an array has the shape, dtype and elements it had."""
    return content_of(array) == before


def is_one_array(entries: dict[str, Any], name: str, others: dict[str, Any], other: str) -> bool:
    """Whether two namespaces have one array."""
    return entries[name] is others[other]


def is_alive(reference: Callable[[], Any]) -> bool:
    """Whether the object of a weak reference lives, which a guard keeps alive no longer than others do."""
    return reference() is not None


def has_no_hooks(entries: dict[str, Any]) -> bool:
    """Whether the link with this namespace has no hooks."""
    return not entries.get("_local_link_hooks")
