"""The compiled schedules that are alive in this process, whoever holds them, and how long their rows take."""

from __future__ import annotations

import ctypes
import gc
import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from kusari.ir import Kernel, TensorType
from kusari.runtime import Executable
from kusari.runtime.frame import INSTRUCTION_BYTES, Frame


@dataclass(frozen=True)
class Timed:
    """One native row: its kernel, the bytes of its distinct operands, its threads, and its best time alone."""

    kernel: Kernel
    footprint: int
    threads: int
    seconds: float

    @property
    def moved(self) -> int:
        """Bytes moved: what the kernel says, or each operand once."""
        return self.kernel.bytes or self.footprint


def live() -> list[tuple[Executable, list[Frame]]]:
    """Every executable with its frames, in the order of their names."""
    gc.collect()
    objects = gc.get_objects()
    frames = [o for o in objects if type(o) is Frame]
    executables = [o for o in objects if type(o) is Executable]
    found = [(e, [f for f in frames if f.layout.plan is e.plan]) for e in executables]
    return sorted(found, key=lambda pair: pair[0].plan.graph.name)


def profile(executable: Executable, frame: Frame, repeat: int = 50) -> list[Timed]:
    """Time each native row alone, less what entering native code and waking threads take.

    The frame must have run, and what it ran on must still be alive.
    """
    instructions = [r for r in executable.program.instructions if r.kernel is not None]
    threads = [n for count, n in executable.report.segments for _ in range(count)]
    entries = {nth: entry(frame, nth) for nth in sorted(set(threads))}
    times = executable.profile(frame, repeat)
    found: list[Timed] = []
    for instruction, nth, (_, seconds) in zip(instructions, threads, times, strict=True):
        assert instruction.kernel is not None
        # What is updated in place is operand twice: as what is read and as what is written.
        slots = executable.plan.slots
        sizes = {slots[v]: v.tensor.nbytes for v in instruction.operands if isinstance(v.type, TensorType)}
        used = 1 if instruction.kernel.serial else nth
        found.append(Timed(instruction.kernel, sum(sizes.values()), used, max(1e-8, seconds - entries[nth])))
    return found


def in_turn(executable: Executable, frame: Frame, repeat: int = 100) -> list[tuple[Kernel, float]]:
    """The median time of each native row where all of them run one after the other, as in a step.

    Less what entering native code takes, as each row is a call of its own here. What Python runs is left out.
    """
    steps = [(i, step.threads) for step in frame.layout.steps for i in range(step.first, step.first + step.count)]
    table, state = ctypes.addressof(frame.table), frame.layout.state
    calls = [(ctypes.c_size_t * 4)(table + INSTRUCTION_BYTES * i, 1, state, threads) for i, threads in steps]
    arguments = [ctypes.c_void_p(ctypes.addressof(call)) for call in calls]
    entries = {threads: entry(frame, threads) for _, threads in steps}
    times: list[list[float]] = [[] for _ in calls]
    for _ in range(repeat):
        for argument, found in zip(arguments, times, strict=True):
            start = time.perf_counter()
            frame.layout.invoker.plain(argument)
            found.append(time.perf_counter() - start)
    kernels = [instruction.kernel for instruction in executable.program.instructions if instruction.kernel is not None]
    return [(kernel, max(1e-8, statistics.median(found) - entries[threads]))
            for kernel, (_, threads), found in zip(kernels, steps, times, strict=True)]


def entry(frame: Frame, threads: int) -> float:
    """The best seconds of a native call that finds no rows."""
    layout = frame.layout
    call = (ctypes.c_size_t * 4)(ctypes.addressof(frame.table), 0, layout.state, threads)
    argument = ctypes.c_void_p(ctypes.addressof(call))
    found = float("inf")
    for _ in range(200):
        start = time.perf_counter()
        layout.invoker.plain(argument)
        found = min(found, time.perf_counter() - start)
    return found


@contextmanager
def native_rows_off() -> Iterator[None]:
    """Let every frame that is alive do nothing when it is run: what a call takes now is Python alone."""
    frames = [frame for _, found in live() for frame in found]
    before: list[Callable[[], None] | None] = [frame.__dict__.get("run") for frame in frames]
    try:
        for frame in frames:
            frame.run = _nothing  # type: ignore[method-assign]
        yield
    finally:
        for frame, run in zip(frames, before, strict=True):
            if run is None:
                del frame.run
            else:
                frame.run = run  # type: ignore[method-assign]


def _nothing() -> None:
    """Stands for the native call."""
