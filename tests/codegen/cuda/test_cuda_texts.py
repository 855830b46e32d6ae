"""CUDA C: NVRTC compiles kernels of every kind for every architecture, and scalar functions are NumPy's."""
from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from card import the_card
from card_samples import SAMPLES
from contraction_cases import spec_of
from nest_bodies import BODIES
from nvrtc import ARCHITECTURES, nvrtc
from rounding import rounded

from kusari.codegen.contractions import GemmSpec
from kusari.codegen.cuda.contraction.conv import conv_kernel
from kusari.codegen.cuda.contraction.gemm import gemm_kernel
from kusari.codegen.cuda.nest.kernels import nest_kernels
from kusari.codegen.cuda.scalar.elementwise import elementwise_text
from kusari.codegen.cuda.text.guard import guarded, noting
from kusari.codegen.cuda.text.kernel import KernelText
from kusari.codegen.cuda.text.types import storage_name, stored
from kusari.ir import SCALARS, Arg, Call, DType, Expr, Kernel, Lit
from kusari.ir.nest import nest_of
from kusari.ir.scalar import CASTS

F32 = np.dtype("float32")


@pytest.mark.parametrize("architecture", ARCHITECTURES)
@pytest.mark.parametrize("name", SAMPLES)
def test_nvrtc_compiles_every_kernel(name: str, architecture: str) -> None:
    for kernel in SAMPLES[name]().kernels:
        assert f".visible .entry {kernel.symbol}(" in nvrtc().compile(kernel.text, architecture)


def test_guarded_kernels_compile_and_do_nothing_once_a_gather_has_failed() -> None:
    for name in SAMPLES:
        for kernel in SAMPLES[name]().kernels:
            nvrtc().compile(guarded(kernel, 3), "compute_90")
    nvrtc().compile(noting(3).text, "compute_90")
    kernel, = SAMPLES["gelu"]().kernels
    failed = np.zeros(6, np.int64)
    x = np.ones(1 << 14, np.float32)
    for index, writes in ((None, True), (5, False), (4, True)):  # a 1 stands behind each index
        failed[:] = 0
        if index is not None:
            failed[index] = 1
        y = np.zeros_like(x)
        launched = Kernel("cuda", kernel.symbol, guarded(kernel, 3), blocks=kernel.facts.blocks,
                          threads=kernel.facts.threads)
        the_card().run(launched, [x, y, failed])
        assert bool(y.any()) == writes


@pytest.mark.parametrize("name, instructions", [
    ("gelu", ("ld.global.v4.f32", "st.global.v4.f32")), ("long", ("ld.global.v4.f32",)),
    ("integers", ("ld.global.v4.u32", "st.global.v4.u8")), ("take", ("ld.global.v4.u32",)),
    ("foreach", ("ld.v4.f32", "st.v4.f32")), ("large product", ("ld.shared.v4.f32", "fma.rn.f32", "ld.global.v4.f32")),
    ("large product of halves", ("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32", "ld.global.v4.u32")),
    ("large product in bf16", ("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32", "cvt.rn.bf16x2.f32",
                               "ld.global.v4.f32")),
    ("large product in tf32", ("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32", "cvt.rna.tf32.f32",
                               "ld.global.v4.f32"))])
def test_neighbours_are_read_and_written_at_once(name: str, instructions: Sequence[str]) -> None:
    ptx = nvrtc().compile(kernels_of(name)[0].text, "compute_90")
    assert [i for i in instructions if i not in ptx] == []


@pytest.mark.parametrize("name", ["product of halves", "large product in bf16", "large product in tf32"])
def test_architectures_without_fragments_multiply_one_by_one(name: str) -> None:
    ptx = nvrtc().compile(kernels_of(name)[0].text, "compute_70")
    assert "mma.sync" not in ptx and "shfl.sync.idx" in ptx and "fma.rn.f32" in ptx


@pytest.mark.parametrize("kind, terms", [("f16", 2), ("bf16", 2), ("tf32", 1)])
def test_fragments_are_those_of_the_instruction(kind: str, terms: int) -> None:
    """The layouts of the PTX ISA's "Matrix Fragments for mma.m16n8k16" and "mma.m16n8k8", element by element."""
    text = KernelText("k", 32, [np.dtype("uint32"), np.dtype("uint32"), F32])
    text.line("MULTIPLY_MEMORY(memory, 32)")
    text.line("f32 c[4]; u32 a[4]; u32 b[2];")
    for name, operand, count in ("a", "p0", 4), ("b", "p1", 2), ("c", "p2", 4):
        text.line(f"for (int i = 0; i < {count}; ++i) {name}[i] = {operand}[{count} * THREAD + i];")
    text.line(f"MULTIPLY_FRAGMENTS({kind}, c, a, b, memory);")
    text.line("for (int i = 0; i < 4; ++i) p2[4 * THREAD + i] = c[i];")
    r = np.random.RandomState(0)
    a, b = r.normal(size=(16, 8 * terms)).astype("f"), r.normal(size=(8 * terms, 8)).astype("f")
    a, b = ((x.astype("f2") if kind == "f16" else rounded(x, kind)) for x in (a, b))
    c = r.normal(size=(16, 8)).astype("f")
    one, other = np.zeros((32, 4 * terms), a.dtype), np.zeros((32, 2 * terms), b.dtype)
    sums = np.zeros((32, 4), "f")
    places: list[tuple[int, int, int, int]] = []
    for lane in range(32):
        group, thread = lane >> 2, lane % 4
        for i in range(4 * terms):
            if kind == "tf32":
                row, term = group + 8 * (i in (1, 3)), thread + 4 * (i in (2, 3))
            else:
                row = group if 0 <= i < 2 or 4 <= i < 6 else group + 8
                term = thread * 2 + (i & 1) + (0 if i < 4 else 8)
            one[lane, i] = a[row, term]
        for i in range(2 * terms):
            term = thread + 4 * i if kind == "tf32" else thread * 2 + (i & 1) + (0 if i < 2 else 8)
            other[lane, i] = b[term, group]
        places += [(lane, i, group if i < 2 else group + 8, thread * 2 + (i & 1)) for i in range(4)]
    for lane, i, row, column in places:
        sums[lane, i] = c[row, column]
    words = [(x.view("u4") >> 16).astype("u2").view("u4") if kind == "bf16" else x.view("u4") for x in (one, other)]
    the_card().run(text.kernel(1, 0, 0), [*words, sums])
    found = np.zeros((16, 8), "f")
    for lane, i, row, column in places:
        found[row, column] = sums[lane, i]
    np.testing.assert_allclose(found, c + a.astype("d") @ b.astype("d"), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("name", [*SAMPLES, "large product", "large product of halves", "large product in bf16",
                                  "large product in tf32", "large convolution"])
def test_values_stay_in_registers(name: str) -> None:
    assert [nvrtc().stack_bytes(kernel.text) for kernel in kernels_of(name)] == [0] * len(kernels_of(name))


def kernels_of(name: str) -> Sequence[Kernel]:
    """The kernels of a sample, or of something with the largest tiles."""
    if name.startswith("large product"):
        kind: Any = name.rpartition(" in ")[2] if " in " in name else ""
        return [gemm_kernel(GemmSpec(2048, 2048, 64, factors=np.dtype("float16") if "halves" in name else None,
                                     rounded=kind))]
    if name == "large convolution":
        return [conv_kernel(spec_of("input", n=32, c=256, k=256, size=(32, 32), kernel=(3, 3), pad=1))]
    return SAMPLES[name]().kernels


KINDS = ["float16", "float32", "float64", "int8", "uint8", "int32", "int64", "uint64", "bool"]


def calls_of(dtype: str) -> list[Call]:
    """Every scalar function NumPy has for ``dtype``."""
    calls: list[Call] = []
    for fn, scalar in SCALARS.items():
        try:
            with np.errstate(all="ignore"):
                scalar.apply(np, *[np.ones(1, dtype)] * scalar.arity)
        except (TypeError, ValueError):
            continue
        calls.append(Call(fn, tuple(Arg(i) for i in range(scalar.arity))))
    return calls


def as_kernel(exprs: Sequence[Expr], dtypes: Sequence[DType], size: int) -> Kernel:
    """The operation of an elementwise kernel, inside a kernel of one thread for each element."""
    text = elementwise_text(exprs, dtypes)
    outputs = [np.dtype(p.split()[0]) for p in text.outputs.split(", ")]
    made = KernelText("k", size, [*dtypes, *outputs])
    for i, d in enumerate(dtypes):
        made.line(f"const {('f32' if d == np.float16 else storage_name(d))} a{i} = {made.read(i, 'THREAD')};")
    stores = {f"y{o}": f"p{len(dtypes) + o}[THREAD]" for o in range(len(outputs))}
    for line in text.operation.split("\n"):
        name, _, value = line.partition(" = ")
        made.line(f"{stores[name]} = {stored(outputs[int(name[1:])], value[:-1])};" if name in stores else line)
    kernel = made.kernel(1, 0, 0)
    return Kernel("cuda", "k", text.preamble.partition("#define ADDRESS")[2].partition("\n")[2] + kernel.text,
                  blocks=1, threads=size, by_table=kernel.facts.by_table)


@pytest.mark.parametrize("dtype", KINDS)
def test_scalar_functions_are_those_of_numpy(dtype: str) -> None:
    calls, kind = calls_of(dtype), np.dtype(dtype)
    if kind.kind == "f":
        special = [0.0, -0.0, 1.0, -1.0, 2.5, -2.5, 3.0, -7.0, 0.3, np.inf, -np.inf, np.nan]
    else:
        low, high = (0, 1) if kind.kind == "b" else (np.iinfo(kind).min, np.iinfo(kind).max)
        special = [0, 1, 2, 3, 7, high, high - 1] + ([low, low + 1, -1, -2, -3] if low < 0 else [])
    a, b = np.array([(x, y) for x in special for y in special], object).T
    xs = [np.ascontiguousarray(v.astype(kind)) for v in (a, b, b)]
    with np.errstate(all="ignore"):
        wants = [np.asarray(SCALARS[c.fn].apply(np, *(np.abs(x) % 7 if c.fn == "power" and kind.kind == "i" else x
                                                      for x in xs[:len(c.args)]))) for c in calls]
    found = [np.zeros(w.shape, w.dtype) for w in wants]
    kernel = as_kernel(calls, [kind] * 3, xs[0].size)
    nvrtc().compile(kernel.text)
    the_card().run(kernel, [*xs, *found])
    for c, got, want in zip(calls, found, wants, strict=True):
        if c.fn in ("power", "reciprocal") and kind.kind != "f":   # negative powers raise, 1 / 0 is undefined
            continue
        with np.errstate(all="ignore"):
            if kind.kind == "f" and c.fn in CASTS and want.dtype.kind in "iu":   # out of range is undefined in C
                info = np.iinfo(want.dtype)
                fits = (xs[0] > info.min - 1.0) & (xs[0] < info.max + 1.0)
                got, want = got[fits], want[fits]
        np.testing.assert_allclose(got, want, rtol=2e-3 if got.dtype == np.float16 else 1e-5, err_msg=c.fn)


def test_shared_subtrees_and_literals() -> None:
    e = Call("exp", (Arg(0),))
    text = elementwise_text([Call("add", (e, e)), e, Lit(2)], [F32])
    assert text.operation.count("expf") == 1
    assert text.outputs == "float32 y0, float32 y1, int64 y2"
    assert text.operation.endswith("y2 = ((i64)2);")


def test_half_precision_rounds_after_every_function() -> None:
    text = elementwise_text([Call("add", (Call("multiply", (Arg(0), Arg(0))), Lit(1)))], [np.dtype("float16")])
    assert text.operation.count("round_half_f32(") == 2
    assert "round_half_f32(f32 x)" in text.preamble


def test_equal_nests_are_one_kernel() -> None:
    (kernel,) = nest_kernels(nest_of(BODIES["softmax"]))
    assert kernel.language == "cuda" and (kernel.facts.blocks, kernel.facts.threads) == (1, 256)
    assert kernel == nest_kernels(nest_of(BODIES["softmax"]))[0]
