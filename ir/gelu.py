"""GELU by tanh, ``0.5 x (1 + tanh(s (x + c x³)))``, and its gradient, in any order of writing them.

Functions write it out of multiplications, and gradients are derived from what they wrote. So expressions are multiplied
out to polynomials, in which ``tanh`` of a polynomial is a variable: those of one function are equal, however they are
written, as long as their constants are. Values that are not finite, and last places, may differ.
"""
from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from math import isfinite, pi, sqrt

import numpy as np

from .alignment import NotANest
from .expr import Arg, Expr, Lit, substitute, walk
from .graph import Graph, Node, Value
from .product import is_sum_of_rows, pointwise_exprs
from .scalar import SCALARS

SCALE, CUBE = sqrt(2 / pi), 0.044715
#: The relative difference of constants that are the same in float32, to two ulps.
_SAME_RATIO = 2.0 ** -22
_ROUNDING_RATIO = 2e-15  # of the largest constant: what is left where terms cancel
_MOST_ITEMS = 64
_MOST_OPERANDS = 6

#: The power of each variable that has one, by the variable's number.
Monomial = tuple[tuple[int, int], ...]
Polynomial = dict[Monomial, float]
_NO_VARIABLE: Monomial = ()


class _Other(Exception):
    """An expression is no polynomial."""


class Terms:
    """Expressions as polynomials of variables: ``known`` subexpressions, and ``tanh`` of polynomials.

    Invariant: equal functions of the variables that are polynomials have the same terms, to rounding.
    """

    def __init__(self, known: Mapping[Expr, int]) -> None:
        self._known = known
        self.tanhs: dict[int, Polynomial] = {}  # by the number of the variable

    def of(self, expr: Expr) -> Polynomial | None:
        """Return the polynomial of an expression, or None if it is none."""
        done: dict[Expr, Polynomial] = {}
        inside = {e for x in self._known for e in walk(x) if isinstance(e, Arg)}
        try:
            for e in walk(expr):
                if e in self._known:
                    done[e] = {((self._known[e], 1),): 1.0}
                elif isinstance(e, Arg):
                    if e not in inside:
                        return None
                elif isinstance(e, Lit):
                    done[e] = _constant(float(e.value))
                elif all(a in done for a in e.args):
                    done[e] = self._call(e.fn, [done[a] for a in e.args])
        except _Other:
            return None
        return done.get(expr)

    def _call(self, fn: str, args: list[Polynomial]) -> Polynomial:
        first, *others = args
        if fn in ("positive", "float32"):
            return first
        if fn == "negative":
            return _times(first, _constant(-1.0))
        if fn == "add":
            return _plus(first, others[0])
        if fn == "subtract":
            return _plus(first, _times(others[0], _constant(-1.0)))
        if fn == "multiply":
            return _times(first, others[0])
        if fn == "square":
            return _times(first, first)
        if fn == "power":
            return _power(first, _number(others[0]))
        if fn == "true_divide" and (by := _number(others[0])):
            return _times(first, _constant(1 / by))
        if fn == "tanh":
            return {((self._tanh(first), 1),): 1.0}
        if fn in ("sqrt", "true_divide", "reciprocal"):
            with np.errstate(all="ignore"):
                return _constant(float(SCALARS[fn].apply(np, *[_number(a) for a in args])))
        raise _Other

    def _tanh(self, argument: Polynomial) -> int:
        """The variable that a tanh is."""
        for number, known in self.tanhs.items():
            if equal(argument, known):
                return number
        number = -1 - len(self.tanhs)
        self.tanhs[number] = argument
        return number


def _constant(value: float) -> Polynomial:
    if not isfinite(value):
        raise _Other
    return {_NO_VARIABLE: value} if value else {}


def _number(p: Polynomial) -> float:
    if set(p) - {_NO_VARIABLE}:
        raise _Other
    return p.get(_NO_VARIABLE, 0.0)


def _plus(p: Polynomial, q: Polynomial) -> Polynomial:
    found = dict(p)
    for monomial, value in q.items():
        found[monomial] = found.get(monomial, 0.0) + value
    return found


def _times(p: Polynomial, q: Polynomial) -> Polynomial:
    found: Polynomial = {}
    for a, x in p.items():
        for b, y in q.items():
            powers = dict(a)
            for variable, power in b:
                powers[variable] = powers.get(variable, 0) + power
            monomial = tuple(sorted(powers.items()))
            found[monomial] = found.get(monomial, 0.0) + x * y
    if len(found) > _MOST_ITEMS:
        raise _Other
    return found


def _power(p: Polynomial, exponent: float) -> Polynomial:
    if exponent not in (1, 2, 3, 4):
        raise _Other
    found = p
    for _ in range(int(exponent) - 1):
        found = _times(found, p)
    return found


def equal(p: Polynomial, q: Polynomial) -> bool:
    """Whether two polynomials are the same, but for the rounding of their constants."""
    most = max((abs(x) for x in (*p.values(), *q.values())), default=0.0)
    for monomial in {*p, *q}:
        x, y = p.get(monomial, 0.0), q.get(monomial, 0.0)
        if abs(x - y) > _SAME_RATIO * max(abs(x), abs(y)) and max(abs(x), abs(y)) > _ROUNDING_RATIO * most:
            return False
    return True


def _argument(x: int) -> Polynomial:
    return {((x, 1),): SCALE, ((x, 3),): SCALE * CUBE}


@lru_cache(maxsize=1024)
def is_gelu(expr: Expr, x: Expr) -> bool:
    """Whether an expression is GELU of ``x``."""
    terms = Terms({x: 0})
    found = terms.of(expr)
    return found is not None and any(
        equal(found, {((0, 1),): 0.5, ((tanh, 1), (0, 1)): 0.5}) for tanh in _tanhs(terms))


@lru_cache(maxsize=1024)
def gelu_gradient_factor(expr: Expr, g: Expr, x: Expr) -> float:
    """Return the number by which an expression is ``g`` times the derivative of GELU at ``x``, or 0 if it is not."""
    terms = Terms({x: 0, g: 1})
    found = terms.of(expr)
    if found is None:
        return 0.0
    factor = 2 * found.get(((1, 1),), 0.0)
    for tanh in _tanhs(terms):
        half: Polynomial = {((1, 1),): 0.5 * factor}
        slope: Polynomial = {_NO_VARIABLE: SCALE, ((0, 2),): 3 * SCALE * CUBE}
        rest = _times(_times(half, {((0, 1),): 1.0}), _times({_NO_VARIABLE: 1.0, ((tanh, 2),): -1.0}, slope))
        if equal(found, _plus(_times(half, {_NO_VARIABLE: 1.0, ((tanh, 1),): 1.0}), rest)):
            return 1.0 if abs(factor - 1) <= _SAME_RATIO else factor
    return 0.0


def _tanhs(terms: Terms) -> list[int]:
    """The variables that are the tanh of a GELU of variable 0."""
    return [number for number, argument in terms.tanhs.items() if equal(argument, _argument(0))]


@dataclass(frozen=True)
class Gelu:
    """A node that computes GELU of ``x``; all its outputs as expressions of that, ``Arg(0)``."""

    x: Value
    result: Value
    exprs: Mapping[Value, Expr]


def gelu_in(node: Node | None) -> Gelu | None:
    """Return the GELU that a node computes elementwise of one array, perhaps with parts of it, or None."""
    if node is None or node.op.name != "fused" or len(node.inputs) != 1:
        return None
    try:
        exprs = dict(zip(node.outputs, pointwise_exprs(node.attrs["body"]), strict=True))
    except NotANest:
        return None
    results = [v for v, e in exprs.items() if is_gelu(e, Arg(0))]
    return Gelu(node.inputs[0], results[0], exprs) if len(results) == 1 else None


@dataclass(frozen=True)
class GeluGradient:
    """A node that multiplies ``given`` by a number and by the derivative of GELU at ``x``.

    It may add up the results by columns, and reads ``parts`` of the GELU beside x.
    """

    given: Value
    factor: float
    x: Value
    parts: tuple[Value, ...]
    result: Value
    total: Value | None


def gelu_gradient_in(node: Node, made: Mapping[Value, Node]) -> GeluGradient | None:
    """Return the gradient of GELU that a node computes and nothing else, or None; others make what it reads."""
    if node.op.name != "fused" or not 2 <= len(node.inputs) <= _MOST_OPERANDS or len(node.outputs) > 2:
        return None
    body: Graph = node.attrs["body"]
    totals = [n for n in body.nodes if is_sum_of_rows(n)]
    results = [v for v in body.outputs if v not in [n.output for n in totals]]
    if len(results) != 1 or len(totals) != len(body.outputs) - 1 or any(n.inputs[0] is not results[0] for n in totals):
        return None
    if len({v.type for v in (*body.inputs, results[0])}) != 1:
        return None
    maps = tuple(n for n in body.nodes if n not in totals)
    try:
        expr, = pointwise_exprs(Graph("body", body.inputs, (), (), maps, (results[0],)))
    except NotANest:
        return None
    outer = dict(zip((*body.inputs, *body.outputs), (*node.inputs, *node.outputs), strict=True))
    for x, parts in _arguments(node, made):
        given = [v for v in node.inputs if v is not x and v not in parts]
        if len(given) != 1:
            continue
        known = {x: Arg(0), given[0]: Arg(1), **parts}
        factor = gelu_gradient_factor(substitute(expr, [known[v] for v in node.inputs]), Arg(1), Arg(0))
        if factor:
            return GeluGradient(given[0], factor, x, tuple(v for v in node.inputs if v in parts), outer[results[0]],
                                outer[totals[0].output] if totals else None)
    return None


def _arguments(node: Node, made: Mapping[Value, Node]) -> list[tuple[Value, Mapping[Value, Expr]]]:
    """The values that a node may read as the argument of a GELU, each with parts of the GELU."""
    found = {g.x: g for v in node.inputs if (g := gelu_in(made.get(v))) is not None}
    if found:
        return [(x, g.exprs) for x, g in found.items()]
    return [(x, {}) for x in node.inputs]
