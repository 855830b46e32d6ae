"""What every function is checked against: one row per case, with an independent NumPy formula."""
from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

import kusari.functions as F


@dataclass(frozen=True)
class Row:
    """``call(*inputs)`` should be ``formula(*inputs)`` (arrays; a tuple where several outputs)."""

    name: str
    call: Callable[..., Any]
    inputs: tuple[Any, ...]
    formula: Callable[..., Any]
    gradient: bool = True
    double: bool = True
    fixed: tuple[int, ...] = ()  # inputs without a gradient
    tolerance: float = 1e-5

    def __str__(self) -> str:
        return self.name


def draw(*shape: int, low: float = -2.0, high: float = 2.0, seed: int = 0, dtype: Any = np.float32) -> np.ndarray:
    """Uniform values, at some distance from each other and from 0, so that nothing is tested on a kink."""
    r = np.random.RandomState(seed + 31 * len(shape) + sum(shape))
    n = math.prod(shape)
    steps = (np.arange(n) + 0.1 + 0.8 * ((0.37 * seed + 0.414214 * n * n) % 1)) / max(n, 1)
    return (low + (high - low) * r.permutation(steps).reshape(shape)).astype(dtype)


def ints(high: int, *shape: int, low: int = 0, seed: int = 0) -> np.ndarray:
    """Integers in ``[low, high)``."""
    return np.random.RandomState(seed + sum(shape)).randint(low, high, shape).astype(np.int32)


def sigmoid(x: Any) -> Any:
    """The logistic function as it is written in books."""
    return 1 / (1 + np.exp(-x))


def log_softmax(x: Any, axis: int = 1) -> Any:
    """The logarithm of softmax in float64."""
    x = x.astype(np.float64)
    return x - np.log(np.exp(x).sum(axis=axis, keepdims=True))


def cross_entropy(x: Any, t: Any, weight: Any = None, ignore: int = -1) -> Any:
    """One loss per label, in loops."""
    p = log_softmax(x)
    loss = np.zeros(t.shape)
    for i in np.ndindex(*t.shape):
        if t[i] != ignore:
            loss[i] = -p[(i[0], t[i], *i[1:])] * (1 if weight is None else weight[t[i]])
    return loss


def standardized(x: Any, axes: Any, eps: float) -> Any:
    """Zero mean, unit variance."""
    x = x.astype(np.float64)
    return (x - x.mean(axes, keepdims=True)) / np.sqrt(x.var(axes, keepdims=True) + eps)


X = draw(3, 4)
Y = draw(3, 4, seed=7)
POSITIVE = draw(3, 4, low=0.2, high=3)
UNIT = draw(3, 4, low=-0.9, high=0.9)
CUBE = draw(2, 3, 4)
ZEROS = np.array([[2, 0, 3, 1], [0, 2, 0, 3], [1, 2, 4, 3], [0, 0, 0, 2]], "f")
IMAGE = draw(2, 4, 3, 2)
_erf = np.vectorize(math.erf, otypes=[float])


def unary() -> list[Row]:
    """Functions of one array, element by element."""
    rows: list[tuple[str, Any, Any]] = [
        ("exp", X, np.exp), ("expm1", X, np.expm1), ("log", POSITIVE, np.log), ("log1p", POSITIVE, np.log1p),
        ("log2", POSITIVE, np.log2), ("log10", POSITIVE, np.log10), ("sqrt", POSITIVE, np.sqrt),
        ("rsqrt", POSITIVE, lambda x: x ** -0.5), ("square", X, lambda x: x * x), ("sin", X, np.sin),
        ("cos", X, np.cos),
        ("tan", UNIT, np.tan), ("arcsin", UNIT, np.arcsin), ("arccos", UNIT, np.arccos), ("arctan", X, np.arctan),
        ("arctanh", UNIT, np.arctanh), ("sinh", X, np.sinh), ("cosh", X, np.cosh), ("tanh", X, np.tanh),
        ("erf", X, _erf), ("erfc", X, lambda x: 1 - _erf(x)), ("ndtr", X, lambda x: (1 + _erf(x / 2 ** 0.5)) / 2),
        ("absolute", X, abs), ("sigmoid", X, sigmoid), ("relu", X, lambda x: x * (x > 0)),
        ("hard_sigmoid", X * 2, lambda x: np.clip(0.2 * x + 0.5, 0, 1)),
        ("softplus", X, lambda x: np.log(1 + np.exp(x))),
        ("relu6", X * 5, lambda x: np.clip(x, 0, 6)), ("leaky_relu", X, lambda x: np.where(x > 0, x, 0.2 * x)),
        ("elu", X, lambda x: np.where(x > 0, x, np.exp(x) - 1)),
        ("selu", X, lambda x: 1.0507009873554805 * np.where(x > 0, x, 1.6732632423543772 * (np.exp(x) - 1))),
        ("clipped_relu", X * 15, lambda x: np.clip(x, 0, 20)),
    ]
    return [Row(name, getattr(F, name), (x,), formula) for name, x, formula in rows] + [
        Row(name, getattr(F, name), (X,), formula, gradient=False)
        for name, formula in (("sign", np.sign), ("floor", np.floor), ("ceil", np.ceil), ("fix", np.trunc))
    ] + [
        Row("leaky_relu slope", lambda x: F.leaky_relu(x, 0.1), (X,), lambda x: np.where(x > 0, x, 0.1 * x)),
        Row("elu alpha", lambda x: F.elu(x, alpha=0.5), (X,), lambda x: np.where(x > 0, x, 0.5 * (np.exp(x) - 1))),
        Row("softplus beta", lambda x: F.softplus(x, 3.0), (X,), lambda x: np.log(1 + np.exp(3 * x)) / 3),
        Row("softplus negative beta", lambda x: F.softplus(x, -0.5), (X,), lambda x: np.log(1 + np.exp(-x / 2)) * -2),
        Row("clipped_relu z", lambda x: F.clipped_relu(x, 1.0), (X,), lambda x: np.clip(x, 0, 1)),
        Row("clip", lambda x: F.clip(x, -1.0, 1.1), (X,), lambda x: np.clip(x, -1, 1.1)),
        Row("cast", lambda x: F.cast(x, np.float16), (X,), lambda x: x.astype(np.float16), gradient=False),
        Row("crelu", F.crelu, (CUBE,), lambda x: np.concatenate([np.maximum(x, 0), np.maximum(-x, 0)], 1)),
        Row("maxout", lambda x: F.maxout(x, 2), (X,), lambda x: x.reshape(3, 2, 2).max(2)),
        Row("maxout axis", lambda x: F.maxout(x, 3, axis=-2), (CUBE,), lambda x: x.max(1, keepdims=True)),
    ]


def binary() -> list[Row]:
    """Functions of several arrays, element by element."""
    r, c = draw(4), draw(3, 1)
    return [
        Row("add", lambda x, y: x + y, (X, Y), np.add), Row("add broadcast", lambda x, y: x + y, (X, r), np.add),
        Row("sub", lambda x, y: x - y, (r, c), np.subtract), Row("mul", lambda x, y: x * y, (X, c), np.multiply),
        Row("div", lambda x, y: x / y, (X, POSITIVE), np.divide),
        Row("pow", lambda x, y: x ** y, (POSITIVE, Y), np.power),
        Row("matmul operator", lambda x, y: x @ y, (X, draw(4, 2)), np.matmul),
        Row("floordiv", lambda x, y: x // y, (X, POSITIVE), np.floor_divide, gradient=False),
        Row("mod", lambda x, y: x % y, (X, POSITIVE), np.mod, double=False),
        Row("neg", lambda x: -x, (X,), np.negative), Row("abs", abs, (X,), np.abs),
        Row("scalars", lambda x: (2 - x * 3 + 1) / 4 - 1.5, (X,), lambda x: (2 - x * 3 + 1) / 4 - 1.5),
        Row("rdiv", lambda x: 2 / x, (POSITIVE,), lambda x: 2 / x), Row("square op", lambda x: x ** 2, (X,), np.square),
        Row("cube", lambda x: x ** 3, (X,), lambda x: x * x * x), Row("rpow", lambda x: 2 ** x, (X,), np.exp2),
        Row("root", lambda x: x ** 0.5, (POSITIVE,), np.sqrt), Row("first power", lambda x: x ** 1, (X,), np.array),
        Row("rmod", lambda x: 5 % x, (POSITIVE,), lambda x: 5 % x, gradient=False),
        Row("array left", lambda x: Y - x, (X,), lambda x: Y - x),
        Row("array right", lambda x: x - Y.astype("d"), (X,), lambda x: x - Y),
        Row("add many", F.add, (X, Y, POSITIVE), lambda x, y, z: x + y + z),
        Row("add many broadcast", F.add, (X, r, c), lambda x, y, z: x + y + z),
        Row("add one", F.add, (X,), lambda x: x),
        Row("maximum", F.maximum, (X, Y), np.maximum), Row("minimum", F.minimum, (X, r), np.minimum),
        Row("arctan2", F.arctan2, (X, Y), np.arctan2),
        Row("fmod", F.fmod, (X * 3, POSITIVE), np.fmod, double=False),
        Row("squared_error", F.squared_error, (X, Y), lambda x, y: (x - y) ** 2),
        Row("squared_difference", F.squared_difference, (X, Y), lambda x, y: (x - y) ** 2),
        Row("absolute_error", F.absolute_error, (X, Y), lambda x, y: abs(x - y)),
        Row("linear_interpolate", F.linear_interpolate, (POSITIVE, X, Y), lambda p, x, y: p * x + (1 - p) * y),
        Row("swish", F.swish, (X, r), lambda x, b: x * sigmoid(b * x)),
        Row("swish scalar", F.swish, (X, np.array(1.5, "f")), lambda x, b: x * sigmoid(b * x)),
        Row("prelu", F.prelu, (IMAGE, draw(4)), lambda x, w: np.where(x > 0, x, x * w[:, None, None])),
        Row("bias", lambda x, y: F.bias(x, y), (CUBE, draw(3)), lambda x, y: x + y[:, None]),
        Row("scale", lambda x, y: F.scale(x, y, axis=0), (X, draw(3)), lambda x, y: x * y[:, None]),
        Row("where", F.where, (X > 0, X, Y), lambda c, x, y: np.where(c, x, y)),
        Row("where number", lambda c, x: F.where(c, x, -2.5), (X > 0, X), lambda c, x: np.where(c, x, -2.5)),
        Row("where scalar", lambda c, x: F.where(c, x.dtype.type(2), x), (X > 0, X), lambda c, x: np.where(c, 2, x)),
        Row("where broadcast", F.where, (r > 0, c, Y), lambda c, x, y: np.where(c, x, y)),
        Row("identity", F.identity, (X,), lambda x: x),
    ]


def reductions() -> list[Row]:
    """Functions that reduce axes."""
    rows: list[Row] = []
    for name, formula in (("sum", np.sum), ("max", np.max), ("min", np.min), ("mean", np.mean), ("average", np.mean),
                          ("prod", np.prod)):
        f: Any = getattr(F, name)
        for kw in ({}, {"axis": 1}, {"axis": (0, -1)}, {"axis": -2, "keepdims": True}):
            rows.append(Row(f"{name} {kw}", lambda x, f=f, kw=kw: f(x, **kw), (CUBE,),
                            lambda x, g=formula, kw=kw: g(x, **kw)))
    for axis in (None, 1, (0, 2)):
        rows.append(Row(f"logsumexp {axis}", lambda x, a=axis: F.logsumexp(x, a), (CUBE,),
                        lambda x, a=axis: np.log(np.exp(x).sum(a))))
    for axis in (None, 0, -1):
        rows += [Row(f"argmax {axis}", lambda x, a=axis: F.argmax(x, a), (CUBE,),
                     lambda x, a=axis: np.argmax(x, a), False),
                 Row(f"argmin {axis}", lambda x, a=axis: F.argmin(x, a), (CUBE,),
                     lambda x, a=axis: np.argmin(x, a), False),
                 Row(f"cumsum {axis}", lambda x, a=axis: F.cumsum(x, a), (CUBE,), lambda x, a=axis: np.cumsum(x, a)),
                 Row(f"cumprod {axis}", lambda x, a=axis: F.cumprod(x, a), (X,), lambda x, a=axis: np.cumprod(x, a))]
    return rows + [
        Row("argmax tie", lambda x: F.argmax(x, 1), (np.ones((2, 3), "f"),), lambda x: np.zeros(2), False),
        Row("max tie", lambda x: F.max(x, 1), (np.ones((2, 3), "f"),), lambda x: np.ones(2), False),
        Row("sum_to", lambda x: F.sum_to(x, (3, 1)), (CUBE,), lambda x: x.sum((0, 2))[:, None]),
        Row("average weights", lambda x, w: F.average(x, 1, weights=w), (X, POSITIVE[0]),
            lambda x, w: np.average(x, 1, w)),
        Row("average full weights", lambda x, w: F.average(x, weights=w, keepdims=True), (X, POSITIVE),
            lambda x, w: np.average(x, weights=w)[None, None]),
        Row("prod zero", lambda x: F.prod(x, 1), (ZEROS,), lambda x: x.prod(1)),
        Row("prod zeros", lambda x: F.prod(x, (0, 2)), (ZEROS[:, :, None],), lambda x: x.prod((0, 2))),
        Row("cumprod zeros", lambda x: F.cumprod(x, 1), (ZEROS,), lambda x: x.cumprod(1)),
        Row("normalize", F.normalize, (X,), lambda x: x / (np.sqrt((x * x).sum(1, keepdims=True)) + 1e-5)),
        Row("normalize axes", lambda x: F.normalize(x, eps=0.1, axis=(0, 2)), (CUBE,),
            lambda x: x / (np.sqrt((x * x).sum((0, 2), keepdims=True)) + 0.1)),
        Row("batch_l2_norm_squared", F.batch_l2_norm_squared, (CUBE,), lambda x: (x * x).sum((1, 2))),
        Row("softmax", F.softmax, (CUBE,), lambda x: np.exp(log_softmax(x))),
        Row("softmax last", lambda x: F.softmax(x, axis=-1), (CUBE,), lambda x: np.exp(log_softmax(x, -1))),
        Row("log_softmax", F.log_softmax, (IMAGE,), log_softmax),
        Row("log_softmax axis", lambda x: F.log_softmax(x, axis=0), (X,), lambda x: log_softmax(x, 0)),
    ]
