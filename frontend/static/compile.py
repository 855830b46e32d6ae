"""From a graph to something that runs: passes, memory plan, code generation, loading; and the arrays of one call."""
from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
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
    return sys.getrefcount(array)


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
    """Binds the arrays of one call to one frame, quickly.

    Invariant: what is bound at index ``i`` has the dtype and shape of the graph's input or param; ``Stale`` is raised
    otherwise, before anything has run.
    """

    __slots__ = ("frame", "run", "compiled", "_copied", "_handed", "_bindings", "_first_param", "_owned", "_results",
                 "_expected")

    def __init__(self, compiled: Compiled, bindings: Sequence[Binding]) -> None:
        self.compiled = compiled
        exe = compiled.executable
        self.frame = frame = exe.acquire()
        graph, final = compiled.graph, compiled.plan.graph
        n = len(graph.inputs)
        self._copied = [(i, frame.array(v)) for i, v in enumerate(final.inputs) if i in exe.copied]
        self._handed = [(i, v.tensor) for i, v in enumerate(final.inputs) if i not in exe.copied]
        self._bindings: list[list[Any]] = [[n + k, b, None] for k, b in enumerate(bindings)]
        slots = compiled.plan.slots
        sources = {v: ("input", i) for i, v in enumerate(final.inputs)}
        sources.update({v: ("param", n + k) for k, v in enumerate(final.params)})
        sources.update({v: ("const", a) for v, a in final.consts})
        first_output = n + len(final.params) + len(final.consts)
        self._owned: list[int] = []
        self._results: list[tuple[str, Any]] = []
        for v in compiled.outputs:
            slot = slots.get(v)
            if v in sources:
                self._results.append(sources[v])
            elif not isinstance(v.type, TensorType):
                self._results.append(("token", v))
            elif isinstance(slot, External) and slot.index >= first_output:
                if slot.index not in self._owned:
                    self._owned.append(slot.index)
                self._results.append(("bound", (slot.index, v.shape)))
            elif isinstance(slot, External):  # a view of an input or a param
                self._results.append(("bound", (slot.index, v.shape)))
            else:
                self._results.append(("copy", frame.array(v)))
        self._expected: dict[int, int] = dict.fromkeys(self._owned, _ALONE)
        self.run = frame.run

    def load(self, arrays: Sequence[Any]) -> None:
        """Bind inputs and params, and give outputs that callers still hold new arrays."""
        for i, view in self._copied:
            view[...] = arrays[i]
        frame = self.frame
        bound = frame.bound
        for i, _ in self._handed:
            if bound[i] is not arrays[i]:
                frame.bind(i, arrays[i])
        for entry in self._bindings:
            array = entry[1].array()
            if array is not entry[2]:
                self._rebind(entry, array)
        for index in self._owned:
            array = bound[index]
            if array is None or sys.getrefcount(array) > self._expected[index]:
                kind = self.compiled.plan.externals[index].tensor
                frame.bind(index, np.empty(kind.shape, kind.dtype))

    def _rebind(self, entry: list[Any], array: Any) -> None:
        kind = self.compiled.plan.externals[entry[0]].tensor
        if not isinstance(array, np.ndarray) or array.shape != kind.shape or array.dtype != kind.dtype:
            raise Stale(f"expected {kind!r}, got {getattr(array, 'dtype', type(array))}{getattr(array, 'shape', '')}")
        self.frame.bind(entry[0], array)
        entry[2] = array
        if not array.flags.carray:
            entry[2] = None  # bound as a copy: to be taken again at the next call
        self.run = self.frame.run

    def results(self, arrays: Sequence[Any]) -> list[Any]:
        """Return the graph's outputs after a run; ``arrays`` are the inputs that were loaded."""
        found: list[Any] = []
        bound = self.frame.bound
        for kind, what in self._results:
            if kind == "copy":
                found.append(what.copy())
            elif kind == "bound":
                array = bound[what[0]]
                found.append(array if array.shape == what[1] else array.reshape(what[1]))
            elif kind == "input":
                found.append(arrays[what])
            elif kind == "param":
                found.append(bound[what])
            elif kind == "token":
                found.append(self.frame.tokens[what])
            else:
                found.append(what.copy())
        return found

    def shared_results(self) -> tuple[int, ...]:
        """Return the positions of outputs whose array is an input's, a param's, or that of an earlier output."""
        owned = [(i, what[0]) for i, (kind, what) in enumerate(self._results) if kind == "bound"]
        own = {i for i, index in owned if index in self._owned and index not in {k for j, k in owned if j < i}}
        return tuple(i for i, (kind, _) in enumerate(self._results)
                     if kind in ("input", "param") or (kind == "bound" and i not in own))

    def kept(self, position: int) -> Any:
        """Return the array that output ``position`` always is in this frame, or None where it differs per call."""
        kind, what = self._results[position]
        return what if kind == "copy" else None

    def current(self, position: int) -> Any:
        """Return the array (or token) that output ``position`` is after this run."""
        kind, what = self._results[position]
        if kind == "token":
            return self.frame.tokens[what]
        return self.frame.bound[what[0]].reshape(what[1])

    def copied_input(self, index: int) -> Any:
        """Return the frame's copy of an input, None where the caller's array is used."""
        return next((view for i, view in self._copied if i == index), None)
