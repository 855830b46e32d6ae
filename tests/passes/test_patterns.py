"""What patterns match, what they bind, and what is built of that."""

from __future__ import annotations

import ast

import pytest

from kusari.ir import Expr, Lit, print_expr
from kusari.ir.parser import parse_expr
from kusari.passes.patterns import P, Pattern


def expr_of(text: str) -> Expr:
    return parse_expr(ast.parse(text, mode="eval").body)


@pytest.mark.parametrize(("pattern", "text", "bound"), [
    (P.x, "(a0 + 1)", {"x": "(a0 + 1)"}),
    (P.multiply(P.x, P.lit), "(tanh(a0) * 2.0)", {"x": "tanh(a0)", "lit": "2.0"}),
    (P.multiply(P.x, P.lit), "(2.0 * tanh(a0))", None),
    (P.multiply(P.x, P.lit), "(a0 + 2.0)", None),
    (P.equal(P.arg1, P.arg2), "equal(a3, a1)", {"arg1": "a3", "arg2": "a1"}),
    (P.equal(P.arg1, P.arg2), "equal(a3, 1)", None),
    (P.where(P.c, P.x, P.x), "where(a0, tanh(a1), tanh(a1))", {"c": "a0", "x": "tanh(a1)"}),
    (P.where(P.c, P.x, P.x), "where(a0, tanh(a1), tanh(a2))", None),
    (P.where(P.c, P.x, P.x), "where(a0, 1, 1.0)", None),  # as literals these differ
    (P.add(P.x, 1), "(a0 + 1.0)", {"x": "a0"}),
    (P.add(P.x, 1), "(a0 + True)", None),
    (P.add(P.x, 0.0), "(a0 + -0.0)", None),
    (P.where(True, P.x, P.y), "where(True, a0, a1)", {"x": "a0", "y": "a1"}),
    (P.where(True, P.x, P.y), "where(1, a0, a1)", None),
    (P.negative(P.exp(P.x)), "negative(exp(a0))", {"x": "a0"}),
    (P.negative(P.exp(P.x)), "negative(a0)", None),
], ids=str)
def test_match(pattern: Pattern, text: str, bound: dict[str, str] | None) -> None:
    found = pattern.match(expr_of(text))
    assert (None if found is None else {k: print_expr(v) for k, v in found.items()}) == bound


def test_build() -> None:
    bound = P.multiply(P.x, P.lit).match(expr_of("(tanh(a0) * 2.0)"))
    assert bound is not None
    assert print_expr(P.add(P.true_divide(P.lit, P.x), 1).build(bound)) == "((2.0 / tanh(a0)) + 1)"
    assert P.lit.build(bound) == Lit(2.0)
