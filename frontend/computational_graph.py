"""Drawing the computational graph of variables, as text for Graphviz."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from kusari.ir.drawing import MOST_DRAWN_NODES, figure, networkx, quoted

from .variable import Variable
from .variable_node import VariableNode

_DEFAULT_VARIABLE_STYLE: dict[str, Any] = {"shape": "octagon", "fillcolor": "#E0E0E0", "style": "filled"}
_DEFAULT_FUNCTION_STYLE: dict[str, Any] = {"shape": "record", "fillcolor": "#6495ED", "style": "filled"}
_RANKDIRS = ("TB", "BT", "LR", "RL")
Edge = tuple[Any, Any]


class ComputationalGraph:
    """A graph of functions and variables, made by :func:`build_computational_graph`.

    Attributes:
        nodes: variable nodes and functions.
        edges: pairs (from, to) of them, in the direction of the computation.
        variable_style: Graphviz attributes of variables; ``'default'`` is a grey octagon.
        function_style: Graphviz attributes of functions; ``'default'`` is a blue box.
        rankdir: direction of drawing: ``TB``, ``BT``, ``LR`` or ``RL``.
        remove_variable: leave variables out and join the functions directly.
        show_name: write names of variables.

    Raises:
        ValueError: ``rankdir`` is something else.
    """

    def __init__(
        self,
        nodes: Sequence[Any],
        edges: Sequence[Edge],
        variable_style: Mapping[str, Any] | str = "default",
        function_style: Mapping[str, Any] | str = "default",
        rankdir: str = "TB",
        remove_variable: bool = False,
        show_name: bool = True,
    ) -> None:
        if rankdir not in _RANKDIRS:
            raise ValueError(f"rankdir must be in TB, BT, LR or RL, got {rankdir!r}.")
        self.nodes = list(nodes)
        self.edges = list(edges)
        self.variable_style = _DEFAULT_VARIABLE_STYLE if isinstance(variable_style, str) else variable_style
        self.function_style = _DEFAULT_FUNCTION_STYLE if isinstance(function_style, str) else function_style
        self.rankdir = rankdir
        self.remove_variable = remove_variable
        self.show_name = show_name

    def dump(self, format: str = "dot") -> str:
        """The graph as text, in Graphviz' language.

        Args:
            format: ``'dot'``.

        Raises:
            NotImplementedError: another format is asked for.
        """
        if format != "dot":
            raise NotImplementedError(f"Currently, only dot format is supported, not {format!r}.")
        return "".join(self._lines())

    def _shown(self) -> tuple[Sequence[Any], Sequence[Edge]]:
        """The nodes and edges, without variables if they are to be left out."""
        return _without_variables(self.nodes, self.edges) if self.remove_variable else (self.nodes, self.edges)

    def _lines(self) -> list[str]:
        """The statements of the graph in Graphviz' language."""
        nodes, edges = self._shown()
        lines = [f"digraph graphname{{rankdir={self.rankdir};"]
        lines += [f"{id(node)} [{self._attributes(node)}];" for node in nodes]
        return [*lines, *[f"{id(start)} -> {id(end)};" for start, end in edges], "}"]

    def _label(self, node: Any) -> str:
        return _variable_label(node, self.show_name) if isinstance(node, VariableNode) else str(node.label)

    def _attributes(self, node: Any) -> str:
        """Label and style of a node."""
        is_variable = isinstance(node, VariableNode)
        attributes = {"label": self._label(node), "shape": "octagon" if is_variable else "box"}
        attributes.update(self.variable_style if is_variable else self.function_style)
        return ",".join(f"{key}={quoted(str(value))}" for key, value in attributes.items())

    def to_networkx(self) -> Any:
        """Return a ``networkx.DiGraph`` of the nodes and edges that :meth:`dump` writes.

        Its nodes are the variable nodes and functions themselves, with attributes ``kind`` (``"variable"`` or
        ``"function"``) and ``label``.

        Raises:
            ImportError: the package networkx is missing.
        """
        graph = networkx().DiGraph()
        nodes, edges = self._shown()
        for node in nodes:
            kind = "variable" if isinstance(node, VariableNode) else "function"
            graph.add_node(node, kind=kind, label=self._label(node))
        graph.add_edges_from(edges)
        return graph

    def _text(self) -> str:
        """A line for each node, in the order of computation: its number, its label, the numbers that lead to it."""
        nodes, edges = self._shown()
        order = sorted(nodes, key=lambda node: (node.rank, not isinstance(node, VariableNode)))
        numbers = {id(node): i for i, node in enumerate(order)}
        sources: dict[int, list[int]] = {}
        for start, end in edges:
            sources.setdefault(id(end), []).append(numbers[id(start)])
        width = len(str(len(order)))
        return "\n".join(f"{i:{width}}  {self._label(node)}"
                         + (f" <- {', '.join(map(str, found))}" if (found := sources.get(id(node))) else "")
                         for i, node in enumerate(order))

    def _repr_html_(self) -> str:
        return figure(self.dump() if len(self.nodes) <= MOST_DRAWN_NODES else "", self._text())


def _variable_label(node: Any, show_name: bool) -> str:
    """Name, shape and dtype of a variable, as far as they are known."""
    shape = "" if not node.shape else f"({', '.join(map(str, node.shape))}), "
    name = f"{node.name}: " if show_name and node.name is not None else ""
    return f"{name}{shape}{node.dtype}"


def _without_variables(nodes: Sequence[Any], edges: Sequence[Edge]) -> tuple[list[Any], list[Edge]]:
    """The functions alone, joined where a variable went from one to the other."""
    makers = {id(end): start for start, end in edges if isinstance(end, VariableNode)}
    joined = {
        (id(makers[id(start)]), id(end)): (makers[id(start)], end)
        for start, end in edges
        if isinstance(start, VariableNode) and id(start) in makers
    }
    return [node for node in nodes if not isinstance(node, VariableNode)], list(joined.values())


def build_computational_graph(
    outputs: Any,
    remove_split: bool = True,
    variable_style: Mapping[str, Any] | str = "default",
    function_style: Mapping[str, Any] | str = "default",
    rankdir: str = "TB",
    remove_variable: bool = False,
    show_name: bool = True,
) -> ComputationalGraph:
    """Collect all functions and variables that ``outputs`` were computed from.

    Args:
        outputs: a variable or a list of them (or of variable nodes).
        remove_split: kept for compatibility and must be true.
        variable_style: Graphviz attributes of variables; ``'default'`` is a grey octagon.
        function_style: Graphviz attributes of functions; ``'default'`` is a blue box.
        rankdir: direction of drawing: ``TB`` (top to bottom), ``BT``, ``LR`` or ``RL``.
        remove_variable: leave variables out.
        show_name: write names of variables.

    Raises:
        ValueError: ``remove_split`` is false, or ``rankdir`` is something else.

    Example:
        >>> import numpy as np, kusari
        >>> from kusari import computational_graph
        >>> x = kusari.Variable(np.ones((2, 3), np.float32), name="x")
        >>> graph = computational_graph.build_computational_graph([x + x])
        >>> [node.label for node in graph.nodes]
        ['(2, 3), float32', '_ + _', '(2, 3), float32']
    """
    if not remove_split:
        raise ValueError("remove_split must be True: the graph has no split nodes")
    variables = [outputs] if isinstance(outputs, (Variable, VariableNode)) else list(outputs)
    if not all(isinstance(v, (Variable, VariableNode)) for v in variables):
        raise TypeError(f"a graph is that of variables, got {', '.join({type(v).__name__ for v in variables})}")
    waiting: list[Any] = [v.node if isinstance(v, Variable) else v for v in variables]
    nodes: dict[int, Any] = {}
    edges: dict[tuple[int, int], Edge] = {}

    def connect(start: Any, end: Any) -> None:
        # The same array may enter a function twice: one arrow says so.
        edges.setdefault((id(start), id(end)), (start, end))

    while waiting:
        node = waiting.pop(0)
        if id(node) in nodes:
            continue
        nodes[id(node)] = node
        function = node.creator_node
        if function is None:
            continue
        connect(function, node)
        if id(function) not in nodes:
            nodes[id(function)] = function
            for source in function.inputs:
                connect(source, function)
                waiting.append(source)
    return ComputationalGraph(
        list(nodes.values()),
        list(edges.values()),
        variable_style,
        function_style,
        rankdir,
        remove_variable,
        show_name,
    )
