"""The register tile of all contractions, and the loops that kernels are written with."""
from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import kusari.codegen
from kusari.codegen.llvm.contraction.tile import Factors, Tile
from kusari.codegen.llvm.text.array import Array
from kusari.codegen.llvm.text.emitter import Emitter
from kusari.codegen.llvm.text.tiles import each_tile
from kusari.codegen.target import TARGETS

CONTRACTION = Path(kusari.codegen.__file__).resolve().parent / "llvm" / "contraction"


def test_multiply_adds_of_sums_stand_in_one_place() -> None:
    found = {file.relative_to(CONTRACTION).as_posix() for file in CONTRACTION.rglob("*.py")
             if ".fma(" in file.read_text("utf-8")}
    assert found == {"tile.py", "winograd/algebra.py"}  # there it is a term of a transform


@pytest.mark.parametrize(("depth", "valid"), [(5, None), (1, [4, 3]), (0, [1, 2])])
def test_products_of_a_tile(jit, depth: int, valid: list[int] | None) -> None:
    rows, vectors, width = 3, 2, 4
    rng = np.random.default_rng(0)
    a, b, c = (rng.integers(-4, 5, shape).astype("f") for shape in ((rows, 7), (6, 8), (rows, 8)))
    em = Emitter("tile", TARGETS["sse"])
    x, y, z = (Array(em, "float", width, em.slot(i)) for i in range(3))
    tile = Tile(em, "float", width)
    sums = tile.product(Factors(x, 1, [7 * i for i in range(rows)], broadcast=True),
                        Factors(y, 8, tile.neighbours(vectors), valid=valid), depth, tile.load(z, 8, rows, vectors))
    tile.store(sums, z, 8, vectors)
    mask = np.concatenate([np.arange(width) < v for v in valid or [width] * vectors])
    expected = c + a[:, :depth] @ (b[:depth] * mask)
    jit.compile(em.text(), "tile", "sse")(a, b, c)
    np.testing.assert_array_equal(c, expected)


def test_loops_and_tables(jit) -> None:
    em = Emitter("loops", TARGETS["sse"])
    out, table = em.slot(0), em.table("i64", [5, 6, 7])
    for i in em.each(0, 3):
        for j, valid in each_tile(em, 7, 4):
            rest = em.divmod(j + i, 3)[1]
            x = em.broadcast("i64", 4, em.entry(table, rest))
            em.store("i64", 4, x, em.gep(out, i * 7 + j, "i64"), valid)
    found = np.zeros((3, 7), np.int64)
    jit.compile(em.text(), "loops", "sse")(found)
    np.testing.assert_array_equal(found, [[5 + (j // 4 * 4 + i) % 3 for j in range(7)] for i in range(3)])
