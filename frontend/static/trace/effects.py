"""Effects: changes of objects from outside by a traced call, as calls that each replay makes again, in their order."""
from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from kusari.ir import Graph, Node, Op, Trait, Value

from ..arrays.overlap import Spans, has_address
from ..computed_numbers import numbers_in
from ..errors import Stale
from ..guards.guard import MISSING, EntryType
from ..trees import array_of, unflatten

if TYPE_CHECKING:
    from .observation import Observation


@dataclass(eq=False)
class Effect:
    """``function(*target, *args)``: a store, a deletion or a call of a method that changes its object.

    ``holder`` and ``key`` name the entry that a store or a deletion is about; ``holder`` alone the changed object.
    Invariant: ``target`` are objects from outside, the same in every replay; ``args`` may contain computed values.
    """

    function: Callable[..., Any]
    target: tuple[Any, ...]
    args: tuple[Any, ...]
    what: str
    holder: Any
    key: Any = MISSING
    early: bool = False  # whether replays have it before their end, as a function of the user's may look at it

    @property
    def is_entry(self) -> bool:
        """Whether it stores an entry of a namespace."""
        return self.function is store and type(self.holder) is dict

    @property
    def changes(self) -> bool:
        """Whether it adds to a number, or changes elements of an array."""
        return self.function in (add, refill, refill_entry)

    def apply(self, args: tuple[Any, ...]) -> None:
        """Have the effect, with the arguments of a replay."""
        self.function(*self.target, *args)

    def array(self) -> Any:
        """Return the array whose elements change."""
        return self.target[0] if self.function is refill else self.target[0][self.target[1]]

    def saved(self) -> Callable[[], None]:
        """Return a function that puts back the number, or the elements, that are there now."""
        if self.function is add:
            return functools.partial(store, self.holder, self.key, self.holder[self.key])
        array = self.array()
        return functools.partial(refill, array, array.copy())


def store(holder: Any, key: Any, value: Any) -> None:
    """Store an entry of a namespace or a container."""
    holder[key] = value


def refill(array: Any, value: Any) -> None:
    """Change the elements of an array."""
    array[...] = value


def refill_entry(holder: Any, key: Any, value: Any) -> None:
    """Change the elements of the array that is an entry of a namespace now."""
    holder[key][...] = value


def is_writeable(holder: Any, key: Any = MISSING) -> bool:
    """Whether the elements of an array, or of the array that is an entry of a namespace, may change."""
    return (holder if key is MISSING else holder[key]).flags.writeable


def _change(attrs: Any, *arrays: Any) -> tuple[Any, ...]:
    """Have an effect in the middle of a replay."""
    attrs["effect"].apply(unflatten(attrs["spec"], iter(arrays)))
    return ()


def _look(attrs: Any) -> tuple[Any, ...]:
    """Return the elements of an array that has changed, as a function of the user's has left them."""
    return attrs["effect"].array().copy(),


CHANGE, LOOK = Op("change", _change, Trait.OPAQUE), Op("look", _look, Trait.OPAQUE)


def early_effects(nodes: Iterable[Node]) -> list[Effect]:
    """Return the effects among nodes."""
    return [n.attrs["effect"] for n in nodes if n.op is CHANGE]


def changed_in_place(graph: Graph) -> list[Value]:
    """Return the params in which Python changes elements, or which it replaces, in the middle of a replay."""
    return [*dict.fromkeys(n.inputs[0] for n in graph.nodes if n.op.is_opaque and n.op.writes)]


class Filled:
    """The arrays from outside whose elements a recording's replays change; ``result`` is the recording's."""

    def __init__(self, result: Any, graph: Graph, bindings: Sequence[Any]) -> None:
        effects = (*(result[1] if result[0] == "stored" else ()), *early_effects(graph.nodes))
        self.targets = [e.target for e in effects if e.function in (refill, refill_entry)]
        for b in [bindings[graph.params.index(v)] for v in changed_in_place(graph)]:
            self.targets.append(getattr(b, "holder", None) or (b.array(),))

    def require_apart(self, leaves: Sequence[Any]) -> None:
        """Raise ``Stale`` where an argument shares memory with one: the call reads that after the change."""
        if self.targets:
            spans = Spans(t[0] if len(t) == 1 else t[0][t[1]] for t in self.targets)
            if any(has_address(x) and spans.touch(x) for x in map(array_of, leaves)):
                raise Stale("an argument shares memory with an array from outside that the call changes")


def discard(holder: Any, key: Any) -> None:
    """Delete an entry, if it is there."""
    if key in holder:
        del holder[key]


def add(holder: Any, key: Any, operation: Callable[[Any, Any], Any], operand: Any) -> None:
    """Add to the number in an entry."""
    holder[key] = operation(holder[key], operand)


class Additions:
    """The numbers in entries that a call adds to, and nothing else reads: each addition is an effect."""

    def __init__(self, observation: Observation) -> None:
        self._observation = observation
        self._effects: dict[tuple[int, Any], list[Effect]] = {}

    def may_begin(self, holder: Any, key: Any) -> bool:
        """Whether a number in an entry from outside was neither read nor stored."""
        o = self._observation
        return o.guarded and (id(holder), key) not in o.followed and o.is_outside(holder) and not (
            o.is_stored(holder, key) or o.is_read(holder, key))

    def note(self, holder: Any, key: Any, before: Any, operation: Any, operand: Any, what: str) -> None:
        """Note that a number, which was ``before``, has become ``operation(before, operand)``."""
        o = self._observation
        if o.is_stored(holder, key) or o.is_read(holder, key):
            o.note(f"{what} is read or stored while it is added to")
            return
        o.guard("type", holder, key, lambda where: EntryType(holder, key, before, what, where))
        effect = Effect(add, (holder, key, operation), (operand,), what, holder, key)
        self._effects.setdefault((id(holder), key), []).append(effect)
        o.changes(holder, effect)

    def read(self, number: int, key: Any, value: Any) -> None:
        """Take additions to a number, which is ``value`` now, for a read and a store, as it is read."""
        effects = self._effects.pop((number, key), None)
        if effects is None:
            return
        if any(e.early for e in effects):
            self._observation.note(f"{effects[0].what} is read after it was added to, and a function of the user's may "
                                   "have changed it meanwhile; read it before")
            return
        o, first = self._observation, effects[0]
        guard = o.guard("type", first.holder, key, lambda where: EntryType(first.holder, key, value, first.what, where))
        if guard is None or numbers_in([e.args for e in effects]):
            o.note(f"{first.what} is read after a computed number was added to it, which takes data out of the traced "
                   "computation")
            return
        o.effects = [e for e in o.effects if all(e is not x for x in effects)]
        o.entry(first.holder, key, guard.value, first.what)
        o.stored(first.holder, key, value, first.what)

    def forget(self, number: int) -> None:
        """Forget the additions to items of a container that is emptied."""
        self._effects = {place: effects for place, effects in self._effects.items() if place[0] != number}


def refilled(o: Observation, array: Any, value: Any) -> None:
    """Note that an array from outside has the elements of ``value`` now."""
    place = o.tape.state_entry(array)
    if place is not None and o.is_stored(*place):
        o.note("the elements of an array change after the call has put another one in its place")
    known = next((e for e in o.effects if e.holder is array), None)
    if known is not None:
        known.args = (value,)
        return
    function, target = (refill, (array,)) if place is None else (refill_entry, place)
    o.called_again(is_writeable, target, True, "whether the elements of an array from outside may change")
    o.effects.append(Effect(function, target, (value,), "the elements of an array from outside", array))
