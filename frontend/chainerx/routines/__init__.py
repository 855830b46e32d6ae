"""The functions of ChainerX, and those of them that are methods and operators of arrays."""
from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

from ...variable import Variable
from ..arrays import ndarray
from ..dtypes import rank_of
from ..errors import ChainerxError, DimensionError, DtypeError
from ..linalg import dot
from . import creation, manipulation, math, nn, reduction, rnn

__all__ = ["FUNCTIONS"]

_HIDDEN = {"getitem", "setitem", "view", "astype", "flatten"}
FUNCTIONS: dict[str, Any] = {name: getattr(module, name)
                             for module in (creation, manipulation, math, nn, reduction, rnn)
                             for name in module.__all__ if name not in _HIDDEN}  # fmt: skip
FUNCTIONS["dot"] = dot

_METHODS = (
    "all", "any", "argmax", "argmin", "clip", "copy", "dot", "max", "mean", "min", "nonzero", "ravel", "repeat",
    "reshape", "squeeze", "sum", "swapaxes", "take", "transpose", "var",
)
# Operators that numbers may stand on the left of, and that may change an array in place.
_OPERATORS: dict[str, Callable[..., Any]] = {
    "add": math.add, "sub": math.subtract, "mul": math.multiply, "truediv": math.divide, "pow": math.power,
    "floordiv": math.floor_divide, "mod": math.mod, "and": math.bitwise_and, "or": math.bitwise_or,
    "xor": math.bitwise_xor, "lshift": math.left_shift, "rshift": math.right_shift,
}
_COMPARISONS = {"eq": math.equal, "ne": math.not_equal, "lt": math.less, "le": math.less_equal, "gt": math.greater,
                "ge": math.greater_equal}  # fmt: skip


def _between(routine: Callable[..., Any], reflected: bool = False) -> Callable[[ndarray, Any], Any]:
    def method(self: ndarray, other: Any) -> Any:
        if isinstance(other, Variable):
            return NotImplemented  # it computes, and its result is one
        return routine(other, self) if reflected else routine(self, other)
    return method


def _in_place(name: str, routine: Callable[..., Any]) -> Callable[[ndarray, Any], Any]:
    def method(self: ndarray, other: Any) -> Any:
        if isinstance(other, Variable):
            return NotImplemented
        for x in (self, other):
            if isinstance(x, ndarray) and x._variable is not None:
                raise ChainerxError("an array that is part of a graph cannot be changed in place, nor by one that is; "
                                    "use x.as_grad_stopped() if you know that no gradient needs it")
        found = routine(self, other)
        if rank_of(found.dtype) > rank_of(self.dtype):
            raise DtypeError(f"the result of {name} is {found.dtype}: it does not fit an array of {self.dtype}")
        if found.shape != self.shape:
            raise DimensionError(f"the result is of shape {found.shape}: it does not fit an array of {self.shape}")
        self._elements[...] = found._elements
        return self
    return method


def _iterate(self: ndarray) -> Any:
    return (manipulation.getitem(self, i) for i in range(len(self)))


def _install() -> None:
    """Give `ndarray` its methods and operators."""
    for name in _METHODS:
        setattr(ndarray, name, FUNCTIONS[name])
    for name in ("astype", "flatten", "view"):
        setattr(ndarray, name, getattr(manipulation, name))
    for name, routine in _OPERATORS.items():
        setattr(ndarray, f"__{name}__", _between(routine))
        setattr(ndarray, f"__r{name}__", _between(routine, reflected=True))
        setattr(ndarray, f"__i{name}__", _in_place(name, routine))
    for name, routine in _COMPARISONS.items():
        setattr(ndarray, f"__{name}__", _between(routine))
    for name, value in (("__getitem__", manipulation.getitem), ("__setitem__", manipulation.setitem),
                        ("__iter__", _iterate), ("__neg__", math.negative), ("__abs__", math.absolute),
                        ("__pos__", operator.methodcaller("copy")), ("__matmul__", _between(dot))):  # fmt: skip
        setattr(ndarray, name, value)


_install()
