"""Threads that keep sums of their own: a square of them, each with a few rows and columns of the tile."""
from __future__ import annotations

from dataclasses import dataclass

from kusari.ir import DType

from ..text.kernel import KernelText
from ..text.types import type_name
from .tiles import BLOCK_THREADS, SIDE_THREADS, Factor, Inner, Shape, Store, sum_type

PACK_ELEMENTS = 4  # of a factor that a thread reads from shared memory at once


class Registers(Inner):
    """Sums in registers, a product at a time: floats are added by ``fma``, integers wrap around."""

    def __init__(self, text: KernelText, shape: Shape, dtype: DType, a: Factor, b: Factor) -> None:
        self.text, self.shape, self.dtype = text, shape, dtype
        self.rows, self.columns = (_Packs(extent) for extent in shape.per_thread)
        self.factors = a, b
        self.arrays = [text.shared(text.pack(f.dtype, packs.width), shape.step * packs.stride)
                       for f, packs in zip(self.factors, (self.rows, self.columns), strict=True)]

    def begin(self) -> None:
        text, (left, right) = self.text, self.arrays
        count = self.rows.extent * self.columns.extent
        text.line(f"const int y = THREAD / {SIDE_THREADS}, x = THREAD % {SIDE_THREADS};")
        text.line(f"{sum_type(self.dtype)} sums[{count}];")
        text.line(f"UNROLL for (int i = 0; i < {count}; ++i) sums[i] = 0;")
        a, b = self.factors
        self.pieces = [_Piece(text, "row", self.rows, self.shape.m, a, left, self.shape.step),
                       _Piece(text, "column", self.columns, self.shape.n, b, right, self.shape.step)]

    def multiply(self) -> None:
        text, (left, right), columns = self.text, self.arrays, self.columns.extent
        own = sum_type(self.dtype)
        with text.block(f"UNROLL for (int k = 0; k < {self.shape.step}; ++k)"):
            for name, array, packs, place, f in (("one", left, self.rows, "y", self.factors[0]),
                                                 ("other", right, self.columns, "x", self.factors[1])):
                text.line(f"{text.pack(f.dtype, packs.width)} {name}[{packs.count}];")
                text.line(f"UNROLL for (int i = 0; i < {packs.count}; ++i) "
                          f"{name}[i] = {array}[k * {packs.stride} + {place} + i * {SIDE_THREADS}];")
            one, other = self.rows.element("one", "i"), self.columns.element("other", "j")
            place = f"sums[i * {columns} + j]"
            if self.dtype.kind == "f":
                text.line(f"{self._both()} {place} = fma{'f' if own == 'f32' else ''}({one}, {other}, {place});")
            else:
                text.line(f"{self._both()} {place} += ({own}){one} * ({own}){other};")

    def results(self, store: Store) -> None:
        text = self.text
        with text.block(self._both()):
            text.line(f"const {text.index} row = row0 + {self.rows.place('y', 'i')};")
            text.line(f"const {text.index} column = column0 + {self.columns.place('x', 'j')};")
            with text.block(f"if (row < {self.shape.m} && column < {self.shape.n})"):
                store("row", "column", f"sums[i * {self.columns.extent} + j]")

    def _both(self) -> str:
        return (f"UNROLL for (int i = 0; i < {self.rows.extent}; ++i) "
                f"UNROLL for (int j = 0; j < {self.columns.extent}; ++j)")


@dataclass(frozen=True)
class _Packs:
    """Rows or columns of a tile: ``extent`` for each thread, in packs of neighbours, which are read at once."""

    extent: int

    @property
    def width(self) -> int:
        """Elements of a pack."""
        return min(self.extent, PACK_ELEMENTS)

    @property
    def count(self) -> int:
        """Packs of a thread."""
        return self.extent // self.width

    @property
    def side(self) -> int:
        """Elements of a tile."""
        return self.extent * SIDE_THREADS

    @property
    def stride(self) -> int:
        """Packs between neighbours along the sums in shared memory; one more than there are, for its banks."""
        return self.count * SIDE_THREADS + 1

    def element(self, array: str, number: str) -> str:
        """An element of a thread's packs."""
        return f"{array}[{number} / {self.width}].at[{number} % {self.width}]"

    def place(self, thread: str, number: str) -> str:
        """The place in the tile of an element of a thread."""
        pack = f"({thread} + {number} / {self.width} * {SIDE_THREADS})"
        return f"{pack} * {self.width} + {number} % {self.width}"


class _Piece:
    """A piece of a factor: it waits in registers while the one before is used, and then goes to shared memory.

    Neighbouring threads read neighbours in memory, several each where they lie at multiples. A thread keeps its place
    along the faster axis: what depends on that alone is computed once, outside of all loops. Packs do not outlive the
    branch that reads them, as pocl mistakes their bytes then.
    """

    def __init__(self, text: KernelText, name: str, packs: _Packs, end: int, factor: Factor, array: str,
                 step: int) -> None:
        self.text, self.name, self.packs, self.end, self.factor, self.array = text, name, packs, end, factor, array
        self.lanes = factor.packed(packs.side * step // BLOCK_THREADS)
        inner = (step if factor.along_k else packs.side) // self.lanes
        fast = f"THREAD % {inner}{f' * {self.lanes}' if self.lanes > 1 else ''}"
        slow = f"THREAD / {inner} + i * {BLOCK_THREADS // inner}"
        self.near, self.step = (slow, fast) if factor.along_k else (fast, slow)
        self.count = packs.side * step // BLOCK_THREADS // self.lanes
        self.waiting = text.name("waiting")
        text.line(f"{type_name(factor.dtype)} {self.waiting}[{self.count * self.lanes}];")
        if self.lanes > 1:
            self.aligned = aligned(text, factor, self.lanes)

    def fetch(self, start: str, last: str) -> None:
        """Read this thread's elements from ``start`` on; zeros from ``last`` on."""
        text, name, factor, lanes = self.text, self.name, self.factor, self.lanes
        with text.block(f"UNROLL for (int i = 0; i < {self.count}; ++i)"):
            text.line(f"const {text.index} {name} = {name}0 + ({self.near}), k = {start} + ({self.step});")
            if lanes > 1:
                each = f"UNROLL for (int lane = 0; lane < {lanes}; ++lane) {self.waiting}[i * {lanes} + lane] ="
                pack = text.pack(factor.dtype, lanes)
                assert factor.place is not None
                text.line(f"{each} 0;")
                with text.block(f"if ({name} < {self.end} && k < {last})"):
                    source = source_of(text, factor, factor.place(name, "k"))
                    with text.block(f"if ({self.aligned})"):
                        text.line(f"const {pack} found = *(GLOBAL const {pack} *){source};")
                        text.line(f"{each} found.at[lane];")
                    with text.block("else"):
                        text.line(f"{each} {source}[lane];")
                return
            text.line(f"{type_name(factor.dtype)} element = 0;")
            with text.block(f"if ({name} < {self.end} && k < {last})"):
                text.line(f"element = {factor.element(name, 'k')};")
            text.line(f"{self.waiting}[i] = element;")

    def put(self) -> None:
        """Write the elements to shared memory."""
        text, width, stride, lanes = self.text, self.packs.width, self.packs.stride, self.lanes
        with text.block(f"UNROLL for (int i = 0; i < {self.count}; ++i)"):
            text.line(f"const int near = {self.near}, step = {self.step};")
            each = f"UNROLL for (int lane = 0; lane < {lanes}; ++lane)"
            if lanes == 1:
                text.line(f"{self.array}[step * {stride} + near / {width}].at[near % {width}] = {self.waiting}[i];")
            elif not self.factor.along_k and lanes == width:
                text.line(f"{text.pack(self.factor.dtype, lanes)} whole;")
                text.line(f"{each} whole.at[lane] = {self.waiting}[i * {lanes} + lane];")
                text.line(f"{self.array}[step * {stride} + near / {width}] = whole;")
            else:
                near, step = ("near", "(step + lane)") if self.factor.along_k else ("(near + lane)", "step")
                text.line(f"{each} {self.array}[{step} * {stride} + {near} / {width}].at[{near} % {width}] = "
                          f"{self.waiting}[i * {lanes} + lane];")


def source_of(text: KernelText, factor: Factor, at: str) -> str:
    """Declare where elements of a factor lie."""
    text.line(f"GLOBAL const {text.storage(factor.operand)} *source = p{factor.operand} + ({at});")
    return "source"


def aligned(text: KernelText, factor: Factor, lanes: int) -> str:
    """Declare whether so many neighbours of a factor may be read where they lie: arrays of callers begin anywhere."""
    return text.const("aligned", "int", f"ADDRESS(p{factor.operand}) % {lanes * factor.dtype.itemsize} == 0")
