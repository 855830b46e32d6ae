"""GELU is found in any order of writing it, and nothing else is taken for it."""
from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from kusari.ir import Arg, Call, Expr, Lit
from kusari.ir.gelu import gelu_gradient_factor, is_gelu

S, C = 0.7978845608028654, 0.044715
X, G = Arg(0), Arg(1)


class E:
    """An expression with operators."""

    def __init__(self, expr: Expr) -> None:
        self.expr = expr

    def __add__(self, other: Any) -> E:
        return E(Call("add", (self.expr, _expr(other))))

    def __radd__(self, other: Any) -> E:
        return E(Call("add", (_expr(other), self.expr)))

    def __sub__(self, other: Any) -> E:
        return E(Call("subtract", (self.expr, _expr(other))))

    def __rsub__(self, other: Any) -> E:
        return E(Call("subtract", (_expr(other), self.expr)))

    def __mul__(self, other: Any) -> E:
        return E(Call("multiply", (self.expr, _expr(other))))

    def __rmul__(self, other: Any) -> E:
        return E(Call("multiply", (_expr(other), self.expr)))

    def __truediv__(self, other: Any) -> E:
        return E(Call("true_divide", (self.expr, _expr(other))))

    def __pow__(self, other: Any) -> E:
        return E(Call("power", (self.expr, _expr(other))))

    def __neg__(self) -> E:
        return E(Call("negative", (self.expr,)))


def _expr(value: Any) -> Expr:
    return value.expr if isinstance(value, E) else Lit(value)


def tanh(x: E) -> E:
    return E(Call("tanh", (x.expr,)))


x, g = E(X), E(G)
inner = S * (x + C * x ** 3)
SPELLINGS = {
    "usual": 0.5 * x * (1 + tanh(inner)),
    "cube of products": x * 0.5 * (tanh((x + x * x * x * C) * S) + 1.0),
    "sum": 0.5 * x + 0.5 * (x * tanh(inner)),
    "divided": x * (1 + tanh(inner)) / 2,
    "factored": x / 2 * (1 + tanh(x * (S + S * C * x ** 2))),
    "root": 0.5 * x * (1 + tanh(E(Call("sqrt", (Call("true_divide", (Lit(2), Lit(np.pi))),))) * (x + C * x ** 3))),
    "sigmoid": x * (0.5 * tanh(0.5 * (2 * inner)) + 0.5),
    "negative": -(x * (-0.5 - 0.5 * tanh(inner))),
    "complement": x - 0.5 * x * (1 - tanh(inner)),
    "digits": 0.5 * x * (1 + tanh(0.79788456 * (x + C * x ** 3))),
}
MISSES = {
    "few digits": 0.5 * x * (1 + tanh(0.79788 * (x + C * x ** 3))),
    "another cube": 0.5 * x * (1 + tanh(S * (x + 0.044717 * x ** 3))),
    "a square": 0.5 * x * (1 + tanh(S * (x + C * x ** 2))),
    "another half": 0.51 * x * (1 + tanh(inner)),
    "another sign": 0.5 * x * (1 - tanh(inner)),
    "no half": x * (1 + tanh(inner)),
    "more": 0.5 * x * (1 + tanh(inner)) + 1e-3 * x,
    "another argument": 0.5 * g * (1 + tanh(inner)),
    "another function": 0.5 * x * (1 + E(Call("erf", (inner.expr,)))),
    "tanh of it": 0.5 * x * (1 + tanh(tanh(inner))),
    "a large power": 0.5 * x ** 9 * (1 + tanh(inner)),
    "sigmoid of 1.702": x * (0.5 * tanh(0.851 * x) + 0.5),
    "nothing": x,
}


@pytest.mark.parametrize("name", SPELLINGS)
def test_gelu(name: str) -> None:
    assert is_gelu(SPELLINGS[name].expr, X)
    assert not is_gelu(SPELLINGS[name].expr, G)


@pytest.mark.parametrize("name", MISSES)
def test_what_is_no_gelu(name: str) -> None:
    assert not is_gelu(MISSES[name].expr, X)


def test_its_argument_may_be_any_expression() -> None:
    argument = Call("add", (Arg(0), Arg(1)))
    y = E(argument)
    assert is_gelu((0.5 * y * (1 + tanh(S * (y + C * y ** 3)))).expr, argument)
    assert not is_gelu((0.5 * y * (1 + tanh(S * (x + C * y ** 3)))).expr, argument)


def gradients(u: E) -> dict[str, E]:
    """The gradient by a tanh, as it is derived from some spellings."""
    half = 0.5 * x
    through = g * half * (1 - u * u) * S
    return {"usual": (through + g * (1 + u) * 0.5) + through * C * (3 * (x * x)),
            "derivative": g * (0.5 * (1 + u) + half * (1 - u ** 2) * (S * (1 + 3 * C * x ** 2))),
            "multiplied out": 0.5 * g + 0.5 * g * u + half * g * S + 3 * half * g * S * C * x * x
            - (half * g * S + 3 * half * g * S * C * x * x) * u * u}


@pytest.mark.parametrize("name", gradients(x))
def test_gradients(name: str) -> None:
    gradient = gradients(tanh(inner))[name]
    assert gelu_gradient_factor(gradient.expr, G, X) == pytest.approx(1, rel=1e-12)
    assert gelu_gradient_factor((gradient * 0.25).expr, G, X) == pytest.approx(0.25, rel=1e-12)
    others = (gradients(tanh(S * (x + 0.0447 * x ** 3)))[name], gradients(x)[name], gradient + g * x * 1e-3,
              gradient + 0.1, gradient * g, gradient * x, g * tanh(inner), 0 * gradient)
    assert not gelu_gradient_factor(gradient.expr, X, G) and not any(
        gelu_gradient_factor(e.expr, G, X) for e in others)
