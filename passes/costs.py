"""Estimated costs of nodes: picoseconds, with two threads, of scalar arithmetic and of moving memory."""
from __future__ import annotations

from kusari.ir import Call, Expr, Node, walk
from kusari.ir.arithmetic import operations
from kusari.ir.nest import TRANSCENDENTAL

BYTE_PICOSECONDS = 20              # to write or to read
CHEAP_PICOSECONDS = 10             # a scalar call at one point
SLOW_PICOSECONDS = 50              # a division or a root
COSTLY_PICOSECONDS = 200           # an exponential
MOST_OPERATIONS_PER_SECOND = 6e11  # of products and convolutions

_SLOWER = frozenset(("true_divide", "sqrt", "floor_divide", "remainder"))


def point_cost(expr: Expr) -> int:
    """Return the picoseconds of an expression at one point."""
    calls = [e.fn for e in walk(expr) if isinstance(e, Call)]
    return sum(COSTLY_PICOSECONDS if fn in TRANSCENDENTAL else SLOW_PICOSECONDS if fn in _SLOWER
               else CHEAP_PICOSECONDS for fn in calls)


def least_cost(node: Node) -> int:
    """Return the picoseconds that a node takes at least."""
    if node.op.is_view:
        return 0
    moved = sum(v.nbytes for v in (*node.inputs, *node.outputs))
    return max(BYTE_PICOSECONDS * moved, int(operations(node) / MOST_OPERATIONS_PER_SECOND * 1e12))
