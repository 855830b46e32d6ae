"""Signatures are shown as people write arguments."""
from __future__ import annotations

import dataclasses
from typing import Any, NamedTuple

import numpy as np
import pytest

import kusari
from kusari.static.signature import signature
from kusari.static.verify.signature_text import mode_and_arguments


class Pair(NamedTuple):
    x: Any
    y: Any


@dataclasses.dataclass
class Batch:
    x: Any
    t: Any


X, T = np.ones((5, 2), "f"), np.ones(5, "i")
V = kusari.Variable(X.copy())
LENGTHS = [np.ones(n, "i") for n in (3, 3, 4, 5, 6, 7, 8, 9, 9)]


@pytest.mark.parametrize("args, kwargs, most, text", [
    ((), {}, None, "no arguments"),
    ((X, T), {}, None, "(5, 2) float32, (5,) int32"),
    ((kusari.Link(), X), {}, None, "(5, 2) float32"),
    ((V, kusari.Parameter(X[0])), {}, None, "Variable (5, 2) float32, Parameter object"),
    ((X,), {"array": X.copy(), "variable": V, "p": 0.5, "flag": True, "s": "array"}, None,
     "(5, 2) float32, array=(5, 2) float32, variable=Variable (5, 2) float32, p=0.5, flag=True, s=array"),
    ((X[:0, 0], np.float32(2), None), {}, None, "(0,) float32, 2.0, None"),
    ((LENGTHS,), {}, 3, "list of 9: [(3,) int32 × 2, (4,) int32, (5,) int32, 5 more]"),
    (([X, (T, 1)], {"x": X[:2], 3: "a"}), {}, None,
     "list of 2: [(5, 2) float32, tuple of 2: [(5,) int32, 1]], dict of 2: [x: (2, 2) float32, 3: a]"),
    ((Pair(X, 2), Batch(T, None)), {}, None, "Pair of 2: [(5, 2) float32, 2], Batch of 2: [x=(5,) int32, t=None]"),
    ((X, X), {}, None, "(5, 2) float32, (5, 2) float32, one array more than once"),
    ((kusari.Variable(), np.array(1.0)), {}, None, "uninitialized Variable, () float64"),
])
def test_text(args: Any, kwargs: Any, most: int | None, text: str) -> None:
    assert mode_and_arguments(signature(args, kwargs, []), most) == f"train=True, enable_backprop=True; {text}"


def test_other_arguments_in_each_call() -> None:
    @kusari.static_graph
    def total(xs: Any) -> Any:
        return kusari.functions.sum(kusari.functions.concat(xs, axis=0))

    for n in range(1, 9):
        total([X] * n)
    assert "each call had other arguments, so that nothing is compiled" in str(total.explain())
    total([X] * 8)
    assert "each call had other arguments" not in str(total.explain())
