"""Guards: what a traced call read besides its arguments, and whether it still is as it was.

Before the call the code it can reach is walked, by name: the static function, what its globals, closures and
attributes lead to, the methods of the links below. Every attribute, global, closure variable and container that this
code can read is a *slot*, whose value is kept. Afterwards the slots are compared: what the call has stored is stored
again by each replay, and what it may have read becomes a guard, checked before each replay by one generated function.
"""
from __future__ import annotations

import dataclasses
import operator
from collections.abc import Callable
from dataclasses import dataclass
from types import CellType, ModuleType
from typing import Any

import numpy as np

from ..configuration import config
from ..link import Link
from ..link.walk import Attributes
from ..parameter import Parameter
from ..variable import Variable
from .reach import MISSING, Reached, is_foreign, reach

_SCALARS = (bool, int, float, complex, str, bytes, type(None))


def same(new: Any, old: Any) -> bool:
    """Whether two values are equal scalars, or equal tuples of such; identical ones have been seen to before."""
    if new is old:
        return True
    kind = type(new)
    if kind is not type(old):
        return False
    if kind is float or kind is complex:
        return repr(new) == repr(old)
    if kind is tuple:
        return len(new) == len(old) and all(map(same, new, old))
    if isinstance(new, (np.generic, np.dtype)):
        return repr(new) == repr(old)
    return kind in _SCALARS and new == old


def type_of(state: Any) -> Any:
    """Return what a schedule depends on of a Variable that is state; None of anything else."""
    array = state._array if type(state) is Variable else None
    return None if array is None else (array.shape, array.dtype, state._requires_grad)


def same_elements(array: Any, before: Any) -> bool:
    """Whether an array has the elements it had: ``before`` is a copy of it."""
    return array.tobytes() == before


def same_items(now: Any, before: list[Any]) -> bool:
    """Whether a container holds the items it held."""
    items = now if type(now) is list else _items(now)
    return len(items) == len(before) and (all(map(operator.is_, items, before)) or all(map(same, items, before)))


def _items(container: Any) -> list[Any]:
    if isinstance(container, dict):
        return [*container, *container.values()]
    return list(container)


@dataclass
class Slot:
    """A place where code reads or stores: entry ``key`` of a namespace, a closure cell, or the items of a container."""

    holder: Any
    key: Any
    value: Any
    what: str
    read: bool
    stored: bool = False
    versioned: bool = False  # it cannot change without the version of all links' attributes
    state: Any = None  # of a Variable that functions read: its type
    chained: bool = False  # and whether there was a graph behind it
    twin: Slot | None = None  # an earlier one with the same Variable
    forgotten: bool = False  # the library's own code replaces it before that reads it

    @property
    def attribute(self) -> bool:
        """Whether it is an entry of an object's own namespace."""
        return isinstance(self.holder, dict) and "__builtins__" not in self.holder

    def now(self) -> Any:
        """The value there now."""
        if isinstance(self.holder, CellType):
            try:
                return self.holder.cell_contents
            except ValueError:
                return MISSING
        if self.key is _ITEMS:
            return self.value if same_items(self.holder, self.value) else MISSING
        if self.key is _HOOKS:
            return bool(self.holder.get("_local_link_hooks"))
        if self.key is _CODE:
            return code_of(self.holder)
        if self.key is _ELEMENTS:
            return self.value if same_elements(self.holder, self.value) else MISSING
        if self.holder is config:
            return getattr(config, self.key, MISSING)
        return self.holder.get(self.key, MISSING)

    def unchanged(self) -> bool:
        """Whether the value is still the one kept; of Variables that are no Parameters it counts that there is one."""
        now = self.now()
        if self.twin is not None and self.twin.state is not None:
            return now is self.twin.now()
        if self.state is not None:
            return type_of(now) == self.state
        return same(now, self.value) or (type(now) is Variable and type(self.value) is Variable)

    def condition(self, names: dict[str, Any]) -> str:
        """Write the test that the slot is unchanged."""
        n = len(names)
        holder, value = f"h{n}", f"v{n}"
        names[holder], names[value] = self.holder, self.value
        if self.key is _ITEMS:
            return f"same_items({holder}, {value})"
        if self.key is _HOOKS:
            return f"not {holder}.get('_local_link_hooks')"
        if self.key is _CODE:
            names[value], names[f"d{n}"] = self.value[:2]
            now = f"{holder}.__defaults__"
            return f"{holder}.__code__ is {value} and ({now} is d{n} or same({now}, d{n}))"
        if self.key is _ELEMENTS:
            return f"{holder}.tobytes() == {value}"
        if isinstance(self.holder, CellType):
            now = f"{holder}.cell_contents"
            if self.value is MISSING:
                return f"empty({holder})"
        elif self.holder is config:
            now = f"{holder}.{self.key}"
        else:
            if self.value is MISSING:
                return f"{self.key!r} not in {holder}"
            now = f"{holder}[{self.key!r}]"
        if self.twin is not None and self.twin.state is not None:
            names[value] = self.twin.holder
            return f"{now} is {value}[{self.twin.key!r}]"
        if self.state is not None:
            names[value] = self.state
            return f"type_of({now}) == {value}"
        if type(self.value) is Variable:
            names[value] = None
            return f"type({now}) is Variable"
        if isinstance(self.value, (*_SCALARS, tuple, np.generic, np.dtype)) and not isinstance(
                self.value, (bool, type(None))):
            return f"({now} is {value} or same({now}, {value}))"
        return f"{now} is {value}"


class _Mark:
    """A key that is no name."""

    def __init__(self, text: str) -> None:
        self.text = text

    def __repr__(self) -> str:
        return self.text


_ITEMS = _Mark("items")
_HOOKS = _Mark("hooks")
_CODE = _Mark("code")
_ELEMENTS = _Mark("elements")
LARGEST_ARRAY = 1 << 16  # bytes: elements of larger arrays are not compared in every call


def code_of(function: Any) -> tuple[Any, Any]:
    """What a function does, apart from what its names mean: editors reload code into functions that exist."""
    return function.__code__, function.__defaults__


def _empty(cell: CellType) -> bool:
    try:
        cell.cell_contents  # noqa: B018  # raises where there is nothing
    except ValueError:
        return True
    return False


class Watch:
    """The slots of one call, as they were before it.

    Invariant: made before the call; a link that is met only while the call runs is added when it is called, before
    its own code runs. After ``finish`` only what guards need is kept, and nothing of what the call has computed.
    """

    def __init__(self, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        code = getattr(function, "__code__", None)
        self.where = f"{code.co_filename}:{code.co_firstlineno}, in {code.co_name}" if code else "unknown"
        self.slots: list[Slot] = []
        self._reached: Reached | None = Reached()
        self._places: set[tuple[int, Any]] = set()
        self._generators: list[list[Any]] = []
        self._variables: dict[int, Slot] = {}
        self._arrays: dict[int, tuple[Any, str, bytes]] = {}
        self.persistent: dict[tuple[int, str], tuple[Any, str, bool]] = {}  # link, name, whether the user's code has it
        self._lazy: dict[int, list[Parameter]] = {}
        first = [a for a in args[:1] if not isinstance(a, (list, tuple, dict, set))]
        self._meet([function, *first, *_objects([*args[len(first):], *kwargs.values()])])

    def link(self, link: Any) -> None:
        """Add a link that is called, if it is not known yet."""
        if self._reached is not None and id(link) not in self._reached.objects:
            self._meet([link])

    def _meet(self, roots: list[Any]) -> None:
        reached = self._reached
        assert reached is not None
        reach(reached, roots)
        links = [link.__dict__ for link in reached.links.values()]
        versioned = {id(entries) for entries in links}
        own = {id(entries.get(name)) for entries in links for name in ("_children", "_layers")} - {id(None)}
        for space in reached.spaces.values():
            for name in sorted(space.loads | space.stores):
                self._add(Slot(space.holder, name, space.values[name], f"{space.what}{name}", name in space.loads,
                               name in space.stores, id(space.identity) in versioned), space.identity)
        for cell, name in reached.cells.values():
            slot = Slot(cell, None, None, f"the closure variable {name}", True, True)
            slot.value = slot.now()
            self._add(slot)
        for container, what in reached.containers.values():
            self._add(Slot(container, _ITEMS, _items(container), f"the items of {what}", True,
                           versioned=id(container) in own))
        for name in sorted(reached.config_names):
            self._add(Slot(config, name, getattr(config, name, MISSING), f"config.{name}", True))
        for link in reached.links.values():
            self._add(Slot(link.__dict__, _HOOKS, False, f"the hooks of {type(link).__name__}", True,
                           versioned=not isinstance(link.__dict__.get("_local_link_hooks"), dict)))
            if id(link) not in self._lazy:
                own = [link.__dict__.get(name) for name in link._params]
                self._lazy[id(link)] = [p for p in own if p is not None and p._array is None]
        self.iterators = [what for _, what in reached.iterators.values()]
        for f in reached.users:
            self._add(Slot(f, _CODE, code_of(f), f"the code of {f.__name__}", True))
        for found in reached.arrays.values():
            if id(found[0]) not in self._arrays:
                self._arrays[id(found[0])] = (*found, found[0].tobytes())
        for link in reached.links.values():
            for name in link._persistent:
                self.persistent.setdefault((id(link), name), (link, name, name in reached.own_loads))
        known = {id(g[0]) for g in self._generators}
        self._generators += [[g, what, _state(g)] for g, what in reached.generators.values() if id(g) not in known]

    def _add(self, slot: Slot, identity: Any = None) -> None:
        if type(slot.value) is Variable and slot.attribute and slot.read:
            slot.chained = slot.value.creator_node is not None
            slot.twin = self._variables.get(id(slot.value))
            self._variables.setdefault(id(slot.value), slot)
        place = (id(slot.holder if identity is None else identity), slot.key)
        if place not in self._places:
            self._places.add(place)
            self.slots.append(slot)

    @property
    def hooked(self) -> bool:
        """Whether a link has hooks, which compiled code would not call."""
        return any(s.key is _HOOKS and s.now() for s in self.slots)

    def is_lazy(self, link: Any) -> bool:
        """Whether a link has parameters that have no array yet."""
        return any(p._array is None for p in self._lazy.get(id(link), ()))

    def initialized(self) -> bool:
        """Whether a parameter of the user's own links got its array while the call ran, perhaps by random numbers."""
        links = self._reached.links if self._reached is not None else {}
        return any(p._array is not None and not is_foreign(type(links[i]).__module__)
                   for i, own in self._lazy.items() for p in own)

    def expect_draws(self) -> None:
        """Take the generators as they are now."""
        for entry in self._generators:
            entry[2] = _state(entry[0])

    def drawn(self) -> str | None:
        """The name of a generator that has drawn since, if any."""
        for generator, what, before in self._generators:
            if _state(generator) != before:
                return what
        return None

    def stores(self) -> tuple[list[tuple[dict[str, Any], str, Any]], Slot | None]:
        """Return what the call has stored in attributes, and where it changed something that cannot be stored again."""
        found: list[tuple[dict[str, Any], str, Any]] = []
        for slot in self.slots:
            now = slot.now()
            if now is slot.value or slot.key is _HOOKS or slot.holder is config:
                continue
            if slot.key is _CODE:
                if now != slot.value:
                    return found, slot
                continue
            if slot.key is _ITEMS or (slot.stored and (not slot.attribute or now is MISSING or self.made(slot))):
                return found, slot
            if slot.stored:
                found.append((slot.holder, slot.key, now))
        return found, None

    def undo(self) -> bool:
        """Take back what the call has stored; False, with nothing taken back, where that cannot be done."""
        _, lost = self.stores()
        if lost is not None:
            return False
        for slot in self.slots:
            if slot.stored and slot.attribute and slot.now() is not slot.value:
                if slot.value is MISSING:
                    del slot.holder[slot.key]
                else:
                    slot.holder[slot.key] = slot.value
        return True

    def arrays(self, bound: Callable[[Any], bool]) -> tuple[str, str] | None:
        """Guard the elements of arrays that code may have read; returns where and why that cannot be.

        ``bound`` says of which arrays replays take the elements anew.
        """
        own = [(link.__dict__.get(name), f"{type(link).__name__}.{name}", None)
               for link, name, ours in self.persistent.values() if ours]
        for array, what, before in (*self._arrays.values(), *own):
            if not isinstance(array, np.ndarray) or bound(array):
                continue
            if before is not None and not same_elements(array, before):
                return f"the array {what} changes inside the static function, which replays cannot repeat", self.where
            if array.nbytes > LARGEST_ARRAY:
                return (f"elements of the array {what} may be read, and it is too large to look for changes in every "
                        "call; give it as an argument or make it a Parameter"), self.where
            self._add(Slot(array, _ELEMENTS, array.tobytes(), f"the elements of {what}", True))
        self._arrays, self.persistent = {}, {}
        return None

    @property
    def behind(self) -> str | None:
        """Where code looks for arrays in the graph behind a Variable, if it does."""
        return None if self._reached is None else _place(self._reached.behind)

    @property
    def asks_type(self) -> str | None:
        """Where code asks whether the type of something is ``ndarray``, if it does."""
        return None if self._reached is None else _place(self._reached.asks_type)

    def knows(self, variable: Variable) -> bool:
        """Whether a Variable was there before the call, where code could find it."""
        return self._reached is not None and id(variable) in self._reached.variables

    def state(self, variable: Variable) -> Slot | None:
        """Return the attribute in which ``variable`` stood before the call, if any."""
        return self._variables.get(id(variable))

    def forget(self, link: Any, names: tuple[str, ...]) -> None:
        """Note that the state of a link that has not been called is replaced."""
        for slot in self.slots:
            if slot.holder is link.__dict__ and slot.key in names:
                slot.forgotten = True

    def made(self, slot: Slot) -> bool:
        """Whether the call put a new link or parameter there, as first calls do."""
        return isinstance(slot.now(), (Link, Parameter))

    def made_any(self) -> bool:
        """Whether the call put new links or parameters anywhere."""
        return any(s.stored and s.now() is not s.value and self.made(s) for s in self.slots)

    def finish(self) -> Callable[[], bool] | None:
        """Return the function that says whether everything read is as it was; None when nothing was."""
        reached = self._reached
        assert reached is not None
        visible = {s.key for s in self.slots if s.forgotten} if reached.dynamic else reached.own_loads
        self.slots = [s for s in self.slots if s.read and not (
            s.forgotten and s.state is None and s.key not in visible)]
        self._variables = {}
        for slot in self.slots:
            if type(slot.value) is Variable:
                slot.value = _SOME
        self._reached, self._lazy, self._generators, self._places = None, {}, [], set()
        if not self.slots:
            return None
        names: dict[str, Any] = {"same": same, "same_items": same_items, "type_of": type_of, "Variable": Variable,
                                 "empty": _empty, "Attributes": Attributes}
        versioned = " and ".join([s.condition(names) for s in self.slots if s.versioned])
        others = " and ".join([s.condition(names) for s in self.slots if not s.versioned])
        lines = [f"def make({', '.join(names)}):", "    seen = None", "    def check():", "        nonlocal seen",
                 "        try:"]
        if versioned:
            lines += ["            version = Attributes.version", "            if version is not seen:",
                      f"                if not ({versioned}): return False", "                seen = version"]
        lines += [f"            return {others or True}", "        except (KeyError, ValueError, AttributeError):",
                  "            return False", "    return check"]
        scope: dict[str, Any] = {}
        exec("\n".join(lines), scope)
        return scope["make"](**names)

    def changes(self) -> str:
        """Say which slots differ now from what they were."""
        found = [f"{s.what} ({s.value!r} became {s.now()!r})" if isinstance(s.value, _SCALARS) else s.what
                 for s in self.slots if not s.unchanged()]
        return ", ".join(found) or "something"


_SOME = Variable()  # stands for any Variable


def _place(f: Any) -> str | None:
    return None if f is None else f"{f.__code__.co_filename}:{f.__code__.co_firstlineno}, in {f.__name__}"


def _objects(tree: Any) -> list[Any]:
    """Return the objects in a tree of arguments that its leaves and scalars are not: what is given by identity."""
    if isinstance(tree, (list, tuple)):
        return [x for item in tree for x in _objects(item)]
    if isinstance(tree, dict):
        return _objects(list(tree.values()))
    return [] if dataclasses.is_dataclass(tree) else [tree]


def _state(generator: Any) -> Any:
    """Return a comparable state of a random number generator."""
    if isinstance(generator, ModuleType) or hasattr(generator, "getstate"):
        return generator.getstate()
    if isinstance(generator, np.random.Generator):
        return repr(generator.bit_generator.state)
    return repr(generator.get_state(legacy=False))
