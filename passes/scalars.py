"""Identities of scalars that hold exactly: for NaN, infinities and both zeros as well."""
from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

from kusari.ir import CASTS, Arg, Call, DType, Expr, Lit, expr_dtype, fold

from .patterns import P, Pattern

# The sign of a zero matters: x - 0 is x, x + 0 is not when x is -0. Under the same function the first one counts.
SCALAR_RULES: tuple[tuple[Pattern, Pattern], ...] = (
    (P.multiply(P.x, 1), P.x),
    (P.multiply(1, P.x), P.x),
    (P.multiply(P.x, -1), P.negative(P.x)),
    (P.multiply(-1, P.x), P.negative(P.x)),
    (P.true_divide(P.x, 1), P.x),
    (P.subtract(P.x, 0.0), P.x),
    (P.add(P.x, -0.0), P.x),
    (P.add(-0.0, P.x), P.x),
    (P.negative(P.negative(P.x)), P.x),
    (P.add(P.x, P.negative(P.y)), P.subtract(P.x, P.y)),
    (P.subtract(P.x, P.negative(P.y)), P.add(P.x, P.y)),
    (P.power(P.x, 1), P.x),
    (P.power(P.x, 2), P.square(P.x)),
    (P.square(P.negative(P.x)), P.square(P.x)),
    (P.absolute(P.negative(P.x)), P.absolute(P.x)),
    (P.where(P.c, P.x, P.x), P.x),
    (P.where(True, P.x, P.y), P.x),
    (P.where(False, P.x, P.y), P.y),
    *[(cast(cast(P.x)), cast(P.x)) for cast in map(Pattern, CASTS)],
)
_RULES = {before.name: [rule for rule in SCALAR_RULES if rule[0].name == before.name] for before, _ in SCALAR_RULES}


def _shorter(e: Call) -> Expr | None:
    """Return the expression that an identity puts in place of ``e``."""
    for before, after in _RULES.get(e.fn, ()):
        bound = before.match(e)
        if bound is not None:
            return after.build(bound)
    return None


def _same_dtype(shorter: Expr, e: Expr, dtypes: tuple[DType, ...]) -> bool:
    try:
        return expr_dtype(shorter, dtypes) == expr_dtype(e, dtypes)
    except TypeError:  # NumPy has no such function for that dtype: it multiplies a bool by -1, but does not negate it
        return False


@lru_cache(maxsize=4096)
def simplify(expr: Expr, dtypes: tuple[DType, ...]) -> Expr:
    """Return ``expr`` after ``SCALAR_RULES``; every subexpression keeps its dtype."""

    def leaf(e: Arg | Lit) -> Expr:
        return e

    def call(fn: str, args: Sequence[Expr]) -> Expr:
        e: Expr = Call(fn, tuple(args))
        if fn in CASTS and isinstance(args[0], Arg) and dtypes[args[0].index].name == fn.rstrip("_"):
            return args[0]  # already of that dtype
        while isinstance(e, Call):
            shorter = _shorter(e)
            # A Python number is weakly typed: as part of another expression it may behave differently.
            if shorter is None or isinstance(shorter, Lit) or not _same_dtype(shorter, e, dtypes):
                break
            e = shorter
        return e

    return fold(expr, leaf, call)
