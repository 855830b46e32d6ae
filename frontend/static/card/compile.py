"""From a graph to launches on a card: the passes and the planner of the CPU, kernels in CUDA C."""
from __future__ import annotations

import functools
import time
from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING

from kusari.codegen import generate
from kusari.codegen.cuda.text.dialect import OPTIONS, cuda_source
from kusari.codegen.cuda.text.guard import guarded, noting
from kusari.ir import Graph, Node, Plan, Program, Trait, Value
from kusari.passes import WITHOUT_WINOGRAD, Observer, name_of, plan
from kusari.runtime.card.executable import CardExecutable, nodes_without_kernels
from kusari.runtime.card.kernels import CardLoader, Dialect

from ... import environment
from ...function_node import FunctionNode
from ..compile.compile import Compiled
from ..compile.finished import finished
from ..compile.memory import description
from ..compile.target import host_target
from ..errors import NotCompilable
from ..trace.recorder import Fault
from ..trace.recording import NotStatic

if TYPE_CHECKING:
    from .place import CardPlace

EVERY_INPUT = 1 << 62  # bytes: graphs read fixed addresses, so inputs are copied to where the planner has them
#: Primitives that CuPy computes itself, between two graphs: draws, and products in types that no kernel has yet.
CALLED = frozenset(("random", "matmul"))
PASSES = tuple(p for p in WITHOUT_WINOGRAD if name_of(p) != "narrow_draws")  # CuPy draws, kernels compute masks


class NoKernel(NotStatic, NotCompilable):
    """A node can run neither as a kernel nor by CuPy."""

    def __init__(self, node: Node) -> None:
        super().__init__(Fault(f"there is no kernel of a graphics card for {node.op.name}", node.where or "unknown"))


@functools.cache
def loader() -> CardLoader:
    """The kernels of this process."""
    return CardLoader(Dialect(cuda_source, guarded, noting, OPTIONS))


def _write(plan: Plan) -> Program:
    return generate(plan, host_target(), "cuda")  # texts do not depend on the processor


def compile_on_card(graph: Graph, place: CardPlace, kept: Sequence[Value], copy_in: int, copy_out: int,
                    memory: str | float, spent: Collection[int] = (), observer: Observer | None = None) -> Compiled:
    """Compile ``graph`` for the card ``place``; the arguments are those of ``compile_graph``.

    With ``copy_in`` zero inputs lie in the frame of a forward, where a backward finds them, or in buffers of their own;
    else all of them are copied into the arena. Raises ``NoKernel``.
    """
    started = time.perf_counter()
    stay = set(kept)
    positions = [i for i, v in enumerate(graph.outputs) if v in stay]
    planned, program, did, keep = finished(
        graph, positions, EVERY_INPUT if copy_in else 0, copy_out, _write, "cuda", PASSES, memory, sorted(spent),
        observer)
    if keep is not None:
        keep(planned)
    about = "" if did is None else description(memory, did)
    return _loaded(graph, planned, program, place, [planned.graph.outputs[i] for i in positions], about, started)


def load_on_card(graph: Graph, final: Graph, place: CardPlace, kept: Sequence[Value], copy_in: int, copy_out: int,
                 about: str) -> Compiled:
    """Plan, generate and load ``final``, to which the passes have brought ``graph``; ``kept`` are outputs of it."""
    started = time.perf_counter()
    planned = plan(final, copy_in_below=EVERY_INPUT if copy_in else 0, copy_out_below=copy_out, kept=tuple(kept))
    return _loaded(graph, planned, _write(planned), place, kept, about, started)


def _loaded(graph: Graph, planned: Plan, program: Program, place: CardPlace, kept: Sequence[Value], about: str,
            started: float) -> Compiled:
    for node in nodes_without_kernels(program, planned):
        if node.op.name not in CALLED and not _is_called(node):
            raise NoKernel(node)
    executable = CardExecutable(planned, program, loader(), place.device, environment.text("CUDA_GRAPH") != "0")
    return Compiled(graph, planned, program, executable, time.perf_counter() - started, tuple(kept), about, place)


def _is_called(node: Node) -> bool:
    """Whether Python may run a node on arrays of a card: draws, and functions, which are written for any device."""
    return bool(node.op.traits & (Trait.OPAQUE | Trait.RANDOM)) or isinstance(node.attrs.get("function"), FunctionNode)
