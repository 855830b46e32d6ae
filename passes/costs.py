"""What nodes cost, by estimate: picoseconds, with two threads, of scalar arithmetic and of moving memory."""
from __future__ import annotations

from kusari.ir import Call, Expr, Node, walk
from kusari.ir.arithmetic import operations
from kusari.ir.nest import TRANSCENDENTAL

PER_BYTE = 20   # to write or to read
CHEAP = 10      # a scalar call at one point
SLOW = 50       # a division or a root
COSTLY = 200    # an exponential
ARITHMETIC = 6e11  # operations of products and convolutions per second, at most

_SLOWER = frozenset(("true_divide", "sqrt", "floor_divide", "remainder"))


def point_cost(expr: Expr) -> int:
    """What an expression takes at one point."""
    calls = [e.fn for e in walk(expr) if isinstance(e, Call)]
    return sum(COSTLY if fn in TRANSCENDENTAL else SLOW if fn in _SLOWER else CHEAP for fn in calls)


def least_cost(node: Node) -> int:
    """What a node takes at least."""
    if node.op.is_view:
        return 0
    moved = sum(v.nbytes for v in (*node.inputs, *node.outputs))
    return max(PER_BYTE * moved, int(operations(node) / ARITHMETIC * 1e12))
