"""Kernels of ``foreach``: one pointwise body over many tensors, of which every block takes a part of one."""
from __future__ import annotations

from collections.abc import Sequence

from kusari.ir import Call, DType, Kernel, Node, walk
from kusari.ir.nest import TRANSCENDENTAL

from ..scalar.expressions import Expressions
from ..text.kernel import KernelText, int_type
from ..text.types import loaded, storage_name, stored
from .layout import BLOCK_THREADS, PACK_BYTES

PART_ELEMENTS = 4096  # of a tensor, for one block


def foreach_kernel(node: Node) -> Kernel:
    """The kernel of a ``foreach`` node; its slots, in a table, are the node's inputs, then its outputs."""
    shared, arity = int(node.attrs["shared"]), int(node.attrs["arity"])
    return _Writer(node, shared, arity).kernel()


class _Writer:
    """Writes one kernel. Invariant: parts of tensors begin at multiples of a pack."""

    def __init__(self, node: Node, shared: int, arity: int) -> None:
        self.node, self.shared, self.arity = node, shared, arity
        self.exprs = tuple(node.attrs["exprs"])
        values = (*node.inputs, *node.outputs)
        self.groups = (len(node.inputs) - shared) // arity
        self.sizes = [node.inputs[shared + g * arity].tensor.size for g in range(self.groups)]
        self.reads: list[DType] = [v.tensor.dtype for v in node.inputs[shared:shared + arity]]
        self.writes: list[DType] = [v.tensor.dtype for v in node.outputs[:len(self.exprs)]]
        self.lanes = PACK_BYTES // max(d.itemsize for d in (*self.reads, *self.writes))
        self.text = KernelText("foreach", BLOCK_THREADS, [v.tensor.dtype for v in values],
                               int_type(max(self.sizes, default=0)), by_table=True)

    def kernel(self) -> Kernel:
        """Write everything."""
        node, text, lanes = self.node, self.text, self.lanes
        starts = [0]
        for n in self.sizes:
            starts.append(starts[-1] + -(-n // PART_ELEMENTS))
        if starts[-1]:
            text.before.append(f"CONSTANT int starts[] = {{{', '.join(map(str, starts))}}};")
            text.before.append(f"CONSTANT {text.index} sizes[] = {{{', '.join(map(str, self.sizes))}}};")
            self._find()
            for k in range(self.shared):
                text.line(f"const {storage_name(node.inputs[k].tensor.dtype)} s{k} = *p{k};")
            tests = [f"ADDRESS({name}) % {lanes * d.itemsize}" for name, d in self._pointers()]
            text.line(f"{text.index} at = first;")
            if lanes > 1:
                with text.block(f"if (({' | '.join(tests)}) == 0)"):
                    text.line(f"const {text.index} whole = first + (last - first) / {lanes} * {lanes};")
                    with text.block(f"for (at += THREAD * {lanes}; at < whole; at += {BLOCK_THREADS * lanes})"):
                        self._packs()
                    text.line("at = whole;")
            with text.block(f"for (at += THREAD; at < last; at += {BLOCK_THREADS})"):
                values = self._values([f"x{k}[at]" for k in range(self.arity)])
                for k, (value, d) in enumerate(zip(values, self.writes, strict=True)):
                    text.line(f"y{k}[at] = {stored(d, value)};")
        moved = sum(v.tensor.nbytes for v in (*node.inputs, *node.outputs))
        calls = {e for expr in self.exprs for e in walk(expr) if isinstance(e, Call)}
        work = sum(20 if c.fn in TRANSCENDENTAL else 1 for c in calls)
        return text.kernel(starts[-1], work * sum(self.sizes), moved)

    def _pointers(self) -> list[tuple[str, DType]]:
        return [*((f"x{k}", d) for k, d in enumerate(self.reads)), *((f"y{k}", d) for k, d in enumerate(self.writes))]

    def _find(self) -> None:
        """The tensor of this block, its part, and pointers."""
        text = self.text
        text.line(f"int tensor = 0, after = {self.groups};")
        with text.block("while (after - tensor > 1)"):
            text.line("const int middle = (tensor + after) / 2;")
            text.line("if (starts[middle] <= BLOCK) tensor = middle; else after = middle;")
        text.line(f"const {text.index} first = (BLOCK - starts[tensor]) * ({text.index}){PART_ELEMENTS};")
        text.line(f"const {text.index} last = first + {PART_ELEMENTS} < sizes[tensor] "
                  f"? first + {PART_ELEMENTS} : sizes[tensor];")
        outputs = self.shared + self.groups * self.arity
        for name, count, start, dtypes in (("x", self.arity, self.shared, self.reads),
                                           ("y", len(self.writes), outputs, self.writes)):
            for k, d in enumerate(dtypes):
                type_ = storage_name(d)
                text.line(f"GLOBAL {type_} *{name}{k} = (GLOBAL {type_} *)slots[{start + k} + tensor * {count}];")

    def _packs(self) -> None:
        text, lanes = self.text, self.lanes
        for k, d in enumerate(self.reads):
            pack = text.pack(d, lanes)
            text.line(f"const {pack} q{k} = *(GLOBAL const {pack} *)(x{k} + at);")
        for k, d in enumerate(self.writes):
            text.line(f"{text.pack(d, lanes)} r{k};")
        with text.block(f"UNROLL for (int lane = 0; lane < {lanes}; ++lane)"):
            values = self._values([f"q{k}.at[lane]" for k in range(self.arity)])
            for k, (value, d) in enumerate(zip(values, self.writes, strict=True)):
                text.line(f"r{k}.at[lane] = {stored(d, value)};")
        for k, d in enumerate(self.writes):
            text.line(f"*(GLOBAL {text.pack(d, lanes)} *)(y{k} + at) = r{k};")

    def _values(self, elements: Sequence[str]) -> list[str]:
        """Write the body at one element."""
        own = [v.tensor.dtype for v in self.node.inputs[:self.shared]]
        args = [(loaded(d, f"s{k}"), d) for k, d in enumerate(own)]
        args += [(loaded(d, x), d) for x, d in zip(elements, self.reads, strict=True)]
        writer = Expressions(self.text.line, args, self.text.helpers)
        return [writer.write(e)[0] for e in self.exprs]
