"""Timing steps, and noticing what disturbs them.

Invariant: the standard library only, and nothing newer than Python 3.9, for ``benchmarks/`` runs this file also in
interpreters that have another library and not Kusari.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import os
import statistics
import sys
import time
from collections.abc import Callable
from typing import Any

WARM_UP = 0.25  # seconds of steps that are not timed
FIRST = 3  # calls that may record, compile and load
LEAST = 5  # steps that are timed, however long they take


def peak_megabytes() -> float | None:
    """The largest resident size of this process so far; None where the system does not tell."""
    with contextlib.suppress(OSError), open("/proc/self/status", encoding="ascii") as status:
        for line in status:
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) / 1024
    try:
        import resource
    except ImportError:
        return None
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / 2**20 if sys.platform == "darwin" else peak / 1024


def settled_megabytes() -> float | None:
    """The resident size of this process once unused memory has been released; None if the system does not report it."""
    gc.collect()
    with contextlib.suppress(OSError, AttributeError, TypeError):  # not the GNU C library
        ctypes.CDLL(None).malloc_trim(0)
    with contextlib.suppress(OSError), open("/proc/self/status", encoding="ascii") as status:
        for line in status:
            if line.startswith("VmRSS:"):
                return int(line.split()[1]) / 1024
    return None


def forget_peak() -> None:
    """Let ``peak_megabytes`` tell of what comes from now on; nothing happens where the system cannot do that."""
    with contextlib.suppress(OSError), open("/proc/self/clear_refs", "w", encoding="ascii") as file:
        file.write("5")


def machine_seconds() -> float | None:
    """Processor seconds that the machine has spent so far, for others than us included; None if it does not tell."""
    with contextlib.suppress(OSError, IndexError, ValueError), open("/proc/stat", encoding="ascii") as stat:
        user, nice, system, _, _, irq, softirq, steal = (int(text) for text in stat.readline().split()[1:9])
        return (user + nice + system + irq + softirq + steal) / os.sysconf("SC_CLK_TCK")
    return None


class Others:
    """How many processors others than this process (and its children that have ended) keep busy from now on."""

    def __init__(self) -> None:
        self._then = self._now()

    @staticmethod
    def _now() -> tuple[float, float | None]:
        used = machine_seconds()
        return time.perf_counter(), None if used is None else used - sum(os.times()[:4])

    def processors(self) -> float | None:
        """The mean since this object was made; None where the system does not tell."""
        (begin, before), (end, after) = self._then, self._now()
        return None if before is None or after is None else max(0.0, (after - before) / (end - begin))


def measure(step: Callable[[int], Any], seconds: float, value: Callable[[int, Any], float] | None = None,
            ) -> dict[str, Any]:
    """Time the first calls, then the steps of ``seconds`` after a warm-up.

    ``step(i)`` is one complete step. ``value(i, result)`` turns what it returned into a number by which libraries are
    compared; it is called for the first steps and not timed. ``peak_mb`` is the largest resident size of the process,
    ``steady_mb`` that of the steps after the first ones. ``cpu_ms`` is a step's mean processor time, of all threads,
    ``first_cpu_s`` that of the first calls, ``process_cpu_s`` that of the process from its start until they were done.
    """
    clock = time.perf_counter
    first: list[float] = []
    first_cpu, process_cpu = 0.0, time.process_time()
    values: list[float] = []
    for i in range(FIRST):
        begin, before = clock(), time.process_time()
        result = step(i)
        first.append(clock() - begin)
        first_cpu += time.process_time() - before
        if value is not None:
            values.append(value(i, result))
        del result
    peak = peak_megabytes()
    forget_peak()
    i = FIRST
    end = clock() + min(WARM_UP, seconds)
    while clock() < end:
        step(i)
        i += 1
    times: list[float] = []
    others = Others()
    end, before = clock() + seconds, time.process_time()
    while len(times) < LEAST or clock() < end:
        begin = clock()
        step(i)
        times.append(clock() - begin)
        i += 1
    spent = time.process_time() - before
    busy = others.processors()
    steady = peak_megabytes()
    times.sort()
    return {"step_ms": statistics.median(times) * 1e3, "p10_ms": times[len(times) // 10] * 1e3,
            "cpu_ms": spent / len(times) * 1e3,
            "p90_ms": times[len(times) * 9 // 10] * 1e3, "steps": len(times), "first_s": sum(first),
            "first_cpu_s": first_cpu, "process_cpu_s": process_cpu + first_cpu, "values": values, "others": busy,
            "steady_mb": steady, "peak_mb": None if peak is None or steady is None else max(peak, steady)}
