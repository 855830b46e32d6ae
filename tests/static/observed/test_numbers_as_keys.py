"""Floats of arrays as keys and as elements of sets, which makes a call fall back: they are plain floats there."""
from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from static.models import build
from static.observed.harness import check

import kusari.functions as F


def stored(d: Any, key: float) -> Any:
    d[key] = 1
    d[(key, 2)] = [key]
    return d


KEYS: dict[str, Callable[[float, float], Any]] = {
    "literal": lambda a, b: {a: b}, "stored": lambda a, b: stored({b: 2}, a), "comprehension": lambda a, b: {
        k: 1 for k in (a, b)}, "set": lambda a, b: {a, b}, "comprehended set": lambda a, b: {k for k in (a, b)},
    "frozenset": lambda a, b: (frozenset([a, b]), 1), "dict": lambda a, b: dict([(a, b)]),
    "zip": lambda a, b: dict(zip([a], [b], strict=True)), "fromkeys": lambda a, b: dict.fromkeys([a, b]),
    "union": lambda a, b: {a: 1} | {b: 2}, "pair": lambda a, b: {(a, b): {a: (b,)}},
}


@pytest.mark.parametrize("make", KEYS.values(), ids=list(KEYS))
@pytest.mark.parametrize("outside", [False, True])
def test_keys_are_plain_numbers(make: Callable[[float, float], Any], outside: bool) -> None:
    def program(decorate: Any) -> Any:
        def body(self: Any, x: Any) -> Any:
            h = F.tanh(self.l(x))
            made = make(float(F.sum(h).array), float(F.max(h).array))
            if not outside:
                self.made = made
            elif isinstance(made, dict):
                self.kept.update(made)
            return h
        model = build(decorate(body), made=None, kept={})
        return lambda i, x: (model(x), model.made, model.kept)
    program.__module__ = __name__
    check(program)
