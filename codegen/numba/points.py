"""Expressions at one point, as lines of Python."""
from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from kusari.ir import Arg, Call, DType, Expr, Lit, evaluate, walk

from ..promotion import Kind, loop_types
from .scalars import literal, spell
from .text import Lines


class Names:
    """Writes subtrees once, as variables ``v0``, ``v1`` …; ``args`` are the texts and dtypes of the inputs."""

    def __init__(self, out: Lines, args: Sequence[tuple[str, DType]]) -> None:
        self._out = out
        self._args = args
        self._done: dict[Expr, tuple[str | Lit, Kind]] = {}
        self._count = 0

    def write(self, expr: Expr, only: frozenset[int] | None = None) -> tuple[str, DType]:
        """The variable that holds ``expr``, and its dtype.

        With ``only`` just the calls that read no other inputs are written, and the result means nothing.
        """
        for e in walk(expr):
            if e in self._done:
                continue
            if only is not None and any(isinstance(x, Arg) and x.index not in only for x in walk(e)):
                continue
            if isinstance(e, Arg):
                self._done[e] = self._args[e.index]
            elif isinstance(e, Lit):
                self._done[e] = e, type(e.value)
            else:
                self._done[e] = self._call(e)
        value, kind = self._done.get(expr, ("", np.dtype("bool")))
        if isinstance(value, Lit):
            dtype = np.asarray(value.value).dtype
            return literal(value.value, dtype), dtype
        assert isinstance(kind, np.dtype)
        return value, kind

    def _call(self, e: Call) -> tuple[str, DType]:
        operands = [self._done[a] for a in e.args]
        if all(isinstance(a, Lit) for a, _ in operands):
            with np.errstate(all="ignore"):
                found = np.asarray(evaluate(e, ()))
            text, dtype = literal(found.item(), found.dtype), found.dtype
        else:
            kinds = tuple(k for _, k in operands)
            text, dtype = spell(e.fn, [a for a, _ in operands], kinds), loop_types(e.fn, kinds)[-1]
        name = f"v{self._count}"
        self._count += 1
        self._out(f"{name} = {text}")
        return name, dtype
