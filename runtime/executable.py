"""Executables: programs whose kernels are loaded, with frames to run them in."""
from __future__ import annotations

import threading
import weakref
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from kusari.ir import Arena, Instruction, Kernel, Node, Plan, Program, Slot, TensorType, Value
from kusari.ir.costs import (
    FEW_INSTRUCTIONS_PICOSECONDS,
    LONG_INSTRUCTION_PICOSECONDS,
    WAKING_PICOSECONDS,
    work_picoseconds,
)
from kusari.ir.threads import thread_limit

from .blas import calls_blas, with_blas
from .concurrency import launch_flags, stages_of
from .draws import draws
from .frame import Binding, Frame, Layout, Segment
from .loader import Loader, default_loader
from .memory import ALIGNMENT_BYTES, Array
from .scratch import LEAST_SEPARATE_BYTES, plan_scratch
from .thread_pool import Pool, default_pool

ENTRY_ROUNDS = 50     # to time an entry of native code
LEAST_SECONDS = 1e-8  # of an instruction


@dataclass
class ExecutableReport:
    """The contents of an executable and the cost of loading it; ``segments`` are (native instructions, threads)."""

    instructions: int
    kernels: int
    python_instructions: int
    threads: int
    segments: tuple[tuple[int, int], ...]
    arena_bytes: int
    scratch_bytes: int
    const_bytes: int
    compiled: int
    cached: int
    compile_seconds: float
    live: weakref.WeakSet[Frame] = field(default_factory=weakref.WeakSet, repr=False)

    @property
    def frames(self) -> int:
        """Number of frames, in flight or free."""
        return sum(not frame.closed for frame in list(self.live))

    @property
    def bytes(self) -> int:
        """Bytes held by the executable and all its frames, without arrays of results."""
        return self.const_bytes + self.frames * self.arena_bytes

    @property
    def held(self) -> int:
        """Bytes held, with the arrays of results that frames keep for their next runs."""
        return self.const_bytes + sum([frame.nbytes for frame in list(self.live)])


@dataclass(frozen=True)
class Measured:
    """One native instruction: its kernel, its threads, its time alone, the bytes of its distinct operands."""

    instruction: Instruction
    kernel: Kernel
    threads: int
    seconds: float
    footprint: int

    @property
    def moved(self) -> int:
        """Bytes moved: the kernel's own account, or each operand once."""
        return self.kernel.bytes or self.footprint


def picoseconds_of(instruction: Instruction) -> float:
    """Return the estimated time of a native instruction on one core, by its kernel's facts or its operands' size."""
    kernel = instruction.kernel
    assert kernel is not None
    moved = kernel.bytes
    if not moved:
        moved = sum(v.tensor.nbytes for v in instruction.operands if isinstance(v.type, TensorType))
    return work_picoseconds(kernel.flops, moved)


def _kind(value: Value) -> tuple[tuple[int, ...], np.dtype[Any]]:
    """The shape and dtype of the array bound for a value; a token has no array."""
    return (value.shape, value.tensor.dtype) if isinstance(value.type, TensorType) else ((), np.dtype(bool))


def is_free(node: Node, plan: Plan) -> bool:
    """Whether an instruction has nothing to do: a view, or an assignment already made in place."""
    slot = plan.slots.get
    if node.op.is_view:
        return plan.is_view(node)
    return node.op.name == "assign" and slot(node.inputs[0]) == slot(node.inputs[1])


def _segments(instructions: Sequence[Instruction], threads: int | None, plan: Plan) -> tuple[Segment, ...]:
    """Cut the instructions into native segments and Python ones, and choose the threads of each segment by its work.

    A segment with gathers ends with a check of its indices, before anything outside changes.
    """
    state = {plan.slots.get(n.inputs[0]) for n in plan.graph.nodes if n.op.writes and n.inputs}
    limit = thread_limit()
    steps: list[Segment] = []
    first = at = 0
    work = shared = 0.0
    blas = gathers = False
    drawn: list[Node] = []

    def close() -> None:
        if at > first:
            few = max(FEW_INSTRUCTIONS_PICOSECONDS, (at - first) * LONG_INSTRUCTION_PICOSECONDS)
            enough = shared >= min(WAKING_PICOSECONDS, few)
            count = threads or (limit if enough else 1)
            short = work < WAKING_PICOSECONDS
            steps.append(Segment(first, at - first, count, short, None, blas, gathers, tuple(drawn)))

    for instruction in instructions:
        if instruction.kernel is None or gathers and changes_state(instruction, plan, state):
            # The instructions of one node stay together, with the same threads: this is the first one of its node,
            # since behind it there are no gathers to check.
            close()
            first, work, shared, blas, gathers = at, 0.0, 0.0, False, False
            drawn.clear()
        if instruction.kernel is None:
            steps.append(Segment(at, 0, instruction=instruction))
        else:
            at += 1
            time = picoseconds_of(instruction)
            work += time
            shared += 0.0 if instruction.kernel.serial else time
            blas = blas or calls_blas(instruction.kernel)
            gathers = gathers or has_status(instruction)
            if draws(instruction):
                drawn.append(instruction.node)
    close()
    return tuple(steps)


def has_status(instruction: Instruction) -> bool:
    """Whether a native instruction reports indices out of bounds in a status slot."""
    return instruction.reports


def changes_state(instruction: Instruction, plan: Plan, state: set[Any]) -> bool:
    """Whether an instruction writes to a state, one of the slots ``state``."""
    return instruction.node.op.writes or any(plan.slots.get(v) in state for v in instruction.node.outputs)


class _SlotTable:
    """One flat list of slots for all native instructions: operands, status, generators, scratch of each in order.

    ``slots_of`` are the slots of each value, ``firsts`` the first slot of each instruction. ``scratch`` has for each
    instruction that needs some (node, start, bytes, slot): instructions of a node find the contents that the previous
    one left, and the nodes of a stage, of which ``stage_of`` has the first, have separate ranges of the bytes that it
    ``needs``.
    """

    def __init__(self, native: Sequence[tuple[Instruction, Kernel]], stage_of: Mapping[Node, Node],
                 threads: int) -> None:
        self.slots_of: dict[Value, list[int]] = {}
        self.firsts: list[int] = []
        self.status_slots: list[tuple[int, Node]] = []
        self.drawn: list[tuple[int, Node]] = []
        self.scratch: list[tuple[Node, int, int, int]] = []
        self.needs: dict[Node, int] = {}
        self.numbers: list[tuple[int, int]] = []  # (slot, number) of kernels for many sizes
        self.count = 0
        for instruction, kernel in native:
            self.firsts.append(self.count)
            for value in instruction.operands:
                self.slots_of.setdefault(value, []).append(self._next())
            if has_status(instruction):
                self.status_slots.append((self._next(), instruction.node))
            if draws(instruction):
                self.drawn.append((self._next(), instruction.node))
            if kernel.scratch or kernel.shared:
                needed = kernel.shared + threads * kernel.scratch
                node, used = stage_of.get(instruction.node, instruction.node), 0
                if instruction.node in stage_of:
                    used = -(-self.needs.get(node, 0) // ALIGNMENT_BYTES) * ALIGNMENT_BYTES
                self.scratch.append((node, used, needed, self._next()))
                self.needs[node] = max(self.needs.get(node, 0), used + needed)
            self.numbers += [(self._next(), number) for number in instruction.numbers]

    def _next(self) -> int:
        self.count += 1
        return self.count - 1

    def instruction_of(self, slot: int) -> int:
        """The number of the native instruction that a slot belongs to."""
        return bisect_right(self.firsts, slot) - 1


class _Places:
    """The addresses in the slots of a table: in the arena, as (slot, offset), or in the arrays bound to externals.

    ``scratch`` are the places of nodes' scratch, ``taken`` those of the instructions that need some, with begin and
    bytes.
    """

    def __init__(self, plan: Plan, table: _SlotTable, given: int) -> None:
        self.scratch, self.arena_bytes = plan_scratch(plan, table.needs, given)
        self.arena: list[tuple[int, int]] = []
        self.taken: dict[int, tuple[Slot, int, int]] = {}
        self._values: list[list[tuple[int, int]]] = [[] for _ in plan.externals]
        self._scratch: list[list[tuple[int, int]]] = [[] for _ in plan.externals]
        for value, numbers in table.slots_of.items():
            for number in numbers:
                self._point(number, plan.slots[value], 0, self._values)
        for node, start, needed, number in table.scratch:
            slot = self.scratch[node]
            self.taken[table.instruction_of(number)] = slot, start, needed
            self._point(number, slot, start, self._scratch)

    def _point(self, number: int, slot: Slot, more: int, externals: list[list[tuple[int, int]]]) -> None:
        (self.arena if isinstance(slot, Arena) else externals[slot.index]).append((number, slot.offset + more))

    def bindings(self, plan: Plan, consts: Mapping[Value, Array]) -> tuple[Binding, ...]:
        """The binding of each external: the facts that frames need to bind an array."""
        written = {v for n in plan.graph.nodes if n.op.writes for v in n.inputs[:1]}
        return tuple([
            Binding(v, *_kind(v), slots=tuple([number for number, offset in own if not offset]),
                    inner_slots=tuple([place for place in own if place[1]]),
                    copied=isinstance(plan.slots.get(v), Arena), written=v in written, const=consts.get(v),
                    scratch=tuple(scratch))
            for v, own, scratch in zip(plan.externals, self._values, self._scratch, strict=True)])


class Executable:
    """A loaded program; ``acquire`` returns a frame to run it in.

    ``threads`` None lets the amount of work decide. Invariant: instructions run in the program's order, and every frame
    has memory of its own, so any number of them may be in flight.
    """

    def __init__(self, plan: Plan, program: Program, threads: int | None = None, loader: Loader | None = None,
                 pool: Pool | None = None) -> None:
        self.plan = plan
        self.program = program = with_blas(program)
        self._pool = pool or default_pool()
        self._loader = loader = loader or default_loader()
        cost = loader.report
        before = (cost.compiled, cost.cached, cost.compile_seconds)
        instructions = [r for r in program.instructions if r.kernel is not None or not is_free(r.node, plan)]
        native = [(r, r.kernel) for r in instructions if r.kernel is not None]
        addresses, libraries = loader.lend([kernel for _, kernel in native])
        steps = _segments(instructions, threads, plan)
        # A run has as many threads as its step asks for, or one: also if the pool has fewer now and more later.
        most = max((s.threads for s in steps), default=1)
        self.threads = self._pool.ensure(most)
        consts = {v: np.array(a, v.tensor.dtype, order="C").reshape(v.shape) for v, a in plan.graph.consts}
        given = len(plan.graph.inputs) + len(plan.graph.params) + len(consts)
        natives = tuple([instruction for instruction, _ in native])
        alike = stages_of(natives, plan, given)
        stage_of = {natives[i].node: natives[group[0]].node for group in alike for i in group}
        table = _SlotTable(native, stage_of, most)
        places = _Places(plan, table, given)
        externals = places.bindings(plan, consts)
        flags = launch_flags(natives, plan, given, alike, steps, places.taken)
        self._layout = Layout(
            plan=plan, steps=steps, kernels=tuple(zip(addresses, table.firsts, flags, strict=True)), slots=table.count,
            arena_slots=tuple(places.arena), arena_bytes=places.arena_bytes, externals=externals, given=given,
            results_bytes=sum(v.tensor.nbytes for v in plan.externals[given:]),
            invoker=self._pool.invoker if most > 1 else self._pool.alone, state=self._pool.state,
            ensure=self._pool.ensure,
            keep=(self._pool, loader, libraries), status_slots=tuple(table.status_slots), drawn=tuple(table.drawn),
            native=natives, numbers=tuple(table.numbers))
        #: The externals that live in the arena: binding them copies.
        self.copied = frozenset(i for i, e in enumerate(externals) if e.copied)
        #: Bytes of the arena that nodes need while they run, if those are many.
        self.scratch = {node: size for node, size in table.needs.items()
                        if size > LEAST_SEPARATE_BYTES and isinstance(places.scratch[node], Arena)}
        self._free: list[Frame] = []
        self._lock = threading.Lock()
        self.report = ExecutableReport(
            instructions=len(instructions), kernels=len(program.kernels),
            python_instructions=len(instructions) - len(native), threads=self.threads,
            segments=tuple((s.count, s.threads) for s in steps if s.instruction is None),
            arena_bytes=places.arena_bytes, scratch_bytes=places.arena_bytes - plan.arena_size,
            const_bytes=sum(a.nbytes for a in consts.values()),
            compiled=cost.compiled - before[0], cached=cost.cached - before[1],
            compile_seconds=cost.compile_seconds - before[2])

    def acquire(self) -> Frame:
        """Return a frame without another user; ``release`` it when its values are not needed any more."""
        with self._lock:
            if self._free:
                return self._free.pop()
        self._pool.ensure(self.threads)  # after a fork there are no workers
        self._loader.release_memory()
        frame = Frame(self._layout)
        self.report.live.add(frame)
        if self.threads > 1:
            self._pool.watch(frame)
        return frame

    def release(self, frame: Frame) -> None:
        """Return a frame to the free ones, for the next call; its bound arrays are released."""
        frame.unbind()
        with self._lock:
            self._free.append(frame)

    def profile(self, frame: Frame, repeat: int = 20) -> list[tuple[str, float]]:
        """Return (symbol, best seconds) of each native instruction, run alone in ``frame`` with its externals bound."""
        return [(kernel.symbol, seconds) for (_, kernel), (_, seconds) in zip(
            self._native(), frame.profile(repeat), strict=True)]

    def _native(self) -> list[tuple[Instruction, Kernel]]:
        return [(r, r.kernel) for r in self.program.instructions if r.kernel is not None]

    def measure(self, repeat: int = 5) -> list[Measured]:
        """Time each native instruction, in a frame of its own: no call is needed, and nothing outside changes.

        Each is run alone, several times in a row, on ones (integers are zeros), with the threads of its segment; the
        best time counts, less the time of entering native code. So operands that fit into a cache lie there. Draws of
        random numbers are left out, as their kernels do nothing without the generator's state.
        """
        self._pool.ensure(self.threads)
        frame = Frame(self._layout)
        try:
            frame.fill()
            entries = frame.entries(ENTRY_ROUNDS)
            return [Measured(instruction, kernel, 1 if kernel.serial else threads,
                             max(LEAST_SECONDS, seconds - entries[threads]), self._footprint(instruction))
                    for (instruction, kernel), (threads, seconds) in zip(
                        self._native(), frame.profile(repeat), strict=True) if not draws(instruction)]
        finally:
            frame.close()

    def _footprint(self, instruction: Instruction) -> int:
        """Return the bytes of the operands, each place once: arrays that are updated in place are operand twice."""
        sizes = {self.plan.slots[v]: v.tensor.nbytes for v in instruction.operands if isinstance(v.type, TensorType)}
        return sum(sizes.values())
