"""Kernels that do nothing once an index of the same run was out of bounds."""
from __future__ import annotations

from kusari.ir import Kernel


def guarded(kernel: Kernel, gathers: int) -> str:
    """The text of a kernel with one parameter more behind its others: the reports of so many gathers, two ``i64`` each.

    All threads of a block read the same, so that none of them waits for another at a barrier.
    """
    head, name, rest = kernel.text.partition(f") {kernel.symbol}(")
    parameters, bracket, body = rest.partition(") {\n")
    look = f"    for (int i = 0; i < {gathers}; ++i) if (reports[2 * i + 1]) return;\n"
    return f"{head}{name}{parameters}, GLOBAL const i64 *reports{bracket}{look}{body}"
