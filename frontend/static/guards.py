"""Guards: what a traced call read besides its arguments, and whether it still is as it was.

Before the call the code it can reach is walked, by name: the static function, what its globals, closures and
attributes lead to, the methods of the links below. Every attribute, global, closure variable and container that this
code can read is a *slot*, whose value is kept. Afterwards the slots are compared: what the call has stored is stored
again by each replay, and what it may have read becomes a guard, checked before each replay by one generated function.
"""
from __future__ import annotations

import dataclasses
import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any

import numpy as np

from .. import functions
from ..configuration import config
from ..link import Link
from ..link.walk import Attributes
from ..parameter import Parameter
from ..variable import Variable
from . import guard_slots as slots
from .code_names import names_in
from .guard_slots import Slot, type_of
from .reach import MISSING, Reached, is_foreign, reach


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
        self._places: dict[tuple[int, Any], Slot] = {}
        self._generators: list[list[Any]] = []
        self._variables: dict[int, Slot] = {}
        self._arrays: dict[int, tuple[Any, str, bytes]] = {}
        self.persistent: dict[tuple[int, str], tuple[Any, str, bool]] = {}  # link, name, whether the user's code has it
        self._lazy: dict[int, list[Parameter]] = {}
        self._before: dict[int, tuple[Any, dict[str, Any], str]] = {}  # namespaces, whatever stores to them
        self._identities: set[int] = set()  # of their objects
        self.lasting: tuple[str, dict[str, Any]] = "", {}  # the guards that no version stands for: text and names
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
        versioned = {id(entries) for entries in links} | {id(vars(functions))}
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
            self._add(Slot(container, slots.ITEMS, slots.items_of(container), f"the items of {what}", True,
                           versioned=id(container) in own))
        for variable, what in reached.contexts.values():
            self._add(Slot(variable, slots.CONTEXT, variable.get(MISSING), what, True))
        for name in sorted(reached.config_names):
            self._add(Slot(config, name, getattr(config, name, MISSING), f"config.{name}", True))
        for link in reached.links.values():
            self._add(Slot(link.__dict__, slots.HOOKS, False, f"the hooks of {type(link).__name__}", True,
                           versioned=not isinstance(link.__dict__.get("_local_link_hooks"), dict)))
            if not is_foreign(type(link).__module__):
                self._add(Slot(link, slots.KIND, type(link), f"the class of {type(link).__name__}", True,
                               versioned=True))
            if reached.dynamic:
                names = slots.names_of(link.__dict__, frozenset(reached.stores)), frozenset(reached.stores)
                self._add(Slot(link.__dict__, slots.NAMES, names, f"which attributes {type(link).__name__} has", True,
                               versioned=True))
            if id(link) not in self._lazy:
                own = [link.__dict__.get(name) for name in link._params]
                self._lazy[id(link)] = [p for p in own if p is not None and p._array is None]
        self.iterators = [what for _, what in reached.iterators.values()]
        for x in reached.objects.values():
            self._keep(x)
        for f in reached.users:
            self._add(Slot(f, slots.CODE, slots.code_of(f), f"the code of {f.__name__}", True))
        for found in reached.arrays.values():
            if id(found[0]) not in self._arrays:
                self._arrays[id(found[0])] = (*found, slots.elements_of(found[0]))
        for link in reached.links.values():
            for name in link._persistent:
                self.persistent.setdefault((id(link), name), (link, name, name in reached.own_loads))
        known = {id(g[0]) for g in self._generators}
        self._generators += [[g, what, _state(g)] for g, what in reached.generators.values() if id(g) not in known]

    def _keep(self, x: Any) -> None:
        """Keep the namespaces of an object of the user's and of its classes, in case they are stored to by strings."""
        kind = x if isinstance(x, type) else type(x)
        spaces: list[tuple[Any, Any, str]] = [
            (c, vars(c), f"{c.__name__}.") for c in kind.__mro__ if not is_foreign(c.__module__)]
        own = None if isinstance(x, type) else getattr(x, "__dict__", None)
        if isinstance(own, dict) and (spaces or isinstance(x, Link)):
            spaces.append((own, own, f"{kind.__name__}."))
        for identity, space, what in spaces:
            if id(identity) not in self._identities:
                self._identities.add(id(identity))
                self._before[id(space)] = space, dict(space), what

    def begin_own(self) -> list[tuple[Any, dict[str, Any]]]:
        """Called before Python that replays run as well; returns what ``end_own`` needs."""
        return [(space, dict(space)) for space, _, _ in self._before.values()]

    def end_own(self, then: list[tuple[Any, dict[str, Any]]]) -> None:
        """Take what such Python has stored as if it had been there before the call."""
        for space, old in then:
            before = self._before[id(space)][1]
            for key in {**old, **space}:
                new = space.get(key, MISSING)
                if new is not old.get(key, MISSING):
                    before[key] = new
                    if new is MISSING:
                        del before[key]

    def _stored_by_strings(self) -> None:
        """Add slots for what the call has stored where no reached code stores by name."""
        known = {(id(s.holder), s.key) for s in self.slots if s.stored}
        for space, before, what in self._before.values():
            for key in {**before, **space}:
                old, new = before.get(key, MISSING), space.get(key, MISSING)
                if new is not old and key not in slots.OF_LINKS and not key.startswith(("_static", "__")) and (
                        id(space), key) not in known:
                    self.slots.append(Slot(space, key, old, f"{what}{key}", False, True))

    def _add(self, slot: Slot, identity: Any = None) -> None:
        if type(slot.value) is Variable and slot.attribute and slot.read:
            slot.chained = slot.value.creator_node is not None
            slot.twin = self._variables.get(id(slot.value))
            self._variables.setdefault(id(slot.value), slot)
        place = (id(slot.holder if identity is None else identity), slot.key)
        known = self._places.setdefault(place, slot)
        known.read |= slot.read
        if known is slot:
            self.slots.append(slot)

    @property
    def hooked(self) -> bool:
        """Whether a link has hooks, which compiled code would not call."""
        return any(s.key is slots.HOOKS and s.now() for s in self.slots)

    def is_lazy(self, link: Any) -> bool:
        """Whether a link of the library has parameters that have no array yet, be it in links that it is made of."""
        parts = list(link.links())
        if not all(type(part).__module__.startswith("kusari.") for part in parts):
            parts = [link]  # what the user's links draw is not expected
        return any(p._array is None for part in parts for p in self._lazy.get(id(part), ()))

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
        self._stored_by_strings()
        for slot in self.slots:
            now = slot.now()
            if now is slot.value or slot.key in (slots.HOOKS, slots.NAMES) or slot.holder is config:
                continue
            if slot.key is slots.CODE:
                if now != slot.value:
                    return found, slot
                continue
            if slot.key in (slots.ITEMS, slots.CONTEXT, slots.KIND) or (
                    slot.stored and (not slot.attribute or now is MISSING or self.made(slot))):
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

    def found(self) -> list[Any]:
        """Return the arrays that stood where the user's code could find them before the call."""
        return [array for array, _, _ in self._arrays.values() if type(array) is np.ndarray]

    def parameter_arrays(self) -> list[Any]:
        """Return the arrays of the parameters of all links that code can reach."""
        links = self._reached.links.values() if self._reached is not None else ()
        return [p._array for link in links for name in link._params
                if (p := link.__dict__.get(name)) is not None and p._array is not None]

    def arrays(self, bound: Callable[[Any], bool], outside: dict[int, Any],
               sources: dict[int, Any]) -> tuple[str, str] | None:
        """Guard the elements of arrays that code may have read; returns where and why that cannot be.

        ``bound`` says of which arrays replays take the elements anew. Those ``outside`` NumPy may have read as well,
        and ``sources`` it has read.
        """
        own = [(link.__dict__.get(name), f"{type(link).__name__}.{name}", None)
               for link, name, ours in self.persistent.values() if ours]
        for array, what, before in (*self._arrays.values(), *own):
            if not isinstance(array, np.ndarray) or (
                    bound(array) and id(array) not in outside and id(array) not in sources):
                continue
            if before is not None and not slots.same_elements(array, before):
                return f"the array {what} changes inside the static function, which replays cannot repeat", self.where
            if array.nbytes > slots.LARGEST_ARRAY and id(array) in outside:
                continue
            if array.nbytes > slots.LARGEST_ARRAY:
                return (f"elements of the array {what} may be read, and it is too large to look for changes in every "
                        "call; give it as an argument or make it a Parameter"), self.where
            self._add(Slot(array, slots.ELEMENTS, slots.elements_of(array), f"the elements of {what}", True))
        self._arrays, self.persistent = {}, {}
        return None

    @property
    def behind(self) -> str | None:
        """Where code looks for arrays in the graph behind a Variable, if it does."""
        return None if self._reached is None else _place(self._reached.behind)

    @property
    def unseen(self) -> tuple[str, str] | None:
        """What code may read that no guard looks at, and where, if it does."""
        reached = self._reached
        if reached is None:
            return None
        if reached.anywhere is not None:
            f, name = reached.anywhere
            return f"by {name} it may read what it does not name, and no guard would see a change", _place(f) or ""
        f = reached.reads_states
        if f is not None and (self._generators or names_in(f.__code__)[0] & {"get_state", "getstate"}):
            return ("the state of a generator of random numbers may be read, and replays would not read again",
                    _place(f) or "")
        return None

    @property
    def has_imported(self) -> bool:
        """Whether the call has imported a module of the user's: what it reads there is seen from the next call on."""
        return self._reached is not None and any(name in sys.modules for name in self._reached.imports)

    @property
    def gradients(self) -> tuple[str, str] | None:
        """What code reads or stores of a Variable besides its array, and where, if it does."""
        reached = self._reached
        if reached is None:
            return None
        for f, name in reached.gradients:
            if not any(s.holder.get(name, MISSING) is not MISSING for s in reached.spaces.values()
                       if name in s.values and s.holder is not vars(functions)):
                return name, _place(f) or ""
        return None

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
        self._reached, self._lazy, self._generators, self._places, self._before = None, {}, [], {}, {}
        self._identities = set()
        if not self.slots:
            return None
        names: dict[str, Any] = {
            "same": slots.same, "same_items": slots.same_items, "type_of": type_of, "Variable": Variable,
            "empty": slots.is_empty, "Attributes": Attributes, "names_of": slots.names_of, "MISSING": MISSING}
        versioned = " and ".join([s.condition(names) for s in self.slots if s.versioned])
        others = " and ".join([s.condition(names) for s in self.slots if not s.versioned])
        self.lasting = others, names
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
        found = [f"{s.what} ({s.value!r} became {s.now()!r})"
                 if isinstance(s.value, slots.SCALARS) and s.key is not slots.ELEMENTS else s.what
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
