"""Descriptions of kernels for a graphics card, on which all values lie."""
from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import ClassVar

from kusari.ir import FUSED, DType, Graph, Instruction, Kernel, Node, TensorType, Value, behind, structure
from kusari.ir.nest import Nest
from kusari.ir.product import ROOTS, Epilogue, Rounding

from ..contractions import ConvSpec, GemmSpec
from ..generate import Generator, reads_and_writes
from ..native import generator_version, is_copied_view, is_full, is_move, is_pooling, is_row_access, is_scan
from ..target import Target
from .contraction import conv, gemm
from .nest.layout import launches_of

FLOATS = frozenset(("float32", "float64"))  # in which sums are


class CardGenerator(Generator):
    """Describes kernels in CUDA C; texts do not depend on the card."""

    single: ClassVar[Sequence[tuple[Callable[[Node], bool], str, str]]] = (
        (is_move, "data.move", "move_kernel"), (is_copied_view, "data.move", "move_kernel"),
        (is_full, "data.fill", "fill_kernel"), (is_pooling, "data.pool", "pool_kernel"),
        (is_scan, "data.scan", "scan_kernel"), (is_row_access, "data.gather", "gather_kernel"))

    def __init__(self, target: Target, rounding: Rounding = "") -> None:
        super().__init__(target, "cuda", 0)
        self._about = generator_version()
        self.rounding = rounding

    def _holds(self, value: Value) -> bool:
        return isinstance(value.type, TensorType)

    def _dtypes(self, root: Node) -> tuple[DType | None, DType] | None:
        factors, dtype = {v.tensor.dtype for v in root.inputs}, root.output.tensor.dtype
        if root.attrs.get("wide"):
            return factors.pop(), dtype
        return (None, dtype) if factors == {dtype} and (dtype.kind in "iu" or dtype.name in FLOATS) else None

    def _of_node(self, module: str, name: str, node: Node) -> Kernel:
        description = structure(Graph(module, tuple(dict.fromkeys(node.inputs)), (), (), (node,), node.outputs))
        return self._deferred(f"{module} {description!r}", f"cuda.{module}", name, node)

    def _of_foreach(self, node: Node) -> Kernel:
        return self._of_node("nest.foreach", "foreach_kernel", node)

    def _of_nest(self, nest: Nest) -> tuple[Kernel, ...]:
        return tuple(self._deferred(f"nest {i} {nest!r}", "cuda.nest.kernels", "nest_kernel", nest, i)
                     for i in range(launches_of(nest)))

    def _of_product(self, spec: GemmSpec) -> tuple[Kernel, ...]:
        return tuple(self._deferred(f"{i} {spec!r}", "cuda.contraction.gemm", "gemm_kernel", spec, i)
                     for i in range(gemm.shape_of(spec).kernels))

    def _of_convolution(self, node: Node, spec: ConvSpec, epilogue: Epilogue, outer: Mapping[Value, Value],
                        ) -> tuple[Instruction, ...]:
        operands = reads_and_writes(node, epilogue, outer)
        return tuple(Instruction(self._deferred(f"{i} {spec!r}", "cuda.contraction.conv", "conv_kernel", spec, i),
                                 operands, node) for i in range(conv.shape_of(spec).kernels))

    def split(self, node: Node) -> tuple[Value, tuple[Instruction, ...]] | None:
        """Return a value that stands for the product or convolution of a node alone, and rows that do the rest.

        The rows write all results of the node but that value; None if there is no kernel for them.
        """
        body: Graph = node.attrs["body"]
        root, = (n for n in body.nodes if n.op.name in ROOTS)
        alone = Value(root.output.type)
        outer = {**dict(zip(body.inputs, node.inputs, strict=True)), root.output: alone}
        rest = tuple(n for n in body.nodes if n is not root)
        results = {v: y for v, y in zip(body.outputs, node.outputs, strict=True) if v is not root.output}
        if not results:
            return alone, ()
        made = {v for n in rest for v in n.outputs}
        read = dict.fromkeys(v for n in rest for v in n.inputs if v not in made)
        inner = Graph("body", tuple(read), (), (), rest, tuple(results))
        behind = Node(FUSED, tuple([outer[v] for v in read]), tuple(results.values()), {"body": inner}, node.where)
        rows = self._nest(behind, inner)
        return None if rows is None else (alone, rows)

    def only(self, node: Node, result: Value) -> tuple[Instruction, ...] | None:
        """Return rows that write one result of a nest; None if there is no kernel for them."""
        body: Graph = node.attrs["body"]
        wanted = body.outputs[node.outputs.index(result)]
        nodes = tuple(behind(body.nodes, [wanted]))
        inner = Graph("body", body.inputs, (), (), nodes, (wanted,))
        return self._nest(Node(FUSED, node.inputs, (result,), {"body": inner}, node.where), inner)
