"""The observation of one traced call: state outside it that was read or changed, and reasons against replays.

Objects are *fresh* if the call has made them, *arguments* if they are containers in its arguments, whose content the
signature describes, and *outside* otherwise. Reads of outside objects become guards, changes of them effects. A
read after the call's own store of the same entry is no guard.
"""
from __future__ import annotations

import functools
import operator
from collections.abc import Callable
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import numpy as np

from ...callsite import definition, short, user_place
from ...configuration import config
from ...link import Link
from ...link.namespace import entries_of
from ...parameter import Parameter
from ...variable import Variable
from ..computed_numbers import ComputedNumber, numbers_in, settled
from ..guards import guard as guards
from ..guards.changing import Changing
from ..guards.check import Checks, checks_of
from ..guards.guard import ANY_VARIABLE, LARGEST_ARRAY_BYTES, MISSING, Entry, Guard
from ..trees import attributes_of, has_arrays, is_record
from .effects import Additions, Effect, discard, store

if TYPE_CHECKING:
    from .recorder import Tape

_NO_PLACE = (Variable, np.ndarray, type(None), bool)  # these are found again in other ways
FRAMES_PER_CALL = 5  # of Python's stack that a call takes when it is observed
LARGEST_CONTAINER_ITEMS = 2048  # of larger ones not every item is compared in every call
NOT_DRAWN_AGAIN = ("and replays would not draw again; use functions, a function decorated with static_code, or pass "
                   "the numbers as an argument")
_CHANGED_ARGUMENT = "a list or dictionary that is an argument changes, which replays cannot repeat"
NOT_GONE_ON = "is an iterator, and replays would not go on with it"


class Observation:
    """Reads and changes of one call. Invariant: objects with an entry by identity are kept alive until the end."""

    guarded = True  # whether reads become guards

    def __init__(self, function: Callable[..., Any], tape: Tape, followed: Changing | None = None) -> None:
        self.where = definition(function)
        self.tape: Any = tape
        self.guards: list[Guard] = []
        self.known: dict[tuple[int, str, Any], Guard] = {}
        self._fresh: dict[int, Any] = {}
        self._arguments: dict[int, Any] = {}
        self._outside: dict[int, Any] = {}             # objects that were found outside
        self._states: dict[int, Entry] = {}            # Variables found in entries, by identity
        self.arrays: dict[int, tuple[Any, str]] = {}   # arrays found outside, with their descriptions
        self.persistent_at: dict[int, tuple[Any, str]] = {}  # persistent arrays, with namespace and name
        self._seen: dict[int, Any] = {}                # arrays found outside, those of parameters as well
        self.found_given: str | None = None            # an argument that was found outside, too
        self.effects: list[Effect] = []
        self._stored: dict[tuple[int, Any], Effect] = {}
        self._changed: dict[int, list[Any] | None] = {}  # the items that changed containers had; None of emptied ones
        self.made_parts = False                        # whether a link or a parameter was put into an object
        self._stored_in: set[int] = set()              # objects with an entry that was stored
        self._weak: set[int] = set()                   # objects that only weak references led to
        self._scrambled: set[int] = set()              # dictionaries changed in other ways than entry by entry
        self.modules: tuple[int, set[str]] = 0, set()  # before an import
        self.silenced = 0                              # blocks with filters of warnings
        self.imported = False                          # whether a module of the user's was imported
        self.generators: list[Any] = []                # weak references to objects that the call has made
        self._read_elements: dict[int, Any] = {}
        self._settling: list[Callable[[], None]] = []  # puts plain numbers where the call has stored computed ones
        self.links: dict[int, Link] = {}               # whose attributes were read, by identity
        self.additions = Additions(self)
        self.followed = followed or Changing()  # the places of numbers that replays read
        self.numbers: dict[tuple[int, Any], Any] = {}  # which the call has read there
        self.settings: dict[str, int] = {}             # entries of `config` that blocks of the call have set
        self.hooked: dict[str, Any] | None = None      # the namespace of a link that has hooks
        self.left: dict[int, tuple[Any, dict[str, Any]]] = {}  # the user's functions that were applied, as before

    # Truthy if the call is known not to be static, so that nothing needs to be observed any more: asked all the time.
    off: Any = property(operator.attrgetter("tape.fault"))

    def note(self, reason: str) -> None:
        """Keep the reason why the call is not static, with the user's line."""
        if self.tape.fault is None:
            self.tape.note(reason, user_place())

    # -- objects ------------------------------------------------------------------------------------------------

    def fresh(self, x: Any) -> Any:
        """Note that the call has made an object; returns it."""
        self._fresh[id(x)] = x
        return x

    def keeps(self, x: Any) -> bool:
        """Whether an object in a result is one from outside, which replays return as it is."""
        if id(x) in self._arguments and isinstance(x, (list, dict)):
            self.note("a list or dictionary that is an argument is returned or stored, and replays would return "
                      "another one")
        return id(x) in self._outside

    def leaves_generators(self) -> bool:
        """Whether a generator that the call has begun lives on, and not because an iterator is kept here."""
        for key in [key for key, x in self._fresh.items() if hasattr(type(x), "__next__")]:
            del self._fresh[key]
        return any((g := reference()) is not None and g.gi_frame is not None for reference in self.generators)

    def hooks(self, link: Any) -> None:
        """Note that a link is called: its hooks have to see every call."""
        entries = entries_of(link)
        if entries.get("_local_link_hooks"):
            self.hooked = entries
            return
        versioned = "attributes" if not isinstance(entries.get("_local_link_hooks"), dict) else None
        self.called_again(guards.has_no_hooks, (entries,), True, f"the hooks of {type(link).__name__}", versioned)

    def fresh_tree(self, x: Any) -> Any:
        """Note that the call has made the containers in the result of a function; returns the result."""
        if type(x) in (list, dict, set, tuple) and id(x) not in self._fresh:
            if type(x) is not tuple:
                self._fresh[id(x)] = x
            for item in x.values() if type(x) is dict else x:
                self.fresh_tree(item)
        return x

    def argument(self, x: Any) -> None:
        """Note a tree of arguments: the items of its containers are part of the signature."""
        kind = type(x)
        if kind in (list, dict):
            self._arguments[id(x)] = x
        if kind is dict:
            for item in x.values():
                self.argument(item)
        elif isinstance(x, (list, tuple)):
            for item in x:
                self.argument(item)
        elif is_record(kind):
            self._arguments[id(x)] = x
            for item in attributes_of(x).values():
                self.argument(item)

    @property
    def made(self) -> dict[int, Any]:
        """The objects that the call has made, by identity."""
        return self._fresh

    def is_fresh(self, x: Any) -> bool:
        """Whether the call has made an object."""
        return id(x) in self._fresh

    def is_argument(self, x: Any) -> bool:
        """Whether an object is a container among the arguments."""
        return id(x) in self._arguments

    def is_outside(self, x: Any) -> bool:
        """Whether an object was there before the call, and is found again by every replay."""
        return id(x) not in self._fresh and id(x) not in self._arguments

    # -- reads --------------------------------------------------------------------------------------------------

    def guard(self, kind: str, holder: Any, key: Any, make: Callable[[str], Guard]) -> Guard | None:
        """Add the guard of a read, unless it is known; ``make`` gets the place of the read."""
        place = id(holder), kind, key
        known = self.known.get(place)
        if known is None and self.tape.fault is None:
            known = self.known[place] = make(short(user_place()))
            self.guards.append(known)
        return known

    def entry(self, holder: Any, key: Any, value: Any, what: str, versioned: Any = None, identity: Any = None) -> Any:
        """Note that an entry was read, MISSING if there is none; returns the value.

        ``identity`` is the object that views like ``holder`` are made of anew.
        """
        owner = holder if identity is None else identity
        number = id(owner)
        if number in self._fresh or number in self._arguments or (number, key) in self._stored:
            return value
        self.additions.read(number, key, value)
        place = number, "entry", key
        if place in self.known or self.tape.fault is not None:
            return value
        if number in self._changed and not (isinstance(holder, dict) and number not in self._scrambled):
            self.items(holder, what)
            return value
        found = Entry(holder, key, value, what, short(user_place()), versioned)
        self.known[place] = found
        self.guards.append(found)
        if identity is not None:
            self._fresh.setdefault(-number, identity)  # alive as long as its number is known
        self.found(value, what, found)
        return value

    def found(self, value: Any, what: str, at: Entry | None = None) -> None:
        """Note that a Variable or an array was found outside."""
        if isinstance(value, ComputedNumber):
            return
        if self.tape.is_argument(value):
            self.found_given = self.found_given or what
            return
        if not isinstance(value, _NO_PLACE) and not self.is_fresh(value) and (
                not isinstance(value, tuple) or not has_arrays(value)):
            self._outside[id(value)] = value
        if type(value) is np.ndarray:
            self._seen[id(value)] = value
            if self.tape.known(value) is None:
                self.arrays.setdefault(id(value), (value, what))
        elif type(value) is Variable and at is not None and (
                id(value) in self._states or self.tape.known(value._array) is None):
            at.chained = value.creator_node is not None
            at.twin = self._states.get(id(value))
            self._states.setdefault(id(value), at)

    def items(self, container: Any, what: str) -> None:
        """Note that all items of a container were read, as they were before the call changed it."""
        if not self.is_outside(container) or self.off:
            return
        before = self._changed.get(id(container), MISSING)
        if before is None:
            return
        if before is MISSING and id(container) in self._stored_in:
            self.note(f"all of {what} is read after the call has stored something there")
            return
        if len(container) > LARGEST_CONTAINER_ITEMS:
            self.note(f"{what} is read, and with {len(container)} items it is too large to look for changes in every "
                      "call; give it as an argument, or keep it in an array")
            return
        if type(container) is list and before is MISSING and any(type(x) is Variable for x in container):
            self.length(container, what)
            for i, x in enumerate(container):
                self.entry(container, i, x, f"item {i} of {what}")
            return
        items = guards.items_of(container)
        self.called_again(guards.same_items, (container, items if before is MISSING else before), True,
                          f"the items of {what}", key=id(container))
        for x in items:
            self.found(x, f"an item of {what}")

    def presence(self, holder: Any, key: Any, what: str) -> None:
        """Note that the presence of an entry counts, not its value: it is about to be deleted."""
        if self.is_outside(holder) and (id(holder), key) not in self._stored and not self.off:
            self.called_again(operator.contains, (holder, key), key in holder, f"whether there is {what}")

    def length(self, container: Any, what: str) -> None:
        """Note that the number of items of a container was read."""
        if not self.is_outside(container) or self.off:
            return
        if id(container) in self._changed:
            self.items(container, what)
            return
        self.called_again(len, (container,), len(container), f"the number of items of {what}")

    def kind(self, x: Any) -> None:
        """Note that the class of an object was asked for."""
        if self.is_outside(x) and id(x) not in self._weak:
            self.guard("kind", x, None, lambda where: guards.ClassOf(
                x, f"the class of {type(x).__name__}", where, "attributes" if issubclass(type(x), Link) else None))

    def attribute(self, x: Any, name: str, value: Any, what: str) -> Any:
        """Note that an attribute was read that only an ordinary lookup finds; returns its value."""
        if self.is_outside(x) and (id(x), name) not in self._stored:
            self.guard("attribute", x, name, lambda where: guards.Attribute(x, name, value, what, where))
            self.found(value, what)
        return value

    def setting(self, name: str, value: Any) -> Any:
        """Note that a setting was read; those in the signature, or set by the call, need no guard."""
        if issubclass(type(value), (Variable, np.ndarray)):
            self.note(f"config.{name} is an array or a Variable, which replays would not read again; give it as an "
                      "argument")
        elif name == "show":
            self.note("all entries of the configuration are shown, which no guard compares")
        elif name not in ("train", "enable_backprop") and not self.settings.get(name):
            self.guard("attribute", config, name,
                       lambda where: guards.Attribute(config, name, value, f"config.{name}", where))
        return value

    def referred(self, reference: Any, found: Any) -> None:
        """Note that a weak reference was followed. Its object can only die: no guard may keep it alive."""
        self._weak.add(id(found))
        self.called_again(guards.is_alive, (reference,), found is not None, "the object of a weak reference")

    def called_again(self, function: Callable[..., Any], args: tuple[Any, ...], value: Any, what: str,
                     versioned: str | None = None, key: Any = None) -> Any:
        """Guard the result of a function that only looks at state; returns it.

        ``key`` is that of the guard, where it is not one of all arguments.
        """
        self.guard("call", function, tuple(map(id, args)) if key is None else key,
                   lambda where: guards.CallResult(function, args, value, what, where, versioned))
        return value

    def elements(self, array: Any) -> bool:
        """Note that elements of an outside array were read other than by functions; False where no guard sees it."""
        if self.off or id(array) in self._read_elements:
            return True
        place = self.persistent_at.get(id(array))
        what = f"{place[1]}" if place is not None else self.arrays.get(id(array), (None, "an array"))[1]
        if array.nbytes > LARGEST_ARRAY_BYTES:
            self.note(f"elements of the array {what} may be read, and it is too large to look for changes in every "
                      "call; give it as an argument or make it a Parameter")
            return False
        if place is not None:
            holder, name = place
            self.entry(holder, name, array, name)
        self.called_again(guards.same_content, (array, guards.content_of(array)), True, f"the elements of {what}",
                          key=id(array))
        self._read_elements[id(array)] = array
        return True

    def persistent(self, link: Any, name: str, array: Any, followed: bool) -> Any:
        """Note that a persistent array of a link was read: replays bind the array that is there then; returns it.

        So is any array that the call puts another one in place of, which is ``followed``.
        """
        place, kind = (entries_of(link), name), guards.type_of_array
        self.called_again(kind, place, kind(*place), f"the type of {name}", "attributes", (id(place[0]), name))
        self.persistent_at[id(array)] = place
        self.tape.register(link, name)
        if followed:
            self.tape.written.follow(self.tape, array)
        return array

    # -- changes ------------------------------------------------------------------------------------------------

    def stored(self, holder: Any, key: Any, value: Any, what: str, identity: Any = None,
               by: tuple[Callable[..., Any], tuple[Any, ...]] | None = None) -> None:
        """Note that an entry was stored, or deleted if ``value`` is MISSING.

        ``by`` is the function that stores it, with its first arguments, if it is no plain entry of ``holder``.
        """
        owner = holder if identity is None else identity
        if self.off or self.is_fresh(owner):
            return
        if self.is_argument(owner):
            self.note(_CHANGED_ARGUMENT)
            return
        if isinstance(value, (Link, Parameter)) and not self.is_outside_part(value):
            self.made_parts = True
        function, target = by if by is not None else (
            (discard, (holder, key)) if value is MISSING else (store, (holder, key)))
        before = self._stored.get((id(owner), key))
        if before is not None and before.args and value is not MISSING and before.function is function:
            before.args = (value,)  # the entry keeps its place
            return
        effect = Effect(function, target, () if value is MISSING else (value,), what, owner, key)
        self._stored_in.add(id(owner))
        self._stored[id(owner), key] = effect
        self.effects.append(effect)

    def is_read(self, holder: Any, key: Any) -> bool:
        """Whether the call has read an entry, or changed its container otherwise."""
        return (id(holder), "entry", key) in self.known or id(holder) in self._changed

    def changes(self, holder: Any, effect: Effect) -> None:
        """Note an effect on an entry of a container."""
        self._stored_in.add(id(holder))
        self._fresh.setdefault(-id(holder), holder)  # alive as long as its number is known
        self.effects.append(effect)

    def take_changes(self) -> list[Effect]:
        """Return the additions to numbers and the changes of arrays so far, which replays have before their end."""
        for effect in (found := [e for e in self.effects if e.changes and self.guarded]):
            self.effects.remove(effect)
            effect.early = True
        return found

    def is_stored(self, holder: Any, key: Any) -> bool:
        """Whether the call has stored an entry."""
        return (id(holder), key) in self._stored

    def holds(self, value: Any, settle: Callable[[], None]) -> None:
        """Note that an object holds ``value``, in which there may be computed numbers until ``settle`` is called."""
        if numbers_in(value):
            self._settling.append(settle)

    def stored_in(self, x: Any, entries: Any, name: str) -> None:
        """Note that an entry of a namespace is an attribute of an object, too."""
        effect = self._stored.get((id(entries), name))
        if effect is not None:
            self._stored[id(x), name] = effect
            self._fresh.setdefault(-id(x), x)  # alive as long as its number is known

    def is_outside_part(self, x: Any) -> bool:
        """Whether a link or parameter was not made by the call."""
        return not self.tape.is_made(x) and not self.is_fresh(x)

    def changing(self, container: Any, empties: bool = False) -> bool:
        """Note that a container is about to be changed, or emptied; returns whether that is an effect."""
        if self.off or self.is_fresh(container):
            return False
        if self.is_argument(container):
            self.note(_CHANGED_ARGUMENT)
            return False
        if id(container) not in self._changed:
            self._changed[id(container)] = guards.items_of(container)
            self._fresh[-id(container)] = container  # alive as long as its number is known
        if empties:
            self._empty(container)
        return True

    def changed(self, function: Callable[..., Any], container: Any, args: tuple[Any, ...], what: str) -> None:
        """Note that ``function(container, *args)`` has changed a container."""
        self._scrambled.add(id(container))
        self.effects.append(Effect(function, (container,), args, what, container))

    def _empty(self, container: Any) -> None:
        """Note that from now on the items of a container are the call's."""
        number = id(container)
        self._changed[number] = None
        self.effects = [effect for effect in self.effects if effect.holder is not container]
        self.additions.forget(number)
        self._stored = {place: effect for place, effect in self._stored.items() if place[0] != number}
        self._stored_in.discard(number)

    def effect(self, function: Callable[..., Any], args: tuple[Any, ...], what: str) -> None:
        """Note a call that acts on the outside."""
        if not self.off:
            self.effects.append(Effect(function, (), args, what, None))

    # -- the end ------------------------------------------------------------------------------------------------

    def state(self, variable: Variable) -> Entry | None:
        """Return the entry that had a Variable before the call, if any."""
        return self._states.get(id(variable))

    def owns(self, array: Any) -> bool:
        """Whether an array was found outside."""
        return id(array) in self.arrays

    def read_elements(self) -> list[Any]:
        """Return the outside arrays whose elements were read other than by functions."""
        return list(self._read_elements.values())

    def seen_arrays(self) -> list[Any]:
        """Return the arrays that were found outside, those of parameters as well where they stand elsewhere, too."""
        return [*self._seen.values(), *self._read_elements.values()]

    def found_arrays(self) -> list[Any]:
        """Return the arrays that were found outside."""
        return [array for array, _ in self.arrays.values()]

    def finish(self) -> Checks:
        """Return the guards; no result of the call is kept."""
        kept = self.guards
        for g in kept:
            if isinstance(g, Entry) and type(g.value) is Variable:
                g.value = ANY_VARIABLE
        return checks_of(kept, [*self.links.values()])

    def close(self) -> None:
        """Release all objects; containers that the call has made, and others may hold, have plain numbers from now on.
        """
        for made in [x for key, x in self._fresh.items() if key > 0 and type(x) in (list, dict, set)]:
            settled(made, "a container")
        for settle in self._settling:
            settle()
        self._settling.clear()
        self.guards = []
        for known in (self.known, self._fresh, self._arguments, self._outside, self._states, self.arrays,
                      self._seen, self.persistent_at, self._stored, self._changed, self._read_elements, self.numbers):
            known.clear()
        self.effects = []
        self.tape = SimpleNamespace(fault="the call is over")  # generators may go on with their copies, not observed


class Unguarded(Observation):
    """The observation of a call that is not replayed: all is taken as it is, and changed for good."""

    guarded = False

    def _nothing(self, *args: Any, **kwargs: Any) -> Any:
        """Nothing is compared later, nor stored or done again; only the tape knows which arrays cannot be followed."""

    guard = note = items = stored = changing = effect = _nothing

    def entry(self, holder: Any, key: Any, value: Any, what: str, versioned: Any = None, identity: Any = None) -> Any:
        """Take in an array."""
        if type(value) is np.ndarray:
            self.arrays.setdefault(id(value), (value, what))
        return value

    def persistent(self, *args: Any) -> Any:
        """Persistent arrays are taken as they are."""
        return args[2]

    def elements(self, array: Any) -> bool:
        """Elements are taken as they are."""
        return True


@functools.cache
def is_ours(name: object) -> bool:
    """Whether the ``__module__`` of something, which need not be text, is Kusari's."""
    return isinstance(name, str) and (name == "kusari" or name.startswith("kusari."))
