"""Kernels of ``take`` and ``scatter_add``: gathers and scatters of whole rows.

Sums of a scatter are in the order of the updates: a block owns rows, and looks for the numbers that name them.
"""
from __future__ import annotations

from math import prod

import numpy as np

from kusari.ir import DType, Kernel, Node

from ...native import is_row_access
from ..scalar.scalars import spell
from ..text.kernel import KernelText, int_type
from ..text.types import loaded, storage_name, stored, type_name

BLOCK_THREADS = 256
MOST_BLOCKS = 4096
SCATTER_BLOCKS = 1024  # that share the rows of a scatter
PACK_BYTES = 16
_BITS = {1: "uint8", 2: "uint16", 4: "uint32", 8: "uint64"}


def gather_kernel(node: Node) -> Kernel | None:
    """The kernel of ``take`` or ``scatter_add``; None for other nodes and dtypes it does not handle.

    A row number out of bounds gives a row of NaN (0 for integers) in ``take`` and is left out in ``scatter_add``; it is
    reported in the status slot of ``GATHERS_AND_SCATTERS``.
    """
    if not is_row_access(node):
        return None
    return _take(node) if node.op.name == "take" else _scatter(node)


def _number(text: KernelText, kind: DType, pointer: str, at: str, rows: int) -> str:
    """Declare ``given``, a row number as it is, and ``row``, counted from the front, which is -1 if there is none."""
    text.line(f"const i64 given = (i64){pointer}[{at}];")
    front = f"given < 0 ? given + {rows} : given" if kind.kind == "i" else "given"
    text.line(f"const i64 from_front = {front};")
    text.line(f"const {text.index} row = from_front >= 0 && from_front < {rows} ? ({text.index})from_front : -1;")
    return "row"


def _report(text: KernelText, status: str) -> None:
    text.line(f"{status}[0] = given;")
    text.line(f"{status}[1] = 1;")


def _take(node: Node) -> Kernel:
    (table, numbers), out = node.inputs, node.output
    dtype, rows, length = table.tensor.dtype, table.shape[0], prod(table.shape[1:])
    bits = np.dtype(_BITS[dtype.itemsize])
    text = KernelText("take", BLOCK_THREADS, [bits, numbers.tensor.dtype, bits],
                      int_type(max(table.tensor.size, out.tensor.size)))
    status = text.slot("i64")
    lanes = PACK_BYTES // dtype.itemsize
    while length % lanes:
        lanes //= 2
    units, each = out.tensor.size // lanes, length // lanes
    blocks = min(MOST_BLOCKS, -(-units // BLOCK_THREADS))
    missing = int(np.array(np.nan, dtype).view(bits)) if dtype.kind == "f" else 0
    pack, wide = text.pack(bits, lanes), text.index
    if units:
        text.line(f"const bool aligned = (ADDRESS(p0) | ADDRESS(p2)) % {lanes * bits.itemsize} == 0;")
        with text.block(f"for ({wide} u = BLOCK * ({wide}){BLOCK_THREADS} + THREAD; u < {units}; "
                        f"u += BLOCKS * ({wide}){BLOCK_THREADS})"):
            text.line(f"const {wide} i = u / {each}, column = u % {each} * {lanes};")
            _number(text, numbers.tensor.dtype, "p1", "i", rows)
            text.line(f"{pack} moved;")
            with text.block("if (row < 0)"):
                text.line(f"for (int lane = 0; lane < {lanes}; ++lane) moved.at[lane] = {missing}U;")
                text.line("if (column == 0) {")
                _report(text, status)
                text.line("}")
            here = f"p0 + row * {length} + column"
            text.line(f"else if (aligned) moved = *(GLOBAL const {pack} *)({here});")
            text.line(f"else for (int lane = 0; lane < {lanes}; ++lane) moved.at[lane] = ({here})[lane];")
            there = f"p2 + u * {lanes}"
            text.line(f"if (aligned) *(GLOBAL {pack} *)({there}) = moved;")
            text.line(f"else for (int lane = 0; lane < {lanes}; ++lane) ({there})[lane] = moved.at[lane];")
    return text.kernel(blocks, 0, 2 * out.tensor.nbytes + numbers.tensor.nbytes)


def _scatter(node: Node) -> Kernel:
    (numbers, updates), out = node.inputs, node.output
    dtype, rows, length = out.tensor.dtype, out.shape[0], prod(out.shape[1:])
    count = numbers.tensor.size
    text = KernelText("scatter_add", BLOCK_THREADS, [numbers.tensor.dtype, dtype, dtype],
                      int_type(max(updates.tensor.size, out.tensor.size)))
    status = text.slot("i64")
    each = -(-rows // SCATTER_BLOCKS)
    blocks = -(-rows // each) if each else 0
    found, places = text.shared("int", BLOCK_THREADS), text.shared("int", BLOCK_THREADS)
    wide, storage = text.index, storage_name(dtype)
    text.line(f"const {wide} first = BLOCK * ({wide}){each};")
    text.line(f"const {wide} last = first + {each} < {rows} ? first + {each} : {rows};")
    text.line(f"for ({wide} k = first * {length} + THREAD; k < last * {length}; k += {BLOCK_THREADS}) p2[k] = 0;")
    with text.block(f"for (int begin = 0; begin < {count if rows * length else 0}; begin += {BLOCK_THREADS})"):
        text.line("const int mine = begin + THREAD;")
        text.line("int near = -1;")
        with text.block(f"if (mine < {count})"):
            _number(text, numbers.tensor.dtype, "p0", "mine", rows)
            text.line("near = row >= first && row < last ? (int)(row - first) : -1;")
            with text.block("if (row < 0 && BLOCK == 0)"):
                _report(text, status)
        total = _before(text, found, "near >= 0")
        text.line(f"if (near >= 0) {places}[{found}[THREAD] - 1] = THREAD;")
        text.line("BARRIER;")
        text.line(f"const int total = {total};")
        text.line("BARRIER;")
        text.line(f"{found}[THREAD] = near;")
        text.line("BARRIER;")
        with text.block("for (int k = 0; k < total; ++k)"):
            text.line(f"const int place = {places}[k];")
            text.line(f"GLOBAL {storage} *to = p2 + (first + {found}[place]) * {length};")
            text.line(f"GLOBAL const {storage} *update = p1 + (begin + place) * ({wide}){length};")
            with text.block(f"for ({wide} column = THREAD; column < {length}; column += {BLOCK_THREADS})"):
                args = [loaded(dtype, "to[column]"), loaded(dtype, "update[column]")]
                value = spell("add", args, [dtype, dtype], text.helpers)
                text.line(f"const {type_name(dtype)} sum = {value};")
                text.line(f"to[column] = {stored(dtype, 'sum')};")
        text.line("BARRIER;")
    return text.kernel(blocks, out.tensor.size, out.tensor.nbytes + 3 * updates.tensor.nbytes)


def _before(text: KernelText, array: str, condition: str) -> str:
    """For each thread the number of those up to it for which a condition holds; returns the number of all."""
    text.line(f"{array}[THREAD] = {condition};")
    text.line("BARRIER;")
    with text.block(f"for (int reach = 1; reach < {BLOCK_THREADS}; reach *= 2)"):
        text.line(f"const int other = THREAD >= reach ? {array}[THREAD - reach] : 0;")
        text.line("BARRIER;")
        text.line(f"{array}[THREAD] += other;")
        text.line("BARRIER;")
    return f"{array}[{BLOCK_THREADS - 1}]"
