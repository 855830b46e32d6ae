"""Operators at every point: arithmetic, activations, comparisons, casts."""
from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from kusari.ir import symbol
from kusari.ir.symbol import absolute, cast, exp, isnan, logical_and, maximum, minimum, tanh, where

from ... import functions as F
from ...configuration import config
from ...structured import Structured
from ...variable import Variable, as_variable
from ..versions import require_onnx
from .program import Step
from .registry import Table, is_float, number

TABLE = Table()


class Pointwise(Structured):
    """A formula of ``FORMULAS`` at every point of inputs that broadcast; ``constants`` are its further operands."""

    def __init__(self, name: str, constants: tuple[Any, ...] = ()) -> None:
        super().__init__()
        self.name = name
        self.constants = constants

    @property
    def label(self) -> str:
        return self.name

    def lower(self, b: Any, *inputs: Any) -> tuple[Any, ...]:
        return b.map(lambda *xs: FORMULAS[self.name](*xs, *self.constants), *inputs),


def pointwise(name: str, *inputs: Any, constants: tuple[Any, ...] = ()) -> Variable:
    """Return the Variable of a formula of inputs of one dtype."""
    return Pointwise(name, constants).apply(tuple(map(as_variable, inputs)))[0]


FORMULAS: dict[str, Callable[..., Any]] = {
    # floats
    "Reciprocal": lambda x: 1.0 / x,
    "ThresholdedRelu": lambda x, alpha: where(x > alpha, x, 0),
    "Celu": lambda x, alpha: where(x > 0, x, alpha * (exp(minimum(x, 0) / alpha) - 1)),
    "HardSigmoid": lambda x, alpha, beta: minimum(maximum(alpha * x + beta, 0), 1),
    "HardSwish": lambda x: x * minimum(maximum(x / 6 + 0.5, 0), 1),
    "Softsign": lambda x: x / (1 + absolute(x)),
    "Swish": lambda x, alpha: x * (0.5 * tanh(0.5 * alpha * x) + 0.5),
    "Mish": lambda x: x * tanh(maximum(x, 0) + symbol.log1p(exp(-absolute(x)))),
    "Gelu": lambda x: 0.5 * x * (1 + symbol.SCALAR.erf(x * math.sqrt(0.5))),
    "GeluTanh": lambda x: 0.5 * x * (1 + tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x * x * x))),
    "Share": lambda x, norm: where(norm == 0, 0, x / norm),
    "Shrink": lambda x, bias, limit: where(x < -limit, x + bias, where(x > limit, x - bias, 0)),
    "PRelu": lambda x, slope: where(x < 0, x * slope, x),
    "Pow": symbol.SCALAR.power, "Max": maximum, "Min": minimum,
    # any dtype
    "Equal": lambda x, y: x == y, "Less": lambda x, y: x < y, "LessOrEqual": lambda x, y: x <= y,
    "Greater": lambda x, y: x > y, "GreaterOrEqual": lambda x, y: x >= y,
    "And": logical_and, "Or": symbol.logical_or, "Not": lambda x: x == cast(0, np.bool_),
    "IsNaN": isnan,
    "Where": where,
    "Cast": lambda x, dtype: cast(x, np.dtype(dtype)),
}
_FUNCTIONS: dict[str, Callable[..., Any]] = {
    "Abs": F.absolute, "Exp": F.exp, "Log": F.log, "Sqrt": F.sqrt, "Tanh": F.tanh, "Neg": lambda x: -x, "Sin": F.sin,
    "Cos": F.cos, "Tan": F.tan, "Asin": F.arcsin, "Acos": F.arccos, "Atan": F.arctan, "Sinh": F.sinh, "Cosh": F.cosh,
    "Floor": F.floor, "Ceil": F.ceil, "Relu": F.relu, "LeakyRelu": F.leaky_relu, "Elu": F.elu, "Selu": F.selu,
    "Sigmoid": F.sigmoid, "Softplus": F.softplus, "Erf": F.erf,
    "Add": lambda x, y: x + y, "Sub": lambda x, y: x - y, "Mul": lambda x, y: x * y, "Div": lambda x, y: x / y,
}
# Attributes that are operands, with their defaults.
_OPERANDS = {
    "LeakyRelu": (("alpha", 0.01),), "ThresholdedRelu": (("alpha", 1.0),), "Elu": (("alpha", 1.0),),
    "Celu": (("alpha", 1.0),), "Selu": (("alpha", 1.6732632), ("gamma", 1.050701)),
    "HardSigmoid": (("alpha", 0.2), ("beta", 0.5)), "Swish": (("alpha", 1.0),),
    "Shrink": (("bias", 0.0), ("lambd", 0.5))}
_BINARY = ("Add", "Sub", "Mul", "Div")


@TABLE.add(*[name for name in _FUNCTIONS if name not in _BINARY])
def _function(step: Step, x: Any) -> Any:
    operands = [float(step(name, default)) for name, default in _OPERANDS.get(step.operator, ())]
    return _FUNCTIONS[step.operator](as_variable(x), *operands) if is_float(x) else NotImplemented


@TABLE.add("Reciprocal", "ThresholdedRelu", "Celu", "HardSigmoid", "HardSwish", "Softsign", "Swish", "Mish", "Shrink")
def _formula(step: Step, x: Any) -> Any:
    operands = tuple([float(step(name, default)) for name, default in _OPERANDS.get(step.operator, ())])
    return pointwise(step.operator, x, constants=operands) if is_float(x) else NotImplemented


@TABLE.add("Gelu")
def _gelu(step: Step, x: Any) -> Any:
    name = "GeluTanh" if step("approximate", "none") == "tanh" else "Gelu"
    return pointwise(name, x) if is_float(x) else NotImplemented


@TABLE.add(*_BINARY)
def _binary(step: Step, x: Any, y: Any) -> Any:
    if not is_float(x) or not is_float(y) or step.version < 7 and step("broadcast", 0):
        return NotImplemented
    return _FUNCTIONS[step.operator](as_variable(x), as_variable(y))


@TABLE.add("Max", "Min")
def _extremum(step: Step, *xs: Any) -> Any:
    if not all(map(is_float, xs)):
        return NotImplemented
    y = as_variable(xs[0])
    for x in xs[1:]:
        y = pointwise(step.operator, y, x)
    return y


@TABLE.add("PRelu")
def _prelu(step: Step, x: Any, slope: Any) -> Any:
    if not is_float(x):
        return NotImplemented
    if step.version < 7:
        slope = F.reshape(slope, (-1, *(1,) * (x.ndim - 2)))
    return pointwise("PRelu", x, slope)


@TABLE.add("Pow")
def _pow(step: Step, x: Any, y: Any) -> Any:
    if not is_float(x) or step.version < 7:
        return NotImplemented
    if isinstance(y, np.ndarray) and y.size == 1:  # an exponent that is known
        exponent = float(number(y))
        result = as_variable(x) ** (int(exponent) if exponent.is_integer() else exponent)
        return result if y.ndim <= x.ndim else F.reshape(result, (1,) * (y.ndim - x.ndim) + x.shape)
    return pointwise("Pow", x, y) if is_float(y) and x.dtype == y.dtype else NotImplemented


@TABLE.add("Sum", "Mean")
def _sum(step: Step, *xs: Any) -> Any:
    if not all(map(is_float, xs)):
        return NotImplemented
    y = as_variable(xs[0])
    for x in xs[1:]:
        y = y + as_variable(x)
    return y if step.operator == "Sum" or len(xs) == 1 else y / len(xs)


@TABLE.add("Clip")
def _clip(step: Step, x: Any, least: Any = None, most: Any = None) -> Any:
    if not is_float(x):
        return NotImplemented
    least, most = step("min", least), step("max", most)
    for name, limit in (("Max", least), ("Min", most)):
        if limit is not None:
            x = pointwise(name, x, np.asarray(limit, x.dtype) if not isinstance(limit, Variable) else limit)
    return x


@TABLE.add("Equal", "Less", "LessOrEqual", "Greater", "GreaterOrEqual", "And", "Or")
def _compare(step: Step, x: Any, y: Any) -> Any:
    if step.version < 7 or x.dtype != y.dtype or x.dtype.kind not in "fiub" or not x.dtype.isnative:
        return NotImplemented
    return pointwise(step.operator, x, y)


@TABLE.add("Not", "IsNaN")
def _test(step: Step, x: Any) -> Any:
    return pointwise(step.operator, x) if x.dtype.kind in "bf" and x.dtype.name != "bfloat16" else NotImplemented


@TABLE.add("Where")
def _where(step: Step, condition: Any, x: Any, y: Any) -> Any:
    if not is_float(x) or x.dtype != y.dtype:
        return NotImplemented
    return pointwise("Where", condition, x, y)


_CASTS = frozenset(("float16", "float32", "float64", "int8", "int16", "int32", "int64", "uint8", "bool"))


@TABLE.add("Cast", "CastLike")
def _cast(step: Step, x: Any, like: Any = None) -> Any:
    if like is not None:
        dtype = like.dtype
    else:
        to = step("to")
        dtype = require_onnx().helper.tensor_dtype_to_np_dtype(to) if isinstance(to, int) else np.dtype(to.lower())
    if x.dtype.name not in _CASTS or dtype.name not in _CASTS:
        return NotImplemented
    if x.dtype == dtype:
        return x
    if is_float(x) and dtype.kind == "f":
        return F.cast(x, dtype)
    return pointwise("Cast", x, constants=(dtype.name,))


@TABLE.add("Dropout")
def _dropout(step: Step, x: Any, ratio: Any = None, training: Any = None) -> Any:
    if len(step.outputs) > 1 and step.outputs[1]:
        return NotImplemented
    share = step("ratio", 0.5) if ratio is None else number(ratio)
    on = config.train if training is None else bool(number(training))
    if on and step("seed") is not None:
        return NotImplemented
    return F.dropout(x, share) if on and share else as_variable(x)


@TABLE.add("Identity")
def _identity(step: Step, x: Any) -> Any:
    return x


@TABLE.add("Trilu")
def _trilu(step: Step, x: Any, k: Any = None) -> Any:
    if not is_float(x):
        return NotImplemented
    diagonal = 0 if k is None else number(k)
    n, m = x.shape[-2:]
    keep = np.triu(np.ones((n, m), bool), diagonal) if step("upper", 1) else np.tril(np.ones((n, m), bool), diagonal)
    return F.where(np.broadcast_to(keep, x.shape), x, np.zeros(x.shape, x.dtype))


