"""Expressions rewritten: every read outside of a function's own variables goes through an observer.

New nodes have the places of the nodes that they replace, so that tracebacks show the lines of the source. Nodes of the
source are never changed; parts that are not rewritten are shared.
"""
from __future__ import annotations

import ast
import sys
from collections.abc import Collection, Sequence
from typing import Any, TypeVar

from .scope import Scope, mangled
from .source import CannotRewrite

OBSERVER = "__kusari__"
BINARY = {ast.Add: "+", ast.Sub: "-", ast.Mult: "*", ast.MatMult: "@", ast.Div: "/", ast.Mod: "%", ast.Pow: "**",
          ast.LShift: "<<", ast.RShift: ">>", ast.BitOr: "|", ast.BitXor: "^", ast.BitAnd: "&", ast.FloorDiv: "//"}
UNARY = {ast.USub: "-", ast.UAdd: "+", ast.Invert: "~"}
COMPARE = {ast.Eq: "==", ast.NotEq: "!=", ast.Lt: "<", ast.LtE: "<=", ast.Gt: ">", ast.GtE: ">=", ast.Is: "is",
           ast.IsNot: "is not", ast.In: "in", ast.NotIn: "not in"}
LOAD, STORE, DEL = ast.Load(), ast.Store(), ast.Del()
Node = TypeVar("Node", bound=ast.AST)


def again(node: Node, **changes: Any) -> Node:
    """Return a copy of ``node`` with some fields changed."""
    made = type(node).__new__(type(node))
    made.__dict__.update(node.__dict__, **changes)
    return made


def where(node: Any) -> dict[str, Any]:
    """Return where a node stands, as arguments of another one."""
    return {"lineno": node.lineno, "col_offset": node.col_offset, "end_lineno": node.end_lineno,
            "end_col_offset": node.end_col_offset}


def constant(value: Any, at: Any) -> ast.Constant:
    """Return a constant."""
    return ast.Constant(value, **where(at))


class Expressions:
    """Rewrites expressions of one function."""

    def __init__(self, scope: Scope, shared: Collection[str]) -> None:
        self.scope = scope
        self._shared = shared
        self._temporaries = 0

    def hook(self, at: Any, name: str, *args: ast.expr, keywords: Collection[ast.keyword] = ()) -> ast.Call:
        """Return a call of a method of the observer."""
        # An attribute that ends on another line than it starts would move the line of the call.
        point = {"lineno": at.lineno, "col_offset": at.col_offset, "end_lineno": at.lineno,
                 "end_col_offset": at.col_offset}
        method = ast.Attribute(ast.Name(OBSERVER, LOAD, **point), name, LOAD, **point)
        return ast.Call(method, list(args), list(keywords), **where(at))

    def temporary(self) -> str:
        """Return a name that no function has."""
        self._temporaries += 1
        return f"__kusari_{self._temporaries}__"

    def steady(self, node: ast.expr) -> bool:
        """Whether ``node`` may as well be evaluated later."""
        if isinstance(node, ast.Name) and node.id.startswith("__kusari_"):
            return True  # a temporary
        return self.scope.is_steady(node, self._shared)

    def local(self, name: str | None, at: Any) -> None:
        """Refuse to bind a name that is not a local variable."""
        if name is not None and self.scope.kind(name) != "local":
            raise CannotRewrite(f"{name}, which is not local, is bound by a {type(at).__name__}", at.lineno)

    def value(self, node: Any) -> Any:
        """Return the rewritten expression."""
        method = getattr(self, f"_{type(node).__name__}", None)
        if method is None:
            raise CannotRewrite(f"{type(node).__name__} is not followed", node.lineno)
        return method(node)

    def optional(self, node: ast.expr | None) -> Any:
        """Return the rewritten expression, or None."""
        return None if node is None else self.value(node)

    def test(self, node: ast.expr) -> ast.expr:
        """Return the rewritten expression where only its truth matters."""
        if isinstance(node, ast.Constant):
            return node
        if isinstance(node, ast.BoolOp):
            return again(node, values=[self.test(v) for v in node.values])
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
            return self._UnaryOp(node)
        return self.hook(node, "truth", self.value(node))

    def iterate(self, node: ast.expr) -> ast.expr:
        """Return the rewritten expression where it is iterated over."""
        return self.hook(node, "iterate", self.value(node))

    def _seen(self, node: ast.expr) -> ast.expr:
        if isinstance(node, ast.Constant):
            return node
        if isinstance(node, ast.BoolOp):
            return again(node, values=[self._seen(v) for v in node.values])
        return self.hook(node, "seen", self.value(node))

    def parts(self, node: Node) -> Node:
        """Return a copy of ``node`` with all expressions and statements in its fields rewritten."""
        changes: dict[str, Any] = {}
        for name, part in ast.iter_fields(node):
            if isinstance(part, ast.expr):
                changes[name] = self.test(part) if name == "test" else self.value(part)
            elif isinstance(part, list) and part and isinstance(part[0], (ast.expr, ast.stmt)):
                changes[name] = self.body(part) if isinstance(part[0], ast.stmt) else [*map(self.optional, part)]
        return again(node, **changes)

    def body(self, statements: Sequence[ast.stmt]) -> list[ast.stmt]:
        """Return the rewritten statements, which are in no expression."""
        raise NotImplementedError

    def _Constant(self, node: ast.Constant) -> ast.expr:
        return node

    def _same_with_parts(self, node: ast.expr) -> ast.expr:
        return self.parts(node)

    _IfExp = _Tuple = _JoinedStr = _TemplateStr = _Interpolation = _Yield = _same_with_parts

    def _Name(self, node: ast.Name) -> ast.expr:
        kind = self.scope.kind(node.id)
        if kind == "local" or node.id == "__debug__":
            return node
        name = constant(mangled(node.id, self.scope.class_name), node)
        return self.hook(node, "name", name) if kind == "global" else self.hook(node, "cell", name, node)

    def _Attribute(self, node: ast.Attribute) -> ast.expr:
        return self.hook(self.at_name(node), "attr", self.value(node.value), self.attribute(node))

    def attribute(self, node: ast.Attribute) -> ast.expr:
        """Return the name of an attribute."""
        return constant(mangled(node.attr, self.scope.class_name), node)

    @staticmethod
    def at_name(node: ast.Attribute, end: Any = None) -> Any:
        """Return where the compiler says that an attribute, or the call of one that ends with ``end``, stands.

        That is the line of the attribute's name, where that is not the first line.
        """
        end = end or node
        if node.lineno == node.end_lineno:
            return end
        column = max(0, (node.end_col_offset or 0) - len(node.attr.encode()))
        return again(end, lineno=node.end_lineno, col_offset=column)

    def _Subscript(self, node: ast.Subscript) -> ast.expr:
        return self.hook(node, "item", self.value(node.value), self.key(node.slice))

    def key(self, node: ast.expr) -> ast.expr:
        """Return the rewritten key of a subscript."""
        if isinstance(node, ast.Slice):
            parts = (node.lower, node.upper, node.step)
            return self.hook(node, "slice", *[constant(None, node) if p is None else self.value(p) for p in parts])
        if isinstance(node, ast.Tuple):
            return again(node, elts=[self.key(e) for e in node.elts])
        return self.value(node)

    def _Call(self, node: ast.Call) -> ast.expr:
        f = node.func
        at: Any = node
        if isinstance(f, ast.Attribute) and self._is_method(f, node):
            at = self.at_name(f, node)
        elif isinstance(f, ast.Name) and f.id == "super" and self.scope.kind("super") == "global" and not (
                node.args or node.keywords):
            first = self.scope.first_argument()
            if first is None or self.scope.kind("__class__") != "free":
                raise CannotRewrite("super() outside of a method", node.lineno)
            return self.hook(node, "super", ast.Name("__class__", LOAD, **where(node)),
                             ast.Name(first, LOAD, **where(node)))
        return self.hook(at, "call", self.value(f), *[self.value(a) for a in node.args],
                         keywords=[self._keyword(w) for w in node.keywords])

    def _is_method(self, f: ast.Attribute, node: ast.Call) -> bool:
        """Whether the compiler looks up a method to be called at once, which stands where its name does."""
        if any(isinstance(a, ast.Starred) for a in node.args) or any(w.arg is None for w in node.keywords):
            return False
        if sys.version_info < (3, 11):
            return not node.keywords
        return not (isinstance(f.value, ast.Name) and f.value.id in self.scope.imported)

    def _keyword(self, node: ast.keyword) -> ast.keyword:
        value = self.value(node.value)
        return again(node, value=value if node.arg is not None else self.hook(node.value, "mapping", value))

    def _Starred(self, node: ast.Starred) -> ast.expr:
        return again(node, value=self.iterate(node.value))

    def _BinOp(self, node: ast.BinOp) -> ast.expr:
        if isinstance(node.left, ast.Constant) and isinstance(node.right, ast.Constant):
            return node
        return self.hook(node, "binary", constant(BINARY[type(node.op)], node), self.value(node.left),
                         self.value(node.right))

    def _UnaryOp(self, node: ast.UnaryOp) -> ast.expr:
        if isinstance(node.op, ast.Not):
            return again(node, operand=self.test(node.operand))
        if isinstance(node.operand, ast.Constant):
            return node
        return self.hook(node, "unary", constant(UNARY[type(node.op)], node), self.value(node.operand))

    def _BoolOp(self, node: ast.BoolOp) -> ast.expr:
        return again(node, values=[*[self._seen(v) for v in node.values[:-1]], self.value(node.values[-1])])

    def _Compare(self, node: ast.Compare) -> ast.expr:
        if len(node.ops) == 1:
            return self.hook(node, "compare", constant(COMPARE[type(node.ops[0])], node), self.value(node.left),
                             self.value(node.comparators[0]))
        return again(node, left=self._operand(node.left), comparators=[self._operand(c) for c in node.comparators])

    def _operand(self, node: ast.expr) -> ast.expr:
        return node if isinstance(node, ast.Constant) else self.hook(node, "operand", self.value(node))

    def _NamedExpr(self, node: ast.NamedExpr) -> ast.expr:
        kind, value = self.scope.kind(node.target.id), self.value(node.value)
        if kind == "free":
            value = self.hook(node, "set_cell", constant(mangled(node.target.id, self.scope.class_name), node), value)
        else:
            self.local(node.target.id, node)
        return again(node, value=value)

    def _made(self, node: Any) -> ast.expr:
        return self.hook(node, "new", self.parts(node))

    _List = _Set = _made

    def _Dict(self, node: ast.Dict) -> ast.expr:
        values = [self.value(v) if k is not None else self.hook(v, "mapping", self.value(v))
                  for k, v in zip(node.keys, node.values, strict=True)]
        return self.hook(node, "new", again(node, keys=[self.optional(k) for k in node.keys], values=values))

    def _FormattedValue(self, node: ast.FormattedValue) -> ast.expr:
        value = self.value(node.value)
        how = constant("" if node.conversion == -1 else chr(node.conversion), node)
        spec = constant("", node) if node.format_spec is None else self.value(node.format_spec)
        if how.value and node.format_spec is not None and sys.version_info >= (3, 13):
            # converted before the format specification is evaluated
            value, how = self.hook(node, "format", value, how, constant("", node)), constant("", node)
        return again(node, value=self.hook(node, "format", value, how, spec), conversion=-1, format_spec=None)

    def _YieldFrom(self, node: ast.YieldFrom) -> ast.expr:
        return again(node, value=self.iterate(node.value))

    def _Lambda(self, node: ast.Lambda) -> ast.expr:
        return self.hook(node, "function", again(node, args=self.defaults(node.args)))

    def defaults(self, args: ast.arguments) -> ast.arguments:
        """Return the arguments of a function with rewritten defaults; its body stays as it is."""
        return again(args, defaults=[self.value(d) for d in args.defaults],
                     kw_defaults=[self.optional(d) for d in args.kw_defaults])

    def _comprehension(self, node: Any) -> ast.expr:
        if any(g.is_async for g in node.generators):
            raise CannotRewrite("an asynchronous comprehension", node.lineno)
        own = isinstance(node, ast.GeneratorExp) or sys.version_info < (3, 12)
        first = self.iterate(node.generators[0].iter)  # evaluated outside
        self.scope.enter(node.generators, own)
        made: list[ast.comprehension] = []
        for i, g in enumerate(node.generators):
            target, *inner = self._unpacked(g.target)
            made.append(again(g, target=target, iter=self.iterate(g.iter) if i else first, ifs=[]))
            for some, temporary in inner:
                value = ast.List([self.hook(some, "iterate", temporary)], LOAD, **where(some))
                made.append(ast.comprehension(some, value, [], 0))
            made[-1].ifs = [self.test(c) for c in g.ifs]
        parts = {part: self.value(getattr(node, part)) for part in ("elt", "key", "value") if hasattr(node, part)}
        self.scope.leave(own)
        node = again(node, generators=made, **parts)
        return self.hook(node, "generator" if isinstance(node, ast.GeneratorExp) else "new", node)

    _ListComp = _SetComp = _DictComp = _GeneratorExp = _comprehension

    def _unpacked(self, target: ast.expr) -> list[Any]:
        """The target of a comprehension, then the targets that unpack it, one after the other, each with its value."""
        if isinstance(target, ast.Name):
            return [target]
        if not isinstance(target, (ast.Tuple, ast.List)) or not all(
                isinstance(e, (ast.Name, ast.Tuple, ast.List)) or
                isinstance(e, ast.Starred) and isinstance(e.value, ast.Name) for e in target.elts):
            raise CannotRewrite("a comprehension that stores somewhere else than in variables", target.lineno)
        name = self.temporary()
        elements: list[ast.expr] = []
        inner: list[Any] = []
        for e in target.elts:
            if isinstance(e, (ast.Name, ast.Starred)):
                elements.append(e)
            else:
                to, *more = self._unpacked(e)
                elements.append(to)
                inner += more
        here = where(target)
        return [ast.Name(name, STORE, **here), (again(target, elts=elements), ast.Name(name, LOAD, **here)), *inner]
