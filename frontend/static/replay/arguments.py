"""The arrays of one call: bound to a frame with as little Python per call as possible.

What has to be done with each array is known when the graph is compiled, so it is written out as straight-line Python
once per frame: no lookups, no decisions that could be made before, and no loops where arrays are few.
"""
from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from math import prod
from operator import itemgetter
from sys import getrefcount
from typing import Any

import numpy as np

from kusari.ir import External, TensorType
from kusari.runtime.frame import RunError, part_of
from kusari.runtime.memory import trim_heap

from ...variable_node import Arrays
from ..arrays.aliasing import View
from ..arrays.captured import owner
from ..arrays.overlap import Spans, repeats
from ..compile.compile import TRIM_ABOVE, Compiled
from ..signature import FEW
from ..trace.bindings import ParameterBinding, StateBinding
from .undo import undoing


def _alone() -> int:
    arrays = [np.empty(1)]
    array = arrays[0]
    return getrefcount(array)


MANY = 16         # arrays from which on a call is written as loops
ALONE = _alone()  # what getrefcount says of an array that only a list and one local name hold


class Stale(Exception):
    """What a schedule is bound to no longer has the type it was traced with."""


class _Box:
    """The arrays bound now, in attributes: more than one function looks at them."""

    def __init__(self) -> None:
        self.seen: Any = None
        self.lists: list[list[Any]] = []

    def forget(self) -> None:
        """Let everything be bound anew."""
        for name in self.__dict__.keys() - {"lists"}:
            setattr(self, name, None)
        for known in self.lists:
            known[:] = [None] * len(known)


@dataclass(frozen=True, eq=False)
class Ways:
    """The usual way of ``Arguments.run``, for a function that does it and more: names and the text of each part.

    ``given`` are the arrays; where ``tests`` and ``placed`` hold and ``owning`` has run, the frame may run. Then
    ``results`` are the results. Where one does not hold, nothing has happened.
    """

    names: dict[str, Any]
    given: tuple[str, ...]
    tests: tuple[str, ...]
    placed: tuple[str, ...]
    owning: tuple[str, ...]
    results: tuple[str, ...]


class Arguments:
    """One frame of a compiled graph, called with one array per input that is not ``fixed``.

    ``run`` returns the outputs, or those at ``returned``: others stay in the frame for its backward. Those at ``views``
    are views of the one at the place given, which comes later. ``ready`` is called when all is bound, before anything
    runs. Where it ``judges``, it may be told to run only with distinct arrays of the right types that need no copy;
    else it returns None, and nothing has happened.

    Invariant: what is bound has the dtype and shape of the graph's value (``Stale`` is raised otherwise, before
    anything has run). What has been changed in place since it was bound (resized, or its shape, strides, dtype or
    flags assigned to) is bound anew. Between calls no array of a caller is kept alive, nor referred to weakly, which
    would keep NumPy from resizing it: pointers to inputs are used again only where the arrays that come lie there. An
    output that a caller still holds is that caller's: the next run gets a new array.
    """

    __slots__ = ("frame", "compiled", "judges", "run", "ways", "_copied", "_free", "_holders", "_own_arrays", "_owners",
                 "_results", "_spans", "_states", "_views")

    def __init__(self, compiled: Compiled, bindings: Sequence[Any], fixed: Mapping[int, Any] | None = None,
                 returned: Sequence[int] | None = None, apart: Collection[int] = (),
                 views: Mapping[int, tuple[int, View]] | None = None, ready: Callable[[], None] | None = None) -> None:
        self.compiled = compiled
        self._own_arrays = apart
        self._views = views or {}
        self._spans: Spans | None = None  # of what the schedule writes
        exe = compiled.executable
        self.frame = frame = exe.acquire()
        final = compiled.plan.graph
        n = len(final.inputs)
        self._states = {i: b for i, b in enumerate(bindings, n)  # that functions write to
                        if isinstance(b, StateBinding) and frame.layout.externals[i].written}
        self._owners: set[int] = set()  # by identity, the arrays whose memory those have had,
        self._holders: set[int] = set()  # and those among them that are not the states themselves
        self._copied = {i: frame.array(v) for i, v in enumerate(final.inputs) if i in exe.copied}
        for i, array in (fixed or {}).items():
            if array is not None:
                frame.bind(i, array)
        self._free = [i for i in range(n) if not fixed or i not in fixed]
        handed = [i for i, v in enumerate(final.inputs)
                  if i not in exe.copied and isinstance(v.type, TensorType) and i in self._free]
        first_output = n + len(final.params) + len(final.consts)
        position = {v: i for i, v in enumerate(final.sources())}
        owned: list[int] = []
        self._results: list[tuple[str, Any]] = []
        for v in compiled.outputs:
            slot = compiled.plan.slots.get(v)
            if not isinstance(v.type, TensorType):
                self._results.append(("token", v))
            elif position.get(v, n) < n:
                self._results.append(("input", (position[v], v.shape, 0)))
            elif not isinstance(slot, External):
                self._results.append(("copy", frame.array(v)))
            elif slot.index < n:  # a view of an argument
                self._results.append(("input", (slot.index, v.shape, slot.offset)))
            elif slot.index < first_output:
                self._results.append(("outside", (slot.index, v.shape, slot.offset)))
            else:
                self._results.append(("bound", (slot.index, v.shape, slot.offset)))
                if slot.index not in owned:
                    owned.append(slot.index)
        self.judges = False
        self.ways: Ways | None = None
        self.run: Callable[..., Any] = self._write(
            n, handed, bindings, owned, range(len(self._results)) if returned is None else returned, ready)
        if compiled.plan.arena_size + sum(v.nbytes for v in compiled.plan.externals[first_output:]) >= TRIM_ABOVE:
            trim_heap()  # what making a frame and its function has left: megabytes where there are many parameters

    def _write(self, n: int, handed: list[int], bindings: Sequence[Any], owned: list[int],
               returned: Sequence[int], ready: Callable[[], None] | None) -> Any:
        """Write and define the function that does a call.

        What there is much of is done in loops: text for each of a thousand arrays takes longer than the call.
        """
        names: dict[str, Any] = {
            "box": _Box(), "frame": self.frame, "bound": self.frame.bound, "getrefcount": getrefcount,
            "hand": self.frame.bind, "hand_apart": self._hand_apart,
            "forget": partial(self.frame.forget_addresses, handed),
            "rebind": self._rebind, "fresh": self._fresh, "apart": self._apart, "Arrays": Arrays}
        body: list[str] = []
        many = len(self._free) > MANY
        given = {i: f"arrays[{k}]" if many else f"a{i}" for k, i in enumerate(self._free)}
        held = [*range(n, n + len(bindings)), *owned]
        if given and not many:
            body.append(f"{', '.join(given.values())}, = arrays")
        names.update(owners=self._owners, holders=self._holders, keep_apart=self._keep_apart, ndarray=np.ndarray)
        final = self.compiled.plan.graph
        copying: list[str] = []
        for i, view in self._copied.items():
            if i in given:
                names[f"view{i}"], x = view, given[i]
                if self._states:  # an array that a state is part of, and one of a state's type, may share its memory
                    kind = final.inputs[i].type
                    own = f"id({x}) in owners" if kind in [final.params[k - n].type for k in self._states] else (
                        f"holders and id({x}) in holders")
                    copying += [f"b = {x}.base", f"if {own} if b is None else type(b) is not ndarray or "
                                                 f"id(b) in owners: keep_apart({x})"]
                copying.append(f"view{i}[...] = {x}")
        # What this very schedule writes to must not be what it reads.
        written = any(e.written for e in self.frame.layout.externals)
        # What was apart from an array that is bound no longer may lie in the new one.
        forget = "; forget()" if written and handed else ""
        if written and bindings:
            body.append("moved = False")
        tests = self._write_bindings(n, bindings, "; moved = True" if written else "", forget, names, body)
        if written and bindings:
            body.append(f"if moved: apart({n}, {n + len(bindings)})")
        body += copying
        place = self.frame.binder(handed, held, not written)
        names.update(place=place, unchanged=self.frame.unchanged(held + handed if written else held),
                     renew=partial(self._renew, names["box"], owned))
        renewed = ["if not unchanged():", f"    renew(){forget}", "    return run(arrays)"] if held else []
        those = "*arrays" if many and handed == self._free else ", ".join([given[i] for i in handed])
        keeping = [f"bound[{i}] = {given[i]}" for i in handed]
        handing = [f"{'hand_apart' if written else 'hand'}({i}, {given[i]})" for i in handed]
        if many:
            names["handed"] = [(i, self._free.index(i)) for i in handed]
            keeping = ["for i, j in handed: bound[i] = arrays[j]"]
            handing = [f"for i, j in handed: {'hand_apart' if written else 'hand'}(i, arrays[j])"]
        placed: list[str] = []
        if place is None:
            body += handing + renewed
        elif written:
            body += [f"if place({those}):", *(f"    {k}" for k in keeping), "else:", *(f"    {h}" for h in handing),
                     *(f"    {r}" for r in renewed)]
        else:
            twice = ([f"a{i} is a{j}" for i in handed for j in handed if j < i] if len(handed) <= FEW else
                     [f"len({{*map(id, ({those},))}}) < {len(handed)}"])
            placed = [f"place({those})", *(f"not ({t})" for t in twice)]
            body += [f"if not ({' and '.join(placed)}):", "    if only: return None", *(f"    {r}" for r in renewed),
                     *(f"    {h}" for h in handing)]
            self.judges = handed == self._free
            if self.frame.runs_python:
                body += ["else:", *(f"    {k}" for k in keeping)]
        owning = [line for i in owned for line in (
            f"x = bound[{i}]", f"if x is None or getrefcount(x) > {ALONE}: fresh({i})")]
        if len(owned) > MANY:
            names["owned"] = owned
            owning = ["for i in owned:", "    x = bound[i]", f"    if x is None or getrefcount(x) > {ALONE}: fresh(i)"]
        results = self._write_results(returned, given, names)
        if self.judges and tests is not None and not many and not self.frame.runs_python:
            self.ways = Ways(names, tuple(given.values()), tuple(tests), tuple(placed), tuple(owning), tuple(results))
        if ready is not None:
            names["ready"], self.ways = ready, None
            body.append("ready()")
        running = ["frame.run()"]
        undo = undoing(self.compiled, self.frame, n) if self.frame.runs_python else None
        if undo is not None:
            names["undo"], names["RunError"] = undo, RunError
            running = ["back = undo()", "try: frame.run()", "except RunError as told:", "    back(told)", "    raise"]
        body += [*owning, *running, f"found = [{', '.join(results)}]"]
        if many:
            body.append("for i, _ in handed: bound[i] = None")
        else:
            body += [f"bound[{i}] = None" for i in handed]
        lines = [f"def make({', '.join(names)}):", "    def run(arrays, only=False):",
                 *(f"        {line}" for line in body), "        return found", "    return run"]
        scope: dict[str, Any] = {}
        exec("\n".join(lines), scope)
        return scope["make"](**names)

    def _write_bindings(self, n: int, bindings: Sequence[Any], moved: str, forget: str, names: dict[str, Any],
                        body: list[str]) -> list[str] | None:
        """Write what binds the params anew that are other arrays now: the externals from ``n`` on.

        Returns tests that they are as they were; None where those would be many.
        """
        box, tests = names["box"], []
        parameters = [(i, b) for i, b in enumerate(bindings, n) if isinstance(b, ParameterBinding)]
        if parameters:  # they are looked at when any Variable anywhere has got another array
            names["look"] = self._looking(parameters, box)
            body += ["version = Arrays.version", "if version is not box.seen:", "    some, every = look()"]
            if moved:
                body.append(f"    if some: {moved[2:]}{forget}")
            body.append("    box.seen = version if every else None")
            tests.append("Arrays.version is box.seen")
        others = [(i, b) for i, b in enumerate(bindings, n) if not isinstance(b, ParameterBinding)]
        if len(others) > MANY and not any(getattr(b, "passing", False) for _, b in others):
            names["look_at_states"] = self._looking(others, box)
            body.append("some, _ = look_at_states()")
            if moved:
                body.append(f"if some: {moved[2:]}{forget}")
            return None
        for index, binding in others:
            names[f"get{index}"] = binding.array
            now = f"get{index}()"
            holder = getattr(binding, "holder", None)
            if holder is not None:  # an attribute: read where it stands
                names[f"holder{index}"], key = holder
                now = f"holder{index}[{key!r}]"
            mine = f"box.p{index}"
            setattr(box, f"p{index}", None)
            body += [f"x = {now}", f"if x is not {mine}: {mine} = rebind({index}, x)"
                     + moved * (not getattr(binding, "passing", False)) + forget]
            tests.append(f"{now} is {mine}")
        return tests

    def _looking(self, bindings: Sequence[tuple[int, Any]], box: _Box) -> Callable[[], tuple[bool, bool]]:
        """Return what binds externals anew; it returns whether it has, and whether all are bound as they are."""
        known: list[Any] = [None] * len(bindings)
        box.lists.append(known)
        entries = [(k, index, binding.array) for k, (index, binding) in enumerate(bindings)]
        rebind = self._rebind

        def look() -> tuple[bool, bool]:
            some, every = False, True
            for k, index, now in entries:
                x = now()
                if x is not known[k]:
                    known[k] = rebind(index, x)
                    some = True
                    every = every and known[k] is not None
            return some, every
        return look

    def _write_results(self, returned: Sequence[int], given: Mapping[int, str], names: dict[str, Any]) -> list[str]:
        """Write what is returned, as the elements of a list."""
        results: list[str] = []
        seen: dict[int, list[tuple[int, int]]] = {}  # first and last byte of what callers get of each external
        plain: list[int] = []  # externals that are returned as they are, one after the other

        def close() -> None:
            if len(plain) > MANY:
                taking = f"taking{len(names)}"
                names[taking] = itemgetter(*plain)
                results.append(f"*{taking}(bound)")
            else:
                results.extend(f"bound[{i}]" for i in plain)
            plain.clear()
        roots: dict[int, str] = {}  # what views are taken of, as it is called

        def view(j: int) -> str:
            at, show = self._views[j]
            names[f"show{j}"] = show
            if at not in roots:
                roots[at] = f"root{at}"
                result = self._write_results([at], given, names)[0]
                return f"show{j}(root{at} := {result})"
            return f"show{j}(root{at})"
        for j in returned:
            if j in self._views or j in roots:
                close()
                results.append(roots[j] if j in roots else view(j))
                continue
            kind, what = self._results[j]
            if kind == "copy" or kind == "token":
                close()
                names[f"{kind}{j}"] = what
                results.append(f"copy{j}.copy()" if kind == "copy" else f"frame.tokens[token{j}]")
                continue
            index, shape, offset = what
            root = self.compiled.plan.externals[index]
            result = source = given[index] if kind == "input" and index in given else f"bound[{index}]"
            if prod(shape) != root.tensor.size:
                start = offset // root.tensor.dtype.itemsize
                result += f".reshape(-1)[{start}:{start + prod(shape)}].reshape({shape})"
            elif kind != "bound" or root.shape != shape:
                result += f".reshape({shape})"
            # Results that are one value are arrays of their own to those who get them, and so are those that
            # define-by-run makes anew where the passes found that there is nothing to do.
            end = offset + prod(shape) * root.tensor.dtype.itemsize
            others = seen.setdefault(index, [])
            shared = any(offset < b and a < end for a, b in others) if kind == "bound" else j in self._own_arrays
            if kind == "bound":
                others.append((offset, end))
            if result == source and not shared and kind == "bound":
                plain.append(index)
            else:
                close()
                results.append(f"{result}.copy()" if shared else result)
        close()
        return results

    def close(self) -> None:
        """Let go of the frame's memory at once, without the garbage collector: nothing runs here any more."""
        del self.run  # it refers to this object
        self.ways = self._spans = None
        self._copied.clear()
        self._results.clear()
        self.frame.close()

    def _hand_apart(self, index: int, array: Any) -> None:
        """Bind the array of an input, or a copy where the schedule writes to the array's memory at its end."""
        if self._spans is None:
            self._spans = Spans(a for a, e in zip(self.frame.bound, self.frame.layout.externals, strict=True)
                                if e.written and a is not None)
        if self._spans.touch(array):
            self._keep_apart(array)
            array = array.copy()
        self.frame.bind(index, array)

    def _keep_apart(self, array: Any) -> None:
        """Raise ``Stale`` where functions write to an argument's memory: others would read what they have written."""
        if Spans(b.array() for b in self._states.values()).touch(array):
            raise Stale("an argument shares memory with a persistent array")

    def _apart(self, first: int, end: int) -> None:
        """Raise ``Stale`` where an array that the schedule writes to shares memory with another that is bound."""
        found = [(a, e.written) for a, e in zip(self.frame.bound[first:end], self.frame.layout.externals[first:end],
                                                strict=True) if a is not None]
        spans = Spans(a for a, written in found if written)
        if not spans.disjoint or any(spans.touch(a) for a, written in found if not written):
            raise Stale("arrays of parameters or states share memory")

    def _fresh(self, index: int) -> None:
        """Give an output a new array."""
        kind = self.compiled.plan.externals[index].tensor
        self.frame.bind(index, np.empty(kind.shape, kind.dtype))

    def _rebind(self, index: int, array: Any) -> Any:
        """Bind a param to another array; returns what to compare with at the next call."""
        kind = self.compiled.plan.externals[index].tensor
        if not isinstance(array, np.ndarray) or array.shape != kind.shape or array.dtype != kind.dtype:
            raise Stale(f"expected {kind!r}, got {getattr(array, 'dtype', type(array))}{getattr(array, 'shape', '')}")
        if self.frame.layout.externals[index].written and not array.flags.carray and (
                not array.flags.writeable or repeats(array)):
            raise Stale(f"{kind!r} is written to, and the array is read-only or repeats elements")
        self.frame.bind(index, array)
        if index in self._states:
            self._owners.add(id(owner(array)))
            if array.base is not None:
                self._holders.add(id(owner(array)))
        self._spans = None
        # An array of another layout is bound as a copy, which must be made again at the next call.
        return array if self.frame.bound[index] is array else None

    def _renew(self, box: _Box, owned: Sequence[int]) -> None:
        """Let every param be bound anew, and outputs be new arrays: one of them has been changed in place."""
        box.forget()
        self._spans = None
        for index in owned:
            self.frame.bound[index] = None

    def shared_results(self) -> tuple[int, ...]:
        """Return the positions of outputs whose array is an input's or a param's."""
        return tuple(i for i, (kind, _) in enumerate(self._results) if kind in ("input", "outside"))

    def kept(self, position: int) -> Any:
        """Return the array that output ``position`` always is in this frame, or None where it differs per call."""
        kind, what = self._results[position]
        return what if kind == "copy" else None

    def bound(self, number: int) -> Any:
        """Return the array that param ``number`` was bound to in the last run."""
        return self.frame.bound[len(self.compiled.plan.graph.inputs) + number]

    def current(self, position: int, arrays: Sequence[Any]) -> Any:
        """Return the array (or token) that output ``position`` was in the run on ``arrays``."""
        kind, what = self._results[position]
        if kind == "token":
            return self.frame.tokens[what]
        array = arrays[what[0]] if kind == "input" else self.frame.bound[what[0]]
        return part_of(array, what[2], what[1])
