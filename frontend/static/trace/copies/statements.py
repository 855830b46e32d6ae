"""Statements rewritten: every store, loop, branch and import goes through an observer, in the order of the source."""
from __future__ import annotations
import __future__

import ast
import sys
from collections.abc import Sequence
from typing import Any

from .expressions import BINARY, DEL, LOAD, STORE, Expressions, again, constant, where
from .scope import mangled
from .source import CannotRewrite

_ITSELF = ("bool", "bytearray", "bytes", "dict", "float", "frozenset", "int", "list", "set", "str", "tuple")


class Statements(Expressions):
    """Rewrites the statements of one function; each becomes a list of statements."""

    annotations_are_evaluated: bool

    def function(self, node: Any) -> Any:
        """Return a function or lambda with its body rewritten."""
        kwarg, new = node.args.kwarg, None
        if kwarg is not None:  # Python has made it for this call
            here = where(kwarg)
            new = self.hook(kwarg, "new", ast.Name(kwarg.arg, LOAD, **here))
        if isinstance(node, ast.Lambda):
            value = self.value(node.body)
            if new is not None:
                here = where(node.body)
                value = ast.Subscript(ast.Tuple([new, value], LOAD, **here), ast.Constant(1, **here), LOAD, **here)
            return again(node, body=value)
        body = self.body(node.body)
        if new is not None:
            documented = isinstance(body[0], ast.Expr) and isinstance(body[0].value, ast.Constant)
            body.insert(int(documented), ast.Expr(new, **where(kwarg)))
        return again(node, body=body)

    def body(self, statements: Sequence[ast.stmt]) -> list[ast.stmt]:
        """Return the rewritten statements."""
        made: list[ast.stmt] = []
        for node in statements:
            method = getattr(self, f"_{type(node).__name__}", None)
            if method is None:
                raise CannotRewrite(f"{type(node).__name__} is not followed", node.lineno)
            made += method(node)
        return made

    def _same(self, node: ast.stmt) -> list[ast.stmt]:
        return [node]

    _Pass = _Break = _Continue = _Global = _Nonlocal = _same

    def _with_parts(self, node: ast.stmt) -> list[ast.stmt]:
        return [self.parts(node)]

    _Expr = _Return = _Raise = _Assert = _If = _While = _with_parts

    # Stores

    def set_temporary(self, value: ast.expr, at: Any) -> tuple[list[ast.stmt], ast.expr, list[ast.stmt]]:
        """Return statements that store a value in a temporary, a read of it, and statements that delete it."""
        name, here = self.temporary(), where(at)
        return ([ast.Assign([ast.Name(name, STORE, **here)], value, None, **here)], ast.Name(name, LOAD, **here),
                [ast.Delete([ast.Name(name, DEL, **here)], **here)])

    def plain(self, target: ast.expr) -> bool:
        """Whether a store into a target is one into a local variable, which is not observed."""
        return isinstance(target, ast.Name) and self.scope.kind(target.id) == "local"

    def bind(self, target: Any, value: ast.expr) -> list[ast.stmt]:
        """Return statements that store a rewritten value in a target."""
        here = where(target)
        if isinstance(target, (ast.Tuple, ast.List)):
            return self._unpack(target, value)
        if isinstance(target, ast.Name):
            kind = self.scope.kind(target.id)
            name = constant(mangled(target.id, self.scope.class_name), target)
            if kind == "global":
                return [ast.Expr(self.hook(target, "set_name", name, value), **here)]
            if kind == "free":
                value = self.hook(target, "set_cell", name, value)
            return [ast.Assign([target], value, None, **here)]
        # Python evaluates the value first, then its target.
        before: list[ast.stmt] = []
        after: list[ast.stmt] = []
        into = [target.value, target.slice] if isinstance(target, ast.Subscript) else [target.value]
        if not self.steady(value) and not all(self.steady(e) for e in into):
            before, value, after = self.set_temporary(value, value)
        return [*before, self._put(target, self.value(into[0]), *map(self.key, into[1:]), value), *after]

    def _put(self, target: Any, *args: ast.expr) -> ast.stmt:
        """A statement that stores the last of ``args`` in an attribute or item; the others are parts of the target."""
        if isinstance(target, ast.Subscript):
            return ast.Expr(self.hook(target, "set_item", *args), **where(target))
        at = self.at_name(target)
        return ast.Expr(self.hook(at, "set_attr", args[0], self.attribute(target), args[1]), **where(at))

    def _unpack(self, target: Any, value: ast.expr) -> list[ast.stmt]:
        stars = [e for e in target.elts if isinstance(e, ast.Starred)]
        if stars or not (isinstance(value, (ast.Tuple, ast.List)) and len(value.elts) == len(target.elts)) or any(
                isinstance(e, ast.Starred) for e in value.elts):
            value = self.hook(value, "iterate", value)
        elements: list[ast.expr] = []
        then: list[ast.stmt] = []
        rest: list[ast.stmt] = []  # notes of the lists that stars have made
        for e in target.elts:
            inner = e.value if isinstance(e, ast.Starred) else e
            if not then and self.plain(inner):
                elements.append(e)
                if inner is not e and isinstance(inner, ast.Name):
                    rest.append(ast.Expr(self.hook(e, "new", ast.Name(inner.id, LOAD, **where(e))), **where(e)))
                continue
            name, here = self.temporary(), where(e)
            to = ast.Name(name, STORE, **here)
            elements.append(again(e, value=to) if isinstance(e, ast.Starred) else to)
            read: ast.expr = ast.Name(name, LOAD, **here)
            then += self.bind(inner, read if inner is e else self.hook(e, "new", read))
            then.append(ast.Delete([ast.Name(name, DEL, **here)], **here))
        return [ast.Assign([again(target, elts=elements)], value, None, **where(target)), *then, *rest]

    def _Assign(self, node: ast.Assign) -> list[ast.stmt]:
        value = self._sum_of(node.targets[0], node.value) if len(node.targets) == 1 else None
        value = self.value(node.value) if value is None else value
        if all(map(self.plain, node.targets)):
            return [again(node, value=value)]
        if len(node.targets) == 1:
            return self.bind(node.targets[0], value)
        before, value, after = self.set_temporary(value, node.value)
        return [*before, *[s for t in node.targets for s in self.bind(t, value)], *after]

    def _AnnAssign(self, node: ast.AnnAssign) -> list[ast.stmt]:
        if node.value is not None:
            return self.bind(node.target, self.value(node.value))
        if not isinstance(node.target, ast.Name):
            raise CannotRewrite("an annotation of what is not a variable", node.lineno)
        return [again(node, annotation=constant(None, node))]  # still says that the variable is local

    def _sum_of(self, target: ast.expr, value: ast.expr) -> ast.expr | None:
        """Return the rewritten ``self.n + 1`` of ``self.n = self.n + 1``, which adds to a number as ``+=`` does.

        None of any other value.
        """
        if not (isinstance(value, ast.BinOp) and isinstance(target, (ast.Attribute, ast.Subscript))):
            return None
        if ast.dump(again(target, ctx=LOAD)) != ast.dump(value.left):
            return None
        parts = [self.value(target.value), *([self.key(target.slice)] if isinstance(target, ast.Subscript) else [])]
        return self.hook(value, "binary", constant(BINARY[type(value.op)], value), self._counted(value.left, parts),
                         self.value(value.right))

    def _counted(self, target: Any, parts: list[ast.expr]) -> ast.expr:
        """Return the read of a target that an assignment stores next; ``parts`` are what its target consists of."""
        return self.hook(target, "counted_item", *parts) if isinstance(target, ast.Subscript) else self.hook(
            self.at_name(target), "counted_attr", parts[0], self.attribute(target))

    def _AugAssign(self, node: ast.AugAssign) -> list[ast.stmt]:
        target: Any = node.target
        before: list[ast.stmt] = []
        after: list[ast.stmt] = []
        parts: list[ast.expr] = []
        if isinstance(target, ast.Name):
            read = self.value(ast.Name(target.id, LOAD, **where(target)))
        else:
            for part in [target.value, target.slice] if isinstance(target, ast.Subscript) else [target.value]:
                if not self.steady(part):
                    store, temporary, delete = self.set_temporary(self.key(part), part)
                    before, part, after = [*before, *store], temporary, [*after, *delete]
                parts.append(part)
            read = self._counted(target, parts)
        value = self.hook(node, "inplace", constant(BINARY[type(node.op)], node), read, self.value(node.value))
        return [*before, *([self._put(target, *parts, value)] if parts else self.bind(target, value)), *after]

    def _Delete(self, node: ast.Delete) -> list[ast.stmt]:
        return [s for t in node.targets for s in self._del(t)]

    def _del(self, target: Any) -> list[ast.stmt]:
        here = where(target)
        if isinstance(target, (ast.Tuple, ast.List)):
            return [s for t in target.elts for s in self._del(t)] or [ast.Pass(**here)]
        if isinstance(target, ast.Attribute):
            at = self.at_name(target)
            return [ast.Expr(self.hook(at, "del_attr", self.value(target.value), self.attribute(target)), **where(at))]
        if isinstance(target, ast.Subscript):
            return [ast.Expr(self.hook(target, "del_item", self.value(target.value), self.key(target.slice)), **here)]
        kind, name = self.scope.kind(target.id), constant(mangled(target.id, self.scope.class_name), target)
        if kind == "global":
            return [ast.Expr(self.hook(target, "del_name", name), **here)]
        seen = [ast.Expr(self.hook(target, "del_cell", name), **here)] if kind == "free" else []
        return [*seen, ast.Delete([target], **here)]

    # Blocks

    def _bound_first(self, target: ast.expr) -> tuple[ast.expr, list[ast.stmt]]:
        """The target that a loop or a block is to store into, and the first statements of its body."""
        if self.plain(target):
            return target, []
        name, here = self.temporary(), where(target)
        return ast.Name(name, STORE, **here), [*self.bind(target, ast.Name(name, LOAD, **here)),
                                               ast.Delete([ast.Name(name, DEL, **here)], **here)]

    def _For(self, node: ast.For) -> list[ast.stmt]:
        iterated = self.iterate(node.iter)
        target, first = self._bound_first(node.target)
        return [again(node, target=target, iter=iterated, body=[*first, *self.body(node.body)],
                      orelse=self.body(node.orelse))]

    def _With(self, node: ast.With) -> list[ast.stmt]:
        def nested(items: list[ast.withitem]) -> list[ast.stmt]:
            if not items:
                return self.body(node.body)
            item, *others = items
            manager = self.hook(item.context_expr, "manager", self.value(item.context_expr))
            target, first = (None, []) if item.optional_vars is None else self._bound_first(item.optional_vars)
            return [again(node, items=[ast.withitem(manager, target)], body=[*first, *nested(others)])]
        return nested(node.items)

    def _Try(self, node: ast.Try) -> list[ast.stmt]:
        body, handlers = self.body(node.body), []
        for handler in node.handlers:
            self.local(handler.name, handler)
            handlers.append(again(handler, type=self.optional(handler.type), body=self.body(handler.body)))
        return [again(node, body=body, handlers=handlers, orelse=self.body(node.orelse),
                      finalbody=self.body(node.finalbody))]

    def _FunctionDef(self, node: Any) -> list[ast.stmt]:
        self.local(node.name, node)
        if getattr(node, "type_params", None):
            raise CannotRewrite("a generic function in a function", node.lineno)
        decorators: list[ast.expr] = [self.hook(d, "decorator", self.value(d)) for d in node.decorator_list]
        decorators.append(self.hook(node, "function").func)
        args, returns = self.defaults(node.args), node.returns
        if self.annotations_are_evaluated:
            def annotated(a: ast.arg | None) -> Any:
                return None if a is None else again(a, annotation=self.optional(a.annotation))
            args = again(args, posonlyargs=[annotated(a) for a in args.posonlyargs],
                         args=[annotated(a) for a in args.args], vararg=annotated(args.vararg),
                         kwonlyargs=[annotated(a) for a in args.kwonlyargs], kwarg=annotated(args.kwarg))
            returns = self.optional(returns)
        return [again(node, decorator_list=decorators, args=args, returns=returns)]

    _AsyncFunctionDef = _FunctionDef

    # Imports

    def _imports(self, node: Any, observed: list[ast.stmt], names: list[ast.alias],
                 then: list[ast.stmt]) -> list[ast.stmt]:
        here = where(node)
        first, last = [ast.Expr(self.hook(node, name), **here) for name in ("importing", "importing_done")]
        return [first, ast.Try([again(node, names=names), *observed], [], [], [last], **here), *then]

    def _Import(self, node: ast.Import) -> list[ast.stmt]:
        made: list[ast.stmt] = []
        for alias in node.names:
            of = [constant(alias.name, alias), constant(0, alias)]
            seen = ast.Expr(self.hook(alias, "imported", *of), **where(alias))
            name, then = self._imported_as(alias)
            made += self._imports(node, [seen], [name], then)
        return made

    def _ImportFrom(self, node: ast.ImportFrom) -> list[ast.stmt]:
        names: list[ast.alias] = []
        seen: list[ast.stmt] = []
        then: list[ast.stmt] = []
        for alias in node.names:
            name, after = self._imported_as(alias)
            names.append(name)
            then += after
            value = ast.Name(name.asname or name.name, LOAD, **where(alias))
            of = [constant(c, alias) for c in (node.module or "", node.level, alias.name)]
            seen.append(ast.Expr(self.hook(alias, "imported_from", *of, value), **where(alias)))
        return self._imports(node, seen, names, then)

    def _imported_as(self, alias: ast.alias) -> tuple[ast.alias, list[ast.stmt]]:
        """The name that an import is to bind, and statements that store it in the target of the source."""
        target = ast.Name((alias.asname or alias.name).partition(".")[0], STORE, **where(alias))
        if self.plain(target):
            return alias, []
        if alias.name != target.id and alias.asname is None:
            raise CannotRewrite(f"{target.id}, which is not local, is bound by an import of {alias.name}", alias.lineno)
        name = self.temporary()
        return again(alias, asname=name), [*self.bind(target, ast.Name(name, LOAD, **where(alias))),
                                           ast.Delete([ast.Name(name, DEL, **where(alias))], **where(alias))]

    # Patterns

    def _Match(self, node: ast.Match) -> list[ast.stmt]:
        attributes: dict[str, None] = {}
        cases: list[ast.match_case] = []
        for case in node.cases:
            reads: list[ast.expr] = []
            for part in ast.walk(case.pattern):
                if isinstance(part, (ast.MatchAs, ast.MatchStar)):
                    self.local(part.name, part)
                elif isinstance(part, ast.MatchMapping):
                    self.local(part.rest, part)
                    reads += [self.value(e) for e in part.keys if isinstance(e, ast.Attribute)]
                elif isinstance(part, ast.MatchValue):
                    reads += [self.value(part.value)] if isinstance(part.value, ast.Attribute) else []
                elif isinstance(part, ast.MatchClass):
                    self._match_class(part)
                    reads.append(self.value(part.cls))
                    attributes.update(dict.fromkeys(part.kwd_attrs))
            if reads:
                # A case that never matches, before the one that reads natively.
                at = where(case.pattern)
                never = ast.Subscript(ast.Tuple([*reads, ast.Constant(False, **at)], LOAD, **at),
                                      constant(len(reads), case.pattern), LOAD, **at)
                cases.append(ast.match_case(ast.MatchAs(None, None, **at), never, [ast.Pass(**at)]))
            guard = None if case.guard is None else self.test(case.guard)
            cases.append(again(case, guard=guard, body=self.body(case.body)))
        names: Any = ast.Tuple([constant(a, node.subject) for a in attributes], LOAD, **where(node.subject))
        return [again(node, subject=self.hook(node.subject, "subject", self.value(node.subject), names), cases=cases)]

    def _match_class(self, node: ast.MatchClass) -> None:
        builtin = isinstance(node.cls, ast.Name) and node.cls.id in _ITSELF and self.scope.kind(node.cls.id) == "global"
        if node.patterns and not builtin:
            raise CannotRewrite("a class pattern whose attributes are given by position", node.lineno)
        if any(mangled(name, self.scope.class_name) != name for name in node.kwd_attrs):
            raise CannotRewrite("a class pattern with a private attribute", node.lineno)


def evaluates_annotations(flags: int) -> bool:
    """Whether the annotations of functions made by code with these flags are evaluated where the function is made."""
    return sys.version_info < (3, 14) and not flags & __future__.annotations.compiler_flag
