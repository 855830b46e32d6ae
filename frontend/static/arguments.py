"""The arrays of one call: bound to a frame with as little Python per call as possible.

What has to be done with each array is known when the graph is compiled, so it is written out as straight-line Python
once per frame: no loops, no lookups, no decisions that could be made before.
"""
from __future__ import annotations

import weakref
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from sys import getrefcount
from typing import Any

import numpy as np

from kusari.ir import External, TensorType
from kusari.runtime.frame import part_of
from kusari.runtime.memory import give_back

from ..variable_node import Arrays
from .compile import GIVE_BACK, Compiled
from .overlap import Spans
from .signature import FEW
from .tape import ParameterBinding


def _alone() -> int:
    arrays = [np.empty(1)]
    array = arrays[0]
    return getrefcount(array)


ALONE = _alone()  # what getrefcount says of an array that only a list and one local name hold


class Stale(Exception):
    """What a schedule is bound to no longer has the type it was traced with."""


def _nothing() -> None:
    """A weak reference to nothing."""


class _Box:
    """What is bound now, in attributes: more than one function looks at it."""

    seen: Any = None


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

    ``run`` returns the outputs, or those at ``returned``: others stay in the frame for its backward. Where it
    ``judges``, it may be told to run only with distinct arrays of the right types that need no copy; else it returns
    None, and nothing has happened.

    Invariant: what is bound has the dtype and shape of the graph's value (``Stale`` is raised otherwise, before
    anything has run), and between calls no array of a caller is kept alive: pointers that stand in the frame are used
    again only while a weak reference shows that the same array came again. An output that a caller still holds is
    that caller's: the next run gets a new array.
    """

    __slots__ = ("frame", "compiled", "judges", "run", "ways", "_copied", "_free", "_own_arrays", "_results", "_spans")

    def __init__(self, compiled: Compiled, bindings: Sequence[Any], fixed: Mapping[int, Any] | None = None,
                 returned: Sequence[int] | None = None, apart: Collection[int] = ()) -> None:
        self.compiled = compiled
        self._own_arrays = apart
        self._spans: Spans | None = None  # of what the schedule writes
        exe = compiled.executable
        self.frame = frame = exe.acquire()
        final = compiled.plan.graph
        n = len(final.inputs)
        self._copied = {i: frame.array(v) for i, v in enumerate(final.inputs) if i in exe.copied}
        for i, array in (fixed or {}).items():
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
            n, handed, bindings, owned, range(len(self._results)) if returned is None else returned)
        if compiled.plan.arena_size + sum(v.tensor.nbytes for v in compiled.plan.externals[first_output:]) >= GIVE_BACK:
            give_back()  # what making a frame and its function has left: megabytes where there are many parameters

    def _write(self, n: int, handed: list[int], bindings: Sequence[Any], owned: list[int],
               returned: Sequence[int]) -> Any:
        """Write and define the function that does a call."""
        box = _Box()
        names: dict[str, Any] = {
            "box": box, "frame": self.frame, "bound": self.frame.bound, "getrefcount": getrefcount, "nothing": _nothing,
            "hand": self._hand, "hand_apart": self._hand_apart, "again": self._again, "rebind": self._rebind,
            "fresh": self._fresh, "apart": self._apart, "Arrays": Arrays}
        state: list[str] = []
        tests: list[str] = []
        body: list[str] = []
        if self._free:
            body.append(f"{', '.join(f'a{i}' for i in self._free)}, = arrays")
        for i, view in self._copied.items():
            if i not in self._free:
                continue
            names[f"view{i}"] = view
            body.append(f"view{i}[...] = a{i}")
        # What this very schedule writes to must not be what it reads.
        written = any(e.written for e in self.frame.layout.externals)
        hand = "hand_apart" if written else "hand"
        place = None if written else self.frame.placing(handed)
        if written and bindings:
            body.append("moved = False")
        parameters = [n + k for k, b in enumerate(bindings) if isinstance(b, ParameterBinding)]
        if parameters:  # they are looked at when any Variable anywhere has got another array
            body += ["version = Arrays.version", "if version is not box.seen:"]
        for k, binding in sorted(enumerate(bindings), key=lambda pair: n + pair[0] not in parameters):
            index = n + k
            inside = "    " if index in parameters else ""
            names[f"get{index}"] = binding.array
            now = f"get{index}()"
            holder = getattr(binding, "holder", None)
            if holder is not None:  # an attribute: read where it stands
                names[f"holder{index}"], key = holder
                now = f"holder{index}[{key!r}]"
            mine = f"box.p{index}"
            setattr(box, f"p{index}", None)
            body += [f"{inside}x = {now}", f"{inside}if x is not {mine}: {mine} = rebind({index}, x)"]
            if not inside:
                tests.append(f"{now} is {mine}")
            if written and not getattr(binding, "passing", False):
                body[-1] += "; moved = True"
            if written and handed:  # what was apart from the array before may lie in this one
                body[-1] += "; forget()"
            if index in parameters[-1:]:
                copied = " or ".join(f"box.p{i} is None" for i in parameters)
                body.append(f"    box.seen = None if {copied} else version")
                tests.append("Arrays.version is box.seen")
        if written and bindings:
            body.append(f"if moved: apart({n}, {n + len(bindings)})")
        twice: list[str] = []
        if place is not None:
            names["place"] = place
            given = ", ".join(f"a{i}" for i in handed)
            twice = [f"a{i} is a{j}" for i in handed for j in handed if j < i]
            if len(handed) > FEW:
                twice = [f"len({{*map(id, ({given}))}}) < {len(handed)}"]
            body += [f"if {' or '.join([f'not place({given})', *twice])}:", "    if only: return None",
                     *(f"    again({i}, a{i})" for i in handed)]
            self.judges = handed == self._free
            if self.frame.runs_python:
                body += [f"else: {'; '.join(f'bound[{i}] = a{i}' for i in handed)}"]
        for i in handed if place is None else ():
            state.append(f"r{i} = nothing")
            body += [f"if r{i}() is a{i}: bound[{i}] = a{i}", f"else: r{i} = {hand}({i}, a{i})"]
        owning = [line for index in owned for line in (
            f"x = bound[{index}]", f"if x is None or getrefcount(x) > {ALONE}: fresh({index})")]
        body += [*owning, "frame.run()"]
        results: list[str] = []
        seen: list[tuple[int, int, int]] = []  # (index, first and last byte) of what callers get
        for j in returned:
            kind, what = self._results[j]
            if kind == "copy":
                names[f"out{j}"] = what
                results.append(f"out{j}.copy()")
            elif kind == "token":
                names[f"token{j}"] = what
                results.append(f"frame.tokens[token{j}]")
            else:
                given = kind == "input" and what[0] in self._free
                source = f"a{what[0]}" if given else f"bound[{what[0]}]"
                index, shape, offset = what
                root = self.compiled.plan.externals[index]
                result = source
                if prod(shape) != root.tensor.size:
                    start = offset // root.tensor.dtype.itemsize
                    result += f".reshape(-1)[{start}:{start + prod(shape)}].reshape({shape})"
                elif kind != "bound" or root.shape != shape:
                    result += f".reshape({shape})"
                # Results that are one value are arrays of their own to those who get them, and so are those that
                # define-by-run makes anew where the passes found that there is nothing to do.
                end = offset + prod(shape) * root.tensor.dtype.itemsize
                shared = any(i == index and offset < b and a < end for i, a, b in seen) if kind == "bound" else (
                    j in self._own_arrays)
                results.append(f"{result}.copy()" if shared else result)
                if kind == "bound":
                    seen.append((index, offset, end))
        if self.judges and not self.frame.runs_python:
            placed = [f"place({', '.join(f'a{i}' for i in handed)})", *(f"not ({t})" for t in twice)]
            self.ways = Ways(names, tuple(f"a{i}" for i in handed), tuple(tests), tuple(placed), tuple(owning),
                             tuple(results))
        body.append(f"found = [{', '.join(results)}]")
        body += [f"bound[{i}] = None" for i in handed]
        body.append("return found")
        nonlocals = [s.partition(" ")[0] for s in state]
        lines = [f"def make({', '.join(names)}):", *(f"    {s}" for s in state)]
        if written and handed:
            again = [f"r{i}" for i in handed]
            lines += ["    def forget():", f"        nonlocal {', '.join(again)}"]
            lines.append(f"        {' = '.join(again)} = nothing")
        lines.append("    def run(arrays, only=False):")
        if nonlocals:
            lines.append(f"        nonlocal {', '.join(nonlocals)}")
        lines += [f"        {line}" for line in body] + ["    return run"]
        scope: dict[str, Any] = {}
        exec("\n".join(lines), scope)
        return scope["make"](**names)

    def _hand(self, index: int, array: Any) -> Any:
        """Bind the array of an input; returns what tells whether the same one comes again."""
        self.frame.bind(index, array)
        return weakref.ref(array) if self.frame.bound[index] is array else _nothing

    def _again(self, index: int, array: Any) -> None:
        """Bind the array of an input whatever is in its place."""
        self.frame.bound[index] = None
        self.frame.bind(index, array)

    def _hand_apart(self, index: int, array: Any) -> Any:
        """Do the same with a copy where the schedule writes to the array's memory."""
        if self._spans is None:
            self._spans = Spans(a for a, e in zip(self.frame.bound, self.frame.layout.externals, strict=True)
                                if e.written and a is not None)
        if not self._spans.touch(array):
            return self._hand(index, array)
        self.frame.bind(index, array.copy())
        return _nothing

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
        self.frame.bind(index, array)
        self._spans = None
        # An array of another layout is bound as a copy, which must be made again at the next call.
        return array if array.flags.carray else None

    def shared_results(self) -> tuple[int, ...]:
        """Return the positions of outputs whose array is an input's or a param's."""
        return tuple(i for i, (kind, _) in enumerate(self._results) if kind in ("input", "outside"))

    def kept(self, position: int) -> Any:
        """Return the array that output ``position`` always is in this frame, or None where it differs per call."""
        kind, what = self._results[position]
        return what if kind == "copy" else None

    def current(self, position: int, arrays: Sequence[Any]) -> Any:
        """Return the array (or token) that output ``position`` was in the run on ``arrays``."""
        kind, what = self._results[position]
        if kind == "token":
            return self.frame.tokens[what]
        array = arrays[what[0]] if kind == "input" else self.frame.bound[what[0]]
        return part_of(array, what[2], what[1])
