"""Arrays so large that threads share what is reduced: results and gradients are those of define-by-run."""
from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from kusari import Variable, static_graph
from kusari import functions as F

LARGE: dict[str, tuple[Callable[..., Any], tuple[tuple[int, ...], ...]]] = {
    "error": (F.mean_squared_error, ((350_003,), (350_003,))),
    "sum": (lambda x: F.sum(x * x), ((400_009,),)),
    "row": (lambda x: F.log_softmax(x)[0, 5:9], ((1, 200_003),)),
    "columns": (lambda x: F.sum(F.exp(x), axis=0), ((120_001, 3),)),
    "norm": (lambda x: x / F.sqrt(F.sum(x * x, axis=1, keepdims=True) + 1e-3) * 9, ((2, 150_000),)),
    "extremes": (lambda x: F.max(x) - F.min(x), ((3, 170_011),)),
}


@pytest.mark.parametrize("name", LARGE)
def test_large_reductions(name: str) -> None:
    function, shapes = LARGE[name]
    rng = np.random.RandomState(0)
    arrays = [rng.randn(*s).astype("f") for s in shapes]

    def results(f: Callable[..., Any]) -> list[np.ndarray]:
        xs = [Variable(a) for a in arrays]
        y = F.sum(f(*xs))
        y.backward()
        return [y.array, *(x.grad for x in xs)]

    want, compiled = results(function), static_graph(function)
    for _ in range(3):
        for a, e in zip(results(compiled), want, strict=True):
            np.testing.assert_allclose(a, e, rtol=2e-5, atol=2e-6)
    assert "_sweep2" in str(compiled.explain("plan"))
