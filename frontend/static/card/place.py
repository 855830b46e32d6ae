"""A card as a place of arrays: graphs become launches there, by the passes and the planner of the CPU.

`CardPlace` has all of a recording's life that depends on where its arrays lie.
"""
from __future__ import annotations

import contextlib
import functools
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from kusari.codegen import TARGETS, generate
from kusari.codegen.cuda.generate import CardGenerator
from kusari.codegen.cuda.text.dialect import OPTIONS, cuda_source
from kusari.codegen.cuda.text.guard import guarded, noting
from kusari.ir import Graph, Node, Plan, Program, Trait, Value
from kusari.ir.product import Rounding
from kusari.passes import (
    WITHOUT_WINOGRAD,
    Observer,
    name_of,
    plain_factors,
    plan,
    products_beside_gelu,
    sums_beside_products,
)
from kusari.runtime.card.executable import CardExecutable, KeptMask, nodes_without_kernels
from kusari.runtime.card.kernels import CardLoader, Dialect, cupy
from kusari.runtime.card.rounding import rounding

from ... import environment
from ...backends.cuda import is_cupy_array
from ...configuration import config
from ...function_node import FunctionNode
from ..compile.compile import Compiled, Forward
from ..compile.finished import finished
from ..compile.memory import description
from ..errors import Fault, NotCompilable
from ..trace.recording import NotStatic
from .arguments import CardArguments

EVERY_INPUT = 1 << 62  # bytes: graphs read fixed addresses, so inputs are copied to where the planner has them
#: Passes in another order than on the CPU: CuPy draws, kernels compute masks, factors may be halves, and libraries
#: compute sums, and gradients of GELU, with products.
PASSES = (*(p for step in WITHOUT_WINOGRAD if name_of(step) != "narrow_draws"
            for p in ((plain_factors, step) if name_of(step) == "fuse" else (step,))), sums_beside_products,
          products_beside_gelu)
_ANY = TARGETS["generic"]  # texts do not depend on the processor, whom only LLVM knows


class NoKernel(NotStatic, NotCompilable):
    """A node can run neither as a kernel nor by CuPy."""

    def __init__(self, node: Node) -> None:
        super().__init__(Fault(f"there is no kernel of a graphics card for {node.op.name}", node.where or "unknown"))


@dataclass(frozen=True)
class CardPlace:
    """The card with a number, as it multiplies: factors in float32 are rounded to ``rounding``."""

    device: int
    rounding: Rounding = ""

    @property
    def setting(self) -> tuple[Callable[[], Rounding], tuple[()], Rounding, str]:
        """The function that reads how CuPy multiplies, its arguments, its result when this was made, and its name."""
        return rounding, (), self.rounding, "the rounding of factors in float32 (cupy._core.set_compute_type)"

    def holds(self, array: Any) -> bool:
        """Whether an array is one of CuPy's, on this card."""
        return is_cupy_array(array) and array.device.id == self.device

    def compile(self, graph: Graph, kept: Sequence[Value], copy_in: int, copy_out: int, memory: str | float,
                spent: Collection[int], observer: Observer | None, forward: Forward | None = None) -> Compiled:
        """Compile a graph to kernels of a card; the arguments are those of ``compile_graph``.

        With ``copy_in`` zero inputs lie in the frame of a forward, where a backward finds them, or in buffers of their
        own; else all of them are copied into the arena. Raises ``NoKernel``.
        """
        started = time.perf_counter()
        stay = set(kept)
        positions = [i for i, v in enumerate(graph.outputs) if v in stay]
        planned, program, did, keep = finished(
            graph, positions, EVERY_INPUT if copy_in else 0, copy_out, self._write, f"cuda {self.rounding}", PASSES,
            memory, sorted(spent), observer)
        if keep is not None:
            keep(planned)
        about = "" if did is None else description(memory, did)
        kept = [planned.graph.outputs[i] for i in positions]
        return self._loaded(graph, planned, program, kept, about, started, forward)

    def load(self, graph: Graph, final: Graph, kept: Sequence[Value], copy_in: int, copy_out: int, about: str,
             ) -> Compiled:
        """Plan, generate and load ``final``, to which the passes have brought ``graph``; ``kept`` are outputs of it."""
        started = time.perf_counter()
        planned = plan(final, copy_in_below=EVERY_INPUT if copy_in else 0, copy_out_below=copy_out, kept=tuple(kept))
        return self._loaded(graph, planned, self._write(planned), kept, about, started)

    def _loaded(self, graph: Graph, planned: Plan, program: Program, kept: Sequence[Value], about: str,
                started: float, forward: Forward | None = None) -> Compiled:
        for node in nodes_without_kernels(program, planned):
            if not _is_called(node):
                raise NoKernel(node)
        masks: list[KeptMask] = []
        if forward is not None:
            before, outputs = forward
            masks = [mask for i, j in outputs.items() if (mask := before.executable.kept_mask(
                before.plan.graph.outputs[j], planned.graph.inputs[i])) is not None]
        executable = CardExecutable(planned, program, loader(), self.device, environment.text("CUDA_GRAPH") != "0",
                                    _libraries(), self.rounding, kept, masks)
        return Compiled(graph, planned, program, executable, time.perf_counter() - started, tuple(kept), about, self)

    def _write(self, planned: Plan) -> Program:
        return generate(planned, _ANY, "cuda", rounding=self.rounding)

    def arguments(self, compiled: Compiled, bindings: Sequence[Any], **options: Any) -> CardArguments:
        """Return one frame of a compiled graph with its arrays; the arguments are those of ``Arguments``."""
        return CardArguments(self, compiled, bindings, **options)

    @contextlib.contextmanager
    def other_draws(self) -> Iterator[None]:
        """Context in which draws leave the generator of the card as it is."""
        with self.current():
            before = cupy().random.get_random_state()
            cupy().random.set_random_state(cupy().random.RandomState(0))
            try:
                yield
            finally:
                cupy().random.set_random_state(before)

    def current(self) -> Any:
        """Return a context in which the card is the current one."""
        return cupy().cuda.Device(self.device)

    def send(self, array: Any) -> Any:
        """Return the elements of an array of NumPy's on this card."""
        with self.current():
            return cupy().asarray(array)

    def zeros(self, shape: tuple[int, ...], dtype: Any) -> Any:
        """Return a new array of zeros."""
        with self.current():
            return cupy().zeros(shape, dtype)

    def ones(self, shape: tuple[int, ...], dtype: Any) -> Any:
        """Return a new array of ones."""
        with self.current():
            return cupy().ones(shape, dtype)

    def __str__(self) -> str:
        return f"card {self.device}{f' (factors rounded to {self.rounding})' if self.rounding else ''}"


def card(device: int) -> CardPlace:
    """Return the place of a card, which multiplies as CuPy does now."""
    return CardPlace(device, rounding())


@functools.cache
def loader() -> CardLoader:
    """Return the kernels of this process."""
    writer = CardGenerator(_ANY)
    return CardLoader(Dialect(cuda_source, guarded, noting, OPTIONS, writer.split, writer.only))


def _libraries() -> tuple[str, ...]:
    """The libraries that compiled functions may call."""
    if environment.text("CUDA_LIBRARIES") == "0":
        return ()
    return ("cuBLASLt",) if config.use_cudnn == "never" else ("cuBLASLt", "cuDNN")


def _is_called(node: Node) -> bool:
    """Whether CuPy computes a node, between two graphs: draws, and functions, which are written for any device."""
    return bool(node.op.traits & (Trait.OPAQUE | Trait.RANDOM)) or isinstance(node.attrs.get("function"), FunctionNode)
