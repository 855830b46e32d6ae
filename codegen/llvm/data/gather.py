"""LLVM IR text of ``take`` and ``scatter_add``: gathers and scatters of whole rows."""
from __future__ import annotations

from math import prod

from kusari.ir import Arg, Call, DType, Kernel, Node

from ...native import is_row_access
from ...target import Target
from ..scalar.dispatch import emit_expr
from ..text.emitter import Emitter, Index
from ..text.types import constant, memory_type, value_type
from .move import zero

STATUS_SLOT = 3  # after the operands, of which both ops have three


def gather_kernel(node: Node, target: Target) -> Kernel | None:
    """Return the kernel of ``take`` or ``scatter_add``; None for other nodes and dtypes it does not handle.

    A row number out of bounds gives a row of NaN (0 for integers) in ``take`` and is left out in ``scatter_add``; as a
    kernel cannot raise, it is reported in the status slot of ``GATHERS_AND_SCATTERS``.
    """
    if not is_row_access(node):
        return None
    table, indices = (node.inputs[0], node.inputs[1]) if node.op.name == "take" else (node.output, node.inputs[0])
    dtype, kind = table.tensor.dtype, indices.tensor.dtype
    em = Emitter(node.op.name, target)
    rows, length, count = table.shape[0], prod(table.shape[1:]), indices.tensor.size
    if node.op.name == "take":
        _take(em, dtype, kind, rows, length, count)
        moved = 2 * node.output.tensor.nbytes + indices.tensor.nbytes
    else:
        _scatter(em, dtype, kind, rows, length, count)
        moved = table.tensor.nbytes + 3 * node.inputs[1].tensor.nbytes
    return Kernel("llvm", node.op.name, em.text(), 0, 0, moved)


def _number(em: Emitter, kind: DType, pointer: str, i: Index, rows: int) -> tuple[str, str, str]:
    """Row number ``i`` as it is given, counted from the front, and whether it is within bounds."""
    element = value_type(kind)
    x = em.load(element, 1, em.gep(pointer, i, element))
    if element != "i64":
        x = em.value(f"{'sext' if kind.kind == 'i' else 'zext'} {element} {x} to i64")
    given = x
    if kind.kind == "i":
        x = em.select("i64", 1, em.compare("slt", x, 0), str(em.add(x, rows)), x)
    return given, x, em.value(f"icmp ult i64 {x}, {rows}")


def _report(em: Emitter, number: str) -> None:
    """Store a number that is out of bounds in the status slot."""
    words = em.slot(STATUS_SLOT)
    em.store("i64", 1, number, words)
    em.store("i64", 1, "1", em.gep(words, 1, "i64"))


def _take(em: Emitter, dtype: DType, kind: DType, rows: int, length: int, count: int) -> None:
    source, numbers, target = (em.slot(i) for i in range(3))
    element, width = memory_type(dtype), em.target.lanes(dtype.itemsize)
    missing = constant(element, float("nan")) if dtype.kind == "f" else "0"
    lo, hi = em.chunk(count)

    @em.each(lo, hi, unroll=True)
    def one(i: Index) -> None:
        given, row, there = _number(em, kind, numbers, i, rows)
        begin, to = em.mul(row, length), em.mul(i, length)

        def copy() -> None:
            whole = length // width * width

            def vector(j: Index, valid: int | None = None) -> None:
                x = em.load(element, width, em.gep(em.gep(source, begin, element), j, element), valid)
                em.store(element, width, x, em.gep(em.gep(target, to, element), j, element), valid)
            em.loop(0, whole, width, lambda j, _: vector(j))
            if whole < length:
                vector(whole, length - whole)

        def fill() -> None:
            _report(em, given)
            em.loop(0, length, 1, lambda j, _: em.store(element, 1, missing, em.gep(target, em.add(to, j), element)))
        em.when(there, copy, fill)


def _scatter(em: Emitter, dtype: DType, kind: DType, rows: int, length: int, count: int) -> None:
    """Every thread owns a range of rows and goes through all numbers: sums are in order for any number of threads."""
    numbers, updates, target = (em.slot(i) for i in range(3))
    element, width = memory_type(dtype), em.target.lanes(dtype.itemsize)
    lo, hi = em.chunk(rows)
    zero(em, target, element, em.mul(lo, length), em.mul(hi, length), dtype.itemsize)

    @em.each(0, count, unroll=True)
    def one(i: Index) -> None:
        given, row, there = _number(em, kind, numbers, i, rows)
        mine = em.binary("and", "i1", 1, em.compare("sge", row, lo), em.compare("slt", row, hi))
        begin, to = em.mul(i, length), em.mul(row, length)

        def vector(j: Index, valid: int | None = None) -> None:
            x = em.read(dtype, width, updates, em.add(begin, j), 1, valid)
            y = em.read(dtype, width, target, em.add(to, j), 1, valid)
            total, _ = emit_expr(em, Call("add", (Arg(0), Arg(1))), (y, x), (dtype, dtype), width)
            em.write(dtype, width, total, target, em.add(to, j), 1, valid)

        def add() -> None:
            whole = length // width * width
            em.loop(0, whole, width, lambda j, _: vector(j))
            if whole < length:
                vector(whole, length - whole)
        em.when(there, lambda: _none(em.when(mine, add)), lambda: _report(em, given))


def _none(_: list[str]) -> None:
    return None
