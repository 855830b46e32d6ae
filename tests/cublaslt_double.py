"""A stand-in for cuBLASLt: C functions of its names, which compute with NumPy on the memory of the stand-in for CuPy.

It refuses what the library refuses: descriptors that it has not made, attributes of another size, types that do not go
together, addresses that an algorithm's alignment does not fit, workspaces that are too small, cards that are not
current. What no program may do at all (results on operands, memory of another card, another stream than the one that
captures) is kept in ``errors``, which a test ends with.
"""
from __future__ import annotations

import ctypes
import struct
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from ctypes import c_int, c_int64, c_size_t, c_uint64, c_void_p
from typing import Any

import cupy_kernels
import cupy_libraries
import cupy_memory
import cupy_streams
import numpy as np
from cupy_streams import state
from rounding import rounded

NOT_INITIALIZED, INVALID_VALUE, INTERNAL_ERROR, NOT_SUPPORTED = 1, 7, 14, 15
KINDS = {0: "float32", 1: "float64", 2: "float16"}
#: Compute and scale type: types of factors and results.
TOGETHER = {(68, 0): ((0, 0), (2, 2), (2, 0)), (75, 0): ((0, 0),), (77, 0): ((0, 0),), (70, 1): ((1, 1),)}
ROUNDINGS = {75: "bf16", 77: "tf32"}  # of factors, by compute type
#: Attributes by descriptor: their bytes, how these are read, and the default.
ATTRIBUTES: dict[str, dict[int, tuple[int, str, int]]] = {
    "MatrixLayout": {1: (4, "i", 0), 5: (4, "i", 1), 6: (8, "q", 0)},
    "MatmulDesc": {3: (4, "i", 0), 4: (4, "i", 0), 7: (4, "I", 1), 8: (8, "Q", 0), 11: (8, "Q", 0), 12: (8, "q", 0)},
    "MatmulPreference": {1: (8, "Q", 0), 5: (4, "I", 256), 6: (4, "I", 256), 7: (4, "I", 256), 8: (4, "I", 256)}}
EPILOGUES = {1: "", 2: "relu", 4: "bias", 6: "relu bias", 256: "sums of A", 512: "sums of B", 130: "relu kept",
             134: "relu bias kept", 136: "gradient of relu", 152: "gradient of relu and sums", 32: "gelu",
             36: "gelu bias", 160: "gelu kept", 164: "gelu bias kept", 192: "gradient of gelu",
             208: "gradient of gelu and sums"}
VECTORS = 4 | 16 | 256 | 512    # epilogues with a bias, or sums for a bias's gradient
AUX, RELUS, GRADIENTS, SUMS = 128, 2 | 8, 8 | 64, 16 | 256 | 512
SPLIT_TERMS = 16           # sums of more take a workspace
WORKSPACE_BYTES = 4096
RESULT = struct.Struct("<8Q Q i f 4i")  # cublasLtMatmulHeuristicResult_t


class Status(Exception):
    """What a function returns."""

    def __init__(self, code: int) -> None:
        super().__init__(code)
        self.code = code


def expect(condition: Any, code: int = INVALID_VALUE) -> None:
    if not condition:
        raise Status(code)


class CublasLt:
    """The library; ``refuses`` says of a product's m, n, k and epilogue whether there is no algorithm for it.

    ``fails`` is asked before each product runs, and ``swallows_nan`` makes a ReLU of NaN zero. A ReLU keeps the bits
    that ``mask`` says, and its gradient is what ``masked`` makes of a product and bits. ``gelu`` and ``slope`` are GELU
    and its derivative. ``made`` counts products as they are begun.
    """

    def __init__(self) -> None:
        self.refuses: Callable[[int, int, int, str], bool] = lambda *_: False
        self.fails: Callable[[], bool] = lambda: False
        self.swallows_nan = False
        self.mask: Callable[[Any], Any] = lambda x: x > 0
        self.masked: Callable[[Any, Any], Any] = lambda y, bits: np.where(bits, y, y.dtype.type(0))
        self.stray_bytes = 0  # that are written behind bits
        self.gelu: Callable[[Any], Any] = gelu
        self.slope: Callable[[Any], Any] = slope
        self.errors: list[str] = []
        self.made: list[dict[str, Any]] = []
        self.algorithms = 0
        self._things: dict[int, tuple[str, dict[Any, Any]]] = {}
        self._text = ctypes.create_string_buffer(b"the stand-in says no")
        p = c_void_p
        self._add("cublasLtCreate", self._create, p)
        for kind, more in (("MatmulDesc", (c_int, c_int)), ("MatrixLayout", (c_int, c_uint64, c_uint64, c_int64)),
                           ("MatmulPreference", ())):
            self._add(f"cublasLt{kind}Create", self._maker(kind), p, *more)
            self._add(f"cublasLt{kind}SetAttribute", self._setter(kind), p, c_int, p, c_size_t)
        self._add("cublasLtMatmulPreferenceDestroy", self._destroy, p)
        self._add("cublasLtMatmulAlgoGetHeuristic", self._heuristic, *[p] * 7, c_int, p, p)
        self._add("cublasLtMatmul", self._matmul, *[p] * 14, c_size_t, p)
        self.cublasLtGetVersion = ctypes.CFUNCTYPE(c_size_t)(lambda: 120903)
        self.cublasLtGetStatusString = ctypes.CFUNCTYPE(p, c_int)(lambda _: ctypes.addressof(self._text))

    def _add(self, name: str, function: Callable[..., None], *types: Any) -> None:
        def call(*arguments: Any) -> int:
            try:
                function(*arguments)
            except Status as status:
                return status.code
            except BaseException:
                self.errors.append(traceback.format_exc())
                return INTERNAL_ERROR
            return 0
        setattr(self, name, ctypes.CFUNCTYPE(c_int, *types)(call))

    def _new(self, kind: str, address: int, facts: dict[Any, Any]) -> None:
        number = 0x7000 + 16 * len(self._things)
        self._things[number] = kind, {**{a: d for a, (_, _, d) in ATTRIBUTES.get(kind, {}).items()}, **facts}
        c_void_p.from_address(address).value = number

    def _known(self, number: int | None, kind: str) -> dict[Any, Any]:
        found = self._things.get(number or 0)
        expect(found is not None and found[0] == kind)
        assert found is not None
        return found[1]

    def _create(self, address: int) -> None:
        self._new("handle", address, {"device": state.device})

    def _maker(self, kind: str) -> Callable[..., None]:
        def make(address: int, *facts: int) -> None:
            names = {"MatmulDesc": ("compute", "scale"), "MatrixLayout": ("type", "rows", "columns", "ld"),
                     "MatmulPreference": ()}[kind]
            if kind == "MatrixLayout":
                expect(facts[0] in KINDS and facts[3] >= facts[1])
            self._new(kind, address, dict(zip(names, facts, strict=True)))
        return make

    def _setter(self, kind: str) -> Callable[..., None]:
        def change(number: int, attribute: int, value: int, size: int) -> None:
            facts = self._known(number, kind)
            expect(attribute in ATTRIBUTES[kind])
            bytes_, form, _ = ATTRIBUTES[kind][attribute]
            expect(value and size == bytes_)
            facts[attribute], = struct.unpack(form, ctypes.string_at(value, size))
        return change

    def _destroy(self, number: int) -> None:
        self._known(number, "MatmulPreference")
        self._things[number] = "gone", {}

    def _sizes(self, description: dict[Any, Any], layouts: list[dict[Any, Any]]) -> tuple[int, int, int]:
        """Rows, columns and terms, of matrices that go together."""
        a, b, c, d = layouts
        kinds = a["type"], d["type"]
        expect(b["type"] == a["type"] and c["type"] == d["type"], NOT_SUPPORTED)
        expect(kinds in TOGETHER.get((description["compute"], description["scale"]), ()), NOT_SUPPORTED)
        m, k = (a["columns"], a["rows"]) if description[3] else (a["rows"], a["columns"])
        other, n = (b["columns"], b["rows"]) if description[4] else (b["rows"], b["columns"])
        expect(other == k and all((x["rows"], x["columns"]) == (m, n) for x in (c, d)) and m and n and k)
        expect(len({x[5] for x in layouts}) == 1 and all(x[1] == 0 for x in layouts))
        expect(description[7] in EPILOGUES)
        expect(description[7] == 1 or kinds != (1, 1), NOT_SUPPORTED)
        if description[7] & (256 | 512):  # the terms follow each other along the second axis, in column-major order
            expect(not description[3] and m > 1 if description[7] & 256 else description[4] and n > 1, NOT_SUPPORTED)
            expect(k > 1 and d[5] == 1, NOT_SUPPORTED)
        if description[7] & (GRADIENTS | AUX):
            expect(d[5] == 1 and d["type"] == 0, NOT_SUPPORTED)
            expect(k > 1 or not description[7] & GRADIENTS, NOT_SUPPORTED)
            expect(description[12] >= m and not description[12] % (128 if description[7] & RELUS else 8))
        return m, n, k

    def _heuristic(self, handle: int, description: int, a: int, b: int, c: int, d: int, preference: int, wanted: int,
                   results: int, count: int) -> None:
        expect(self._known(handle, "handle")["device"] == state.device, NOT_INITIALIZED)
        operation, wishes = self._known(description, "MatmulDesc"), self._known(preference, "MatmulPreference")
        layouts = [self._known(x, "MatrixLayout") for x in (a, b, c, d)]
        m, n, k = self._sizes(operation, layouts)
        expect(wanted >= 1)
        self.algorithms += 1
        sizes = [np.dtype(KINDS[x["type"]]).itemsize for x in layouts]
        needs = [wishes[i] for i in (5, 6, 7, 8)]
        workspace = WORKSPACE_BYTES if k > SPLIT_TERMS else 0
        expect(not any(x % size for x, size in zip(needs, sizes, strict=True)), NOT_SUPPORTED)
        expect(not self.refuses(n, m, k, EPILOGUES[operation[7]]) and workspace <= wishes[1], NOT_SUPPORTED)
        bias = min(256, operation[8] & -operation[8]) if operation[7] & VECTORS else 1
        expect(bias and (bias >= 16 or not operation[7] & VECTORS), NOT_SUPPORTED)
        expect(not operation[7] & AUX or operation[11] and not operation[11] % 16, NOT_SUPPORTED)
        signature = hash((m, n, k, operation[7])) & 0xFFFF
        data = RESULT.pack(0xA190, *needs, bias, workspace, signature, workspace, 0, 1.0, 0, 0, 0, 0)
        ctypes.memmove(results, data, RESULT.size)
        c_int.from_address(count).value = 1

    def _matmul(self, handle: int, description: int, alpha: int, a: int, a_layout: int, b: int, b_layout: int,
                beta: int, c: int, c_layout: int, d: int, d_layout: int, algorithm: int, workspace: int | None,
                room: int, stream: int | None) -> None:
        device = state.device
        expect(self._known(handle, "handle")["device"] == device, NOT_INITIALIZED)
        operation = dict(self._known(description, "MatmulDesc"))
        layouts = [dict(self._known(x, "MatrixLayout")) for x in (a_layout, b_layout, c_layout, d_layout)]
        m, n, k = self._sizes(operation, layouts)
        mark, *needs, bias_need, wanted, signature = struct.unpack("<8Q", ctypes.string_at(algorithm, 64))
        expect(mark == 0xA190 and signature == hash((m, n, k, operation[7])) & 0xFFFF)
        expect(not any(x % need for x, need in zip((a, b, c, d), needs, strict=True)))
        expect(room >= wanted and (not wanted or workspace and not workspace % 16))
        vector = operation[8] if operation[7] & VECTORS else 0
        expect(not operation[7] & VECTORS or vector and not vector % bias_need)
        aux = operation[11] if operation[7] & AUX else 0
        expect(not operation[7] & AUX or aux and not aux % 16)
        expect(not self.fails(), INTERNAL_ERROR)
        scalar = "d" if operation["scale"] == 1 else "f"
        factor, other = (struct.unpack(scalar, ctypes.string_at(x, struct.calcsize(scalar)))[0] for x in (alpha, beta))
        on = next(s for s in cupy_streams._streams if s.ptr == (stream or 0))
        capturing = [s for s in cupy_streams._streams if s.captured is not None]
        assert not capturing or capturing == [on], "another stream captures"
        assert on.device_id == device or not stream, "a stream of another card"
        kinds = [np.dtype(KINDS[x["type"]]) for x in layouts]
        kind, wide = kinds[3], np.dtype("float64" if kinds[0].itemsize == 8 else "float32")
        for address in (a, b, d, *[c] * bool(other), *[vector] * bool(vector), *[aux] * bool(aux),
                        *[workspace] * bool(wanted)):
            cupy_memory.pool.expect_on(address or 0, device)
        spans = [_span(*x) for x in zip((a, b, c, d), layouts, kinds, strict=True)]
        long = n if operation[7] & 512 else m
        vectors = [(vector, vector + long * kind.itemsize)] * bool(vector)
        sums = vectors if operation[7] & SUMS else []
        operands = [spans[0], spans[1], *[spans[2]] * bool(other and c != d), *[v for v in vectors if v not in sums]]
        line = operation[12] // 8 if operation[7] & RELUS else operation[12] * 4  # bytes
        kept = [(aux, aux + n * line)] * bool(aux)
        operands += kept if operation[7] & GRADIENTS else []
        if wanted:
            operands.append((workspace or 0, (workspace or 0) + wanted))
        results = [spans[3], *sums, *([] if operation[7] & GRADIENTS else kept)]
        for i, (first, last) in enumerate(results):
            assert all(end <= first or last <= begin for begin, end in operands + results[:i]), (
                "the result is on an operand")
        if not capturing:
            cupy_kernels.launches["kernels"] += 1
        self.made.append({"m": n, "n": m, "k": k, "epilogue": EPILOGUES[operation[7]], "alpha": factor, "beta": other,
                          "dtype": kind.name, "compute": operation["compute"], "batch": layouts[3][5]})

        def run() -> None:
            cupy_kernels.launches["calls"] += 1
            if wanted:
                ctypes.memset(workspace or 0, 255, wanted)
            left, right, addend, result = (_matrices(*x) for x in zip((a, b, c, d), layouts, kinds, strict=True))
            left = left.mT if operation[3] else left
            right = right.mT if operation[4] else right
            if rounding := ROUNDINGS.get(operation["compute"]):
                left, right = rounded(left, rounding), rounded(right, rounding)
            with np.errstate(all="ignore"):
                y = wide.type(factor) * np.matmul(left.astype(wide), right.astype(wide))
                if other:
                    y = y + wide.type(other) * addend.astype(wide)
                if operation[7] & 4:
                    y = y + _at(vector, m, kind).astype(wide)[:, None]
                elif vector and operation[7] & (256 | 512):
                    _at(vector, long, kind)[...] = (left[0].T if operation[7] & 256 else right[0]).astype(wide).sum(0)
                if aux:
                    lines = _at(aux, n * line, np.dtype(np.uint8)).reshape(n, line)
                    self._aux(operation[7], y[0].T, lines)
                if operation[7] & 16:
                    _at(vector, m, kind)[...] = y[0].sum(1)
                if operation[7] & 32:
                    y = self.gelu(y)
                elif operation[7] & 2:
                    y = np.fmax(y, wide.type(0)) if self.swallows_nan else np.maximum(y, wide.type(0))
                result[...] = y
        cupy_memory.enqueue(on, run)


    def _aux(self, epilogue: int, y: np.ndarray, lines: np.ndarray) -> None:
        """Keep what the gradient of a function of ``y`` reads, in lines of bytes, or make ``y`` the gradient."""
        m, n = y.shape
        if epilogue & RELUS:
            if epilogue & GRADIENTS:
                y[...] = self.masked(y, np.unpackbits(lines, axis=1, bitorder="little")[:, :n].astype(bool))
            else:
                bits = np.packbits(self.mask(y), axis=1, bitorder="little")
                lines[:, :bits.shape[1]] = bits
                ctypes.memset(lines.ctypes.data + lines.nbytes, 0, self.stray_bytes)
        elif epilogue & GRADIENTS:
            y *= self.slope(lines.view(np.float32)[:, :n])
        else:
            lines.view(np.float32)[:, :n] = y


def gelu(x: np.ndarray) -> np.ndarray:
    """The formula by tanh."""
    c, a = np.float32(0.7978845608028654), np.float32(0.044715)
    return np.float32(0.5) * x * (1 + np.tanh(c * (x + a * (x * x * x))))


def slope(x: np.ndarray) -> np.ndarray:
    """Its derivative."""
    c, a = np.float32(0.7978845608028654), np.float32(0.044715)
    t = np.tanh(c * (x + a * (x * x * x)))
    return np.float32(0.5) * (1 + t) + np.float32(0.5) * x * (1 - t * t) * (c * (1 + 3 * a * (x * x)))


def _at(address: int, count: int, kind: np.dtype[Any]) -> np.ndarray:
    return np.frombuffer((ctypes.c_ubyte * (count * kind.itemsize)).from_address(address), kind)


def _count(layout: dict[Any, Any]) -> int:
    """Elements from the first to behind the last."""
    return (layout[5] - 1) * layout[6] + (layout["columns"] - 1) * layout["ld"] + layout["rows"]


def _span(address: int, layout: dict[Any, Any], kind: np.dtype[Any]) -> tuple[int, int]:
    return address, address + _count(layout) * kind.itemsize


def _matrices(address: int, layout: dict[Any, Any], kind: np.dtype[Any]) -> np.ndarray:
    strides = layout[6] * kind.itemsize, kind.itemsize, layout["ld"] * kind.itemsize
    return np.lib.stride_tricks.as_strided(_at(address, _count(layout), kind),
                                           (layout[5], layout["rows"], layout["columns"]), strides)


@contextmanager
def cublaslt() -> Iterator[CublasLt]:
    """Context in which the stand-in for CuPy comes with the stand-in for cuBLASLt."""
    library = CublasLt()
    with cupy_libraries.only(blas=library):
        yield library
    assert not library.errors, library.errors[0]
