"""Parts of several distributions: draws, and values that are nothing outside of the support."""

from __future__ import annotations

import math
from typing import Any

from .. import backend, functions
from ..elementwise import elementwise
from ..function_node import FunctionNode
from ..functions.noise.draws import RandomLike
from ..variable import Variable, as_variable


def noise(dist: str, like: Any, n: int, *args: float) -> Variable:
    """Draw ``n`` arrays of the shape and dtype of ``like``, of a distribution of NumPy's."""
    like = as_variable(like)
    return RandomLike(dist, args).apply((functions.broadcast_to(like, (n, *like.shape)),))[0]


class Draw(FunctionNode):
    """``n`` draws with parameters that are arrays; no gradient flows."""

    def __init__(self, dist: str, n: int, dtype: str, first: tuple[int, ...] = ()) -> None:
        super().__init__()
        self.dist = dist
        self.n = n
        self.dtype = dtype
        self.first = first

    def forward(self, inputs: tuple[Any, ...]) -> tuple[Any, ...]:
        xp = backend.get_array_module(*inputs)
        shape = xp.broadcast(*inputs).shape
        drawn = getattr(xp.random, self.dist)(*self.first, *inputs, size=(self.n, *shape))
        return xp.asarray(drawn).astype(self.dtype),

    def backward(self, indexes: tuple[int, ...], grad_outputs: tuple[Any, ...]) -> tuple[Any, ...]:
        return (None,) * len(indexes)


def drawn(dist: str, n: int, *params: Any, dtype: Any = None, first: tuple[int, ...] = ()) -> Variable:
    """Draw ``n`` samples of a distribution of NumPy's with these parameters."""
    name = params[0].dtype.name if dtype is None else dtype
    return Draw(dist, n, name, first).apply(params)[0]


@elementwise("Within")
def within(xp: Any, y: Any, x: Any, low: Any, high: Any) -> Any:
    """``y`` where x is within the support, both ends included; elsewhere minus infinity."""
    return xp.where(xp.logical_and(x >= low, x <= high), y, -math.inf)


@elementwise("Inside")
def inside(xp: Any, x: Any, low: Any, high: Any, other: float = 1.0) -> Any:
    """``x`` where it is within the support; elsewhere a number at which nothing is infinite."""
    return xp.where(xp.logical_and(x >= low, x <= high), x, other)


def given(x: Any, like: Any) -> Variable:
    """Return an input as a Variable of the dtype of a parameter."""
    x = as_variable(x)
    return x if x.dtype == like.dtype else functions.cast(x, like.dtype)
