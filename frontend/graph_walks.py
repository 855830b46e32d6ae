"""Walks over the backward graph: putting graphs in place of nodes, cutting, finding what lies between."""
from __future__ import annotations

from collections.abc import Container, Sequence
from typing import TYPE_CHECKING, Any

from .epochs import Cut, Given, Whole

if TYPE_CHECKING:
    from .function_node import FunctionNode
    from .variable import Variable
    from .variable_node import VariableNode

__all__ = ["between", "expand", "gradients_given", "unchain_behind"]


def gradients_given(function: FunctionNode, starts: Container[VariableNode]) -> bool:
    """Whether one of several outputs of ``function`` has a gradient that a user gave it, beside ``starts``."""
    outputs = function.outputs or ()
    return len(outputs) > 1 and any(
        node is not None and node not in starts and node.grad is not None for node in [r() for r in outputs])


def expand(outputs: Sequence[Variable], within: Sequence[Variable] | None = None, everything: bool = False,
           starts: Container[VariableNode] | None = None) -> None:
    """Put graphs in place of nodes that stand for them, where gradients inside are asked for.

    These are all such nodes if gradients are to be differentiated. Else they are the nodes of several outputs, of which
    one may depend on another: any, or the makers of Variables in ``within``. Nodes of which results were cut off are
    always among them, and in a pass from ``starts`` nodes with a result that a user gave a gradient.
    """
    if not Whole.ever:
        return
    own = None if within is None or everything else {x.creator_node for x in within}
    given = Given.ever and starts is not None
    if own is not None and not Cut.ever and not given and not any(
            function is not None and function.expand is not None for function in own):
        return
    seen: set[FunctionNode] = set()
    pending = [y.creator_node for y in outputs]
    while pending:
        function = pending.pop()
        if function is None or function in seen:
            continue
        seen.add(function)
        pending.extend([x.creator_node for x in function.inputs or ()])
        if function.expand is not None and (everything or function.cuts or given and gradients_given(
                function, starts or ()) or len(function.outputs or ()) > 1 and (
                own is None or function in own)):
            function.expand()


def unchain_behind(start: VariableNode) -> None:
    """Cut the graph everywhere behind a node."""
    first = start.creator_node
    if first is not None and first.expand is not None and not any(
            x.creator_node is not None for x in first.inputs or ()):
        first.cut(start, True)
        return
    reached: dict[FunctionNode, list[VariableNode]] = {}
    pending = [start]
    seen: set[VariableNode] = set()
    while pending:
        node = pending.pop()
        function = node.creator_node
        if function is None or node in seen:
            continue
        seen.add(node)
        if function not in reached:
            pending.extend(function.inputs or ())
        reached.setdefault(function, []).append(node)
    for function, nodes in reached.items():
        whole: Any = function
        if function.expand is not None and not whole.lies_behind(nodes):
            function.expand()  # part of what it stands for stays
            unchain_behind(start)
            return
    for function in reached:
        function.unchain()


def between(outputs: Sequence[Variable], wanted: dict[VariableNode, None]) -> set[VariableNode]:
    """Return the nodes on paths from `wanted` to `outputs`, both included."""
    functions: dict[FunctionNode, None] = {}
    pending = [y.creator_node for y in outputs]
    while pending:
        function = pending.pop()
        if function is None or function in functions:
            continue
        functions[function] = None
        pending.extend([x.creator_node for x in function.inputs or ()])
    needed = set(wanted)
    reached: set[FunctionNode] = set()
    for function in sorted(functions, key=lambda one: one.rank):
        for x in function.inputs or ():
            if x in needed or x.creator_node in reached:
                needed.add(x)
                reached.add(function)
    return needed
