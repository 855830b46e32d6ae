"""Type checks of function inputs that explain themselves.

A function's ``check_type_forward(self, in_types)`` states conditions with `expect`. They are first tried on the arrays
themselves (`LightTypeInfoTuple`: a few plain comparisons). Only when that does not succeed are they stated again on
expressions (`TypeInfoTuple`), which remember how they were written, so that the message can show it.
"""
from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import numpy

from ..backends import cuda
from ..errors import InvalidType
from .expressions import (
    Atom,
    BinaryOperator,
    BoolBinaryOperator,
    Call,
    Constant,
    Expr,
    GetAttr,
    GetItem,
    Testable,
    TypeInfo,
    UnaryOperator,
    Variable,
    eval,
)

__all__ = [
    "Atom", "BinaryOperator", "BoolBinaryOperator", "Call", "Constant", "Expr", "GetAttr", "GetItem", "InvalidType",
    "LightTypeInfoTuple", "Testable", "TypeInfo", "TypeInfoTuple", "UnaryOperator", "Variable", "argname", "eval",
    "expect", "expect_broadcast_shapes", "get_light_types", "get_types", "make_variable", "prod", "same_types",
]  # fmt: skip


class TypeInfoTuple(tuple[Any, ...]):
    """The types of a function's inputs, as expressions."""

    name = "in_types"

    def size(self) -> Variable:
        """Return an expression of the number of inputs."""
        return Variable(len(self), f"{self.name}.size")


class LightTypeInfoTuple(tuple[Any, ...]):
    """The input arrays themselves, standing in for their types while nothing is wrong."""

    def size(self) -> int:
        """Return the number of inputs."""
        return len(self)


def get_types(data: Iterable[Any], name: str, accept_none: bool) -> TypeInfoTuple:
    """Return the types of `data` as expressions called ``name[0]``, ``name[1]``, ….

    Args:
        data: Arrays, or None where `accept_none` is true.
        name (str): What the tuple is called in messages.
        accept_none (bool): Whether None may stand for an array.

    Raises:
        ValueError: There is a None, and `accept_none` is false.
    """
    infos: list[Variable] = []
    for index, array in enumerate(data):
        where = f"{name}[{index}]"
        if array is None:
            if not accept_none:
                raise ValueError(f"{where} is None, but an array is expected.")
            infos.append(Variable(TypeInfo((), None), where))
        else:
            infos.append(Variable(TypeInfo(array.shape, array.dtype), where))
    found = TypeInfoTuple(infos)
    found.name = name
    return found


def get_light_types(data: Iterable[Any]) -> LightTypeInfoTuple:
    """Return a stand-in for `get_types` whose conditions are plain bools."""
    return LightTypeInfoTuple(data)


def expect(*conditions: Any) -> None:
    """Raise `InvalidType` unless every condition holds.

    Conditions are checked in order and lazily, so that a later one may rely on an earlier one.

    Args:
        conditions: Comparisons of expressions (or plain bools).

    Raises:
        InvalidType: A condition does not hold.

    Example:
        >>> x_type = Variable(TypeInfo((2, 3, 4), numpy.dtype("f")), "x")
        >>> expect(x_type.ndim == 2)
        Traceback (most recent call last):
            ...
        kusari.errors.InvalidType: Expect: x.ndim == 2
        Actual: 3 != 2
    """
    for condition in conditions:
        if condition is True:
            continue
        if isinstance(condition, Testable):
            condition.expect()
        elif not condition:
            raise InvalidType("True", repr(condition))


def make_variable(value: Any, name: str) -> Any:
    """Return `value` as an expression that messages call `name`."""
    return value if isinstance(value, Expr) else Variable(value, name)


def argname(in_types: Any, names: tuple[str, ...]) -> None:
    """Check the number of inputs and give them the names that messages call them by.

    Args:
        in_types: What ``check_type_forward`` was given.
        names (tuple of str): One name per input.

    Raises:
        InvalidType: The number of inputs differs.
    """
    if len(in_types) != len(names):
        raise InvalidType(
            f"{len(names)} argument{'s' * (len(names) != 1)} ({', '.join(names)})", f"{len(in_types)} given"
        )
    if isinstance(in_types, TypeInfoTuple):
        for info, name in zip(in_types, names, strict=True):
            info.name = name


_argname = argname


def _product(shape: Any) -> int:
    return int(numpy.prod(shape, dtype=numpy.int64))


_prod = Variable(_product, "prod")


def prod(xs: Any) -> Any:
    """Return the product of a shape: a number for a tuple, else an expression."""
    return _product(xs) if isinstance(xs, tuple) else _prod(xs)


def same_types(*arrays: Any) -> bool:
    """Return whether all arguments are NumPy arrays, or all are CuPy arrays."""
    if all(isinstance(x, numpy.ndarray) for x in arrays):
        return True
    return cuda.available and all(isinstance(x, cuda.ndarray) for x in arrays)


def expect_broadcast_shapes(name: str, *shapes: Any) -> None:
    """Raise `InvalidType` unless the shapes (tuples or expressions) can be broadcast together.

    Args:
        name (str): What the shapes are called in the message.
        shapes: Tuples of ints, or expressions of them.
    """
    actual = [eval(shape) for shape in shapes]
    if all([shape == actual[0] for shape in actual]):
        return
    try:
        numpy.broadcast_shapes(*actual)
    except ValueError:
        shown = ", ".join(map(str, shapes))
        raise InvalidType(
            f"{name} can be broadcast together: {shown}", " and ".join(map(str, actual)) + " cannot"
        ) from None


def check(function: Any, arrays: tuple[Any, ...], where: Callable[[], str]) -> None:
    """Run a function's type check on its input arrays; `where` tells the user's line when it fails.

    A check that does not get through on the arrays themselves, for whatever reason, is judged on expressions alone.
    """
    cls = type(function)
    if cls.__dict__.get("_checks_plainly", True):
        try:
            function.check_type_forward(LightTypeInfoTuple(arrays))
            return
        except AttributeError:
            # It calls eval() on expressions, as the manual says it may: from now on give it expressions at once.
            cls._checks_plainly = False
        except Exception:
            pass  # The same check on expressions decides, and says why.
    try:
        function.check_type_forward(get_types(arrays, "in_types", False))
    except InvalidType as error:
        operation = f"\nInvalid operation is performed in: {function.label} (Forward)"
        raise InvalidType(error.expect, error.actual, operation, where()) from None
