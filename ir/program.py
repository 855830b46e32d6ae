"""What code generation leaves: kernel texts and a table of rows."""
from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from .graph import Node, Value

Language = Literal["llvm", "numba", "cuda"]


@dataclass(frozen=True)
class Kernel:
    """One native function ``void symbol(void** slots, i64 tid, i64 nth)`` as text; equal text is the same kernel.

    Its slots are the row's operands and then, if ``scratch`` is not zero, one buffer of ``nth * scratch`` bytes, of
    which thread ``tid`` uses its part. ``flops`` and ``bytes`` estimate the work of one call, to choose the number
    of threads. ``serial`` kernels do all their work for ``tid == 0``.
    """

    language: Language
    symbol: str
    text: str
    scratch: int = 0
    flops: int = 0
    bytes: int = 0
    serial: bool = False


@dataclass(frozen=True, eq=False)
class Row:
    """One step of a schedule: a kernel on operands (inputs, then outputs), or ``node`` run by Python when it is None."""

    kernel: Kernel | None
    operands: tuple[Value, ...]
    node: Node


@dataclass(frozen=True, eq=False)
class Program:
    """The rows in order."""

    name: str
    rows: tuple[Row, ...]

    @property
    def kernels(self) -> tuple[Kernel, ...]:
        """The distinct kernels, in order of first use."""
        return tuple(dict.fromkeys(r.kernel for r in self.rows if r.kernel is not None))
