"""The names that a function binds, and how the compiler looks each name up."""
from __future__ import annotations

import ast
import dis
import functools
from collections.abc import Iterable
from types import CodeType

from .source import Found


def mangled(name: str, class_name: str | None) -> str:
    """Return the name as the compiler spells it in a class."""
    if class_name is None or not name.startswith("__") or name.endswith("__") or not class_name.strip("_"):
        return name
    return f"_{class_name.lstrip('_')}{name}"


class Scope:
    """The names of one function, and of the comprehensions in it that are being walked."""

    def __init__(self, found: Found, free: Iterable[str]) -> None:
        node = found.node
        self.class_name = found.class_name
        self._free = frozenset(free)
        self._outside = set[str]()
        self._comprehensions: list[set[str]] = []
        self._frames = 0
        self.imported = found.imported
        args = node.args
        every = [*args.posonlyargs, *args.args, args.vararg, *args.kwonlyargs, args.kwarg]
        arguments = {a.arg for a in every if a is not None}
        self._bound = set[str]()
        for child in [node.body] if isinstance(node, ast.Lambda) else node.body:
            self._walk(child)
        stored, self._bound = self._bound, self._bound | arguments
        self._bound -= self._outside
        self._never_stored = arguments - stored
        self._first_argument = next((a.arg for a in (*args.posonlyargs, *args.args)), None)

    def kind(self, name: str) -> str:
        """Return "local", "free" or "global"."""
        if any(name in names for names in self._comprehensions):
            return "local"
        if name in self._bound:
            return "local"
        return "free" if mangled(name, self.class_name) in self._free else "global"

    def is_steady(self, node: ast.expr, shared: Iterable[str]) -> bool:
        """Whether ``node`` reads the same whenever it is evaluated: a constant, or an argument never bound anew.

        ``shared`` are variables that nested functions may bind.
        """
        if isinstance(node, ast.Constant):
            return True
        return isinstance(node, ast.Name) and node.id in self._never_stored and not any(
            node.id in names for names in self._comprehensions) and mangled(node.id, self.class_name) not in shared

    def first_argument(self) -> str | None:
        """Return the variable that ``super()`` reads, where it is the function's first argument."""
        name = self._first_argument
        return None if self._frames or any(name in names for names in self._comprehensions) else name

    def enter(self, generators: list[ast.comprehension], has_frame: bool) -> None:
        """Walk into a comprehension; ``has_frame`` says whether it runs as a function of its own."""
        self._frames += has_frame
        self._comprehensions.append({n.id for g in generators for n in ast.walk(g.target) if isinstance(n, ast.Name)
                                     and isinstance(n.ctx, ast.Store)})

    def leave(self, has_frame: bool) -> None:
        """Walk out of it."""
        self._frames -= has_frame
        self._comprehensions.pop()

    def _walk(self, root: ast.AST) -> None:
        """Take in the names that are bound below ``root``, but for bodies that have names of their own."""
        waiting: list[ast.AST] = [root]
        while waiting:
            node = waiting.pop()
            match node:
                case ast.Name():
                    if not isinstance(node.ctx, ast.Load):
                        self._bound.add(node.id)
                    continue
                case ast.FunctionDef() | ast.AsyncFunctionDef():
                    self._bound.add(node.name)
                    waiting += [*node.decorator_list, node.args]
                    continue
                case ast.Lambda():
                    waiting.append(node.args)
                    continue
                case ast.comprehension():
                    waiting += [node.iter, *node.ifs]
                    continue
                case ast.alias():
                    self._bound.add((node.asname or node.name).partition(".")[0])
                case ast.ExceptHandler() | ast.MatchAs() | ast.MatchStar() if node.name is not None:
                    self._bound.add(node.name)
                case ast.MatchMapping() if node.rest is not None:
                    self._bound.add(node.rest)
                case ast.Global() | ast.Nonlocal():
                    self._outside.update(node.names)
                case _:
                    pass
            waiting += ast.iter_child_nodes(node)


@functools.lru_cache(maxsize=1024)
def stored_attributes(code: CodeType | None) -> frozenset[str]:
    """Return the names of the attributes that code stores."""
    return frozenset() if code is None else frozenset(
        [i.argval for i in dis.get_instructions(code) if i.opname == "STORE_ATTR"])
