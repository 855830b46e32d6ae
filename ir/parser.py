"""Reads the text that ``printer`` writes, for tests and for editing a graph by hand."""
from __future__ import annotations

import ast
import re
from typing import Any

import numpy as np

from .expr import Arg, Call, Expr, Lit
from .graph import Graph, Node, Value
from .primitives import PRIMITIVES
from .types import TensorType, parse_type

_OPERATORS: dict[type[ast.AST], str] = {
    ast.Add: "add", ast.Sub: "subtract", ast.Mult: "multiply", ast.Div: "true_divide", ast.Eq: "equal",
    ast.NotEq: "not_equal", ast.Lt: "less", ast.LtE: "less_equal", ast.Gt: "greater", ast.GtE: "greater_equal"}
_HEAD = re.compile(r"graph (?P<name>\S+?)\((?P<inputs>.*?)\)(?: params\((?P<params>.*)\))? \{$")
_LINE = re.compile(r"(?:(?P<left>%.*?) = )?(?P<op>\w+)\((?P<args>[^)]*)\)(?: \{(?P<attrs>.*)\})?"
                   r"(?:  # (?P<where>.*))?$")


class ParseError(ValueError):
    """The text is not a graph; the message shows the line."""


def parse_expr(tree: ast.expr) -> Expr:
    """Return the expression that the Python expression ``tree`` writes."""
    match tree:
        case ast.Name(id=name) if re.fullmatch(r"a\d+", name):
            return Arg(int(name[1:]))
        case ast.Name(id="inf" | "nan" as name):
            return Lit(float(name))
        case ast.Constant(value=bool() | int() | float() as value):
            return Lit(value)
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            inner = parse_expr(operand)
            return Lit(-inner.value) if isinstance(inner, Lit) else Call("negative", (inner,))
        case ast.BinOp(left=left, op=op, right=right):
            return Call(_OPERATORS[type(op)], (parse_expr(left), parse_expr(right)))
        case ast.Compare(left=left, ops=[op], comparators=[right]):
            return Call(_OPERATORS[type(op)], (parse_expr(left), parse_expr(right)))
        case ast.Call(func=ast.Name(id=fn), args=args):
            return Call(fn, tuple(parse_expr(a) for a in args))
        case _:
            raise ParseError(f"not an expression: {ast.unparse(tree)}")


def _attrs(text: str) -> dict[str, Any]:
    call = ast.parse(f"f({text})", mode="eval").body
    assert isinstance(call, ast.Call)
    attrs: dict[str, Any] = {}
    for keyword in call.keywords:
        assert keyword.arg is not None
        if keyword.arg == "expr":
            attrs[keyword.arg] = parse_expr(keyword.value)
        elif keyword.arg == "exprs":
            assert isinstance(keyword.value, ast.List)
            attrs[keyword.arg] = tuple(parse_expr(e) for e in keyword.value.elts)
        else:
            attrs[keyword.arg] = ast.literal_eval(keyword.value)
    return attrs


def parse_graph(text: str) -> Graph:
    """Return the graph that ``print_graph`` wrote as ``text``; raises ``ParseError`` with the line at fault.

    Only primitives can be read, and only consts that are printed whole.
    """
    graph, rest = _graph([line for line in text.splitlines() if line.strip()])
    if rest:
        raise ParseError(f"text after the graph: {rest[0]}")
    return graph


def _graph(lines: list[str]) -> tuple[Graph, list[str]]:
    head = _HEAD.match(lines[0].strip())
    if head is None:
        raise ParseError(f"expected 'graph name(…) {{', got: {lines[0]}")
    env: dict[str, Value] = {}

    def define(text: str | None) -> tuple[Value, ...]:
        values: list[Value] = []
        for name, kind in re.findall(r"(%\S+): (\w+(?:\[[\d,]*\])?(?:@\w+)?)", text or ""):
            env[name] = Value(parse_type(kind), "" if re.fullmatch(r"%[\d_]+", name) else name[1:])
            values.append(env[name])
        return tuple(values)

    inputs, params = define(head["inputs"]), define(head["params"])
    consts: list[tuple[Value, Any]] = []
    nodes: list[Node] = []
    lines = lines[1:]
    while lines:
        line = lines.pop(0).strip().removeprefix("-->").strip()
        if line.startswith("return"):
            names = [n.strip() for n in line.removeprefix("return").split(",") if n.strip()]
            outputs = tuple(env[n] for n in names)
            if not lines or lines.pop(0).strip() != "}":
                raise ParseError("expected '}' after the return line")
            return Graph(head["name"], inputs, params, tuple(consts), tuple(nodes), outputs), lines
        if " = const " in line:
            left, _, data = line.partition(" = const ")
            (value,) = define(left)
            assert isinstance(value.type, TensorType)
            consts.append((value, np.array(ast.literal_eval(data), value.type.dtype).reshape(value.shape)))
            continue
        match = _LINE.match(line)
        if match is None or match["op"] not in PRIMITIVES:
            raise ParseError(f"not a node of a primitive op: {line}")
        attrs = _attrs(match["attrs"] or "")
        if match["op"] == "fused":
            attrs["body"], lines = _graph(lines)
        try:
            args = tuple(env[a.strip()] for a in match["args"].split(",") if a.strip())
        except KeyError as error:
            raise ParseError(f"{error.args[0]} is not defined before: {line}") from None
        nodes.append(Node(PRIMITIVES[match["op"]], args, define(match["left"]), attrs, match["where"] or ""))
    raise ParseError("the text ends before the return line")
