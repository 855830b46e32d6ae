"""Attributes as a traced call reads, stores and deletes them: Python's own lookup, with each step observed.

The rules are those of the language reference ("Invoking descriptors", "Customizing attribute access"). Functions of
Python that the lookup calls (properties, ``__getattr__``, descriptors) are called through the observer.
"""
from __future__ import annotations

import builtins
import functools
import sys
import threading
import types
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import numpy as np

from ....backends.cuda import is_of_cupy
from ....configuration import GlobalConfig, LocalConfig, config
from ....link import Link
from ....link.namespace import Attributed, entries_of
from ....link.walk import watch_module
from ....parameter import Parameter
from ....variable import Variable
from ...arrays import cards
from ...computed_numbers import settled
from ...guards import changing
from ...guards.guard import MISSING
from ...trees import SCALARS
from .. import in_place
from ..contents import left_by_forward
from ..copies.scope import stored_attributes
from ..observation import Observation, is_ours
from . import operations

if TYPE_CHECKING:
    from .observer import Observer

_HEAP_TYPE = 1 << 9  # of a class's flags: its attributes may be assigned
_PLAIN = (*SCALARS, tuple, frozenset, range, slice, type(Ellipsis), np.dtype, np.ufunc, types.BuiltinFunctionType,
          types.CodeType, types.MethodDescriptorType, types.WrapperDescriptorType, types.MethodWrapperType,
          types.ClassMethodDescriptorType, types.GetSetDescriptorType, types.MemberDescriptorType,
          type(NotImplemented), list, dict, set, bytearray, type({}.keys()), type({}.values()), type({}.items()),
          types.MappingProxyType)
_STATIC_OF_VARIABLES = frozenset(("shape", "dtype", "ndim", "size", "xp", "device", "requires_grad", "layout"))
_TYPE = ("shape", "dtype", "ndim", "size")
_CHANGING = frozenset(("cleargrad", "zerograd", "addgrad", "copydata", "unchain", "unchain_backward", "to_cpu",
                       "to_gpu", "to_device", "to_chx", "from_chx", "set_creator", "set_creator_node", "update"))


def read(k: Observer, x: Any, name: str) -> Any:
    """Return ``x.name``, observed."""
    return getattr(x, name) if k.observation.off else reader_of(type(x))(k, x, name)


@functools.lru_cache(maxsize=1024)
def reader_of(kind: type) -> Callable[[Observer, Any, str], Any]:
    """Return the function that reads attributes of objects of a class."""
    if kind in _PLAIN:
        return _of_plain
    if is_of_cupy(kind) and hasattr(kind, "__cuda_array_interface__"):
        return _of_card
    if kind is super:
        return _of_super
    return next((reader for base, reader in _READERS if issubclass(kind, base)), _of_instance)


def _of_plain(k: Observer, x: Any, name: str) -> Any:
    return getattr(x, name)


def _of_card(k: Observer, x: Any, name: str) -> Any:
    """Read an attribute of an array of a card; methods and views are reads of its elements."""
    if name not in cards.FREE:
        cards.reads(k.observation.tape, f"the attribute {name}", x)
    return getattr(x, name)


def _of_config(k: Observer, x: Any, name: str) -> Any:
    o = k.observation
    value = getattr(x, name, MISSING)
    value = o.setting(name, value) if x is config else o.attribute(x, name, value, f"global_config.{name}")
    return getattr(x, name) if value is MISSING else value


def find(k: Observer, kind: type, name: str, classes: tuple[type, ...] | None = None) -> Any:
    """Return the attribute of a name in the classes of a type, MISSING if there is none; observed."""
    value, cls, passed = _search(kind.__mro__ if classes is None else classes, name)
    _note_class(k.observation, value, cls, passed, name)
    return value


def call_own(k: Observer, x: Any, name: str, *args: Any, **kwargs: Any) -> Any:
    """Call a special method of an object that is written in Python; MISSING if it has no such one."""
    found = find(k, type(x), name)
    return k.call(found, x, *args, **kwargs) if isinstance(found, types.FunctionType) else MISSING


def _search(classes: tuple[type, ...], name: str) -> tuple[Any, type | None, tuple[type, ...]]:
    """Return the attribute of a name in classes, the class that has it, and the user's classes before that."""
    for i, cls in enumerate(classes):
        if name in cls.__dict__:
            return cls.__dict__[name], cls, _users_before(classes)[i]
    return MISSING, None, _users_before(classes)[-1]


@functools.lru_cache(maxsize=1024)
def _users_before(classes: tuple[type, ...]) -> list[tuple[type, ...]]:
    """Return the user's classes before each of some, and among all."""
    return [tuple(filter(_is_users, classes[:i])) for i in range(len(classes) + 1)]


def _note_class(o: Observation, value: Any, cls: type | None, passed: tuple[type, ...], name: str) -> None:
    if o.off:
        return
    for other in passed:
        _class_entry(o, other, name, MISSING)
    if cls is not None and (name == "forward" or _may_change(cls)):
        _class_entry(o, cls, name, value)


def _class_entry(o: Observation, cls: type, name: str, value: Any) -> None:
    o.entry(cls.__dict__, name, value, f"{cls.__name__}.{name}", identity=cls)


@functools.lru_cache(maxsize=1024)
def _is_users(cls: type) -> bool:
    """Whether a class may get attributes while a program runs: neither a built-in one nor one of libraries."""
    module = str(cls.__module__)
    return bool(cls.__flags__ & _HEAP_TYPE) and not is_ours(module) and (
        module.partition(".")[0] not in sys.stdlib_module_names or module == "__main__")


@functools.lru_cache(maxsize=1024)
def _may_change(cls: type) -> bool:
    """Whether all attributes of a class are compared: not of built-in classes, and not of ours."""
    return bool(cls.__flags__ & _HEAP_TYPE) and not is_ours(cls.__module__)


def _of_instance(k: Observer, x: Any, name: str) -> Any:
    own = type(x).__getattribute__
    if own is not object.__getattribute__:
        own = find(k, type(x), "__getattribute__")
        if isinstance(own, types.FunctionType):
            return k.call(own, x, name)
        if own is not types.FunctionType.__getattribute__ and own is not types.MethodType.__getattribute__:
            return _native_attribute(k.observation, x, name)
    return read_own(k, x, name)


def read_own(k: Observer, x: Any, name: str) -> Any:
    """Read an attribute as ``object.__getattribute__`` does."""
    o = k.observation
    kind = type(x)
    if name == "__class__":
        _class_of(o, x)
        return x.__class__
    found, cls, passed = _search(kind.__mro__, name)
    if found is not MISSING and _is_data_descriptor(found):
        _note_class(o, found, cls, passed, name)
        if o.is_outside(x):
            _class_of(o, x)
        return _of_data_descriptor(k, found, x, kind, name)
    entries = entries_in(x)
    if entries is not None and o.is_outside(x):
        _class_of(o, x)
        if (versioned := "attributes" if issubclass(type(x), Link) else None) is not None:
            o.links[id(x)] = x
        if name in entries:
            value = entries[name]
            if type(value) is np.ndarray and issubclass(type(x), Link):
                replaced = not o.is_stored(entries, name) and (
                    name in stored_attributes(getattr(k, "_code", None)) or name in x._persistent and (
                        id(entries), name) in o.followed)
                if name in x._persistent or replaced:
                    return o.persistent(x, name, value, replaced)
            return changing.entry(o, entries, name, value, f"{kind.__name__}.{name}", versioned, kind)
        is_special = name.startswith("__") and name.endswith("__")
        if not is_special or issubclass(type(x), Link):
            o.entry(entries, name, MISSING, f"{kind.__name__}.{name}", versioned)
    elif entries is not None and name in entries:
        return left_by_forward(o, x, name, entries[name])
    _note_class(o, found, cls, passed, name)
    if found is MISSING:
        return _of_getattr(k, x, name)
    return bind(k, found, x, kind)


def _of_getattr(k: Observer, x: Any, name: str) -> Any:
    """Read an attribute that is nowhere: ``__getattr__`` may give it."""
    found = call_own(k, x, "__getattr__", name)
    return getattr(x, name) if found is MISSING else found


def _of_data_descriptor(k: Observer, found: Any, x: Any, kind: type, name: str) -> Any:
    if name == "__dict__" and (type(found) is types.GetSetDescriptorType or isinstance(x, Attributed)):
        return left_by_forward(k.observation, x, name, x.__dict__)
    if type(found) is property or isinstance(find(k, type(found), "__get__"), types.FunctionType):
        return bind(k, found, x, kind)
    return _native_attribute(k.observation, x, name)


def _native_attribute(o: Observation, x: Any, name: str) -> Any:
    """Return an attribute that code in C finds, or raise as it does."""
    value = getattr(x, name, MISSING)
    if getattr(value, "__self__", MISSING) is x:
        return value  # a method, made anew at each lookup
    o.attribute(x, name, value, f"{type(x).__name__}.{name}")
    return getattr(x, name) if value is MISSING else value


def _class_of(o: Observation, x: Any) -> None:
    """Note that the class of an object counts, where it may be assigned."""
    if _is_users(type(x)):
        o.kind(x)


def entries_in(x: Any) -> dict[str, Any] | None:
    """Return the namespace of an object, if it has one."""
    try:
        found = entries_of(x) if isinstance(x, Attributed) else object.__getattribute__(x, "__dict__")
    except AttributeError:
        return None
    return found if isinstance(found, dict) else None


def _is_data_descriptor(found: Any) -> bool:
    kind = type(found)
    return hasattr(kind, "__set__") or hasattr(kind, "__delete__")


def bind(k: Observer, found: Any, x: Any, kind: type) -> Any:
    """Return a class attribute as bound to an object: a bound method, or the result of its ``__get__``.

    Without an object, which is None then, it is bound to the class ``kind``.
    """
    of_found = type(found)
    if of_found is types.FunctionType:
        return found if x is None else types.MethodType(found, x)
    if of_found is staticmethod:
        return found.__func__
    if of_found is classmethod:
        return types.MethodType(found.__func__, kind)
    if of_found is property and x is not None and found.fget is not None:
        return k.call(found.fget, x)
    getter = find(k, of_found, "__get__")
    if getter is MISSING:
        return found
    return k.call(getter, found, x, kind) if isinstance(getter, types.FunctionType) else getter(found, x, kind)


def _of_class(k: Observer, x: type, name: str) -> Any:
    meta = type(x)
    if meta is not type and (own := call_own(k, x, "__getattribute__", name)) is not MISSING:
        return own
    of_meta = find(k, meta, name)
    if of_meta is not MISSING and _is_data_descriptor(of_meta):
        if type(of_meta) is property:
            return bind(k, of_meta, x, meta)
        return getattr(x, name) if name == "__dict__" or not x.__flags__ & _HEAP_TYPE else _native_attribute(
            k.observation, x, name)
    found = find(k, x, name)
    if found is not MISSING:
        value = bind(k, found, None, x)
        if value is found:
            k.observation.found(value, f"{x.__name__}.{name}")
        return value
    return bind(k, of_meta, x, meta) if of_meta is not MISSING else _of_getattr(k, x, name)


def _of_super(k: Observer, x: Any, name: str) -> Any:
    this, start, self = x.__thisclass__, x.__self_class__, x.__self__
    if self is None or name == "__class__":
        return getattr(x, name)
    order = start.__mro__
    found = find(k, start, name, order[order.index(this) + 1:])
    return getattr(x, name) if found is MISSING else bind(k, found, None if self is start else self, start)


def _of_module(k: Observer, x: types.ModuleType, name: str) -> Any:
    entries, ours = x.__dict__, is_ours(x.__name__)
    if name in entries and k.is_ours and not ours:
        return entries[name]
    if ours:
        if name not in entries:
            hasattr(x, name)  # loads what is loaded when it is first read, so that the guard has that
        watch_module(x)
    value = k.observation.entry(entries, name, entries.get(name, MISSING), f"{x.__name__}.{name}",
                                "modules" if ours else None)
    if value is not MISSING:
        return value
    missing = entries.get("__getattr__")
    return k.call(missing, name) if isinstance(missing, types.FunctionType) and not ours else getattr(x, name)


def _of_variable(k: Observer, x: Any, name: str) -> Any:
    o = k.observation
    kind = type(x)
    if name.startswith("__"):
        return getattr(x, name)
    if not is_ours(kind.__module__):
        o.note(f"{kind.__name__} is a class derived from Variable, whose attributes are not observed")
        return getattr(x, name)
    is_parameter = issubclass(kind, Parameter)
    if name in ("array", "data", "raw_array"):
        if is_parameter:
            _data_of_parameter(o, x)
        return o.tape.take(x)
    if name in _STATIC_OF_VARIABLES or o.off:
        _note_type(k, x, name)
        return getattr(x, name)
    if name in _CHANGING and (is_parameter or not o.tape.is_computed(x)):
        o.note(f"{name}() of a Variable that the call has not computed changes it, which replays would not repeat; "
               "do it outside")
    found = getattr(kind, name, MISSING)
    if isinstance(found, types.FunctionType):
        return types.MethodType(found, x)
    value = _of_parameter(o, x, name, found) if is_parameter else MISSING
    if value is not MISSING:
        return value
    if name != "name" or not o.tape.is_computed(x):
        o.note(f".{name} of a Variable may be read or stored, which replays would not repeat; do it outside")
    return getattr(x, name)


def _note_type(k: Observer, x: Any, name: str) -> None:
    o = k.observation
    if issubclass(type(x), Parameter):
        _data_of_parameter(o, x)
        if not k.is_ours and name in _TYPE and x._array is not None and o.is_outside_part(x):
            o.attribute(x, name, getattr(x, name), f"the {name} of the parameter {x.name}")
    elif (name in _TYPE or name == "requires_grad") and not o.tape.is_computed(x) and not o.tape.is_argument(x):
        o.attribute(x, name, getattr(x, name), f"the {name} of a Variable")


def _of_parameter(o: Observation, x: Any, name: str, found: Any) -> Any:
    """Return an attribute that is no method, of which ``found`` is in the class; MISSING where replays would differ."""
    if name in ("is_initialized", "_array"):
        _data_of_parameter(o, x)
        return getattr(x, name)
    if not o.is_outside_part(x):  # of a link that the call makes
        return MISSING
    if name in ("name", "update_rule", "initializer", "is_static"):
        return o.attribute(x, name, getattr(x, name), f"the {name} of the parameter {x.name}")
    if name in x.__dict__ and not isinstance(found, property):
        return o.entry(x.__dict__, name, x.__dict__[name], f"Parameter.{name}")
    return MISSING


def _has_array(x: Any) -> bool:
    return x._array is not None


def _data_of_parameter(o: Observation, x: Parameter) -> None:
    """Note that a parameter has no array yet, if so."""
    if o.is_outside_part(x) and x._array is None:
        o.called_again(_has_array, (x,), False, f"whether {x.name} is initialized")


_READERS: tuple[tuple[Any, Callable[[Observer, Any, str], Any]], ...] = (
    (np.ndarray, operations.attribute), ((np.generic, np.dtype), _of_plain), (Variable, _of_variable),
    (types.ModuleType, _of_module), (type, _of_class), ((LocalConfig, GlobalConfig), _of_config))


# -- stores and deletions ------------------------------------------------------------------------------------------


def write(k: Observer, x: Any, name: str, value: Any) -> None:
    """Store ``x.name = value``, observed; ``value`` MISSING deletes."""
    o = k.observation
    if o.off:
        _native(x, name, settled(value, name))
        return
    deletes, kind = value is MISSING, type(x)
    special = "__delattr__" if deletes else "__setattr__"
    if cards.reads(o.tape, f"an assignment to the attribute {name}", x):
        _native(x, name, value)
        return
    if issubclass(type(x), np.ndarray):
        operations.set_attribute(k, x, name, settled(value, name))
        return
    if issubclass(type(x), Variable):
        if issubclass(type(x), Parameter) and name in ("array", "data", "raw_array") and in_place.put(o.tape, x, value):
            return
        _native(x, name, settled(value, name))
        o.note(f".{name} of a Variable may be read or stored, which replays would not repeat; do it outside")
        return
    if isinstance(x, (LocalConfig, GlobalConfig)):
        o.note(f"config.{name} changes inside the static function, which replays cannot repeat; use using_config")
        _native(x, name, settled(value, name))
        return
    if isinstance(x, (types.ModuleType, type)):
        o.holds(value, functools.partial(_settle, x, name, value))
        _native(x, name, value)
        of_class: Any = (x, (delattr if deletes else setattr, (x, name))) if issubclass(type(x), type) else ()
        o.stored(x.__dict__, name, value, f"{x.__name__}.{name}", *of_class)
        return
    setter = find(k, kind, special)
    if isinstance(setter, types.FunctionType) and not is_ours(setter.__module__):
        k.call(setter, x, name, *(() if deletes else (value,)))
        return
    write_own(k, setter, x, name, value)


def write_own(k: Observer, setter: Any, x: Any, name: str, value: Any) -> None:
    """Store with ``setter``, which is that of ``object``, of another class in C or of links."""
    o, kind = k.observation, type(x)
    deletes, what = value is MISSING, f"{kind.__name__}.{name}"
    stores = setter if setter is object.__setattr__ else setattr  # the former for a frozen object's slots
    o.holds(value, functools.partial(_settle, x, name, value, stores))
    by: Any = (functools.partial(_delete, x, name), ()) if deletes else (stores, (x, name))
    if isinstance(x, threading.local):
        _native(x, name, value)
        o.stored(x, name, value, what, None, by)
        return
    found = find(k, kind, name)
    if found is not MISSING and _is_data_descriptor(found):
        if type(found) is property and not deletes and found.fset is not None:
            k.call(found.fset, x, value)
            return
        setter = find(k, type(found), "__delete__" if deletes else "__set__")
        if isinstance(setter, types.FunctionType):
            k.call(setter, found, x, *(() if deletes else (value,)))
            return
        value = settled(value, name)
        _native(x, name, value, stores)
        o.stored(x, name, value, what, None, by)
        return
    entries = entries_in(x)
    if _is_there(o, entries, name, value):  # as after `self.total += x`
        setter(x, name, value)
        return
    if deletes and entries is not None and o.is_outside(x):
        o.presence(entries, name, what)
    setter(x, name, *(() if deletes else (value,)))
    if entries is not None and not o.is_fresh(x):
        o.stored(x if o.is_argument(x) else entries, name, value, what)
        if not o.is_argument(x):
            o.stored_in(x, entries, name)


def _is_there(o: Observation, entries: dict[str, Any] | None, name: str, value: Any) -> bool:
    """Whether an array is stored where it is, and was before the call."""
    if type(value) is not np.ndarray or entries is None or entries.get(name) is not value or (
            o.is_stored(entries, name) or not (o.owns(value) or o.tape.is_state(value))):
        return False
    place = o.tape.state_entry(value)
    if place is None or place[0] is not entries or place[1] != name:
        o.entry(entries, name, value, name)
    return True


def _settle(x: Any, name: str, value: Any, stores: Callable[[Any, str, Any], None] = setattr) -> None:
    """Put plain numbers into an attribute or a slot, if it still has a value that the call has stored."""
    with suppress(AttributeError):  # it may be gone
        if object.__getattribute__(x, name) is value:
            stores(x, name, settled(value, name))


def _delete(x: Any, name: str) -> None:
    with suppress(AttributeError):
        delattr(x, name)


def _native(x: Any, name: str, value: Any, stores: Callable[[Any, str, Any], None] = setattr) -> None:
    if value is MISSING:
        delattr(x, name)
    else:
        stores(x, name, value)


# -- names ---------------------------------------------------------------------------------------------------------


def read_global(k: Observer, entries: dict[str, Any], name: str) -> Any:
    """Return a global or built-in name of a function, observed."""
    o = k.observation
    ours = is_ours(entries.get("__name__"))
    if name in entries:
        value = entries[name]
        if ours:
            module = sys.modules.get(entries["__name__"])
            if module is not None:
                watch_module(module)
        return changing.entry(o, entries, name, value, f"the global {name}", "modules" if ours else None)
    own = entries.get("__builtins__", builtins)
    holder = own if isinstance(own, dict) else vars(own)
    if ours and name in holder:
        return holder[name]
    if name not in holder:
        o.entry(entries, name, MISSING, f"the global {name}")
        o.entry(holder, name, MISSING, f"the built-in {name}")
        raise NameError(f"name {name!r} is not defined", name=name)
    o.entry(entries, name, MISSING, f"the global {name}")
    return o.entry(holder, name, holder[name], f"the built-in {name}")


