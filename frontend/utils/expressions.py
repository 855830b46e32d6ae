"""Expressions over the types of inputs, which remember how they were written."""
from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

from ..errors import InvalidType

# How tightly each way of writing binds; an operand that binds less tightly gets parentheses.
_COMPARISON, _OR, _XOR, _AND, _SHIFT, _SUM, _PRODUCT, _SIGN, _POWER, _ATOM = range(10)


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
    if isinstance(exp, Expr):
        return exp.eval()
    if type(exp) in (list, tuple):
        return type(exp)(map(eval, exp))
    return exp


def _show(value: Any) -> str:
    """Write a value the way messages show it: strings bare, tuples element by element."""
    if isinstance(value, tuple):
        return f"({', '.join(map(_show, value))}{',' * (len(value) == 1)})"
    return str(value)


class Expr:
    """A lazily evaluated expression: attributes, items, calls, arithmetic and comparisons make further ones."""

    precedence = _ATOM

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
    def __eq__(self, other: Any) -> Any: return Comparison("==", self, other)
    def __ne__(self, other: Any) -> Any: return Comparison("!=", self, other)
    def __lt__(self, other: Any) -> Expr: return Comparison("<", self, other)
    def __le__(self, other: Any) -> Expr: return Comparison("<=", self, other)
    def __gt__(self, other: Any) -> Expr: return Comparison(">", self, other)
    def __ge__(self, other: Any) -> Expr: return Comparison(">=", self, other)
    def __neg__(self) -> Expr: return Unary("-", self)
    def __pos__(self) -> Expr: return Unary("+", self)
    def __invert__(self) -> Expr: return Unary("~", self)
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


def _operand(expression: Expr, precedence: int) -> str:
    return str(expression) if expression.precedence >= precedence else f"({expression})"


class GetAttr(Expr):
    """An attribute of an expression."""

    def __init__(self, obj: Expr, name: str) -> None:
        self.of = obj
        self.attribute = name  # the attribute ``name`` of an expression is one more expression

    def __str__(self) -> str:
        return f"{_operand(self.of, _ATOM)}.{self.attribute}"

    def eval(self) -> Any:
        return getattr(self.of.eval(), self.attribute)


def _subscript(index: Any) -> str:
    if isinstance(index, slice):
        text = ":".join("" if part is None else str(part) for part in (index.start, index.stop))
        return text if index.step is None else f"{text}:{index.step}"
    if isinstance(index, tuple):
        return ", ".join(map(_subscript, index))
    return str(index)


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


class Unary(Expr):
    """A sign or an inversion."""

    precedence = _SIGN
    functions: dict[str, Callable[[Any], Any]] = {"-": operator.neg, "+": operator.pos, "~": operator.invert}

    def __init__(self, sign: str, of: Expr) -> None:
        self.sign = sign
        self.of = of

    def __str__(self) -> str:
        return f"{self.sign}{_operand(self.of, _SIGN)}"

    def eval(self) -> Any:
        return self.functions[self.sign](self.of.eval())


class Binary(Expr):
    """An arithmetic or bitwise operation."""

    def __init__(self, symbol: str, function: Callable[[Any, Any], Any], precedence: int, lhs: Any, rhs: Any) -> None:
        self.symbol = symbol
        self.function = function
        self.precedence = precedence
        self.lhs = _wrap(lhs)
        self.rhs = _wrap(rhs)

    def __str__(self) -> str:
        # `**` groups to the right, everything else to the left.
        right = self.precedence == _POWER
        left_text = _operand(self.lhs, self.precedence + right)
        right_text = _operand(self.rhs, self.precedence + (not right))
        return f"{left_text} {self.symbol} {right_text}"

    def eval(self) -> Any:
        return self.function(self.lhs.eval(), self.rhs.eval())


def _install(symbol: str, name: str, precedence: int) -> None:
    function = getattr(operator, f"__{name}__")
    setattr(Expr, f"__{name}__", lambda self, other: Binary(symbol, function, precedence, self, other))
    setattr(Expr, f"__r{name}__", lambda self, other: Binary(symbol, function, precedence, other, self))


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


class Comparison(Testable):
    """A comparison of two expressions."""

    precedence = _COMPARISON
    functions: dict[str, tuple[Callable[[Any, Any], Any], str]] = {
        "==": (operator.eq, "!="), "!=": (operator.ne, "=="), "<": (operator.lt, ">="),
        "<=": (operator.le, ">"), ">": (operator.gt, "<="), ">=": (operator.ge, "<"),
    }  # fmt: skip

    def __init__(self, symbol: str, lhs: Any, rhs: Any) -> None:
        self.symbol = symbol
        self.lhs = _wrap(lhs)
        self.rhs = _wrap(rhs)

    def __str__(self) -> str:
        return f"{_operand(self.lhs, _OR)} {self.symbol} {_operand(self.rhs, _OR)}"

    def eval(self) -> bool:
        return bool(self.functions[self.symbol][0](self.lhs.eval(), self.rhs.eval()))

    def expect(self) -> None:
        function, opposite = self.functions[self.symbol]
        lhs, rhs = self.lhs.eval(), self.rhs.eval()
        if not function(lhs, rhs):
            raise InvalidType(str(self), f"{_show(lhs)} {opposite} {_show(rhs)}")
