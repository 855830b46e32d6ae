"""The types in which NumPy 2 computes a scalar function, which every language's text must follow."""
from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache

import numpy as np

from kusari.ir import CASTS, DType, Lit

Kind = DType | type  # a Python type stands for a literal, which is weak

_BOOL, _F64 = np.dtype("bool"), np.dtype("float64")


@lru_cache(maxsize=4096)
def loop_types(fn: str, kinds: tuple[Kind, ...]) -> tuple[DType, ...]:
    """The dtypes of operands and result of NumPy's loop for operands of ``kinds``.

    >>> loop_types("add", (np.dtype("float32"), float))
    (dtype('float32'), dtype('float32'), dtype('float32'))
    """
    kinds = tuple(_BOOL if k is bool else k for k in kinds)
    if fn in CASTS:
        return strong(kinds[0]), np.dtype(fn.rstrip("_"))
    if fn in ("erf", "erfc"):
        (kind,) = kinds
        dtype = kind if isinstance(kind, np.dtype) and kind.kind == "f" else _F64
        return dtype, dtype
    if fn == "where":
        result = np.result_type(*(k if isinstance(k, np.dtype) else k() for k in kinds[1:]))
        return _BOOL, result, result, result
    ufunc: np.ufunc = getattr(np, fn)
    resolved: tuple[DType, ...] = ufunc.resolve_dtypes((*kinds, None))  # pyright: ignore[reportArgumentType]
    return resolved


def strong(kind: Kind) -> DType:
    """The dtype of an array made of one literal of ``kind``, or ``kind`` itself."""
    return kind if isinstance(kind, np.dtype) else np.dtype(kind)


def spell_operands(fn: str, args: Sequence[str | Lit], kinds: Sequence[Kind], loop: Sequence[DType],
                   literal: Callable[[bool | int | float, DType], str],
                   cast: Callable[[str, DType, DType], str]) -> list[str]:
    """Return the operands of ``fn``, names of values of dtypes ``kinds`` or literals, in the dtypes of its ``loop``.

    A language writes ``literal`` numbers and ``cast`` values, from a dtype to another one, in its own way.
    """
    operands: list[str] = []
    for a, kind, dtype in zip(args, kinds, loop, strict=False):
        target = _BOOL if fn.startswith("logical_") else dtype
        if isinstance(a, Lit):
            operands.append(literal(a.value, target))
        else:
            assert isinstance(kind, np.dtype)
            operands.append(cast(a, kind, target))
    return operands
