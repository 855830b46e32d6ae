"""Patterns of scalar expressions: ``P.multiply(P.x, 1)`` is like any product with 1, and binds ``x`` to its factor."""
from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from kusari.ir import Arg, Call, Expr, Lit

Bound = Mapping[str, Expr]


@dataclass(frozen=True)
class Pattern:
    """A function of patterns and numbers; without ``args`` a name for an expression, the same wherever it stands.

    Names that begin with ``lit`` are for literals only, those with ``arg`` for operands. Numbers are like literals of
    their value and sign, whether 1 or 1.0; True and False are like themselves only.
    """

    name: str
    args: tuple[Pattern | float, ...] | None = None

    def __call__(self, *args: Pattern | float) -> Pattern:
        return Pattern(self.name, args)

    def match(self, e: Expr) -> Bound | None:
        """Return the expression that each name matches in ``e``; None if ``e`` does not match."""
        bound: dict[str, Expr] = {}
        return bound if _match(self, e, bound) else None

    def build(self, bound: Bound) -> Expr:
        """Return the expression in which names are ``bound``."""
        if self.args is None:
            return bound[self.name]
        return Call(self.name, tuple([a.build(bound) if isinstance(a, Pattern) else Lit(a) for a in self.args]))


def _match(pattern: Pattern | float, e: Expr, bound: dict[str, Expr]) -> bool:
    if not isinstance(pattern, Pattern):
        return isinstance(e, Lit) and isinstance(e.value, bool) == isinstance(pattern, bool) and (
            repr(float(e.value)) == repr(float(pattern)))
    if pattern.args is not None:
        return isinstance(e, Call) and e.fn == pattern.name and len(e.args) == len(pattern.args) and all(
            _match(p, a, bound) for p, a in zip(pattern.args, e.args, strict=True))
    if pattern.name.startswith("lit") and not isinstance(e, Lit) or pattern.name.startswith("arg") and (
            not isinstance(e, Arg)):
        return False
    return bound.setdefault(pattern.name, e) == e


class _Names:
    def __getattr__(self, name: str) -> Pattern:
        return Pattern(name)


P = _Names()
