"""Products with sparse matrices, against products with the same matrices written out."""
from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import kusari
import kusari.functions as F
from kusari.errors import InvalidType
from kusari.utils import CooMatrix, get_order, to_coo

R = np.random.RandomState(0)
BATCH = (R.randn(2, 3, 4) * (R.rand(2, 3, 4) > 0.5)).astype("f")


def test_matrices() -> None:
    one = to_coo(BATCH[0])
    np.testing.assert_array_equal(one.to_dense(), BATCH[0])
    assert one.order == "C" and one.shape == (3, 4) and one.row.dtype == np.int32 and not one.data.requires_grad
    assert get_order(one.col, one.row) == "F" and get_order(np.array([1, 0, 1]), np.array([1, 0, 0])) == "other"
    many = to_coo(kusari.Variable(BATCH), ldnz=11, requires_grad=True)
    assert many.data.shape == (2, 11) and many.row[0, -1] == -1 and many.data.requires_grad
    np.testing.assert_array_equal(many.to_dense(), BATCH)
    assert to_coo(BATCH[0], ldnz=20).data.shape == (20,)
    for wrong in (lambda: to_coo(BATCH[0, 0]), lambda: CooMatrix(BATCH[0], BATCH[0], BATCH[1, 0], (3, 4)),
                  lambda: CooMatrix(BATCH[0], BATCH[0], BATCH[0], (2, 3, 4))):
        with pytest.raises(ValueError, match="axes|one shape|one matrix"):
            wrong()


@pytest.mark.parametrize("batch", [False, True])
@pytest.mark.parametrize("left", [False, True])
@pytest.mark.parametrize("transa", [False, True])
@pytest.mark.parametrize("transb", [False, True])
def test_product(batch: bool, left: bool, transa: bool, transb: bool) -> None:
    dense = BATCH if batch else BATCH[0]
    inner = 3 if (transa if left else not transb) else 4
    first = not transb if left else transa  # whether the inner axis of the dense matrix is its first
    shape = (inner, 5) if first else (5, inner)
    other = R.randn(*dense.shape[:-2], *shape).astype("f")
    found: list[Any] = []
    for f, a in ((F.sparse_matmul, to_coo(dense, requires_grad=True)), (F.matmul, kusari.Variable(dense))):
        b = kusari.Variable(other)
        y = f(*(a, b) if left else (b, a), transa=transa, transb=transb)
        F.sum(y * y).backward()
        g = CooMatrix(a.data.grad, a.row, a.col, a.shape).to_dense() if isinstance(a, CooMatrix) else a.grad * (
            dense != 0)
        found.append((y.array, b.grad, g))
    for p, q in zip(*found, strict=True):
        np.testing.assert_allclose(p, q, rtol=1e-4, atol=1e-4)


def test_refused() -> None:
    sparse = to_coo(BATCH[0])
    for a, b in ((sparse, sparse), (BATCH[0], BATCH[0])):
        with pytest.raises(ValueError, match="one CooMatrix and one array"):
            F.sparse_matmul(a, b)
    for b in (BATCH[0], BATCH, np.ones((4, 2), int)):
        with pytest.raises(InvalidType, match="the dense matrix"):
            F.sparse_matmul(sparse, b)
