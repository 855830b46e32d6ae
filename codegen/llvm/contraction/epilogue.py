"""Epilogues: expressions applied to the results of contractions, in registers or from memory."""
from __future__ import annotations

from collections.abc import Callable, Sequence

from kusari.ir import Call, Expr, walk
from kusari.ir.nest import TRANSCENDENTAL

from ..scalar.dispatch import emit_exprs
from ..text.emitter import Emitter, Index
from ..text.tiles import full_tiles
from ..text.types import memory_type
from .operand import Matrices, Results


def for_batch(em: Emitter, work: Matrices, body: Callable[[Epilogue, str, str, bool], None]) -> None:
    """``body(epilogue, A, B, split)`` for every matrix; threads share the batch or, if not, ``split`` each product."""
    operands = len(work.operand_dtypes)
    slots = [em.slot(i) for i in range(work.scratch_slot)]
    split = work.batch < 4

    @em.each(*((0, work.batch) if split else em.chunk(work.batch)))
    def turn(b: Index) -> None:
        a = em.gep(slots[work.a_slot], em.mul(b, work.a_batch), work.element)
        bb = em.gep(slots[work.b_slot], em.mul(b, work.b_batch), work.element)
        reads = [em.gep(slots[2 + i], em.mul(b, strides[2]), memory_type(d))
                 for i, (strides, d) in enumerate(zip(work.operand_strides, work.operand_dtypes, strict=True))]
        body(Epilogue(em, work, reads, slots[2 + operands:], em.mul(b, work.m * work.n)), a, bb, split)


# Functions that take more than a few instructions each.
_HEAVY = TRANSCENDENTAL | {"floor_divide", "remainder"}


def is_heavy(exprs: Sequence[Expr]) -> bool:
    """Whether the epilogue is too long to be unrolled for each vector of a tile.

    It would need registers for its constants, too, which the accumulators want.
    """
    calls = {e for expr in exprs for e in walk(expr) if isinstance(e, Call)}
    return len(calls) > 6 or any(c.fn in _HEAVY for c in calls)


class Epilogue:
    """Applies the expressions to vectors of the product and stores the outputs of one matrix of the batch."""

    def __init__(self, em: Emitter, work: Results, reads: Sequence[str], writes: Sequence[str], offset: Index) -> None:
        self._em = em
        self._work = work
        self._reads = reads
        self._writes = writes
        self._offset = offset

    def inside(self, function: Emitter) -> Epilogue:
        """The same in another function, which takes ``parameters``."""
        reads = [f"%x{i}" for i in range(len(self._reads))]
        writes = [f"%y{i}" for i in range(len(self._writes))]
        return Epilogue(function, self._work, reads, writes, "%offset")

    def parameters(self) -> list[str]:
        """The parameters of a function that finishes tiles, types and names."""
        reads = [f"ptr %x{i}" for i in range(len(self._reads))]
        return [*reads, *(f"ptr %y{i}" for i in range(len(self._writes))), "i64 %offset"]

    def arguments(self) -> list[Index]:
        """The values of ``parameters``."""
        return [*self._reads, *self._writes, self._offset]

    def columns(self, column: Index, width: int, valid: int | None) -> list[str | None]:
        """The operands that are the same for every row, read once for a column of vectors; None for the others."""
        em, work = self._em, self._work
        return [em.read(d, width, p, em.mul(column, c), c, valid) if r == 0 else None
                for p, d, (r, c, _) in zip(self._reads, work.operand_dtypes, work.operand_strides, strict=True)]

    def rows(self, row: Index, width: int) -> list[str | None]:
        """The operands that are the same for every column, read once for a row; None for the others."""
        em, work = self._em, self._work
        return [em.read(d, width, p, em.mul(row, r), 0) if c == 0 else None
                for p, d, (r, c, _) in zip(self._reads, work.operand_dtypes, work.operand_strides, strict=True)]

    def store(self, x: str, row: Index, column: Index, width: int, valid: int | None,
              known: Sequence[str | None] | None = None) -> None:
        """Finish the elements ``(row, column) …`` whose product is ``x``."""
        em, work = self._em, self._work
        args = [x]
        for i, (p, d, (r, c, _)) in enumerate(zip(self._reads, work.operand_dtypes, work.operand_strides, strict=True)):
            have = known[i] if known else None
            index = em.add(em.mul(row, r), em.mul(column, c))
            args.append(have if have is not None else em.read(d, width, p, index, c, valid))
        place = em.add(em.add(em.mul(row, work.n), column), self._offset)
        results = emit_exprs(em, work.exprs, args, [work.dtype, *work.operand_dtypes], width)
        for (y, dtype), p in zip(results, self._writes, strict=True):
            em.write(dtype, width, y, p, place, 1, valid)

    def store_tile(self, sums: Sequence[str], row: Index, column: Index, width: int, valid: Sequence[int]) -> None:
        """Finish rows of vectors of ``valid`` elements in registers, the first one at ``(row, column)``."""
        em = self._em
        known = [self.columns(em.add(column, j * width), width, v) for j, v in enumerate(valid)]
        for k, x in enumerate(sums):
            i, j = divmod(k, len(valid))
            self.store(x, em.add(row, i), em.add(column, j * width), width, valid[j], known[j])


class Finisher:
    """Functions that apply the epilogue to tiles stored in rows of ``stride`` elements, for long epilogues."""

    def __init__(self, em: Emitter, work: Results, width: int, stride: int) -> None:
        self._em = em
        self._work = work
        self._width = width
        self._stride = stride
        self._functions: dict[int, Emitter] = {}

    def call(self, epilogue: Epilogue, tile: str, row: Index, rows: int, column: Index, vectors: Index,
             lanes: int) -> None:
        """Finish ``rows`` rows of ``vectors`` vectors of ``lanes`` valid elements."""
        function = self._functions.get(lanes)
        if function is None:
            function = self._functions[lanes] = self._write(epilogue, lanes)
        self._em.call(function, tile, row, rows, column, vectors, *epilogue.arguments())

    def call_all(self, epilogue: Epilogue, tile: str, row: Index, rows: int, column: Index, count: int) -> None:
        """Finish ``rows`` rows of ``count`` elements."""
        for t in full_tiles(count, self._width):
            place = self._em.gep(tile, t.start, self._work.element)
            self.call(epilogue, place, row, rows, self._em.add(column, t.start), t.count, t.size)

    def _write(self, epilogue: Epilogue, lanes: int) -> Emitter:
        own = ["ptr %tile", "i64 %row", "i64 %rows", "i64 %column", "i64 %vectors"]
        em = self._em.function(f"finish{lanes}", [*own, *epilogue.parameters()])
        inner = epilogue.inside(em)
        width, element = self._width, self._work.element

        @em.each(0, "%vectors")
        def vectors(j: Index) -> None:
            at = em.mul(j, width)
            column = em.add("%column", at)
            known = inner.columns(column, width, lanes)

            @em.each(0, "%rows")
            def line(i: Index) -> None:
                x = em.load(element, width, em.gep("%tile", em.add(em.mul(i, self._stride), at), element))
                inner.store(x, em.add("%row", i), column, width, lanes, known)
        return em
