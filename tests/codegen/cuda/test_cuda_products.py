"""Products and convolutions of the card, as OpenCL on the CPU against NumPy and the primitives."""
from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from card import examples, the_card
from contraction_cases import CONVOLUTIONS, arrays_of, spec_of, terms
from hypothesis import given, settings
from hypothesis import strategies as st
from rounding import rounded

from kusari.codegen.contractions import ConvSpec, GemmOperand, GemmSpec
from kusari.codegen.cuda.contraction import conv, gemm
from kusari.ir import Arg, Call, Kernel, Lit, evaluate

F16, F32, F64 = np.dtype("float16"), np.dtype("float32"), np.dtype("float64")
SAMPLE = ("plain", "strided", "1x1", "dilated and strided", "groups", "3-d", "cover all")  # of convolutions
acc, rng = Arg(0), np.random.default_rng(2)


def run(kernels: Sequence[Kernel], arrays: Sequence[np.ndarray], expected: Sequence[np.ndarray], bound: float) -> None:
    """The kernels give the expected results, and write nothing behind them."""
    flats = [np.full(e.size + 64, 77).astype(e.dtype) for e in expected]
    memory = np.full(max(k.shared for k in kernels), 255, np.uint8)
    for kernel in kernels:
        the_card().run(kernel, [*arrays, *flats, memory] if kernel.shared else [*arrays, *flats])
    for f, e in zip(flats, expected, strict=True):
        assert (f[e.size:] == f[-1]).all(), "wrote past the end"
        np.testing.assert_allclose(f[:e.size].reshape(e.shape), e, rtol=bound, atol=bound)


def gemm_kernels(spec: GemmSpec) -> list[Kernel]:
    return [gemm.gemm_kernel(spec, i) for i in range(gemm.shape_of(spec).kernels)]


def shifted(x: np.ndarray, start: int) -> np.ndarray:
    """The elements of ``x`` from an address on that is ``start`` elements away from a multiple of 64 bytes."""
    memory = np.empty(x.nbytes + 128, np.uint8)
    begin = -memory.ctypes.data % 64 + start * x.itemsize
    found = memory[begin:begin + x.nbytes].view(x.dtype).reshape(x.shape)
    found[...] = x
    return found


def check_gemm(spec: GemmSpec, operands: Sequence[np.ndarray] = (), start: int = 0) -> Sequence[Kernel]:
    lead = (spec.batch,)
    a = rng.normal(size=lead + ((spec.k, spec.m) if spec.transa else (spec.m, spec.k)))
    b = rng.normal(size=lead + ((spec.n, spec.k) if spec.transb else (spec.k, spec.n)))
    a, b = (shifted(x.astype(spec.factor_dtype), start) for x in (a, b))
    left, right = rounded(a, spec.rounded), rounded(b, spec.rounded)
    product = (left.mT if spec.transa else left).astype("d") @ (right.mT if spec.transb else right).astype("d")
    args = [product.astype(spec.dtype), *(np.broadcast_to(x, product.shape) for x in operands)]
    expected = [np.asarray(np.broadcast_to(evaluate(e, args), product.shape)) for e in spec.exprs]
    kernels = gemm_kernels(spec)
    run(kernels, [a, b, *operands], expected, (1e-12 if spec.dtype == F64 else 2e-6) * max(spec.k, 1) ** 0.5 * 4)
    return kernels


@pytest.mark.parametrize("transb", [False, True])
@pytest.mark.parametrize("transa", [False, True])
@pytest.mark.parametrize("shape", [(1, 1, 1), (3, 4, 0), (13, 17, 19), (37, 45, 29), (100, 1, 44), (1, 40, 300),
                                   (70, 130, 65)], ids=str)
def test_products(shape: tuple[int, int, int], transa: bool, transb: bool) -> None:
    check_gemm(GemmSpec(*shape, transa, transb, F64 if transa and transb else F32))


@pytest.mark.parametrize("transb", [False, True])
@pytest.mark.parametrize("transa", [False, True])
@pytest.mark.parametrize("shape", [(1, 1, 1), (3, 4, 0), (13, 17, 19), (64, 48, 40), (70, 130, 66), (33, 5, 1000)],
                         ids=str)
def test_products_of_halves(shape: tuple[int, int, int], transa: bool, transb: bool) -> None:
    check_gemm(GemmSpec(*shape, transa, transb, factors=F16), start=transa + transb)


@pytest.mark.parametrize("kind", ["bf16", "tf32"])
@pytest.mark.parametrize("shape, transa, transb", [
    ((1, 1, 1), False, True), ((3, 4, 0), False, False), ((13, 17, 19), True, False), ((64, 48, 40), False, False),
    ((70, 130, 66), True, True), ((33, 5, 1000), False, True)], ids=str)
def test_products_of_rounded_floats(shape: tuple[int, int, int], transa: bool, transb: bool, kind: Any) -> None:
    check_gemm(GemmSpec(*shape, transa, transb, rounded=kind), start=transa)


@pytest.mark.parametrize("kind", ["bf16", "tf32"])
def test_floats_are_rounded_as_by_the_instructions(kind: Any) -> None:
    """To the nearest, of two equally near ones to the even one, in TF32 to the one further from zero; NaN stays NaN."""
    x = np.array([0, 1, 1 + 2 ** -8, 1 + 3 * 2 ** -8, 1 + 2 ** -11, 1 + 3 * 2 ** -11, 2 - 2 ** -23, 1e-40, 3.4e38,
                  np.finfo("f").max, np.inf, np.nan], "f")
    x = np.concatenate([x, -x, np.random.default_rng(3).integers(0, 1 << 32, 100, "u4").view("f")])
    spec = GemmSpec(x.size, 1, 1, rounded=kind)
    found = np.zeros(x.size, "f")
    the_card().run(gemm_kernels(spec)[0], [x, np.ones(1, "f"), found])
    with np.errstate(all="ignore"):
        np.testing.assert_array_equal(found, rounded(x, kind))


def test_only_floats_are_rounded() -> None:
    with pytest.raises(ValueError, match="expected factors in float32 to be rounded, got float64"):
        GemmSpec(1, 1, 1, dtype=F64, rounded="tf32")


@settings(max_examples=examples())
@given(st.integers(0, 70), st.integers(0, 90), st.integers(0, 80), st.booleans(), st.booleans(), st.integers(1, 3),
       st.sampled_from([F16, F32, "bf16", "tf32"]), st.sampled_from([1, 2, 8]), st.integers(0, 2))
def test_products_whose_strides_are_multiples(m: int, n: int, k: int, transa: bool, transb: bool, batch: int,
                                              factors: Any, unit: int, start: int) -> None:
    """Neighbours are read at once where addresses are multiples, too, which callers decide."""
    m, n, k = (-(-x // unit) * unit for x in (m, n, k))
    kind: Any = dict(rounded=factors) if isinstance(factors, str) else dict(factors=factors)
    check_gemm(GemmSpec(m, n, k, transa, transb, batch=batch, **kind), start=start)


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int16", "int32", "uint32", "int64", "uint64"])
def test_products_of_integers_wrap_around(dtype: str) -> None:
    spec = GemmSpec(20, 37, 300, transb=True, dtype=np.dtype(dtype), batch=2)
    a, b = (rng.integers(*np.iinfo(dtype).min + np.array([0, 1], object) * np.iinfo(dtype).max, size=s, dtype=dtype)
            for s in ((2, 20, 300), (2, 37, 300)))
    run(gemm_kernels(spec), [a, b], [a @ b.mT], 0)


@settings(max_examples=examples())
@given(st.integers(0, 70), st.integers(0, 90), st.integers(0, 80), st.booleans(), st.booleans(), st.integers(1, 5))
def test_products_of_any_shape(m: int, n: int, k: int, transa: bool, transb: bool, batch: int) -> None:
    check_gemm(GemmSpec(m, n, k, transa, transb, batch=batch))


@pytest.mark.parametrize("shape", [(20, 37, 30), (33, 5, 1000)], ids=str)
@pytest.mark.parametrize("factors", [None, F16], ids=["floats", "halves"])
def test_epilogues_of_products(shape: tuple[int, int, int], factors: Any) -> None:
    m, n, k = shape
    row, column = rng.normal(size=n).astype("f"), rng.normal(size=(m, 1)).astype("f")
    full, mask = rng.normal(size=(m, n)), rng.normal(size=(m, n)) > 0
    kinds = (GemmOperand(F32, 0, 1), GemmOperand(F32, 1, 0), GemmOperand(F64, n, 1),
             GemmOperand(np.dtype("bool"), n, 1))
    exprs = (Call("maximum", (Call("add", (acc, Arg(1))), Lit(0))),
             Call("where", (Arg(4), Call("multiply", (acc, Arg(2))), Lit(0.0))),
             Call("tanh", (Call("add", (acc, Arg(3))),)), Call("greater", (acc, Lit(0.0))))
    spec = GemmSpec(*shape, transb=True, exprs=exprs, operands=kinds, factors=factors)
    kernels = check_gemm(spec, (row, column, full, mask))
    assert len(kernels) == (2 if k == 1000 else 1)  # blocks share long sums


def test_large_tiles_and_matrices_that_serve_a_batch() -> None:
    check_gemm(GemmSpec(700, 2100, 9, transb=True))
    check_gemm(GemmSpec(130, 140, 20, batch=23))
    spec = GemmSpec(6, 20, 18, batch=5, stride_b=0, stride_a=300)
    a, b = rng.normal(size=(5, 300)).astype("f"), rng.normal(size=(18, 20)).astype("f")
    run(gemm_kernels(spec), [a, b], [a[:, :108].reshape(5, 6, 18) @ b], 1e-4)


def check_conv(spec: ConvSpec, operands: Sequence[np.ndarray] = ()) -> Sequence[Kernel]:
    inputs, wide = arrays_of(spec, np.random.default_rng(1))
    inputs = [shifted(x, 0) for x in inputs]
    args = [wide.astype(spec.dtype), *(np.broadcast_to(o, wide.shape) for o in operands)]
    expected = [np.asarray(np.broadcast_to(evaluate(e, args), wide.shape)) for e in spec.exprs]
    kernels = [conv.conv_kernel(spec, i) for i in range(conv.shape_of(spec).kernels)]
    run(kernels, [*inputs, *operands], expected, 32 * np.finfo(spec.dtype).eps * max(terms(spec), 1) ** 0.5)
    return kernels


@pytest.mark.parametrize("direction", ["forward", "input", "weight"])
@pytest.mark.parametrize("name", CONVOLUTIONS)
def test_convolutions(name: str, direction: Any) -> None:
    check_conv(spec_of(direction, **CONVOLUTIONS[name]))


@pytest.mark.parametrize("direction", ["forward", "input", "weight"])
@pytest.mark.parametrize("name", [name if name in SAMPLE else pytest.param(name, marks=pytest.mark.slow)
                                  for name in CONVOLUTIONS])
def test_convolutions_of_halves(name: str, direction: Any) -> None:
    check_conv(spec_of(direction, **CONVOLUTIONS[name], factors=F16))


@pytest.mark.parametrize("direction", ["forward", "input", "weight"])
@pytest.mark.parametrize("name, kind", [("groups", "bf16"), ("dilated and strided", "bf16"), ("1x1", "bf16"),
                                        ("plain", "tf32"), ("1x1", "tf32")])
def test_convolutions_of_rounded_floats(name: str, kind: Any, direction: Any) -> None:
    check_conv(spec_of(direction, **CONVOLUTIONS[name], rounded=kind))


@pytest.mark.parametrize("factors", [None, F16], ids=["floats", "halves"])
@pytest.mark.parametrize("direction", ["forward", "input", "weight"])
def test_convolutions_whose_windows_are_elements(direction: Any, factors: Any) -> None:
    check_conv(spec_of(direction, n=2, c=32, k=24, size=(6, 4), kernel=(1, 1), groups=2, factors=factors))


@pytest.mark.parametrize("direction", ["forward", "input", "weight"])
def test_convolutions_of_doubles(direction: Any) -> None:
    check_conv(spec_of(direction, n=2, c=6, k=11, size=(9, 10), kernel=(3, 3), pad=1, stride=2, dtype=F64))


@pytest.mark.parametrize("direction", ["forward", "input"])
@pytest.mark.parametrize("case", [
    dict(n=2, c=5, k=7, size=(9, 9), kernel=(3, 3), stride=2),
    dict(n=9, c=6, k=4, size=(3, 3), kernel=(2, 2), groups=2), dict(n=1, c=40, k=40, size=(6, 6), kernel=(3, 3)),
], ids=["strided", "groups", "parts"])
def test_epilogues_of_convolutions(case: dict[str, Any], direction: Any) -> None:
    plain = spec_of(direction, **case)
    rows, shape = (plain.k, plain.out) if direction == "forward" else (plain.c, plain.size)
    positions = int(np.prod(shape))
    bias, row = rng.normal(size=(rows, 1, 1)).astype("f"), rng.normal(size=(plain.n, 1, 1, 1)).astype("f")
    full = rng.normal(size=(plain.n, rows, *shape))
    kinds = (GemmOperand(F32, 1, 0), GemmOperand(F64, positions, 1, rows * positions), GemmOperand(F32, 0, 0, 1))
    exprs = (Call("maximum", (Call("add", (acc, Arg(1))), Lit(0))), Call("multiply", (acc, Arg(3))),
             Call("add", (acc, Arg(2))))
    check_conv(spec_of(direction, **case, exprs=exprs, operands=kinds), (bias, full, row))
