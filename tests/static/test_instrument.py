"""Instrumented copies of functions do what the functions do, and are refused where that is not certain."""
from __future__ import annotations

import argparse
import ast
import bisect
import collections
import contextlib
import copy
import dataclasses
import difflib
import fractions
import functools
import heapq
import importlib
import inspect
import json.encoder
import linecache
import shlex
import statistics
import string
import sys
import textwrap
import warnings
from collections.abc import Callable, Iterator
from types import CodeType, FunctionType, ModuleType
from typing import Any

import pytest
from static.rewriting import CASES, Plain, copied, load, seen_of

from kusari.static.trace.copies.instrument import CannotRewrite, NoSource, rewritten
from kusari.static.trace.copies.source import compiled, syntax

COMPREHENSIONS = ("<listcomp>", "<setcomp>", "<dictcomp>", "<genexpr>")


@pytest.mark.parametrize("name", CASES)
def test_copy_does_the_same(name: str) -> None:
    """Results, exceptions with their lines, and everything that happens, in order."""
    file = f"<case {name}>"
    native, other = load(CASES[name], file), load(CASES[name], file)
    expected = seen_of(native["f"], native["log"], file)
    hooks: list[str] = []
    rewritten(other["f"].__code__)  # is not refused
    assert seen_of(copied(other["f"], hooks), other["log"], file) == expected
    assert hooks


@pytest.mark.parametrize("text", CASES.values(), ids=CASES)
def test_nested_functions_are_the_originals(text: str) -> None:
    file = "<nested>"
    for f in load(text, file).values():
        if isinstance(f, FunctionType) and f.__code__.co_filename == file:
            try:
                made = rewritten(f.__code__).code
            except CannotRewrite:
                continue  # it makes a class
            assert functions_in(made) <= functions_in(f.__code__)
            assert set(made.co_freevars) <= {*f.__code__.co_freevars, "__kusari__"}


def functions_in(code: CodeType) -> set[int]:
    """The identities of the functions that code makes."""
    found: set[int] = set()
    for c in code.co_consts:
        if isinstance(c, CodeType):
            found |= functions_in(c) if c.co_name in COMPREHENSIONS else {id(c)}
    return found


@pytest.mark.parametrize(("body", "hooks"), [
    ("x = G", ["name"]), ("global x; x = 1", ["set_name"]), ("global x; del x", ["del_name"]), ("b = c", ["cell"]),
    ("nonlocal c; c = 1", ["set_cell"]), ("nonlocal c; del c", ["del_cell"]), ("a.b", ["attr"]),
    ("a.b = 1", ["set_attr"]), ("del a.b", ["del_attr"]), ("a[1:]", ["slice", "item"]), ("a[1] = 2", ["set_item"]),
    ("del a[1]", ["del_item"]), ("a(1)", ["call"]), ("super()", ["super"]),
    ("a(*b, **b)", ["iterate", "mapping", "call"]), ("(x for x in a)", ["iterate", "generator"]),
    ("a + b", ["binary"]), ("a += b", ["inplace"]), ("-a", ["unary"]), ("not a", ["truth"]), ("a < b", ["compare"]),
    ("a < b < 3", ["operand", "operand"]), ("a and b", ["seen"]), ("1 if a else b", ["truth"]),
    ("a.b += 1", ["counted_attr", "inplace", "set_attr"]), ("a[1] += 1", ["counted_item", "inplace", "set_item"]),
    ("for x in a: pass", ["iterate"]), ("x, *y = a", ["iterate", "new"]), ("x, y = a, b", []),
    ("[*a]", ["iterate", "new"]), ("[x for x in a if x]", ["iterate", "new", "truth"]),
    ("[x for x, y in a]", ["iterate", "new"]),
    ("{**a}", ["mapping", "new"]), ("f'{a!r:{b}}'", ["format", "format"]), ("lambda: a.b", ["function"]),
    ("@a\n  def f(): pass", ["decorator", "function"]), ("with a: pass", ["manager"]), ("import sys", [
        "importing", "imported", "importing_done"]), ("from sys import path, version", [
            "importing", "imported_from", "imported_from", "importing_done"]),
    ("match a:\n   case int(): pass", ["subject", "name"]), ("x = a; y = (x, [1], {2: 3}); del x; x = y", ["new"])])
def test_hooks(body: str, hooks: list[str]) -> None:
    """The methods of the observer that each construct calls."""
    body = body.replace("\n", "\n ")
    text = f"def make(c=1):\n class K:\n  def f(self, a, b):\n   {body}\n return K.f\n"
    code = load(text, "<hooks>")["make"]().__code__
    names = [n for c in (rewritten(code).code, *inner(rewritten(code).code)) for n in c.co_names]
    assert sorted({n for n in names if hasattr(Plain, n)}) == sorted(set(hooks))


def inner(code: CodeType) -> Iterator[CodeType]:
    """The comprehensions in code."""
    for c in code.co_consts:
        if isinstance(c, CodeType) and c.co_name in COMPREHENSIONS:
            yield c


@pytest.mark.parametrize(("body", "reason"), [
    ("async def f(): pass", "asynchronous"), ("async def f(): yield", "asynchronous"),
    ("def f():\n class C: pass", "ClassDef"), ("def f(): __kusari_1__ = 2", "called like"),
    ("def f():\n return super()", "super"), ("class C:\n def f(*args): super()\nf = C.f", "super"),
    ("class C:\n def f(self): return (super() for _ in self)\nf = C.f", "super"),
    ("def f(x):\n match x:\n  case C(1): pass", "position"),
    ("class C:\n def f(x):\n  match x:\n   case C(__y=1): pass\nf = C.f", "private"),
    ("def f():\n global g\n def g(): pass", "not local"), ("def f():\n global x\n return (x := 1)", "not local"),
    ("def f():\n global e\n try: 1\n except K as e: 2", "not local"),
    ("def f(x):\n global y\n match x:\n  case y: 1", "not local"),
    ("def f():\n global os\n import os.path", "not local"), ("def f(x): [0 for x.a in x]", "comprehension that"),
    ("def f(x): x.a: int", "annotation"), ("def f():\n try: 1\n except* K: 2", "TryStar"),
    ("def f():\n def g[T](): 1", "generic"), ("def f():\n type X = int", "TypeAlias"),
    (f"def f(x): return {'-' * 900}x", "too deeply nested")])
def test_refused(body: str, reason: str) -> None:
    try:
        f = load(body, "<refused>")["f"]
    except SyntaxError:
        pytest.skip("not in this Python")
    for _ in range(2):
        with pytest.raises(CannotRewrite, match=reason) as caught:
            rewritten(f.__code__)
        assert caught.value.lineno > 0


@pytest.mark.parametrize(("old", "new"), [
    ("def f(x): return x + 1", "def f(x): return x + 2"), ("def f(x): return x + 1", "\ndef f(x): return x + 1"),
    ("def f(x): return x + 1", "def f(y): return y + 1"), ("def f(x): return x + 1", "def f(x: return"),
    ("f = lambda: 1", "f = lambda: 1.0"), ("def f():\n def g(): return 1", "def f():\n def g(): return 2"),
    ("def f(x): return x.a", "import x\ndef f(x): return x.a"), ("class C:\n def f(self): return self.__x\nf = C.f",
     "class C:\n def f(self): return self.__y"), ("def f(x): assert x", "def f(x): assert not x"),
    ("\n\ndef f(x): return x", "x = 1")])
def test_changed_sources_are_found_out(old: str, new: str) -> None:
    file = "<changed>"
    f = load(old, file)["f"]
    linecache.cache[file] = (len(new), None, new.splitlines(True), file)
    with pytest.raises(NoSource):
        rewritten(f.__code__)


def test_sources_that_are_not_at_hand(monkeypatch: pytest.MonkeyPatch) -> None:
    other = "import sys"  # of the command line, as Python 3.13 keeps it for all strings
    monkeypatch.setitem(linecache.cache, "<string>", (len(other), None, [other], "<string>"))
    space: dict[str, Any] = {}
    exec("def f(): pass", space)
    with pytest.raises(NoSource, match=r"not at hand \(<string>\)"):
        rewritten(space["f"].__code__)


def test_copies_are_kept_on_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    """So a later process needs no source; functions that a copy makes are those of its own original."""
    text = "def f(x):\n def g(): return x.real\n return g"

    def again() -> CodeType:
        code = load(text, "<kept>")["f"].__code__
        del linecache.cache["<kept>"]
        return code
    made, second = rewritten(load(text, "<kept>")["f"].__code__).code, again()
    found = rewritten(second).code
    assert found == made and found is not made
    inner = [c for c in found.co_consts if isinstance(c, CodeType)]
    assert inner and all(any(c is d for d in second.co_consts) for c in inner)
    monkeypatch.setenv("KUSARI_CACHE", "0")
    with pytest.raises(NoSource):
        rewritten(again())


@pytest.mark.skipif(sys.version_info < (3, 11), reason="code does not know its qualified name")
@pytest.mark.parametrize("text", [
    "class C:\n  class D:\n    def f(self):\n        return self.__x, __class__\nf = C.D.f",
    "def o():\n class C:\n  def f(self):\n   def g(): return self.__x, 'a\\\nb'\n   return g\n return C\nf = o().f",
    "import os\ndef f(): return os.path.join('a', os.sep)", "if 1:\n    @staticmethod\n    def f(\n  x): return x.real",
    "def f(x):\n  '''text\nat the margin'''\n  return x.real\n  # the end"])
def test_functions_are_found_in_their_own_lines(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The rest of a file is not parsed."""
    def whole(text: str) -> Any:
        raise AssertionError("a whole file")
    monkeypatch.setattr("kusari.static.trace.copies.source._file", whole)
    f = load(f"\n\n{text}\n\ndef other(): pass\n", "<own lines>")["f"]
    f = getattr(f, "__func__", f)
    code = f.__code__
    found = syntax(code, f.__globals__)
    assert compiled(found, found.node, code) == code


def test_sources_from_loaders() -> None:
    """A loader of the module is asked, as tracebacks do."""
    text, file = "def f(x): return x.real\n", "/nowhere/module.py"

    class Loader:
        def get_source(self, name: str) -> str:
            return text
    space: dict[str, Any] = {"__name__": "m", "__loader__": Loader()}
    exec(compile(text, file, "exec"), space)
    assert ast.unparse(syntax(space["f"].__code__, space).node) == "def f(x):\n    return x.real"


def test_equal_code_of_two_files() -> None:
    """A copy says the file of its own function."""
    text = "def f(x): return x.nothing\n"
    for file in ("<one>", "<two>"):
        assert rewritten(load(text, file)["f"].__code__).code.co_filename == file


def test_asserts_that_pytest_has_rewritten(request: pytest.FixtureRequest) -> None:
    """The code of this file is not what its source is compiled to, where there are asserts."""
    if request.config.getoption("assertmode") == "plain":
        pytest.skip("pytest leaves asserts as they are")
    def f(x: Any, y: list[int]) -> Any:
        def g(z: int) -> int:
            assert z > 0
            return z + x
        assert x.real == 1 and y, f"message {y}"
        return [g(z) for z in y]
    assert any(name.startswith("@") for name in f.__code__.co_varnames)
    g = copied(f)
    assert g is not f and g(1, [2, 3]) == [3, 4]
    with pytest.raises(AssertionError, match=r"message \[\]"):
        g(1, [])


def test_what_a_copy_looks_like() -> None:
    text = "class C:\n @staticmethod\n def f(a, /, b=1, *c, d=2, **e):\n  'doc'\n  yield a.real\nf = C.f"
    f = load(text, "<look>")["f"]
    g = copied(f)
    assert g is not f and str(inspect.signature(g)) == str(inspect.signature(f))
    for name in ("__name__", "__qualname__", "__doc__", "__module__", "__defaults__", "__kwdefaults__", "__globals__"):
        assert getattr(g, name) == getattr(f, name)
    for name in ("co_name", "co_filename", "co_firstlineno", "co_flags"):
        mine, its = getattr(g.__code__, name), getattr(f.__code__, name)
        assert mine == its or name == "co_flags" and (mine ^ its) & ~0x50 == 0  # nested, no free variables
    assert getattr(g.__code__, "co_qualname", "") == getattr(f.__code__, "co_qualname", "")
    assert rewritten(f.__code__) is rewritten(f.__code__)


def test_no_temporary_outlives_its_statement() -> None:
    space = load("def f(x):\n for x.a, y in [(1, 2)]: pass\n with x as (x.b, x[y.real]): x.c += 1\n x.d = x.e = y\n"
                 " return locals()", "<locals>")

    class Open(Plain):
        def call(self, f: Any, /, *args: Any, **kwargs: Any) -> Any:
            return set(sys._getframe(1).f_locals) if f is locals else super().call(f, *args, **kwargs)
    f = space["f"]
    assert rewritten(f.__code__).make(f, Open(space))(space["loud"]("x")) == {"x", "y", "__kusari__"}


NOT_FUNCTIONS = (*COMPREHENSIONS, "__annotate__")
MODULES: list[ModuleType] = [argparse, ast, bisect, collections, contextlib, copy, dataclasses, difflib, fractions,
                             functools, heapq, inspect, json.encoder, linecache, shlex, statistics, string, textwrap]


@pytest.mark.parametrize("module", MODULES, ids=lambda m: m.__name__)
def test_functions_of_the_standard_library(module: ModuleType) -> None:
    """All functions of a file are copied, but for classes made in functions, and what is asynchronous."""
    code = compile(inspect.getsource(module), str(module.__file__), "exec", dont_inherit=True)
    made, refused = 0, list[str]()

    def walk(code: CodeType) -> None:
        nonlocal made
        for c in code.co_consts:
            if isinstance(c, CodeType):
                walk(c)
                if c.co_flags & inspect.CO_NEWLOCALS and c.co_name not in NOT_FUNCTIONS:
                    try:
                        rewritten(c)
                        made += 1
                    except CannotRewrite as error:
                        refused.append(error.reason)
    walk(code)
    assert made
    assert {reason.split(",")[0] for reason in refused} <= {"ClassDef is not followed", "an asynchronous function"}


@dataclasses.dataclass(order=True)
class Point:
    x: int
    y: list[int] = dataclasses.field(default_factory=list)


def parse() -> Any:
    """Parse a command line and print the help."""
    parser = argparse.ArgumentParser("p", description="words " * 30)
    parser.add_argument("--n", type=int, choices=[1, 2], default=1)
    group = parser.add_mutually_exclusive_group()
    group.add_argument("-a", action="store_true", help="an a of %(default)s")
    group.add_argument("-b", nargs="*")
    return parser.parse_args(["--n", "2", "-b", "c", "d"]), parser.format_help()


def stack() -> Any:
    """Enter and leave contexts."""
    log: list[Any] = []

    @contextlib.contextmanager
    def made(x: int) -> Iterator[int]:
        log.append(x)
        try:
            yield x
        finally:
            log.append(-x)
    with contextlib.suppress(KeyError), contextlib.ExitStack() as s:
        log.append([s.enter_context(made(i)) for i in range(3)])
        raise KeyError
    return log


def heap() -> Any:
    """Sort with a heap, merge and look up."""
    h: list[int] = []
    for x in (5, 3, 8, 1):
        heapq.heappush(h, x)
    return [*heapq.merge([1, 4], [2, 3], key=lambda x: -x)], heapq.nsmallest(2, h), bisect.bisect_left([1, 2, 3], 2)


CALLS: dict[str, Callable[[], Any]] = {
    "wrap": lambda: textwrap.wrap("a bc def ghij " * 9, 20), "dedent": lambda: textwrap.dedent("  a\n    b\n"),
    "indent": lambda: textwrap.indent("a\n\nb", "> "), "heap": heap, "parse": parse, "stack": stack,
    "fraction": lambda: (fractions.Fraction(3, 4) + fractions.Fraction("1.5")) ** 2 / fractions.Fraction(0.5),
    "from float": lambda: fractions.Fraction.from_float(0.3).limit_denominator(50),
    "statistics": lambda: (statistics.mean([1, 2, 4]), statistics.stdev([1.5, 2, 9]), statistics.quantiles(range(9))),
    "template": lambda: string.Template("$a ${b} $$").safe_substitute(a=1), "capwords": lambda: string.capwords("a b"),
    "formatter": lambda: string.Formatter().format("{0!r:>5}{a[0]}{b.real}", "x", a=[1], b=2),
    "shlex": lambda: (shlex.split("a 'b c' \"d\" # e", comments=True), shlex.quote("a b")),
    "ndiff": lambda: [*difflib.ndiff(["ab\n", "c\n", "d\n"], ["ac\n", "c\n", "e\n"])],
    "unified": lambda: [*difflib.unified_diff([*"abc"], [*"abd"])],
    "close matches": lambda: difflib.get_close_matches("appel", ["ape", "apple"]),
    "json": lambda: json.encoder.JSONEncoder(indent=1, sort_keys=True).encode({"b": [1, 2.5, None], "a": {"c": "\n"}}),
    "counter": lambda: (collections.Counter("abca") + collections.Counter("ad")).most_common(),
    "chain map": lambda: sorted(collections.ChainMap({"a": 1}, {"b": 2}).new_child({"a": 3}).items()),
    "copy": lambda: copy.deepcopy({"a": [Point(1, [2])], "b": (fractions.Fraction(1, 2), [3])}),
    "dataclass": lambda: (dataclasses.asdict(Point(1, [2])), dataclasses.replace(Point(1), x=2), Point(1) < Point(2)),
    "dump": lambda: ast.dump(ast.parse("a = [b for c in d]"), indent=1),
    "unparse": lambda: ast.unparse(ast.parse("def f(a, *b: int) -> c:\n  return f'{a!r:>{b}}' if a else [*b]")),
    "signature": lambda: str(inspect.signature(copy.deepcopy)),
    "partial": lambda: functools.reduce(lambda a, b: a * b, range(1, 6)),
}


@pytest.mark.parametrize("name", CALLS)
def test_calls_of_the_standard_library(name: str) -> None:
    """Copies all the way down, where classes and C code do not call back."""
    f = CALLS[name]
    assert isinstance(f, FunctionType)
    hooks: list[str] = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert repr(copied(f, hooks)()) == repr(f())
    assert hooks


def test_nothing_but_the_standard_library_is_needed() -> None:
    package = importlib.import_module("kusari.static.trace.copies")
    for name in ("source", "scope", "expressions", "statements", "instrument"):
        module = importlib.import_module(f"{package.__name__}.{name}")
        for node in ast.walk(ast.parse(inspect.getsource(module))):
            if isinstance(node, ast.Import):
                assert all(a.name.partition(".")[0] in sys.stdlib_module_names for a in node.names)
            elif isinstance(node, ast.ImportFrom):
                assert node.level == 1 or str(node.module).partition(".")[0] in sys.stdlib_module_names
