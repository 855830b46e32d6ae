"""NumPy's own OpenBLAS by function pointer: matrix products without a kernel of ours.

Each of our threads calls it for its own rows of the result, with OpenBLAS's threads held at one: its pool and ours at
the same time are slower than either. That number belongs to the whole process, so it is set before a run and restored
after it.
"""
from __future__ import annotations

import ctypes
import mmap
import sys
import threading
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import lru_cache
from math import prod

from kusari.ir import Instruction, Kernel, Node, Program
from kusari.ir.threads import openblas

from .linker import define_symbol
from .memory import discard_pages

_SYMBOL = "product_by_blas"


@dataclass(frozen=True, eq=False)
class Blas:
    """An OpenBLAS that is loaded in this process; ``integer`` is the width of its integers."""

    integer: int
    get_threads: Callable[[], int]
    set_threads: Callable[[int], None]


@lru_cache(maxsize=1)
def find_blas() -> Blas | None:
    """Return NumPy's OpenBLAS with its functions made known to LLVM, or None where NumPy has another library."""
    found = openblas("cblas_sgemm", "cblas_dgemm", "openblas_get_num_threads", "openblas_set_num_threads")
    if found is None:
        return None
    integer, functions = found
    for name, function in zip(("sgemm", "dgemm"), functions, strict=False):
        define_symbol(f"kusari_blas_{name}", ctypes.cast(function, ctypes.c_void_p).value)
    return Blas(integer, functions[2], functions[3])


class SingleThreaded:
    """A context in which OpenBLAS uses only the threads that call it, while any run is inside."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._inside = 0
        self._before = 1

    def __enter__(self) -> None:
        blas = find_blas()
        with self._lock:
            if blas is not None and not self._inside:
                self._before = blas.get_threads()
                blas.set_threads(1)
            self._inside += 1

    def __exit__(self, *error: object) -> None:
        blas = find_blas()
        with self._lock:
            self._inside -= 1
            if blas is not None and not self._inside:
                blas.set_threads(self._before)

    @contextmanager
    def idle(self) -> Generator[bool]:
        """Return whether no run is inside; none can come in meanwhile."""
        with self._lock:
            yield not self._inside


_SINGLE_THREADED = SingleThreaded()


class Worker(threading.Thread):
    """A thread of a pool, which calls OpenBLAS within runs only."""


class Buffers:
    """The blocks in which OpenBLAS packs operands: one per thread, kept for good once it has been used.

    Define-by-run leaves them behind, as much as all intermediate values of a small network. They are allocated by the
    library's own functions, so they have no other user, and released without their pages.
    """

    def __init__(self) -> None:
        self._count = 0  # the known blocks, and the size of each
        self._size = 0

    def release(self) -> None:
        """Release their pages to the system, and end OpenBLAS's threads, which hold some: the next product starts them.

        Nothing happens on systems other than Linux, with another library, or while other Python threads exist, which
        may be multiplying.
        """
        if not sys.platform.startswith("linux") or not hasattr(mmap, "MADV_DONTNEED"):
            return
        mine = threading.current_thread()
        if any(t is not mine and not isinstance(t, Worker) for t in threading.enumerate()):
            return
        found = openblas("blas_memory_alloc", "blas_memory_free", "blas_thread_shutdown_")
        blas = find_blas()
        if found is None or blas is None:
            return
        take, give, shut_down = found[1]
        take.restype, give.argtypes, give.restype = ctypes.c_void_p, [ctypes.c_void_p], None
        with _SINGLE_THREADED.idle() as free:
            if not free:
                return
            shut_down()
            taken: list[int] = []
            # Blocks are taken in the order in which they were mapped. A call that maps a new one has passed all others,
            # and shows their size.
            most = self._count or blas.get_threads() + 2
            while len(taken) < most:
                before = _mapped()
                address = take(0)
                if not address:
                    break
                taken.append(address)
                if not self._count and (size := _mapped() - before):
                    self._count, self._size = len(taken), size
                    break
            discard_pages([(address, self._size) for address in taken if not address % mmap.PAGESIZE])
            for address in reversed(taken):
                give(address)


def _mapped() -> int:
    """Bytes of address space that this process has."""
    with open("/proc/self/statm", encoding="ascii") as file:
        return int(file.read().split()[0]) * mmap.PAGESIZE


BUFFERS = Buffers()


def limited(run: Callable[[], None]) -> Callable[[], None]:
    """Return ``run`` with OpenBLAS single-threaded meanwhile."""
    def limited_run() -> None:
        with _SINGLE_THREADED:
            run()
    return limited_run


def calls_blas(kernel: Kernel) -> bool:
    """Whether a kernel is one of ``blas_kernel``."""
    return kernel.symbol == _SYMBOL

_TEXT = """
declare void @kusari_blas_{letter}gemm(i32, i32, i32, {n}, {n}, {n}, {real}, ptr, {n}, ptr, {n}, {real}, ptr, {n})

define void @product_by_blas(ptr %slots, i64 %tid, i64 %nth) {{
entry:
  %a = load ptr, ptr %slots
  %b.p = getelementptr ptr, ptr %slots, i64 1
  %b = load ptr, ptr %b.p
  %c.p = getelementptr ptr, ptr %slots, i64 2
  %c = load ptr, ptr %c.p
  %tid.1 = add i64 %tid, 1
  %lo.m = mul i64 %tid, {m}
  %lo = udiv i64 %lo.m, %nth
  %hi.m = mul i64 %tid.1, {m}
  %hi = udiv i64 %hi.m, %nth
  %rows.wide = sub i64 %hi, %lo
  %rows = {narrow}
  %some = icmp sgt i64 %rows.wide, 0
  br i1 %some, label %start, label %out
start:
  %a.at = mul i64 %lo, {step_a}
  %c.at = mul i64 %lo, {cols}
  br label %next
next:
  %i = phi i64 [0, %start], [%i.1, %next]
  %a.i = mul i64 %i, {batch_a}
  %a.j = add i64 %a.i, %a.at
  %b.i = mul i64 %i, {batch_b}
  %c.i = mul i64 %i, {batch_c}
  %c.j = add i64 %c.i, %c.at
  %pa = getelementptr {real}, ptr %a, i64 %a.j
  %pb = getelementptr {real}, ptr %b, i64 %b.i
  %pc = getelementptr {real}, ptr %c, i64 %c.j
  call void @kusari_blas_{letter}gemm(i32 101, i32 {ta}, i32 {tb}, {n} %rows, {n} {cols}, {n} {k}, {real} 1.0,
    ptr %pa, {n} {lda}, ptr %pb, {n} {ldb}, {real} 0.0, ptr %pc, {n} {cols})
  %i.1 = add i64 %i, 1
  %more = icmp slt i64 %i.1, {batch}
  br i1 %more, label %next, label %out
out:
  ret void
}}
"""


def blas_kernel(node: Node) -> Kernel | None:
    """Return a kernel by which BLAS computes a ``matmul`` node; None without a BLAS or for other products."""
    blas = find_blas()
    if blas is None or node.op.name != "matmul":
        return None
    a, b, c = node.inputs[0].tensor, node.inputs[1].tensor, node.output.tensor
    if len({a.dtype, b.dtype, c.dtype}) != 1 or c.dtype.name not in ("float32", "float64") or c.device != "cpu":
        return None
    transa, transb = bool(node.attrs["transa"]), bool(node.attrs["transb"])
    k, m = a.shape[-2:] if transa else a.shape[:-3:-1]
    cols = c.shape[-1]
    batch = prod(c.shape[:-2])
    # Every operand has all matrices of the batch, or one that is broadcast.
    if not c.size or not k or prod(a.shape[:-2]) not in (1, batch) or prod(b.shape[:-2]) not in (1, batch):
        return None
    single = c.dtype.name == "float32"
    text = _TEXT.format(
        letter="s" if single else "d", real="float" if single else "double", n=f"i{blas.integer}",
        narrow="add i64 %rows.wide, 0" if blas.integer == 64 else "trunc i64 %rows.wide to i32",
        m=m, cols=cols, k=k, ta=112 if transa else 111, tb=112 if transb else 111, lda=m if transa else k,
        ldb=k if transb else cols, step_a=1 if transa else k, batch=batch,
        batch_a=m * k if prod(a.shape[:-2]) > 1 else 0, batch_b=k * cols if prod(b.shape[:-2]) > 1 else 0,
        batch_c=m * cols)
    return Kernel("llvm", _SYMBOL, text, flops=2 * batch * m * k * cols, bytes=a.nbytes + b.nbytes + c.nbytes)


def with_blas(program: Program, everywhere: bool = False) -> Program:
    """Return ``program`` with BLAS for the products that Python would compute, or for all products without an epilogue.

    The latter serves to compare our kernels with another library's.
    """
    def with_kernel(r: Instruction) -> Instruction:
        kernel = blas_kernel(r.node) if everywhere or r.kernel is None else None
        return r if kernel is None else Instruction(kernel, (*r.node.inputs, *r.node.outputs), r.node)
    return replace(program, instructions=tuple(map(with_kernel, program.instructions)))
