"""Python text: the writer of straight-line functions, as replays, guards and steps run them.

A text names the objects it works on; compiled, it is a function that has them as variables of its closure. Equal texts
are compiled once, and are registered with ``linecache``: tracebacks and debuggers show their lines.

Invariant: no other module of this package calls ``exec`` for a replay.
"""
from __future__ import annotations

import itertools
import linecache
import re
import weakref
from collections.abc import Callable, Generator
from contextlib import contextmanager
from functools import lru_cache
from types import CodeType
from typing import Any

from .errors import is_from_handler

_INDENT = "    "
_numbers = itertools.count()


class Source:
    """The text of one function: its lines, and the objects that it names.

    A ``kind`` says in tracebacks which text it is; ``head`` is the function's name with its arguments. Names are made
    of hints, words without digits behind an underscore, so that no two are the same.
    """

    def __init__(self, kind: str, head: str) -> None:
        self._kind, self._head = kind, head
        self._lines: list[str] = []
        self._indent = _INDENT * 2
        self._names: dict[str, Any] = {}   # objects
        self._known: dict[int, str] = {}   # their names, by identity
        self._taken: dict[str, int] = {}   # names made of each hint
        self._kept: list[str] = []         # variables that last from call to call
        for word in re.findall(r"\w+", head):
            self.fresh(word)

    def fresh(self, hint: str) -> str:
        """Return a name that nothing else in the text has."""
        count = self._taken[hint] = self._taken.get(hint, 0) + 1
        return hint if count == 1 else f"{hint}_{count}"

    def name(self, value: Any, hint: str) -> str:
        """Return the name of an object, always the same one."""
        name = self._known.get(id(value))
        if name is None:
            name = self._known[id(value)] = self.fresh(hint)
            self._names[name] = value
        return name

    def literal(self, value: Any, hint: str) -> str:
        """Return an expression for a value: None, True and False as they are, the name of any other."""
        return repr(value) if value is None or value is True or value is False else self.name(value, hint)

    def kept(self, hint: str) -> str:
        """Return the name of a variable that is None before the first call, and keeps its value from call to call."""
        name = self.fresh(hint)
        self._names[name] = None
        self._kept.append(name)
        return name

    def line(self, *lines: str) -> None:
        """Append lines at the present indentation."""
        self._lines += [self._indent + line for line in lines]

    @contextmanager
    def block(self, head: str) -> Generator[None]:
        """Append ``head`` with a colon; inside, lines are appended to its block."""
        self.line(f"{head}:")
        self._indent += _INDENT
        yield
        self._indent = self._indent[len(_INDENT):]

    def otherwise(self, miss: str) -> None:
        """Append the end of a ``try`` block: ``miss`` where reading raised, but not where a signal's handler did."""
        error = self.fresh("error")
        with self.block(f"except Exception as {error}"):
            self.line(f"if {self.name(is_from_handler, 'is_from_handler')}({error}): raise", miss)

    def function(self) -> Callable[..., Any]:
        """Return the function."""
        keeping = [f"{_INDENT * 2}nonlocal {', '.join(self._kept)}"] if self._kept else []
        text = "\n".join([f"def make({', '.join(self._names)}):", f"{_INDENT}def {self._head}:", *keeping,
                          *(self._lines or [f"{_INDENT * 2}pass"]), f"{_INDENT}return {self._head.partition('(')[0]}"])
        return _maker(self._kind, text)(**self._names)


def release(function: Callable[..., Any]) -> None:
    """Clear the references of a function of a text, also that to itself: it is not called again."""
    for cell in function.__closure__ or ():
        del cell.cell_contents


@lru_cache(maxsize=256)
def _maker(kind: str, text: str) -> Callable[..., Any]:
    """Return the function ``make`` of a text; its lines are registered for as long as code of it is alive."""
    name = f"<kusari {kind} {next(_numbers)}>"
    scope: dict[str, Any] = {"__name__": __name__}  # so that these frames are ours: see `callsite`
    exec(compile(text, name, "exec"), scope)
    make = scope["make"]
    linecache.cache[name] = (len(text), None, text.splitlines(keepends=True), name)
    code = next(c for c in make.__code__.co_consts if isinstance(c, CodeType))
    weakref.finalize(code, linecache.cache.pop, name, None).atexit = False
    return make
