"""From a plan to a program: every node becomes a row with a kernel, a row that Python runs, or nothing."""
from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Literal

from kusari.ir import Arg, Graph, Kernel, Node, Plan, Program, Row, TensorType, Trait, Value, structure
from kusari.ir.alignment import NotANest
from kusari.ir.nest import Nest, nest_of
from kusari.ir.product import Epilogue, epilogue_of, product_of

from .llvm.foreach import foreach_kernel
from .llvm.gemm import GemmOperand, GemmSpec, gemm_kernel
from .llvm.move import move_kernel
from .llvm.nest import nest_kernel
from .llvm.rows import row_kernel
from .target import Target

Language = Literal["llvm", "numba"]
NestText = Callable[[Nest, Target], Kernel]


def generate(plan: Plan, target: Target, language: Language = "llvm") -> Program:
    """Return the program of ``plan``; raises ``ValueError`` for an unknown language.

    ``"numba"`` writes loop nests as Python functions for Numba; all other kernels stay LLVM IR. Nodes that no kernel
    can be written for are left to Python.
    """
    writer = _Generator(target, _nest_text(language))
    rows: list[Row] = []
    for node in plan.graph.nodes:
        row = writer.row(node, plan)
        if row is not None:
            rows.append(row)
    return Program(plan.graph.name, tuple(rows))


def _nest_text(language: str) -> NestText:
    if language == "llvm":
        return nest_kernel
    if language == "numba":
        from .numba.nest import nest_kernel as numba_nest_kernel
        return lambda nest, _: numba_nest_kernel(nest)
    raise ValueError(f"expected the language 'llvm' or 'numba', got {language!r}")


class _Generator:
    """Writes kernels, each structure once: repeated layers cost nothing."""

    def __init__(self, target: Target, nest_text: NestText) -> None:
        self.target = target
        self.nest_text = nest_text
        self._nests: dict[Any, Kernel | None] = {}
        self._products: dict[GemmSpec, Kernel] = {}

    def row(self, node: Node, plan: Plan) -> Row | None:
        """The row of ``node``; None where memory planning left nothing to do."""
        slots = plan.slots
        if Trait.VIEW in node.op.traits and slots.get(node.inputs[0]) == slots.get(node.output):
            return None
        if node.op.name == "assign" and slots.get(node.inputs[0]) == slots.get(node.inputs[1]):
            return None
        found = self._native(node)
        return found or Row(None, (*node.inputs, *node.outputs), node)

    def _native(self, node: Node) -> Row | None:
        """The row with a kernel, if there is one for the node."""
        for v in (*node.inputs, *node.outputs):
            if not isinstance(v.type, TensorType) or v.type.device != "cpu":
                return None
        if node.op.name == "fused":
            body: Graph = node.attrs["body"]
            if any(n.op.name == "matmul" for n in body.nodes):
                outer = dict(zip(body.inputs, node.inputs, strict=True))
                return self._product(node, epilogue_of(body), outer)
            return self._nest(node, body)
        if node.op.name == "matmul":
            return self._product(node, Epilogue(node, (Arg(0),), ()), {v: v for v in node.inputs})
        if node.op.name in ("map", "reduce", "arange"):
            inputs = tuple(dict.fromkeys(node.inputs))
            return self._nest(node, Graph("body", inputs, (), (), (node,), node.outputs))
        if node.op.name == "foreach":
            return Row(foreach_kernel(node, self.target), (*node.inputs, *node.outputs), node)
        kernel = move_kernel(node, self.target) or row_kernel(node, self.target)
        if kernel is None:
            return None
        # The only effect with a kernel is assign: what it writes is its first input.
        operands = tuple(reversed(node.inputs)) if node.op.name == "assign" else (*node.inputs, *node.outputs)
        return Row(kernel, operands, node)

    def _nest(self, node: Node, body: Graph) -> Row | None:
        key = structure(body)
        if key not in self._nests:
            values = [*body.inputs, *(v for n in body.nodes for v in n.outputs)]
            plain = all(v.tensor.dtype.kind in "fiub" and v.tensor.dtype.itemsize <= 8 for v in values)
            try:
                self._nests[key] = self.nest_text(nest_of(body), self.target) if plain else None
            except NotANest:
                self._nests[key] = None
        kernel = self._nests[key]
        inputs = node.inputs if node.op.name == "fused" else body.inputs
        return None if kernel is None else Row(kernel, (*inputs, *node.outputs), node)

    def _product(self, node: Node, epilogue: Epilogue, outer: Mapping[Value, Value]) -> Row | None:
        root = epilogue.node
        sizes = product_of(root)
        dtype = root.output.tensor.dtype
        same = all(v.tensor.dtype == dtype for v in root.inputs)
        if sizes is None or not same or dtype.kind != "f" or dtype.itemsize not in (4, 8):
            return None
        spec = GemmSpec(
            sizes.m, sizes.n, sizes.k, sizes.transa, sizes.transb, dtype, sizes.batch, epilogue.exprs,
            tuple(GemmOperand(o.value.tensor.dtype, o.row, o.column, o.batch) for o in epilogue.operands),
            stride_a=sizes.stride_a, stride_b=sizes.stride_b)
        if spec not in self._products:
            self._products[spec] = gemm_kernel(spec, self.target)
        values = (*root.inputs, *(o.value for o in epilogue.operands))
        return Row(self._products[spec], (*(outer[v] for v in values), *node.outputs), node)
