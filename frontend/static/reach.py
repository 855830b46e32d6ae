"""Which code a static function can reach, and which names that code reads and stores: found by walking, not by running.

The walk is by name. A method is reached when an object is reached and some reached code reads that name; so it goes
round until nothing new turns up. Code of the library itself only says which attributes of links it reads.

Invariant: what is found is in the same order in every process (names go by the alphabet, not by their hashes), for that
is the order in which a graph hands out what a call has stored.
"""
from __future__ import annotations

import array
import collections
import contextvars
import functools
import operator
import random
import sys
import weakref
from types import BuiltinFunctionType, FunctionType, MappingProxyType, MethodType, ModuleType
from typing import Any

import numpy as np

from .. import functions
from ..configuration import config
from ..function import Function
from ..function_node import FunctionNode
from ..link import Link
from ..link.walk import Watched
from ..parameter import Parameter
from ..tape import static_function
from ..utils.sparse import CooMatrix
from ..variable import Variable
from .code_names import identifiers, imports_of, looks_anywhere, names_in, of_variables, reads_states
from .definite_assignment import is_fresh, read_from_before

object.__setattr__(functions, "__class__", Watched)  # replaced functions are seen from now on

LARGEST_CONTAINER = 2048  # items; of larger ones only the identity counts
MOST_OBJECTS = 5000      # a walk that gets out of hand ends here
_FOREIGN = frozenset(sys.stdlib_module_names) | {"numpy", "cupy", "scipy", "kusari", "chainer"}
_IMPLICIT = frozenset(("forward", "__call__"))
_NOT_IN_CALLS = frozenset((
    "__init__", "__new__", "__repr__", "__str__", "__getstate__", "__setstate__", "__reduce__", "__reduce_ex__",
    "__deepcopy__", "__copy__", "__del__", "__init_subclass__", "__class_getitem__", "__subclasshook__"))
_BOOKKEEPING = frozenset((
    "_params", "_persistent", "_within_init_scope", "_device", "_local_link_hooks", "__dict__", "__class__"))
_DYNAMIC = frozenset(("getattr", "vars", "__dict__", "eval", "exec", "locals", "globals", "__getattribute__"))
_VIEWS = (type({}.keys()), type({}.values()), type({}.items()))
_CONTAINERS = (list, tuple, dict, set, frozenset, collections.deque, array.array, bytearray, MappingProxyType, *_VIEWS)
_WRAPPERS = frozenset(("collections", "weakref", "queue"))  # whose objects keep a container in an attribute
_BEHIND = frozenset(("node", "creator", "creator_node", "inputs"))  # where a graph keeps arrays, as ``data``
_WALKERS = frozenset(("children", "links", "params", "namedlinks", "namedparams", "_children", "_params"))


class _Missing:
    """Stands for a value that is not there."""

    def __repr__(self) -> str:
        return "nothing"


MISSING = _Missing()


def is_foreign(module: str | None) -> bool:
    """Whether a module is not the user's, so that its globals stay what they are."""
    return (module or "").partition(".")[0] in _FOREIGN


class Members:
    """The attributes of an object with ``__slots__`` as a namespace."""

    def __init__(self, x: Any) -> None:
        self._x = x

    def keys(self) -> set[str]:
        """The names of the slots."""
        found: set[str] = set()
        for cls in type(self._x).__mro__:
            slots = vars(cls).get("__slots__", ())
            found |= {slots} if isinstance(slots, str) else set(slots)
        return found

    def get(self, name: str, default: Any = None) -> Any:
        """The value of a slot."""
        return getattr(self._x, name, default)

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and hasattr(self._x, name)

    def __getitem__(self, name: str) -> Any:
        return getattr(self._x, name)


class Space:
    """A namespace with the names that reached code may read and store in it; ``values`` as they are now."""

    def __init__(self, holder: Any, what: str, identity: Any) -> None:
        self.holder = holder
        self.identity = identity
        self.what = what
        self.loads: set[str] = set()
        self.stores: set[str] = set()
        self.values: dict[str, Any] = {}

    def read(self, name: str) -> Any:
        """Note that ``name`` is read; returns its value now."""
        self.loads.add(name)
        return self.values.setdefault(name, self.holder.get(name, MISSING))

    def store(self, name: str) -> None:
        """Note that ``name`` is stored."""
        self.stores.add(name)
        self.values.setdefault(name, self.holder.get(name, MISSING))


class Reached:
    """What a walk has found so far; it may be taken up again with more roots."""

    def __init__(self) -> None:
        self.objects: dict[int, Any] = {}
        self.links: dict[int, Any] = {}
        self.functions: dict[int, FunctionType] = {}
        self.loads: set[str] = set(_IMPLICIT)
        self.stores: set[str] = set()
        self.own_loads: set[str] = set()  # by the user's code
        self.from_before: set[str] = set()  # the loads that may find what was there before the call
        self.probed: set[str] = set()  # names in strings of it, which may be asked for where they are not
        self.dynamic = False
        self.spaces: dict[int, Space] = {}
        self.cells: dict[int, tuple[Any, str]] = {}
        self.containers: dict[int, tuple[Any, str]] = {}
        self.generators: dict[int, tuple[Any, str]] = {}
        self.iterators: dict[int, tuple[Any, str]] = {}
        self.contexts: dict[int, tuple[Any, str]] = {}
        self.config_names: set[str] = set()
        self.arrays: dict[int, tuple[Any, str]] = {}  # where code could read elements
        self.variables: dict[int, Variable] = {}
        self.users: list[FunctionType] = []  # the functions that are not the library's
        self.asks_type: FunctionType | None = None  # one that may ask for the type of an array
        self.gradients: list[tuple[FunctionType, str]] = []  # what may be read or stored of Variables, and by whom
        self.behind: FunctionType | None = None  # one that may look for arrays in the graph
        self.anywhere: tuple[FunctionType, str] | None = None  # one that may read what it does not name, and by what
        self.reads_states: FunctionType | None = None  # one that may read the state of a generator
        self.imports: set[str] = set()  # modules of the user's that are imported when they are needed

    def space(self, holder: Any, what: str, identity: Any = None) -> Space:
        """Return the space of a namespace; ``identity`` is what stands for it where views of it are made anew."""
        identity = holder if identity is None else identity
        found = self.spaces.get(id(identity))
        if found is None:
            found = self.spaces[id(identity)] = Space(holder, what, identity)
        return found


def reach(reached: Reached, roots: list[Any]) -> None:
    """Walk from ``roots`` until nothing new is found."""
    for root in roots:
        if not isinstance(root, np.ndarray):
            _value(reached, root, "an argument")
    size = -1
    while size != (size := _size(reached)) and len(reached.objects) < MOST_OBJECTS:
        for x in list(reached.objects.values()):
            _members(reached, x)
    _absent(reached)
    space = reached.space(vars(functions), "kusari.functions.")
    for name in reached.own_loads & vars(functions).keys():
        space.read(name)


def _absent(reached: Reached) -> None:
    """Note which names the user's code asks its own links and objects for that are not there: they may come."""
    there = {name for space in reached.spaces.values() for name in space.loads if space.values[name] is not MISSING}
    nowhere = {n for n in reached.own_loads - there - _usual() if not n.startswith("__")}
    for x in list(reached.objects.values()):
        if isinstance(x, (type, ModuleType, *_CONTAINERS)) or is_foreign(type(x).__module__) or not isinstance(
                getattr(x, "__dict__", None), dict):
            continue
        for name in sorted(reached.probed | nowhere if isinstance(x, Link) else reached.probed):
            if name not in x.__dict__ and not any(name in vars(c) for c in type(x).__mro__):
                reached.space(x.__dict__, f"{type(x).__name__}.").read(name)
                for cls in type(x).__mro__ if name in reached.probed else ():
                    if not is_foreign(cls.__module__):
                        reached.space(vars(cls), f"{cls.__name__}.", cls).read(name)


@functools.cache
def _usual() -> frozenset[str]:
    """The names of what is no attribute of a link: methods of arrays and containers, functions of modules."""
    kinds: tuple[Any, ...] = (Variable, Parameter, np.ndarray, np.dtype, list, dict, str, Link, np, functions)
    return frozenset(name for kind in kinds for name in dir(kind))


def _size(reached: Reached) -> tuple[int, ...]:
    return (len(reached.objects), len(reached.functions), len(reached.loads), len(reached.stores),
            len(reached.containers), len(reached.from_before), reached.dynamic)


def _value(reached: Reached, x: Any, what: str) -> None:
    """Take in a value that code can get hold of."""
    kind = type(x)
    if x is None or x is MISSING or kind in (bool, int, float, complex, str, bytes) or id(x) in reached.objects:
        return
    if isinstance(x, np.ndarray):
        reached.arrays.setdefault(id(x), (x, what))
        if x.dtype.hasobject and x.size <= LARGEST_CONTAINER:
            reached.objects[id(x)] = x
            for item in x.flat:
                _value(reached, item, what)
        return
    if isinstance(x, (Variable, np.generic, np.dtype)):
        if isinstance(x, Variable):
            reached.variables[id(x)] = x
        return
    # Objects are not asked for attributes that they may not have: they may do anything then.
    if kind is FunctionType and "is_static_code" in x.__dict__:
        return  # replays run it
    if kind is FunctionType and (static := static_function(x)) is not None:
        _value(reached, static.fn, what)
    elif isinstance(x, FunctionType):
        _function(reached, x)
    elif isinstance(x, MethodType):
        _value(reached, x.__func__, what)
        _value(reached, x.__self__, what)
    elif isinstance(x, functools.partial):
        for part in (x.func, x.args, x.keywords):
            _value(reached, part, what)
    elif isinstance(x, (operator.attrgetter, operator.methodcaller)):
        made, given = x.__reduce__()[:2]
        names = (getattr(made, "args", ()) or given)[:None if kind is operator.attrgetter else 1]
        reached.loads |= (names := {part for name in names for part in name.split(".")})
        reached.own_loads |= names
        reached.from_before |= names
    elif isinstance(x, contextvars.ContextVar):
        reached.contexts[id(x)] = (x, what)
        _value(reached, x.get(None), what)
    elif isinstance(x, weakref.ref):
        _value(reached, x(), what)
    elif kind in (weakref.ProxyType, weakref.CallableProxyType):
        _value(reached, x.__repr__.__self__, what)
    elif isinstance(x, functools.cached_property):
        _value(reached, x.func, what)
    elif kind is memoryview or "_ctypes" in [c.__module__ for c in kind.__mro__]:
        try:
            shown = np.frombuffer(x, np.uint8)  # what it shows now, whenever that is
        except (TypeError, ValueError, BufferError):
            return
        reached.objects[id(x)] = x
        reached.arrays[id(shown)] = shown, what
    elif isinstance(x, _CONTAINERS):
        if len(x) > LARGEST_CONTAINER:
            return
        reached.objects[id(x)] = x
        if not isinstance(x, (tuple, frozenset)):
            reached.containers[id(x)] = (x, what)
        if not isinstance(x, (array.array, bytearray)):
            for item in x.values() if isinstance(x, (dict, MappingProxyType)) else x:
                _value(reached, item, what)
    elif kind.__module__ in _WRAPPERS and hasattr(x, "__dict__"):
        reached.objects[id(x)] = x
        for inner in vars(x).values():
            if isinstance(inner, _CONTAINERS):
                _value(reached, inner, what)
    elif isinstance(x, (np.random.RandomState, np.random.Generator, random.Random)):
        reached.generators[id(x)] = (x, what)
    elif x is random:
        reached.generators[id(x)] = (x, "the module random")
    elif kind.__module__ in ("builtins", "itertools") and hasattr(kind, "__next__"):
        reached.iterators[id(x)] = (x, what)
    elif isinstance(x, ModuleType):
        if not is_foreign(x.__name__):
            reached.objects[id(x)] = x
    elif isinstance(x, BuiltinFunctionType):
        if isinstance(x.__self__, (np.random.RandomState, np.random.Generator, random.Random)) and \
                x.__self__ is not np.random.rand.__self__:  # the global one is seen to for all code
            _value(reached, x.__self__, what)
    elif isinstance(x, Link) or (
            (hasattr(x, "__dict__") or hasattr(kind, "__slots__"))
            and (kind is CooMatrix or not kind.__module__.startswith(("kusari", "numpy")))
            and not (isinstance(x, type) and is_foreign(x.__module__))):
        reached.objects[id(x)] = x
        if isinstance(x, Link):
            reached.links[id(x)] = x
        own = getattr(x, "__dict__", {})
        reached.loads |= own.keys() if kind is CooMatrix else set()  # functions of the library read all of it
        _value(reached, own.get("__wrapped__") if isinstance(own, dict) else None, what)  # of a decorator


def _function(reached: Reached, f: FunctionType) -> None:
    if id(f) in reached.functions:
        return
    reached.functions[id(f)] = f
    loads, stores, globals_read, globals_stored = names_in(f.__code__)
    reached.loads |= loads
    reached.stores |= stores
    if is_foreign(f.__module__):
        reached.from_before |= loads
        return
    reached.own_loads |= loads
    reached.from_before |= read_from_before(f.__code__) | identifiers(f.__code__)
    reached.probed |= identifiers(f.__code__)
    reached.users.append(f)
    if "type" in globals_read and "ndarray" in loads | globals_read:
        reached.asks_type = reached.asks_type or f
    if "data" in loads and loads & _BEHIND:
        reached.behind = reached.behind or f
    reached.gradients += [(f, name) for name in sorted(of_variables(f.__code__))]
    if (loads | globals_read) & _DYNAMIC:
        reached.dynamic = True
    anywhere = looks_anywhere(f.__code__)
    if anywhere is not None:
        reached.anywhere = reached.anywhere or (f, anywhere)
    if reads_states(f.__code__):
        reached.reads_states = reached.reads_states or f
    for name in imports_of(f):
        module = sys.modules.get(name)
        if module is not None:
            _value(reached, module, f"the module {name}")
        elif not is_foreign(name):
            reached.imports.add(name)
    if f.__dict__:
        reached.objects[id(f)] = f  # for its attributes
    space = reached.space(f.__globals__, "the global ")
    for name in sorted(globals_read):
        if name not in f.__globals__:
            continue
        value = f.__globals__[name]
        if value is config or getattr(value, "__name__", None) == "kusari":
            reached.config_names |= {n for n in loads if _is_entry(getattr(config, n, MISSING))
                                     and (hasattr(config, n) or n in identifiers(f.__code__))
                                     and n not in ("train", "enable_backprop", "config", "global_config")}
        if _is_watched(value):
            space.read(name)
        _value(reached, value, f"the global {name}")
    for name in globals_stored:
        space.store(name)
    for name, cell in zip(f.__code__.co_freevars, f.__closure__ or (), strict=True):
        reached.cells[id(cell)] = (cell, name)
        try:
            _value(reached, cell.cell_contents, f"the closure variable {name}")
        except ValueError:
            pass
    for value in (*(f.__defaults__ or ()), f.__kwdefaults__):
        _value(reached, value, f"a default of {f.__name__}")


def _is_plain(x: Any) -> bool:
    return x is None or isinstance(x, (bool, int, float, complex, str, bytes, tuple))


def _is_entry(x: Any) -> bool:
    """Whether something is an entry of the configuration, not a method."""
    return _is_plain(x) or isinstance(x, (type, np.dtype)) or not callable(x)


def _is_watched(x: Any) -> bool:
    """Whether a global of this kind may be given another value: all but what is imported."""
    if isinstance(x, (ModuleType, BuiltinFunctionType)):
        return False
    if isinstance(x, (FunctionType, type)):
        return not is_foreign(x.__module__)
    return not is_foreign(type(x).__module__) or _is_plain(x) or isinstance(
        x, (Link, Variable, np.ndarray, np.generic, list, dict, set))


def _members(reached: Reached, x: Any) -> None:
    """Take in what code reads of a reached object."""
    names = reached.loads - _BOOKKEEPING
    if isinstance(x, _CONTAINERS) and not is_foreign(type(x).__module__):
        _class(reached, type(x), names, None, f"{type(x).__name__}.")
    if isinstance(x, (*_CONTAINERS, np.ndarray, memoryview)) or type(x).__module__ in _WRAPPERS:
        return
    if isinstance(x, Link):
        _link(reached, x, names)
        return
    if isinstance(x, ModuleType):
        space = reached.space(x.__dict__, f"{x.__name__}.")
        _value(reached, x.__dict__.get("__getattr__"), f"{x.__name__}.__getattr__")
    elif isinstance(x, type):
        if not issubclass(x, (FunctionNode, Function)):  # replays run these
            _class(reached, x, names, None, f"{x.__name__}.")
            if not is_foreign(type(x).__module__):  # a class of the user's
                _class(reached, type(x), names, None, f"{type(x).__name__}.")
        _value(reached, getattr(x, "__init__", None), x.__name__)
        return
    elif not hasattr(x, "__dict__"):
        space = reached.space(Members(x), f"{type(x).__name__}.", x)
        if reached.dynamic:
            names = names | {n for n in space.holder.keys() if not n.startswith("__")}
        for name in sorted(names & space.holder.keys()):
            _value(reached, space.read(name), f"{space.what}{name}")
        _class(reached, type(x), names - space.holder.keys(), None, f"{type(x).__name__}.")
        for name in reached.stores & space.holder.keys():
            space.store(name)
        return
    else:
        space = reached.space(x.__dict__, f"{type(x).__name__}.")
        _class(reached, type(x), names, space, f"{type(x).__name__}.")
        if reached.dynamic:
            names = names | {k for k, v in x.__dict__.items() if isinstance(k, str) and not k.startswith("__")
                             and (_is_plain(v) or isinstance(v, (*_CONTAINERS, Link, Parameter, np.ndarray)))}
    for name in sorted(names & x.__dict__.keys()):
        value = x.__dict__[name]
        if is_fresh(reached, x, name, value):
            continue
        if not isinstance(x, ModuleType) or _is_watched(value):
            space.read(name)
        _value(reached, value, f"{space.what}{name}")
    if not isinstance(x, ModuleType):
        for name in reached.stores:
            space.store(name)


def _link(reached: Reached, x: Link, names: set[str]) -> None:
    entries = x.__dict__
    space = reached.space(entries, f"{type(x).__name__}.")
    children = entries.get("_children", ())
    keys = names & entries.keys() | x._params | (children if isinstance(children, set) else set())
    if reached.dynamic:
        keys |= {k for k, v in entries.items() if k not in _BOOKKEEPING and k not in ("name", "_children")
                 and (_is_plain(v) or isinstance(v, (Link, Parameter)))}
    for name in sorted(keys - {"_children"}):
        if name in x._persistent and isinstance(entries[name], np.ndarray):
            continue  # bound anew at every call
        if isinstance(entries[name], np.ndarray) and name not in reached.own_loads and is_foreign(type(x).__module__):
            continue  # functions of the library read it
        if is_fresh(reached, x, name, entries[name]):
            continue
        _value(reached, space.read(name), f"{space.what}{name}")
    if isinstance(children, list) or (children and names & _WALKERS):
        reached.containers[id(children)] = (children, f"the children of {type(x).__name__}")
    if isinstance(children, list):
        space.read("_children")
    for child in children if isinstance(children, list) else ():
        _value(reached, child, "a child")
    for name in reached.stores:
        space.store(name)
    _class(reached, type(x), names, space, f"{type(x).__name__}.")


def _class(reached: Reached, kind: type, names: set[str], instance: Space | None, what: str) -> None:
    """Take in the class attributes that code reads, where the instance has none of its own.

    A name is looked up in the classes in turn: those of the user that have it not might have it later.
    """
    above: list[tuple[type, Any]] = []  # the user's classes so far
    for cls in kind.__mro__:
        ours = is_foreign(cls.__module__)
        if cls is object or (ours and cls.__module__.startswith("kusari.link.")):
            continue
        members = vars(cls)
        for name in sorted((reached.stores - names) & members.keys()):
            if hasattr(type(members[name]), "__set__"):  # a property, say: storing calls code
                _value(reached, getattr(members[name], "fset", members[name]), what + name)
        found = names & members.keys()
        if not ours:
            found |= {n for n in members if n.startswith("__") and n.endswith("__") and n not in _NOT_IN_CALLS
                      and isinstance(members[n], FunctionType)}
        for name in sorted(found):
            hidden = any(name in vars(c) for c in kind.__mro__[:kind.__mro__.index(cls)])
            value = members[name]
            if hidden and name not in _IMPLICIT and not isinstance(value, FunctionType):
                continue  # hidden by a subclass, except that super() finds methods
            if isinstance(value, (staticmethod, classmethod)):
                value = value.__func__
            if not ours or (name == "forward" and issubclass(kind, Link)):
                reached.space(members, what, cls).read(name)
            for other, others in above if not hidden else ():
                reached.space(others, what, other).read(name)
            if isinstance(value, property):
                for part in (value.fget, getattr(value.fget, "__wrapped__", None), value.fset):
                    _value(reached, part, what + name)
                continue
            if instance is not None and name not in instance.holder and (not ours or name == "forward"
                                                                        or _is_plain(value)):
                instance.read(name)
            _value(reached, value, what + name)
        if not ours:
            above.append((cls, members))
