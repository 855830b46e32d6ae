"""The operators of Python, each once: its function, NumPy's function, its special methods; operations of NumPy's."""
from __future__ import annotations

import operator
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

Try = tuple[Any, tuple[Any, ...], str]  # an operand, the other ones, and the special method of the first


@dataclass(frozen=True, eq=False)
class Operator:
    """An operator: ``method`` of its first operand implements it, and ``reflected`` of the second.

    ``own`` is the method that is asked before, of an assignment like ``+=``, whose operator without it is ``plain``.
    """

    sign: str
    function: Callable[..., Any]
    ufunc: Any
    method: str
    reflected: str = ""
    own: str = ""
    assigned: Operator | None = None

    @property
    def plain(self) -> Operator:
        """The operator that makes a new object."""
        return self.assigned or self

    def tries(self, a: Any, *others: Any) -> list[Try]:
        """Return the special methods in the order in which Python tries them."""
        found = [(a, others, self.method)]
        for b in others:
            found.append((b, (a,), self.reflected))
            if type(b) is not type(a) and issubclass(type(b), type(a)):
                found.reverse()
        return [(a, others, self.own), *found] if self.own else found


def _operators(rows: dict[str, tuple[str, Any]], reflected: str = "") -> dict[str, Operator]:
    """Return operators by their signs, of names and ufuncs."""
    return {sign: Operator(sign, getattr(operator, f"__{name}__"), ufunc, f"__{name}__", reflected.format(name))
            for sign, (name, ufunc) in rows.items()}


BINARY = _operators({
    "+": ("add", np.add), "-": ("sub", np.subtract), "*": ("mul", np.multiply), "/": ("truediv", np.true_divide),
    "//": ("floordiv", np.floor_divide), "%": ("mod", np.remainder), "**": ("pow", np.power),
    "@": ("matmul", np.matmul), "&": ("and", np.bitwise_and), "|": ("or", np.bitwise_or), "^": ("xor", np.bitwise_xor),
    "<<": ("lshift", np.left_shift), ">>": ("rshift", np.right_shift)}, "__r{}__")
INPLACE = {sign: replace(op, function=getattr(operator, own), own=own, assigned=op) for sign, op in BINARY.items()
           if (own := f"__i{op.method[2:]}")}
UNARY = _operators({"-": ("neg", np.negative), "+": ("pos", np.positive), "~": ("invert", np.invert)})
_SWAPPED = {"==": "==", "!=": "!=", "<": ">", "<=": ">=", ">": "<", ">=": "<="}
_EACH = _operators({
    "==": ("eq", np.equal), "!=": ("ne", np.not_equal), "<": ("lt", np.less), "<=": ("le", np.less_equal),
    ">": ("gt", np.greater), ">=": ("ge", np.greater_equal)})
COMPARE = {sign: replace(op, reflected=_EACH[_SWAPPED[sign]].method) for sign, op in _EACH.items()}
EVERY = [op for table in (BINARY, INPLACE, UNARY, COMPARE) for op in table.values()]


@dataclass(eq=False)
class Operation:
    """NumPy's ``fn`` of some arguments, which writes to the arrays ``written``.

    ``record`` records it as functions of ours, if it can, and ``rewrite`` computes the new value of the array that is
    written to. ``view`` is whether the result may share memory with an argument.
    """

    name: str
    fn: Callable[..., Any]
    args: tuple[Any, ...]
    kwargs: dict[str, Any] = field(default_factory=dict)
    record: Callable[[], Any] | None = None
    written: tuple[Any, ...] = ()
    view: bool = False
    rewrite: Callable[[Any], Any] | None = None

    def __call__(self) -> Any:
        """Do it."""
        return self.fn(*self.args, **self.kwargs)
