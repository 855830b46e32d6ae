"""Frames: the memory of one call in flight, with pointers to everything its schedule reads and writes."""
from __future__ import annotations

import ctypes
import time
import weakref
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, ClassVar, Protocol

import numpy as np

from kusari.ir import Instruction, Node, Plan, TensorType, Value

from .blas import limited
from .draws import drawing
from .memory import ALIGNMENT_BYTES, Array, address_of, allocate
from .prepared import Binder, Held, Invoker
from .python_rows import PythonRows, index_error

INSTRUCTION_BYTES = 24  # of one instruction in the table


Work = Callable[[], None] | Instruction


class Timer(Protocol):
    """A profile's timer of frames: ``time`` lets a frame note the times of its runs."""

    def time(self, frame: Frame) -> None: ...


def _slots_of(external: Binding) -> list[tuple[int, int]]:
    """Return the slots that point into an external, with offsets."""
    return [*((slot, 0) for slot in external.slots), *external.inner_slots]


def _checked(call: Callable[[], None], status: Array, nodes: list[Node]) -> Callable[[], None]:
    """``call``, which then raises ``IndexError`` if a gather found an index out of bounds; its results are void."""
    def run() -> None:
        call()
        if status.any():
            at = int(status[:, 1].argmax())
            number = int(status[at, 0])
            status[...] = 0
            node = nodes[at]
            raise index_error(number, node)
    return run


@dataclass(frozen=True)
class Segment:
    """A native segment (``count`` instructions of the table from ``first``) or an ``instruction`` that Python runs."""

    first: int
    count: int
    threads: int = 1
    short: bool = False  # too short to let other Python threads run meanwhile
    instruction: Instruction | None = None
    blas: bool = False  # calls BLAS, whose threads are held at one meanwhile
    checked: bool = False  # has gathers, whose indices may be out of bounds
    drawn: tuple[Node, ...] = ()  # the draws of random numbers


@dataclass(frozen=True, eq=False)
class Binding:
    """The facts a frame needs to bind one external: its type, its slots, its use."""

    value: Value
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    slots: tuple[int, ...]
    inner_slots: tuple[tuple[int, int], ...]  # (slot, offset) of values further inside
    copied: bool    # lives in the arena: binding copies
    written: bool   # the schedule changes it
    const: Array | None = None
    scratch: tuple[tuple[int, int], ...] = ()  # (slot, offset) of scratch that uses it before it is written


@dataclass(frozen=True, eq=False)
class Layout:
    """The common data of all frames of an executable, with no reference to them: so an executable frees its frames."""

    plan: Plan
    steps: tuple[Segment, ...]
    kernels: tuple[tuple[int, int, int], ...]   # (address, first slot, flags) per native instruction
    slots: int
    arena_slots: tuple[tuple[int, int], ...]   # (slot, offset)
    arena_bytes: int                            # the plan's, and more for scratch
    externals: tuple[Binding, ...]
    given: int                                  # externals from here on are outputs' own
    results_bytes: int                          # of the outputs' own arrays
    invoker: Invoker                            # of the native loop: the pool's, or that of a thread alone
    state: int                                  # the pool's state
    ensure: Callable[[int], int]                # starts threads of the pool
    keep: tuple[Any, ...] = field(default=())
    status_slots: tuple[tuple[int, Node], ...] = ()     # (slot, node) of every gather and scatter
    drawn: tuple[tuple[int, Node], ...] = ()    # (slot, node) of every draw
    native: tuple[Instruction, ...] = ()        # in the order of ``kernels``
    numbers: tuple[tuple[int, int], ...] = ()   # (slot, number) of kernels for many sizes


class _Made:
    made = 0  # frames of ``LARGE_BYTES`` and more, so far


LARGE = _Made()
LARGE_BYTES = 1 << 20


class Frame(PythonRows):
    """Memory for one call in flight: the arena, the slot tables with pointers into it, and the bound arrays.

    ``run()`` runs the whole schedule; it is a single native call if Python runs no instruction. Invariant: every array
    whose pointer stands in the slot table is kept alive by ``bound`` or by the arena.
    """

    closed = False
    every: ClassVar[weakref.WeakSet[Frame]] = weakref.WeakSet()
    timer: ClassVar[Timer | None] = None  # while a profile is open

    def __init__(self, layout: Layout) -> None:
        super().__init__(layout.plan)
        self.layout = layout
        self.arena = allocate(layout.arena_bytes)
        LARGE.made += layout.arena_bytes + layout.results_bytes >= LARGE_BYTES
        base = address_of(self.arena)
        self._slots = (ctypes.c_size_t * max(layout.slots, 1))()
        for slot, offset in layout.arena_slots:
            self._slots[slot] = base + offset
        for slot, number in layout.numbers:
            self._slots[slot] = number
        self._status = np.zeros((len(layout.status_slots), 2), np.int64)
        for k, (slot, _) in enumerate(layout.status_slots):
            self._slots[slot] = address_of(self._status) + 16 * k
        slots = ctypes.addressof(self._slots)
        table = [word for address, first, flags in layout.kernels for word in (address, slots + 8 * first, flags)]
        self.table = (ctypes.c_size_t * max(len(table), 1))(*table)
        self._externals = layout.externals
        self._calls: list[Any] = []  # the arguments that the prepared calls point to
        self.work = [self.prepare(s, self.table, self._calls) for s in layout.steps]
        self._binders: list[Binder] = []
        self._dtypes: dict[int, np.dtype[Any]] = {}  # of arrays bound whose dtypes are equal to those of externals only
        self.every.add(self)
        self.shorten()
        for index, external in enumerate(layout.externals):
            if external.const is not None:
                self.bind(index, external.const)

    def after_fork(self) -> None:
        """Let the next run start the threads it needs."""
        def run() -> None:
            self.layout.ensure(max((s.threads for s in self.layout.steps), default=1))
            self.shorten()
            self.run()
        self.__dict__["run"] = run

    def prepare(self, step: Segment, table: ctypes.Array[ctypes.c_size_t], keep: list[Any]) -> Work:
        """Return the work of a step with the native instructions of a table; ``keep`` must live as long as that."""
        if step.instruction is not None:
            return step.instruction
        first = ctypes.addressof(table) + INSTRUCTION_BYTES * step.first
        call = (ctypes.c_size_t * 4)(first, step.count, self.layout.state, step.threads)
        prepared, kept = self.layout.invoker.prepare(ctypes.addressof(call), step.short)
        keep.append((call, kept))
        if step.blas:
            prepared = limited(prepared)
        if step.drawn:
            own = [(slot, node) for slot, node in self.layout.drawn if node in step.drawn]
            prepared = drawing(prepared, self._slots, own, self._draw)
        if step.checked:
            prepared = _checked(prepared, self._status, [node for _, node in self.layout.status_slots])
        return prepared

    def shorten(self) -> None:
        """Let ``run`` be the native call itself if there is nothing else to do."""
        self.__dict__.pop("run", None)
        if len(self.work) == 1 and not isinstance(self.work[0], Instruction) and not self.replaced:
            self.__dict__["run"] = self.work[0]
        if self.timer is not None:
            self.timer.time(self)

    def run(self) -> None:
        """Run every step in order; an exception of an instruction in Python gets a note of its place and is raised.

        ``failed`` is then its node. Raises ``RunError`` when an instruction gives other results than when it was
        traced.
        """
        try:
            for work in self.work:
                if isinstance(work, Instruction):
                    self.python(work)
                else:
                    work()
        except IndexError:
            self.has_run = tuple(self._run)
            raise
        finally:
            if self._run:
                self._run.clear()
            for array, actual in self.replaced.values():
                array[...] = actual

    def _draw(self, node: Node) -> None:
        """Let NumPy draw in place of a kernel."""
        self._put(node.output, node.op.call(node.attrs)[0])

    def profile(self, repeat: int) -> list[tuple[int, float]]:
        """Return (threads, best seconds) of each native instruction, run alone with the threads of its segment."""
        return [(step.threads, self._seconds(i, 1, step, repeat))
                for step in self.layout.steps for i in range(step.first, step.first + step.count)]

    def _seconds(self, first: int, count: int, step: Segment, repeat: int) -> float:
        """Return the best seconds of some native instructions, run with the threads of a step."""
        address = ctypes.addressof(self.table) + INSTRUCTION_BYTES * first
        call = (ctypes.c_size_t * 4)(address, count, self.layout.state, step.threads)
        run = partial(self.layout.invoker.plain, ctypes.c_void_p(ctypes.addressof(call)))
        run = limited(run) if step.blas else run
        best = float("inf")
        for _ in range(repeat):
            start = time.perf_counter()
            run()
            best = min(best, time.perf_counter() - start)
        return best

    def entries(self, repeat: int) -> dict[int, float]:
        """Return the best seconds of native calls without an instruction, for each number of threads."""
        return {step.threads: self._seconds(0, 0, step, repeat) for step in self.layout.steps if step.count}

    def fill(self) -> None:
        """Bind arrays of the frame's own in place of everything from outside: ones, and zeros of integers."""
        self.arena[...] = 0
        for index, external in enumerate(self._externals):
            array = external.const
            if array is None:
                array = np.full(external.shape, external.dtype.kind in "fc", external.dtype)
            self.bind(index, array)

    def bind(self, index: int, array: Array) -> None:
        """Bind external ``index`` to ``array``: its pointer is written to all slots of the external.

        An array of another layout is copied (and copied back after a run that writes to it). Raises ``ValueError`` for
        another shape or dtype, and for a read-only array that the schedule writes to.
        """
        external = self._externals[index]
        dtype = array.dtype
        if array.shape != external.shape or (dtype is not external.dtype and dtype != external.dtype):
            raise ValueError(f"external {index} is {external.value.type!r}, got an array of "
                             f"{dtype}{list(array.shape)}")
        if external.copied:
            np.copyto(self.array(external.value), array)
            return
        if self.replaced and self.replaced.pop(index, None):
            self.shorten()
        actual = array if array.flags.carray else self._adopt(index, external, array)
        pointer = address_of(actual)
        slots = self._slots
        for slot in external.slots:
            slots[slot] = pointer
        for slot, offset in external.inner_slots:
            slots[slot] = pointer + offset
        for slot, offset in external.scratch:
            slots[slot] = pointer + -pointer % ALIGNMENT_BYTES + offset
        self.bound[index] = actual
        if actual.dtype is not external.dtype or index in self._dtypes:
            self._dtypes[index] = actual.dtype
            for binder in self._binders:
                if index in binder.dtypes:
                    binder.plan[binder.dtypes[index]] = id(actual.dtype)

    def binder(self, indices: Sequence[int], held: Sequence[int] = (), may_move: bool = True,
                ) -> Callable[..., bool] | None:
        """Return a function that binds arrays to the externals ``indices`` for one run, much faster than ``bind``.

        It takes one array for each and does not keep them alive. It returns False if they must be bound with ``bind``,
        all of them, or if an external of ``held`` is not bound any more, as its array has been changed in place; unless
        they ``may_move``, also if one has another address than the one before. None without such a function, and if
        native code does not read all the arrays that may not move. Invariant: ``bound`` knows nothing of these arrays.
        """
        externals = [self._externals[i] for i in indices]
        if not externals or any(e.copied or e.written or not (may_move or _slots_of(e)) for e in externals):
            return None
        return self._binder([(e.dtype, e.shape, _slots_of(e)) for e in externals], held, may_move)

    def forget_addresses(self, indices: Sequence[int]) -> None:
        """Clear the addresses of the arrays of externals."""
        for index in indices:
            for slot, _ in _slots_of(self._externals[index]):
                self._slots[slot] = 0

    def unchanged(self, held: Sequence[int]) -> Callable[[], bool]:
        """Return a function that says whether the arrays bound to ``held`` are unchanged.

        That is, not resized, and without assignments to their shapes, strides, dtypes or flags.
        """
        return self._binder([], held) or partial(self._compare, held)

    def _binder(self, arrays: list[Any], held: Sequence[int], may_move: bool = True) -> Callable[..., bool] | None:
        every = [(i, self._externals[i]) for i in held]
        made = self.layout.invoker.binder(ctypes.addressof(self._slots), arrays, [
            Held(i, self._dtypes.get(i, e.dtype), e.shape, next(iter(_slots_of(e)), None), self._is_written(i))
            for i, e in every if not e.copied], self.bound, may_move)
        if made is None:
            return None
        self._binders.append(made)
        return made.call

    def _is_written(self, index: int) -> bool:
        """Whether the schedule writes to an external."""
        return self._externals[index].written or index >= self.layout.given

    def _compare(self, held: Sequence[int]) -> bool:
        """The same as native code does, for interpreters whose arrays it cannot read."""
        for i in held:
            array, external = self.bound[i], self._externals[i]
            if array is None or external.copied:
                continue
            if array.shape != external.shape or array.dtype != external.dtype or not (
                    array.flags.carray if self._is_written(i) else array.flags.c_contiguous and array.flags.aligned):
                return False
            for slot, offset in _slots_of(external)[:1]:
                if self._slots[slot] != address_of(array) + offset:
                    return False
        return True

    @property
    def runs_python(self) -> bool:
        """Whether Python runs some instructions, which look for arrays in ``bound``."""
        return any(isinstance(work, Instruction) for work in self.work)

    def bind_all(self, arrays: list[Array], first: int = 0) -> None:
        """Bind ``arrays`` to the externals from ``first`` on; an array that is bound already takes next to no time."""
        bound = self.bound
        for index, array in enumerate(arrays, first):
            if bound[index] is not array:
                self.bind(index, array)

    def _adopt(self, index: int, external: Binding, array: Array) -> Array:
        """Return an array that kernels can work on in place of one that is strided, misaligned or read-only."""
        if external.written:
            if not array.flags.writeable:
                raise ValueError(f"external {index} is written to by the schedule, but the array is read-only")
            actual = np.array(array, order="C")
            self.replaced[index] = (array, actual)
            self.shorten()
            return actual
        flags = array.flags
        return array if flags.c_contiguous and flags.aligned else np.array(array, order="C")

    def unbind(self) -> None:
        """Release everything bound but the consts."""
        self.bound[:] = [e.const if e.const is not None and not e.copied else None for e in self.layout.externals]
        self.tokens.clear()
        self.replaced.clear()
        self.shorten()

    @property
    def nbytes(self) -> int:
        """Bytes of the arena, and of arrays of outputs, which it keeps for the next run."""
        return self.arena.nbytes + sum([a.nbytes for a in self.bound[self.layout.given:] if a is not None])

    def close(self) -> None:
        """Release all memory at once; the frame cannot run any more."""
        self.closed = True
        self.__dict__.pop("run", None)
        self.work.clear()
        self._views.clear()
        self.replaced.clear()
        self._binders.clear()
        self.tokens.clear()
        self.bound.clear()
        self.arena = allocate(0)

    def _view(self, offset: int, kind: TensorType) -> Array:
        return self.arena[offset:offset + kind.nbytes].view(kind.dtype).reshape(kind.shape)

    def fresh_outputs(self) -> None:
        """Bind a new array to every external that is an output's own."""
        for index in range(self.layout.given, len(self.bound)):
            external = self.layout.externals[index]
            self.bind(index, np.empty(external.shape, external.dtype))
