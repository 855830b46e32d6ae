"""LLVM IR text of ``foreach``: one pointwise body over many tensors, their elements shared evenly among threads."""
from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate

from kusari.ir import PRIMITIVES, Builder, Graph, Kernel, Node, TensorType, Value
from kusari.ir.nest import Nest, nest_of

from ...sweeps import cost
from ...target import Target
from ..text.emitter import Emitter, Index
from .points import Points, Scope
from .writer import lanes_of


def foreach_kernel(node: Node, target: Target) -> Kernel:
    """Return the kernel of a ``foreach`` node; its slots are the node's inputs, then its outputs."""
    shared, arity = int(node.attrs["shared"]), int(node.attrs["arity"])
    exprs = tuple(node.attrs["exprs"])
    groups = (len(node.inputs) - shared) // arity
    sizes = [node.inputs[shared + g * arity].tensor.size for g in range(groups)]
    nest = _nest(node, shared, arity)
    em = Emitter("foreach", target)
    _Writer(em, nest, shared, arity, len(exprs), sizes).write()
    work = sum(map(cost, nest.steps)) * sum(sizes)
    moved = sum(v.tensor.nbytes for v in (*node.inputs, *node.outputs))
    return Kernel("llvm", "foreach", em.text(), 0, work, moved)


def _nest(node: Node, shared: int, arity: int) -> Nest:
    """The body at a few points: its extent does not matter, shared operands have a stride of 0."""
    inputs = [Value(v.type) for v in node.inputs[:shared]]
    inputs += [Value(TensorType(v.tensor.dtype, (2,))) for v in node.inputs[shared:shared + arity]]
    b = Builder()
    outputs = tuple(v for e in node.attrs["exprs"] for v in b.emit(PRIMITIVES["map"], *inputs, expr=e))
    return nest_of(Graph("body", tuple(inputs), (), (), tuple(b.nodes), outputs))


class _Writer:
    """Blocks of all tensors are numbered through; a thread takes a run of them, tensor after tensor.

    Invariant: the elements after a tensor's last whole block belong to the thread that has the tensor's last block.
    """

    def __init__(self, em: Emitter, nest: Nest, shared: int, arity: int, outputs: int, sizes: Sequence[int]) -> None:
        self.em, self.nest = em, nest
        self.shared, self.arity, self.outputs = shared, arity, outputs
        # Vectors of two registers, then of one, then single elements.
        self.widths = [lanes_of(nest, em.target) * k for k in (2, 1)] + [1]
        self.block = self.widths[0]
        self.sizes = sizes
        self.marks = (True,) * len(nest.steps)

    def write(self) -> None:
        """Write the loop over tensors."""
        em = self.em
        starts = [0, *accumulate(-(-n // self.block) for n in self.sizes)]
        table = em.table("i64", [x for pair in zip(starts[:-1], starts[1:], self.sizes, strict=True) for x in pair])
        scalars = [em.slot(i) for i in range(self.shared)]
        lo, hi = em.chunk(starts[-1])
        ways = [self._prepare(scalars, w) for w in dict.fromkeys(self.widths)]
        for t in em.each(0, len(self.sizes)):
            first, after, size = em.row(table, t, 3)
            begin = em.max(lo, first) - first
            end = em.min(hi, after) - first
            with em.only(em.compare("slt", begin, end)):
                self._tensor(t, begin, end, first, after, size, ways)

    def _prepare(self, scalars: Sequence[str], width: int) -> tuple[Points, Scope]:
        """Values that depend on the shared scalars only, computed once, outside the loop over tensors."""
        missing = len(self.nest.operands) - self.shared + len(self.nest.outputs)
        points = Points(self.em, self.nest, width, [*scalars, *["null"] * missing])
        scope = points.root()
        points.fill(scope, 0, self.marks, 0)
        return points, scope

    def _tensor(self, t: Index, begin: Index, end: Index, first: Index, after: Index, size: Index,
                ways: Sequence[tuple[Points, Scope]]) -> None:
        em = self.em
        base = t * self.arity + self.shared
        outs = t * self.outputs + (self.shared + len(self.sizes) * self.arity)
        pointers = [em.load("ptr", 1, em.gep("%slots", base + k, "ptr")) for k in range(self.arity)]
        pointers += [em.load("ptr", 1, em.gep("%slots", outs + k, "ptr")) for k in range(self.outputs)]
        for points, _ in ways:
            points.pointers[self.shared:] = pointers
        whole = size // self.block
        stop = em.min(end, whole)
        for i in em.each(begin * self.block, stop * self.block, self.block):
            self._vector(*ways[0], i)
        with em.only(em.compare("eq", end + first, after)):
            start = whole * self.block
            for points, scope in ways[1:]:
                stop = size // points.width * points.width
                for i in em.each(start, stop, points.width):
                    self._vector(points, scope, i)
                start = stop

    def _vector(self, points: Points, root: Scope, at: Index) -> None:
        scope = points.enter(root, 0, at)
        points.fill(scope, 1, self.marks, 0)
        for o, step in enumerate(self.nest.results):
            points.store(scope, o, step)
