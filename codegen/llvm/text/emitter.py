"""The text of one LLVM IR function, written from top to bottom.

An ``Index`` is an i64: a Python int while it is known, an ``I64`` otherwise. So arithmetic on known indices happens in
Python, and the text holds constants wherever a shape is constant.
"""
from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from kusari.ir import DType, with_parts

from ...target import Target
from .index import I64, Index
from .types import constant, constants, memory_type, size_of, splat, suffix, symbol_of, vector

_PART_BYTES = 16  # of the parts of long vectors within which most shuffles move elements
_ZEROS = "zeroinitializer"

Valid = int | str | None  # the first lanes of a vector that count, or an SSA value with a bit for each; None for all


@dataclass
class Carried:
    """Values that a loop carries from turn to turn, with their LLVM types."""

    types: Sequence[str]
    values: list[str]


class Emitter:
    """Writes ``void @symbol(ptr %slots, i64 %tid, i64 %nth)``, or a function of other ``parameters``.

    Invariant: names are invented in order of writing, so equal sequences of calls give equal text. It refers to nothing
    that refers to it: its lines are released with the last of those, and do not wait for the garbage collector.
    """

    def __init__(self, symbol: str, target: Target,
                 parameters: Sequence[str] = ("ptr noalias %slots", "i64 %tid", "i64 %nth")) -> None:
        self.symbol = symbol
        self.target = target
        self.module = ""  # of a function that other texts may have, too
        self._linkage = ("", "nounwind")
        self._parameters = parameters  # types and names
        self._functions: list[Emitter] = []
        self._lines: list[str] = []
        self._count = 0
        self._block = "entry"
        self._declared: dict[str, Emitter | None] = {}  # with what the text brings of it
        self._globals: dict[str, str] = {}  # constants of the module: their names
        self._metadata: list[str] = []

    @property
    def tid(self) -> I64:
        """The number of this thread."""
        return I64(self, "%tid")

    @property
    def nth(self) -> I64:
        """How many threads share the work."""
        return I64(self, "%nth")

    # Text

    def line(self, text: str) -> None:
        """Write an instruction without a result."""
        self._lines.append("  " + text)

    def value(self, text: str, prefix: str = "v") -> str:
        """Write an instruction and return the name of its result."""
        name = f"%{self._fresh(prefix)}"
        self.line(f"{name} = {text}")
        return name

    def _fresh(self, prefix: str) -> str:
        self._count += 1
        return f"{prefix}{self._count}"

    def _label(self, label: str) -> None:
        self._lines.append(f"{label}:")
        self._block = label

    def declare(self, text: str, part: Emitter | None = None) -> None:
        """Declare an outside function once per module; it may be a ``part`` of this text."""
        self._declared.setdefault(f"declare {text}", part)

    def table(self, element: str, values: Sequence[float | int]) -> str:
        """A constant array of the module; returns a pointer to it."""
        body = ", ".join(f"{element} {constant(element, v)}" for v in values)
        text = f"private unnamed_addr constant [{len(values)} x {element}] [{body}], align 64"
        return self._globals.setdefault(text, f"@{self.symbol}.t{len(self._globals)}")

    def function(self, name: str, parameters: Sequence[str]) -> Emitter:
        """A second function of the module, ``void`` and never inlined: its constants stay out of this one's registers.

        ``parameters`` are types and names, as ``i64 %row``; ``call`` calls it.
        """
        inner = Emitter(f"{self.symbol}.{name}", self.target, parameters)
        inner._linkage = ("internal ", "noinline nounwind")
        inner._declared, inner._globals, inner._metadata = self._declared, self._globals, self._metadata
        self._functions.append(inner)
        return inner

    @property
    def numbers(self) -> list[I64]:
        """The parameters that are integers, in order."""
        return [I64(self, p.removeprefix("i64 ")) for p in self._parameters if p.startswith("i64 ")]

    def call(self, function: Emitter, *arguments: object) -> None:
        """Call a function made by ``function``, or a ``finished`` one; arguments are written as they print."""
        types = [p.partition(" ")[0] for p in function._parameters]
        if function.module:
            self.declare(f"void @{function.symbol}({', '.join(types)})", function)
        typed = [f"{t} {x}" for t, x in zip(types, arguments, strict=True)]
        self.line(f"call void @{function.symbol}({', '.join(typed)})")

    def text(self) -> str:
        """The whole module, and those of the parts that it calls."""
        rows = [*(f"{name} = {text}" for text, name in self._globals.items()), *self._declared]
        for f in (*self._functions, self):
            internal, attributes = f._linkage
            rows += [f"define {internal}void @{f.symbol}({', '.join(f._parameters)}) {attributes} {{", "entry:",
                     *f._lines, "  ret void", "}", ""]
        parts = {f.symbol: f.module for f in self._declared.values() if f is not None}
        return with_parts("\n".join(rows) + "".join(self._metadata), parts)

    def only_calls(self) -> None:
        """Have this function emitted as it is written, in less time: the functions that it calls take longer by far."""
        self._linkage = (self._linkage[0], "noinline optnone nounwind")

    def finished(self) -> Emitter:
        """This function, all of whose text is written, as a module of its own: texts that call it share its code."""
        self.symbol = symbol_of(self.symbol, self.text())
        self.module = self.text()
        return self

    # Indices

    def i64(self, text: str) -> I64:
        """Write an instruction whose result is an index."""
        return I64(self, self.value(text))

    def size(self, n: int) -> Index:
        """A size as an index: known, but where a text is for any size."""
        return self.i64(f"add i64 {n}, 0") if self.target.any_size else n

    def divmod(self, a: Index, b: Index) -> tuple[Index, Index]:
        """Quotient and remainder of numbers that are not negative."""
        quotient = a // b
        return quotient, a - quotient * b

    def min(self, a: Index, b: Index) -> Index:
        """The smaller one."""
        if isinstance(a, int) and isinstance(b, int):
            return min(a, b)
        return I64(self, self.intrinsic("smin", "i64", 1, f"{a}", f"{b}"))

    def max(self, a: Index, b: Index) -> Index:
        """The larger one."""
        if isinstance(a, int) and isinstance(b, int):
            return max(a, b)
        return I64(self, self.intrinsic("smax", "i64", 1, f"{a}", f"{b}"))

    def choose(self, condition: str, a: Index, b: Index) -> Index:
        """``a`` if the condition holds, else ``b``."""
        return self.i64(f"select i1 {condition}, i64 {a}, i64 {b}")

    def compare(self, predicate: str, a: Index, b: Index) -> str:
        """An i1: ``predicate`` is ``eq ne slt sle sgt sge ult``."""
        return self.value(f"icmp {predicate} i64 {a}, {b}")

    def chunk(self, n: Index, multiple: int = 1) -> tuple[Index, Index]:
        """This thread's part ``[lo, hi)`` of ``range(n)``, cut at multiples of ``multiple``; it may be empty."""
        pieces = (n + (multiple - 1)) // multiple
        lo = self.tid * pieces // self.nth * multiple
        hi = (self.tid + 1) * pieces // self.nth * multiple
        exact = multiple == 1 or (isinstance(n, int) and n % multiple == 0)
        return (lo, hi) if exact else (self.min(lo, n), self.min(hi, n))

    # Control

    def each(self, lo: Index, hi: Index, step: Index = 1, carried: Carried | None = None,
             until: Callable[[list[str]], str] | None = None) -> Iterator[Index]:
        """``for i in em.each(lo, hi, step):`` writes the loop of which Python runs the body once.

        An empty range runs nothing; a range known to have one turn has no jump. The body replaces the values that are
        ``carried`` by the next ones; ``until`` decides by them whether a turn was the last.
        """
        carried = carried or Carried((), [])
        initial, known = carried.values, False
        if isinstance(lo, int) and isinstance(hi, int):
            known = True
            if lo >= hi:
                return
            if isinstance(step, int) and lo + step >= hi:
                yield lo
                return
        before, top, done = self._block, self._fresh("loop"), self._fresh("done")
        self.line(f"br label %{top}" if known else
                  f"br i1 {self.compare('slt', lo, hi)}, label %{top}, label %{done}")
        self._label(top)
        i = f"%{self._fresh('i')}"
        phis = [f"%{self._fresh('c')}" for _ in initial]
        place = len(self._lines)
        self._lines.extend([""] * (1 + len(phis)))
        carried.values = list(phis)
        yield I64(self, i)
        last = carried.values
        if len(last) != len(phis):
            raise ValueError(f"the loop carries {len(phis)} values, its body left {len(last)}")
        # Frozen: LLVM then leaves addresses as they are written, a base and the counter. To reduce them in strength
        # takes a quarter of the time of compiling, and kernels are as fast.
        following = self.value(f"add nsw i64 {self.value(f'freeze i64 {i}')}, {step}")
        end = self._block
        self._lines[place] = f"  {i} = phi i64 [{lo}, %{before}], [{following}, %{end}]"
        for k, (name, ty, first) in enumerate(zip(phis, carried.types, initial, strict=True)):
            self._lines[place + 1 + k] = f"  {name} = phi {ty} [{first}, %{before}], [{last[k]}, %{end}]"
        again = self.value(f"icmp slt i64 {following}, {hi}")
        if until is not None:
            again = self.value(f"select i1 {until(last)}, i1 false, i1 {again}")
        self.line(f"br i1 {again}, label %{top}, label %{done}")
        self._label(done)
        if not known:
            carried.values = [self.value(f"phi {ty} [{first}, %{before}], [{v}, %{end}]")
                              for ty, first, v in zip(carried.types, initial, last, strict=True)]

    def _weights(self, yes: int, no: int) -> str:
        number = len(self._metadata)
        self._metadata.append(f'!{number} = !{{!"branch_weights", i32 {yes}, i32 {no}}}\n')
        return f", !prof !{number}"

    @contextmanager
    def only(self, condition: str, rare: bool = False) -> Generator[None]:
        """``with em.only(condition):`` writes a branch that runs if the condition holds."""
        yes, join = self._fresh("then"), self._fresh("join")
        self.line(f"br i1 {condition}, label %{yes}, label %{join}{self._weights(1, 1000) if rare else ''}")
        self._label(yes)
        yield
        self.line(f"br label %{join}")
        self._label(join)

    def either(self, condition: str, rare: bool = False) -> Iterator[bool]:
        """``for holds in em.either(condition):`` writes one branch and then the other: Python runs the body twice.

        LLVM moves branches out of the way whose condition is ``rare``.
        """
        yes, join, no = self._fresh("then"), self._fresh("join"), self._fresh("else")
        self.line(f"br i1 {condition}, label %{yes}, label %{no}{self._weights(1, 1000) if rare else ''}")
        for holds, label in ((True, yes), (False, no)):
            self._label(label)
            yield holds
            self.line(f"br label %{join}")
        self._label(join)

    def when(self, condition: str, then: Callable[[], Sequence[str]], otherwise: Callable[[], Sequence[str]],
             types: Sequence[str]) -> list[str]:
        """If and else that return values of ``types``; returns those of the branch that runs."""
        ends = [((then if holds else otherwise)(), self._block) for holds in self.either(condition)]
        if any(len(values) != len(types) for values, _ in ends):
            raise ValueError(f"both branches must give {len(types)} values, they gave {[len(v) for v, _ in ends]}")
        return [self.value(f"phi {ty} " + ", ".join(f"[{values[k]}, %{end}]" for values, end in ends))
                for k, ty in enumerate(types)]

    # Memory

    def slot(self, index: Index) -> str:
        """The pointer in slot ``index``."""
        return self.value(f"load ptr, ptr {self.gep('%slots', index, 'ptr')}", "s")

    def gep(self, pointer: str, index: Index, element: str) -> str:
        """``pointer`` moved by ``index`` elements."""
        if index == 0:
            return pointer
        return self.value(f"getelementptr inbounds {element}, ptr {pointer}, i64 {index}", "p")

    def load(self, element: str, width: int, pointer: str, valid: Valid = None) -> str:
        """``width`` neighbours; only the first ``valid`` are read, or those of a mask, the others are zero."""
        if isinstance(valid, str):
            return self.load_lanes(element, width, pointer, valid)
        ty, bytes_ = vector(element, width), size_of(element)
        if valid is None or self._is_whole(width, valid):
            return self.value(f"load {ty}, ptr {pointer}, align {bytes_}")
        if valid == 1 and not self.target.any_size:  # as in store
            x = self.value(f"load {element}, ptr {pointer}, align {bytes_}")
            return self.value(f"insertelement {ty} zeroinitializer, {element} {x}, i64 0")
        return self.load_lanes(element, width, pointer, constants("i1", [i < valid for i in range(width)]))

    def _is_whole(self, width: int, valid: int) -> bool:
        """Whether no mask is written for the first ``valid`` of ``width`` neighbours."""
        return valid >= width and (width == 1 or not self.target.any_size)

    def load_lanes(self, element: str, width: int, pointer: str, mask: str) -> str:
        """Load ``width`` neighbours; elements that the vector of i1 ``mask`` leaves out are zero, and not read."""
        ty, bits = vector(element, width), vector("i1", width)
        name = f"@llvm.masked.load.{suffix(element, width)}.p0"
        self.declare(f"{ty} {name}(ptr, i32, {bits}, {ty})")
        return self.value(
            f"call {ty} {name}(ptr {pointer}, i32 {size_of(element)}, {bits} {mask}, {ty} zeroinitializer)")

    def entry(self, table: str, index: Index = 0) -> Index:
        """Element ``index`` of a table of i64."""
        return I64(self, self.load("i64", 1, self.gep(table, index, "i64")))

    def row(self, table: str, number: Index, words: int) -> list[Index]:
        """Row ``number`` of a table of i64 that has rows of so many."""
        start = self.gep(table, number * words, "i64")
        return [self.entry(start, k) for k in range(words)]

    def rows(self, table: str, count: Index, words: int) -> Iterator[list[Index]]:
        """Loops over the first ``count`` rows of such a table; the counter is of words, which addresses scale alone."""
        for at in self.each(0, count * words, words):
            yield self.row(self.gep(table, at, "i64"), 0, words)

    def store(self, element: str, width: int, x: str, pointer: str, valid: Valid = None) -> None:
        """Write ``width`` neighbours, or only the first ``valid``, or those of a mask."""
        if isinstance(valid, str):
            self.store_lanes(element, width, x, pointer, valid)
            return
        ty, bytes_ = vector(element, width), size_of(element)
        if valid is None or self._is_whole(width, valid):
            self.line(f"store {ty} {x}, ptr {pointer}, align {bytes_}")
            return
        if valid == 1 and not self.target.any_size:
            # LLVM 22 makes one store of a truncated number and a mask of one lane, and writes all of the number. Texts
            # for any size become kernels whose masks are not constant.
            self.line(f"store {element} {self.lane(element, width, x, 0)}, ptr {pointer}, align {bytes_}")
            return
        self.store_lanes(element, width, x, pointer, constants("i1", [i < valid for i in range(width)]))

    def first_lanes(self, width: int, count: Index) -> str:
        """A mask of as many lanes as a number known at run time."""
        short = self.value(f"trunc i64 {count} to i32")
        lanes = ", ".join(f"i32 {i}" for i in range(width))
        return self.value(f"icmp ult {vector('i32', width)} <{lanes}>, {self.broadcast('i32', width, short)}")

    def store_lanes(self, element: str, width: int, x: str, pointer: str, mask: str) -> None:
        """Write those of ``width`` neighbours that the vector of i1 ``mask`` does not leave out."""
        ty, bits = vector(element, width), vector("i1", width)
        name = f"@llvm.masked.store.{suffix(element, width)}.p0"
        self.declare(f"void {name}({ty}, ptr, i32, {bits})")
        self.line(f"call void {name}({ty} {x}, ptr {pointer}, i32 {size_of(element)}, {bits} {mask})")

    def read(self, dtype: DType, width: int, base: str, index: Index, stride: Index = 1,
             valid: Valid = None) -> str:
        """A vector of the elements ``index``, ``index + stride`` … of an array; a stride of 0 broadcasts one.

        Only neighbours can have a mask.
        """
        element = memory_type(dtype)
        pointer = self.gep(base, index, element)
        if stride == 0:
            x = self.broadcast(element, width, self.load(element, 1, pointer))
        elif stride == 1 or width == 1:
            x = self.load(element, width, pointer, valid)
        else:
            assert not isinstance(valid, str)
            some = width if valid is None else min(valid, width)
            x = self.collect(element, width, (self.load(element, 1, self.gep(pointer, lane * stride, element))
                                              for lane in range(some)), zeros=some < width)
        if dtype.kind == "b":
            x = self.value(f"icmp ne {vector('i8', width)} {x}, {splat('i8', width, 0)}")
        return x

    def write(self, dtype: DType, width: int, x: str, base: str, index: Index, stride: Index = 1,
              valid: Valid = None) -> None:
        """Write a vector to the elements ``index``, ``index + stride`` … of an array, as ``read``."""
        element = memory_type(dtype)
        if dtype.kind == "b":
            x = self.value(f"zext {vector('i1', width)} {x} to {vector('i8', width)}")
        pointer = self.gep(base, index, element)
        if stride == 1 or width == 1:
            self.store(element, width, x, pointer, valid)
            return
        assert not isinstance(valid, str)
        for lane in range(width if valid is None else min(valid, width)):
            part = self.value(f"extractelement {vector(element, width)} {x}, i64 {lane}")
            self.store(element, 1, part, self.gep(pointer, lane * stride, element))

    def clear(self, pointer: str, size: Index) -> None:
        """Set ``size`` bytes to zero."""
        self.declare("void @llvm.memset.p0.i64(ptr, i8, i64, i1)")
        self.line(f"call void @llvm.memset.p0.i64(ptr {pointer}, i8 0, i64 {size}, i1 false)")

    # Values

    def prefetch(self, pointer: str) -> None:
        """Bring the cache line at ``pointer`` closer, for reading; any address will do."""
        self.declare("void @llvm.prefetch.p0(ptr, i32, i32, i32)")
        self.line(f"call void @llvm.prefetch.p0(ptr {pointer}, i32 0, i32 2, i32 1)")

    def broadcast(self, element: str, width: int, scalar: str) -> str:
        """A vector of ``width`` copies of an SSA scalar."""
        if width == 1:
            return scalar
        ty = vector(element, width)
        first = self.value(f"insertelement {ty} poison, {element} {scalar}, i64 0")
        return self.value(f"shufflevector {ty} {first}, {ty} poison, <{width} x i32> zeroinitializer")

    def collect(self, element: str, width: int, scalars: Iterable[str], zeros: bool = False) -> str:
        """A vector of ``scalars``, each written right before it is put in; lanes without one are undefined or zeros."""
        if width == 1:
            return next(iter(scalars))
        x = "zeroinitializer" if zeros else "poison"
        for lane, one in enumerate(scalars):
            x = self.value(f"insertelement {vector(element, width)} {x}, {element} {one}, i64 {lane}")
        return x

    def intrinsic(self, name: str, element: str, width: int, *args: str, flags: str = "") -> str:
        """``llvm.<name>`` whose operands and result all have one type."""
        ty = vector(element, width)
        full = f"@llvm.{name}.{suffix(element, width)}"
        self.declare(f"{ty} {full}({', '.join([ty] * len(args))})")
        return self.value(f"call {flags + ' ' if flags else ''}{ty} {full}({', '.join(f'{ty} {a}' for a in args)})")

    def fma(self, element: str, width: int, a: str, b: str, c: str) -> str:
        """``a * b + c``, rounded once where the target can."""
        return self.intrinsic("fma" if self.target.has_fma else "fmuladd", element, width, a, b, c)

    def binary(self, op: str, element: str, width: int, a: str, b: str) -> str:
        """An instruction of two operands and a result of one type, as ``fadd`` or ``xor``."""
        return self.value(f"{op} {vector(element, width)} {a}, {b}")

    def select(self, element: str, width: int, condition: str, a: str, b: str) -> str:
        """``a`` where the bits of ``condition`` are set, else ``b``."""
        ty = vector(element, width)
        return self.value(f"select {vector('i1', width)} {condition}, {ty} {a}, {ty} {b}")

    def shuffle(self, element: str, width: int, a: str, b: str, lanes: Sequence[int]) -> str:
        """``lanes`` of the concatenation of ``a`` and ``b``."""
        ty = vector(element, width)
        order = ", ".join(f"i32 {i}" for i in lanes)
        return self.value(f"shufflevector {ty} {a}, {ty} {b}, <{len(lanes)} x i32> <{order}>")

    def transpose(self, element: str, rows: Sequence[str]) -> list[str]:
        """As many vectors as each has lanes, transposed; some of ``rows`` may be zeros.

        Each step puts halves of pairs of vectors together as processors have instructions for: first elements in turns
        within parts of ``_PART_BYTES``, then such parts. A fence between steps of long vectors keeps LLVM from looking
        for other shuffles that do several at once, which takes most of the time to compile a product.
        """
        width = len(rows)
        result = list(rows)
        part = min(width, _PART_BYTES // size_of(element))
        within = [(i + j // 2, i + j // 2 + width)[j % 2] for i in range(0, width, part) for j in range(part)]
        whole = [i + j for i in range(0, 2 * width, 2 * part) for j in range(part)]
        steps = [1 << k for k in range(width.bit_length() - 1)]
        steps = [*reversed([s for s in steps if s < part]), *[s for s in steps if s >= part]]
        fenced = width > part and element in ("float", "double")
        for step in steps:
            low, more = (within, part // 2) if step < part else (whole, part)
            high = [p + more for p in low]
            for i in range(width):
                x, y = result[i], result[i | step]
                if i & step or x == y == _ZEROS:
                    continue
                for k, lanes in ((i, low), (i | step, high)):
                    result[k] = self.shuffle(element, width, x, y, lanes)
                    if fenced and step != steps[-1]:
                        result[k] = self.intrinsic("arithmetic.fence", element, width, result[k])
        return result

    def lane(self, element: str, width: int, x: str, lane: int) -> str:
        """One element of a vector."""
        return self.value(f"extractelement {vector(element, width)} {x}, i64 {lane}")

    def horizontal(self, op: str, element: str, width: int, x: str) -> str:
        """Fold the lanes of a vector with a two-operand instruction such as ``fadd``; a tree, so its order is fixed."""
        while width > 2:
            width //= 2
            low, high = (self.shuffle(element, 2 * width, x, "poison", range(at, at + width)) for at in (0, width))
            x = self.binary(op, element, width, low, high)
        if width == 1:
            return x
        return self.binary(op, element, 1, self.lane(element, 2, x, 0), self.lane(element, 2, x, 1))
