"""Expression trees written as formulas: symbols that take part in arithmetic, and the derivatives of trees."""
from __future__ import annotations

import math
from collections.abc import Callable
from functools import lru_cache, partial
from typing import Any

import numpy as np

from .expr import Arg, Call, Expr, Lit, walk
from .scalar import CASTS, SCALARS, cast_name


def _operators(fn: str) -> tuple[Callable[[Symbol, Any], Symbol], Callable[[Symbol, Any], Symbol]]:
    """Return an operator, and the same with its operands the other way round."""
    return lambda self, other: call(fn, self, other), lambda self, other: call(fn, other, self)


class Symbol:
    """An expression tree that takes part in Python arithmetic as an array would."""

    __slots__ = ("expr",)
    __array_ufunc__ = None  # NumPy scalars on the left leave the operation to us

    def __init__(self, expr: Expr) -> None:
        self.expr = expr

    __add__, __radd__ = _operators("add")
    __sub__, __rsub__ = _operators("subtract")
    __mul__, __rmul__ = _operators("multiply")
    __truediv__, __rtruediv__ = _operators("true_divide")
    __floordiv__, __rfloordiv__ = _operators("floor_divide")
    __mod__, __rmod__ = _operators("remainder")
    __pow__, __rpow__ = _operators("power")
    __and__, __rand__ = _operators("bitwise_and")
    __or__, __ror__ = _operators("bitwise_or")
    __xor__, __rxor__ = _operators("bitwise_xor")
    __lt__, __gt__ = _operators("less")[0], _operators("greater")[0]
    __le__, __ge__ = _operators("less_equal")[0], _operators("greater_equal")[0]

    def __eq__(self, other: object) -> Any:
        return call("equal", self, other)

    def __ne__(self, other: object) -> Any:
        return call("not_equal", self, other)

    def __neg__(self) -> Symbol:
        return call("negative", self)

    def __abs__(self) -> Symbol:
        return call("absolute", self)

    def __invert__(self) -> Symbol:
        return call("logical_not", self)

    def __bool__(self) -> bool:
        raise TypeError("an elementwise function branches on the value of an element; use xp.where(condition, a, b)")

    def astype(self, dtype: Any, copy: bool = True) -> Symbol:
        """The value cast to ``dtype``."""
        return cast(self, dtype)


def expr_of(x: Any) -> Expr:
    """Return the tree of a symbol, a literal for a Python (or NumPy) scalar."""
    if isinstance(x, Symbol):
        return x.expr
    if isinstance(x, (Arg, Lit, Call)):
        return x
    return Lit(x.item() if hasattr(x, "item") else x)


def call(fn: str, *args: Any) -> Symbol:
    """Build a call, folding the multiplications and additions by 1 and 0 that derivatives are full of."""
    xs = tuple(expr_of(a) for a in args)
    if fn == "multiply":
        for a, b in (xs, xs[::-1]):
            if isinstance(a, Lit) and type(a.value) is not bool:
                if a.value == 1:
                    return Symbol(b)
                if a.value == -1:
                    return Symbol(Call("negative", (b,)))
        for a, b in (xs, xs[::-1]):
            # A selection of 1 or 0 multiplies by selecting: 0 * inf must not appear where nothing was selected.
            if isinstance(a, Call) and a.fn == "where" and set(a.args[1:]) == {Lit(1), Lit(0)}:
                return Symbol(Call("where", (a.args[0], *(b if e == Lit(1) else e for e in a.args[1:]))))
    if fn in ("true_divide", "power") and xs[1] == Lit(1):
        return Symbol(xs[0])
    if fn == "power" and xs[1] == Lit(2):
        return Symbol(Call("square", (xs[0],)))
    if fn not in CASTS and all(isinstance(x, Lit) for x in xs):
        # A literal must stay one: what NumPy makes of Python scalars would no longer be weakly typed.
        with np.errstate(all="ignore"):
            return Symbol(Lit(SCALARS[fn].apply(np, *[x.value for x in xs if isinstance(x, Lit)]).item()))
    return Symbol(Call(fn, xs))


def cast(x: Any, dtype: Any) -> Symbol:
    """The cast of ``x`` to ``dtype``."""
    return call(cast_name(np.dtype(dtype)), x)


class _Scalar:
    """The ``xp`` under which an elementwise function builds its tree instead of computing."""

    pi = math.pi
    e = math.e
    inf = math.inf
    nan = math.nan

    def __getattr__(self, name: str) -> Callable[..., Symbol]:
        alias = {"abs": "absolute", "divide": "true_divide", "mod": "remainder"}.get(name, name)
        if alias not in SCALARS:
            raise AttributeError(f"elementwise functions cannot use xp.{name}; known: {', '.join(sorted(SCALARS))}")
        return partial(call, alias)


SCALAR = _Scalar()

# The functions by name, for formulas of symbols alone.
exp, log, log1p, tanh = SCALAR.exp, SCALAR.log, SCALAR.log1p, SCALAR.tanh
sqrt, square = SCALAR.sqrt, SCALAR.square
absolute, isnan, maximum, minimum = SCALAR.absolute, SCALAR.isnan, SCALAR.maximum, SCALAR.minimum
logical_and, logical_or, where = SCALAR.logical_and, SCALAR.logical_or, SCALAR.where


Formula = Expr | Callable[..., Any]


def tree_of(formula: Formula, count: int) -> Expr:
    """Return the tree that a function of ``count`` symbols builds; a tree is returned as it is.

    >>> tree_of(lambda x, m: exp(x - m), 2)
    exp(subtract(a0, a1))
    """
    if isinstance(formula, (Arg, Lit, Call)):
        return formula
    return expr_of(formula(*[Symbol(Arg(i)) for i in range(count)]))


@lru_cache(maxsize=4096)
def derivative(expr: Expr, wrt: int, gy: Expr) -> Expr | None:
    """Return the gradient of ``expr`` with respect to input ``wrt``, given the gradient ``gy`` of its value.

    Reverse accumulation over the tree with the derivative rows of ``SCALARS``; ``None`` when it is zero everywhere.
    """
    order = list(walk(expr))
    adjoint: dict[Expr, Symbol] = {expr: Symbol(gy)}
    reaches: set[Expr] = {Arg(wrt)}
    for e in order:
        if isinstance(e, Call) and any(a in reaches for a in e.args):
            reaches.add(e)
    for e in reversed(order):
        g = adjoint.get(e)
        if g is None or not isinstance(e, Call) or e not in reaches:
            continue
        row = SCALARS[e.fn].derivative
        if row is None:
            continue
        factors = row(SCALAR, *(Symbol(a) for a in e.args), Symbol(e))
        for a, factor in zip(e.args, factors, strict=True):
            if a in reaches and factor is not None:
                term = g * factor
                adjoint[a] = adjoint[a] + term if a in adjoint else term
    result = adjoint.get(Arg(wrt))
    return None if result is None else result.expr
