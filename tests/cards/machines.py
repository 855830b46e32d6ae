"""Machines with graphics cards: the real one where there is one, and the stand-in for CuPy elsewhere."""
from __future__ import annotations

import types
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import cupy_double
import numpy as np
import pytest

from kusari.backends import cuda

_TESTS = {"functions", "cards"}  # whose functions close over arrays
KINDS = ("cuda",) if cuda.available else ("stand-in",)  # not both: kernels are kept for all of a process

# Beyond a sample, on the stand-in alone: what compiles kernels for it takes minutes, and for a card seconds.
SWEEP: list[Any] = [pytest.mark.sweep, pytest.mark.slow] if not cuda.available else [pytest.mark.slow]


class Machine:
    """``xp`` makes arrays of the card; ``simulated`` says that it draws NumPy's numbers and counts what waits."""

    def __init__(self, xp: Any, simulated: bool) -> None:
        self.xp = xp
        self.simulated = simulated

    def host(self, x: Any) -> Any:
        """The elements of an array of the card, as NumPy's; fails for any other."""
        if self.simulated:
            return cupy_double.host(x)
        assert type(x) is self.xp.ndarray, f"{type(x)} is not on the card"
        return self.xp.asnumpy(x)

    @property
    def waits(self) -> Counter[str]:
        """What has made the host wait for the card, where that is counted."""
        return cupy_double.waits if self.simulated else Counter()

    def sent(self, x: Any) -> Any:
        """Arrays of NumPy, also in functions that close over them, on the card."""
        if isinstance(x, (tuple, list)) and not hasattr(x, "_fields"):
            return type(x)(map(self.sent, x))
        if isinstance(x, np.ndarray):
            return self.xp.asarray(x)
        return self._function(x) if isinstance(x, types.FunctionType) and _TESTS & set(x.__module__.split(".")) else x

    def _function(self, f: Any) -> Any:
        read = {k: self.sent(f.__globals__[k]) for k in f.__code__.co_names if k in f.__globals__}
        closure = tuple([types.CellType(self.sent(c.cell_contents)) for c in f.__closure__ or ()]) or None
        made = types.FunctionType(f.__code__, {**f.__globals__, **read}, f.__name__, self.sent(f.__defaults__), closure)
        made.__kwdefaults__ = f.__kwdefaults__ and {k: self.sent(v) for k, v in f.__kwdefaults__.items()}
        return made


@contextmanager
def machine(kind: str, cards: int = 1) -> Iterator[Machine]:
    """A machine with that many cards."""
    if kind == "stand-in":
        with cupy_double.cupy(cards) as module:
            yield Machine(module, True)
    else:
        yield Machine(cuda.cupy, False)
