"""The arithmetic of Variables: the operators, installed on `Variable` here, and `add`."""
from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np

from ... import backend
from ...elementwise import ElementwiseFunction, cast_body, elementwise, literal_of
from ...function_node import FunctionNode
from ...utils import type_check
from ...utils.arrays import force_array
from ...variable import Variable
from .identity import Identity
from .matmul import matmul


@elementwise("_ + _", onnx="Add", kind="")
def _add(xp: Any, lhs: Any, rhs: Any) -> Any:
    return lhs + rhs


@elementwise("_ - _", onnx="Sub", kind="")
def _sub(xp: Any, lhs: Any, rhs: Any) -> Any:
    return lhs - rhs


@elementwise("_ * _", onnx="Mul", kind="")
def _mul(xp: Any, lhs: Any, rhs: Any) -> Any:
    return lhs * rhs


@elementwise("_ / _", onnx="Div", kind="")
def _div(xp: Any, lhs: Any, rhs: Any) -> Any:
    return lhs / rhs


@elementwise("_ // _", kind="")
def _floordiv(xp: Any, lhs: Any, rhs: Any) -> Any:
    return lhs // rhs


@elementwise("_ % _", kind="")
def _mod(xp: Any, lhs: Any, rhs: Any) -> Any:
    return lhs % rhs


@elementwise("_ ** _", onnx="Pow", kind="")
def _pow(xp: Any, lhs: Any, rhs: Any) -> Any:
    return lhs ** rhs


@elementwise("__neg__", onnx="Neg")
def _neg(xp: Any, x: Any) -> Any:
    return -x


@elementwise("|_|", onnx="Abs")
def absolute(xp: Any, x: Any) -> Any:
    """Absolute value.

    Args:
        x: Input of any shape.

    Returns:
        Variable: ``|x|``; its gradient at 0 is 0.
    """
    return abs(x)


class MultiAdd(FunctionNode):
    """Sum of several arrays in one node.

    Invariant: the inputs have one dtype and one shape, so that every gradient is the incoming one.
    """

    def check_type_forward(self, in_types: Any) -> None:
        names = tuple([f"x{i}" for i in range(len(in_types))])
        type_check.argname(in_types, names)
        for other in in_types[1:]:
            type_check.expect(in_types[0].dtype == other.dtype, in_types[0].shape == other.shape)

    def forward(self, inputs: tuple[Any, ...]) -> tuple[Any, ...]:
        y = force_array(inputs[0] + inputs[1])
        for x in inputs[2:]:
            y += x
        return y,

    def backward(self, indexes: tuple[int, ...], grad_outputs: tuple[Any, ...]) -> tuple[Any, ...]:
        return tuple(grad_outputs[0] for _ in indexes)

    def lower(self, b: Any, *xs: Any) -> tuple[Any, ...]:
        return b.map(lambda *xs: sum(xs[1:], xs[0]), *xs),

    def onnx(self, g: Any, *xs: str) -> Any:
        return g.Sum(*xs)


def add(*xs: Any) -> Variable:
    """Elementwise sum of one or more inputs, which may be broadcast.

    Args:
        xs: Variables or arrays of one dtype.

    Raises:
        ValueError: There is no input.
        InvalidType: The dtypes differ, or the shapes do not broadcast.

    >>> import numpy as np
    >>> import kusari.functions as F
    >>> F.add(np.ones(2, "f"), np.ones(2, "f"), np.ones(2, "f")).array.tolist()
    [3.0, 3.0]
    """
    if not xs:
        raise ValueError("add() takes at least one input, got none")
    if len(xs) == 1:
        return Identity().apply(xs)[0]
    shapes = {x.shape for x in xs if hasattr(x, "shape")}
    if len(xs) == 2 or len(shapes) > 1 or any(not hasattr(x, "shape") for x in xs):
        return functools.reduce(lambda a, b: _binary(_add, a, b), xs)
    return MultiAdd().apply(xs)[0]


_NUMBERS = (int, float, np.number, np.bool_)


def _operand(x: Any, dtype: Any) -> Any:
    """Return a constant beside a Variable of ``dtype`` in that dtype, as a Python scalar where it is one.

    Raises ``TypeError`` for what is neither a number nor an array.
    """
    if isinstance(x, _NUMBERS):
        x = literal_of(x)
        return x if dtype.kind == "f" and type(x) is not bool else np.dtype(dtype).type(x).item()
    if backend.get_array_module(x) is np and not isinstance(x, np.ndarray):
        raise TypeError(f"expected a Variable, an array or a number, got {type(x).__name__}")
    return x if x.dtype == dtype else cast_body(np.dtype(dtype))(x)  # a function, which a trace knows


def _integral(x: Any, dtype: Any) -> Any:
    """Keep the dtype of integer arithmetic, where NumPy would turn to floating point."""
    return x if x.dtype == dtype else cast_body(dtype)(x)


def _binary(f: ElementwiseFunction, lhs: Any, rhs: Any) -> Variable:
    if not isinstance(rhs, Variable) and isinstance(lhs, Variable):
        rhs = _operand(rhs, lhs.dtype)
    elif not isinstance(lhs, Variable) and isinstance(rhs, Variable):
        lhs = _operand(lhs, rhs.dtype)
    y = f(lhs, rhs)
    dtype = getattr(lhs, "dtype", None) or rhs.dtype
    return y if dtype.kind == "f" else _integral(y, dtype)


def _matmul(lhs: Any, rhs: Any) -> Variable:
    if not isinstance(rhs, Variable):
        rhs = _operand(rhs, lhs.dtype)
    elif not isinstance(lhs, Variable):
        lhs = _operand(lhs, rhs.dtype)
    return matmul(lhs, rhs)


def _install() -> None:
    """Give `Variable` its operators."""
    def left(f: Callable[..., Any]) -> Callable[[Any, Any], Any]:
        def operator(self: Any, rhs: Any) -> Any:
            return NotImplemented if _unknown(rhs) else _binary(f, self, rhs)  # type: ignore[arg-type]
        return operator

    def right(f: Callable[..., Any]) -> Callable[[Any, Any], Any]:
        def operator(self: Any, lhs: Any) -> Any:
            return NotImplemented if _unknown(lhs) else _binary(f, lhs, self)  # type: ignore[arg-type]
        return operator

    for name, f in (("add", _add), ("sub", _sub), ("mul", _mul), ("truediv", _div), ("floordiv", _floordiv),
                    ("mod", _mod), ("pow", _pow)):
        setattr(Variable, f"__{name}__", left(f))
        setattr(Variable, f"__r{name}__", right(f))
    Variable.__neg__ = lambda self: _neg(self)  # type: ignore[method-assign]
    Variable.__pos__ = lambda self: self  # type: ignore[method-assign]
    Variable.__abs__ = lambda self: absolute(self)  # type: ignore[method-assign]
    Variable.__matmul__ = _matmul  # type: ignore[method-assign]
    Variable.__rmatmul__ = lambda self, lhs: _matmul(lhs, self)  # type: ignore[method-assign]


def _unknown(x: Any) -> bool:
    return not (isinstance(x, (Variable, *_NUMBERS)) or hasattr(x, "dtype"))


_install()
