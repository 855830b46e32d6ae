"""Scalar expression trees: the bodies of elementwise ops and of fused kernels."""
from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from .scalar import SCALARS, cast_name
from .types import DType


@dataclass(frozen=True)
class Arg:
    """The element of input number ``index``."""

    index: int

    def __repr__(self) -> str:
        return f"a{self.index}"


@dataclass(frozen=True)
class Lit:
    """A Python scalar; weakly typed, as NumPy 2 treats Python scalars."""

    value: bool | int | float

    def __repr__(self) -> str:
        # Not just the value: the key of a kernel is the text of its nest, where a plain 0 is the number of a step.
        return f"Lit({self.value!r})"

    def __eq__(self, other: object) -> bool:
        # 1, 1.0 and True are equal in Python but not as literals; 0.0 and -0.0 differ too, NaN equals itself.
        return (isinstance(other, Lit) and type(self.value) is type(other.value)
                and repr(self.value) == repr(other.value))

    def __hash__(self) -> int:
        return hash((type(self.value), repr(self.value)))


@dataclass(frozen=True)
class Call:
    """A scalar function, named as in NumPy (see ``SCALARS``), applied to trees."""

    fn: str
    args: tuple[Expr, ...]

    def __post_init__(self) -> None:
        object.__setattr__(self, "_hash", hash((self.fn, self.args)))

    def __hash__(self) -> int:
        return self._hash  # type: ignore[attr-defined]  # trees are hashed often: the hash is kept

    def __repr__(self) -> str:
        return f"{self.fn}({', '.join(map(repr, self.args))})"


Expr = Arg | Lit | Call


@lru_cache(maxsize=4096)
def walk(expr: Expr) -> tuple[Expr, ...]:
    """Return every distinct subtree once, operands before the calls that use them."""
    seen: dict[Expr, None] = {}
    stack: list[tuple[Expr, bool]] = [(expr, False)]
    while stack:
        e, ready = stack.pop()
        if e in seen:
            continue
        if ready or not isinstance(e, Call):
            seen[e] = None
        else:
            stack.append((e, True))
            stack.extend((a, False) for a in reversed(e.args))
    return tuple(seen)


@lru_cache(maxsize=4096)
def used_args(expr: Expr) -> tuple[int, ...]:
    """Return the sorted indices of the inputs that ``expr`` reads."""
    return tuple(sorted({e.index for e in walk(expr) if isinstance(e, Arg)}))


def fold(expr: Expr, leaf: Callable[[Arg | Lit], Any], call: Callable[[str, Sequence[Any]], Any]) -> Any:
    """Compute a value for ``expr`` bottom up, each distinct subtree once."""
    done: dict[Expr, Any] = {}
    for e in walk(expr):
        done[e] = call(e.fn, [done[a] for a in e.args]) if isinstance(e, Call) else leaf(e)
    return done[expr]


def substitute(expr: Expr, args: Sequence[Expr]) -> Expr:
    """Return ``expr`` with input ``i`` replaced by ``args[i]``."""
    return fold(expr, lambda e: args[e.index] if isinstance(e, Arg) else e, lambda fn, xs: Call(fn, tuple(xs)))


def evaluate(expr: Expr, args: Sequence[Any], xp: Any = np) -> Any:
    """Compute ``expr`` on arrays (or scalars) with the functions of ``xp``."""
    return fold(expr, lambda e: args[e.index] if isinstance(e, Arg) else e.value,
                lambda fn, xs: SCALARS[fn].apply(xp, *xs))


def strong(value: bool | int | float) -> Call:
    """Return a literal with NumPy's default dtype, which it has by itself and must keep inside a larger expression."""
    return Call(cast_name(np.asarray(value).dtype), (Lit(value),))


@lru_cache(maxsize=4096)
def expr_dtype(expr: Expr, dtypes: tuple[DType, ...]) -> DType:
    """Return the dtype NumPy gives to ``expr``; dtypes are per input.

    Invariant: equal to the dtype of ``evaluate`` on arrays of those dtypes: it is found by doing that on empty ones.
    """
    with np.errstate(all="ignore"):
        result = evaluate(expr, [np.ones((1,), d) for d in dtypes])
    return np.asarray(result).dtype
