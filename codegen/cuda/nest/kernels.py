"""The kernels of a loop nest."""
from __future__ import annotations

from kusari.ir import Kernel
from kusari.ir.nest import Nest

from .layout import launches_of
from .pointwise import pointwise_kernel
from .rows import rows_kernel
from .sweeps import sweep_kernel


def nest_kernel(nest: Nest, number: int = 0) -> Kernel:
    """Kernel ``number`` of the ``launches_of(nest)``; slots are its operands, its outputs, and shared memory."""
    if not any(d.reduced for d in nest.dims):
        return pointwise_kernel(nest)
    return rows_kernel(nest) if launches_of(nest) == 1 else sweep_kernel(nest, number)


def nest_kernels(nest: Nest) -> tuple[Kernel, ...]:
    """All kernels of ``nest``, one behind the other."""
    return tuple(nest_kernel(nest, i) for i in range(launches_of(nest)))
