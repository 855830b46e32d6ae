"""cuBLASLt by ctypes: products of matrices with an epilogue, on a stream that is given, in memory that is given.

Values of enumerations, sizes of attributes and signatures are those of ``cublasLt.h`` and ``cublas_api.h``, which are
the same in CUDA 12.6, 12.9 and 13: see `Library`. All of it is in column-major order there, so C-order arrays are
transposed matrices: ``D = A @ B`` is computed as ``Dᵀ = Bᵀ @ Aᵀ``, and a bias along columns is one along rows.
"""
from __future__ import annotations

import ctypes
import functools
import threading
from collections.abc import Sequence
from ctypes import byref, c_char_p, c_double, c_float, c_int, c_int32, c_int64, c_size_t, c_uint32, c_uint64, c_void_p
from dataclasses import dataclass, field
from typing import Any, Literal

from kusari.ir import DType
from kusari.ir.product import Rounding

from . import libraries
from .launches import Refused

# cublasStatus_t, cublasOperation_t, cudaDataType_t, cublasComputeType_t
SUCCESS = 0
TRANSPOSED = 1
TYPES = {"float32": 0, "float64": 1, "float16": 2}
COMPUTE_64F = 70
COMPUTE_32F: dict[Rounding, int] = {"": 68, "bf16": 75, "tf32": 77}  # 32F, 32F_FAST_16BF, 32F_FAST_TF32
# cublasLtMatrixLayoutAttribute_t
BATCH_COUNT, STRIDED_BATCH_OFFSET = 5, 6
# cublasLtMatmulDescAttributes_t
TRANSA, TRANSB, EPILOGUE, BIAS_POINTER, AUX_POINTER, AUX_LD = 3, 4, 7, 8, 11, 12
# cublasLtEpilogue_t; the values of a line are joined by or
DEFAULT, RELU, BIAS, GELU, AUX = 1, 2, 4, 32, 128
DRELU, DGELU, BGRAD = 8 | AUX, 64 | AUX, 16
BGRADA, BGRADB = 256, 512
# cublasLtMatmulPreferenceAttributes_t
MAX_WORKSPACE_BYTES = 1
MIN_ALIGNMENT_BYTES = (5, 6, 7, 8)  # of A, B, C and D

MASK_BITS = 128     # of which a ReLU's lines of bits are multiples
GELU_ELEMENTS = 8   # of which a GELU's lines of arguments are multiples
VECTOR_BYTES = 16   # by which kernels read, biases always
MOST_ALIGNMENT_BYTES = 256
#: As NVIDIA recommends: of cards from compute capability 9.0 on, and of older ones.
WORKSPACE_BYTES, WORKSPACE_BYTES_BEFORE_90 = 32 << 20, 4 << 20
CAPABILITY_90 = 90


class Algorithm(ctypes.Structure):
    """``cublasLtMatmulAlgo_t``."""

    _fields_ = [("data", c_uint64 * 8)]


class Heuristic(ctypes.Structure):
    """``cublasLtMatmulHeuristicResult_t``."""

    _fields_ = [("algo", Algorithm), ("workspaceSize", c_size_t), ("state", c_int), ("wavesCount", c_float),
                ("reserved", c_int * 4)]


Function = Literal["", "relu", "gelu", "gradient of relu", "gradient of gelu"]
_FUNCTIONS: dict[Function, int] = {"": 0, "relu": RELU, "gelu": GELU, "gradient of relu": DRELU,
                                   "gradient of gelu": DGELU}


@dataclass(frozen=True)
class Work:
    """``alpha * op(A) @ op(B) + beta * C`` of ``batch`` matrices in C order, plus a bias of each column, a function.

    A function ``keeps`` what its gradient reads: where its argument is positive, a bit for each element in lines of
    128, or the argument. A gradient reads that, and may have its own sums by columns as a second result (``totals``).

    Instead of a bias there may be ``sums`` of a factor over the terms, its number, which are a second result: of A, by
    rows of the product, if it is transposed, and of B, by columns, if it is not.

    A is ``m x k`` (``k x m`` under ``transa``), B likewise; the strides lead to the next matrix of the batch, in
    elements. C has the form of the result, which is contiguous. Factors in float16 are added up in float32, which the
    result may be, too; those in float32 may be rounded to ``rounding``.
    """

    m: int
    n: int
    k: int
    transa: bool
    transb: bool
    batch: int
    stride_a: int
    stride_b: int
    factor_dtype: DType
    dtype: DType
    alpha: float = 1.0
    adds: bool = False
    bias: bool = False
    function: Function = ""
    keeps: bool = False
    totals: bool = False
    sums: int | None = None
    rounding: Rounding = ""

    @property
    def has_vector(self) -> bool:
        """Whether there is a bias or sums."""
        return self.bias or self.totals or self.sums is not None

    @property
    def epilogue(self) -> int:
        """The value of the library's enumeration, in which B of ours is A."""
        if self.sums is not None:
            return (BGRADB, BGRADA)[self.sums]
        return (_FUNCTIONS[self.function] | BIAS * self.bias | AUX * self.keeps | BGRAD * self.totals) or DEFAULT

    @property
    def line(self) -> int:
        """Bits or arguments from one row to the next, of what functions keep for gradients."""
        return -(-self.n // MASK_BITS) * MASK_BITS if self.function.endswith("relu") else self.n

    @property
    def mask_bytes(self) -> int:
        """Bytes of a ReLU's bits."""
        return self.m * self.line // 8

    @property
    def result_bytes(self) -> int:
        """Bytes of the result."""
        return self.batch * self.m * self.n * self.dtype.itemsize

    @property
    def flops(self) -> int:
        """Operations by definition."""
        return 2 * self.batch * self.m * self.n * self.k

    def __str__(self) -> str:
        parts = [name for name, there in (
            ("add", self.adds), ("bias", self.bias), (self.function.replace("gradient of ", "d"), self.function),
            ("kept", self.keeps), ("sums", self.totals or self.sums is not None)) if there]
        return "_".join(["cublasLtMatmul", *parts])


_SIGNATURES: dict[str, tuple[Any, ...]] = {
    "cublasLtCreate": (c_void_p,),
    "cublasLtMatmulDescCreate": (c_void_p, c_int, c_int),
    "cublasLtMatmulDescSetAttribute": (c_void_p, c_int, c_void_p, c_size_t),
    "cublasLtMatrixLayoutCreate": (c_void_p, c_int, c_uint64, c_uint64, c_int64),
    "cublasLtMatrixLayoutSetAttribute": (c_void_p, c_int, c_void_p, c_size_t),
    "cublasLtMatmulPreferenceCreate": (c_void_p,),
    "cublasLtMatmulPreferenceSetAttribute": (c_void_p, c_int, c_void_p, c_size_t),
    "cublasLtMatmulPreferenceDestroy": (c_void_p,),
    "cublasLtMatmulAlgoGetHeuristic": (*[c_void_p] * 7, c_int, c_void_p, c_void_p),
    "cublasLtMatmul": (*[c_void_p] * 14, c_size_t, c_void_p),
}


class Library:
    """The library's functions; each raises ``Refused`` where the status is not success.

    Invariant: nothing is called with a descriptor that the library has not made: only `Heuristic` and `Algorithm` are
    structures of a layout that is known here.
    """

    def __init__(self, functions: Any) -> None:
        self._functions = functions
        for name, types in _SIGNATURES.items():
            function = getattr(functions, name)
            function.argtypes, function.restype = types, c_int
        functions.cublasLtGetVersion.argtypes, functions.cublasLtGetVersion.restype = (), c_size_t
        functions.cublasLtGetStatusString.argtypes = (c_int,)
        functions.cublasLtGetStatusString.restype = c_char_p
        self._handles: dict[int, c_void_p] = {}
        self._lock = threading.Lock()
        self.products: dict[tuple[int, Work], Product] = {}  # by card
        self.keeps_nan: dict[tuple[int, Work], bool] = {}
        self.probed: dict[tuple[int, str, Rounding], str] = {}  # why what is not documented is not used, or nothing

    @property
    def version(self) -> str:
        """The version, as in 12.9.1."""
        number = self._functions.cublasLtGetVersion()
        return f"{number // 10000}.{number // 100 % 100}.{number % 100}"

    def call(self, name: str, *arguments: Any) -> None:
        """Call a function."""
        status = getattr(self._functions, name)(*arguments)
        if status != SUCCESS:
            text = self._functions.cublasLtGetStatusString(status) or b"an unknown error"
            raise Refused(f"{name}: {text.decode(errors='replace')} ({status})")

    def handle(self, device: int) -> c_void_p:
        """Return the handle of a card, which is the current one."""
        with self._lock:
            found = self._handles.get(device)
            if found is None:
                found = c_void_p()
                self.call("cublasLtCreate", byref(found))
                self._handles[device] = found
        return found

    def layout(self, dtype: DType, rows: int, columns: int, batch: int, stride: int) -> c_void_p:
        """Return the descriptor of matrices in C order."""
        made = c_void_p()
        self.call("cublasLtMatrixLayoutCreate", byref(made), TYPES[dtype.name], columns, rows, columns)
        if batch > 1:
            self._set("MatrixLayout", made, BATCH_COUNT, c_int32(batch))
            self._set("MatrixLayout", made, STRIDED_BATCH_OFFSET, c_int64(stride))
        return made

    def description(self, work: Work) -> c_void_p:
        """Return the descriptor of an operation."""
        double = work.dtype.itemsize == 8
        compute = COMPUTE_64F if double else COMPUTE_32F[work.rounding]
        made = c_void_p()
        self.call("cublasLtMatmulDescCreate", byref(made), compute, TYPES["float64" if double else "float32"])
        for attribute, is_transposed in ((TRANSA, work.transb), (TRANSB, work.transa)):
            if is_transposed:
                self._set("MatmulDesc", made, attribute, c_int32(TRANSPOSED))
        if work.epilogue != DEFAULT:
            self._set("MatmulDesc", made, EPILOGUE, c_uint32(work.epilogue))
        if work.epilogue & AUX:
            self._set("MatmulDesc", made, AUX_LD, c_int64(work.line))
        return made

    def set_vector(self, description: c_void_p, address: int) -> None:
        """Let an operation add the bias at an address, or write its sums there."""
        self._set("MatmulDesc", description, BIAS_POINTER, c_void_p(address))

    def set_kept(self, description: c_void_p, address: int) -> None:
        """Let a function keep at an address what its gradient reads, or a gradient read it there."""
        self._set("MatmulDesc", description, AUX_POINTER, c_void_p(address))

    def algorithm(self, device: int, description: c_void_p, layouts: Sequence[c_void_p], workspace: int,
                  alignments: Sequence[int]) -> Heuristic:
        """Return the algorithm that the library recommends for A, B, C and D at addresses of such alignments."""
        preference = c_void_p()
        self.call("cublasLtMatmulPreferenceCreate", byref(preference))
        try:
            self._set("MatmulPreference", preference, MAX_WORKSPACE_BYTES, c_uint64(workspace))
            for attribute, alignment in zip(MIN_ALIGNMENT_BYTES, alignments, strict=True):
                self._set("MatmulPreference", preference, attribute, c_uint32(alignment))
            result, count = Heuristic(), c_int(0)
            self.call("cublasLtMatmulAlgoGetHeuristic", self.handle(device), description, *layouts, preference, 1,
                      byref(result), byref(count))
        finally:
            self._functions.cublasLtMatmulPreferenceDestroy(preference)
        if count.value < 1 or result.state != SUCCESS or result.workspaceSize > workspace:
            raise Refused(f"cublasLtMatmulAlgoGetHeuristic: no algorithm ({result.state})")
        return result

    def _set(self, kind: str, descriptor: c_void_p, attribute: int, value: Any) -> None:
        self.call(f"cublasLt{kind}SetAttribute", descriptor, attribute, byref(value), ctypes.sizeof(value))


def alignment_of(address: int) -> int:
    """The largest power of two that divides an address, as far as it matters: few alignments, few algorithms."""
    found = address & -address
    return MOST_ALIGNMENT_BYTES if not address or found >= MOST_ALIGNMENT_BYTES else min(VECTOR_BYTES, found)


@dataclass
class Product:
    """One product on a card: its descriptors, made once, and an algorithm for each alignment of its operands."""

    library: Library
    device: int
    work: Work
    _algorithms: dict[tuple[int, ...], Heuristic] = field(default_factory=dict[tuple[int, ...], Heuristic])
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def __post_init__(self) -> None:
        work, library = self.work, self.library
        a = (work.k, work.m) if work.transa else (work.m, work.k)
        b = (work.n, work.k) if work.transb else (work.k, work.n)
        self._description = library.description(work)
        result = library.layout(work.dtype, work.m, work.n, work.batch, work.m * work.n)
        self._layouts = (library.layout(work.factor_dtype, *b, work.batch, work.stride_b),
                         library.layout(work.factor_dtype, *a, work.batch, work.stride_a), result, result)
        scalar = c_double if work.dtype.itemsize == 8 else c_float
        self._alpha, self._beta = scalar(work.alpha), scalar(1.0 if work.adds else 0.0)

    def prepare(self, most_workspace_bytes: int, alignments: tuple[int, ...]) -> int:
        """Choose the algorithm for A, B, C, D, the bias or sums, and what is kept at addresses of such alignments.

        Returns the bytes of its workspace; raises ``Refused``.
        """
        with self._lock:
            found = self._algorithms.get(alignments)
            if found is None:
                found = self._algorithms[alignments] = self._choose(most_workspace_bytes, alignments)
        return found.workspaceSize

    def _choose(self, workspace: int, alignments: tuple[int, ...]) -> Heuristic:
        a, b, c, d, vector, kept = alignments
        if self.work.has_vector:
            if vector < VECTOR_BYTES:
                raise Refused(f"the {'bias is' if self.work.bias else 'sums are'} aligned to {vector} bytes only")
            self.library.set_vector(self._description, vector)  # nothing is read: its alignment matters
        if self.work.epilogue & AUX:
            if kept < VECTOR_BYTES:
                raise Refused(f"what a gradient reads is aligned to {kept} bytes only")
            self.library.set_kept(self._description, kept)
        return self.library.algorithm(self.device, self._description, self._layouts, workspace, (b, a, c, d))

    def __call__(self, a: int, b: int, c: int, d: int, vector: int, kept: int, workspace: int, room: int,
                 stream: int) -> None:
        """Compute on a stream, on addresses of the card, with ``room`` bytes at ``workspace``; raises ``Refused``.

        Without an addition C is D; without a bias and sums ``vector`` is zero, and ``kept`` where nothing is.
        """
        if self.work.epilogue & AUX and not kept:
            raise Refused("what its forward keeps is not there")
        alignments = tuple([alignment_of(address) for address in (a, b, c, d, vector, kept)])
        with self._lock:
            found = self._algorithms.get(alignments)
            if found is None or found.workspaceSize > room:
                found = self._algorithms[alignments] = self._choose(room, alignments)
            if self.work.has_vector:
                self.library.set_vector(self._description, vector)
            if self.work.epilogue & AUX:
                self.library.set_kept(self._description, kept)
            left, right, addend, result = self._layouts
            self.library.call(
                "cublasLtMatmul", self.library.handle(self.device), self._description, byref(self._alpha), b, left, a,
                right, byref(self._beta), c, addend, d, result, byref(found.algo), workspace if room else None,
                found.workspaceSize, stream or None)


def most_workspace(capability: int) -> int:
    """Return the most bytes of a workspace on a card of a compute capability."""
    return WORKSPACE_BYTES if capability >= CAPABILITY_90 else WORKSPACE_BYTES_BEFORE_90


@functools.cache
def library(major: int) -> Library | str:
    """Return the library for a version of CUDA, or why there is none."""
    name = libraries.package("nvidia-cublas", major)
    try:
        found = libraries.loaded("cublasLt", major)
        return f"cuBLASLt was not found (pip install {name})" if found is None else Library(found)
    except (OSError, AttributeError) as error:
        return f"cuBLASLt cannot be loaded: {error}"
