"""Every row of the tables with arrays of a card: values and gradients of both orders are the CPU's, and stay there."""
from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from cards.machines import Machine
from functions.rows import ROWS, as_tuple, directions
from functions.table import Row

import kusari

# What the host has to know: how many elements a mask takes, where regions lie, whether a matrix is singular.
WAITING = ("item mask", "roi_", "det", "batch_det", "inv", "batch_inv", "cholesky")
LEAVES = {"copy"}  # for the CPU


def computed(row: Row, call: Any, send: Callable[[Any], Any], host: Callable[[Any], Any]) -> list[Any]:
    """Outputs, gradients and gradients of these, as NumPy's arrays."""
    xs = [kusari.Variable(send(x)) if x.dtype.kind == "f" else send(x) for x in row.inputs]
    ys = as_tuple(call(*xs))
    found = [y.array for y in ys]
    if row.gradient:
        free = [x for i, x in enumerate(xs) if isinstance(x, kusari.Variable) and i not in row.fixed]
        gys = [kusari.Variable(send(g)) for g in directions([y.array for y in ys], 1)]
        gxs = kusari.grad(ys, free, gys, enable_double_backprop=row.double)
        found += [None if g is None else g.array for g in gxs]
        if row.double:
            some = [g for g in gxs if g is not None]
            seeds = [kusari.Variable(send(g)) for g in directions([g.array for g in some], 2)]
            found += [None if g is None else g.array for g in kusari.grad(some, [*free, *gys], seeds)]
    return [None if x is None else host(x) for x in found]


@pytest.mark.parametrize("row", [row for row in ROWS if row.name not in LEAVES], ids=str)
def test_row(row: Row, card: Machine) -> None:
    np.random.seed(0)
    expected = computed(row, row.call, np.array, np.array)
    card.xp.random.seed(0)
    found = computed(row, card.sent(row.call), card.xp.array, lambda x: x)
    waits = dict(card.waits)
    for y, e in zip(map(lambda x: None if x is None else card.host(x), found), expected, strict=True):
        assert (y is None) == (e is None)
        if e is not None:
            assert y.dtype == e.dtype
            np.testing.assert_allclose(y, e, rtol=max(1e-4, row.tolerance), atol=max(1e-5, row.tolerance))
    assert not waits or row.name.startswith(WAITING), waits
