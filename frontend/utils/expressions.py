"""Expressions over the types of inputs, which remember how they were written."""
from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

from ..errors import InvalidType

# How tightly each way of writing binds; an operand that binds less tightly gets parentheses.
_COMPARISON, _OR, _XOR, _AND, _SHIFT, _SUM, _PRODUCT, _SIGN, _POWER, _ATOM = range(-1, 9)


class TypeInfo:
    """Shape and data type of one input."""

    __slots__ = ("dtype", "ndim", "shape")

    def __init__(self, shape: tuple[int, ...], dtype: Any) -> None:
        self.shape = shape
        self.dtype = dtype
        self.ndim = len(shape)

    @property
    def size(self) -> int:
        """The number of elements."""
        found = 1
        for length in self.shape:
            found *= length
        return found

    def __repr__(self) -> str:
        return f"TypeInfo({self.shape}, {self.dtype})"


def eval(exp: Any) -> Any:
    """Return the value of an expression, or of a list or tuple of them; anything else is its own value."""
    kind = type(exp)
    if kind is tuple or kind is list:
        for x in exp:
            if type(x) is not int:
                return kind(map(eval, exp))
        return exp
    return exp.eval() if isinstance(exp, Expr) else exp


def _show(value: Any) -> str:
    """Write a value the way messages show it: strings bare, lists and tuples element by element."""
    if not isinstance(value, (list, tuple)):
        return str(value)
    shown = ", ".join([repr(item) if isinstance(item, str) else _show(item) for item in value])
    return f"[{shown}]" if isinstance(value, list) else f"({shown}{',' * (len(value) == 1)})"


class Expr:
    """A lazily evaluated expression: attributes, items, calls, arithmetic and comparisons make further ones."""

    priority = _ATOM

    def eval(self) -> Any:
        """Return the value of this expression."""
        raise NotImplementedError

    def __getattr__(self, name: str) -> Expr:
        if name.startswith("__"):
            raise AttributeError(name)
        return GetAttr(self, name)

    def __getitem__(self, index: Any) -> Expr:
        return GetItem(self, index)

    def __iter__(self) -> Any:
        raise TypeError("An Expr instance cannot be iterated over. Evaluate it with its eval() method first.")

    def __call__(self, *args: Any) -> Expr:
        return Call(self, args)

    def __bool__(self) -> bool:
        raise RuntimeError(
            "An Expr instance cannot be evaluated as bool. "
            "Please use kusari.utils.type_check.eval() to evaluate an expression."
        )

    __hash__ = None  # type: ignore[assignment]

    # fmt: off
    def __eq__(self, other: Any) -> Any: return BoolBinaryOperator(self, other, "==", "!=", operator.eq)
    def __ne__(self, other: Any) -> Any: return BoolBinaryOperator(self, other, "!=", "==", operator.ne)
    def __lt__(self, other: Any) -> Expr: return BoolBinaryOperator(self, other, "<", ">=", operator.lt)
    def __le__(self, other: Any) -> Expr: return BoolBinaryOperator(self, other, "<=", ">", operator.le)
    def __gt__(self, other: Any) -> Expr: return BoolBinaryOperator(self, other, ">", "<=", operator.gt)
    def __ge__(self, other: Any) -> Expr: return BoolBinaryOperator(self, other, ">=", "<", operator.ge)
    def __neg__(self) -> Expr: return UnaryOperator(_SIGN, self, "-", operator.neg)
    def __pos__(self) -> Expr: return UnaryOperator(_SIGN, self, "+", operator.pos)
    def __invert__(self) -> Expr: return UnaryOperator(_SIGN, self, "~", operator.invert)
    # fmt: on


class Atom(Expr):
    """A constant or a variable."""


class Constant(Atom):
    """A plain value inside an expression."""

    def __init__(self, value: Any) -> None:
        self.value = value

    def __str__(self) -> str:
        return _show(self.value)

    def eval(self) -> Any:
        return eval(self.value)


class Variable(Atom):
    """A value (or a function) with the name that messages show.

    Args:
        value: The value.
        name (str): Its name.

    Example:
        >>> in_size = Variable(4, "in_size")
        >>> str(in_size * 2), (in_size * 2).eval()
        ('in_size * 2', 8)
    """

    def __init__(self, value: Any, name: str) -> None:
        self.value = value
        self.name = name

    def __str__(self) -> str:
        return self.name

    def eval(self) -> Any:
        return self.value


def _wrap(value: Any) -> Expr:
    return value if isinstance(value, Expr) else Constant(value)


def _operand(expression: Expr, priority: int) -> str:
    return str(expression) if expression.priority >= priority else f"({expression})"


class GetAttr(Expr):
    """An attribute of an expression; its name may be an expression as well."""

    def __init__(self, obj: Expr, name: Any) -> None:
        self.of = obj
        self.attribute = name  # the attribute ``name`` of an expression is one more expression

    def __str__(self) -> str:
        name = self.attribute.value if isinstance(self.attribute, Constant) else self.attribute
        return f"{_operand(self.of, _ATOM)}.{name}" if isinstance(name, str) else f"getattr({self.of}, {_show(name)})"

    def eval(self) -> Any:
        return getattr(self.of.eval(), eval(self.attribute))


def _subscript(index: Any) -> str:
    if isinstance(index, slice):
        text = ":".join("" if part is None else str(part) for part in (index.start, index.stop))
        return text if index.step is None else f"{text}:{index.step}"
    if isinstance(index, tuple):
        return ", ".join(map(_subscript, index))
    return "..." if index is ... else repr(index) if isinstance(index, str) else _show(index)


class GetItem(Expr):
    """An item or a slice of an expression."""

    def __init__(self, obj: Expr, key: Any) -> None:
        self.obj = obj
        self.key = key

    def __str__(self) -> str:
        return f"{_operand(self.obj, _ATOM)}[{_subscript(self.key)}]"

    def eval(self) -> Any:
        return self.obj.eval()[eval(self.key)]


class Call(Expr):
    """A function, given as a `Variable`, called with expressions."""

    def __init__(self, obj: Expr, args: tuple[Any, ...]) -> None:
        self.obj = obj
        self.args = args

    def __str__(self) -> str:
        return f"{_operand(self.obj, _ATOM)}({', '.join(_show(arg) for arg in self.args)})"

    def eval(self) -> Any:
        return self.obj.eval()(*map(eval, self.args))


class UnaryOperator(Expr):
    """A sign or an inversion."""

    def __init__(self, priority: int, term: Expr, exp: str, func: Callable[[Any], Any]) -> None:
        self.priority = priority
        self.term = term
        self.exp = exp
        self.func = func

    def __str__(self) -> str:
        return f"{self.exp}{_operand(self.term, self.priority)}"

    def eval(self) -> Any:
        return self.func(self.term.eval())


class BinaryOperator(Expr):
    """An arithmetic or bitwise operation."""

    def __init__(self, priority: int, lhs: Any, rhs: Any, exp: str, func: Callable[[Any, Any], Any],
                 right_associative: bool = False) -> None:  # fmt: skip
        self.priority = priority
        self.lhs = _wrap(lhs)
        self.rhs = _wrap(rhs)
        self.exp = exp
        self.func = func
        self.right_associative = right_associative

    def __str__(self) -> str:
        left_text = _operand(self.lhs, self.priority + self.right_associative)
        right_text = _operand(self.rhs, self.priority + (not self.right_associative))
        return f"{left_text} {self.exp} {right_text}"

    def eval(self) -> Any:
        return self.func(self.lhs.eval(), self.rhs.eval())


def _install(symbol: str, name: str, priority: int) -> None:
    function = getattr(operator, f"__{name}__")
    right = priority == _POWER  # `**` groups to the right, everything else to the left
    setattr(Expr, f"__{name}__", lambda self, other: BinaryOperator(priority, self, other, symbol, function, right))
    setattr(Expr, f"__r{name}__", lambda self, other: BinaryOperator(priority, other, self, symbol, function, right))


for _row in (
    ("+", "add", _SUM), ("-", "sub", _SUM), ("*", "mul", _PRODUCT), ("/", "truediv", _PRODUCT),
    ("//", "floordiv", _PRODUCT), ("%", "mod", _PRODUCT), ("**", "pow", _POWER), ("<<", "lshift", _SHIFT),
    (">>", "rshift", _SHIFT), ("&", "and", _AND), ("^", "xor", _XOR), ("|", "or", _OR),
):  # fmt: skip
    _install(*_row)


class Testable(Expr):
    """An expression that `expect` can judge."""

    def expect(self) -> None:
        """Raise `InvalidType` unless the expression holds."""
        raise NotImplementedError


class BoolBinaryOperator(Testable):
    """A comparison of two expressions; `inv` is the sign of its opposite, for messages."""

    priority = _COMPARISON

    def __init__(self, lhs: Any, rhs: Any, exp: str, inv: str, func: Callable[[Any, Any], Any]) -> None:
        self.lhs = _wrap(lhs)
        self.rhs = _wrap(rhs)
        self.exp = exp
        self.inv = inv
        self.func = func

    def __str__(self) -> str:
        return f"{_operand(self.lhs, _OR)} {self.exp} {_operand(self.rhs, _OR)}"

    def eval(self) -> bool:
        return bool(self.func(self.lhs.eval(), self.rhs.eval()))

    def expect(self) -> None:
        lhs, rhs = self.lhs.eval(), self.rhs.eval()
        if not self.func(lhs, rhs):
            raise InvalidType(str(self), f"{_show(lhs)} {self.inv} {_show(rhs)}")
