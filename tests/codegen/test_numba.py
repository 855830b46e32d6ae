"""Numba texts: as plain Python on NumPy arrays, compiled, and against the LLVM text of the same nests."""
from __future__ import annotations

import ctypes
import math

import numpy as np
import pytest
from bodies import bodies, body
from hypothesis import given
from nest_bodies import BODIES, expected, operands

from kusari.codegen.generate import generate
from kusari.codegen.numba.foreach import foreach_kernel
from kusari.codegen.numba.nest import nest_kernel, nest_text
from kusari.codegen.numba.scalars import NoText, spell
from kusari.codegen.target import AVX2
from kusari.ir import PRIMITIVES, SCALARS, Arg, Builder, Call, Graph, Lit, Value, tensor_type
from kusari.ir.alignment import NotANest
from kusari.ir.nest import nest_of
from kusari.passes import plan
from kusari.runtime import Executable


def numba_function(kernel):
    """The Python function that a text defines."""
    scope = {}
    exec(compile(kernel.text, kernel.symbol, "exec"), scope)
    return scope[kernel.symbol]


def outputs(graph):
    return [np.full(v.shape, 7).astype(v.tensor.dtype) for v in graph.outputs]


def run(function, arrays, scratch, nth, plain):
    """All threads one after the other, last thread first."""
    arrays = [*arrays, np.zeros(scratch * nth + 8, np.uint8)]
    pointers = [ctypes.c_void_p(a.ctypes.data) for a in arrays]
    slots = pointers if plain else (ctypes.c_void_p * len(pointers))(*pointers)
    for tid in reversed(range(nth)):
        function(slots if plain else ctypes.addressof(slots), tid, nth)


def check(graph, arrays, found):
    for a, e in zip(found, expected(graph, arrays), strict=True):
        assert a.dtype == e.dtype
        np.testing.assert_allclose(a, e, rtol=3e-5, atol=1e-6)


@pytest.mark.parametrize("nth", [1, 3])
@pytest.mark.parametrize("name", list(BODIES))
def test_text_runs_as_plain_python(name: str, nth: int) -> None:
    graph = BODIES[name]
    kernel = nest_kernel(nest_of(graph))
    arrays, found = operands(graph), outputs(graph)
    with np.errstate(all="ignore"):
        run(numba_function(kernel), [*arrays, *found], kernel.scratch, nth, plain=True)
    check(graph, arrays, found)


@given(bodies("float64"))
def test_any_nest_runs_as_plain_python(graph) -> None:
    try:
        kernel = nest_kernel(nest_of(graph))
    except NotANest:
        return
    arrays, found = operands(graph), outputs(graph)
    with np.errstate(all="ignore"):
        run(numba_function(kernel), [*arrays, *found], kernel.scratch, 2, plain=True)
    check(graph, arrays, found)


@pytest.mark.parametrize("name", [
    "cross_entropy", *(pytest.param(n, marks=pytest.mark.slow) for n in ("broadcast", "batch_norm"))])
def test_text_compiles(name: str) -> None:
    import numba
    graph = BODIES[name]
    kernel = nest_kernel(nest_of(graph))
    signature = numba.void(numba.types.CPointer(numba.types.voidptr), numba.int64, numba.int64)
    compiled = numba.cfunc(signature, error_model="numpy")(numba_function(kernel))
    arrays, found = operands(graph), outputs(graph)
    run(ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64)(compiled.address),
        [*arrays, *found], kernel.scratch, 2, plain=False)
    check(graph, arrays, found)


@pytest.mark.parametrize("nth", [1, 3])
def test_foreach_updates_every_tensor(nth: int) -> None:
    shapes = [(3, 5), (7,), ()]
    b = Builder()
    rate = Value(tensor_type("float32", ()))
    groups = [Value(tensor_type("float32", s)) for s in shapes for _ in range(2)]
    step = Call("multiply", (Call("negative", (Arg(0),)), Arg(2)))
    outs = b.emit(PRIMITIVES["foreach"], rate, *groups, shared=1, arity=2,
                  exprs=(Call("add", (Arg(1), step)), Call("greater", (Arg(2), Lit(0)))))
    rng = np.random.default_rng(0)
    arrays = [rng.normal(size=v.shape).astype("f") for v in (rate, *groups)]
    found = [np.zeros(v.shape, v.tensor.dtype) for v in outs]
    kernel = foreach_kernel(b.nodes[0])
    run(numba_function(kernel), [*arrays, *found], 0, nth, plain=True)
    assert kernel.text.count("v0 = -s0") == 1
    for a, e in zip(found, PRIMITIVES["foreach"].call(b.nodes[0].attrs, *arrays), strict=True):
        np.testing.assert_allclose(a, e, rtol=1e-6)


def test_foreach_compiles() -> None:
    import numba
    signature = numba.void(numba.types.CPointer(numba.types.voidptr), numba.int64, numba.int64)
    a, b = np.eye(4, dtype="f") * 2, np.ones((4, 4), "f")
    call = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64)
    build = Builder()
    x = Value(tensor_type("float32", (4,)))
    build.emit(PRIMITIVES["foreach"], x, x, shared=0, arity=1, exprs=(Call("square", (Arg(0),)),))
    compiled = numba.cfunc(signature, error_model="numpy")(numba_function(foreach_kernel(build.nodes[0])))
    outs = np.zeros(4, "f"), np.zeros(4, "f")
    run(call(compiled.address), [a[0], b[0], *outs], 0, 1, plain=False)
    assert (outs[0].tolist(), outs[1].tolist()) == ([4, 0, 0, 0], [1, 1, 1, 1])


def test_text_is_readable() -> None:
    graph = body(lambda b, x, y: b.call("maximum", b.call("add", x, y), 0.5), ("float32", (8,)), ("float32", (8,)))
    text = nest_text(nest_of(graph))
    assert text[text.index("def nest"):] == """\
def nest(slots, tid, nth):
    x0 = carray(slots[0], 8, float32)
    x1 = carray(slots[1], 8, float32)
    y0 = carray(slots[2], 8, float32)
    lo, hi = 8 * tid // nth, 8 * (tid + 1) // nth
    x0_ = x0[lo:hi]
    x1_ = x1[lo:hi]
    y0_ = y0[lo:hi]
    for j in range(hi - lo):
        v0 = x0_[j]
        v1 = x1_[j]
        v2 = v0 + v1
        v3 = (v2 if v2 >= float32(0.5) or v2 != v2 else float32(0.5))
        y0_[j] = v3
"""


def test_half_precision_has_no_text() -> None:
    graph = body(lambda b, x: b.call("tanh", x), ("float16", (8,)))
    with pytest.raises(NoText, match="float16"):
        nest_text(nest_of(graph))


@pytest.mark.parametrize("dtype", ["float32", "float64", "int32", "uint8", "bool"])
def test_every_scalar_function_equals_numpy(dtype: str) -> None:
    kind = np.dtype(dtype)
    a, b = (kind.type(v) for v in ((3, 2) if kind.kind != "b" else (True, False)))
    scope = {"np": np, "math": math, **{n: getattr(np, n) for n in (
        "bool_ float32 float64 int8 int16 int32 int64 uint8 uint16 uint32 uint64".split())}}
    for fn, scalar in SCALARS.items():
        values = [a, b, b][:scalar.arity]
        try:
            with np.errstate(all="ignore"):
                want = scalar.apply(np, *map(np.asarray, values))
            text = spell(fn, ["v0", "v1", "v2"][:scalar.arity], [kind] * scalar.arity)
        except (TypeError, NoText):
            continue
        with np.errstate(all="ignore"):
            got = eval(text, {**scope, "v0": values[0], "v1": values[-1], "v2": values[-1]})
        np.testing.assert_allclose(np.asarray(got, float), np.asarray(want, float), rtol=1e-6, err_msg=text)
        if kind.kind == "f" and want.dtype.kind == "f":
            assert np.asarray(got).dtype == want.dtype or fn in ("erf", "erfc"), text


def test_literals_take_the_type_of_the_loop() -> None:
    assert spell("add", ["v0", Lit(1)], [np.dtype("float32"), int]) == "v0 + float32(1.0)"
    assert spell("add", ["v0", Lit(1)], [np.dtype("uint8"), int]) == "uint8(v0 + uint8(1))"
    assert spell("multiply", ["v0", Lit(-math.inf)], [np.dtype("float64"), float]) == "v0 * float64(-math.inf)"


@pytest.mark.slow
def test_a_program_in_numba_equals_the_one_in_llvm() -> None:
    b = Builder()
    x, w = Value(tensor_type("float32", (6, 5))), Value(tensor_type("float32", (4, 5)))
    h = Value(tensor_type("float16", (6, 4)))
    y = b.call("tanh", b.matmul(x, w, transb=True))
    z = b.reduce("sum", b.call("multiply", y, y), 0)
    half = b.call("add", h, 1.5)
    (new,) = b.emit(PRIMITIVES["foreach"], w, shared=0, arity=1, exprs=(Call("multiply", (Arg(0), Lit(0.5))),))
    planned = plan(Graph("step", (x, w, h), (), (), tuple(b.nodes), (y, z, half, new)))
    rng = np.random.default_rng(0)
    arrays = [rng.normal(size=v.shape).astype(v.tensor.dtype) for v in (x, w, h)]
    results = []
    for language in ("llvm", "numba"):
        program = generate(planned, AVX2, language)
        frame = Executable(planned, program, 1).acquire()
        frame.bind_all(arrays)
        frame.fresh_outputs()
        frame.run()
        results.append([np.array(o) for o in frame.outputs()])
    languages = [r.kernel.language if r.kernel else r.node.op.name for r in program.instructions]
    assert sorted(languages) == ["map", "matmul", "numba", "numba", "numba", "numba"], languages
    for a, e in zip(*results, strict=True):
        np.testing.assert_allclose(a, e, rtol=1e-5)
