"""No function of static functions has more than 25 branch points."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

STATIC = Path(__file__).resolve().parents[2] / "frontend" / "static"
MOST_BRANCHES = 25
_BRANCHES = (ast.If, ast.For, ast.While, ast.IfExp, ast.ExceptHandler, ast.Assert, ast.match_case)
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)


def branches(function: ast.AST) -> int:
    """One, and one more for each place where the paths through a function part: McCabe's number."""
    count = 1
    nodes = list(ast.iter_child_nodes(function))
    while nodes:
        node = nodes.pop()
        if isinstance(node, (*_FUNCTIONS, ast.ClassDef)):
            continue
        if isinstance(node, ast.BoolOp):
            count += len(node.values) - 1
        elif isinstance(node, ast.comprehension):
            count += 1 + len(node.ifs)
        count += isinstance(node, _BRANCHES)
        nodes += ast.iter_child_nodes(node)
    return count


def functions(file: Path) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    yield from (node for node in ast.walk(ast.parse(file.read_text("utf-8"))) if isinstance(node, _FUNCTIONS))


def test_functions_of_static_have_few_branches() -> None:
    found = {(str(file.relative_to(STATIC)), function.name) for file in STATIC.rglob("*.py")
             for function in functions(file) if branches(function) > MOST_BRANCHES}
    assert not found


@pytest.mark.parametrize(("text", "count"), [
    ("pass", 1), ("if a: pass", 2), ("x = a and b or c", 3), ("[a for a in b if c if d]", 4),
    ("x = a if b else c", 2), ("try: pass\n except E: pass", 2), ("def g():\n  if a: pass", 1)])
def test_branches_are_counted(text: str, count: int) -> None:
    (function,) = ast.parse(f"def f():\n {text}").body
    assert branches(function) == count
