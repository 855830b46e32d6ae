"""Random draws fused with the map that reads them: a mask of single bytes is stored in place of doubles."""
from __future__ import annotations

from kusari.ir import PRIMITIVES, Arg, Call, DType, Expr, Graph, Node, TensorType, Value, expr_dtype, used_args
from kusari.ir.nest import TRANSCENDENTAL


def narrow_draws(graph: Graph) -> Graph:
    """Move a part of the only map that reads a draw into the draw, the part with the smallest result.

    ``where(random() >= p, a, b)`` becomes ``where(m, a, b)`` of ``m = random{a0 >= p}``, an eighth of the memory.
    Expensive functions stay in the map, which threads share.
    """
    users = graph.users()
    kept = set(graph.outputs)
    changed: dict[Node, Node | None] = {}
    for node in graph.nodes:
        if node.op.name != "random" or "expr" in node.attrs:
            continue
        readers = users[node.output]
        if node.output in kept or len(readers) != 1 or readers[0].op.name != "map" or len(readers[0].inputs) != 1:
            continue
        (reader,) = readers
        inner = _narrowest(reader.attrs["expr"], node.output.tensor.dtype)
        if inner is None:
            continue
        rest = _replace(reader.attrs["expr"], inner)
        whole = isinstance(rest, Arg)
        dtype = expr_dtype(inner, (node.output.tensor.dtype,))
        made = reader.output if whole else Value(TensorType(dtype, node.output.shape, node.output.tensor.device))
        changed[node] = Node(PRIMITIVES["random"], (), (made,), {**node.attrs, "expr": inner}, node.where)
        changed[reader] = None if whole else Node(reader.op, (made,), reader.outputs, {"expr": rest}, reader.where)
    nodes = [changed.get(n, n) for n in graph.nodes]
    return graph.with_nodes([n for n in nodes if n is not None])


def _narrowest(expr: Expr, dtype: DType) -> Expr | None:
    """The innermost part of ``expr`` through which every use of the draw passes, with the smallest elements."""
    best: Expr | None = None
    size = dtype.itemsize
    path: list[Expr] = []
    while isinstance(expr, Call):
        path.append(expr)
        inside = list(dict.fromkeys(a for a in expr.args if used_args(a)))
        if len(inside) != 1:
            break
        expr = inside[0]
    if not isinstance(expr, Arg):
        return None
    for e in reversed(path):
        assert isinstance(e, Call)
        if e.fn in TRANSCENDENTAL:
            break
        found = expr_dtype(e, (dtype,))
        if found.kind in "fiub" and found.itemsize < size:
            best, size = e, found.itemsize
    return best


def _replace(expr: Expr, inner: Expr) -> Expr:
    """``expr`` with ``Arg(0)`` in place of ``inner``."""
    if expr == inner:
        return Arg(0)
    return Call(expr.fn, tuple(_replace(a, inner) for a in expr.args)) if isinstance(expr, Call) else expr
