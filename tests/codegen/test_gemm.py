"""Matrix products in LLVM IR against NumPy: shapes, transposes, epilogues, targets, numbers of threads."""
from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kusari.codegen.contractions import GemmOperand, GemmSpec
from kusari.codegen.llvm.contraction.gemm.choose import candidates, choose, matrices
from kusari.codegen.llvm.contraction.gemm.kernel import gemm_kernel
from kusari.codegen.llvm.contraction.gemm.outer import choose as choose_tile
from kusari.codegen.llvm.contraction.gemm.outer import suits_rows_first
from kusari.codegen.target import TARGETS
from kusari.ir import Arg, Call, Lit, evaluate

F32, F64 = np.dtype("float32"), np.dtype("float64")
TURNS = tuple(TARGETS)  # vectors of any width run anywhere


def multiply(jit, spec: GemmSpec, operands=(), target="avx512", nth=1, l2_bytes=1 << 20, algorithm=None):
    """Runs the kernel of ``spec`` on random matrices; returns its outputs and NumPy's."""
    rng = np.random.default_rng(1)
    lead = (spec.batch,)
    a = rng.normal(size=lead + ((spec.k, spec.m) if spec.transa else (spec.m, spec.k))).astype(spec.dtype)
    b = rng.normal(size=lead + ((spec.n, spec.k) if spec.transb else (spec.k, spec.n))).astype(spec.dtype)
    product = (a.mT if spec.transa else a).astype("d") @ (b.mT if spec.transb else b).astype("d")
    args = [product.astype(spec.dtype), *(np.broadcast_to(x, product.shape) for x in operands)]
    expected = [np.broadcast_to(evaluate(e, args), product.shape) for e in spec.exprs]
    kernel = gemm_kernel(spec, replace(TARGETS[target], l2_bytes=l2_bytes), algorithm)
    guard = 64
    flats = [np.full(product.size + guard, 77).astype(e.dtype) for e in expected]
    scratch = np.full(kernel.scratch * nth + 64, 255, np.uint8)
    scratch = scratch[-scratch.ctypes.data % 64:]
    jit.compile(kernel.text, kernel.symbol, target)(a, b, *operands, *flats, scratch, nth=nth)
    for f in flats:
        assert (f[product.size:] == f[-1]).all(), "wrote past the end"
    return [f[:product.size].reshape(product.shape) for f in flats], expected


def check(jit, spec, operands=(), target="avx512", nth=1, l2_bytes=1 << 20, algorithm=None):
    for actual, expected in zip(*multiply(jit, spec, operands, target, nth, l2_bytes, algorithm), strict=True):
        assert actual.dtype == expected.dtype
        tolerance = (1e-12 if spec.dtype == F64 else 2e-6) * max(spec.k, 1) ** 0.5 * 4
        np.testing.assert_allclose(actual, expected, rtol=tolerance, atol=tolerance)


SHAPES = [(0, 3, 4), (3, 0, 4), (3, 4, 0), (1, 1, 1), (1, 7, 5), (7, 1, 5), (7, 5, 1), (1, 40, 50), (40, 1, 50),
          (13, 17, 19), (37, 45, 29), (100, 44, 22), (100, 1, 44), (44, 22, 100), (100, 10, 70), (10, 130, 100),
          (31, 257, 33), (2, 64, 64), (64, 12, 64), (17, 97, 101), (23, 40, 300), (50, 11, 200)]
ONE_VECTOR = [(13, 33, 16), (14, 40, 24), (15, 129, 50), (16, 32, 17), (16, 65, 80), (5, 40, 200), (12, 40, 130)]


@pytest.mark.parametrize(("shape", "transa", "transb"), [
    pytest.param(s, a, b, marks=() if (i + a + b) % 2 else pytest.mark.slow)
    for i, s in enumerate(SHAPES) for a in (False, True) for b in (False, True)], ids=str)
def test_products_equal_numpy(jit, shape, transa: bool, transb: bool) -> None:
    turn = SHAPES.index(shape) + transa + 2 * transb   # every target is transposed each way
    target = TURNS[turn % len(TURNS)]
    check(jit, GemmSpec(*shape, transa, transb), target=target, nth=1 + sum(shape) % 3)


@pytest.mark.parametrize("transa", [False, True])
@pytest.mark.parametrize("shape", ONE_VECTOR, ids=str)
def test_rows_that_just_fill_a_vector(jit, shape, transa: bool) -> None:
    check(jit, GemmSpec(*shape, transa, True, exprs=(Call("tanh", (Arg(0),)), Arg(0))), nth=1 + shape[0] % 2)


@pytest.mark.parametrize("trans", [(False, False), (True, False), (False, True)])
@pytest.mark.parametrize("shape", [(13, 17, 19), (64, 100, 65), (5, 1, 9), (30, 8, 40)], ids=str)
def test_double_precision(jit, shape, trans) -> None:
    check(jit, GemmSpec(*shape, *trans, F64), nth=2)


ROWS_FIRST = [(211, 97, 5), (401, 130, 3), (229, 75, 16), (601, 165, 1), (300, 66, 29)]


@pytest.mark.parametrize("trans", [(False, False), (True, False), (True, True)], ids=str)
@pytest.mark.parametrize("shape", ROWS_FIRST, ids=str)
def test_rows_meet_all_panels_where_much_passes_by(jit, shape, trans) -> None:
    turn = ROWS_FIRST.index(shape) + sum(trans)
    target = TURNS[turn % len(TURNS)]
    m, n, _ = shape
    operands = [np.random.default_rng(2).normal(size=(m, n)).astype(F32)]
    spec = GemmSpec(*shape, *trans, exprs=(Call("add", (Arg(0), Arg(1))),), operands=(GemmOperand(F32, n, 1),))
    cache = replace(TARGETS[target], l2_bytes=1 << 15)
    assert suits_rows_first(matrices(spec), choose_tile(matrices(spec), cache), cache)
    check(jit, spec, operands, target, 1 + turn % 3, cache.l2_bytes)
    heavy = replace(spec, exprs=(Call("exp", (Call("minimum", (Arg(0), Lit(1.0))),)),), operands=())
    check(jit, heavy, (), target, 2, cache.l2_bytes)


@given(st.integers(0, 70), st.integers(0, 90), st.integers(0, 80), st.booleans(), st.booleans(), st.integers(1, 4),
       st.sampled_from(TURNS), st.integers(1, 5), st.integers(0, 3))
def test_any_shape_by_any_algorithm(jit, m, n, k, transa, transb, nth, target, batch, turn) -> None:
    spec = GemmSpec(m, n, k, transa, transb, batch=batch)
    found = candidates(matrices(spec), TARGETS[target]) if m and n else ()
    check(jit, spec, target=target, nth=nth, algorithm=found[turn % len(found)].name if found else None)


@pytest.mark.parametrize(("shape", "transb", "expected"), [
    ((1, 1000, 784), True, "dot"), ((8, 800, 600), True, "dot"), ((100, 10, 1000), True, "dot"),
    ((20, 2600, 650), True, "stream"), ((100, 1000, 784), True, "stream"), ((128, 128, 32), True, "outer"),
    ((100, 44, 22), True, "outer"), ((512, 512, 512), False, "outer"), ((10, 1000, 100), False, "outer"),
    ((1, 4096, 4096), False, "lines"), ((4, 1024, 1024), False, "lines"), ((1000, 1, 1000), False, "dot")], ids=str)
def test_the_algorithm_of_the_fewest_cycles_is_taken(shape: tuple[int, int, int], transb: bool, expected: str) -> None:
    choice = choose(GemmSpec(*shape, transb=transb), TARGETS["avx512"])
    assert choice.algorithm == expected
    assert all(choice.cycles <= cycles for _, cycles in choice.others)


@pytest.mark.parametrize("m", [5, 9, 14, 28])
def test_tiles_leave_registers_to_the_transpose_before_them(m: int) -> None:
    """LLVM would move sums to memory and back in every step otherwise."""
    tile = choose_tile(matrices(GemmSpec(m, 1000, 1000, transb=True)), TARGETS["avx512"])
    assert (tile.rows + 1) * tile.vectors <= 27


@pytest.mark.parametrize("transb", [False, True])
def test_long_k_is_computed_in_blocks(jit, transb: bool) -> None:
    spec = GemmSpec(40, 70, 9000, False, transb)
    assert gemm_kernel(spec, TARGETS["avx512"]).scratch < 1 << 20
    check(jit, spec, nth=2)


LONG_SUMS = [(50, 70, 1500), (300, 20, 2000), (700, 40, 900), (31, 600, 801), (1, 40, 1000)]


@pytest.mark.parametrize(("shape", "transb", "nth", "batch"), [
    pytest.param(s, *way, marks=() if k == i % 2 else pytest.mark.slow)
    for i, s in enumerate(LONG_SUMS) for k, way in enumerate(((True, 3, 1), (False, 2, 5), (False, 2, 1)))], ids=str)
def test_long_k_of_a_turned_left_factor(jit, shape, transb: bool, nth: int, batch: int) -> None:
    """Blocks of k, of which those between the first and the last are a loop; rows are swept where A is large."""
    check(jit, GemmSpec(*shape, True, transb, batch=batch), nth=nth)


@pytest.mark.parametrize("shape", [(1100, 700, 600), (1100, 40, 600), (2500, 33, 300)], ids=str)
def test_rows_are_swept(jit, shape) -> None:
    m, n, _ = shape
    full = np.random.default_rng(3).normal(size=(m, n)).astype("f")
    exprs = (Call("tanh", (Call("add", (Arg(0), Arg(1))),)), Arg(0))
    check(jit, GemmSpec(*shape, transb=True, exprs=exprs, operands=(GemmOperand(F32, n, 1),)), (full,), nth=3)


@pytest.mark.parametrize("shape", [(13, 49, 200), (40, 17, 131), (9, 36, 400), (25, 50, 129), (7, 51, 301)], ids=str)
def test_columns_left_of_full_vectors(jit, shape) -> None:
    """A few columns more than whole vectors are dot products, where the sums are long enough."""
    m, n, k = shape
    work = matrices(GemmSpec(*shape))
    assert choose_tile(work, TARGETS["avx512"]).single == n % 16
    assert choose_tile(matrices(GemmSpec(m, n, 32)), TARGETS["avx512"]).single == 0
    row, full = rng.normal(size=(m, 1)).astype("f"), rng.normal(size=(m, n)).astype("f")
    kinds = (GemmOperand(F32, 1, 0), GemmOperand(F32, n, 1))
    exprs = (Call("maximum", (Call("add", (Call("add", (acc, Arg(1))), Arg(2))), Lit(0))),)
    for target, transb in (("avx512", False), ("avx512", True), ("avx2", False)):
        check(jit, GemmSpec(*shape, transb=transb, exprs=exprs, operands=kinds), (row, full), target, nth=2)
    heavy = (Call("tanh", (Call("add", (acc, Arg(1))),)), acc)
    check(jit, GemmSpec(*shape, exprs=heavy, operands=kinds[:1]), (row,), nth=3)
    check(jit, GemmSpec(*shape, dtype=F64, batch=5), nth=2)


acc, bias = Arg(0), Arg(1)
rng = np.random.default_rng(2)


EPILOGUES = [(20, 37, 30), (20, 37, 0), (3, 50, 40), (50, 5, 40), (30, 1, 40), (1, 30, 40)]


@pytest.mark.parametrize(("shape", "target"), [
    pytest.param(s, t, marks=() if (i + k) % 2 == 0 else pytest.mark.slow)
    for i, s in enumerate(EPILOGUES) for k, t in enumerate(TURNS)], ids=str)
def test_epilogues(jit, shape, target: str) -> None:
    m, n, _ = shape
    row, column = rng.normal(size=n).astype("f"), rng.normal(size=(m, 1)).astype("f")
    full, mask = rng.normal(size=(m, n)), rng.normal(size=(m, n)) > 0
    operands = (row, column, full, mask)
    kinds = (GemmOperand(F32, 0, 1), GemmOperand(F32, 1, 0), GemmOperand(F64, n, 1),
             GemmOperand(np.dtype("bool"), n, 1))
    exprs = (Call("maximum", (Call("add", (acc, bias)), Lit(0))),
             Call("where", (Arg(4), Call("multiply", (acc, Arg(2))), Lit(0.0))),
             Call("add", (acc, Arg(3))),
             Call("greater", (acc, Lit(0.0))))
    check(jit, GemmSpec(*shape, transb=True, exprs=exprs, operands=kinds), operands, target, nth=2)
    heavy = (Call("tanh", (Call("add", (acc, bias)),)), acc)
    check(jit, GemmSpec(*shape, exprs=heavy, operands=kinds[:1]), operands[:1], target, nth=2)


# Few rows times a weight that is not packed: whole vectors of rows, with a few left for dot products, with many.
STREAMED = [(16, 160, 65), (20, 200, 82), (31, 131, 125), (47, 137, 190), (100, 150, 401), (128, 133, 513),
            (47, 137, 530), (37, 130, 530)]  # squares go through memory


@pytest.mark.parametrize("shape", STREAMED, ids=str)
def test_streamed_weights(jit, shape) -> None:
    m, n, k = shape
    target = ("avx512", "avx512", "avx2", "avx2", "sse", "sse", "avx512", "avx2")[STREAMED.index(shape)]
    row, full = rng.normal(size=n).astype("f"), rng.normal(size=(m, n)).astype("f")
    kinds = (GemmOperand(F32, 0, 1), GemmOperand(F32, n, 1))
    light = (Call("maximum", (Call("add", (acc, bias)), Lit(0))), Call("multiply", (acc, Arg(2))))
    heavy = (Call("tanh", (Call("add", (acc, bias)),)), acc)
    transa = bool(STREAMED.index(shape) % 2)
    for spec in (GemmSpec(*shape, transa, True, exprs=light, operands=kinds),
                 GemmSpec(*shape, not transa, True, exprs=heavy, operands=kinds, batch=1 + shape[0] % 2)):
        check(jit, spec, (row, full), target, nth=1 + m % 3, algorithm="stream")


def test_the_last_strip_of_a_streamed_weight_shares_code_with_the_others() -> None:
    whole, more = (gemm_kernel(GemmSpec(100, n, 784, transb=True), TARGETS["avx512"], "stream").text
                   for n in (992, 1000))
    assert whole.count("@llvm.fma") == more.count("@llvm.fma") and ".tile" not in whole


def test_squares_that_are_packed_and_finished_share_code() -> None:
    short, long = (gemm_kernel(GemmSpec(96, 992, k, transb=True), TARGETS["avx512"], "stream").text for k in (384, 784))
    assert short.count("shufflevector") - long.count("shufflevector") == 4 * 16  # a square has four steps


@pytest.mark.parametrize("k", [130, 530])
def test_streamed_results_take_the_place_of_an_operand(jit, k) -> None:
    m, n = 20, 40   # the last square of rows is not full
    a, b, x = (rng.normal(size=s).astype("f") for s in ((m, k), (n, k), (m, n)))
    spec = GemmSpec(m, n, k, transb=True, exprs=(Call("add", (acc, bias)),), operands=(GemmOperand(F32, n, 1),))
    kernel = gemm_kernel(spec, TARGETS["avx512"], "stream")
    run = jit.compile(kernel.text, kernel.symbol, "avx512")
    scratch = np.zeros(kernel.scratch + 64, np.uint8)
    scratch = scratch[-scratch.ctypes.data % 64:]
    apart, place = np.empty_like(x), x.copy()
    run(a, b, x, apart, scratch)
    run(a, b, place, place, scratch)
    np.testing.assert_array_equal(place, apart)


@pytest.mark.parametrize("nth", [1, 2, 3, 4])
@pytest.mark.parametrize("shape", [(85, 128, 35), (85, 112, 35), (85, 192, 65)], ids=str)
def test_few_panels_are_shared_where_they_come_out_even(jit, shape, nth: int) -> None:
    spec = GemmSpec(*shape, transb=True)
    check(jit, spec, nth=nth)
    assert ("select i1" in gemm_kernel(spec, TARGETS["avx512"]).text) == (shape[1] != 112)


def test_streamed_weights_in_double_precision(jit) -> None:
    spec = GemmSpec(37, 140, 150, False, True, F64)
    check(jit, spec, nth=2, algorithm="stream")


LINES = [("avx512", (1, 4096, 65)), ("avx512", (8, 2053, 131)), ("avx2", (3, 1031, 257)), ("sse", (1, 1024, 256)),
         ("neon", (5, 1027, 259)), ("avx512", (2, 16384, 16))]


@pytest.mark.parametrize(("target", "shape"), LINES, ids=str)
def test_large_matrices_pass_line_by_line(jit, target: str, shape: tuple[int, int, int]) -> None:
    """Few rows times a matrix that runs along n: strips of columns that do not fill vectors, lines left of blocks."""
    m, n, _ = shape
    row, full = rng.normal(size=n).astype("f"), rng.normal(size=(m, n)).astype("f")
    kinds = (GemmOperand(F32, 0, 1), GemmOperand(F32, n, 1))
    light = (Call("maximum", (Call("add", (acc, bias)), Lit(0))), Call("multiply", (acc, Arg(2))))
    heavy = (Call("tanh", (Call("add", (acc, bias)),)), acc)
    for spec, threads in ((GemmSpec(*shape, transa=m > 2, exprs=light, operands=kinds), 2),
                          (GemmSpec(*shape, exprs=heavy, operands=kinds, batch=2), 3), (GemmSpec(*shape), 1)):
        check(jit, spec, (row, full) if spec.operands else (), target, nth=threads, algorithm="lines")


def test_large_matrices_line_by_line_of_doubles_and_turned_to_a_column(jit) -> None:
    for spec in (GemmSpec(3, 517, 300, dtype=F64), GemmSpec(1100, 1, 300, transa=True),
                 GemmSpec(2, 1024, 300, batch=5)):
        check(jit, spec, nth=2, algorithm="lines")


@pytest.mark.parametrize("batch", [2, 5])
def test_batches_share_operands_at_stride_zero(jit, batch: int) -> None:
    spec = GemmSpec(6, 20, 18, batch=batch, stride_b=0, operands=(GemmOperand(F32, 0, 1, 20),),
                    exprs=(Call("add", (Arg(0), Arg(1))),))
    a, b = rng.normal(size=(batch, 6, 18)).astype("f"), rng.normal(size=(18, 20)).astype("f")
    c = rng.normal(size=(batch, 1, 20)).astype("f")
    out = np.zeros((batch, 6, 20), "f")
    kernel = gemm_kernel(spec, TARGETS["avx512"])
    jit.compile(kernel.text, kernel.symbol)(a, b, c, out, np.zeros(kernel.scratch * 2, np.uint8), nth=2)
    np.testing.assert_allclose(out, a @ b + c, rtol=1e-4, atol=1e-5)


def test_nan_and_infinity_pass_through(jit) -> None:
    a, b = np.array([[np.nan, 1, 2], [np.inf, 0, 1]], "f"), np.ones((3, 20), "f")
    out = np.zeros((2, 20), "f")
    kernel = gemm_kernel(GemmSpec(2, 20, 3), TARGETS["avx512"])
    jit.compile(kernel.text, kernel.symbol)(a, b, out)
    with np.errstate(invalid="ignore"):  # some BLAS libraries compute it for lanes that are none
        expected = a @ b
    np.testing.assert_array_equal(out, expected)


def test_same_spec_same_text_and_other_dtypes_are_refused() -> None:
    spec = GemmSpec(20, 30, 40)
    assert gemm_kernel(spec, TARGETS["avx512"]) == gemm_kernel(GemmSpec(20, 30, 40), TARGETS["avx512"])
    with pytest.raises(ValueError, match="float32 or float64, got float16"):
        GemmSpec(2, 2, 2, dtype=np.dtype("float16"))
    for spec in (GemmSpec(2, 2, 2, dtype=np.dtype("int32")), GemmSpec(2, 2, 2, factors=np.dtype("float16"))):
        with pytest.raises(ValueError, match=f"float32 or float64, got {spec.factor_dtype}"):  # a card's have kernels
            gemm_kernel(spec, TARGETS["avx512"])


@pytest.mark.parametrize("m, n", [(1, 19), (3, 5), (8, 13)])
def test_columns_a_page_apart(jit, m: int, n: int) -> None:
    check(jit, GemmSpec(m, n, 1024, False, True), nth=2)
