"""Which operands a node may overwrite with its results."""
from __future__ import annotations

from collections.abc import Iterable

from kusari.ir import Node, TensorType, Trait
from kusari.ir.alignment import NotANest
from kusari.ir.nest import nest_of


def overwritable(node: Node, output: int) -> tuple[int, ...]:
    """Return the inputs whose buffer output number ``output`` may be written to while the node runs.

    Invariant: the same bytes are read and written at every index, and nothing reads them afterwards.
    """
    kind = node.outputs[output].type
    if not isinstance(kind, TensorType):
        return ()
    if node.op.name == "fused":
        try:
            pairs = nest_of(node.attrs["body"]).overwrites()
        except NotANest:  # a product with an epilogue: its operands are read to the end
            return ()
        return tuple(i for o, i in pairs if o == output)
    candidates: Iterable[int] = ()
    if node.op.name == "foreach":
        shared, arity = node.attrs["shared"], node.attrs["arity"]
        start = shared + output // len(node.attrs["exprs"]) * arity
        candidates = range(start, start + arity)
    elif Trait.ELEMENTWISE in node.op.traits and len(node.outputs) == 1:
        candidates = range(len(node.inputs))
    fitting = ((i, node.inputs[i].type) for i in candidates)
    return tuple(i for i, t in fitting
                 if isinstance(t, TensorType) and t.shape == kind.shape and t.dtype.itemsize == kind.dtype.itemsize)
