"""The text of one kernel: its parameters, its lines, and the memory that the threads of a block share."""
from __future__ import annotations

from collections.abc import Generator, Sequence
from contextlib import contextmanager

from kusari.ir import DType, Kernel

from .helpers import Helpers
from .types import loaded, storage_name, stored

MOST_POINTER_OPERANDS = 64  # a kernel with more takes a table of addresses: parameters are 4 KB at most
INT_ELEMENTS = 1 << 30      # up to here a number of an element is an int, whatever is added to it


class KernelText:
    """Collects the lines of a kernel of ``threads`` threads per block, called ``symbol``.

    At least ``resident`` blocks fit a multiprocessor, which bounds the registers of a thread. Operand ``k`` is the
    pointer ``p<k>``. Its slots are those of a ``Kernel``: operands, then what else it asks for.
    """

    def __init__(self, symbol: str, threads: int, operands: Sequence[DType], index: str = "int",
                 by_table: bool = False, resident: int = 1) -> None:
        self.symbol = symbol
        self.threads = threads
        self.resident = resident
        self.operands = list(operands)
        self.index = index
        self.helpers = Helpers()
        self.before: list[str] = []  # lines outside of the function
        self.by_table = by_table or len(operands) > MOST_POINTER_OPERANDS
        self._more: list[tuple[str, str]] = []
        self._lines: list[str] = []
        self._depth = 1
        self._names = 0

    def line(self, text: str) -> None:
        """One line inside the blocks that are open."""
        self._lines.append("    " * self._depth + text)

    @contextmanager
    def block(self, head: str) -> Generator[None]:
        """The lines written meanwhile lie in braces behind ``head``."""
        self.line(f"{head} {{" if head else "{")
        self._depth += 1
        yield
        self._depth -= 1
        self.line("}")

    def name(self, prefix: str) -> str:
        """A name that nothing else has."""
        self._names += 1
        return f"{prefix}_{self._names}"

    def const(self, prefix: str, type_: str, text: str) -> str:
        """A new variable that is never changed."""
        name = self.name(prefix)
        self.line(f"const {type_} {name} = {text};")
        return name

    def shared(self, type_: str, count: int) -> str:
        """An array that the threads of a block share; only outside of all blocks of lines."""
        name = self.name("shared")
        self.line(f"SHARED {type_} {name}[{count}];")
        return name

    def slot(self, storage: str) -> str:
        """A pointer behind the operands, to elements of ``storage``."""
        name = f"p{len(self.operands) + len(self._more)}"
        self._more.append((name, storage))
        return name

    def storage(self, k: int) -> str:
        """The type of an element of operand ``k`` in memory."""
        return storage_name(self.operands[k])

    def read(self, k: int, index: str) -> str:
        """An element of operand ``k``."""
        return loaded(self.operands[k], f"p{k}[{index}]")

    def write(self, k: int, index: str, value: str) -> None:
        """Store an element of operand ``k``."""
        self.line(f"p{k}[{index}] = {stored(self.operands[k], value)};")

    def pack(self, dtype: DType, count: int) -> str:
        """The type of so many neighbours of an array of ``dtype``."""
        return self.helpers.pack(storage_name(dtype), count, dtype.itemsize)

    def kernel(self, blocks: int, flops: int, moved: int, shared: int = 0) -> Kernel:
        """The finished kernel; ``shared`` bytes of the card's memory are left to later kernels of the same node."""
        slots = [(f"p{k}", storage_name(d)) for k, d in enumerate(self.operands)] + self._more
        entry: list[str] = []
        if self.by_table:
            parameters = "GLOBAL const u64 *slots"
            entry = [f"    GLOBAL {t} *{name} = (GLOBAL {t} *)slots[{i}];" for i, (name, t) in enumerate(slots)
                     if self._reads(name)]
        else:
            parameters = ", ".join(f"GLOBAL {t} *{name}" for name, t in slots)
        head = f"KERNEL({self.threads}, {self.resident}) {self.symbol}({parameters}) {{"
        text = "\n".join([*self.before, head, *entry, *self._lines, "}"])
        return Kernel("cuda", self.symbol, f"{self.helpers.text()}{text}\n", 0, flops, moved, shared=shared,
                      blocks=max(1, blocks), threads=self.threads, by_table=self.by_table)

    def _reads(self, name: str) -> bool:
        return any(name in line for line in self._lines)


def int_type(elements: int) -> str:
    """The type of numbers of elements of buffers of at most ``elements``."""
    return "int" if elements < INT_ELEMENTS else "i64"


def affine(terms: Sequence[tuple[str, int]], index: str = "int", start: int = 0) -> str:
    """The sum of names times strides, in the type ``index``."""
    wide = f"({index})" if index != "int" else ""
    parts = [name if stride == 1 else f"{wide}{stride} * {name}" for name, stride in terms if stride]
    if start:
        parts.append(str(start))
    return " + ".join(parts).replace("+ -", "- ") or "0"
