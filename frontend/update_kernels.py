"""Updates of parameters on a card: a rule's arithmetic as one kernel, for all parameters of the same dtypes.

Invariant: numbers that change from step to step are arguments of the kernel, so it is compiled once. They are combined
in float64, as Python combines them, and cast to the dtype of the arrays where they meet one.
"""
from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np

from kusari.ir import SCALAR, Arg, Call, Expr, Lit, Symbol, cast_name, expr_dtype, walk
from kusari.ir.symbol import cast, expr_of

from .backends import cuda

_kernels: dict[Any, tuple[Any, tuple[str, ...]]] = {}
MOST_KERNELS = 256
_FIXED = (bool, int, str, type(None))


def update_on_card(rule: Any, hyper: dict[str, Any], arrays: dict[str, Any], wide: bool) -> bool:
    """Change the parameter and the states by one kernel; returns False, and does nothing, where that is not possible.

    ``arrays`` are those of ``param``, ``grad`` and the states. It is possible for Kusari's own rules, whose arithmetic
    depends on nothing but numbers. ``wide``: it is computed in float32.
    """
    numbers = {name: value for name, value in hyper.items() if type(value) is float}
    fixed = tuple([item for item in hyper.items() if item[0] not in numbers])
    if not type(rule).__module__.startswith("kusari.optimizers.") or any(type(v) not in _FIXED for _, v in fixed):
        return False
    key = (type(rule), fixed, tuple(numbers), tuple([(name, x.dtype) for name, x in arrays.items()]), wide)
    if key not in _kernels:
        if len(_kernels) >= MOST_KERNELS:
            _kernels.clear()
        _kernels[key] = _made(rule, numbers, dict(fixed), arrays, wide)
    kernel, changed = _kernels[key]
    kernel(*arrays.values(), *numbers.values(), *[arrays[name] for name in changed])
    return True


def _made(rule: Any, numbers: dict[str, float], fixed: dict[str, Any], arrays: dict[str, Any],
          wide: bool) -> tuple[Any, tuple[str, ...]]:
    """The kernel, and the names of the arrays that it changes."""
    dtypes = [x.dtype for x in arrays.values()]
    symbols = [Symbol(Arg(i)) for i in range(len(dtypes))]
    given = dict(zip(arrays, [cast(s, np.dtype(np.float32)) for s in symbols] if wide else symbols, strict=True))
    hyper = SimpleNamespace(**fixed, **{name: Symbol(Arg(len(dtypes) + i)) for i, name in enumerate(numbers)})
    new = rule.update_exprs(SCALAR, hyper, given.pop("param"), given.pop("grad"), **given)
    inner = np.dtype(np.float32) if wide else arrays["param"].dtype
    args = (*dtypes, *[np.dtype(float)] * len(numbers))
    trees = [Call(cast_name(arrays[name].dtype), (_meeting(expr_of(value), len(dtypes), args, inner),))
             for name, value in new.items()]
    return cuda.map_kernel(trees, args, type(rule).__name__), tuple(new)


def _meeting(expr: Expr, count: int, args: tuple[Any, ...], dtype: Any) -> Expr:
    """Cast what is computed of numbers alone to ``dtype`` where it meets one of the first ``count`` arguments."""
    made: dict[Expr, tuple[Expr, bool]] = {}  # and whether it is computed of numbers alone
    for e in walk(expr):
        if not isinstance(e, Call):
            made[e] = e, isinstance(e, Lit) or e.index >= count
            continue
        parts = [made[a] for a in e.args]
        alone = all([each for _, each in parts])
        operands = [a if alone or not plain or isinstance(a, Lit) or expr_dtype(a, args).kind != "f"
                    else Call(cast_name(dtype), (a,)) for a, plain in parts]
        made[e] = Call(e.fn, tuple(operands)), alone
    return made[expr][0]
