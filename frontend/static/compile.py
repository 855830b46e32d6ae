"""From a graph to something that runs: passes, memory plan, code generation, loading; and the arrays of one call."""
from __future__ import annotations

import time
import weakref
from collections.abc import Sequence
from dataclasses import dataclass
from sys import getrefcount
from typing import Any

import numpy as np

from kusari.codegen import generate
from kusari.ir import External, Graph, Plan, Program, TensorType, Value
from kusari.passes import plan, run_pipeline
from kusari.runtime import Executable

from ..configuration import config
from .target import host_target
from .tape import Binding

COPY_BELOW = 1 << 15  # bytes: smaller arguments and results are copied, which is quicker than handing over pointers
SCALAR_BYTES = 64     # the same where only numbers come in new arrays every time


def _alone() -> int:
    arrays = [np.empty(1)]
    array = arrays[0]
    return getrefcount(array)


_ALONE = _alone()  # what getrefcount says of an array that only a list and one local name hold


class Stale(Exception):
    """What a schedule is bound to no longer has the type it was traced with."""


@dataclass(frozen=True, eq=False)
class Compiled:
    """A graph with its executable; ``graph`` is as recorded, ``plan.graph`` as the passes left it."""

    graph: Graph
    plan: Plan
    program: Program
    executable: Executable
    seconds: float

    @property
    def outputs(self) -> tuple[Value, ...]:
        """The values of the final graph that are the outputs of ``graph``."""
        return self.plan.graph.outputs


def compile_graph(graph: Graph, kept: Sequence[Value] = (), copy_in: int = COPY_BELOW,
                  copy_out: int = COPY_BELOW) -> Compiled:
    """Compile ``graph``; the outputs in ``kept`` stay in the frame instead of being handed out.

    Inputs below ``copy_in`` bytes are copied into the frame, outputs below ``copy_out`` bytes out of it; others are
    handed over by pointer, which costs nothing while the same arrays come again.
    """
    start = time.perf_counter()
    positions = [i for i, v in enumerate(graph.outputs) if v in set(kept)]
    final = run_pipeline(graph)
    planned = plan(final, copy_in_below=copy_in, copy_out_below=copy_out,
                   kept=tuple(final.outputs[i] for i in positions))
    program = generate(planned, host_target(), config.cpu_codegen)
    return Compiled(graph, planned, program, Executable(planned, program), time.perf_counter() - start)


class Arguments:
    """Runs one frame of a compiled graph on arrays, with as little Python per call as possible.

    Invariant: what is bound has the dtype and shape of the graph's value (``Stale`` is raised otherwise, before
    anything has run), and between calls no array of a caller is kept alive: pointers that stand in the frame are used
    again only while a weak reference shows that the same array came again.
    """

    __slots__ = ("frame", "compiled", "_copied", "_handed", "_bindings", "_owned", "_results")

    def __init__(self, compiled: Compiled, bindings: Sequence[Binding]) -> None:
        self.compiled = compiled
        exe = compiled.executable
        self.frame = frame = exe.acquire()
        final = compiled.plan.graph
        n = len(final.inputs)
        self._copied = [(i, frame.array(v)) for i, v in enumerate(final.inputs) if i in exe.copied]
        self._handed: list[list[Any]] = [
            [i, _nothing] for i, v in enumerate(final.inputs) if i not in exe.copied and isinstance(v.type, TensorType)]
        self._bindings: list[list[Any]] = [[n + k, b.array, None] for k, b in enumerate(bindings)]
        first_output = n + len(final.params) + len(final.consts)
        self._owned: list[tuple[int, TensorType]] = []
        self._results: list[tuple[str, Any]] = []
        position = {v: i for i, v in enumerate(final.sources())}
        for v in compiled.outputs:
            slot = compiled.plan.slots.get(v)
            if not isinstance(v.type, TensorType):
                self._results.append(("token", v))
            elif position.get(v, n) < n:
                self._results.append(("input", (position[v], v.shape)))
            elif isinstance(slot, External):
                if slot.index < n:  # a view of an argument
                    self._results.append(("input", (slot.index, v.shape)))
                    continue
                self._results.append(("bound" if slot.index >= first_output else "outside", (slot.index, v.shape)))
                owner = (slot.index, compiled.plan.externals[slot.index].tensor)
                if slot.index >= first_output and owner not in self._owned:
                    self._owned.append(owner)
            else:
                self._results.append(("copy", frame.array(v)))

    def __call__(self, arrays: Sequence[Any]) -> list[Any]:
        """Run on ``arrays``, one per input of the graph, and return the graph's outputs."""
        frame = self.frame
        bound = frame.bound
        for i, view in self._copied:
            view[...] = arrays[i]
        for entry in self._handed:
            i, known = entry
            array = arrays[i]
            if known() is array:
                bound[i] = array
            else:
                frame.bind(i, array)
                entry[1] = weakref.ref(array) if bound[i] is array else _nothing
        for entry in self._bindings:
            array = entry[1]()
            if array is not entry[2]:
                self._rebind(entry, array)
        for index, kind in self._owned:
            array = bound[index]
            # An output that a caller still holds is that caller's: this run gets a new one.
            if array is None or getrefcount(array) > _ALONE:
                frame.bind(index, np.empty(kind.shape, kind.dtype))
        frame.run()
        found: list[Any] = []
        for kind, what in self._results:
            if kind == "copy":
                found.append(what.copy())
            elif kind == "bound":
                array = bound[what[0]]
                found.append(array if array.shape == what[1] else array.reshape(what[1]))
            elif kind == "input":
                found.append(arrays[what[0]].reshape(what[1]))
            elif kind == "outside":
                found.append(bound[what[0]].reshape(what[1]))
            else:
                found.append(frame.tokens[what])
        for entry in self._handed:
            bound[entry[0]] = None
        return found

    def _rebind(self, entry: list[Any], array: Any) -> None:
        kind = self.compiled.plan.externals[entry[0]].tensor
        if not isinstance(array, np.ndarray) or array.shape != kind.shape or array.dtype != kind.dtype:
            raise Stale(f"expected {kind!r}, got {getattr(array, 'dtype', type(array))}{getattr(array, 'shape', '')}")
        self.frame.bind(entry[0], array)
        # An array of another layout is bound as a copy, which must be made again at the next call.
        entry[2] = array if array.flags.carray else None

    def shared_results(self) -> tuple[int, ...]:
        """Return the positions of outputs whose array is an input's, a param's, or that of an earlier output."""
        seen: set[int] = set()
        shared: list[int] = []
        for i, (kind, what) in enumerate(self._results):
            if kind in ("input", "outside") or (kind == "bound" and what[0] in seen):
                shared.append(i)
            elif kind == "bound":
                seen.add(what[0])
        return tuple(shared)

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
        return array.reshape(what[1])

    def copied_input(self, index: int) -> Any:
        """Return the frame's copy of an input, None where the caller's array is used."""
        return next((view for i, view in self._copied if i == index), None)


def _nothing() -> None:
    """A weak reference to nothing."""
