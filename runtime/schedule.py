"""Executables: programs whose kernels are loaded, and the frames they run in."""
from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from kusari.ir import Arena, External, Node, Plan, Program, Row, TensorType, Trait, Value

from .loader import Loader, default_loader
from .memory import Array, address_of, allocate
from .pool import Pool, default_pool, thread_limit

# What one core does in a second, roughly: to tell schedules of microseconds from others.
FLOPS_PER_SECOND = 40e9
BYTES_PER_SECOND = 20e9
WORTH_WAKING = 15e-6  # seconds of work below which one thread is quicker than two


class RunError(Exception):
    """A Python step of a schedule failed; the message names the user's line, the cause is the original exception."""


@dataclass(frozen=True)
class Step:
    """A native segment (``rows`` of the table from ``first``) or, when ``node`` is given, a Python row."""

    first: int
    rows: int
    threads: int = 1
    row: Row | None = None


@dataclass
class ExecutableReport:
    """What an executable consists of."""

    rows: int
    kernels: int
    python_rows: int
    threads: int
    arena_bytes: int
    frames: int = 0
    scratch_bytes: int = 0
    const_bytes: int = 0
    compile_seconds: float = 0.0
    compiled: int = 0
    cached: int = 0
    segments: list[tuple[int, int]] = field(default_factory=list[tuple[int, int]])

    @property
    def bytes(self) -> int:
        """Bytes held by the executable and all its frames."""
        return self.const_bytes + self.frames * (self.arena_bytes + self.scratch_bytes)


def seconds_of(row: Row) -> float:
    """Estimate the time of a native row on one core."""
    kernel = row.kernel
    assert kernel is not None
    moved = kernel.bytes
    if not moved and not kernel.flops:
        moved = sum(v.tensor.nbytes for v in row.operands if isinstance(v.type, TensorType))
    return max(kernel.flops / FLOPS_PER_SECOND, moved / BYTES_PER_SECOND)


def _is_free(node: Node, plan: Plan) -> bool:
    """Whether a Python row has nothing to do: a view of its operand's bytes, or a value written in its place already."""
    slot = plan.slots.get
    if Trait.VIEW in node.op.traits:
        return slot(node.inputs[0]) == slot(node.outputs[0])
    return node.op.name == "assign" and slot(node.inputs[0]) == slot(node.inputs[1])


class Executable:
    """A loaded program; ``acquire`` gives a frame to run it in.

    ``threads`` None lets the amount of work decide. Invariant: rows run in the program's order, and every frame has
    memory of its own, so any number of them may be in flight.
    """

    def __init__(self, plan: Plan, program: Program, threads: int | None = None, loader: Loader | None = None,
                 pool: Pool | None = None) -> None:
        self.plan = plan
        self.program = program
        self.pool = pool or default_pool()
        loader = loader or default_loader()
        before = (loader.report.compiled, loader.report.cached, loader.report.compile_seconds)
        rows = [r for r in program.rows if r.kernel is not None or not _is_free(r.node, plan)]
        native = [r for r in rows if r.kernel is not None]
        addresses = loader.load([r.kernel for r in native if r.kernel is not None])
        after = loader.report
        self.steps = self._steps(rows, threads)
        most = max((s.threads for s in self.steps), default=1)
        self.threads = self.pool.ensure(most) if most > 1 else 1

        # One flat list of slots for all native rows; each value's places in it are known.
        self._places: dict[Value, list[int]] = {}
        self._scratch: list[tuple[int, int]] = []
        starts: list[int] = []
        count = 0
        for row in native:
            starts.append(count)
            for value in row.operands:
                self._places.setdefault(value, []).append(count)
                count += 1
            assert row.kernel is not None
            if row.kernel.scratch:
                self._scratch.append((count, row.kernel.scratch))
                count += 1
        self._starts = starts
        self._addresses = addresses
        self._slot_count = count
        # Native rows run one after the other, so they share one scratch block.
        self.scratch_bytes = max((-(-size // 64) * 64 * self.threads for _, size in self._scratch), default=0)
        self.index: dict[Value, int] = {v: i for i, v in enumerate(plan.externals)}
        self.copied: dict[int, Value] = {i: v for i, v in enumerate(plan.externals)
                                         if isinstance(plan.slots.get(v), Arena)}
        self.places: list[list[int]] = [[] for _ in plan.externals]
        self.arena_places: list[tuple[int, int]] = []
        for value, places in self._places.items():
            slot = plan.slots[value]
            if isinstance(slot, External):
                self.places[slot.index] += places
            else:
                self.arena_places += [(p, slot.offset) for p in places]
        self.written = frozenset(s.index for n in plan.graph.nodes if Trait.WRITES in n.op.traits and n.inputs
                                 for s in [plan.slots.get(n.inputs[0])] if isinstance(s, External))
        self.consts: list[tuple[int, Array]] = []
        for value, array in plan.graph.consts:
            slot = plan.slots.get(value)
            if isinstance(slot, External):
                self.consts.append((slot.index, np.ascontiguousarray(array).reshape(value.shape)))
        self._free: list[Frame] = []
        self._lock = threading.Lock()
        self.report = ExecutableReport(
            rows=len(rows), kernels=len(program.kernels), python_rows=len(rows) - len(native), threads=self.threads,
            arena_bytes=plan.arena_size, scratch_bytes=self.scratch_bytes,
            const_bytes=sum(a.nbytes for _, a in self.consts), compiled=after.compiled - before[0],
            cached=after.cached - before[1], compile_seconds=after.compile_seconds - before[2],
            segments=[(s.rows, s.threads) for s in self.steps if s.row is None])

    def _steps(self, rows: Sequence[Row], threads: int | None) -> list[Step]:
        limit = thread_limit()
        steps: list[Step] = []
        first = at = 0
        work = 0.0

        def close() -> None:
            if at > first:
                wanted = threads or (limit if work >= WORTH_WAKING else 1)
                steps.append(Step(first, at - first, max(1, min(wanted, limit if threads is None else threads))))

        for row in rows:
            if row.kernel is None:
                close()
                first, work = at, 0.0
                steps.append(Step(at, 0, row=row))
            else:
                at += 1
                work += 0.0 if row.kernel.serial else seconds_of(row)
        close()
        return steps

    def acquire(self) -> Frame:
        """Return a frame that nobody else uses, with the consts bound; ``release`` it when its values are not needed."""
        with self._lock:
            if self._free:
                return self._free.pop()
            self.report.frames += 1
        if self.threads > 1:
            self.pool.ensure(self.threads)
        return Frame(self)

    def release(self, frame: Frame) -> None:
        """Give a frame back; what is bound to it is let go."""
        frame.unbind()
        with self._lock:
            self._free.append(frame)

    def trim(self) -> None:
        """Free the memory of the frames that nobody uses."""
        with self._lock:
            self.report.frames -= len(self._free)
            self._free.clear()


class Frame:
    """Memory for one call in flight: the arena, the slot tables with pointers into it, and the bound arrays.

    ``run`` does the whole schedule; it is a single native call when no Python row is in it. Invariant: every array
    whose pointer stands in the slot table is kept alive by ``bound`` or by the arena.
    """

    def __init__(self, executable: Executable) -> None:
        exe = self.executable = executable
        plan = exe.plan
        self.arena = allocate(plan.arena_size + 64)
        base = address_of(self.arena)
        self._scratch = allocate(exe.scratch_bytes) if exe.scratch_bytes else None
        count = max(exe._slot_count, 1)  # pyright: ignore[reportPrivateUsage]
        self.slots = (ctypes.c_size_t * count)()
        for place, offset in exe.arena_places:
            self.slots[place] = base + offset
        for place, _ in exe._scratch:  # pyright: ignore[reportPrivateUsage]
            assert self._scratch is not None
            self.slots[place] = address_of(self._scratch)
        slots = ctypes.addressof(self.slots)
        table: list[int] = []
        for address, start in zip(exe._addresses, exe._starts, strict=True):  # pyright: ignore[reportPrivateUsage]
            table += [address, slots + 8 * start]
        self._table = (ctypes.c_size_t * max(len(table), 1))(*table)
        self.bound: list[Array | None] = [None] * len(plan.externals)
        self.tokens: dict[Value, Any] = {}
        self._views: dict[Value, Array] = {}
        self._back: dict[int, tuple[Array, Array]] = {}
        self._calls: list[Any] = []
        self._work: list[Callable[[], None]] = [self._step(s) for s in exe.steps]
        self.run: Callable[[], None] = self._work[0] if len(self._work) == 1 else self._run_steps
        for index, array in exe.consts:
            self.bind(index, array)

    def _step(self, step: Step) -> Callable[[], None]:
        if step.row is not None:
            return _PythonRow(self, step.row)
        pool = self.executable.pool
        call = (ctypes.c_size_t * 4)(ctypes.addressof(self._table) + 16 * step.first, step.rows, pool.state, step.threads)
        self._calls.append(call)
        return _Native(pool.run, call)

    def _run_steps(self) -> None:
        for work in self._work:
            work()

    def bind(self, index: int, array: Array) -> None:
        """Let external ``index`` be ``array``: its pointer is put wherever the external occurs.

        An array of another layout is copied (and copied back after a run that writes to it). Raises ``ValueError``
        for another shape or dtype, and for a read-only array that the schedule writes to.
        """
        if self.bound[index] is array:
            return
        exe = self.executable
        kind = exe.plan.externals[index].tensor
        if array.shape != kind.shape or array.dtype != kind.dtype:
            raise ValueError(f"external {index} is {kind!r}, got an array of {array.dtype}{list(array.shape)}")
        copied = exe.copied.get(index)
        if copied is not None:
            np.copyto(self.array(copied), array)
            return
        actual = array
        if not array.flags.carray:
            actual = self._adopt(index, array)
        pointer = address_of(actual)
        slots = self.slots
        for place in exe.places[index]:
            slots[place] = pointer
        self.bound[index] = actual

    def _adopt(self, index: int, array: Array) -> Array:
        self._back.pop(index, None)
        if index in self.executable.written:
            if not array.flags.writeable:
                raise ValueError(f"external {index} is written to by the schedule, but the array is read-only")
            actual = np.array(array, order="C")
            self._back[index] = (array, actual)
            self.run = self._run_and_copy_back
            return actual
        flags = array.flags
        return array if flags.c_contiguous and flags.aligned else np.array(array, order="C")

    def _run_and_copy_back(self) -> None:
        self._run_steps()
        for array, actual in self._back.values():
            array[...] = actual

    def unbind(self) -> None:
        """Let go of everything bound but the consts."""
        consts = dict(self.executable.consts)
        self.bound = [consts.get(i) for i in range(len(self.bound))]
        self.tokens.clear()
        self._back.clear()
        self.run = self._work[0] if len(self._work) == 1 else self._run_steps

    def array(self, value: Value) -> Array:
        """Return the array that ``value`` is in this frame: a view of the arena, or the bound array."""
        slot = self.executable.plan.slots[value]
        if isinstance(slot, External):
            bound = self.bound[slot.index]
            if bound is None:
                raise ValueError(f"external {slot.index} ({value!r}) is not bound")
            return bound if bound.shape == value.shape else bound.reshape(value.shape)
        view = self._views.get(value)
        if view is None:
            kind = value.tensor
            part = self.arena[slot.offset:slot.offset + kind.nbytes]
            view = self._views[value] = part.view(kind.dtype).reshape(kind.shape)
        return view

    def fresh_outputs(self) -> None:
        """Bind a new array to every external that is an output's own."""
        graph = self.executable.plan.graph
        given = len(graph.inputs) + len(graph.params) + len(graph.consts)
        for index in range(given, len(self.bound)):
            kind = self.executable.plan.externals[index].tensor
            self.bind(index, np.empty(kind.shape, kind.dtype))

    def outputs(self) -> list[Any]:
        """Return the graph's outputs: bound arrays, copies of what is in the arena, tokens as they are."""
        found: list[Any] = []
        slots: Mapping[Value, Any] = self.executable.plan.slots
        for value in self.executable.plan.graph.outputs:
            if not isinstance(value.type, TensorType):
                found.append(self.tokens[value])
            elif isinstance(slots[value], Arena):
                found.append(self.array(value).copy())
            else:
                found.append(self.array(value))
        return found


class _Native:
    """A call of the pool's ``run`` with its argument ready."""

    __slots__ = ("_function", "_argument", "_call")

    def __init__(self, function: Any, call: Any) -> None:
        self._function = function
        self._argument = ctypes.c_void_p(ctypes.addressof(call))
        self._call = call

    def __call__(self) -> None:
        self._function(self._argument)


class _PythonRow:
    """A step that Python runs: gathers arrays, calls the op, puts the results where the plan wants them."""

    __slots__ = ("_frame", "_node")

    def __init__(self, frame: Frame, row: Row) -> None:
        self._frame = frame
        self._node = row.node

    def __call__(self) -> None:
        node, frame = self._node, self._frame
        try:
            arrays = [frame.array(v) if isinstance(v.type, TensorType) else frame.tokens[v] for v in node.inputs]
            results = node.op.call(node.attrs, *arrays)
            for value, result in zip(node.outputs, results, strict=True):
                if isinstance(value.type, TensorType):
                    self._put(value, result)
                else:
                    frame.tokens[value] = result
        except Exception as error:
            raise RunError(f"{node.op.name} at {node.where or 'an unknown place'} failed: "
                           f"{type(error).__name__}: {error}") from error

    def _put(self, value: Value, result: Any) -> None:
        place = self._frame.array(value)
        if result is place:
            return
        if np.shape(result) != place.shape or result.dtype != place.dtype:
            raise ValueError(f"expected {value.type!r}, as when it was traced, got an array of "
                             f"{getattr(result, 'dtype', type(result).__name__)}{list(np.shape(result))}")
        np.copyto(place, result)
