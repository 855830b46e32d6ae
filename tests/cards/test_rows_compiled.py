"""Every row of the tables compiled for a card: values and gradients are those of define-by-run on the CPU."""
from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest
from cards.machines import SWEEP, Machine
from functions.rows import ROWS, as_tuple, directions, is_sample
from functions.table import Row

import kusari
from kusari.static import StaticGraphWarning

QUICK = 12  # rows of make test-fast
FOUND = {"prod zero", "prod zeros", "cumprod zeros"}  # beside the sample: have failed
LEAVES = {"copy"}


def computed(row: Row, call: Any, xp: Any) -> list[Any]:
    """Outputs and gradients of inputs."""
    xs = [kusari.Variable(xp.array(x)) if x.dtype.kind == "f" else xp.array(x) for x in row.inputs]
    ys = as_tuple(call(*xs))
    found = [y.array for y in ys]
    if row.gradient:
        free = [x for i, x in enumerate(xs) if isinstance(x, kusari.Variable) and i not in row.fixed]
        for y, g in zip(ys, directions(found, 1), strict=True):
            y.grad = xp.array(g)
        kusari.backward(ys)
        found += [x.grad for x in free]
    return found


def marks(i: int, row: Row) -> Any:
    """A few rows of the sample for the fast tests, the rest of it for the slow ones, others for the sweep."""
    if not is_sample(row) and row.name not in FOUND:
        return SWEEP
    return [] if i % (len(ROWS) // QUICK) == 0 else pytest.mark.slow


@pytest.mark.parametrize("row", [pytest.param(row, marks=marks(i, row)) for i, row in enumerate(ROWS)
                                 if row.name not in LEAVES], ids=str)
def test_row(row: Row, card: Machine) -> None:
    expected = computed(row, row.call, np)
    call = card.sent(row.call)
    static = kusari.static_graph(lambda *xs: call(*xs))
    with kusari.using_config("keep_define_by_run", False), warnings.catch_warnings():
        warnings.simplefilter("ignore", StaticGraphWarning)  # what cannot be compiled stays define-by-run, and is right
        found = [computed(row, static, card.xp) for _ in range(3)]
    for each in found:
        for y, e in zip(each, expected, strict=True):
            assert (y is None) == (e is None)
            if e is not None:
                assert card.host(y).dtype == e.dtype
                least = row.tolerance
                np.testing.assert_allclose(card.host(y), e, rtol=max(1e-4, least), atol=max(1e-5, least))
