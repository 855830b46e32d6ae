"""Expression trees written as NumPy code: the ``SCALAR`` namespace, derivatives, and trees back into Python."""
from __future__ import annotations

import math
from collections.abc import Callable
from functools import lru_cache
from typing import Any

import numpy as np

from kusari.ir import CASTS, SCALARS, Arg, Call, Expr, Lit, cast_name, walk

_OPERATORS = {"add": "+", "subtract": "-", "multiply": "*", "true_divide": "/", "floor_divide": "//", "remainder": "%",
              "less": "<", "less_equal": "<=", "greater": ">", "greater_equal": ">=", "equal": "==", "not_equal": "!=",
              "power": "**", "bitwise_and": "&", "bitwise_or": "|", "bitwise_xor": "^"}


class Symbol:
    """An expression tree that takes part in Python arithmetic as an array would."""

    __slots__ = ("expr",)
    __array_ufunc__ = None  # NumPy scalars on the left leave the operation to us
    __hash__ = None  # type: ignore[assignment]  # == builds a tree

    def __init__(self, expr: Expr) -> None:
        self.expr = expr

    def astype(self, dtype: Any, copy: bool = True) -> Symbol:
        """The value cast to ``dtype``."""
        return cast(self, dtype)

    def __neg__(self) -> Symbol:
        return call("negative", self)

    def __abs__(self) -> Symbol:
        return call("absolute", self)

    def __pow__(self, other: Any) -> Symbol:
        return call("power", self, other)

    def __rpow__(self, other: Any) -> Symbol:
        return call("power", other, self)

    def __invert__(self) -> Symbol:
        return call("logical_not", self)

    def __bool__(self) -> bool:
        raise TypeError("an elementwise function branches on the value of an element; use xp.where(condition, a, b)")


def _install() -> None:
    def forward(name: str) -> Callable[[Any, Any], Any]:
        return lambda self, other: call(name, self, other)

    def backward(name: str) -> Callable[[Any, Any], Any]:
        return lambda self, other: call(name, other, self)

    for short, name in (("add", "add"), ("sub", "subtract"), ("mul", "multiply"), ("truediv", "true_divide"),
                        ("floordiv", "floor_divide"), ("mod", "remainder"),
                        ("and", "bitwise_and"), ("or", "bitwise_or"), ("xor", "bitwise_xor")):
        setattr(Symbol, f"__{short}__", forward(name))
        setattr(Symbol, f"__r{short}__", backward(name))
    for short, name in (("lt", "less"), ("le", "less_equal"), ("gt", "greater"), ("ge", "greater_equal"),
                        ("eq", "equal"), ("ne", "not_equal")):
        setattr(Symbol, f"__{short}__", forward(name))


_install()


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

    def __getattr__(self, name: str) -> Any:
        alias = {"abs": "absolute", "divide": "true_divide", "mod": "remainder"}.get(name, name)
        if alias not in SCALARS:
            raise AttributeError(f"elementwise functions cannot use xp.{name}; known: {', '.join(sorted(SCALARS))}")
        if alias in CASTS:
            return lambda x: cast(x, alias.rstrip("_"))
        return lambda *args: call(alias, *args)


SCALAR = _Scalar()


def special(xp: Any, name: str, x: Any) -> Any:
    """Apply a function that NumPy lacks (``erf``, ``erfc``) under any ``xp``."""
    return call(name, x) if xp is SCALAR else SCALARS[name].apply(xp, x)


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


_BITS = {2: np.int16, 4: np.int32, 8: np.int64}


def masked(xp: Any, condition: Any, x: Any) -> Any:
    """Return ``x`` where the condition holds and 0 elsewhere, exactly as ``xp.where``.

    With NumPy by way of bit masks: ``numpy.where`` branches on every element, which takes 30 times as long when the
    condition is as irregular as that of a rectifier.
    """
    if (xp is np and type(x) is type(condition) is np.ndarray and x.dtype.kind == "f" and condition.dtype.kind == "b"
            and x.shape == condition.shape and x.dtype.itemsize in _BITS):
        bits = _BITS[x.dtype.itemsize]
        mask = condition.view(np.int8).astype(bits)
        np.negative(mask, out=mask)
        return np.bitwise_and(mask, x.view(bits), out=mask).view(x.dtype)
    return xp.where(condition, x, 0)


@lru_cache(maxsize=4096)
def python_function(expr: Expr, arity: int) -> Callable[..., Any]:
    """Return ``f(xp, a0, …)`` that computes ``expr`` with NumPy or CuPy, common subtrees once."""
    names: dict[Expr, str] = {}
    lines: list[str] = []
    scope: dict[str, Any] = {"SCALARS": SCALARS, "masked": masked}
    for e in walk(expr):
        if isinstance(e, Arg):
            names[e] = f"a{e.index}"
        elif isinstance(e, Lit):
            names[e] = repr(e.value) if math.isfinite(e.value) else f"float({str(e.value)!r})"
        else:
            args = [names[a] for a in e.args]
            if e.fn in _OPERATORS:
                text = f"{args[0]} {_OPERATORS[e.fn]} {args[1]}"
            elif e.fn in CASTS:
                text = f"xp.asarray({args[0]}).astype({e.fn.rstrip('_')!r})"
            elif e.fn == "where" and e.args[2] in (Lit(0), Lit(0.0)):
                text = f"masked(xp, {args[0]}, {args[1]})"
            elif e.fn in ("erf", "erfc"):
                text = f"SCALARS[{e.fn!r}].apply(xp, {args[0]})"
            else:
                text = f"xp.{e.fn}({', '.join(args)})"
            names[e] = f"t{len(lines)}"
            lines.append(f"    {names[e]} = {text}")
    params = ", ".join(["xp", *(f"a{i}" for i in range(arity))])
    exec("\n".join([f"def f({params}):", *lines, f"    return {names[expr]}"]), scope)
    return scope["f"]
