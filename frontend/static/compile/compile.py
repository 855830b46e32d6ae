"""From a graph to something that runs: passes, memory plan, code generation, loading."""
from __future__ import annotations

import time
from collections.abc import Callable, Collection, Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from kusari.codegen import generate
from kusari.ir import Graph, Plan, Program, Value
from kusari.ir.threads import thread_limit
from kusari.passes import NESTS_ONLY, PIPELINE, WITHOUT_WINOGRAD, Observer, plan
from kusari.runtime import Executable
from kusari.runtime.loader import default_loader
from kusari.runtime.memory import KNOWN_LAYOUT, trim_heap

from ...configuration import config
from ...progress import Work
from ..collector import without_collector
from .families import Family
from .finished import finished
from .memory import SPEED, description
from .target import host_target

if TYPE_CHECKING:
    from ..card.place import CardPlace

COPY_BELOW_BYTES = 1 << 15  # bytes: smaller arguments and results are copied where that is faster than passing pointers
TRIM_ABOVE_BYTES = 1 << 22  # bytes of a frame from which on freed memory is returned to the system first
MOST_SCRATCH_SHARE = 0.02   # of a frame, lying behind all values: more is worth another plan
LEAST_SCRATCH_BYTES = 1 << 17
SCALAR_BYTES = 64     # the same where only numbers come in new arrays every time


@dataclass(frozen=True, eq=False)
class Compiled:
    """A graph with its executable; ``graph`` is as recorded, ``plan.graph`` as the passes left it.

    ``kept`` are the outputs that stay in the frame; ``recomputation`` is a text on recomputation, if there is any.
    ``place`` is where it runs, None for the host.
    """

    graph: Graph
    plan: Plan
    program: Program
    executable: Any  # an Executable, or that of a place
    seconds: float
    kept: tuple[Value, ...] = ()
    recomputation: str = ""
    place: CardPlace | None = None

    @property
    def outputs(self) -> tuple[Value, ...]:
        """The values of the final graph that are the outputs of ``graph``."""
        return self.plan.graph.outputs


@contextmanager
def compiling(graph: Graph) -> Generator[None]:
    """Show, and tell profiles of, the time that a graph takes to compile."""
    report = default_loader().report
    with Work("compiling", graph.name) as work:
        report.progress = lambda done, total: work.step(f"{done} of {total} kernels", done / total)
        try:
            yield
        finally:
            report.progress = None


def copied_below(graph: Graph) -> int:
    """Return below how many bytes inputs are copied into the frame; 0 where native code binds them."""
    return 0 if KNOWN_LAYOUT and not any(n.op.writes for n in graph.nodes) else COPY_BELOW_BYTES


#: The compiled forward of a backward, and which of its outputs an input of the backward is, by number.
Forward = tuple[Compiled, Mapping[int, int]]


@without_collector()
def compile_graph(graph: Graph, kept: Sequence[Value] = (), copy_in: int = COPY_BELOW_BYTES,
                  copy_out: int = COPY_BELOW_BYTES, memory: str | float = SPEED, spent: Collection[int] = (),
                  observer: Observer | None = None, place: CardPlace | None = None,
                  family: Family | None = None, forward: Forward | None = None) -> Compiled:
    """Compile ``graph`` for the host or for a ``place``; outputs in ``kept`` stay in the frame, not returned.

    Inputs below ``copy_in`` bytes are copied into the frame where native code cannot bind them itself, outputs below
    ``copy_out`` bytes out of it; others are passed by pointer. ``memory`` is for graphs that are whole training
    steps, whose outputs number ``spent`` are not returned under ``"low"``: they come after those in ``kept``.
    ``observer`` sees all passes. Kernels may be those of a ``family``. A ``place`` may let a backward read more of its
    ``forward`` than the values that are kept.
    """
    start = time.perf_counter()
    if place is not None:
        with compiling(graph):
            return place.compile(graph, kept, copy_in, copy_out, memory, spent, observer, forward)
    copy_in = min(copy_in, copied_below(graph))
    passes = PIPELINE if config.winograd else WITHOUT_WINOGRAD
    passes = NESTS_ONLY if config.cpu_codegen == "numba" else passes
    stay = set(kept)
    positions = [i for i, v in enumerate(graph.outputs) if v in stay]
    write, about = _writing()
    about += f" {thread_limit()}"  # as each has scratch of its own
    with compiling(graph):
        planned, program, did, keep = finished(
            graph, positions, copy_in, copy_out, write, about, passes, memory, sorted(spent), observer)
        if family is not None and config.cpu_codegen == "llvm":
            program = family.program(planned, program, _writing_any_size, default_loader())
        outputs = [planned.graph.outputs[i] for i in positions]
        planning = None if keep is None else {"copy_in_below": copy_in, "copy_out_below": copy_out, "kept": outputs}
        about = "" if did is None else description(memory, did)
        found = _loaded(graph, planned, program, outputs, about, start, planning)
    if keep is not None:
        keep(found.plan)
    return found


def load(graph: Graph, final: Graph, kept: Sequence[Value], copy_in: int, copy_out: int, about: str = "",
         place: CardPlace | None = None) -> Compiled:
    """Plan, generate and load ``final``, to which the passes have brought ``graph``; ``kept`` are outputs of it."""
    if place is not None:
        return place.load(graph, final, kept, copy_in, copy_out, about)
    start = time.perf_counter()
    planning: dict[str, Any] = {"copy_in_below": copy_in, "copy_out_below": copy_out, "kept": tuple(kept)}
    planned = plan(final, **planning)
    return _loaded(graph, planned, _writing()[0](planned), kept, about, start, planning)


def _writing() -> tuple[Callable[[Plan], Program], str]:
    """Return the generator of programs for this machine as it is configured now, and a text of all it depends on."""
    target, language, winograd = host_target(), config.cpu_codegen, config.winograd
    return lambda plan: generate(plan, target, language, winograd), f"{target!r} {language} {winograd}"


def _writing_any_size(plan: Plan) -> Program:
    """Generate a program whose texts have few forms."""
    return generate(plan, replace(host_target(), any_size=True), config.cpu_codegen, config.winograd)


def _loaded(graph: Graph, planned: Plan, program: Program, kept: Sequence[Value], about: str, start: float,
            planning: Mapping[str, Any] | None) -> Compiled:
    """Load a program; with ``planning``, by which it was planned, also try to find a better plan."""
    if planned.arena_size >= TRIM_ABOVE_BYTES:
        trim_heap()
    executable = Executable(planned, program)
    if planning is not None:
        executable = _with_scratch(executable, program, planning)
    return Compiled(graph, executable.plan, executable.program, executable, time.perf_counter() - start, tuple(kept),
                    about)


def _with_scratch(executable: Executable, program: Program, planning: Mapping[str, Any]) -> Executable:
    """Return an executable whose plan has room for scratch, if that takes less memory than scratch apart from it.

    Only now are the needs of kernels known. The program does not depend on where in the arena values lie.
    """
    report = executable.report
    if report.scratch_bytes <= max(LEAST_SCRATCH_BYTES, MOST_SCRATCH_SHARE * report.arena_bytes):
        return executable
    other = Executable(plan(executable.plan.graph, **planning, scratch=executable.scratch), program)
    return other if other.report.arena_bytes < report.arena_bytes else executable
