"""Kernels that many shapes share: their text depends on a form alone, and what else a shape has are numbers.

They are called with those numbers, which stand in their slots behind the operands and the scratch memory. So a network
whose layers differ in their channels has one kernel for all of them. Invariant: a form says everything that the text
depends on, and names of numbers follow from it.
"""
from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from typing import Any

from kusari.ir import Facts, Kernel

from ..native import generator_version
from ..target import Target
from .emitter import Emitter


def given_kernel(name: str, form: Any, target: Target, slots: int, numbers: Mapping[str, int],
                 write: Callable[[Emitter], None], *, scratch: int = 0, shared: int = 0, flops: int = 0,
                 moved: int = 0) -> Kernel:
    """The kernel whose text ``write`` writes when somebody asks for it; ``slots`` come before the numbers."""
    about = f"{name} {form!r} {target!r} {slots} {tuple(numbers)}"
    symbol = f"{name}_{hashlib.sha256(about.encode()).hexdigest()[:12]}"
    names = tuple(numbers)

    def text() -> Kernel:
        em = Emitter(symbol, target)
        em.take(names, slots)
        write(em)
        return Kernel("llvm", symbol, em.text())
    facts = Facts(symbol, scratch, flops, moved, shared=shared)
    return Kernel.given("llvm", f"{generator_version()} {about}", tuple(numbers.values()), facts, text)
