"""From a plan to a program: every node becomes the launch of a kernel, an instruction for Python, or nothing.

Invariants: names inside a text are canonical, so that equal structure is equal text and is compiled once. The key of a
kernel describes all that its text depends on: the work, the processor and a digest of the code that writes texts.
"""
from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from importlib import import_module
from typing import Any, ClassVar, Literal

from kusari.ir import (
    CONVOLUTIONS,
    Arg,
    Choice,
    DType,
    Expr,
    Graph,
    Instruction,
    Kernel,
    Node,
    Plan,
    Program,
    TensorType,
    Value,
    expr_dtype,
    structure,
    walk,
    windows_of,
)
from kusari.ir.alignment import NotANest
from kusari.ir.nest import Nest, nest_of
from kusari.ir.product import ROOTS, Epilogue, Rounding, epilogue_of, product_of, without_batch

from .contractions import ConvSpec, Direction, GemmOperand, GemmSpec
from .llvm.contraction.winograd.choose import explained, winograd_of
from .llvm.contraction.winograd.launches import launches
from .llvm.contraction.winograd.spec import WinogradSpec
from .llvm.nest.split import launches_of
from .native import generator_version, is_move, is_pooling, is_row_access, is_scan, is_uniform_draw
from .target import Target

Language = Literal["llvm", "numba", "cuda"]

_DIRECTIONS: dict[str, Direction] = {"conv": "forward", "conv_input": "input", "conv_weight": "weight"}


def generate(plan: Plan, target: Target, language: Language = "llvm", winograd: int = 4,
             rounding: Rounding = "") -> Program:
    """Return the program of ``plan``; raises ``ValueError`` for an unknown language.

    ``"numba"`` writes loop nests and ``foreach`` as Python functions for Numba, and nothing else: products,
    convolutions, pooling and data movement are left to Python and NumPy's libraries, like all nodes without a kernel.
    ``"cuda"`` writes texts for a graphics card, where all values are.
    ``rounding`` is what these round factors in float32 to.
    ``winograd`` is the largest tile (2 or 4) with which Winograd's algorithm may compute convolutions in float32; 0
    forbids it.
    """
    if winograd not in (0, 2, 4):
        raise ValueError(f"expected tiles of 2 or 4 for Winograd's algorithm, or 0, got {winograd!r}")
    if language not in ("llvm", "numba", "cuda"):
        raise ValueError(f"expected the language 'llvm', 'numba' or 'cuda', got {language!r}")
    if language == "cuda":
        from .cuda.generate import CardGenerator
        writer: Generator = CardGenerator(target, rounding)
    else:
        writer = Generator(target, language, winograd)
    found = [i for node in plan.graph.nodes for i in writer.instructions(node, plan)]
    return Program(plan.graph.name, tuple(found))


class Generator:
    """Describes kernels, each structure once: repeated layers cost nothing.

    Invariant: the key of a kernel includes everything its text depends on. So texts are written, and the modules that
    write them imported, only for kernels without object code.
    """

    #: Kinds of nodes with a kernel that depends on nothing but the node, and the functions that write them.
    single: ClassVar[Sequence[tuple[Callable[[Node], bool], str, str]]] = (
        (is_move, "data.move", "move_kernel"), (is_pooling, "data.pool", "pool_kernel"),
        (is_scan, "data.scan", "scan_kernel"), (is_row_access, "data.gather", "gather_kernel"),
        (is_uniform_draw, "data.twister", "uniform_kernel"))

    rounding: Rounding = ""  # of factors in float32

    def __init__(self, target: Target, language: Language, winograd: int) -> None:
        self.target = target
        self.language: Language = language
        self.winograd = winograd
        self._about = f"{generator_version()} {target!r}"
        self._nests: dict[Any, tuple[Kernel, ...]] = {}
        self._products: dict[GemmSpec, tuple[Kernel, ...]] = {}

    def instructions(self, node: Node, plan: Plan) -> tuple[Instruction, ...]:
        """The instructions of ``node``; none if memory planning left nothing to do."""
        slots = plan.slots
        if node.op.is_view and plan.is_view(node):
            return ()
        if (placed := plan.placed(node)) and all(placed):
            return ()
        node = plan.remaining(node)
        if node.op.name == "assign" and slots.get(node.inputs[0]) == slots.get(node.inputs[1]):
            return ()
        found = self._native(node) or Instruction(None, (*node.inputs, *node.outputs), node)
        return found if isinstance(found, tuple) else (found,)

    def _native(self, node: Node) -> Instruction | tuple[Instruction, ...] | None:
        """The launch of the node's kernel, or of several kernels; None without a kernel."""
        if not all(self._holds(v) for v in (*node.inputs, *node.outputs)):
            return None
        if node.op.name == "fused":
            body: Graph = node.attrs["body"]
            if not any(n.op.name in ROOTS for n in body.nodes):
                return self._nest(node, body)
            if self.language == "numba":
                return None
            return self._root(node, epilogue_of(body), dict(zip(body.inputs, node.inputs, strict=True)))
        if node.op.name in ("map", "reduce", "arange"):
            inputs = tuple(dict.fromkeys(node.inputs))
            return self._nest(node, Graph("body", inputs, (), (), (node,), node.outputs))
        if node.op.name == "foreach":
            kernel = self._of_foreach(node)
            return None if kernel is None else Instruction(kernel, (*node.inputs, *node.outputs), node)
        if self.language == "numba":
            return None
        if node.op.name in ROOTS or node.op.name in CONVOLUTIONS:
            return self._root(node, Epilogue(node, (Arg(0),), ()), {v: v for v in node.inputs})
        kernel = next((self._of_node(module, name, node) for fits, module, name in self.single if fits(node)), None)
        if kernel is None:
            return None
        # Of effects with a kernel, only assign has no output: it writes its first input.
        operands = tuple(reversed(node.inputs)) if node.op.name == "assign" else (*node.inputs, *node.outputs)
        return Instruction(kernel, operands, node)

    def _holds(self, value: Value) -> bool:
        """Whether kernels may read and write a value."""
        return isinstance(value.type, TensorType) and value.type.device == "cpu"

    def _deferred(self, description: str, module: str, name: str, *arguments: Any) -> Kernel:
        """The kernel that the function ``name`` of a module, imported when it is needed, writes of ``arguments``."""
        write = partial(_written, module, name, *arguments)
        return Kernel.deferred(self.language, f"{self._about} {description}", write)

    def _of_node(self, module: str, name: str, node: Node) -> Kernel:
        """The kernel of a single node, whose op has attributes of plain values."""
        description = structure(Graph(module, tuple(dict.fromkeys(node.inputs)), (), (), (node,), node.outputs))
        return self._deferred(f"{module} {description!r}", f"llvm.{module}", name, node, self.target)

    def _of_foreach(self, node: Node) -> Kernel | None:
        if self.language == "llvm":
            return self._of_node("nest.foreach", "foreach_kernel", node)
        dtypes = tuple(v.tensor.dtype for v in node.inputs[:node.attrs["shared"] + node.attrs["arity"]])
        if not _numba_has(_dtypes(node.attrs["exprs"], dtypes)):
            return None
        description = structure(Graph("foreach", tuple(dict.fromkeys(node.inputs)), (), (), (node,), node.outputs))
        return self._deferred(f"foreach {description!r}", "numba.foreach", "foreach_kernel", node)

    def _of_nest(self, nest: Nest) -> tuple[Kernel, ...]:
        """The kernels of ``nest``, one behind the other; empty if none can be written."""
        if self.language == "llvm" and (count := launches_of(nest, self.target)) > 1:
            return tuple(self._deferred(f"sweep {i} of {nest!r}", "llvm.nest.sweeps", "sweep_kernel", nest,
                                        self.target, i) for i in range(count))
        if self.language == "llvm":
            return (self._deferred(f"nest {nest!r}", "llvm.nest.writer", "nest_kernel", nest, self.target),)
        if not _numba_has(s.dtype for s in nest.steps) or any(s < 0 for b in nest.operands for s in b.strides):
            return ()
        return (self._deferred(f"nest {nest!r}", "numba.nest", "nest_kernel", nest),)

    def _nest(self, node: Node, body: Graph) -> tuple[Instruction, ...] | None:
        key = structure(body)
        if key not in self._nests:
            values = [*body.inputs, *(v for n in body.nodes for v in n.outputs)]
            plain = all(v.tensor.dtype.kind in "fiub" and v.tensor.dtype.itemsize <= 8 for v in values)
            try:
                self._nests[key] = self._of_nest(nest_of(body)) if plain else ()
            except NotANest:
                self._nests[key] = ()
        inputs = node.inputs if node.op.name == "fused" else body.inputs
        return tuple(Instruction(kernel, (*inputs, *node.outputs), node) for kernel in self._nests[key]) or None

    def _root(self, node: Node, epilogue: Epilogue, outer: Mapping[Value, Value]) -> tuple[Instruction, ...] | None:
        if epilogue.node.op.name == "matmul":
            return self._product(node, epilogue, outer)
        return self._convolution(node, epilogue, outer)

    def _convolution(self, node: Node, epilogue: Epilogue, outer: Mapping[Value, Value],
                     ) -> tuple[Instruction, ...] | None:
        """The instructions of a convolution."""
        root = epilogue.node
        values = (*root.inputs, root.output)
        dtypes = self._dtypes(root)
        if dtypes is None or dtypes[1].kind != "f" or not all(v.tensor.size for v in values):
            return None
        a, b, y = (v.shape for v in values)
        windows = windows_of(root.op.name, root.attrs, a, b)
        direction, k, c = _DIRECTIONS[root.op.name], (b if root.op.name == "conv_weight" else y)[1], a[1]
        if direction == "input":
            k, c = c, k
        spec = ConvSpec(
            direction, a[0], c, k, windows.size, windows.out, windows.kernel, windows.stride, windows.pad,
            windows.dilate, root.attrs["groups"], dtypes[1], epilogue.exprs,
            tuple(GemmOperand(o.value.tensor.dtype, o.row, o.column, o.batch) for o in epilogue.operands), dtypes[0],
            self._rounding(*dtypes))
        return self._of_convolution(node, spec, epilogue, outer)

    def _of_convolution(self, node: Node, spec: ConvSpec, epilogue: Epilogue, outer: Mapping[Value, Value],
                        ) -> tuple[Instruction, ...]:
        """The instructions of a convolution by the algorithm of the fewest cycles."""
        choice = partial(explained, spec, self.target, self.winograd)
        found = winograd_of(spec, self.target, self.winograd)
        if found is not None:
            return self._winograd(node, found, epilogue, outer, choice)
        kernel = self._deferred(repr(spec), "llvm.contraction.conv.kernel", "conv_kernel", spec, self.target)
        return (Instruction(kernel, reads_and_writes(node, epilogue, outer), node, choice),)

    def _winograd(self, node: Node, spec: WinogradSpec, epilogue: Epilogue, outer: Mapping[Value, Value],
                  choice: Callable[[], Choice]) -> tuple[Instruction, ...]:
        """The instructions of its two launches."""
        found: list[Instruction] = []
        for number, launch in enumerate(launches(spec)):
            kernel = self._deferred(f"kernel {number} of {launch.spec!r}", "llvm.contraction.winograd.kernel",
                                    "winograd_kernel", launch.spec, self.target, number)
            reads = [epilogue.node.inputs[i] for i in launch.factors]
            if number == 0:
                found.append(Instruction(kernel, tuple(outer[v] for v in reads), node))
                continue
            reads += [o.value for o in epilogue.operands]
            found.append(Instruction(kernel, (*(outer[v] for v in reads), *node.outputs), node, choice))
        return tuple(found)

    def _dtypes(self, root: Node) -> tuple[DType | None, DType] | None:
        """The dtypes of factors, if another than that of sums, and of sums; None where no kernel has these."""
        dtype = root.output.tensor.dtype
        same = all(v.tensor.dtype == dtype for v in root.inputs)
        return (None, dtype) if same and dtype.name in ("float32", "float64") else None

    def _rounding(self, factors: DType | None, sums: DType) -> Rounding:
        return self.rounding if factors is None and sums.name == "float32" else ""

    def _product(self, node: Node, epilogue: Epilogue, outer: Mapping[Value, Value]) -> tuple[Instruction, ...] | None:
        root = epilogue.node
        sizes = product_of(root)
        dtypes = self._dtypes(root)
        if sizes is None or dtypes is None:
            return None
        sizes = without_batch(sizes, epilogue.operands)
        spec = GemmSpec(
            sizes.m, sizes.n, sizes.k, sizes.transa, sizes.transb, dtypes[1], sizes.batch, epilogue.exprs,
            tuple(GemmOperand(o.value.tensor.dtype, o.row, o.column, o.batch) for o in epilogue.operands),
            stride_a=sizes.stride_a, stride_b=sizes.stride_b, factors=dtypes[0], rounded=self._rounding(*dtypes))
        if spec not in self._products:
            self._products[spec] = self._of_product(spec)
        operands = reads_and_writes(node, epilogue, outer)
        return tuple(Instruction(kernel, operands, node) for kernel in self._products[spec])

    def _of_product(self, spec: GemmSpec) -> tuple[Kernel, ...]:
        """The kernels of a product, one behind the other."""
        return (self._deferred(repr(spec), "llvm.contraction.gemm.kernel", "gemm_kernel", spec, self.target),)


def reads_and_writes(node: Node, epilogue: Epilogue, outer: Mapping[Value, Value]) -> tuple[Value, ...]:
    """The operands of a product's or a convolution's kernel; ``outer`` are the values behind those of a body."""
    reads = (*epilogue.node.inputs, *(o.value for o in epilogue.operands))
    return (*(outer[v] for v in reads), *node.outputs)


def _numba_has(dtypes: Iterable[DType]) -> bool:
    """Whether Numba can compute in all of them: it has no float16 on the CPU."""
    return all(d.kind in "iub" or d.itemsize in (4, 8) for d in dtypes)


def _dtypes(exprs: Sequence[Expr], dtypes: tuple[DType, ...]) -> list[DType]:
    """The dtypes of all values computed on the way to ``exprs``."""
    return [*dtypes, *(expr_dtype(e, dtypes) for expr in exprs for e in walk(expr))]


def _written(module: str, name: str, *arguments: Any) -> Kernel:
    """The kernel that ``name`` of ``module`` writes."""
    return getattr(import_module(f"{__package__}.{module}"), name)(*arguments)
