"""Scalar functions in LLVM IR: values and dtypes as NumPy, errors within the documented bounds."""
from __future__ import annotations

import itertools
import math

import numpy as np
import pytest

from kusari.codegen.llvm.scalar.dispatch import emit_expr, emit_exprs
from kusari.codegen.llvm.scalar.scalars import ULP
from kusari.codegen.llvm.text.emitter import Emitter
from kusari.codegen.target import TARGETS
from kusari.ir import SCALARS, Arg, Call, Lit, evaluate, expr_dtype
from kusari.ir.scalar import CASTS

F32, F64 = np.dtype("float32"), np.dtype("float64")


def compute(jit, expr, arrays, target="avx512", width=16):
    """``expr`` on flat arrays of one length, a multiple of ``width``."""
    em = Emitter("k", TARGETS[target])
    slots = [em.slot(i) for i in range(len(arrays) + 1)]
    kinds = [a.dtype for a in arrays]
    n = arrays[0].size
    found = []
    for i in em.each(0, n // width * width, width):
        values = [em.read(d, width, s, i) for d, s in zip(kinds, slots, strict=False)]
        y, dtype = emit_expr(em, expr, values, kinds, width)
        em.write(dtype, width, y, slots[-1], i)
        found.append(dtype)
    out = np.zeros(n, found[0])
    jit.compile(em.text(), "k", target)(*arrays, out)
    return out


def samples(fn: str, dtype: np.dtype) -> list[np.ndarray]:
    """Ordinary, extreme and special operands; a multiple of 16 of them."""
    rng = np.random.default_rng(0)
    info = np.finfo(dtype)
    special = np.array([0.0, -0.0, np.inf, -np.inf, np.nan, 1, -1, info.max, -info.max, info.tiny, -info.tiny,
                        info.smallest_subnormal, -info.smallest_subnormal, info.tiny * 0.4, 0.5, math.pi], dtype)
    spread = np.exp(rng.uniform(np.log(float(info.smallest_subnormal)) * 0.99, np.log(float(info.max)), 1600))
    parts = [special, rng.normal(size=6400), rng.uniform(-30, 30, 6400), rng.uniform(-120, 120, 1600),
             1 + rng.normal(size=1600) * 1e-3, spread, -spread, rng.uniform(-760, 720, 1600),
             np.repeat(np.arange(-8, 8) * math.pi / 2, 2), rng.uniform(-9e5, 9e5, 1600)]
    x = np.concatenate(parts).astype(dtype)
    if SCALARS[fn].arity == 1:
        return [x]
    grid = np.array(list(itertools.product([*special, 2, 3, -2, -3, 0.5, -0.5, 2.5, 1e9, 7, 1e-3], repeat=2)), dtype)
    a, b = np.abs(rng.normal(size=6400) * 4), rng.uniform(-20, 20, 6400)
    whole = np.stack([rng.uniform(-9, 9, 1600), rng.integers(-9, 9, 1600)])
    steep = np.stack([1 + rng.normal(size=1600) * 1e-2, rng.uniform(-7e4, 7e4, 1600)])
    pairs = np.concatenate([grid[:grid.shape[0] // 16 * 16].T, np.stack([a, b]), np.stack([b, a]), whole, steep], 1)
    return list(np.ascontiguousarray(pairs.astype(dtype)))


def exact(fn: str, xs: list[np.ndarray]) -> np.ndarray:
    """The value in more digits than the dtype has (where the platform has them)."""
    wide = np.float64 if xs[0].dtype == F32 else np.longdouble
    with np.errstate(all="ignore"):
        if fn in ("erf", "erfc"):
            return np.array([getattr(math, fn)(float(x)) for x in xs[0]]).astype(wide)
        return getattr(np, fn)(*(x.astype(wide) for x in xs))


def assert_close(actual: np.ndarray, expected: np.ndarray, ulp: float) -> None:
    """NaN where NaN, the same infinities and signs of zero, and an error of at most ``ulp`` units in the last place."""
    if expected.dtype == actual.dtype:
        ulp += 1   # no wider type here: the reference is rounded, too
    with np.errstate(all="ignore"):
        rounded = expected.astype(actual.dtype)
        nan = np.isnan(expected)
        np.testing.assert_array_equal(np.isnan(actual), nan)
        error = np.abs(actual.astype(expected.dtype) - expected) / np.spacing(np.abs(rounded))
        wrong = ~nan & (actual != rounded) & ~(error <= ulp)
    assert not wrong.any(), (error[wrong].max(), actual[wrong][:8], rounded[wrong][:8])
    zero = rounded == 0
    np.testing.assert_array_equal(np.signbit(actual[zero]), np.signbit(rounded[zero]))


@pytest.mark.parametrize("target", ["avx512", "sse"])
@pytest.mark.parametrize("dtype", [F32, F64], ids=str)
@pytest.mark.parametrize("fn", list(ULP))
def test_elementary_functions_keep_their_bounds(jit, fn: str, dtype: np.dtype, target: str) -> None:
    xs = samples(fn, dtype)
    width = 16 if target == "avx512" else 4
    call = Call(fn, tuple(Arg(i) for i in range(len(xs))))
    assert_close(compute(jit, call, xs, target, width), exact(fn, xs), ULP[fn][0 if dtype == F32 else 1])


@pytest.mark.parametrize("target", ["avx512", "sse"])
@pytest.mark.parametrize("dtype", [F32, F64], ids=str)
def test_powers_with_constant_exponents(jit, dtype: np.dtype, target: str) -> None:
    x = samples("exp", dtype)[0]
    for n in (0.5, -0.5, 1.5, 2.5, -1.5, -2, 5, 6, -7, 12, 63, -64, 31.5, 0.3, 65, -1):
        actual = compute(jit, Call("power", (Arg(0), Lit(n))), [x], target, 16 if target == "avx512" else 4)
        with np.errstate(all="ignore"):
            wide = x.astype("f8" if dtype == F32 else np.longdouble)
            expected = np.sqrt(wide) if n == 0.5 else np.power(wide, float(dtype.type(n)))
        assert_close(actual, expected, ULP["power"][dtype == F64])


@pytest.mark.parametrize("fn", ["erf", "exp", "log", "log1p"])
@pytest.mark.parametrize("width", [1, 4, 8, 32, 64])
def test_any_number_of_lanes_gives_the_same(jit, fn: str, width: int) -> None:
    x = samples(fn, F32)[0]
    x = x[:x.size // 64 * 64]
    call = Call(fn, (Arg(0),))
    np.testing.assert_array_equal(compute(jit, call, [x], width=width), compute(jit, call, [x], width=16))


EXACT = [fn for fn in SCALARS if fn not in ULP and fn not in CASTS and fn != "where" and "bitwise" not in fn]


@pytest.mark.parametrize(("fn", "dtype", "target"), [
    pytest.param(fn, dtype, target, marks=() if (i + k) % 2 == 0 else pytest.mark.slow)
    for i, (fn, dtype) in enumerate(itertools.product(EXACT, ("float16", "float32", "float64")))
    for k, target in enumerate(("avx512", "sse"))])
def test_other_float_functions_equal_numpy(jit, fn: str, dtype: str, target: str) -> None:
    xs = samples(fn, np.dtype("float32"))
    xs = [x[-1600:] if dtype == "float16" and fn in ("floor_divide", "remainder") else x for x in xs]
    with np.errstate(all="ignore"):
        xs = [x.astype(dtype) for x in xs]
        call = Call(fn, tuple(Arg(i) for i in range(len(xs))))
        expected = evaluate(call, xs)
    actual = compute(jit, call, xs, target, 8)
    np.testing.assert_array_equal(actual, expected)
    assert actual.dtype == expected.dtype
    if expected.dtype.kind == "f" and fn not in ("maximum", "minimum"):
        np.testing.assert_array_equal(np.signbit(actual[expected == 0]), np.signbit(expected[expected == 0]))


INTEGER = """add subtract multiply negative square absolute sign floor floor_divide remainder maximum minimum
    true_divide equal not_equal less less_equal greater greater_equal logical_and logical_or logical_xor logical_not
    bitwise_and bitwise_or bitwise_xor isnan isinf isfinite reciprocal ceil rint exp""".split()


def integers(dtype: str) -> tuple[np.ndarray, np.ndarray]:
    info = np.iinfo(dtype)
    edge = [info.min, info.max, info.min + 1, info.max - 1, 0, 1, 2, 3, 5, 7, info.max // 2, info.max // 3]
    if info.min < 0:
        edge += [-1, -2, -3, -7]
    pairs = np.array(list(itertools.product(edge, repeat=2)), dtype)
    a, b = pairs.T
    return np.ascontiguousarray(a), np.ascontiguousarray(b)


@pytest.mark.parametrize("dtype", ["int8", "uint64", *(
    pytest.param(t, marks=pytest.mark.slow) for t in ("uint8", "int16", "int32", "uint32", "int64"))])
def test_integer_functions_equal_numpy(jit, dtype: str) -> None:
    a, b = integers(dtype)
    for fn in INTEGER:
        xs = [a, b][:SCALARS[fn].arity]
        call = Call(fn, tuple(Arg(i) for i in range(len(xs))))
        with np.errstate(all="ignore"):
            expected = evaluate(call, xs)
        actual = compute(jit, call, xs, width=8)
        assert actual.dtype == expected.dtype, fn
        if expected.dtype.kind == "f":
            np.testing.assert_allclose(actual, expected, rtol=1e-3 if expected.itemsize == 2 else 1e-6, err_msg=fn)
        else:
            np.testing.assert_array_equal(actual, expected, err_msg=fn)


@pytest.mark.parametrize("dtype", ["int8", "uint16", "int32", "int64"])
def test_integer_powers_wrap_as_numpy(jit, dtype: str) -> None:
    bases = np.unique(integers(dtype)[0])
    a, b = np.repeat(bases, 8), np.tile(np.array([0, 1, 2, 3, 5, 8, 13, 40], dtype), bases.size)
    call = Call("power", (Arg(0), Arg(1)))
    np.testing.assert_array_equal(compute(jit, call, [a, b], width=8), np.power(a, b))


def test_bool_functions_equal_numpy(jit) -> None:
    a, b = np.array(list(itertools.product([False, True], repeat=2)) * 4).T.copy()
    for fn in """add multiply maximum minimum logical_and logical_xor logical_not bitwise_or equal less absolute isnan
            isfinite true_divide square floor""".split():
        xs = [a, b][:SCALARS[fn].arity]
        call = Call(fn, tuple(Arg(i) for i in range(len(xs))))
        with np.errstate(all="ignore"):
            expected = evaluate(call, xs)
        actual = compute(jit, call, xs, width=8)
        assert actual.dtype == expected.dtype, fn
        np.testing.assert_array_equal(actual, expected, err_msg=fn)


@pytest.mark.parametrize(("source", "target"), [
    pytest.param(source, target, marks=() if (i + k) % 2 == 0 else pytest.mark.slow)
    for i, source in enumerate(("float16", "float32", "float64", "int8", "uint8", "int64", "uint64", "bool"))
    for k, target in enumerate(("avx512", "sse"))])
def test_casts_equal_numpy(jit, source: str, target: str) -> None:
    if source == "bool":
        x = np.array([False, True] * 8)
    elif source.startswith("float"):
        with np.errstate(over="ignore"):
            x = np.array([0.0, -0.0, np.nan, np.inf, -np.inf, 3.9, -3.9, 300.7, -300.2, 1e10, -1e10, 1e20, -1e20,
                          2 ** 31, 65519.99, 65520, 2.0 ** -24, 2.0 ** -25, 2.0 ** -25 * 1.0001, 1 + 2.0 ** -11,
                          1 + 2.0 ** -11 + 2.0 ** -40, 1 + 3 * 2.0 ** -11, 1e-7, 1e300]).astype(source)
    else:
        x = integers(source)[0][::9][:24 if source[0] == "i" else 8]
        x = np.concatenate([x, x])[:x.size // 8 * 8]
    for name in CASTS:
        call = Call(name, (Arg(0),))
        with np.errstate(all="ignore"):
            expected = evaluate(call, [x])
        actual = compute(jit, call, [x], target, 8)
        if expected.dtype.kind == "u" and x.dtype.kind == "f":   # the rest is undefined in C
            defined = (x > -1) & (x.astype(F64) < 2.0 ** (8 * expected.itemsize))
            actual, expected = actual[defined], expected[defined]
        np.testing.assert_array_equal(actual, expected, err_msg=f"{source} to {name}")


a0, a1 = Arg(0), Arg(1)


@pytest.mark.parametrize("dtypes", [
    ("float32", "float32"), ("float16", "float32"), ("int32", "float32"), ("bool", "int8"), ("uint8", "int64"),
    ("int64", "uint64"), ("float64", "bool"), ("float16", "int8")])
@pytest.mark.parametrize("expr", [
    Call("add", (a0, Lit(1))), Call("multiply", (a0, Lit(0.5))), Call("true_divide", (a0, Lit(3))),
    Call("where", (Call("greater", (a0, a1)), a0, Lit(0))), Call("where", (a0, a1, Lit(0.5))),
    Call("where", (a0, Lit(1), Lit(2))), Call("maximum", (a0, a1)), Call("maximum", (Lit(1), a0)),
    Call("less", (a0, a1)), Call("power", (a0, Lit(2))),
    Call("add", (Call("add", (Lit(1), Lit(2))), a0)), Call("equal", (a0, Lit(1000))), Call("less", (a0, Lit(-1000))),
    Lit(True), Lit(3), Lit(0.5), a1, Call("tanh", (a0,)), Call("int32", (Call("multiply", (a0, Lit(2.5))),)),
], ids=repr)
def test_dtypes_and_values_follow_numpy_2(jit, expr, dtypes) -> None:
    x = np.array([0, 1, 2, 3, 5, 1, 0, 1]).astype(dtypes[0])
    y = np.array([3, 1, 0, 2, 1, 0, 1, 1]).astype(dtypes[1])
    expected = np.broadcast_to(evaluate(expr, [x, y]), (8,))
    actual = compute(jit, expr, [x, y], width=8)
    assert actual.dtype == expr_dtype(expr, (x.dtype, y.dtype))
    np.testing.assert_allclose(actual, expected, rtol=1e-6 if actual.itemsize > 2 else 1e-3)


@pytest.mark.parametrize("width", [1, 2, 3, 4, 8, 16, 32])
def test_any_width(jit, width: int) -> None:
    x = np.linspace(-3, 3, 96).astype(np.float32)
    expr = Call("add", (Call("sin", (a0,)), Call("exp", (a0,))))
    np.testing.assert_allclose(compute(jit, expr, [x], width=width), np.sin(x) + np.exp(x), rtol=1e-5)


def test_shared_subtrees_are_written_once() -> None:
    def text(exprs):
        em = Emitter("k", TARGETS["avx512"])
        emit_exprs(em, exprs, ["%x"], [F32], 16)
        return em.text()
    e = Call("exp", (a0,))
    once = text([e]).count("\n")
    assert text([Call("multiply", (e, e)), Call("add", (e, Lit(1.0)))]).count("\n") == once + 2


def test_every_scalar_has_a_row() -> None:
    em = Emitter("k", TARGETS["avx512"])
    for name, scalar in SCALARS.items():
        kind = np.dtype("int32") if name.startswith("bitwise") else F32
        expr = Call(name, tuple(Arg(i) for i in range(scalar.arity)))
        _, dtype = emit_expr(em, expr, ["%x"] * scalar.arity if name != "where" else ["%c", "%x", "%x"],
                             [kind] * scalar.arity if name != "where" else [np.dtype("bool"), kind, kind], 16)
        assert isinstance(dtype, np.dtype)
