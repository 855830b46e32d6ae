"""Waiting until nobody else uses the processors."""

from __future__ import annotations

import time

from kusari.commands.timing import Others, machine_seconds

IDLE = 0.05       # processors in use below which the machine counts as idle
DISTURBED = 0.15  # processors used by others during a measurement above which it is repeated and marked
LOOK = 0.2        # seconds of one look


def tells() -> bool:
    """Whether this system says how busy it is."""
    return machine_seconds() is not None


def wait(patience: float) -> bool:
    """Wait until the machine is idle, ``patience`` seconds at most; returns whether it is, as far as is known."""
    end = time.perf_counter() + patience
    while patience > 0 and tells():
        others = Others()
        time.sleep(LOOK)
        if (others.processors() or 0.0) <= IDLE:
            return True
        if time.perf_counter() >= end:
            return False
    return True


def disturbed(others: float | None) -> bool:
    """Whether that many processors in others' use spoil a measurement."""
    return others is not None and others > DISTURBED
