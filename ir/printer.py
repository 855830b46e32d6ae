"""Graphs as text; ``parser`` reads it back."""
from __future__ import annotations

import re
from typing import Any, cast

from .expr import Arg, Call, Expr, Lit
from .graph import Graph, Node, Value

_INFIX = {"add": "+", "subtract": "-", "multiply": "*", "true_divide": "/", "equal": "==", "not_equal": "!=",
          "less": "<", "less_equal": "<=", "greater": ">", "greater_equal": ">="}


class Names:
    """Invents %0, %1 … and ``%hint`` names; the same value always prints the same within one text."""

    def __init__(self) -> None:
        self._names: dict[Value, str] = {}
        self._taken: set[str] = set()

    def __getitem__(self, value: Value) -> str:
        name = self._names.get(value)
        if name is None:
            hint = re.sub(r"[^\w./]", "_", value.hint)
            name = f"%{hint or len(self._names)}"
            while name in self._taken:
                name = f"%{hint}.{len(self._names)}" if hint else f"%{len(self._taken)}_"
            self._names[value] = name
            self._taken.add(name)
        return name


def print_expr(expr: Expr) -> str:
    """Return ``expr`` as it would be written in Python.

    >>> print_expr(Call("add", (Call("exp", (Arg(0),)), Lit(1.0))))
    '(exp(a0) + 1.0)'
    """
    if isinstance(expr, Arg):
        return f"a{expr.index}"
    if isinstance(expr, Lit):
        return repr(expr.value)
    if expr.fn in _INFIX:
        left, right = map(print_expr, expr.args)
        return f"({left} {_INFIX[expr.fn]} {right})"
    return f"{expr.fn}({', '.join(map(print_expr, expr.args))})"


def _attr(value: Any) -> str:
    if isinstance(value, (Arg, Lit, Call)):
        return print_expr(value)
    if isinstance(value, tuple):
        parts = cast("tuple[Any, ...]", value)
        if parts and all(isinstance(v, (Arg, Lit, Call)) for v in parts):
            return "[" + ", ".join(map(print_expr, parts)) + "]"
    return repr(cast("object", value))


def print_node(node: Node, names: Names, indent: str = "  ") -> str:
    """One line (a body follows indented)."""
    left = ", ".join(f"{names[v]}: {v.type!r}" for v in node.outputs)
    # A function node among the attributes repeats its own attributes, which are there too.
    attrs = {k: v for k, v in node.attrs.items() if not isinstance(v, Graph) and k != "function"}
    inner = ", ".join(f"{k}={_attr(v)}" for k, v in attrs.items())
    line = f"{indent}{left + ' = ' if left else ''}{node.op.name}({', '.join(names[v] for v in node.inputs)})"
    line += f" {{{inner}}}" if inner else ""
    line += f"  # {node.where}" if node.where else ""
    for v in node.attrs.values():
        if isinstance(v, Graph):
            line += "\n" + print_graph(v, indent=indent + "  ")
    return line


def print_graph(graph: Graph, mark: Node | None = None, indent: str = "") -> str:
    """Return the text of ``graph``; ``mark`` gets a ``-->``."""
    names = Names()

    def typed(values: Any) -> str:
        return ", ".join(f"{names[v]}: {v.type!r}" for v in values)

    head = f"{indent}graph {graph.name}({typed(graph.inputs)})"
    if graph.params:
        head += f" params({typed(graph.params)})"
    lines = [head + " {"]
    for v, array in graph.consts:
        text = repr(array.tolist()) if array.size <= 16 else f"<{array.size} elements>"
        lines.append(f"{indent}  {names[v]}: {v.type!r} = const {text}")
    for node in graph.nodes:
        line = print_node(node, names, indent + "  ")
        lines.append("-->" + (line[3:] if indent else line) if node is mark else line)
    lines.append(f"{indent}  return {', '.join(names[v] for v in graph.outputs)}")
    lines.append(f"{indent}}}")
    return "\n".join(lines)
