"""Instrumented copies of functions: the same code, with an observer between it and all state outside its variables.

The copy has one more free variable, ``__kusari__``, the observer ``k``. Its calls, in the order of the source:

=============================  =======================================================================================
``k.name("n")``                a global or builtin name; ``k.set_name("n", v)`` and ``k.del_name("n")`` are statements
``k.cell("n", n)``             a free variable; ``n = k.set_cell("n", v)``; ``k.del_cell("n")`` before ``del n``
``k.attr(x, "name")``          ``k.set_attr(x, "name", v)``, ``k.del_attr(x, "name")``; private names are mangled
``k.item(x, key)``             ``k.set_item(x, key, v)``, ``k.del_item(x, key)``; slices are ``k.slice(a, b, c)``
``k.counted_attr(x, "name")``  the read of ``x.name += a``; ``k.counted_item(x, key)``
``k.call(f, *args, **kw)``     a call; ``k.super(__class__, self)`` for ``super()``
``k.binary("+", a, b)``        ``k.inplace("+", a, b)`` for ``a += b``; ``k.unary("-", a)``; ``k.compare("in", a, b)``
``k.operand(a)``               an operand of a chained comparison, which is Python's own
``k.truth(a)``                 the bool that a branch tests, also an operand of ``not``
``k.seen(a)``                  ``a``, whose truth Python asks for next: an operand of ``and`` or ``or`` in a value
``k.iterate(xs)``              what is iterated over next: a loop, an unpacking, ``*xs``, ``yield from xs``
``k.mapping(m)``               ``**m``
``k.format(x, "r", spec)``     the string of ``{x!r:spec}``; ``""`` for no conversion
``k.generator(g)``             a generator expression; ``k.new(x)``: a list, dictionary or set of a display or
                               comprehension, and the dictionary of ``**kwargs``
``k.function(f)``              a function made by ``lambda`` or ``def``, whose code is the original's
``k.decorator(d)``             a callable that gives ``k.call(d, f)`` for ``f``
``k.manager(m)``               the context manager of ``with``
``k.subject(x, names)``        the subject of ``match``; ``names`` are attributes in class patterns, whose classes are
                               read before the case as everywhere else, and by Python once more
``k.importing()``              before an import, ``k.imported("a.b", 0)`` or ``k.imported_from("a", level, "b", value)``
                               after it, for each name, and ``k.importing_done()``, also when it raises
=============================  =======================================================================================

Local variables, constants, displays and control flow stay Python's own, and so do bodies of nested functions.
"""
from __future__ import annotations

from dataclasses import dataclass
from inspect import CO_ASYNC_GENERATOR, CO_COROUTINE, CO_GENERATOR, CO_VARARGS, CO_VARKEYWORDS
from types import CellType, CodeType, FunctionType
from typing import Any

from .expressions import OBSERVER
from .kept import keep, kept
from .scope import Scope
from .source import CannotRewrite, NoSource, compiled, names, syntax
from .statements import Statements, evaluates_annotations

__all__ = ["NoSource", "CannotRewrite", "Rewritten", "rewritten"]

_COMPREHENSIONS = ("<listcomp>", "<setcomp>", "<dictcomp>", "<genexpr>")
_KINDS = CO_VARARGS | CO_VARKEYWORDS | CO_GENERATOR


MOST_REWRITTEN_FUNCTIONS = 4096

# By identity: code objects that are equal may be of different files. They are kept, so that it stays theirs.
_made: dict[int, tuple[CodeType, Rewritten | CannotRewrite]] = {}


@dataclass(frozen=True, eq=False)
class Rewritten:
    """The code of an instrumented copy.

    Its free variables are those of the original that it reads, and ``__kusari__`` where it observes anything.
    """

    code: CodeType

    def make(self, function: FunctionType, k: Any) -> FunctionType:
        """Return the copy of ``function`` that ``k`` observes."""
        cells = dict(zip(function.__code__.co_freevars, function.__closure__ or (), strict=True))
        cells[OBSERVER] = CellType(k)
        made = FunctionType(self.code, function.__globals__, function.__name__, function.__defaults__,
                            tuple([cells[name] for name in self.code.co_freevars]))
        made.__kwdefaults__ = function.__kwdefaults__
        made.__qualname__ = function.__qualname__
        return made


def rewritten(code: CodeType, module_globals: dict[str, Any] | None = None) -> Rewritten:
    """Return the instrumented copy of ``code``, made once; raise ``NoSource`` or ``CannotRewrite`` if there is none."""
    found = _made.get(id(code))
    if found is None:
        if len(_made) >= MOST_REWRITTEN_FUNCTIONS:
            _made.clear()
        found = _made[id(code)] = code, _copy_of(code, module_globals)
    copy = found[1]
    if isinstance(copy, Rewritten):
        return copy
    raise type(copy)(*copy.args)


def _copy_of(code: CodeType, module_globals: dict[str, Any] | None) -> Rewritten | CannotRewrite:
    try:
        found = kept(code)
        if found is not None:
            return Rewritten(_with_functions(found, _nested(code), code.co_firstlineno))
        made = _rewrite(code, module_globals)
        keep(code, made)
        return Rewritten(made)
    except CannotRewrite as error:
        return type(error)(*error.args)  # without the frames that its traceback holds


def _rewrite(code: CodeType, module_globals: dict[str, Any] | None) -> CodeType:
    line = code.co_firstlineno
    if code.co_flags & (CO_COROUTINE | CO_ASYNC_GENERATOR):
        raise CannotRewrite("an asynchronous function", line)
    if any(name.startswith("__kusari_") for name in names(code)):
        raise CannotRewrite("a variable is called like those of the copy", line)
    found = syntax(code, module_globals)
    rewriter = Statements(Scope(found, code.co_freevars), code.co_cellvars)
    rewriter.annotations_are_evaluated = evaluates_annotations(code.co_flags)
    try:
        made = compiled(found, rewriter.function(found.node), code, OBSERVER)
    except RecursionError as error:
        raise CannotRewrite("too deeply nested", line) from error
    if made is None:
        raise CannotRewrite("its copy cannot be compiled", line)
    made = _with_functions(made, _nested(code), line)
    def outside(c: CodeType) -> tuple[Any, ...]:
        count = c.co_argcount + c.co_kwonlyargcount + bin(c.co_flags & (CO_VARARGS | CO_VARKEYWORDS)).count("1")
        return (c.co_name, c.co_firstlineno, c.co_argcount, c.co_posonlyargcount, c.co_kwonlyargcount,
                c.co_varnames[:count], c.co_flags & _KINDS)
    if outside(made) != outside(code) or not {*code.co_freevars, OBSERVER}.issuperset(made.co_freevars):
        raise CannotRewrite("its copy differs from outside", line)
    return made


def _nested(code: CodeType) -> list[CodeType]:
    """The functions made by code, comprehensions included."""
    every: list[CodeType] = []
    for c in code.co_consts:
        if isinstance(c, CodeType):
            every += _nested(c) if c.co_name in _COMPREHENSIONS else [c]
    return every


def _with_functions(code: CodeType, originals: list[CodeType], line: int) -> CodeType:
    """The code with the very code objects of the original for the functions that it makes."""
    def original(c: CodeType) -> CodeType:
        if c.co_name in _COMPREHENSIONS:
            return _with_functions(c, originals, line)
        same = [o for o in originals if o == c] or [
            o for o in originals if (o.co_name, o.co_firstlineno, o.co_freevars) ==
            (c.co_name, c.co_firstlineno, c.co_freevars)]  # asserts may have been rewritten
        if not same or any(o != same[0] for o in same):
            raise CannotRewrite(f"the function {c.co_name} is not found in its code", line)
        return same[0]
    return code.replace(co_consts=tuple([original(c) if isinstance(c, CodeType) else c for c in code.co_consts]))
