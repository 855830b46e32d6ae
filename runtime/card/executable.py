"""Executables of a card: programs whose kernels are launched through CuPy, with frames to run them in."""
from __future__ import annotations

import logging
import threading
import time
import weakref
from collections import Counter, deque
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import groupby
from typing import Any, Literal

import numpy as np

from kusari.ir import Arena, Instruction, Kernel, Node, Plan, Program, TensorType, Value
from kusari.ir.product import Rounding

from ..executable import LEAST_SECONDS, Measured, changes_state, has_status, is_free
from .choice import SCRATCH, Chooser, Chosen, Mask
from .convolutions import Convolutions
from .frame import CardFrame
from .indices import REPORT_BYTES, watch
from .kernels import CardLoader, cupy
from .launches import Call, ForwardPlace, Launch, Place, Refused, segments, with_behind
from .products import Products

PLACE_BYTES = 256  # of which places in a frame's memory are multiples
REMEMBERED_CALLS = 256  # more than run until all reports of their time have arrived

_log = logging.getLogger("kusari.static")

Group = tuple[list[Instruction], Chosen | None]


@dataclass(frozen=True)
class KeptMask:
    """The bits of a ReLU whose result ``forward`` keeps, both at offsets in its frames, written by a call of it."""

    mask: Mask
    offset: int
    at: int
    call: Call
    forward: CardExecutable


@dataclass
class CardReport:
    """The contents of an executable and what it takes: launches and bytes of the card's memory.

    ``calls`` of libraries are among the launches; ``refused`` counts, by the kind of node and the reason, others that
    might have been some.
    """

    device: int
    instructions: int
    kernels: int
    launches: int
    python_instructions: int
    arena_bytes: int
    scratch_bytes: int
    frame_bytes: int
    const_bytes: int
    moved_bytes: int
    flops: int
    compile_seconds: float
    guarded: int
    calls: Counter[str] = field(default_factory=Counter[str])
    refused: Counter[tuple[str, str]] = field(default_factory=Counter[tuple[str, str]])
    uncaptured: str = ""  # why its launches are no graph, if they should be
    live: weakref.WeakSet[CardFrame] = field(default_factory=weakref.WeakSet, repr=False)
    threads = 1
    compiled = cached = 0
    segments: tuple[tuple[int, int], ...] = ()

    @property
    def frames(self) -> int:
        """Number of frames, in flight or free."""
        return sum(not frame.closed for frame in list(self.live))

    @property
    def bytes(self) -> int:
        """Bytes held by the executable and all its frames, without arrays of inputs and results."""
        return self.const_bytes + self.frames * self.frame_bytes

    @property
    def held(self) -> int:
        """Bytes held, with the arrays that frames keep for their next runs."""
        return self.const_bytes + sum([frame.nbytes for frame in list(self.live) if not frame.closed])


def _padded(nbytes: int) -> int:
    return -(-nbytes // PLACE_BYTES) * PLACE_BYTES


class CardExecutable:
    """A program on one card; ``acquire`` returns a frame to run it in, ``run`` is for a single call.

    The memory of a frame is one buffer: the planner's arena, then what kernels of one node leave to each other, the
    reports of gathers and the tables of kernels with many operands. Constants are one buffer that all frames read.
    ``graphs`` says whether launches become CUDA graphs; of NVIDIA's ``libraries`` those with these names are called.
    Where one refuses, now or in a run, kernels of ours are launched. Libraries may round factors in float32 to
    ``rounding``. Outputs in ``kept`` stay in the frame for a backward, which reads ``masks`` of its forward.

    Invariant: ``rows`` run in the program's order, on the stream that is current at the call; every frame has memory of
    its own, so any number of them may be in flight. Rows are replaced as a whole, and frames notice.
    """

    def __init__(self, plan: Plan, program: Program, loader: CardLoader, device: int, graphs: bool = True,
                 libraries: Collection[str] = ("cuBLASLt", "cuDNN"), rounding: Rounding = "",
                 kept: Collection[Value] = (), masks: Collection[KeptMask] = ()) -> None:
        started = time.perf_counter()
        self.plan, self.program, self.device, self.graphs = plan, program, device, graphs
        graph = plan.graph
        self.given = len(graph.inputs) + len(graph.params) + len(graph.consts)
        self.written = frozenset(v for n in graph.nodes if n.op.writes for v in n.inputs[:1])
        #: The inputs that lie in the arena.
        self.copied = frozenset(i for i, v in enumerate(plan.externals) if isinstance(plan.slots.get(v), Arena))
        self._loader = loader
        self._lock = threading.Lock()
        rows = [r for r in program.instructions if r.kernel is not None or not is_free(r.node, plan)]
        native = [r for r in rows if r.kernel is not None]
        self.gathers = gathers = [r.node for r in native if has_status(r)]
        self.watch = watch(device)
        state = {plan.slots.get(v) for v in self.written}
        refused: Counter[tuple[str, str]] = Counter()
        choosers = [make(plan, device, self._place, loader.dialect.split, loader.dialect.only, rounding)
                    for name, make in (("cuBLASLt", Products), ("cuDNN", Convolutions)) if name in libraries]
        for chooser in choosers:
            chooser.kept = [v for v in kept if isinstance(plan.slots.get(v), Arena)]
            chooser.masks.update((m.mask.value, m.mask) for m in masks)
        groups = self._groups(rows, choosers, state, refused)
        chosen = [choice for _, choice in groups if choice is not None]
        scratch = max((r.kernel.shared for r in native if r.kernel is not None), default=0)
        scratch = max([scratch, *[_padded(c.workspace_bytes) + c.result_bytes for c in chosen]])
        self._scratch = Place(None, _padded(plan.arena_size))
        self.report_place = Place(None, self._scratch.offset + _padded(scratch))
        self._end = self.report_place.offset + _padded(REPORT_BYTES * len(gathers))
        #: With the calls that write them.
        self._masks: dict[Mask, tuple[Place, Call | None]] = {
            m.mask: (ForwardPlace(self._place(m.mask.value).index, m.offset, m.at, m.forward), m.call) for m in masks}
        entries: list[Launch | Instruction] = []
        seen = guarded = 0
        for of_node, choice in groups:
            own: list[Launch | Instruction] = []
            for row in of_node:
                changes = row.kernel is not None and changes_state(row, plan, state)
                own.append(row if row.kernel is None else self._launch(row, row.kernel, seen, changes))
                seen += has_status(row)
                guarded += changes
            entries += own if choice is None or not self._may_call(choice) else [self._call(of_node[-1], choice, own)]
        if gathers:
            kernel = loader.dialect.noting(len(gathers))
            entries.append(Launch(None, loader.function(kernel), 1, 1, (self.report_place,), None, "flag"))
        self._entries = entries
        self.rows = segments(entries)  # launches one after the other, or a row of Python's
        self.buffer_bytes = self._end
        with cupy().cuda.Device(device):
            self.consts = self._constants()
        self.refused: set[Call] = set()
        self._backwards: weakref.WeakSet[CardExecutable] = weakref.WeakSet()  # which read masks of this one's
        for m in masks:
            m.forward._backwards.add(self)
        self._free: list[CardFrame] = []
        self._begun: deque[int] = deque(maxlen=REMEMBERED_CALLS)
        kernels = [r.kernel for r in native if r.kernel is not None]
        self.report = CardReport(
            device=device, instructions=len(rows), kernels=len(program.kernels), launches=len(native),
            python_instructions=len(rows) - len(native), arena_bytes=plan.arena_size, scratch_bytes=scratch,
            frame_bytes=self.buffer_bytes, const_bytes=sum(a.nbytes for _, a in graph.consts),
            moved_bytes=sum(map(_moved, native)), flops=sum(k.flops for k in kernels),
            compile_seconds=time.perf_counter() - started, guarded=guarded, refused=refused)
        self._count()
        for m in masks:
            if m.call in m.forward.refused:  # meanwhile, in another thread
                self._refuse(lambda e, writer=m.call: e.needed is writer, "its forward keeps no bits any more")

    def _groups(self, rows: Sequence[Instruction], choosers: Sequence[Chooser], state: set[Any],
                refused: Counter[tuple[str, str]]) -> list[Group]:
        """The rows of each node, or of two that a library computes at once, and how it does that, or None."""
        groups: list[Group] = []
        before, given = refused.copy(), [dict(c.masks) for c in choosers]
        for _, found in groupby(rows, lambda row: id(row.node)):
            of_node = list(found)
            both = self._choice_of_both(groups[-1], of_node[0], choosers, state) if groups else None
            if both is None:
                groups.append((of_node, self._choice(of_node[0], choosers, state, refused)))
            else:
                groups[-1] = groups[-1][0] + of_node, both
        called = {id(row.node) for of_node, choice in groups if choice is not None for row in of_node}
        if any(id(n) not in called for c in choosers for readers in c.left_out.values() for n in readers):
            # A value that is left out has readers: without joining none is.
            for chooser, masks in zip(choosers, given, strict=True):
                chooser.joins, chooser.masks = False, masks
                chooser.left_out.clear()
                chooser.left.clear()
            refused.clear()
            refused.update(before)
            return self._groups(rows, choosers, state, refused)
        groups = self._with_totals(groups, choosers, state)
        refused.update(reason for c in choosers for reason in c.left.values())
        return groups

    def _with_totals(self, groups: Sequence[Group], choosers: Sequence[Chooser], state: set[Any]) -> list[Group]:
        """Groups of which some have the one behind them: the sums of their results, which have no call of their own."""
        found: list[Group] = []
        for rows, choice in groups:
            last, call = found[-1] if found else ([], None)
            both: Chosen | None = None
            if call is not None and choice is None and len({id(row.node) for row in last}) == 1 and not any(
                    r.kernel is None or changes_state(r, self.plan, state) for r in rows):
                with suppress(Refused, RuntimeError), cupy().cuda.Device(self.device):
                    both = next((b for c in choosers if (b := c.with_totals(call, last[0].node, rows[0].node))), None)
            if both is None:
                found.append((rows, choice))
            else:
                found[-1] = [*last, *rows], both
        return found

    def _choice(self, row: Instruction, choosers: Sequence[Chooser], state: set[Any],
                refused: Counter[tuple[str, str]]) -> Chosen | None:
        """How a library does the work of a row, or None; then the reason is counted, if there might have been one."""
        chooser = next((c for c in choosers if c.has(row.node)), None)
        if chooser is None:
            return None
        try:
            if changes_state(row, self.plan, state):
                raise Refused("it changes state, if all indices are in bounds")
            with cupy().cuda.Device(self.device):
                return chooser.choose(row.node)
        except (Refused, RuntimeError) as error:  # or one of CuPy's
            refused[chooser.kind, str(error)] += 1
            return None

    def _choice_of_both(self, before: tuple[list[Instruction], Chosen | None], row: Instruction,
                        choosers: Sequence[Chooser], state: set[Any]) -> Chosen | None:
        """How a library does the work of a row and of the node before, which has its own kernels, at once, or None."""
        rows, _ = before
        if len({id(r.node) for r in rows}) > 1 or any(
                r.kernel is None or changes_state(r, self.plan, state) for r in (*rows, row)):
            return None
        try:
            with cupy().cuda.Device(self.device):
                found = [chooser.choose_both(rows[0].node, row.node) for chooser in choosers]
        except (Refused, RuntimeError):  # each alone may have a library
            return None
        return next((c for c in found if c is not None), None)

    def _may_call(self, chosen: Chosen) -> bool:
        """Whether a call that reads a mask finds one written."""
        return chosen.keeps or all(p in self._masks for p in chosen.places if isinstance(p, Mask))

    def _call(self, row: Instruction, chosen: Chosen, own: Sequence[Launch | Instruction]) -> Call:
        """The call of a library in place of the rows of a node, which all have kernels, and the launches behind it."""
        first = [self._launch(r, r.kernel, 0, False) for r in chosen.first if r.kernel is not None]
        instead = tuple([e for e in (*first, *own) if isinstance(e, Launch)])
        assert len(instead) == len(first) + len(own)
        room = _padded(chosen.workspace_bytes)
        scratch = Place(None, self._scratch.offset + room)
        masks = [p for p in chosen.places if isinstance(p, Mask)]
        for mask in masks:
            if mask not in self._masks:
                self._masks[mask] = Place(None, self._end), None
                self._end += _padded(mask.nbytes)
        needed = next((self._masks[mask][1] for mask in masks), None)
        places = tuple([scratch if p is SCRATCH else self._masks[p][0] if isinstance(p, Mask) else p
                        for p in chosen.places])
        result = scratch if chosen.result is SCRATCH else chosen.result
        behind = tuple([self._launch(r, r.kernel, 0, False, {chosen.value: result})
                        for r in chosen.behind if r.kernel is not None])
        call = Call(row, chosen.function, 0, 0, (*places, self._scratch), chosen=chosen, room=room, behind=behind,
                    instead=instead, needed=needed)
        for mask in masks:  # the first call writes it
            if needed is None:
                self._masks[mask] = self._masks[mask][0], call
        return call

    def _launch(self, row: Instruction, kernel: Kernel, before: int, changes: bool,
                elsewhere: Mapping[Value | None, Place] | None = None) -> Launch:
        """The launch of a row behind so many gathers; one that ``changes`` state is guarded.

        Values that the plan does not have lie ``elsewhere``.
        """
        places = [elsewhere[v] if elsewhere and v in elsewhere else self._place(v) for v in row.operands]
        if has_status(row):
            places.append(Place(None, self.report_place.offset + REPORT_BYTES * before))
        if kernel.shared:
            places.append(self._scratch)
        table = None
        if kernel.facts.by_table:
            table = Place(None, self._end)
            self._end += _padded(8 * len(places))
        more: Literal["", "reports", "flag"] = "" if not changes else "reports" if before else "flag"
        guards = {"": 0, "reports": len(self.gathers), "flag": 1}[more]
        return Launch(row, self._loader.function(kernel, guards), kernel.facts.blocks, kernel.facts.threads,
                      tuple(places), table, more)

    def note_run(self, sent: int) -> None:
        """Note a run that began when so many reports had been sent."""
        self._begun.append(sent)

    def forget_runs(self, number: int) -> int:
        """Return how many runs report ``number`` has undone, its own among them; all are forgotten."""
        first = number if self.gathers else number + 1
        undone = sum([sent >= first for sent in self._begun])
        self._begun.clear()
        return undone

    def kept_mask(self, value: Value, name: Value) -> KeptMask | None:
        """Return the bits of a ReLU whose result, an output, is kept, for an executable that calls it ``name``."""
        slot = self.plan.slots.get(value)
        for mask, (place, call) in self._masks.items():
            if mask.value is value and isinstance(slot, Arena) and call is not None and call not in self.refused:
                return KeptMask(replace(mask, value=name), place.offset, slot.offset, call, self)
        return None

    def refuse(self, call: Call | None, reason: str) -> None:
        """Do the work of a call by kernels of ours from the next run on; without a call, that of all calls.

        Calls of backwards that read what it keeps are refused, too.
        """
        self._refuse(lambda e: e is call or call is None, reason)

    def _refuse(self, is_one: Callable[[Call], bool], reason: str) -> None:
        with self._lock:
            calls = [e for e in self._entries if isinstance(e, Call) and is_one(e)]
            if not calls:
                return
            gone = set(calls)
            self.refused |= gone
            self._entries = [each for e in self._entries for each in (
                e.instead if isinstance(e, Call) and e in gone else (e,))]
            self.rows = segments(self._entries)
            kinds = Counter(c.chosen.kind for c in calls)
            for kind, count in kinds.items():
                self.report.refused[kind, reason] += count
            self._count()
        _log.warning("%s of %s are computed by other kernels: %s", " and ".join(
            f"{count} {kind}" for kind, count in kinds.items()), self.plan.graph.name, reason)
        for backward in list(self._backwards):
            backward._refuse(lambda e: e.needed in gone, reason)

    def _count(self) -> None:
        """Count launches and calls for the report."""
        launches = with_behind([e for e in self._entries if isinstance(e, Launch)])
        own = [e for e in launches if e.instruction is not None]
        self.report.calls = Counter(e.chosen.library for e in own if isinstance(e, Call))
        self.report.launches = len(own)
        self.report.kernels = len({id(e.function) for e in own if not isinstance(e, Call)})
        self.report.python_instructions = len(self._entries) - sum(isinstance(e, Launch) for e in self._entries)

    def _place(self, value: Value) -> Place:
        slot = self.plan.slots[value]
        return Place(None, slot.offset) if isinstance(slot, Arena) else Place(slot.index, slot.offset)

    def _constants(self) -> dict[int, Any]:
        """The constants as arrays of the card, by external: all of them lie in one buffer."""
        graph, module = self.plan.graph, cupy()
        if not graph.consts:
            return {}
        first = len(graph.inputs) + len(graph.params)
        starts: list[int] = []
        end = 0
        for v, _ in graph.consts:
            starts.append(end)
            end += _padded(v.tensor.nbytes)
        host = np.zeros(end, np.uint8)
        for start, (v, a) in zip(starts, graph.consts, strict=True):
            a = np.ascontiguousarray(a, v.tensor.dtype)
            host[start:start + a.nbytes] = a.reshape(-1).view(np.uint8)
        whole = allocated(module, lambda: module.asarray(host), end, "constants", self.plan)
        module.cuda.get_current_stream().synchronize()  # once: any stream may read them from now on
        return {first + i: module.ndarray(v.shape, v.tensor.dtype, whole.data + start)
                for i, (start, (v, _)) in enumerate(zip(starts, graph.consts, strict=True))}

    def acquire(self) -> CardFrame:
        """Return a frame without another user; ``release`` it when its values are not needed any more."""
        with self._lock:
            if self._free:
                return self._free.pop()
        frame = CardFrame(self)
        self.report.live.add(frame)
        return frame

    def release(self, frame: CardFrame) -> None:
        """Return a frame to the free ones, for the next call."""
        frame.unbind()
        with self._lock:
            self._free.append(frame)

    def measure(self, repeat: int = 5) -> list[Measured]:
        """Time each launch, in a frame of its own, between two events of the card; this waits for the card.

        Each is run alone on zeros, several times; the best time counts.
        """
        module = cupy()
        found: list[Measured] = []
        with module.cuda.Device(self.device):
            frame = CardFrame(self)
            frame.fill()
            for launch, addresses in frame.native_launches():
                if launch.instruction is None:
                    continue
                best = float("inf")
                try:
                    for _ in range(repeat):
                        start, end = module.cuda.Event(), module.cuda.Event()
                        start.record()
                        launch.start(addresses, module.cuda.get_current_stream())
                        end.record()
                        end.synchronize()
                        best = min(best, module.cuda.get_elapsed_time(start, end) * 1e-3)
                except Refused:
                    continue
                kernel = launch.instruction.kernel
                if isinstance(launch, Call):
                    kernel = Kernel("cuda", launch.chosen.name, "", flops=launch.chosen.flops)
                assert kernel is not None
                held = [v for v in launch.instruction.operands if v in self.plan.slots]
                footprint = sum({self.plan.slots[v]: v.tensor.nbytes for v in held}.values())
                found.append(Measured(launch.instruction, kernel, launch.threads, max(LEAST_SECONDS, best), footprint))
            frame.close()
        return found

    def run(self, inputs: Sequence[Any], params: Sequence[Any] = ()) -> list[Any]:
        """Run once on arrays of the card, and return new arrays; ``params`` change in place where the graph says so.

        Raises ``IndexError`` for an index out of bounds of an earlier run.
        """
        frame = self.acquire()
        try:
            frame.enter()
            for i, array in enumerate(inputs):
                frame.put(i, array)
            for i, array in enumerate(params, len(inputs)):
                frame.bind(i, array)
            frame.fresh_outputs()
            frame.run()
            return frame.outputs()
        finally:
            self.release(frame)


def allocated(module: Any, make: Any, nbytes: int, purpose: str, plan: Plan) -> Any:
    """Return new memory of the card, or raise ``MemoryError`` with the size of the plan."""
    try:
        return make()
    except module.cuda.memory.OutOfMemoryError as error:
        pool = module.get_default_memory_pool()
        raise MemoryError(
            f"the card has no memory left for {nbytes:,} bytes of {purpose} of {plan.graph.name!r}: a call of it needs "
            f"an arena of {plan.arena_size:,} bytes, and CuPy's pool has {pool.used_bytes():,} bytes in use. Nothing "
            "has been computed or changed. Use smaller batches, static_graph(memory='low'), or free arrays of your "
            "own.") from error


def _moved(row: Instruction) -> int:
    """Bytes that a launch moves: the kernel's own account, or each operand once."""
    assert row.kernel is not None
    return row.kernel.bytes or sum(v.tensor.nbytes for v in row.operands if isinstance(v.type, TensorType))


def nodes_without_kernels(program: Program, plan: Plan) -> list[Node]:
    """The nodes that Python would run."""
    return [r.node for r in program.instructions if r.kernel is None and not is_free(r.node, plan)]
