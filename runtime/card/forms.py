"""The epilogues that cuBLASLt has, found in the expressions of a product's epilogue."""
from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

from kusari.ir import Arg, Call, Expr, Lit, walk
from kusari.ir.gelu import is_gelu
from kusari.ir.product import Epilogue, EpilogueOperand

from .cublaslt import Function, Work


@dataclass(frozen=True)
class Form:
    """The part of an epilogue that the library computes; ``addend`` and ``bias`` are its operands.

    A gradient of a ReLU has the ReLU's result, ``relu``.
    """

    alpha: float = 1.0
    addend: EpilogueOperand | None = None
    bias: EpilogueOperand | None = None
    function: Function = ""
    relu: EpilogueOperand | None = None


def form_of(epilogue: Epilogue, work: Work) -> Form | None:
    """Return the whole epilogue as one of the library's, or None.

    From the outside: a function; the addition of a bias or of a matrix, or a factor; the product.
    """
    if len(epilogue.exprs) != 1:
        return None
    expr = epilogue.exprs[0]
    function: Function = ""
    relu: EpilogueOperand | None = None
    if (inner := _without_zero(expr)) is not None:
        expr, function = inner, "relu"
    elif (gated := _gated(expr)) is not None:
        (expr, index), function = gated, "gradient of relu"
        relu = epilogue.operands[index - 1]
        if relu.value.tensor.dtype != work.dtype or not is_like_the_result(relu, work):
            return None
    elif (inner := _in_gelu(expr)) is not None:
        expr, function = inner, "gelu"
    if expr == Arg(0):
        return Form(function=function, relu=relu)
    if not isinstance(expr, Call) or len(expr.args) != 2 or Arg(0) not in expr.args:
        return None
    other = expr.args[1] if expr.args[0] == Arg(0) else expr.args[0]
    if expr.fn == "multiply" and isinstance(other, Lit) and other.value:  # zero times NaN is NaN
        return Form(alpha=float(other.value), function=function, relu=relu)
    if expr.fn != "add" or not isinstance(other, Arg) or not other.index:
        return None
    operand = epilogue.operands[other.index - 1]
    if operand.value.tensor.dtype != work.dtype:
        return None
    size = operand.value.tensor.size
    if relu is None and size == work.n and not operand.row and not operand.batch and (
            operand.column == 1 or work.n == 1):
        return Form(bias=operand, function=function)
    if size == work.batch * work.m * work.n and is_like_the_result(operand, work):
        return Form(addend=operand, function=function, relu=relu)
    return None


def is_like_the_result(operand: EpilogueOperand, work: Work) -> bool:
    """Whether an operand has an element for each of the product, in its order."""
    wanted = ((operand.row, work.n, work.m), (operand.column, 1, work.n), (operand.batch, work.m * work.n, work.batch))
    return all(step == expected for step, expected, extent in wanted if extent > 1)


def _is_zero(expr: Expr) -> bool:
    return isinstance(expr, Lit) and not isinstance(expr.value, bool) and expr.value == 0


def _without_zero(expr: Expr) -> Expr | None:
    """The argument of a ReLU."""
    if not isinstance(expr, Call) or expr.fn != "maximum":
        return None
    found = [e for e in expr.args if not _is_zero(e)]
    return found[0] if len(found) == 1 else None


def _gated(expr: Expr) -> tuple[Expr, int] | None:
    """An expression that counts where an operand is positive and is zero elsewhere, and the operand's number."""
    if not isinstance(expr, Call) or expr.fn != "where" or not _is_zero(expr.args[2]):
        return None
    test = expr.args[0]
    if not isinstance(test, Call) or test.fn != "greater" or not _is_zero(test.args[1]):
        return None
    operand = test.args[0]
    return (expr.args[1], operand.index) if isinstance(operand, Arg) and operand.index else None


@lru_cache(maxsize=256)
def _in_gelu(expr: Expr) -> Expr | None:
    """The argument of a GELU."""
    parts = walk(expr)
    if not any(isinstance(e, Call) and e.fn == "tanh" for e in parts):
        return None
    arguments = [e for e in parts if e == Arg(0) or isinstance(e, Call) and Arg(0) in e.args]
    return next((e for e in arguments if is_gelu(expr, e)), None)
