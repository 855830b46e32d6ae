"""Places of counters, of schedules, of ring buffers: what changes from call to call in namespaces and dictionaries.

At first a number is a constant of the trace, and so are elements of an array that NumPy reads; guards compare them.
Once a guard has found another number there, or the call itself changes the array, the next trace reads the place: each
replay takes the number or the array of that time. Where the code needs a number as such (a branch, a shape), guards
compare the numbers of which it was computed.
"""
from __future__ import annotations

import functools
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import numpy as np

from kusari.ir import Node, Op, Trait, Value
from kusari.runtime.python_rows import RunError

from ...link import Link
from ..computed_numbers import computed_number
from .guard import Entry, EntryType, Guard

if TYPE_CHECKING:
    from ..trace.observation import Observation
    from ..trace.recorder import Tape

_KINDS = (int, float, np.int64, np.int32, np.float64, np.float32)  # of which an array has all numbers, or none


def _read(attrs: Any) -> tuple[Any, ...]:
    """Return the number that stands in an entry in a replay, as an array."""
    number = attrs["holder"].get(attrs["key"])
    if type(number) is not attrs["kind"]:
        raise RunError(f"{attrs['what']} is of type {type(number).__name__}, and was a {attrs['kind'].__name__}")
    return np.asarray(number),


READ = Op("read_number", _read, Trait.OPAQUE)


class Changing:
    """The places of what changes from call to call, for one function on one object.

    Invariant: the holders live, so that their identities are their own.
    """

    def __init__(self) -> None:
        self._holders: dict[tuple[int, Any], Any] = {}
        self._deciding: set[tuple[int, Any]] = set()
        self._is_new = False

    def __contains__(self, place: tuple[int, Any]) -> bool:
        """Whether a number or an array in a place, an object's identity and a key, is a value."""
        return place in self._holders and place not in self._deciding

    def learn(self, guards: Iterable[Guard]) -> None:
        """Take in the places where guards have found another number of the same type."""
        for g in guards:
            holder: Any = g.holder
            if type(g) is Entry and type(holder) is dict and type(g.value) in _KINDS and (
                    type(g.now()) is type(g.value) and not g.holds()):
                self._note(holder, g.key)

    def learn_array(self, o: Observation, array: Any) -> None:
        """Take in the places where an array was found that the call changes after its elements were read."""
        found: list[tuple[Any, Any]] = [(g.holder, g.key) for g in o.guards if type(g) is Entry and g.value is array]
        found += [place for number, place in o.persistent_at.items() if number == id(array)]
        for holder, key in found:
            if (id(holder), key) not in self._holders and isinstance(holder, dict):
                self._note(holder, key)
                self._is_new = True

    def _note(self, holder: Any, key: Any) -> None:
        self._holders[id(holder), key] = holder

    def learned(self) -> bool:
        """Whether an array has been taken in since this was last asked."""
        found, self._is_new = self._is_new, False
        return found

    def decides(self, place: tuple[int, Any]) -> None:
        """Note that code needs the number in a place as such: to follow it is of no use."""
        self._deciding.add(place)


@functools.lru_cache(maxsize=1024)
def _is_ours(kind: type) -> bool:
    """Whether the library changes numbers of objects, a compiled step before it runs: of optimizers and iterators."""
    return not issubclass(kind, Link) and any(str(cls.__module__).startswith("kusari.") for cls in kind.__mro__)


def entry(o: Observation, holder: dict[Any, Any], key: Any, value: Any, what: str, versioned: Any = None,
          kind: type = object) -> Any:
    """Note that an entry of a dictionary was read; returns the value, as a number that is computed where it changes.

    ``kind`` is the class of the object that has it as an attribute.
    """
    place = id(holder), key
    if type(value) is np.ndarray and place in o.followed:
        o.entry(holder, key, value, what, versioned)
        o.tape.written.follow(o.tape, value)
        return value
    if type(value) not in _KINDS or _is_ours(kind) or place not in o.followed or o.off or not o.guarded or (
            not o.is_outside(holder) or o.is_read(holder, key) or o.is_stored(holder, key)):
        return o.entry(holder, key, value, what, versioned)
    known = o.numbers.get(place)
    if known is None:
        array = np.asarray(value)
        if array.dtype != np.asarray(type(value)(0)).dtype:  # an integer that is too large
            return o.entry(holder, key, value, what, versioned)
        o.guard("type", holder, key, lambda where: EntryType(holder, key, value, what, where))
        o.tape.append(READ, (), (array,), {"holder": holder, "key": key, "kind": type(value), "what": what})
        known = o.numbers[place] = computed_number(value, array, o.tape.numbers)
    return known


def compared(tape: Tape, array: Any) -> bool:
    """Let guards compare the numbers of which one was computed; False if it was computed of anything else as well."""
    o, value = tape.observation, tape.known(array)
    if o is None or not o.numbers or value is None:
        return False
    found = _sources(tape, value)
    for node in found or ():
        holder, key, what = node.attrs["holder"], node.attrs["key"], node.attrs["what"]
        number = o.numbers[id(holder), key].kusari_value
        o.guard("entry", holder, key, lambda where, h=holder, k=key, n=number, w=what: Entry(h, k, n, w, where))
        o.followed.decides((id(holder), key))
    return bool(found)


def _is_pure(node: Node, draws: bool) -> bool:
    """Whether a node computes of its operands alone: a function of ours, or one that Python runs in its place."""
    if node.op.is_opaque:
        return "errors" in node.attrs and "generator" not in node.attrs and bool(node.inputs)
    return not draws and bool(node.inputs)


def _sources(tape: Tape, value: Value) -> list[Node] | None:
    """Return the reads of which a value was computed; None if there is anything else."""
    makers = {v: n for n in tape.nodes for v in n.outputs}
    consts = {v for v, _ in tape.consts}
    waiting, seen, found = [value], set[Value](), list[Node]()
    while waiting:
        v = waiting.pop()
        if v in seen or v in consts:
            continue
        seen.add(v)
        node = makers.get(v)
        if node is None or node.op is not READ and not _is_pure(node, tape.draws):
            return None
        found += [node] * (node.op is READ)
        waiting += node.inputs
    return found
