"""Python text of ``foreach``: one pointwise body over many tensors."""
from __future__ import annotations

from kusari.ir import Expr, Kernel, Node

from .points import Names
from .scalars import type_name
from .text import Lines, affine


def foreach_kernel(node: Node) -> Kernel:
    """The kernel of a ``foreach`` node: every thread takes its part of each tensor."""
    shared, arity = int(node.attrs["shared"]), int(node.attrs["arity"])
    exprs: tuple[Expr, ...] = tuple(node.attrs["exprs"])
    groups = (len(node.inputs) - shared) // arity
    sizes = [node.inputs[shared + g * arity].tensor.size for g in range(groups)]
    kinds = [v.tensor.dtype for v in node.inputs[:shared + arity]]
    out = Lines("def foreach(slots, tid, nth):")
    out(f"sizes = ({', '.join(map(str, sizes))},)")
    for i in range(shared):
        out(f"s{i} = carray(slots[{i}], 1, {type_name(kinds[i])})[0]")
    args = [(f"s{i}" if i < shared else f"x{i - shared}[j]", d) for i, d in enumerate(kinds)]
    names = Names(out, args)
    for e in exprs:
        names.write(e, frozenset(range(shared)))
    with out.block(f"for t in range({groups}):"):
        out("n = sizes[t]")
        out("lo, hi = n * tid // nth, n * (tid + 1) // nth")
        for kind, first, count, dtypes in (
                ("x", shared, arity, kinds[shared:]),
                ("y", shared + groups * arity, len(exprs), [v.tensor.dtype for v in node.outputs[:len(exprs)]])):
            for i in range(count):
                slot = affine([("t", count), (str(first + i), 1)])
                out(f"{kind}{i} = carray(slots[{slot}], n, {type_name(dtypes[i])})[lo:hi]")
        with out.block("for j in range(hi - lo):"):
            values = [names.write(e)[0] for e in exprs]
            for i, v in enumerate(values):
                out(f"y{i}[j] = {v}")
    moved = sum(v.tensor.nbytes for v in (*node.inputs, *node.outputs))
    return Kernel("numba", "foreach", out.text(), 0, 8 * len(exprs) * sum(sizes), moved)
