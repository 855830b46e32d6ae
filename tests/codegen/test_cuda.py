"""CUDA texts: NVRTC compiles every one, and their C computes what NumPy does where the host has a C++ compiler."""
from __future__ import annotations

import ctypes
import importlib.util
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest
from bodies import body
from nest_bodies import BODIES, expected, operands

from kusari.codegen.cuda.elementwise import elementwise_text
from kusari.codegen.cuda.nest import OPTIONS, blocks, nest_kernel, nest_text
from kusari.ir import SCALARS, Arg, Call, Lit
from kusari.ir.nest import nest_of
from kusari.ir.scalar import CASTS

F32 = np.dtype("float32")
HALF = body(lambda b, x, y: b.call("maximum", b.call("tanh", b.call("add", x, 1)), b.cast(y, "float16")),
            ("float16", (40,)), ("float64", (40,)))


class Nvrtc:
    """NVIDIA's run-time compiler, which needs no GPU."""

    def __init__(self, path: Path) -> None:
        builtins = next(p for p in path.parent.glob("libnvrtc-builtins.so*"))
        ctypes.CDLL(str(builtins), ctypes.RTLD_GLOBAL)
        self.library = ctypes.CDLL(str(path))

    def compile(self, text: str) -> str:
        """The PTX of ``text``; an assertion shows the compiler's messages."""
        lib, program = self.library, ctypes.c_void_p()
        assert lib.nvrtcCreateProgram(ctypes.byref(program), text.encode(), b"nest.cu", 0, None, None) == 0
        options = [o.encode() for o in (*OPTIONS, "--gpu-architecture=compute_70")]
        status = lib.nvrtcCompileProgram(program, len(options), (ctypes.c_char_p * len(options))(*options))
        size = ctypes.c_size_t()
        lib.nvrtcGetProgramLogSize(program, ctypes.byref(size))
        log = ctypes.create_string_buffer(size.value)
        lib.nvrtcGetProgramLog(program, log)
        assert status == 0, f"{log.value.decode()}\n{text}"
        lib.nvrtcGetPTXSize(program, ctypes.byref(size))
        ptx = ctypes.create_string_buffer(size.value)
        lib.nvrtcGetPTX(program, ptx)
        lib.nvrtcDestroyProgram(ctypes.byref(program))
        return ptx.value.decode()


@pytest.fixture(scope="module")
def nvrtc() -> Nvrtc:
    spec = importlib.util.find_spec("nvidia")
    places = list(spec.submodule_search_locations or ()) if spec else []
    found = [p for place in places for p in sorted(Path(place).glob("cuda_nvrtc/lib/libnvrtc.so*"))]
    if not found:
        pytest.skip("the wheel nvidia-cuda-nvrtc-cu12 is not installed")
    return Nvrtc(found[0])


@pytest.mark.parametrize("name", [*BODIES, "half"])
def test_nvrtc_compiles_every_nest(nvrtc, name: str) -> None:
    ptx = nvrtc.compile(nest_text(nest_of(HALF if name == "half" else BODIES[name])))
    assert ".visible .entry nest(" in ptx


KINDS = ["float16", "float32", "float64", "int8", "uint8", "int32", "int64", "uint64", "bool"]


def calls_of(dtype: str, half: bool = True) -> list[Call]:
    """Every scalar function NumPy has for ``dtype``; without ``half`` those that do not end in float16."""
    calls = []
    for fn, scalar in SCALARS.items():
        call = Call(fn, tuple(Arg(i) for i in range(scalar.arity)))
        try:
            with np.errstate(all="ignore"):
                result = scalar.apply(np, *[np.ones(1, dtype)] * scalar.arity)
        except (TypeError, ValueError):
            continue
        if half or result.dtype != np.float16:
            calls.append(call)
    return calls


@pytest.mark.parametrize("dtype", KINDS)
def test_nvrtc_compiles_every_scalar_function(nvrtc, dtype: str) -> None:
    nvrtc.compile(as_kernel(calls_of(dtype), [np.dtype(dtype)] * 3))


def as_kernel(exprs, dtypes) -> str:
    """The operation of an elementwise kernel, inside a function as CuPy would write it."""
    text = elementwise_text(exprs, dtypes)
    kinds = {"float16": "half", "bool": "bool", "float32": "float", "float64": "double", "int8": "signed char",
             "uint8": "unsigned char", "int16": "short", "uint16": "unsigned short", "int32": "int",
             "uint32": "unsigned int", "int64": "long long", "uint64": "unsigned long long"}
    half = ("struct half { unsigned short bits; __device__ operator float() const { return bits; }\n"
            "__device__ half() {} __device__ half(float x) { bits = (unsigned short)x; } };\n")
    ins = [p.split() for p in text.inputs.split(", ")]
    outs = [p.split() for p in text.outputs.split(", ")]
    parameters = [f"const {kinds[t]} *p_{n}" for t, n in ins] + [f"{kinds[t]} *p_{n}" for t, n in outs]
    lines = [f"const {kinds[t]} {n} = p_{n}[i];" for t, n in ins] + [f"{kinds[t]} &{n} = p_{n}[i];" for t, n in outs]
    return (half + text.preamble + f'extern "C" __global__ void k({", ".join(parameters)}) {{\n'
            "int i = threadIdx.x;\n" + "\n".join(lines) + "\n" + text.operation + "\n}\n")


def test_shared_subtrees_and_literals() -> None:
    e = Call("exp", (Arg(0),))
    text = elementwise_text([Call("add", (e, e)), e, Lit(2)], [F32])
    assert text.operation.count("expf") == 1
    assert text.outputs == "float32 y0, float32 y1, int64 y2"
    assert text.operation.endswith("y2 = 2LL;")


def test_half_precision_rounds_after_every_function() -> None:
    text = elementwise_text([Call("add", (Call("multiply", (Arg(0), Arg(0))), Lit(1)))], [np.dtype("float16")])
    assert text.operation.count("round_half(") == 2
    assert "round_half(float x)" in text.preamble


def test_kernel_and_its_grid() -> None:
    nest = nest_of(BODIES["softmax"])
    kernel = nest_kernel(nest)
    assert (kernel.language, kernel.symbol) == ("cuda", "nest")
    assert kernel == nest_kernel(nest_of(BODIES["softmax"]))
    assert blocks(nest) == 11
    assert blocks(nest_of(BODIES["gelu"])) == 2


HOST = """\
#include <cmath>
#include <cstring>
using namespace std;
#define __global__
#define __device__
#define __forceinline__ inline
#define __shared__
#define __syncthreads()
static float __int_as_float(unsigned bits) { float x; memcpy(&x, &bits, 4); return x; }
struct Dim { int x; };
static const Dim blockDim = {1}, gridDim = {2};
static thread_local Dim blockIdx, threadIdx;
"""


@pytest.fixture(scope="module")
def host(tmp_path_factory) -> ctypes.CDLL:
    """All bodies as functions of the host: grids of two blocks of one thread."""
    compiler = shutil.which("c++") or shutil.which("g++")
    if compiler is None:
        pytest.skip("no C++ compiler")
    folder = tmp_path_factory.mktemp("cuda")
    parts = [HOST]
    for name, graph in BODIES.items():
        count = len(graph.inputs) + len(graph.outputs)
        parts.append(host_function(name, nest_text(nest_of(graph)), "nest", count, "blockIdx"))
    for dtype in HOSTED:
        calls = calls_of(dtype, half=False)   # its conversions are written in PTX
        text = as_kernel(calls, [np.dtype(dtype)] * 3)
        parts.append(host_function(dtype, text, "k", 3 + len(calls), "threadIdx"))
    source = folder / "bodies.cc"
    source.write_text("".join(parts))
    command = [compiler, "-O1", "-shared", "-fPIC", "-w", str(source), "-o", str(folder / "bodies.so")]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[:2000]
    return ctypes.CDLL(str(folder / "bodies.so"))


HOSTED = ["float32", "float64", "int8", "uint8", "int32", "int64", "bool"]


def host_function(name: str, text: str, symbol: str, count: int, counter: str) -> str:
    """``run_name(pointers, i)`` calls the kernel with ``counter.x = i``."""
    text = text.replace(f'extern "C" __global__ void {symbol}(', f"static void {symbol}(")
    args = ", ".join(f"(decltype(get{i}({symbol})))p[{i}]" for i in range(count))
    classes, types = (", ".join(f"{word}T{j}" for j in range(count)) for word in ("class ", ""))
    getters = "".join(f"template <{classes}> T{i} get{i}(void (*)({types}));\n" for i in range(count))
    return (f"namespace {name}_ {{\n{text}{getters}}}\n"
            f'extern "C" void run_{name}(void **p, int i) {{ using namespace {name}_; {counter}.x = i; '
            f"{symbol}({args}); {counter}.x = 0; }}\n")


@pytest.mark.parametrize("name", list(BODIES))
def test_the_c_computes_what_numpy_does(host, name: str) -> None:
    graph = BODIES[name]
    arrays = operands(graph)
    found = [np.full(v.shape, 7).astype(v.tensor.dtype) for v in graph.outputs]
    pointers = (ctypes.c_void_p * (len(arrays) + len(found)))(*[a.ctypes.data for a in (*arrays, *found)])
    for block in (1, 0):
        getattr(host, f"run_{name}")(pointers, block)
    for a, e in zip(found, expected(graph, arrays), strict=True):
        assert a.dtype == e.dtype
        np.testing.assert_allclose(a, e, rtol=3e-5, atol=1e-6)


@pytest.mark.parametrize("dtype", HOSTED)
def test_scalar_functions_in_c_equal_numpy(host, dtype: str) -> None:
    calls = calls_of(dtype, half=False)
    kind = np.dtype(dtype)
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
    pointers = (ctypes.c_void_p * (3 + len(found)))(*[x.ctypes.data for x in (*xs, *found)])
    for i in range(xs[0].size):
        getattr(host, f"run_{dtype}")(pointers, i)
    for c, got, want in zip(calls, found, wants, strict=True):
        if c.fn in ("power", "reciprocal") and kind.kind != "f":   # negative powers raise, 1 / 0 is undefined
            continue
        with np.errstate(all="ignore"):
            if kind.kind == "f" and c.fn in CASTS and want.dtype.kind in "iu":   # out of range is undefined in C
                info = np.iinfo(want.dtype)
                fits = (xs[0] > info.min - 1.0) & (xs[0] < info.max + 1.0)
                got, want = got[fits], want[fits]
        np.testing.assert_allclose(got, want, rtol=1e-5, err_msg=c.fn)
