"""Expression trees as lines of text, each distinct subtree once."""
from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from kusari.ir import Arg, DType, Expr, Lit, walk

from ...promotion import Kind, loop_types
from ..text.helpers import Helpers
from ..text.types import literal, type_name
from .scalars import constant, spell


class Expressions:
    """Writes trees of inputs, given by their texts and dtypes, as variables with names of their own."""

    def __init__(self, line: Callable[[str], None], args: Sequence[tuple[str, DType]], helpers: Helpers,
                 prefix: str = "v") -> None:
        self._line = line
        self._args = args
        self._helpers = helpers
        self._prefix = prefix
        self._done: dict[Expr, tuple[str | Lit, Kind]] = {}
        self._count = 0

    def _named(self, text: str, dtype: DType) -> str:
        name = f"{self._prefix}{self._count}"
        self._count += 1
        self._line(f"const {type_name(dtype)} {name} = {text};")
        return name

    def write(self, expr: Expr) -> tuple[str, DType]:
        """The variable or constant that holds ``expr``, and its dtype."""
        for e in walk(expr):
            if e not in self._done:
                self._done[e] = self._found(e)
        value, kind = self._done[expr]
        if isinstance(value, Lit):
            dtype = np.asarray(value.value).dtype
            return literal(value.value, dtype), dtype
        assert isinstance(kind, np.dtype)
        return value, kind

    def _found(self, e: Expr) -> tuple[str | Lit, Kind]:
        if isinstance(e, Lit):
            return e, type(e.value)
        if isinstance(e, Arg):
            text, dtype = self._args[e.index]
            return self._named(text, dtype), dtype
        operands = [self._done[a] for a in e.args]
        literals = [a for a, _ in operands if isinstance(a, Lit)]
        if len(literals) == len(operands):
            text, dtype = constant(e.fn, literals)
        else:
            kinds = tuple(k for _, k in operands)
            dtype = loop_types(e.fn, kinds)[-1]
            text = spell(e.fn, [a for a, _ in operands], kinds, self._helpers)
        return self._named(text, dtype), dtype
