"""State within the reach of a function of the user's: stores of the call before it, and reads behind its changes.

Replays have stores at their end and test guards at their beginning, so a function must not see the one, nor change what
the call reads by the other.
"""
from __future__ import annotations

import functools
import types
import zlib
from collections import deque
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from kusari.ir import Op, Trait
from kusari.runtime.python_rows import RunError

from ...link import Link
from ...link.namespace import namespace_of
from ...parameter import Parameter
from ...variable import Variable
from ..computed_numbers import ComputedNumber
from .guard import CallResult, ClassOf, EntryType, Guard

if TYPE_CHECKING:
    from ..trace.observation import Observation

LARGEST_STATE_ITEMS = 2000  # that are looked at: a data set is not state
_CONTAINERS = (dict, list, set, frozenset, tuple, deque)
_PLAIN = (type(None), bool, int, float, complex, str, bytes, types.ModuleType, types.BuiltinFunctionType, Variable)


def is_own(kind: type) -> bool:
    return not str(kind.__module__).startswith(("kusari", "numpy", "builtins"))


def _of_code(code: types.CodeType, names: dict[str, Any]) -> Iterator[Any]:
    yield from [names[n] for n in code.co_names if n in names]
    for part in code.co_consts:
        if isinstance(part, types.CodeType):
            yield from _of_code(part, names)


def _has_namespace(x: object) -> bool:
    return isinstance(x, Link) or is_own(type(x)) and not isinstance(x, type) and hasattr(x, "__dict__")


def _parts(x: object) -> Iterator[Any]:
    """Return the objects that ``x`` leads to."""
    if isinstance(x, dict):
        yield from dict[Any, Any].values(cast("dict[Any, Any]", x))
    elif isinstance(x, _CONTAINERS):
        yield from x
    elif isinstance(x, types.FunctionType):
        yield from _of_code(x.__code__, x.__globals__)
        for cell in x.__closure__ or ():
            yield cell
            try:
                yield cell.cell_contents
            except ValueError:  # nothing is there yet
                pass
        yield from x.__defaults__ or ()
    elif isinstance(x, types.MethodType):
        yield from (x.__self__, x.__func__)
    elif isinstance(x, functools.partial):
        bound = cast("functools.partial[Any]", x)
        yield from (bound.func, *bound.args, *bound.keywords.values())
    elif _has_namespace(x):
        yield namespace_of(x)


def _reached(start: Any) -> tuple[dict[int, Any], list[Any]]:
    """Return the containers, namespaces and arrays that can be reached, by identity, no more than so many, and leaves.

    Those are Variables and computed numbers.
    """
    found: dict[int, Any] = {}
    leaves: list[Any] = []
    waiting: deque[Any] = deque(start)
    seen: set[int] = set()
    while waiting and len(seen) < LARGEST_STATE_ITEMS:
        x = waiting.popleft()
        if isinstance(x, (Variable, ComputedNumber)):
            leaves.append(x)
        if id(x) in seen or isinstance(x, (*_PLAIN, ComputedNumber)):
            continue
        seen.add(id(x))
        found[id(x)] = x
        if type(x) is not np.ndarray:
            waiting.extend(_parts(x))
    return found, leaves


def _content(x: Any) -> Any:
    """Return the items of a container, or a checksum of an array, to be compared; None of other objects."""
    if isinstance(x, dict):
        return dict(cast("dict[Any, Any]", x))
    if isinstance(x, (list, set, deque)):
        return list(cast("list[Any]", x))
    if type(x) is np.ndarray and not x.dtype.hasobject:
        return x.shape, x.dtype, zlib.adler32(np.ascontiguousarray(x).reshape(-1).view("u1").data)
    if isinstance(x, types.CellType):
        return {"cell_contents": x.cell_contents}
    return None


def _place(guard: Guard) -> tuple[Any, Any]:
    """Return the object and the key that a guard is about; no key where it is about all of the object."""
    if isinstance(guard, CallResult):
        args: tuple[Any, ...] = (*guard.args, None, None)
        return args[0], args[1] if isinstance(args[1], (str, int)) else None
    return guard.holder, getattr(guard, "key", getattr(guard, "name", None))


def _numbers(holder: int, _: str, key: Any) -> tuple[Any, ...]:
    """Return the numbers of objects in a place."""
    return (holder, *cast("tuple[Any, ...]", key)) if isinstance(key, tuple) else (holder, key)


def _expect(attrs: Any) -> tuple[Any, ...]:
    """Raise ``RunError`` where a read behind Python of the user's would find another thing than in the trace."""
    for guard in attrs["guards"]:
        if not guard.holds():
            raise RunError(f"{guard.what} is read after a function of the user's has changed it, in some calls; read "
                           "it before that function")
    return ()


EXPECT = Op("expect", _expect, Trait.OPAQUE)


class Reached:
    """The state that Python of the user's can reach from some objects, as it was before that runs.

    ``arrays`` are its arrays with other elements than before.
    """

    def __init__(self, start: Any) -> None:
        self.arrays: list[Any] = []
        self.expected: list[Guard] = []  # which replays test behind that Python, too
        self._found, self._leaves = _reached(start)
        self._before = {number: _content(x) for number, x in self._found.items()}
        self._changed: set[tuple[int, Any]] = set()
        self._guards = 0

    def require_known(self, tape: Any, label: str, given: set[int]) -> None:
        """Note a fault if an argument, or what the call has computed, is there in other ways than ``given``."""
        for x in (*self._leaves, *[x for x in self._found.values() if type(x) is np.ndarray]):
            if id(x) in given:
                continue
            if isinstance(x, ComputedNumber):
                x.kusari_read(label)
            elif tape.is_argument(x) or not tape.is_from_outside(x) and (
                    tape.is_computed(x) if isinstance(x, Variable) else tape.is_value(x) and not (
                        tape.of_parameters.has(x) or tape.is_state(x))):
                tape.note_at_user(f"{label} can reach an array of the traced call, in a closure or in an object, and "
                                  "replays would not renew it; give it as an input")
        self._leaves.clear()

    def parameters(self) -> bool:
        """Whether there are parameters among it, to which that Python may give gradients."""
        return any([isinstance(part, Parameter) and part.requires_grad
                    for x in self._found.values() if type(x) is not np.ndarray for part in _parts(x)])

    def expect(self, o: Observation, label: str) -> None:
        """Note a fault if the call has stored something there, which replays store at their end."""
        for effect in o.effects:
            if any(id(x) in self._found for x in (effect.holder, *effect.target)):
                o.note(f"{effect.what} changes before {label}, which may look at it, and replays change it at their "
                       "end; change it after that function, or in it")
                return

    def compare(self, o: Observation) -> None:
        """Find the changes."""
        self._guards = len(o.guards)
        for number, before in self._before.items():
            if before is None:
                continue
            x = self._found[number]
            now = _content(x)
            if isinstance(before, dict):
                old, new = cast("dict[Any, Any]", before), cast("dict[Any, Any]", now)
                self._changed.update((number, k) for k in old.keys() | new.keys()
                                     if old.get(k, old) is not new.get(k, old))
            elif isinstance(before, tuple):
                if before != now:
                    self.arrays.append(x)
            elif len(before) != len(now) or any(a is not b for a, b in zip(before, now, strict=True)):
                self._changed.add((number, None))
        changed = {number for number, _ in self._changed}
        if changed and any([number in changed or _has_namespace(x) and id(namespace_of(x)) in changed
                            for number, x in self._found.items() if o.is_fresh(x)]):
            o.note("an object that the call has made is changed by code that replays run, and they would change that "
                   "of the traced call; return what it is to have")
        o.known = {p: g for p, g in o.known.items()  # what is read again is guarded again
                   if p[1] in ("type", "kind") or self._found.keys().isdisjoint(_numbers(*p))}
        o.numbers = {p: n for p, n in o.numbers.items() if p[0] not in self._found}
        self._before.clear()

    def read(self, guards: list[Guard]) -> Guard | None:
        """Return the first guard of a read of a changed entry; replays test all reads that come later."""
        self.expected[:] = [g for g in guards[self._guards:] if not isinstance(g, (EntryType, ClassOf))
                            and id(_place(g)[0]) in self._found]
        return next((g for g in self.expected if self._is_of(g)), None)

    def _is_of(self, guard: Guard) -> bool:
        holder, key = _place(guard)
        places = {k for n, k in self._changed if n == id(holder)}
        return None in places or key in places or key is None and bool(places)
