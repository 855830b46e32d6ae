"""Whose memory results lie in: what define-by-run makes anew never is what a caller or a link goes on using."""
from __future__ import annotations

import operator
from typing import Any

import numpy as np
import pytest

import kusari
import kusari.functions as F
import kusari.links as L
from kusari import static_graph

CASES = {
    "times one": lambda s, x: x * 1,
    "plus nothing": lambda s, x: x + 0,
    "twice negative": lambda s, x: operator.neg(-x),
    "sum over no axis": lambda s, x: F.sum(x, axis=()),
    "largest over no axis": lambda s, x: F.max(x, axis=()),
    "maximum with itself": lambda s, x: F.maximum(x, x),
    "relu twice": lambda s, x: F.relu(F.relu(x)),
    "padded by nothing": lambda s, x: F.pad(x, 0, "constant"),
    "joined with nothing": lambda s, x: F.concat([x], 0),
    "a stack's only one": lambda s, x: F.stack([x])[0],
    "a sum of one": lambda s, x: F.sum(F.expand_dims(x, 0), 0),
    "a parameter times one": lambda s, x: s.l.W * 1,
    "one value twice": lambda s, x: (F.tanh(x), F.tanh(x)),
    "reshaped": lambda s, x: F.reshape(x, (6,)),
    "rows": lambda s, x: x[:1],
    "a parameter's columns": lambda s, x: F.transpose(s.l.W),
}


@pytest.mark.parametrize("f", CASES.values(), ids=CASES)
@pytest.mark.parametrize("train", [False, True])
def test_results_share_no_memory_that_define_by_run_does_not(f: Any, train: bool) -> None:
    class Model(kusari.Chain):
        def __init__(self) -> None:
            super().__init__()
            with self.init_scope():
                self.l = L.Linear(3, 3)

        @static_graph(strict=True)
        def call(self, x: Any) -> Any:
            return f(self, x)

    model = Model()
    for i in range(4):
        with kusari.using_config("enable_backprop", train):
            x = kusari.Variable(np.arange(6, dtype=np.float32).reshape(2, 3) - 2 + i)
            eager, compiled = Model.call.__wrapped__(model, x), model.call(x)
        eager, compiled = (y if isinstance(y, tuple) else (y,) for y in (eager, compiled))
        for k, (a, b) in enumerate(zip(eager, compiled, strict=True)):
            np.testing.assert_array_equal(b.array, a.array)
            for other in (x.array, model.l.W.array, *(y.array for y in compiled[:k])):
                assert np.shares_memory(a.array, other) or not np.shares_memory(b.array, other)
