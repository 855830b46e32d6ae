"""Kernels of a graphics card as functions of CuPy's, which compiles, caches and launches them."""
from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any

from kusari.ir import Instruction, Kernel, Node, Value


def cupy() -> Any:
    """The module CuPy, which the program has imported, as it has arrays of it."""
    return import_module("cupy")


@dataclass(frozen=True, eq=False)
class Dialect:
    """The language of kernels: the ``source`` of a text, ``guarded`` texts, and options of the compiler.

    A guarded text has one parameter more, the reports of so many gathers, and does nothing if one of them has found an
    index out of bounds. The kernel ``noting`` so many reports sets a flag, its second parameter. ``split`` returns,
    for a node with an epilogue, a value that stands for its product or convolution alone, and rows that do the rest;
    ``only`` returns rows that write one result of a nest.
    """

    source: Callable[[str], str]
    guarded: Callable[[Kernel, int], str]
    noting: Callable[[int], Kernel]
    options: tuple[str, ...]
    split: Callable[[Node], tuple[Value, tuple[Instruction, ...]] | None]
    only: Callable[[Node, Value], tuple[Instruction, ...] | None]


@dataclass
class CardLoader:
    """The kernels of this process, each made once for each text.

    CuPy compiles for the current device at the first call, and finds on disk what it has compiled before.
    """

    dialect: Dialect
    loaded: int = 0
    _functions: dict[tuple[str, int], Any] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def function(self, kernel: Kernel, guards: int = 0) -> Any:
        """Return a function that launches a kernel; with ``guards``, unless one of so many gathers has failed."""
        key = kernel.key, guards
        with self._lock:
            found = self._functions.get(key)
            if found is None:
                text = self.dialect.guarded(kernel, guards) if guards else kernel.text
                found = cupy().RawKernel(self.dialect.source(text), kernel.symbol, self.dialect.options)
                self._functions[key] = found
                self.loaded += 1
        return found
