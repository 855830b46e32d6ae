"""Kernels of contractions: a block computes a tile of a product, of which each thread keeps a few sums in registers.

Pieces of both factors pass through shared memory. Where there are few tiles and long sums, blocks share the sums of a
tile; a second kernel adds their parts in order and applies the epilogue. What threads do with the pieces is an
`Inner`: sums of their own (`registers.py`), or products of whole fragments by tensor cores (`fragments.py`).
"""
from __future__ import annotations

from collections.abc import Sequence

from kusari.ir import DType, Kernel
from kusari.ir.product import Rounding

from ..text.kernel import KernelText
from .fragments import Fragments
from .registers import Registers
from .tiles import (
    BLOCK_THREADS,
    RESIDENT_BLOCKS,
    SIDE_THREADS,
    Factor,
    Inner,
    Shape,
    Store,
    sum_bytes,
    sum_type,
    word_terms,
)


def text_of(symbol: str, dtype: DType, operands: Sequence[DType], index: str, rounded: Rounding) -> KernelText:
    """An empty kernel of products in ``dtype``."""
    few = word_terms(operands[0], rounded) or dtype.itemsize > 4
    return KernelText(symbol, BLOCK_THREADS, operands, index, resident=1 if few else RESIDENT_BLOCKS)


def kernel_of(text: KernelText, shape: Shape, dtype: DType, factors: tuple[Factor, Factor], store: Store, number: int,
              flops: int, moved: int) -> Kernel:
    """Kernel ``number`` of a contraction: all of it, or parts of its sums, and then what adds them."""
    results, size = shape.results, shape.parts * shape.results * sum_bytes(dtype)
    if shape.parts == 1:
        return text.kernel(_tiles(text, shape, dtype, factors, store), flops, moved)
    partial = text.slot(sum_type(dtype))
    if number:
        _add_parts(text, partial, shape, dtype, store)
        return text.kernel(-(-results // BLOCK_THREADS), shape.parts * results, size + results * dtype.itemsize, size)

    def keep(row: str, column: str, total: str) -> None:
        place = f"(batch * {shape.m} + {row}) * {shape.n} + {column}"
        text.line(f"{partial}[part * ({text.index}){results} + {place}] = {total};")
    return text.kernel(_tiles(text, shape, dtype, factors, keep), flops, moved, size)


def _tiles(text: KernelText, shape: Shape, dtype: DType, factors: tuple[Factor, Factor], store: Store) -> int:
    """Write a kernel of ``BLOCK_THREADS``; returns the number of its blocks.

    Elements of factors have the names ``row``, ``column`` and ``k``, in the product with the number ``batch``;
    ``store(row, column, sum)`` writes what becomes of a sum, in a part of it ``part``, if there are several.
    """
    if not shape.results:
        return 0
    high, wide = (extent * SIDE_THREADS for extent in shape.per_thread)
    down, across, parts = -(-shape.m // high), -(-shape.n // wide), shape.parts
    inner: Inner = (Fragments if factors[0].terms else Registers)(text, shape, dtype, *factors)
    text.line(f"const {text.index} row0 = BLOCK / {across} % {down} * {high}, column0 = BLOCK % {across} * {wide};")
    text.line(f"const {text.index} batch = BLOCK / {across * down}{f' % {shape.batch}' if parts > 1 else ''};")
    first, last = "0", str(shape.k)
    if parts > 1:
        each = shape.part_elements
        text.line(f"const int part = BLOCK / {across * down * shape.batch};")
        text.line(f"const {text.index} first = part * ({text.index}){each};")
        text.line(f"const {text.index} last = first + {each} < {shape.k} ? first + {each} : {shape.k};")
        first, last = "first", "last"
    inner.begin()
    inner.fetch(first, last)
    with text.block(f"for ({text.index} k0 = {first}; k0 < {last}; k0 += {shape.step})"):
        inner.put()
        text.line("BARRIER;")
        inner.fetch(f"k0 + {shape.step}", last)
        inner.multiply()
        text.line("BARRIER;")
    inner.results(store)
    return down * across * shape.batch * parts


def _add_parts(text: KernelText, partial: str, shape: Shape, dtype: DType, store: Store) -> None:
    """Add up the parts of each sum, in order, and store the results."""
    results = shape.results
    text.line(f"const {text.index} u = BLOCK * ({text.index}){BLOCK_THREADS} + THREAD;")
    with text.block(f"if (u < {results})"):
        text.line(f"const {text.index} batch = u / {shape.m * shape.n}, row = u / {shape.n} % {shape.m}, "
                  f"column = u % {shape.n};")
        text.line(f"{sum_type(dtype)} sum = 0;")
        with text.block(f"for (int part = 0; part < {shape.parts}; ++part)"):
            text.line(f"sum += {partial}[part * ({text.index}){results} + u];")
        store("row", "column", "sum")
