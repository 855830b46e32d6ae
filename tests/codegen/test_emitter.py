"""The emitter: control flow, memory access and index arithmetic, run natively."""
from __future__ import annotations

import re

import numpy as np
import pytest

from kusari.codegen.llvm.text.emitter import Carried, Emitter
from kusari.codegen.target import TARGETS

AVX512 = TARGETS["avx512"]


@pytest.mark.parametrize("n", [0, 1, 2, 7])
@pytest.mark.parametrize("known", [True, False])
def test_loop_carries_values_and_survives_empty_ranges(jit, n: int, known: bool) -> None:
    em = Emitter("k", AVX512)
    count, out = em.slot(0), em.slot(1)
    hi = n if known else em.entry(count)
    total = Carried(["i64"], ["5"])
    for i in em.each(0, hi, carried=total):
        total.values = [em.value(f"add i64 {total.values[0]}, {i + 10}")]
    em.store("i64", 1, total.values[0], out)
    result = np.zeros(1, np.int64)
    jit.compile(em.text(), "k")(np.array([n]), result)
    assert result[0] == 5 + sum(10 + i for i in range(n))


@pytest.mark.parametrize("nth", [1, 2, 3, 8])
@pytest.mark.parametrize("n", [0, 1, 5, 64, 65])
@pytest.mark.parametrize("multiple", [1, 16])
def test_chunk_covers_every_index_once(jit, n: int, nth: int, multiple: int) -> None:
    em = Emitter("k", AVX512)
    out = em.slot(0)

    for i in em.each(*em.chunk(n, multiple)):
        p = em.gep(out, i, "i64")
        em.store("i64", 1, em.value(f"add i64 {em.load('i64', 1, p)}, 1"), p)
    result = np.zeros(n + 4, np.int64)
    jit.compile(em.text(), "k")(result, nth=nth)
    assert result.tolist() == [1] * n + [0] * 4


@pytest.mark.parametrize("target", ["avx512", "avx2", "sse"])
@pytest.mark.parametrize("dtype", ["float32", "float64", "int8", "int64", "bool", "float16"])
@pytest.mark.parametrize("stride", [0, 1, 3])
@pytest.mark.parametrize("valid", [1, 3, 8])
def test_read_and_write_touch_only_the_valid_elements(jit, target, dtype, stride: int, valid: int) -> None:
    em = Emitter("k", TARGETS[target])
    a, b = em.slot(0), em.slot(1)
    d = np.dtype(dtype)
    em.write(d, 8, em.read(d, 8, a, 1, stride, valid), b, 2, 2, valid)
    x, y = np.arange(1, 40).astype(d), np.zeros(20, d)
    jit.compile(em.text(), "k", target)(x, y)
    expected = np.zeros(20, d)
    expected[2:2 + 2 * valid:2] = x[1] if stride == 0 else x[1:1 + stride * valid:stride]
    np.testing.assert_array_equal(y, expected)


@pytest.mark.parametrize("value", [-1, 3])
def test_when_merges_the_values_of_both_branches(jit, value: int) -> None:
    em = Emitter("k", AVX512)
    x = em.load("i64", 1, em.slot(0))
    (y,) = em.when(em.compare("slt", x, 0), lambda: ["7"], lambda: [em.value(f"mul i64 {x}, 2")], ["i64"])
    with em.only(em.compare("eq", y, 6)):
        em.store("i64", 1, "1", em.slot(2))
    em.store("i64", 1, y, em.slot(1))
    out, flag = np.zeros(1, np.int64), np.zeros(1, np.int64)
    jit.compile(em.text(), "k")(np.array([value]), out, flag)
    assert (out[0], flag[0]) == ((7, 0) if value < 0 else (6, 1))


def test_horizontal_folds_every_lane(jit) -> None:
    em = Emitter("k", AVX512)
    x = em.load("float", 16, em.slot(0))
    em.store("float", 1, em.horizontal("fadd", "float", 16, x), em.slot(1))
    out = np.zeros(1, np.float32)
    jit.compile(em.text(), "k")(np.arange(16, dtype=np.float32), out)
    assert out[0] == 120


def test_same_calls_same_text_and_each_intrinsic_declared_once() -> None:
    def write() -> str:
        em = Emitter("k", AVX512)
        p = em.slot(0)
        x = em.load("float", 16, p, 3)
        em.store("float", 16, em.fma("float", 16, x, x, em.fma("float", 16, x, x, x)), p, 3)
        return em.text()
    assert write() == write()
    assert len(re.findall(r"declare .*fma", write())) == 1


def test_mismatched_carries_are_refused() -> None:
    em = Emitter("k", AVX512)
    carried = Carried(["i64"], ["0"])
    with pytest.raises(ValueError, match="carries 1 values, its body left 0"):
        for _ in em.each(0, 3, carried=carried):
            carried.values = []


def test_second_functions_share_the_module(jit) -> None:
    em = Emitter("k", AVX512)
    square = em.function("square", ["ptr %p"])
    x = square.load("double", 1, "%p")
    square.store("double", 1, square.fma("double", 1, x, x, x), "%p")
    data = em.slot(0)
    for i in em.each(0, 3):
        em.call(square, em.gep(data, i, "double"))
    em.store("double", 1, em.fma("double", 1, "1.0", "1.0", "1.0"), em.gep(data, 3, "double"))
    values = np.array([1.0, 2.0, 3.0, 0.0])
    jit.compile(em.text(), "k")(values)
    assert values.tolist() == [2, 6, 12, 2]
    assert em.text().count("declare") == 1


@pytest.mark.parametrize(("target", "dtype"), [("avx512", "f4"), ("avx512", "f8"), ("avx2", "f4"), ("avx2", "f8"),
                                               ("sse", "f4"), ("avx512", "i4")])
@pytest.mark.parametrize("missing", [0, 1, 4])
def test_squares_are_transposed_and_rows_that_are_not_there_are_columns_of_zeros(jit, target: str, dtype: str,
                                                                                 missing: int) -> None:
    kind = np.dtype(dtype)
    em = Emitter("k", TARGETS[target])
    element = {"f4": "float", "f8": "double", "i4": "i32"}[dtype]
    width = TARGETS[target].vector_bytes // kind.itemsize
    have = max(0, width - missing)
    a, b = em.slot(0), em.slot(1)
    rows = [em.load(element, width, em.gep(a, r * width, element)) for r in range(have)]
    for r, x in enumerate(em.transpose(element, rows + ["zeroinitializer"] * (width - have))):
        em.store(element, width, x, em.gep(b, r * width, element))
    given, found = np.arange(1, width * width + 1, dtype=kind).reshape(width, width), np.ones((width, width), kind)
    jit.compile(em.text(), "k")(given, found)
    given[have:] = 0
    np.testing.assert_array_equal(found, given.T)


def test_steps_of_a_transpose_are_fenced_where_vectors_have_several_parts() -> None:
    """Without a fence LLVM takes three times as long to compile a product."""
    def fences(target: str) -> int:
        em = Emitter("k", TARGETS[target])
        width = TARGETS[target].vector_bytes // 4
        em.transpose("float", [f"%x{i}" for i in range(width)])
        return em.text().count("call") // width
    assert [fences(target) for target in ("avx512", "avx2", "sse", "neon")] == [3, 2, 0, 0]
