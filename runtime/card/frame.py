"""Frames of a card: the memory of one call in flight, and its launches, one by one or as CUDA graphs."""
from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence
from contextlib import suppress
from math import prod
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from kusari.ir import Instruction, Node, TensorType, Value

from ..frame import LARGE, LARGE_BYTES
from ..python_rows import LateIndexError, PythonRows
from .indices import REPORT_BYTES
from .kernels import cupy
from .launches import Call, ForwardPlace, Launch, Refused, with_behind

if TYPE_CHECKING:
    from .executable import CardExecutable

CAPTURED_ROUNDS = 8  # after which arrays move too often for graphs

Ready = tuple[Launch, tuple[int, ...]]  # with the addresses that it gets


class CardFrame(PythonRows):
    """Memory for one call in flight.

    ``put`` copies an array of the caller's to where the launches read it, ``bind`` lets them work on the array itself.
    The first run after something was bound launches kernels one by one, which also compiles and loads them; the second
    one captures them as graphs, one for the launches between two rows of Python's, and later ones launch those.

    Invariant: runs are in the order of the calls, also where they are on several streams.
    """

    closed = False
    every: ClassVar[weakref.WeakSet[CardFrame]] = weakref.WeakSet()

    def __init__(self, executable: CardExecutable) -> None:
        plan = executable.plan
        super().__init__(plan)
        self.executable = executable
        self.device = executable.device
        self.memory: Any = None  # once it is closed
        self._module = module = cupy()
        self._current = module.cuda.Device(self.device)
        with self._current:
            self._stream = module.cuda.get_current_stream()
            self.memory = self._new(lambda: module.cuda.alloc(max(1, executable.buffer_bytes)),
                                    executable.buffer_bytes, "frames")
        LARGE.made += executable.buffer_bytes >= LARGE_BYTES
        self._rows: Any = None  # of the executable, of which launches were prepared
        self._launches: list[list[Ready] | Instruction] | None = None
        self._graphs: list[Any] | None = None
        self._captures = 0
        self._capture_stream: Any = None
        self._lenders: list[CardFrame] = []  # in whose memory inputs lie
        self._readers: list[Any] = []        # streams of other frames that read this one's memory
        self.every.add(self)
        for index, array in executable.consts.items():
            self.bound[index] = array

    def _new(self, make: Any, nbytes: int, purpose: str) -> Any:
        from .executable import allocated
        return allocated(self._module, make, nbytes, purpose, self.plan)

    # -- arrays ------------------------------------------------------------------------------------------------

    def bind(self, index: int, array: Any) -> None:
        """Let launches work on an array; one in another order is copied before each run, and back where it is written.

        Raises ``ValueError`` for another shape, dtype or device.
        """
        value = self.plan.externals[index]
        kind = value.tensor
        if array.shape != kind.shape or array.dtype != kind.dtype or array.device.id != self.device:
            raise ValueError(f"external {index} is {value.type!r} on card {self.device}, got an array of "
                             f"{array.dtype}{list(array.shape)} on card {array.device.id}")
        self.replaced.pop(index, None)
        actual = array
        if not array.flags.c_contiguous:
            with self._current:
                actual = self._new(lambda: self._module.empty(kind.shape, kind.dtype), kind.nbytes, "copies")
            self.replaced[index] = array, actual
        before, self.bound[index] = self.bound[index], actual
        if index < len(self.plan.graph.inputs) and (before is None or before.data.mem is not actual.data.mem):
            # Kept by a forward, whose frame is not to be written to meanwhile.
            lenders = [f for f in self._lenders if not f.closed]
            self._lenders = lenders + [f for f in CardFrame.every if f is not self and f not in lenders
                                       and f.memory is not None and f.memory.mem is actual.data.mem]
        if before is None or before.data.ptr != actual.data.ptr:
            self._moved()

    def put(self, index: int, array: Any) -> None:
        """Copy an array, or a number of the host, to where the launches read an input.

        Raises ``ValueError`` for another shape, dtype or device.
        """
        value = self.plan.externals[index]
        kind = value.tensor
        if array.shape != kind.shape or array.dtype != kind.dtype:
            raise ValueError(f"external {index} is {value.type!r}, got an array of {array.dtype}{list(array.shape)}")
        there = self._room(index, value)
        if isinstance(array, (np.ndarray, np.generic)):
            if array.size == 1:
                there.fill(array.item())  # its kernel takes the number itself: nothing waits for a copy
            elif array.size:
                there.set(np.array(array, kind.dtype, order="C"))
        elif array.device.id != self.device:
            raise ValueError(f"external {index} is on card {self.device}, got an array on card {array.device.id}")
        elif array.flags.c_contiguous:
            if kind.nbytes:
                there.data.copy_from_device_async(array.data, kind.nbytes, self._module.cuda.get_current_stream())
        else:
            there[...] = array

    def _room(self, index: int, value: Value) -> Any:
        if index in self.executable.copied:
            return self.array(value)
        found = self.bound[index]
        if found is None:
            kind = value.tensor
            found = self._new(lambda: self._module.empty(kind.shape, kind.dtype), kind.nbytes, "inputs")
            self.bound[index] = found
            self._moved()
        return found

    def _view(self, offset: int, kind: TensorType) -> Any:
        return self._module.ndarray(kind.shape, kind.dtype, self.memory + offset)

    def room(self, shape: tuple[int, ...], dtype: Any) -> Any:
        """Return a new array for a result."""
        return self._new(lambda: self._module.empty(shape, dtype), prod(shape) * np.dtype(dtype).itemsize, "results")

    def fresh(self, index: int) -> None:
        """Bind a new array to an external that is an output's own."""
        kind = self.plan.externals[index].tensor
        self.bind(index, self.room(kind.shape, kind.dtype))

    def fresh_outputs(self) -> None:
        """Bind a new array to every external that is an output's own."""
        with self._current:
            for index in range(self.executable.given, len(self.bound)):
                self.fresh(index)

    def outputs(self) -> list[Any]:
        """Return the graph's outputs: the bound arrays, copies of values in the arena, tokens as they are."""
        with self._current:
            return super().outputs()

    # -- runs --------------------------------------------------------------------------------------------------

    def run(self) -> None:
        """Run every row in order on the current stream; nothing waits for the card.

        An exception of a row in Python gets a note of its place and is raised; ``failed`` is then its node. Raises
        ``RunError`` when a function gives other results than when it was traced.
        """
        own = self.executable
        with self._current:
            stream = self.enter()
            sent = own.watch.sent
            for array, actual in self.replaced.values():
                actual[...] = array
            try:
                self._run_rows(stream)
            finally:
                self._run.clear()
                for index, (array, actual) in self.replaced.items():
                    if self.plan.externals[index] in self.executable.written:
                        array[...] = actual
            if own.gathers:
                own.watch.send(own.gathers, self.memory + own.report_place.offset, stream)
            own.note_run(sent)
            for lender in self._lenders:
                if lender._stream != stream and stream not in lender._readers:
                    lender._readers.append(stream)

    def enter(self) -> Any:
        """Be ready to be written to on the current stream, which is returned, when runs on others are over.

        Raises ``LateIndexError`` for an index out of bounds of an earlier run, as soon as it is known.
        """
        with self._current:
            try:
                self.executable.watch.look()
            except LateIndexError as error:
                error.undone = self.executable.forget_runs(error.number)
                raise
            stream = self._module.cuda.get_current_stream()
            if stream != self._stream or self._readers:
                for other in (self._stream, *self._readers):
                    if other != stream:
                        stream.wait_event(other.record())
                self._readers.clear()
                self._stream = stream
            return stream

    def _run_rows(self, stream: Any) -> None:
        own = self.executable
        if self._rows is not own.rows:  # a library has refused something
            self._moved()
        launches = self._launches
        if launches is None:
            self._rows = own.rows
            launches = self._launches = self._prepare(self._rows)
        elif self._graphs is None and own.graphs and self._captures < CAPTURED_ROUNDS:
            self._graphs = self._capture(launches)
        first = True
        for number, rows in enumerate(launches):
            if isinstance(rows, Instruction):
                self.python(rows)
            elif self._graphs is not None:
                self._graphs[number].launch(stream)
                first = False
            else:
                self._launch(rows, first, stream, self._instead)
                first = False

    def _launch(self, rows: Sequence[Ready], first: bool, stream: Any, refused: Callable[[Call, Refused], None],
                ) -> None:
        own = self.executable
        if first and own.gathers:
            (self.memory + own.report_place.offset).memset_async(0, REPORT_BYTES * len(own.gathers), stream)
        skipped = 0
        for launch, addresses in rows:
            if skipped:
                skipped -= 1
                continue
            try:
                if own.refused and isinstance(launch, Call) and launch.needed in own.refused:
                    raise Refused("the call that keeps what this one reads has failed")
                launch.start(addresses, stream)
            except Refused as error:
                assert isinstance(launch, Call)
                refused(launch, error)
                skipped = len(launch.behind)

    def _instead(self, call: Call, error: Refused) -> None:
        """Do the work of a call, and of what is behind it, without the library: now, and in all later runs."""
        self.executable.refuse(call, str(error))
        for other in call.instead:
            other.start(self._addresses(other), self._stream)

    def _uncapturable(self, call: Call, error: Refused) -> None:
        """Let a capture fail, and the next one do without a call: kernels that were never launched are not loaded."""
        self.executable.refuse(call, f"in a graph: {error}")
        raise error

    def _capture(self, launches: Sequence[Any]) -> list[Any] | None:
        """Return the launches as graphs, one for each row of launches; None if that cannot be."""
        self._captures += 1
        if self._capture_stream is None:
            self._capture_stream = self._module.cuda.Stream(non_blocking=True)
        stream = self._capture_stream
        graphs: list[Any] = []
        first = True
        try:
            with stream:
                for rows in launches:
                    if isinstance(rows, Instruction):
                        graphs.append(None)
                        continue
                    stream.begin_capture()
                    try:
                        self._launch(rows, first, stream, self._uncapturable)
                    except BaseException as error:
                        with suppress(RuntimeError):  # the graph is of no use
                            stream.end_capture()
                        if isinstance(error, Refused):
                            return None
                        raise
                    graphs.append(stream.end_capture())
                    first = False
        except RuntimeError as error:  # a driver that cannot: launches do the same
            own = self.executable
            if own.report.calls:  # perhaps they can without the library's
                own.refuse(None, f"its calls cannot be part of a graph: {error}")
            else:
                own.graphs = False
                own.report.uncaptured = str(error)
            return None
        return graphs

    def fill(self) -> None:
        """Bind arrays of zeros in place of everything from outside."""
        self.memory.memset_async(0, self.executable.buffer_bytes)
        for index, value in enumerate(self.plan.externals):
            if self.bound[index] is None and isinstance(value.type, TensorType):
                self.bound[index] = self._module.zeros(value.shape, value.tensor.dtype)
        self._moved()

    def native_launches(self) -> list[Ready]:
        """All launches, with the addresses that they get."""
        return [row for rows in self._prepare(self.executable.rows) if not isinstance(rows, Instruction)
                for row in rows]

    def _prepare(self, rows: Sequence[list[Launch] | Instruction]) -> list[list[Ready] | Instruction]:
        """The addresses of all launches; tables of addresses are written."""
        return [part if isinstance(part, Instruction) else
                [(launch, self._addresses(launch)) for launch in with_behind(part)] for part in rows]

    def _addresses(self, launch: Launch) -> tuple[int, ...]:
        """The addresses that a launch gets, or that of its table, which is written."""
        own, base = self.executable, self.memory.ptr
        addresses = tuple([0 if p is None else self._in_forward(p) if isinstance(p, ForwardPlace) else
                           p.offset + (base if p.index is None else self._base(p.index)) for p in launch.places])
        if launch.table is not None:
            table = np.array(addresses, np.uint64)
            (self.memory + launch.table.offset).copy_from_host(
                _pointer(table), table.nbytes)  # once for all runs: it waits
            addresses = (base + launch.table.offset,)
        if launch.more:
            return *addresses, base + own.report_place.offset if launch.more == "reports" else own.watch.flag.data.ptr
        return addresses

    def _in_forward(self, place: ForwardPlace) -> int:
        """The address of a place in the frame of a forward, or 0 if the array that tells the frame is not in one."""
        array: Any = None if place.index is None else self.bound[place.index]
        if array is None:
            return 0
        for frame in self.every:
            memory = frame.memory
            if frame.executable is place.forward and memory is not None and array.data.ptr == memory.ptr + place.at:
                return memory.ptr + place.offset
        return 0

    def _base(self, index: int) -> int:
        array = self.bound[index]
        return 0 if array is None else array.data.ptr

    def _moved(self) -> None:
        """Let the next run look up addresses anew."""
        self._launches = self._graphs = None

    def _call(self, node: Node, arrays: Sequence[Any]) -> Sequence[Any]:
        if node.op.name == "random":
            return drawn(cupy(), node),
        return super()._call(node, arrays)

    @property
    def runs_python(self) -> bool:
        """Whether Python runs some rows."""
        return any(isinstance(rows, Instruction) for rows in self.executable.rows)

    def unbind(self) -> None:
        """Release the arrays that callers have bound; the frame's own stay."""
        own = self.executable
        params = range(len(self.plan.graph.inputs), len(self.plan.graph.inputs) + len(self.plan.graph.params))
        for index in (*params, *range(own.given, len(self.bound))):
            if self.bound[index] is not None:
                self.bound[index] = None
                self._moved()
        self.replaced.clear()
        self.tokens.clear()

    @property
    def nbytes(self) -> int:
        """Bytes of its memory, and of arrays of inputs and outputs that it keeps for the next run."""
        inputs = len(self.plan.graph.inputs)
        own = [a.nbytes for i, a in enumerate(self.bound) if a is not None and (
            i < inputs or i >= self.executable.given)]
        return self.executable.buffer_bytes + sum(own)

    def close(self) -> None:
        """Release all memory at once; the frame cannot run any more."""
        self.closed = True
        self._moved()
        self._views.clear()
        self.replaced.clear()
        self.tokens.clear()
        self.bound.clear()
        self.memory = None


def _pointer(array: np.ndarray) -> Any:
    import ctypes
    return ctypes.c_void_p(array.ctypes.data)


def drawn(module: Any, node: Node) -> Any:
    """Draw as define-by-run does: from the generator of the current device, in the dtype of the node's draw."""
    attrs = node.attrs
    draw = getattr(module.random, attrs["dist"])
    return draw(*attrs["args"], size=tuple(attrs["shape"]), dtype=np.dtype(attrs["dtype"]))
