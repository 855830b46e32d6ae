"""Matrix products as kernels see them: sizes, batch strides, and the epilogue of every element of the product."""
from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from math import prod
from typing import Literal

from .alignment import NotANest, align, is_squeeze
from .expr import Arg, Expr, Lit, strong, substitute
from .graph import Graph, Node, Value

#: What factors in float32 are rounded to before they are multiplied on a card, by tensor cores; sums are float32.
Rounding = Literal["", "tf32", "bf16"]

ROOTS = frozenset(("matmul", "conv", "conv_input"))  # ops that an epilogue may follow in one kernel


@dataclass(frozen=True)
class Product:
    """``batch`` products of ``m x k`` and ``k x n``; the strides lead to the next matrix, 0 where one serves all."""

    m: int
    n: int
    k: int
    transa: bool
    transb: bool
    batch: int = 1
    stride_a: int = 0
    stride_b: int = 0


@dataclass(frozen=True)
class EpilogueOperand:
    """An input of the body; elements for a step of row, column and batch."""

    value: Value
    row: int
    column: int
    batch: int


@dataclass(frozen=True)
class Epilogue:
    """Output ``i`` is ``exprs[i]`` of the product, ``Arg(0)``, and of ``operands[j - 1]``, ``Arg(j)``."""

    node: Node
    exprs: tuple[Expr, ...]
    operands: tuple[EpilogueOperand, ...]


def product_of(node: Node) -> Product | None:
    """Return the sizes of a ``matmul`` node; None where batches are broadcast in part."""
    a, b = (v.shape for v in node.inputs)
    transa, transb = bool(node.attrs["transa"]), bool(node.attrs["transb"])
    m, k = (a[-1], a[-2]) if transa else (a[-2], a[-1])
    n = b[-2] if transb else b[-1]
    batch = node.output.shape[:-2]
    count = prod(batch)

    def stride(shape: tuple[int, ...]) -> int | None:
        own = shape[:-2]
        if prod(own) == count:
            return shape[-1] * shape[-2]
        return 0 if prod(own) == 1 else None

    stride_a, stride_b = stride(a), stride(b)
    if stride_a is None or stride_b is None:
        return None
    return Product(m, n, k, transa, transb, count, stride_a, stride_b)


def without_batch(sizes: Product, operands: Sequence[EpilogueOperand] = ()) -> Product:
    """Return the same work as one product where one matrix on the right serves the whole batch, else ``sizes``.

    The rows of the batch follow each other like those of one product, and so must those of the operands.
    """
    even = all(o.batch == sizes.m * o.row for o in operands)
    if sizes.stride_b or sizes.transa or sizes.stride_a != sizes.m * sizes.k or sizes.batch == 1 or not even:
        return sizes
    return replace(sizes, m=sizes.batch * sizes.m, batch=1)


def is_sum_of_rows(node: Node) -> bool:
    """Whether a node is the sum over the first axis of a matrix, and nothing else."""
    return (node.op.name == "reduce" and node.attrs["fn"] == "sum" and tuple(node.attrs["axes"]) == (0,)
            and len(node.inputs[0].shape) == 2)


def factor_of_sum(node: Node, total: Node) -> int | None:
    """Which factor of a ``matmul`` is summed over its terms by the sum of rows ``total``: 0 or 1, or None."""
    if node.op.name != "matmul":
        return None
    terms_first = bool(node.attrs["transa"]), not node.attrs["transb"]
    return next((i for i in (0, 1) if terms_first[i] and node.inputs[i] is total.inputs[0]), None)


def epilogue_of(body: Graph) -> Epilogue:
    """Return the epilogue of ``body``, which has one root and elementwise nodes; raises ``NotANest`` with the reason.

    The elementwise nodes must have the product's domain, and every operand must be constant, or run with fixed strides,
    along rows, columns and batch. Of a convolution the rows are the channels, the columns all positions of a sample.
    """
    roots = [n for n in body.nodes if n.op.name in ROOTS]
    if len(roots) != 1:
        raise NotANest(f"a body with an epilogue has one product or convolution, this one has {len(roots)}")
    node = roots[0]
    if any(v not in body.inputs for v in node.inputs):
        raise NotANest("a factor of the product is computed in the body")
    if node.op.name == "matmul" and product_of(node) is None:
        raise NotANest("batches are broadcast in part")
    return _epilogue(node, [n for n in body.nodes if n is not node], body.outputs)


def _epilogue(node: Node, rest: Sequence[Node], outputs: Sequence[Value]) -> Epilogue:
    product = node.output
    known: dict[Value, Expr] = {product: Arg(0)}
    operands: list[EpilogueOperand] = []
    space = align(rest, [v for v in outputs if v is not product]) if rest else None
    if space is not None and not (product in space.axes and space.covers(product)):
        raise NotANest("the epilogue is larger than the product")

    def operand(v: Value) -> Expr:
        assert space is not None
        steps = dict(zip(space.order, space.strides(v), strict=True))
        found = [(0 if a is None else steps[a], n) for a, n in zip(space.axes[product], product.shape, strict=True)]
        lead = len(found) - 2 if node.op.name == "matmul" else 1
        batch, row, column = (_joined(v, part) for part in (found[:lead], found[lead:lead + 1], found[lead + 1:]))
        operands.append(EpilogueOperand(v, row, column, batch))
        return Arg(len(operands))

    for n in rest:
        for v in n.inputs:
            if v not in known:
                known[v] = operand(v)
        if n.op.name == "map":
            known[n.output] = _mapped(n, known)
        elif n.op.name == "broadcast_to" or is_squeeze(n):
            known[n.output] = known[n.inputs[0]]
        else:
            raise NotANest(f"{n.op.name} does not run in an epilogue")
    return Epilogue(node, tuple(known[v] for v in outputs), tuple(operands))


def _joined(v: Value, axes: Sequence[tuple[int, int]]) -> int:
    """The step along neighbouring axes, given as steps and extents, as one axis."""
    long = [(step, extent) for step, extent in axes if extent != 1]
    for (outer, _), (inner, extent) in pairwise(long):
        if outer != inner * extent:
            raise NotANest(f"joined axes of {v!r} have no common step")
    return long[-1][0] if long else 0


def _mapped(node: Node, known: dict[Value, Expr]) -> Expr:
    """The expression of a map of values whose expressions are ``known``."""
    expr = substitute(node.attrs["expr"], [known[v] for v in node.inputs])
    return strong(expr.value) if isinstance(expr, Lit) else expr


def pointwise_exprs(body: Graph) -> tuple[Expr, ...]:
    """Return the outputs of a body of maps as expressions of its inputs; raises ``NotANest`` for other bodies."""
    known: dict[Value, Expr] = {v: Arg(i) for i, v in enumerate(body.inputs)}
    for n in body.nodes:
        if n.op.name != "map":
            raise NotANest(f"{n.op.name} is not elementwise")
        known[n.output] = _mapped(n, known)
    return tuple(known[v] for v in body.outputs)
