"""Products of sparse and dense matrices."""
from __future__ import annotations

from typing import Any

import numpy as np

from ... import backend
from ...broadcasting import broadcast_to
from ...utils import type_check
from ...utils.sparse import CooMatrix
from ...variable import Variable, as_variable
from ..array.axes import swapaxes
from ..array.cast import cast
from ..array.indexing import GetItemAdvanced, ScatterAdd
from ..array.shape import reshape


def _product(a: CooMatrix, b: Variable, transposed: bool) -> Variable:
    """A sparse matrix, or its transpose, times a dense one: (m, n) or (B, m, n)."""
    row, col = (a.col, a.row) if transposed else (a.row, a.col)
    m, k = a.shape[::-1] if transposed else a.shape
    where = "\nInvalid operation is performed in: CooMatMul (Forward)"
    if b.dtype.kind != "f" or b.ndim != a.data.ndim + 1:
        raise type_check.InvalidType(f"the dense matrix: floating-point, of {a.data.ndim + 1} axes",
                                     f"{b.dtype}{b.shape}", where)
    if b.shape[-2] != k or b.shape[:-2] != a.data.shape[:-1]:
        raise type_check.InvalidType(f"the dense matrix: of shape {(*a.data.shape[:-1], k, 'N')}", f"{b.shape}", where)
    n, batch = b.shape[-1], b.shape[:-2]
    if batch:  # one matrix below the other; places that are empty hold zero, wherever they point
        first = np.arange(batch[0], dtype=np.int32)[:, None]
        xp_first = backend.get_array_module(row).asarray(first)
        row, col = (v + xp_first * size for v, size in ((row, m), (col, k)))
    count = batch[0] if batch else 1
    wide = np.result_type(a.data.dtype, b.dtype)
    rows = cast(GetItemAdvanced(("@",)).apply((reshape(b, (count * k, n)), col.reshape(-1)))[0], wide)
    terms = rows * broadcast_to(reshape(cast(a.data, wide), (a.data.size, 1)), rows.shape)
    y = ScatterAdd(("@",), (count * m, n)).apply((terms, row.reshape(-1)))[0]
    return reshape(y, (*batch, m, n))


def sparse_matmul(a: Any, b: Any, transa: bool = False, transb: bool = False) -> Variable:
    """Matrix product of a sparse and a dense matrix, or of a batch of these.

    Args:
        a: A `CooMatrix` of `kusari.utils`, or a dense matrix (or batch).
        b: The same; exactly one of the two is sparse.
        transa: Whether ``a`` is transposed first.
        transb: Whether ``b`` is transposed first.

    Returns:
        Variable: Of the wider of the two dtypes.

    Raises:
        ValueError: Not exactly one of the two is sparse.
        InvalidType: The shapes do not fit, or the dense matrix is not floating-point.

    >>> import numpy as np
    >>> import kusari.functions as F
    >>> a = kusari.utils.to_coo(np.array([[0, 2], [3, 0]], "f"))
    >>> F.sparse_matmul(a, np.array([[1, 10], [100, 0]], "f")).array
    array([[200.,   0.],
           [  3.,  30.]], dtype=float32)
    """
    if isinstance(a, CooMatrix) == isinstance(b, CooMatrix):
        raise ValueError(f"sparse_matmul needs one CooMatrix and one array, got {type(a).__name__} and "
                         f"{type(b).__name__}")
    if isinstance(a, CooMatrix):
        dense = as_variable(b)
        return _product(a, swapaxes(dense, -1, -2) if transb else dense, bool(transa))
    dense = as_variable(a)
    y = _product(b, dense if transa else swapaxes(dense, -1, -2), not transb)
    return swapaxes(y, -1, -2)
