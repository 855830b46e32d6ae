"""Every row of the table: value, gradients, and the meaning of what it lowers to."""
from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from functions.lowered import lowering
from functions.rows import ROWS, as_tuple, directions
from functions.table import Row

import kusari
from kusari.gradient_check import check_backward, check_double_backward

DIFFERENTIABLE = [row for row in ROWS if row.gradient]


@pytest.mark.parametrize("row", ROWS, ids=str)
def test_value(row: Row) -> None:
    ys = as_tuple(row.call(*[kusari.Variable(x) if x.dtype.kind == "f" else x for x in row.inputs]))
    expected = as_tuple(row.formula(*row.inputs))
    assert len(ys) == len(expected)
    for y, e in zip(ys, expected, strict=True):
        assert y.shape == np.shape(e)
        assert y.dtype in (np.float32, np.int32) or row.name == "cast"
        np.testing.assert_allclose(y.array, e, rtol=row.tolerance, atol=row.tolerance)


def _wide(row: Row) -> tuple[Any, ...]:
    return tuple([x.astype(np.float64) if x.dtype.kind == "f" else x for x in row.inputs])


def _fixed(row: Row) -> list[bool]:
    return [x.dtype.kind != "f" or i in row.fixed for i, x in enumerate(row.inputs)]


@pytest.mark.parametrize("row", DIFFERENTIABLE, ids=str)
def test_gradient(row: Row) -> None:
    inputs = _wide(row)
    ys = as_tuple(row.call(*map(kusari.as_variable, inputs)))
    check_backward(row.call, inputs, directions([y.array for y in ys], 5), eps=1e-5, atol=1e-6, rtol=1e-5,
                   no_grads=_fixed(row))


@pytest.mark.parametrize("row", [row for row in DIFFERENTIABLE if row.double], ids=str)
def test_double_gradient(row: Row) -> None:
    inputs = _wide(row)
    fixed = _fixed(row)
    free = [i for i, f in enumerate(fixed) if not f]

    def call(*xs: Any) -> Any:
        full = [kusari.as_variable(x) for x in inputs]
        for i, x in zip(free, xs, strict=True):
            full[i] = x
        ys = as_tuple(row.call(*full))
        return tuple([y * y for y in ys])  # linear functions have a second order too

    xs = tuple([inputs[i] for i in free])
    ys = as_tuple(row.call(*map(kusari.as_variable, inputs)))
    check_double_backward(call, xs, directions([y.array for y in ys], 5), directions(xs, 6), eps=1e-5, atol=1e-5,
                          rtol=1e-4)


@pytest.mark.parametrize("row", ROWS, ids=str)
def test_lowering(row: Row) -> None:
    """Forward, backward and double backward: every node on the way."""
    with lowering(1e-4) as tape:
        xs = [kusari.Variable(x.copy()) if x.dtype.kind == "f" else x for x in row.inputs]
        ys = as_tuple(row.call(*xs))
        if row.gradient:
            free = [x for x, f in zip(xs, _fixed(row), strict=True) if not f]
            gys = [kusari.Variable(g) for g in directions([y.raw_array for y in ys], 1)]
            gxs = kusari.grad(ys, free, gys, enable_double_backprop=True)
            if row.double:
                some = [g for g in gxs if g is not None]
                kusari.grad(some, [*free, *gys], [kusari.Variable(g) for g in directions(
                    [g.raw_array for g in some], 2)])
    missing = [name for name in tape.seen if name.endswith("(not lowered)")]
    assert {name.split()[0] for name in missing} <= NOT_LOWERED, tape.seen


# Run by Python in a compiled schedule: rare, or not expressible in primitives of fixed shape.
NOT_LOWERED = {"Recurrence", "ProdOfOthers", "PadIndexed", "R2Score", "GetItemAdvanced", "ScatterAdd",
               "ROIPooling2D", "ROIMaxPooling2D", "ROIWeights", "ROIMaxAlign2D", "Det", "Inv",
               "Cholesky", "FFT", "InverseRoot", "Sylvester"}
