"""LLVM IR text of ``take`` and ``scatter_add``: gathers and scatters of whole rows."""
from __future__ import annotations

from math import prod

from kusari.ir import Arg, Call, DType, Kernel, Node

from ...target import Target
from ..scalar.dispatch import emit_expr
from ..text.array import Array
from ..text.emitter import I64, Emitter, Index
from ..text.tiles import each_run
from ..text.types import constant, memory_type, value_type

STATUS_SLOT = 3  # after the operands, of which both ops have three


def gather_kernel(node: Node, target: Target) -> Kernel:
    """Return the kernel of ``take`` or ``scatter_add``, of a node that ``is_row_access``.

    A row number out of bounds gives a row of NaN (0 for integers) in ``take`` and is left out in ``scatter_add``; as a
    kernel cannot raise, it is reported in the status slot of ``GATHERS_AND_SCATTERS``.
    """
    takes = node.op.name == "take"
    table, indices = (node.inputs[0], node.inputs[1]) if takes else (node.output, node.inputs[0])
    em = Emitter(node.op.name, target)
    rows, length, count = table.shape[0], prod(table.shape[1:]), indices.tensor.size
    write = _take if takes else _scatter
    write(em, table.tensor.dtype, indices.tensor.dtype, rows, length, count)
    moved = 2 * node.output.tensor.nbytes + indices.tensor.nbytes if takes else (
        table.tensor.nbytes + 3 * node.inputs[1].tensor.nbytes)
    return Kernel("llvm", node.op.name, em.text(), 0, 0, moved)


def _number(em: Emitter, kind: DType, pointer: str, i: Index, rows: int) -> tuple[Index, Index, str]:
    """Row number ``i`` as it is given, counted from the front, and whether it is within bounds."""
    element = value_type(kind)
    x = em.load(element, 1, em.gep(pointer, i, element))
    if element != "i64":
        x = em.value(f"{'sext' if kind.kind == 'i' else 'zext'} {element} {x} to i64")
    given = row = I64(em, x)
    if kind.kind == "i":
        row = em.choose(em.compare("slt", given, 0), given + rows, given)
    return given, row, em.compare("ult", row, rows)


def _report(em: Emitter, number: Index) -> None:
    """Store a number that is out of bounds in the status slot."""
    words = Array(em, "i64", 1, em.slot(STATUS_SLOT))
    words.put(f"{number}")
    words.put("1", 1)


def _take(em: Emitter, dtype: DType, kind: DType, rows: int, length: int, count: int) -> None:
    element = memory_type(dtype)
    source, numbers, target = (Array(em, element, em.target.lanes(dtype.itemsize), em.slot(i)) for i in range(3))
    for i in em.each(*em.chunk(count)):
        given, row, there = _number(em, kind, numbers.pointer, i, rows)
        begin, to = row * length, i * length
        for is_there in em.either(there):
            if is_there:
                here, place = source.at(begin), target.at(to)
                for j, _, valid in each_run(em, 0, length, source.width):
                    place.store(here.load(j, valid), j, valid)
                continue
            _report(em, given)
            missing = constant(element, float("nan")) if dtype.kind == "f" else "0"
            for j in em.each(0, length):
                target.put(missing, to + j)


def _scatter(em: Emitter, dtype: DType, kind: DType, rows: int, length: int, count: int) -> None:
    """Every thread owns a range of rows and goes through all numbers: sums are in order for any number of threads."""
    numbers, updates, target = (em.slot(i) for i in range(3))
    lo, hi = em.chunk(rows)
    begin, end = lo * length, hi * length
    Array(em, memory_type(dtype), 1, target).clear(em.max(end - begin, 0), begin)
    for i in em.each(0, count):
        given, row, there = _number(em, kind, numbers, i, rows)
        mine = em.binary("and", "i1", 1, em.compare("sge", row, lo), em.compare("slt", row, hi))
        begin, to = i * length, row * length
        for is_there in em.either(there):
            if not is_there:
                _report(em, given)
                continue
            with em.only(mine):
                for j, width, valid in each_run(em, 0, length, em.target.lanes(dtype.itemsize)):
                    x = em.read(dtype, width, updates, begin + j, 1, valid)
                    y = em.read(dtype, width, target, to + j, 1, valid)
                    total, _ = emit_expr(em, Call("add", (Arg(0), Arg(1))), (y, x), (dtype, dtype), width)
                    em.write(dtype, width, total, target, to + j, 1, valid)
