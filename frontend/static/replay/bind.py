"""The arrays of a call as small objects, which write how they are bound to a frame and how results come out of it.

``bind`` appends the general lines, which do whatever is needed. ``test`` returns the condition under which there is
nothing to do, which is what a fast path asks: it consists of tests and of the lines that every call needs.
"""
from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from math import prod
from operator import itemgetter
from sys import getrefcount
from typing import Any

import numpy as np

from kusari.ir import External, TensorType, Value
from kusari.runtime.frame import Frame
from kusari.runtime.python_rows import part_of

from ...epochs import Arrays
from ..arrays.aliasing import View
from ..arrays.bindings import ParameterBinding
from ..compile.compile import Compiled
from ..signature import MANY_ARRAYS, Given
from ..source import Source


def _alone() -> int:
    arrays = [np.empty(1)]
    array = arrays[0]
    return getrefcount(array)


ALONE = _alone()  # what getrefcount says of an array that only a list and one local name hold
Rebind = Callable[[int, Any], Any]  # binds an external to an array; returns what to compare with at the next call


class CallText:
    """The text of one call on a frame: names of the frame, its arrays and the `Arguments`, expressions for inputs."""

    def __init__(self, source: Source, frame: Frame, arguments: Any, given: Given, free: Sequence[int]) -> None:
        self.source, self.given = source, given
        self.inputs = dict(zip(free, given.arrays, strict=True))
        self.frame, self.bound = source.name(frame, "frame"), source.name(frame.bound, "bound")
        self.arguments = source.name(arguments, "arguments")
        self.fresh = arguments.fresh  # gives an output a new array, in nearly every call


class State:
    """A param that is no parameter's, read anew in every call and bound where it is another array.

    One that is ``passing`` nearly always is.
    """

    bound: Any = None

    def __init__(self, index: int, binding: Any) -> None:
        self._index, self._binding = index, binding
        self.passing = getattr(binding, "passing", False)

    def _now(self, source: Source) -> str:
        text = getattr(self._binding, "text", None)
        if text is not None:
            return text(source)
        holder = getattr(self._binding, "holder", None)
        if holder is None:
            return f"{source.name(self._binding, 'binding')}.array()"
        entries, key = holder  # an attribute: read where it stands
        return f"{source.name(entries, 'entries')}[{key!r}]"

    def bind(self, text: CallText, moved: Sequence[str]) -> None:
        """Append lines that bind the array if it is another now, followed by the lines ``moved``."""
        source = text.source
        x, known = source.fresh("x"), f"{source.name(self, 'state')}.bound"
        source.line(f"{x} = {self._now(source)}")
        with source.block(f"if {x} is not {known}"):
            source.line(f"{known} = {text.arguments}.rebind({self._index}, {x})", *moved)

    def test(self, source: Source) -> str | None:
        """Return the test that it is the array bound last."""
        return f"{self._now(source)} is {source.name(self, 'state')}.bound"

    def forget(self) -> None:
        """Let the next call bind it."""
        self.bound = None


class Moving(State):
    """A parameter whose array the schedule itself replaces: the frame knows which one was bound last."""

    def __init__(self, index: int, binding: Any, frame: Frame) -> None:
        super().__init__(index, binding)
        self._frame = frame

    def bind(self, text: CallText, moved: Sequence[str]) -> None:
        source, x = text.source, text.source.fresh("x")
        source.line(f"{x} = {self._now(source)}")
        with source.block(f"if {x} is not {text.bound}[{self._index}]"):
            source.line(f"{text.arguments}.rebind({self._index}, {x})", *moved)

    def test(self, source: Source) -> str | None:
        return None

    def forget(self) -> None:
        self._frame.bound[self._index] = None


class States:
    """So many of these that a loop looks at them."""

    passing = False

    def __init__(self, bindings: Sequence[tuple[int, Any]]) -> None:
        self._entries = [(k, index, binding.array) for k, (index, binding) in enumerate(bindings)]
        self._known: list[Any] = [None] * len(bindings)

    def look(self, rebind: Rebind) -> tuple[bool, bool]:
        """Bind arrays that are others; returns whether there were any, and whether all are bound as they are."""
        known, some, every = self._known, False, True
        for k, index, now in self._entries:
            x = now()
            if x is not known[k]:
                known[k] = rebind(index, x)
                some = True
                every = every and known[k] is not None
        return some, every

    def bind(self, text: CallText, moved: Sequence[str]) -> None:
        """Append lines that bind arrays that are others now, followed by the lines ``moved``."""
        source = text.source
        with source.block(f"if {source.name(self, 'states')}.look({text.arguments}.rebind)[0]"):
            source.line(*(moved or ("pass",)))

    def test(self, source: Source) -> str | None:
        """Return None: it takes as long to test all arrays as to bind them."""

    def forget(self) -> None:
        """Let the next call bind all of them."""
        self._known[:] = [None] * len(self._known)


class Parameters(States):
    """The parameters of a graph, which are looked at when any Variable anywhere has got another array."""

    seen: Any = None  # the version at which all of them were bound as they are

    def bind(self, text: CallText, moved: Sequence[str]) -> None:
        source = text.source
        me, version, some, every = source.name(self, "parameters"), *map(source.fresh, ("version", "some", "every"))
        source.line(f"{version} = {source.name(Arrays, 'Arrays')}.version")
        with source.block(f"if {version} is not {me}.seen"):
            source.line(f"{some}, {every} = {me}.look({text.arguments}.rebind)")
            if moved:
                with source.block(f"if {some}"):
                    source.line(*moved)
            source.line(f"{me}.seen = {version} if {every} else None")

    def test(self, source: Source) -> str | None:
        return f"{source.name(Arrays, 'Arrays')}.version is {source.name(self, 'parameters')}.seen"

    def forget(self) -> None:
        super().forget()
        self.seen = None


Params = State | States


def params_of(bindings: Sequence[Any], first: int, frame: Frame) -> list[Params]:
    """Return the params of ``bindings``, the externals from ``first`` on."""
    graph = frame.plan.graph
    replaced = {graph.params.index(n.inputs[0]) + first for n in graph.nodes if n.op.writes and "put" in n.attrs}
    numbered = list(enumerate(bindings, first))
    moving: list[Params] = [Moving(i, b, frame) for i, b in numbered if i in replaced]
    numbered = [(i, b) for i, b in numbered if i not in replaced]
    parameters = [(i, b) for i, b in numbered if isinstance(b, ParameterBinding)]
    others = [(i, b) for i, b in numbered if not isinstance(b, ParameterBinding)]
    states = [State(i, b) for i, b in others]
    many = len(states) > MANY_ARRAYS and not any(s.passing for s in states)
    return [*moving, *[Parameters(parameters)] * bool(parameters), *([States(others)] if many else states)]


class Pointers:
    """Inputs that kernels read where callers have them: native code tests them and puts their addresses into slots.

    Where the schedule has ``written`` externals, those must not be what it reads: inputs that lie elsewhere than in the
    last call are bound one by one.
    """

    def __init__(self, frame: Frame, indices: list[int], held: list[int], written: bool) -> None:
        self.indices, self._written = indices, written
        self._place = frame.binder(indices, held, not written)
        self._unchanged = frame.unchanged(held + indices if written else held) if held else None
        self._stay = written or frame.runs_python  # some others look for the arrays while the frame runs
        self.direct = self._place is not None and not self._stay  # whether ``test`` is all there is to do

    def test(self, text: CallText) -> str:
        """Return the test that arrays are distinct and of the right types, which puts down their addresses."""
        xs = [text.inputs[i] for i in self.indices]
        every = len(xs) == len(text.inputs)
        place = text.source.name(self._place, "place")
        placed = f"{place}({f'*{text.given.together}' if every and len(xs) > MANY_ARRAYS else ', '.join(xs)})"
        distinct = "" if self._written else text.given.distinct(None if every else xs)
        return f"{placed} and {distinct}" if distinct else placed

    def bind(self, text: CallText, again: Sequence[str]) -> None:
        """Append lines that bind the arrays, and do ``again`` what is there where an array held was changed in place.
        """
        source = text.source

        def anew() -> None:
            self._each(text, f"{text.arguments}.hand_apart({{0}}, {{1}})" if self._written else
                       f"{text.frame}.bind({{0}}, {{1}})")
            if self._unchanged is not None:
                with source.block(f"if not {source.name(self._unchanged, 'unchanged')}()"):
                    source.line(*again)
        if self._place is None:
            anew()
            return
        with source.block(f"if not ({self.test(text)})"):
            anew()
        if self._stay:
            with source.block("else"):
                self._each(text, f"{text.bound}[{{0}}] = {{1}}")

    def unbind(self, text: CallText) -> None:
        """Append lines that keep none of the arrays."""
        self._each(text, f"{text.bound}[{{0}}] = None")

    def _each(self, text: CallText, line: str) -> None:
        """Append a line for each number and array; a loop where they are many."""
        source, inputs = text.source, list(text.inputs)
        if len(inputs) > MANY_ARRAYS:
            i, j = source.fresh("i"), source.fresh("j")
            pairs = source.name([(i, inputs.index(i)) for i in self.indices], "pairs")
            source.line(f"for {i}, {j} in {pairs}: {line.format(i, f'{text.given.together}[{j}]')}")
        else:
            source.line(*[line.format(i, text.inputs[i]) for i in self.indices])


@dataclass(frozen=True, eq=False)
class Token:
    """A result that is no array."""

    value: Value


@dataclass(frozen=True, eq=False)
class Copied:
    """A result at a fixed place of the frame, of which callers get copies."""

    array: np.ndarray


@dataclass(frozen=True, eq=False)
class Part:
    """A result that lies in an external: an input, a param, or an array of its own (``owned``)."""

    index: int
    offset: int
    shape: tuple[int, ...]
    whole: TensorType
    owned: bool

    @property
    def end(self) -> int:
        """The offset behind its last byte."""
        return self.offset + prod(self.shape) * self.whole.dtype.itemsize

    def of(self, array: str) -> str:
        """Return the expression for it in the array of its external."""
        if prod(self.shape) != self.whole.size:
            start = self.offset // self.whole.dtype.itemsize
            return f"{array}.reshape(-1)[{start}:{start + prod(self.shape)}].reshape({self.shape})"
        return array if self.owned and self.whole.shape == self.shape else f"{array}.reshape({self.shape})"


Result = Token | Copied | Part


class Results:
    """The outputs of a compiled graph, as callers get them: arrays of their own.

    Those of ``views`` are views of another one; those ``apart`` shared no memory with others in define-by-run.
    """

    def __init__(self, compiled: Compiled, frame: Frame, apart: Collection[int],
                 views: Mapping[int, tuple[int, View]]) -> None:
        self._apart, self._views = apart, views
        self._frame = frame
        plan = compiled.plan
        final = plan.graph
        inputs = len(final.inputs)
        params = inputs + len(final.params) + len(final.consts)
        position = {v: i for i, v in enumerate(final.sources())}

        def result(v: Value) -> Result:
            if not isinstance(v.type, TensorType):
                return Token(v)
            slot = plan.slots.get(v)
            if position.get(v, inputs) < inputs:
                index, offset = position[v], 0
            elif isinstance(slot, External):
                index, offset = slot.index, slot.offset
            else:
                return Copied(frame.array(v))
            return Part(index, offset, v.shape, plan.externals[index].tensor, index >= params)
        self.places = [result(v) for v in compiled.outputs]
        self._inputs = inputs
        self.owned = list(dict.fromkeys(r.index for r in self.places if isinstance(r, Part) and r.owned))

    def own(self, text: CallText) -> None:
        """Append lines that give outputs new arrays where callers hold those of the last call."""
        source = text.source
        x, count, fresh = source.fresh("x"), source.name(getrefcount, "getrefcount"), source.name(text.fresh, "fresh")

        def lines(i: Any) -> tuple[str, str]:
            return (f"{x} = {text.bound}[{i}]",
                    f"if {x} is None or {count}({x}) > {ALONE}: {fresh}({i})")
        if len(self.owned) > MANY_ARRAYS:
            i = source.fresh("i")
            with source.block(f"for {i} in {source.name(self.owned, 'owned')}"):
                source.line(*lines(i))
        else:
            for i in self.owned:
                source.line(*lines(i))

    def emit(self, text: CallText, returned: Sequence[int]) -> list[str]:
        """Return the elements of a list of the outputs ``returned``."""
        roots: dict[int, str] = {}  # variables that views are taken of
        seen: dict[int, list[Part]] = {}  # parts that callers get of each external
        elements: list[str] = []
        for whole, several in groupby([self._element(text, j, roots, seen) for j in returned], lambda e: e[1] >= 0):
            some = list(several)
            if whole and len(some) > MANY_ARRAYS:
                elements.append(f"*{text.source.name(itemgetter(*[i for _, i in some]), 'some')}({text.bound})")
            else:
                elements += [element for element, _ in some]
        return elements

    def _element(self, text: CallText, j: int, roots: dict[int, str], seen: dict[int, list[Part]]) -> tuple[str, int]:
        """Return the expression for an output, and which external it is, if it is one as it is; else -1.

        Results that are one value are arrays of their own. So are results that define-by-run makes anew where the
        passes found that there is nothing to do.
        """
        result = self.places[j]
        if j in roots:
            return roots[j], -1
        if j in self._views:
            at, show = self._views[j]
            of = roots.get(at)
            if of is None:
                (root,) = self.emit(text, [at])
                roots[at] = text.source.fresh("root")
                of = f"{roots[at]} := {root}"
            return f"{text.source.name(show, 'show')}({of})", -1
        if isinstance(result, Token):
            return f"{text.frame}.tokens[{text.source.name(result.value, 'token')}]", -1
        if isinstance(result, Copied):
            return f"{text.source.name(result.array, 'kept')}.copy()", -1
        array = text.inputs.get(result.index, f"{text.bound}[{result.index}]")
        found, shared = result.of(array), j in self._apart
        if result.owned:
            others = seen.setdefault(result.index, [])
            shared = any(result.offset < other.end and other.offset < result.end for other in others)
            others.append(result)
        if shared:
            return f"{found}.copy()", -1
        return found, result.index if result.owned and found == array else -1

    def outside(self) -> tuple[int, ...]:
        """Return the positions of outputs whose array is an input's or a param's."""
        return tuple([i for i, r in enumerate(self.places) if isinstance(r, Part) and not r.owned])

    def kept(self, position: int) -> Any:
        """Return the array that output ``position`` always is in this frame, or None where it differs per call."""
        result = self.places[position]
        return result.array if isinstance(result, Copied) else None

    def current(self, position: int, arrays: Sequence[Any]) -> Any:
        """Return the array (or token) that output ``position`` was in the run on ``arrays``."""
        result = self.places[position]
        if isinstance(result, Token):
            return self._frame.tokens[result.value]
        assert isinstance(result, Part)
        bound = arrays if result.index < self._inputs else self._frame.bound
        array: Any = bound[result.index]
        return part_of(array, result.offset, result.shape)
