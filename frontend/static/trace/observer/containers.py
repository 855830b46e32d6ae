"""Items, iteration, membership and truth of containers and other objects, observed."""
from __future__ import annotations

import array
import collections
import functools
import types
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

import numpy as np

from ....variable import Variable
from ...arrays import cards
from ...computed_numbers import ComputedNumber, settled
from ...guards.guard import MISSING, shown
from ..effects import store
from . import lookup, operations
from .c_code import wrapped

if TYPE_CHECKING:
    from .observer import Observer

MUTABLE = (list, dict, set, collections.deque, bytearray, array.array, collections.OrderedDict, collections.defaultdict,
           collections.Counter)
_FOLLOWING = (list, dict, collections.deque, collections.OrderedDict, collections.defaultdict)  # hold computed numbers
_VIEWS = (type({}.keys()), type({}.values()), type({}.items()))
_IMMUTABLE_ITEMS = (str, bytes, range, frozenset)
_SCALARS = (bool, int, float, complex, str, bytes, type(None), type(Ellipsis), slice, range, type(NotImplemented))
_LOOKED_AT_DEPTH = 6


def name_of(x: Any) -> str:
    """Return the name of a container in messages."""
    return f"a {type(x).__name__}"


def look(k: Observer, x: Any, depth: int = 0) -> None:
    """Take note that code which is not observed may read all of a value."""
    o = k.observation
    kind = type(x)
    if kind in _SCALARS or o.off or depth > _LOOKED_AT_DEPTH:
        return
    if isinstance(x, ComputedNumber):
        x.kusari_read("code in C")
    elif issubclass(type(x), np.ndarray):
        operations.read_elements(k, x, "code in C")
    elif issubclass(type(x), Variable):
        o.note(f"a {kind.__name__} is given to code in C, and replays would not read it again; use functions instead")
    elif isinstance(x, (tuple, frozenset)):
        for item in x:
            look(k, item, depth + 1)
    elif isinstance(x, _VIEWS):
        content = {}
        content.update(x.mapping)
        if o.is_outside(x):
            o.items(x.mapping, "a dictionary")
        for item in content.values():
            look(k, item, depth + 1)
    elif isinstance(x, (list, dict, set, collections.deque, bytearray, array.array, types.MappingProxyType)):
        o.items(x, name_of(x))
        if not isinstance(x, (bytearray, array.array)):
            for item in [*x.values()] if isinstance(x, (dict, types.MappingProxyType)) else [*x]:
                look(k, item, depth + 1)
    elif isinstance(x, (types.SimpleNamespace, functools.partial)):
        o.kind(x)
        look(k, x.__dict__, depth + 1)


def native(k: Observer, f: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Call a function in C that only reads its arguments, all of them."""
    for x in (*args, *kwargs.values()):
        look(k, x)
    with k.observation.tape.net:
        return made(k, f(*[wrapped(k, x) for x in args], **{n: wrapped(k, x) for n, x in kwargs.items()}))


def made(k: Observer, result: Any) -> Any:
    """Take note of a container or an iterator that code in C has made."""
    if type(result) in MUTABLE or isinstance(result, _VIEWS) or hasattr(type(result), "__next__"):
        k.observation.fresh(result)
    return result


def read(k: Observer, x: Any, key: Any) -> Any:
    """Return ``x[key]``, observed."""
    kind = type(x)
    if cards.reads(k.observation.tape, "an index", x):
        return x[key]
    if type(key) not in (int, slice, bool) and kind in (list, tuple, str, bytes, range):
        index = lookup.find(k, type(key), "__index__")
        if isinstance(index, types.FunctionType):
            key = k.call(index, key)
    return _reader_of(kind)(k, x, key)


@functools.lru_cache(maxsize=1024)
def _reader_of(kind: type) -> Callable[[Observer, Any, Any], Any]:
    return _READERS.get(kind) or next(
        (reader for base, reader in _READERS_OF_BASES.items() if issubclass(kind, base)), _item_of_object)


def _item(k: Observer, x: Any, key: Any) -> Any:
    return x[key]


def _item_of_mapping(k: Observer, x: Any, key: Any) -> Any:
    o = k.observation
    if o.is_outside(x):
        o.entry(x, key, x[key] if key in x else MISSING, f"item {shown(key)} of {name_of(x)}")
    return x[key]


def _item_of_list(k: Observer, x: Any, key: Any) -> Any:
    o = k.observation
    if type(key) is not int or id(x) in o._changed:
        return _item_of_sequence(k, x, key)
    if o.is_outside(x):
        place = key if key >= 0 else len(x) + key
        o.entry(x, place, x[key] if 0 <= place < len(x) else MISSING, f"item {shown(key)} of {name_of(x)}")
        if key < 0:
            o.length(x, name_of(x))
    return x[key]


def _item_of_sequence(k: Observer, x: Any, key: Any) -> Any:
    o = k.observation
    o.items(x, name_of(x))
    found = x[key]
    return o.fresh(found) if isinstance(found, list) and type(key) is slice else found


def _item_of_default(k: Observer, x: Any, key: Any) -> Any:
    o = k.observation
    if type(x) is collections.defaultdict:
        o.attribute(x, "default_factory", x.default_factory, "the default of a defaultdict")
        if key not in x and x.default_factory is not None:
            o.items(x, name_of(x))
            made = k.call(x.default_factory)
            write(k, x, key, made)
            return made
    o.entry(x, key, x[key] if key in x else MISSING, f"item {shown(key)} of {name_of(x)}")
    return x[key]


def _item_of_variable(k: Observer, x: Any, key: Any) -> Any:
    return k._of_variables(type(x).__getitem__, x, key)


def _item_of_class(k: Observer, x: Any, key: Any) -> Any:
    found = lookup.find(k, type(x), "__getitem__")
    if found is MISSING:
        return k.call(lookup.read(k, x, "__class_getitem__"), key) if hasattr(x, "__class_getitem__") else x[key]
    return k.call(found, x, key)


def _item_of_object(k: Observer, x: Any, key: Any) -> Any:
    o = k.observation
    kind = type(x)
    found = lookup.find(k, kind, "__getitem__")
    if isinstance(found, types.FunctionType):
        return k.call(found, x, key)
    if isinstance(x, dict):
        missing = lookup.find(k, kind, "__missing__")
        o.entry(x, key, dict.get(x, key, MISSING), f"item {shown(key)} of {name_of(x)}")
        if dict.__contains__(x, key) or not isinstance(missing, types.FunctionType):
            return x[key]
        return k.call(missing, x, key)
    if isinstance(x, (list, collections.deque)):
        o.items(x, name_of(x))
    elif not issubclass(kind, (tuple, *_IMMUTABLE_ITEMS)) and not o.is_fresh(x):
        o.note(f"items of a {kind.__name__} are read, which is not observed")
    return x[key]


_READERS: dict[type, Callable[[Observer, Any, Any], Any]] = {
    **dict.fromkeys((str, bytes, range, tuple), _item), list: _item_of_list,
    **dict.fromkeys((dict, types.MappingProxyType, collections.OrderedDict), _item_of_mapping),
    **dict.fromkeys((collections.deque, array.array, bytearray), _item_of_sequence),
    **dict.fromkeys((collections.defaultdict, collections.Counter), _item_of_default)}
_READERS_OF_BASES: dict[type, Callable[[Observer, Any, Any], Any]] = {
    np.ndarray: operations.item, Variable: _item_of_variable, type: _item_of_class}


def write(k: Observer, x: Any, key: Any, value: Any) -> None:
    """Store ``x[key] = value``, observed; ``value`` MISSING deletes."""
    o = k.observation
    kind = type(x)
    deletes = value is MISSING
    follows = issubclass(kind, np.ndarray) or kind in _FOLLOWING and type(key) is not slice and not o.off
    value = value if follows else settled(value, "a store")
    if follows and not issubclass(kind, np.ndarray):
        o.holds(value, functools.partial(settle, x))
    if o.off or cards.reads(o.tape, "an assignment to items", x):
        _native(x, key, value)
    elif issubclass(kind, np.ndarray):
        operations.set_item(k, x, key, value)
    elif type(value) is np.ndarray and o.is_outside(x) and o.owns(value) and _has(x, key, value):
        read(k, x, key)  # as after `x[key] += 1`
    elif kind in (dict, collections.OrderedDict, collections.defaultdict, collections.Counter):
        if deletes:
            o.presence(x, key, f"item {shown(key)} of {name_of(x)}")
        if o.changing(x, name_of(x)):
            _native(x, key, value)
            o.stored(x, key, value, f"item {shown(key)} of {name_of(x)}")
        else:
            _native(x, key, value)
    elif kind in (list, collections.deque, bytearray, array.array):
        if type(key) is int:
            length(k, x)
        elif not deletes:
            value = list(iterate(k, value))
        effect = o.changing(x, name_of(x))
        _native(x, key, value)
        if effect:
            o.changed(discard_item if deletes else store, x, (key,) if deletes else (key, value), name_of(x))
    else:
        special = "__delitem__" if deletes else "__setitem__"
        found = lookup.find(k, kind, special)
        rest = (key,) if deletes else (key, value)
        if isinstance(found, types.FunctionType):
            k.call(found, x, *rest)
        elif isinstance(x, dict):
            effect = o.changing(x, name_of(x))
            _native(x, key, value)
            if effect:
                o.stored(x, key, value, f"item {shown(key)} of {name_of(x)}")
        else:
            if not o.is_fresh(x):
                o.note(f"items of a {kind.__name__} are stored, which is not observed")
            _native(x, key, value)


def settle(x: Any) -> None:
    """Put plain numbers in place of computed ones that a container has."""
    for key, value in list(x.items() if isinstance(x, dict) else enumerate(x)):
        plain = settled(value, "a container")
        if plain is not value:
            x[key] = plain


def _has(x: Any, key: Any, value: Any) -> bool:
    """Whether an object is an item of a list or a dictionary already."""
    if type(x) is list:
        return type(key) is int and -len(x) <= key < len(x) and x[key] is value
    return type(x) is dict and type(key) in (int, str) and x.get(key) is value


def discard_item(holder: Any, key: Any) -> None:
    """Delete an item."""
    del holder[key]


def _native(x: Any, key: Any, value: Any) -> None:
    if value is MISSING:
        del x[key]
    else:
        x[key] = value


def inplace(k: Observer, op: str, a: Any, b: Any, native: Callable[[Any, Any], Any]) -> Any:
    """Apply an operator in place to a list, set or dictionary."""
    o, b = k.observation, settled(b, op)
    if isinstance(b, (dict, set)):
        o.items(b, name_of(b))
        b = b.copy()  # as it is now
    elif not isinstance(b, (int, frozenset)):
        b = list(iterate(k, b))
    effect = o.changing(a, name_of(a))
    result = native(a, b)
    if effect:
        o.changed(native, a, (b,), name_of(a))
    return result


def iterate(k: Observer, x: Any) -> Iterable[Any]:
    """Return an iterable over the items of a value, observed."""
    o = k.observation
    kind = type(x)
    if kind in (tuple, str, bytes, range, frozenset):
        return x
    if cards.reads(o.tape, "iteration", x):
        return x
    if issubclass(type(x), np.ndarray):
        return operations.iterate(k, x)
    if issubclass(type(x), Variable):
        return _of_variable(k, x)
    if kind in MUTABLE or kind is types.MappingProxyType:
        o.items(x, name_of(x))
        return x
    if isinstance(x, _VIEWS):
        if o.is_outside(x):
            o.items(x.mapping, "a dictionary")
        return x
    own = lookup.find(k, kind, "__iter__")
    if isinstance(own, types.FunctionType):
        made = k.call(own, x)
        if made is not x:
            return iterate(k, made)
    step = lookup.find(k, kind, "__next__")
    if isinstance(step, types.FunctionType):
        return _steps(k, x, step)
    if own is None or own is MISSING:
        item = lookup.find(k, kind, "__getitem__")
        return _by_number(k, x, item) if isinstance(item, types.FunctionType) else iter(x)
    if isinstance(x, (list, dict, set, collections.deque)):
        o.items(x, name_of(x))
        return x
    if isinstance(x, tuple) or o.is_fresh(x) or o.off:
        return x
    if step is not MISSING:
        o.note(f"a {kind.__name__} is an iterator, and replays would not go on with it")
        return x
    look(k, x)
    if o.is_outside(x) and not isinstance(x, (tuple, frozenset)):
        o.note(f"a {kind.__name__} is iterated over, which is not observed")
    return x


def _of_variable(k: Observer, x: Any) -> Iterable[Any]:
    for i in range(len(x)):
        yield k._of_variables(type(x).__getitem__, x, i)


def _steps(k: Observer, x: Any, step: Any) -> Iterable[Any]:
    while True:
        try:
            item = k.call(step, x)
        except StopIteration:
            return
        yield item


def _by_number(k: Observer, x: Any, item: Any) -> Iterable[Any]:
    i = 0
    while True:
        try:
            found = k.call(item, x, i)
        except IndexError:
            return
        yield found
        i += 1


def contains(k: Observer, x: Any, item: Any) -> bool:
    """Return whether ``item in x``, observed."""
    o = k.observation
    kind = type(x)
    if kind in (str, bytes, range) or cards.reads(o.tape, "the operator in", x, item):
        return item in x
    if issubclass(kind, type({}.keys())):
        iterate(k, x)
        return item in x
    if kind is set:
        if o.is_outside(x) and id(x) in o._changed:
            o.items(x, name_of(x))
        elif o.is_outside(x):
            o.called_again(set.__contains__, (x, item), item in x, f"whether {shown(item)} is in {name_of(x)}")
        return item in x
    if kind in (dict, types.MappingProxyType, collections.OrderedDict, collections.defaultdict, collections.Counter):
        if o.is_outside(x):
            o.entry(x, item, x[item] if item in x else MISSING, f"item {shown(item)} of {name_of(x)}")
        return item in x
    own = lookup.find(k, kind, "__contains__")
    if isinstance(own, types.FunctionType):
        return truth(k, k.call(own, x, item))
    if issubclass(type(item), (np.ndarray, Variable)) or issubclass(type(x), (np.ndarray, Variable)):
        if issubclass(type(x), np.ndarray):
            operations.read_elements(k, x, "in")
        else:
            operations.identity(k, item, x)
            look_at_items(k, x)
        return item in x
    if isinstance(x, (list, tuple, frozenset, collections.deque, array.array, bytearray)):
        look_at_items(k, x)
        special = type(item).__eq__
        if isinstance(special, types.FunctionType) or any(isinstance(type(y).__eq__, types.FunctionType) for y in x):
            return any(y is item or truth(k, k.compare("==", y, item)) for y in x)
        return item in x
    return any(y is item or truth(k, k.compare("==", y, item)) for y in iterate(k, x))


def look_at_items(k: Observer, x: Any) -> None:
    """Note a read of the set of items that a container has."""
    if not isinstance(x, (tuple, frozenset)):
        k.observation.items(x, name_of(x))


def length(k: Observer, x: Any) -> int:
    """Return ``len(x)``, observed."""
    kind = type(x)
    if cards.is_cupy_array(x):
        return len(x)
    own = lookup.find(k, kind, "__len__")
    if isinstance(own, types.FunctionType) and not issubclass(type(x), Variable):
        return k.call(own, x)
    if not isinstance(x, (np.ndarray, Variable, tuple, str, bytes, range, frozenset, *_VIEWS)) and hasattr(
            kind, "__len__"):
        k.observation.length(x, name_of(x))
    return len(x)


def truth(k: Observer, x: Any) -> bool:
    """Return the truth of a value, observed."""
    o = k.observation
    kind = type(x)
    if o.off or kind in _SCALARS or isinstance(x, (tuple, frozenset, np.generic)):
        return bool(x)
    if cards.reads(o.tape, "bool()", x):
        return bool(x)
    if issubclass(type(x), np.ndarray):
        return operations.look(k, bool, x, "__bool__()")
    if issubclass(type(x), Variable):
        o.tape.escape(x, "bool()")
        return bool(x)
    own = lookup.find(k, kind, "__bool__")
    if isinstance(own, types.FunctionType):
        return truth(k, k.call(own, x))
    if own is MISSING:
        own = lookup.find(k, kind, "__len__")
        if own is not MISSING:
            return length(k, x) > 0
    return bool(x)
