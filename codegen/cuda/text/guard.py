"""Kernels that do nothing once an index was out of bounds, and one that notes it for other runs."""
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


def noting(gathers: int) -> Kernel:
    """The kernel that sets the flag of a card, an ``i64`` behind another, if one of so many gathers has failed."""
    text = (f"KERNEL(1, 1) note_failures(GLOBAL const i64 *gathers, GLOBAL i64 *flag) {{\n"
            f"    for (int i = 0; i < {gathers}; ++i) if (gathers[2 * i + 1]) flag[1] = 1;\n}}\n")
    return Kernel("cuda", "note_failures", text, blocks=1, threads=1)
