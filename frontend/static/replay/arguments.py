"""The arrays of one call: bound to a frame with as little Python per call as possible.

The work on each array is known when the graph is compiled, so it is written as straight-line Python once
per frame: no lookups, no decisions that could be made before, and no loops where arrays are few.
"""
from __future__ import annotations

import functools
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from kusari.ir import TensorType
from kusari.runtime.memory import trim_heap
from kusari.runtime.python_rows import RunError

from ..arrays.aliasing import View
from ..arrays.bindings import StateBinding
from ..arrays.captured import owner
from ..arrays.overlap import Spans, repeats
from ..compile.compile import TRIM_ABOVE_BYTES, Compiled
from ..errors import Stale
from ..signature import MANY_ARRAYS, Given, unpack
from ..source import Source, release
from .bind import CallText, Moving, Pointers, Results, params_of
from .undo import undoing

_SEARCH_STEPS: Any = 1000  # in which strided arrays are found to be apart, or else share memory


class FrameArguments:
    """A frame of a compiled graph with one array bound per input that is not ``fixed``, on the host or elsewhere.

    Its runs return the outputs, or those at ``returned``: others stay in the frame for its backward. Those at ``views``
    are views of the one at the place given, which comes later; those ``apart`` share no memory with any other.
    """

    __slots__ = ("frame", "compiled", "_first", "_free", "_results", "returned")

    def __init__(self, compiled: Compiled, fixed: Mapping[int, Any] | None, returned: Sequence[int] | None,
                 apart: Collection[int], views: Mapping[int, tuple[int, View]] | None) -> None:
        self.compiled = compiled
        self.frame = frame = compiled.executable.acquire()
        self._first = first = len(compiled.plan.graph.inputs)  # external that is a param
        for i, array in (fixed or {}).items():
            if array is not None:
                frame.bind(i, array)
        self._free = [i for i in range(first) if not fixed or i not in fixed]
        self._results = Results(compiled, frame, apart, views or {})
        self.returned = range(len(compiled.outputs)) if returned is None else returned

    def shared_results(self) -> tuple[int, ...]:
        """Return the positions of outputs whose array is an input's or a param's."""
        return self._results.outside()

    def kept(self, position: int) -> Any:
        """Return the array that output ``position`` always is in this frame, or None where it differs per call."""
        return self._results.kept(position)

    def current(self, position: int, arrays: Sequence[Any]) -> Any:
        """Return the array (or token) that output ``position`` was in the run on ``arrays``."""
        return self._results.current(position, arrays)


def require_apart(bound: Sequence[tuple[Any, bool]]) -> None:
    """Raise ``Stale`` where one of some arrays, each with whether it is written to, shares memory with another."""
    there = [(array, written) for array, written in bound if array is not None]
    spans = Spans(array for array, written in there if written)
    if not spans.disjoint or any(spans.touch(array) for array, written in there if not written):
        raise Stale("arrays of parameters or states share memory")


class Arguments(FrameArguments):
    """One frame of a compiled graph on the host; ``run`` takes the arrays that are not fixed.

    ``ready`` is called when all is bound, before anything runs. An index that is out of range is a ``RunError``, with
    all as it was, where code of the call may have ``handled`` it. With ``given_apart`` inputs are known to be distinct
    arrays, which share no memory with written ones.

    Invariant: what is bound has the dtype and shape of the graph's value (``Stale`` is raised otherwise, before
    anything has run). An array that was changed in place since it was bound (resized, or its shape, strides, dtype or
    flags assigned to) is bound anew. Between calls no array of a caller is kept alive, nor referred to weakly, which
    would keep NumPy from resizing it: pointers to inputs are used again only where the arrays that come lie there. An
    output that a caller still holds is that caller's: the next run gets a new array.
    """

    __slots__ = ("run", "_bindings", "_copied", "_fast", "_handled", "_holders", "_looks", "_owners", "_params",
                 "_pointers", "_spans", "_states", "_written")

    def __init__(self, compiled: Compiled, bindings: Sequence[Any], fixed: Mapping[int, Any] | None = None,
                 returned: Sequence[int] | None = None, apart: Collection[int] = (),
                 views: Mapping[int, tuple[int, View]] | None = None, ready: Callable[[], None] | None = None,
                 handled: bool = False, given_apart: bool = False) -> None:
        super().__init__(compiled, fixed, returned, apart, views)
        self._handled = handled and bool(self.frame.layout.status_slots)
        self._spans: Spans | None = None  # of what the schedule writes
        self._bindings = bindings
        exe, frame, final, n = compiled.executable, self.frame, compiled.plan.graph, self._first
        self._states = {i: b for i, b in enumerate(bindings, n)  # that functions write to
                        if isinstance(b, StateBinding) and frame.layout.externals[i].written}
        self._owners: set[int] = set()  # by identity, the arrays whose memory those have had,
        self._holders: set[int] = set()  # and those among them that are not the states themselves
        self._copied = {i: frame.array(v) for i, v in enumerate(final.inputs) if i in exe.copied}
        passed = [i for i in self._free if i not in exe.copied and isinstance(final.inputs[i].type, TensorType)]
        self._written = any(e.written for e in frame.layout.externals)
        self._looks = self._written and not given_apart  # where inputs lie that are elsewhere than in the last run
        self._params = params_of(bindings, n, frame)
        self._pointers = Pointers(frame, passed, [*range(n, n + len(bindings)), *self._results.owned], self._looks)
        usual = ready is None and not self._handled
        self._fast = usual and passed == self._free and len(passed) <= MANY_ARRAYS and self._pointers.direct
        self.run: Callable[[Sequence[Any]], Any] = self._write(len(bindings), ready)
        outputs = compiled.plan.externals[n + len(final.params) + len(final.consts):]
        if compiled.plan.arena_size + sum(v.nbytes for v in outputs) >= TRIM_ABOVE_BYTES:
            trim_heap()  # what making a frame and its function has left: megabytes where there are many parameters

    def _write(self, bindings: int, ready: Callable[[], None] | None) -> Callable[[Sequence[Any]], Any]:
        """Return the function of a call, which does whatever is needed."""
        source = Source("call", "run(arrays)")
        given = unpack(source, "arrays", len(self._free))
        text = CallText(source, self.frame, self, given, self._free)
        # What this very schedule writes to must not be what it reads: what was apart from an array that is bound no
        # longer may lie in the new one.
        forget = [f"{text.arguments}.forget()"] if self._looks and self._pointers.indices else []
        moved = source.fresh("moved") if self._written and bindings else ""
        if moved:
            source.line(f"{moved} = False")
        for param in self._params:
            param.bind(text, [f"{moved} = True", *forget] if moved and not param.passing else forget)
        if any(isinstance(param, Moving) for param in self._params):  # the last run has put another array there
            source.line(*forget, f"{text.arguments}.look_again()")
        if moved:
            source.line(f"if {moved}: {text.arguments}.apart()")
        self._write_copies(text)
        self._pointers.bind(text, [f"{text.arguments}.renew()", *forget, "return run(arrays)"])
        if ready is not None:
            source.line(f"{source.name(ready, 'ready')}()")
        self._results.own(text)
        self._write_run(text)
        found = source.fresh("found")
        source.line(f"{found} = [{', '.join(self._results.emit(text, self.returned))}]")
        self._pointers.unbind(text)
        source.line(f"return {found}")
        return source.function()

    def _write_copies(self, text: CallText) -> None:
        """Append lines that copy inputs into the frame."""
        source, final = text.source, self.compiled.plan.graph
        states = [final.params[k - self._first].type for k in self._states]
        owners, holders = source.name(self._owners, "owners"), source.name(self._holders, "holders")
        for i, view in self._copied.items():
            if i not in text.inputs:
                continue
            x = text.inputs[i]
            if states:  # an array that a state is part of, and one of a state's type, may share its memory
                base = source.fresh("base")
                own = f"id({x}) in {owners}" if final.inputs[i].type in states else (
                    f"{holders} and id({x}) in {holders}")
                source.line(f"{base} = {x}.base",
                            f"if {own} if {base} is None else type({base}) is not {source.name(np.ndarray, 'ndarray')} "
                            f"or id({base}) in {owners}: {text.arguments}.keep_apart({x})")
            source.line(f"{source.name(view, 'view')}[...] = {x}")

    def _write_run(self, text: CallText) -> None:
        """Append the run of the frame, which takes back what it has changed where a function gives other results."""
        source, run = text.source, f"{text.frame}.run()"
        if self._handled:
            undo = undoing(self.compiled, self.frame, self._first, True)
            source.line(f"{source.name(functools.partial(_run, self.frame, undo), 'run_frame')}()")
            return
        undo = undoing(self.compiled, self.frame, self._first) if self.frame.runs_python else None
        if undo is None:
            source.line(run)
            return
        back, error = source.fresh("back"), source.fresh("error")
        source.line(f"{back} = {source.name(undo, 'undo')}()", f"try: {run}")
        with source.block(f"except {source.name(RunError, 'RunError')} as {error}"):
            source.line(f"{back}({error})", "raise")

    def fast_path(self, source: Source, given: Given) -> FastPath | None:
        """Return the usual case of ``run`` as parts of the text of another function, None without one."""
        tests = [p.test(source) for p in self._params]
        if not self._fast or None in tests:
            return None
        text = CallText(source, self.frame, self, given, self._free)

        def write() -> list[str]:
            self._results.own(text)
            source.line(f"{text.frame}.run()")
            return self._results.emit(text, self.returned)
        return FastPath([t for t in tests if t], self._pointers.test(text), write)

    def close(self) -> None:
        """Release the frame's memory at once, without the garbage collector: nothing runs here any more."""
        release(self.run)  # it refers to itself, to this object and to views of the frame
        del self.run, self._params, self._pointers, self._results
        self._spans = None
        self._copied.clear()
        self.frame.close()

    def hand_apart(self, index: int, array: Any) -> None:
        """Bind the array of an input, or a copy where the schedule writes to the array's memory at its end."""
        if self._spans is None:
            self._spans = Spans(a for a, e in zip(self.frame.bound, self.frame.layout.externals, strict=True)
                                if e.written and a is not None)
        if self._spans.touch(array):
            self.keep_apart(array)
            array = array.copy()
        self.frame.bind(index, array)

    def keep_apart(self, array: Any) -> None:
        """Raise ``Stale`` where functions write to an argument's memory: others would read what they have written."""
        if Spans(b.array() for b in self._states.values()).touch(array):
            raise Stale("an argument shares memory with a persistent array")

    def apart(self) -> None:
        """Raise ``Stale`` where an array that the schedule writes to shares memory with another that is bound.

        What the frame has of strided arrays are copies; their elements may lie between those of others.
        """
        found = [(b.array(), e.written)
                 for b, e in zip(self._bindings, self.frame.layout.externals[self._first:], strict=False)]
        require_apart([(a, written) for a, written in found if a.flags.forc])
        for i, (x, written) in enumerate(found):
            if not x.flags.forc and any(
                    (written or other) and np.may_share_memory(x, y, _SEARCH_STEPS)
                    for j, (y, other) in enumerate(found) if j < i or j > i and y.flags.forc):
                raise Stale("arrays of parameters or states share memory")

    def fresh(self, index: int) -> None:
        """Give an output a new array."""
        kind = self.compiled.plan.externals[index].tensor
        self.frame.bind(index, np.empty(kind.shape, kind.dtype))

    def rebind(self, index: int, array: Any) -> Any:
        """Bind a param to another array; returns the object to compare with at the next call."""
        kind = self.compiled.plan.externals[index].tensor
        if not issubclass(type(array), np.ndarray) or array.shape != kind.shape or array.dtype != kind.dtype:
            got = f"{getattr(array, 'dtype', array.__class__)}{getattr(array, 'shape', '')}"
            raise Stale(f"expected {kind!r}, got {got}")
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

    def renew(self) -> None:
        """Let every param be bound anew, and outputs be new arrays: one of them has been changed in place."""
        for param in self._params:
            param.forget()
        self._spans = None
        for index in self._results.owned:
            self.frame.bound[index] = None

    def look_again(self) -> None:
        """Let the memory that the schedule writes to be looked for again."""
        self._spans = None

    def forget(self) -> None:
        """Let inputs be bound one by one: an array that the schedule writes to is another now."""
        self.frame.forget_addresses(self._pointers.indices)

    def bound(self, number: int) -> Any:
        """Return the array that param ``number`` was bound to in the last run."""
        return self.frame.bound[self._first + number]


def _run(frame: Any, undo: Callable[[], Callable[[RunError], None]] | None) -> None:
    """Run a frame; an index that is out of range is for the call to find again define-by-run, from where it began."""
    back = None if undo is None else undo()
    try:
        frame.run()
    except RunError as changed:
        if back is not None:
            back(changed)
        raise
    except IndexError as error:
        changed = RunError(str(error))
        changed.node, changed.raised, changed.run = frame.plan.graph.nodes[-1], error, frame.has_run
        if back is not None:
            back(changed)
        raise changed from error


def arguments_of(compiled: Compiled, bindings: Sequence[Any], **options: Any) -> Any:
    """Return the `Arguments` of a compiled graph, or their like of the place where it runs."""
    made = Arguments if compiled.place is None else compiled.place.arguments
    return made(compiled, bindings, **options)


@dataclass(frozen=True, eq=False)
class FastPath:
    """A run of a frame where all is as usual: the params are those bound last, each array is read where it lies.

    ``tests`` are of the params. Where ``placed`` holds as well the frame runs by the lines that ``write`` appends,
    which returns an expression for each result; where it does not, nothing has happened.
    """

    tests: list[str]
    placed: str
    write: Callable[[], list[str]]
