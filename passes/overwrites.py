"""Operands that a node may overwrite with its results."""
from __future__ import annotations

from collections.abc import Iterable
from weakref import WeakKeyDictionary

from kusari.ir import Graph, Node, TensorType, Trait
from kusari.ir.alignment import NotANest
from kusari.ir.nest import nest_of

_known: WeakKeyDictionary[Graph, tuple[tuple[int, int], ...]] = WeakKeyDictionary()


def _pairs(body: Graph) -> tuple[tuple[int, int], ...]:
    """The (output, input) pairs of a body that may share bytes."""
    found = _known.get(body)
    if found is None:
        try:
            found = tuple(nest_of(body).overwrites())
        except NotANest:  # a product with an epilogue: its operands are read to the end
            found = ()
        _known[body] = found
    return found


def overwritable(node: Node, output: int) -> tuple[int, ...]:
    """Return the inputs whose buffer output number ``output`` may be written to while the node runs.

    Invariant: the same bytes are read and written at every index, and nothing reads them afterwards.
    """
    kind = node.outputs[output].type
    if not isinstance(kind, TensorType):
        return ()
    if node.op.name == "fused":
        pairs = _pairs(node.attrs["body"])
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
