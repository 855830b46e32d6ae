"""Epilogues: expressions applied to the results of contractions, in registers or from memory."""
from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from kusari.ir import Call, Expr, walk
from kusari.ir.nest import TRANSCENDENTAL

from ..scalar.dispatch import emit_exprs
from ..text.array import Array
from ..text.emitter import Emitter, Index, Valid
from ..text.tiles import full_tiles
from ..text.types import memory_type
from .operand import Results
from .tile import Tile

# Functions that take more than a few instructions each.
_HEAVY = TRANSCENDENTAL | {"floor_divide", "remainder"}


def is_heavy(exprs: Sequence[Expr]) -> bool:
    """Whether the epilogue is too long to be unrolled for each vector of a tile.

    It would need registers for its constants, too, which the accumulators want.
    """
    calls = {e for expr in exprs for e in walk(expr) if isinstance(e, Call)}
    return len(calls) > 6 or any(c.fn in _HEAVY for c in calls)


class Epilogue(NamedTuple):
    """Applies the expressions to vectors of the product and stores the outputs of one matrix of the batch.

    The operands and the outputs of its first element are at the addresses ``reads`` and ``writes``.
    """

    em: Emitter
    work: Results
    reads: Sequence[str]
    writes: Sequence[str]

    def function(self, name: str, parameters: Sequence[str]) -> tuple[Emitter, Epilogue]:
        """A function of ``parameters``, then of ``arguments``, and the epilogue in it."""
        reads, writes = ([f"%{kind}{i}" for i in range(len(have))] for kind, have in (
            ("x", self.reads), ("y", self.writes)))
        em = self.em.function(name, [*parameters, *(f"ptr {p}" for p in (*reads, *writes))])
        return em, Epilogue(em, self.work, reads, writes)

    @property
    def arguments(self) -> list[str]:
        """The last arguments of a function that applies the epilogue."""
        return [*self.reads, *self.writes]

    def at(self, row: Index, column: Index) -> Epilogue:
        """The same, whose rows and columns count from ``row`` and ``column``: constants are what is added to those."""
        em, work = self.em, self.work
        reads = [em.gep(p, row * o.row + column * o.column, memory_type(o.dtype))
                 for p, o in zip(self.reads, work.operands, strict=True)]
        place = row * work.n + column
        return self._replace(reads=reads, writes=[
            em.gep(p, place, memory_type(d)) for p, d in zip(self.writes, work.types, strict=True)])

    def columns(self, column: Index, width: int, valid: Valid) -> list[str | None]:
        """The operands that are the same for every row, read once for a column of vectors; None for the others."""
        em, work = self.em, self.work
        return [em.read(o.dtype, width, p, column * o.column, o.column, valid) if o.row == 0 else None
                for p, o in zip(self.reads, work.operands, strict=True)]

    def rows(self, row: Index, width: int) -> list[str | None]:
        """The operands that are the same for every column, read once for a row; None for the others."""
        em, work = self.em, self.work
        return [em.read(o.dtype, width, p, row * o.row, 0) if o.column == 0 else None
                for p, o in zip(self.reads, work.operands, strict=True)]

    def store(self, x: str, row: Index, column: Index, width: int, valid: Valid,
              known: Sequence[str | None] | None = None) -> None:
        """Finish the elements ``(row, column) …`` whose product is ``x``."""
        em, work = self.em, self.work
        args = [x]
        for p, o, have in zip(self.reads, work.operands, known or [None] * len(self.reads), strict=True):
            index = row * o.row + column * o.column
            args.append(have if have is not None else em.read(o.dtype, width, p, index, o.column, valid))
        place = row * work.n + column
        results = emit_exprs(em, work.exprs, args, [work.dtype, *(o.dtype for o in work.operands)], width)
        for (y, dtype), p in zip(results, self.writes, strict=True):
            em.write(dtype, width, y, p, place, 1, valid)


class Finisher:
    """Applies the epilogue to tiles; if it is long, in functions that take tiles stored in rows of ``stride`` elements.

    Tiles in registers have up to ``rows`` rows; those of a long epilogue go through a buffer on the stack.
    """

    def __init__(self, em: Emitter, work: Results, width: int, stride: int, rows: int = 0) -> None:
        self._em, self._work, self._width, self._stride = em, work, width, stride
        self._functions: dict[int, Emitter] = {}
        self.heavy = is_heavy(work.exprs)
        self.buffer: Array | None = None
        if self.heavy and rows:
            buffer = em.value(f"alloca [{rows * stride} x {work.element}], align 64", "tile")
            self.buffer = Array(em, work.element, width, buffer)

    def finish(self, epilogue: Epilogue, sums: Iterable[str], row: Index, rows: int, column: Index,
               valid: Sequence[int], known: Sequence[str | None] | None = None) -> None:
        """Finish ``rows`` rows of vectors of ``valid`` elements in registers, the first one at ``(row, column)``.

        ``known`` are operands that have been read for all of them.
        """
        width = self._width
        if self.buffer is not None:
            Tile(self._em, self._work.element, width).store(sums, self.buffer, self._stride, len(valid))
            self.stored(epilogue, self.buffer, row, rows, column, sum(valid))
            return
        here = epilogue.at(row, column)
        operands = [here.columns(j * width, width, v) for j, v in enumerate(valid)
                    ] if known is None else [known] * len(valid)
        for k, x in enumerate(sums):
            i, j = divmod(k, len(valid))
            here.store(x, i, j * width, width, valid[j], operands[j])

    def stored(self, epilogue: Epilogue, tile: Array, row: Index, rows: int, column: Index, count: int) -> None:
        """Finish ``rows`` rows of ``count`` elements in memory, of which whole vectors are read."""
        for t in full_tiles(count, self._width):
            self.vectors(epilogue, tile.at(t.start), row, rows, column + t.start, t.count, t.size)

    def vectors(self, epilogue: Epilogue, tile: Array, row: Index, rows: int, column: Index, vectors: Index,
                lanes: int) -> None:
        """Finish ``rows`` rows of ``vectors`` vectors of ``lanes`` valid elements in memory."""
        function = self._functions.get(lanes)
        if function is None:
            function = self._functions[lanes] = self._write(epilogue, lanes)
        self._em.call(function, tile, row, rows, column, vectors, *epilogue.arguments)

    def _write(self, epilogue: Epilogue, lanes: int) -> Emitter:
        own = ["ptr %tile", "i64 %row", "i64 %rows", "i64 %column", "i64 %vectors"]
        em, inner = epilogue.function(f"finish{len(self._functions)}", own)
        width, tile = self._width, Array(em, self._work.element, self._width, "%tile")
        row, rows, first, vectors = em.numbers
        for j in em.each(0, vectors):
            at = j * width
            column = first + at
            known = inner.columns(column, width, lanes)
            for i in em.each(0, rows):
                x = tile.load(i * self._stride + at)
                inner.store(x, row + i, column, width, lanes, known)
        return em
