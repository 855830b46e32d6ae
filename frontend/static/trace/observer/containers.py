"""Items, iteration, membership and truth of containers and other objects, observed."""
from __future__ import annotations

import array
import collections
import functools
import sys
import types
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

import numpy as np

from ....variable import Variable
from ...arrays import cards
from ...arrays.picked import taken
from ...computed_numbers import KINDS, ComputedNumber, numbers_in, settled
from ...guards import changing
from ...guards.guard import IMMUTABLE, MISSING, shown
from ..effects import store
from ..numpy_nodes import of_python, rows_of_slice
from ..observation import NOT_GONE_ON
from . import lookup, operations
from .c_code import wrapped

if TYPE_CHECKING:
    from .observer import Observer

MUTABLE = (list, dict, set, collections.deque, bytearray, array.array, collections.OrderedDict, collections.defaultdict,
           collections.Counter)
_FOLLOWING = (list, dict, collections.deque, collections.OrderedDict, collections.defaultdict)  # hold computed numbers
_VIEWS = (type({}.keys()), type({}.values()), type({}.items()))
_IMMUTABLE_ITEMS = (str, bytes, range, frozenset)
_LOOKED_AT_DEPTH = 6
_SUMMED = (*KINDS, complex)


def name_of(x: Any) -> str:
    """Return the name of a container in messages."""
    return f"a {type(x).__name__}"


def look(k: Observer, x: Any, depth: int = 0) -> None:
    """Take note that code which is not observed may read all of a value."""
    o = k.observation
    kind = type(x)
    if kind in IMMUTABLE or o.off or depth > _LOOKED_AT_DEPTH:
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
    if k.observation.off or cards.reads(k.observation.tape, "an index", x):
        return x[key]
    if not issubclass(kind, (np.ndarray, Variable)):
        key = settled(key, "an index")
    if type(key) not in (int, slice, bool) and kind in (list, tuple, str, bytes, range):
        index = lookup.call_own(k, key, "__index__")
        key = key if index is MISSING else settled(index, "an index")
    return _reader_of(kind)(k, x, key)


@functools.lru_cache(maxsize=1024)
def _reader_of(kind: type) -> Callable[[Observer, Any, Any], Any]:
    return _READERS.get(kind) or next(
        (reader for base, reader in _READERS_OF_BASES.items() if issubclass(kind, base)), _item_of_object)


def _item(k: Observer, x: Any, key: Any) -> Any:
    return x[key]


def _look_at_item(k: Observer, x: Any, key: Any) -> None:
    """Note that an item of a mapping was read, or asked for in vain."""
    if k.observation.is_outside(x):
        k.observation.entry(x, key, x[key] if key in x else MISSING, item_of(x, key))


def item_of(x: Any, key: Any) -> str:
    """Return the name of an item in messages."""
    return f"item {shown(key)} of {name_of(x)}"


def _item_of_mapping(k: Observer, x: Any, key: Any) -> Any:
    if type(x) is dict and type(key) in (str, int) and key in x:
        return changing.entry(k.observation, x, key, x[key], item_of(x, key)) if (
            k.observation.is_outside(x)) else x[key]
    _look_at_item(k, x, key)
    return x[key]


def _item_of_list(k: Observer, x: Any, key: Any) -> Any:
    o = k.observation
    if type(key) is not int or id(x) in o._changed:
        return _item_of_sequence(k, x, key)
    if o.is_outside(x):
        place = key if key >= 0 else len(x) + key
        o.entry(x, place, x[key] if 0 <= place < len(x) else MISSING, item_of(x, key))
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
    return _item_of_mapping(k, x, key)


def _item_of_variable(k: Observer, x: Any, key: Any) -> Any:
    get_item, tape = type(x).__getitem__, k.observation.tape
    if numbers_in(key):
        x, key = taken(functools.partial(rows_of_slice, tape), x, key, functools.partial(k.of_variables, get_item))
        key = tuple([i if type(i) is not list else settled(i, "an index") for i in key]) if type(key) is tuple else key
    return k.of_variables(get_item, x, key)


def _item_of_class(k: Observer, x: Any, key: Any) -> Any:
    found = lookup.find(k, type(x), "__getitem__")
    if found is MISSING:
        return k.call(lookup.read(k, x, "__class_getitem__"), key) if hasattr(x, "__class_getitem__") else x[key]
    return k.call(found, x, key)


def _item_of_object(k: Observer, x: Any, key: Any) -> Any:
    o = k.observation
    kind = type(x)
    found = lookup.call_own(k, x, "__getitem__", key)
    if found is not MISSING:
        return found
    if isinstance(x, dict):
        o.entry(x, key, dict.get(x, key, MISSING), item_of(x, key))
        missing = MISSING if dict.__contains__(x, key) else lookup.call_own(k, x, "__missing__", key)
        return x[key] if missing is MISSING else missing
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
    value = _followed(k, x, key, value)
    key = key if issubclass(kind, np.ndarray) else settled(key, "a key")
    if o.off or cards.reads(o.tape, "an assignment to items", x):
        _native(x, key, value)
    elif issubclass(kind, np.ndarray):
        operations.set_item(k, x, key, value)
    elif type(value) is np.ndarray and _is_there(o, x, key, value):
        read(k, x, key)  # as after `x[key] += 1`
    elif kind not in MUTABLE and lookup.call_own(k, x, "__delitem__" if deletes else "__setitem__", key, *(
            () if deletes else (value,))) is not MISSING:
        return
    elif isinstance(x, dict):
        if deletes and kind in MUTABLE:
            o.presence(x, key, item_of(x, key))
        effect = o.changing(x)
        _native(x, key, value)
        if effect:
            o.stored(x, key, value, item_of(x, key))
    elif kind in MUTABLE:
        if type(key) is int:
            length(k, x)
        elif not deletes:
            value = list(iterate(k, value))
        effect = o.changing(x)
        _native(x, key, value)
        if effect:
            o.changed(discard_item if deletes else store, x, (key,) if deletes else (key, value), name_of(x))
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


def _followed(k: Observer, x: Any, key: Any, value: Any) -> Any:
    """Return a value that is about to be stored, with plain numbers where those of ``x`` cannot be followed."""
    o, kind = k.observation, type(x)
    if issubclass(kind, np.ndarray):
        return value
    if kind not in _FOLLOWING or type(key) is slice or o.off:
        return settled(value, "a store")
    o.holds(value, functools.partial(settle, x))
    return value


def _is_there(o: Any, x: Any, key: Any, value: Any) -> bool:
    """Whether an array from outside is an item of a list or a dictionary from outside already."""
    if not (o.is_outside(x) and o.owns(value)):
        return False
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


def iterate(k: Observer, x: Any) -> Iterable[Any]:
    """Return an iterable over the items of a value, observed."""
    o = k.observation
    kind = type(x)
    if o.off or kind in (tuple, str, bytes, range, frozenset) or cards.reads(o.tape, "iteration", x):
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
    if isinstance(x, tuple) or o.is_fresh(x):
        return x
    if step is not MISSING:
        o.note(f"a {kind.__name__} {NOT_GONE_ON}")
        return x
    look(k, x)
    if o.is_outside(x) and not isinstance(x, (tuple, frozenset)):
        o.note(f"a {kind.__name__} is iterated over, which is not observed")
    return x


def _of_variable(k: Observer, x: Any) -> Iterable[Any]:
    for i in range(len(x)):
        yield k.of_variables(type(x).__getitem__, x, i)


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
        _look_at_item(k, x, item)
        return item in x
    own = lookup.call_own(k, x, "__contains__", item)
    if own is not MISSING:
        return truth(k, own)
    if issubclass(type(item), (np.ndarray, Variable)) or issubclass(type(x), (np.ndarray, Variable)):
        if issubclass(type(x), np.ndarray):
            operations.read_elements(k, x, "in")
        else:
            identity(k, item, x)
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
    own = MISSING if issubclass(kind, Variable) else lookup.call_own(k, x, "__len__")
    if own is not MISSING:
        return own
    if not isinstance(x, (np.ndarray, Variable, tuple, str, bytes, range, frozenset, *_VIEWS)) and hasattr(
            kind, "__len__"):
        k.observation.length(x, name_of(x))
    return len(x)


def truth(k: Observer, x: Any) -> bool:
    """Return the truth of a value, observed."""
    o, kind = k.observation, type(x)
    if kind in IMMUTABLE or o.off or isinstance(x, (tuple, frozenset, np.generic)):
        return bool(x)
    if cards.reads(o.tape, "bool()", x):
        return bool(x)
    if issubclass(type(x), np.ndarray):
        return operations.read_number(k, bool, x, "__bool__()")
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


def identity(k: Observer, a: Any, b: Any) -> None:
    """Take note that the identities of two objects are compared."""
    if a is None or b is None:
        return
    o = k.observation
    for x, y in ((a, b), (b, a)):
        if o.is_argument(x):
            o.note("a list or dictionary that is an argument is compared by `is`, and is another one in every call")
        if all(issubclass(type(z), (np.ndarray, Variable)) for z in (x, y)) and (
                o.tape.is_argument(x) and o.tape.is_from_outside(y)):
            o.note("an argument is compared by `is` with an object from outside, which may be another one in every "
                   "call")


def total(k: Observer, items: Any, start: Any = 0) -> Any:
    """``sum``: numbers are added up first, anything else by its operator."""
    numbers: list[Any] = []
    rest = iter(iterate(k, items))
    for x in rest if isinstance(start, _SUMMED) else ():
        if not isinstance(x, _SUMMED):
            start, numbers = k.binary("+", _total_of(k, start, numbers), x), []
            break
        numbers.append(x)
    start = _total_of(k, start, numbers)
    for x in rest:
        start = k.binary("+", start, x)
    return start


def _total_of(k: Observer, start: Any, numbers: list[Any]) -> Any:
    """Add up numbers: from Python 3.12 on what rounding loses of three floats or more is added at the end."""
    if not any(isinstance(x, ComputedNumber) for x in (start, *numbers)):
        return sum(numbers, start)
    if sys.version_info >= (3, 12) and len(numbers) > 1 + (type(start) is int):
        found = of_python(k.observation.tape, _sum_of, (start, *numbers))
        if found is not NotImplemented:
            return found
    for x in numbers:
        start = k.binary("+", start, x)
    return start


def _sum_of(start: Any, *numbers: Any) -> Any:
    return sum(numbers, start)

