"""The syntax tree of a code object, found in its source and proven to be its own.

A candidate is compiled again, on its own, and has to give the very code: sources that were edited, moved or made by
``exec`` are found out, and several lambdas of one line are told apart.
"""
from __future__ import annotations
import __future__

import ast
import functools
import inspect
import linecache
import sys
import warnings
from collections.abc import Iterable, Iterator, Set
from dataclasses import dataclass, replace
from types import CodeType, ModuleType
from typing import Any

Function = ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda

_FUTURE = functools.reduce(int.__or__, (getattr(__future__, n).compiler_flag for n in __future__.all_feature_names))
_PLACE = inspect.CO_NESTED | getattr(inspect, "CO_METHOD", 0)
_OUTER = "__kusari_outer__"


class CannotRewrite(Exception):
    """A function cannot be rewritten soundly."""

    def __init__(self, reason: str, lineno: int = 0) -> None:
        super().__init__(reason, lineno)
        self.reason = reason
        self.lineno = lineno


class NoSource(CannotRewrite):
    """The source of a code object is not at hand, or is not the one that it was compiled from."""


@dataclass(frozen=True, eq=False)
class Found:
    """A function of a source: its node, the class whose name mangles its names, and its qualified name.

    ``imported`` are the names that the source imports in its outermost scope: calls of their attributes are compiled
    in another way.
    """

    node: Function
    class_name: str | None
    qualname: str
    imported: Set[str]


def _of_the_command_line(module_globals: dict[str, Any] | None) -> list[str]:
    """Return the program that ``python -c`` was given; nothing for any other code.

    From Python 3.13 on ``linecache`` takes that for the source of all code that was compiled from strings.
    """
    if (module_globals or {}).get("__name__") != "__main__" or "-c" not in sys.orig_argv:
        return []
    return "".join(sys.orig_argv[sys.orig_argv.index("-c") + 1:][:1]).splitlines(keepends=True)


def syntax(code: CodeType, module_globals: dict[str, Any] | None = None) -> Found:
    """Return the function that ``code`` was compiled from; raise ``NoSource`` where that is not certain."""
    filename = code.co_filename
    if filename.startswith("<frozen ") and module_globals is not None:
        filename = module_globals.get("__file__") or filename
    lines = (_of_the_command_line(module_globals) if filename == "<string>" else
             linecache.getlines(filename, module_globals))
    if not lines:
        raise NoSource(f"its source is not at hand ({code.co_filename})")
    alone = _alone_in(lines, code, module_globals or {})
    if alone is not None and compiled(alone, alone.node, code) == code:
        return alone
    try:
        candidates = _file("".join(lines)).candidates(code.co_name, code.co_firstlineno)
    except (SyntaxError, ValueError, RecursionError) as error:
        raise NoSource(f"the source of {code.co_filename} cannot be parsed") from error
    # Calls of super are compiled in another way where the outermost scope mentions that name.
    mentioning = [replace(f, imported=f.imported | {"super"}) for f in candidates if "super" in names(code)]
    # Notebooks compile each statement of a cell on its own, apart from the imports beside it.
    apart = [replace(f, imported=frozenset[str]()) for f in candidates]
    for found in (*candidates, *mentioning, *apart):
        if compiled(found, found.node, code) == code:
            return found
    if len(candidates) == 1 and _with_rewritten_asserts(candidates[0], code):
        return candidates[0]
    raise NoSource(f"the source of {code.co_name} ({code.co_filename}:{code.co_firstlineno}) is not at hand, or has "
                   "changed since it was imported")


def _alone_in(lines: list[str], code: CodeType, module_globals: dict[str, Any]) -> Found | None:
    """Return the function parsed from its own lines, which takes a fraction of the whole file; a guess to be proven.

    None for lambdas, for code that does not know its qualified name (Python 3.10), and for lines that are no function.
    """
    qualname = getattr(code, "co_qualname", "<lambda>")
    if qualname.endswith("<lambda>"):
        return None
    first = code.co_firstlineno
    own = lines[first - 1:_last_line(code)]
    is_indented = own[:1] != [line.lstrip() for line in own[:1]]
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            tree = ast.parse("".join(["if True:\n", *own] if is_indented else own))
    except (SyntaxError, ValueError, RecursionError):
        return None
    found: list[Any] = tree.body[0].body if is_indented else tree.body  # type: ignore[attr-defined]
    node = found[0] if found else None  # of a file that has become shorter
    if not isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
        return None
    ast.increment_lineno(node, first - 1 - is_indented)
    imported = {name for name in names(code) if isinstance(module_globals.get(name), ModuleType)}
    return Found(node, _class_of(qualname), qualname, imported)


def _last_line(code: CodeType) -> int:
    """The last line of a code object and of those nested in it, as far as instructions tell."""
    own = max((end for _, end, _, _ in code.co_positions() if end is not None), default=code.co_firstlineno)
    return max([own, *[_last_line(c) for c in code.co_consts if isinstance(c, CodeType)]])


def _class_of(qualname: str) -> str | None:
    """The innermost class around a function, by its qualified name."""
    parts = qualname.split(".")[:-1]
    while parts:
        if parts[-1] != "<locals>":
            return parts[-1]
        del parts[-2:]
    return None


def compiled(found: Found, node: Function, code: CodeType, *hidden: str) -> CodeType | None:
    """Return the code of ``node`` compiled in the place of ``found``, with the free variables of ``code``.

    The names ``hidden`` are free, too, if the function reads them. None if ``node`` cannot be compiled there.
    """
    free = [name for name in code.co_freevars if name != "__class__" or found.class_name is None]
    if not all(map(str.isidentifier, free)):
        return None
    bound = found.class_name or (node.name if not isinstance(node, ast.Lambda) else None)
    text = "".join([f"import {name}\n" for name in found.imported & set(names(code))])
    text += f"def {_OUTER}({', '.join((*free, *hidden))}):\n"
    prefix = f"{_OUTER}.<locals>."
    if bound is not None and bound not in free:
        text += f" global {bound}\n"  # else inner code would take it for a variable of the outer function
        prefix = ""
    text += " pass\n" if found.class_name is None else f" class {found.class_name}: pass\n"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            module: Any = ast.parse(text)
            around = module.body[-1] if found.class_name is None else module.body[-1].body[-1]
            around.body[-1] = _alone(node)
            made = compile(module, code.co_filename, "exec", code.co_flags & _FUTURE, True)
        except (SyntaxError, ValueError, RecursionError):
            return None
    for _ in range(2 if found.class_name is None else 3):
        made = next(c for c in made.co_consts if isinstance(c, CodeType))
    # Here it is nested in the outer function, and a method of the class; there it may not have been.
    made = made.replace(co_flags=made.co_flags & ~_PLACE | code.co_flags & _PLACE)
    prefix += f"{found.class_name}.{code.co_name}" if found.class_name is not None else code.co_name
    return _requalified(made, prefix, getattr(code, "co_qualname", found.qualname))


def _alone(node: Function) -> ast.stmt:
    """The function without all that is evaluated outside of it, but on the lines where it is."""
    where = {"lineno": node.lineno, "col_offset": node.col_offset, "end_lineno": node.end_lineno,
             "end_col_offset": node.end_col_offset}
    args = node.args
    plain = ast.arguments([_bare(a) for a in args.posonlyargs], [_bare(a) for a in args.args],
                          args.vararg and _bare(args.vararg), [_bare(a) for a in args.kwonlyargs],
                          [None] * len(args.kwonlyargs), args.kwarg and _bare(args.kwarg), [])
    if isinstance(node, ast.Lambda):
        return ast.Expr(ast.Lambda(plain, node.body, **where), **where)
    decorators = [ast.copy_location(ast.Constant(None), d) for d in node.decorator_list[:1]]
    made: dict[str, Any] = {"name": node.name, "args": plain, "body": node.body, "decorator_list": decorators,
                            "returns": None, "type_comment": None, **where}
    if hasattr(node, "type_params"):
        made["type_params"] = []
    return type(node)(**made)


def _bare(a: ast.arg) -> ast.arg:
    return ast.copy_location(ast.arg(a.arg, None, None), a)


def _requalified(code: CodeType, old: str, new: str) -> CodeType:
    """The code, and all code in it, with ``old`` at the beginning of qualified names replaced by ``new``.

    The body of a class has its own as a constant, and Python 3.10 has those of nested code.
    """
    consts: list[Any] = list(code.co_consts)
    named = sys.version_info < (3, 11) or not code.co_flags & inspect.CO_OPTIMIZED
    for i, c in enumerate(consts):
        if isinstance(c, CodeType):
            consts[i] = _requalified(c, old, new)
        elif named and isinstance(c, str) and c.startswith(f"{old}.<locals>."):
            consts[i] = new + c[len(old):]
    changed: dict[str, Any] = {"co_consts": tuple(consts)}
    if sys.version_info >= (3, 11):
        changed["co_qualname"] = new + code.co_qualname[len(old):]
    return code.replace(**changed)


def _with_rewritten_asserts(found: Found, code: CodeType) -> bool:
    """Whether ``code`` is that of a function with asserts that pytest has rewritten, by all that stays the same."""
    if not any(isinstance(node, ast.Assert) for node in ast.walk(found.node)):
        return False
    plain = compiled(found, found.node, code)
    if plain is None or not any(name.startswith("@") for name in names(code)):
        return False
    def facts(c: CodeType) -> tuple[Any, ...]:
        variables = tuple([name for name in c.co_varnames if not name.startswith("@")])
        return (variables, c.co_freevars, c.co_cellvars, c.co_argcount, c.co_posonlyargcount, c.co_kwonlyargcount,
                c.co_flags)
    return facts(plain) == facts(code) and set(plain.co_names) <= set(code.co_names)


def names(code: CodeType) -> Iterator[str]:
    """Every name in a code object and in those nested in it."""
    for some in (code.co_names, code.co_varnames, code.co_freevars, code.co_cellvars):
        yield from some
    for c in code.co_consts:
        if isinstance(c, CodeType):
            yield from names(c)


class _File:
    """The functions of one source, by name and first line."""

    def __init__(self, text: str) -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            self._tree = ast.parse(text)
        self._functions: dict[tuple[str, int], list[Found]] = {}
        self._lambdas: dict[int, list[Found]] | None = None
        self._imported: set[str] = set()
        self._imported |= self._statements(self._tree.body, None, "")

    def candidates(self, name: str, line: int) -> list[Found]:
        """Return the functions of that name whose first line it is."""
        if name == "<lambda>":
            if self._lambdas is None:
                self._lambdas = self._all_lambdas()  # a walk of every expression, which few files need
            return self._lambdas.get(line, [])
        return self._functions.get((name, line), [])

    def _all_lambdas(self) -> dict[int, list[Found]]:
        found: dict[int, list[Found]] = {}

        def walk(nodes: Iterable[ast.AST], class_name: str | None, prefix: str) -> None:
            for node in nodes:
                if isinstance(node, ast.Lambda):
                    one = Found(node, class_name, f"{prefix}<lambda>", self._imported)
                    found.setdefault(node.lineno, []).append(one)
                    walk([node.args], class_name, prefix)
                    walk([node.body], class_name, f"{one.qualname}.<locals>.")
                elif isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
                    walk([*node.decorator_list, node.args], class_name, prefix)
                    walk(node.body, class_name, f"{prefix}{node.name}.<locals>.")
                elif isinstance(node, ast.ClassDef):
                    walk([*node.decorator_list, *node.bases, *node.keywords], class_name, prefix)
                    walk(node.body, node.name, f"{prefix}{node.name}.")
                else:
                    walk(ast.iter_child_nodes(node), class_name, prefix)
        walk([self._tree], None, "")
        return found

    def _statements(self, body: list[Any], class_name: str | None, prefix: str) -> set[str]:
        """Take in the functions among statements; return the names that are imported in their own scope."""
        imported = set[str]()
        for node in body:
            if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
                line = node.decorator_list[0].lineno if node.decorator_list else node.lineno
                found = Found(node, class_name, prefix + node.name, self._imported)
                self._functions.setdefault((node.name, line), []).append(found)
                self._statements(node.body, class_name, f"{found.qualname}.<locals>.")
            elif isinstance(node, ast.ClassDef):
                self._statements(node.body, node.name, f"{prefix}{node.name}.")
            elif isinstance(node, (ast.Import, ast.ImportFrom)):
                imported |= {(alias.asname or alias.name).partition(".")[0] for alias in node.names} - {"*"}
            else:
                for part in ("body", "handlers", "orelse", "finalbody", "cases"):
                    inner = getattr(node, part, None)
                    if isinstance(inner, list):
                        imported |= self._statements(inner, class_name, prefix)
        return imported


@functools.lru_cache(maxsize=64)
def _file(text: str) -> _File:
    return _File(text)
