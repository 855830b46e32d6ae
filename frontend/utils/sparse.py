"""Sparse matrices, by the coordinates of their elements."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np

from .. import backend
from ..variable import Variable

__all__ = ["CooMatrix", "get_order", "to_coo"]


@dataclasses.dataclass(init=False, eq=False, repr=False)  # so that its arrays are arguments of static functions
class CooMatrix:
    """A sparse matrix, or a batch of them: elements with their rows and columns.

    Args:
        data: Elements, (n,) or (B, n).
        row: Their rows, of the shape of ``data``; places after the last element hold zero, in row and column -1.
        col: Their columns.
        shape: Shape of each matrix.
        order: ``"C"`` where rows rise and columns within them, ``"F"`` the other way round, ``"other"``; None to see.
        requires_grad: Whether ``data`` gets a gradient.

    Attributes:
        data: The elements, a Variable.

    Raises:
        ValueError: The shapes do not fit.
    """

    data: Variable
    row: Any
    col: Any
    shape: tuple[int, int]
    order: str

    def __init__(self, data: Any, row: Any, col: Any, shape: tuple[int, int], order: str | None = None,
                 requires_grad: bool = False) -> None:
        if data.ndim not in (1, 2) or not data.shape == row.shape == col.shape:
            raise ValueError("data, row and col must be of one shape, of one axis or two, "
                             f"got {data.shape}, {row.shape} and {col.shape}")
        if len(shape) != 2:
            raise ValueError(f"shape must be that of one matrix, got {shape}")
        self.data = data if isinstance(data, Variable) else Variable(data, requires_grad=requires_grad)
        self.row = row
        self.col = col
        self.shape = (int(shape[0]), int(shape[1]))
        self.order = get_order(row, col) if order is None else order

    def to_dense(self) -> Any:
        """Return an array (…, *shape) with the elements in their places."""
        data = self.data.array
        xp = backend.get_array_module(data)
        batch = data.shape[:-1]
        dense = xp.zeros((*batch, *self.shape), data.dtype)
        valid = self.row >= 0
        where = xp.nonzero(valid)[:-1]  # of the batch
        xp.add.at(dense, (*where, self.row[valid], self.col[valid]), data[valid])
        return dense


def get_order(row: Any, col: Any) -> str:
    """Return ``"C"``, ``"F"`` or ``"other"``: how the elements of a sparse matrix are sorted.

    Raises:
        ValueError: The shapes differ, or a place has a row and no column, or a column and no row.
    """
    if row.shape != col.shape or bool(((row < 0) != (col < 0)).any()):
        raise ValueError("row and col must be of one shape, and both negative where there is no element")

    def sorted_by(first: Any, second: Any) -> bool:
        steps, within = first[..., 1:] - first[..., :-1], second[..., 1:] - second[..., :-1]
        padding = first[..., 1:] < 0
        return bool(((steps > 0) | ((steps == 0) & (within >= 0)) | padding).all())
    return "C" if sorted_by(row, col) else "F" if sorted_by(col, row) else "other"


def to_coo(x: Any, ldnz: int | None = None, requires_grad: bool = False) -> CooMatrix:
    """Make a sparse matrix of the elements of an array that are not zero.

    Args:
        x: A matrix, or a batch of matrices.
        ldnz: At least this many places are made for each matrix.
        requires_grad: Whether ``data`` gets a gradient.

    Raises:
        ValueError: ``x`` has neither two axes nor three.

    >>> m = to_coo(np.array([[0, 2], [3, 0]], "f"))
    >>> m.row.tolist(), m.col.tolist(), m.data.array.tolist()
    ([0, 1], [1, 0], [2.0, 3.0])
    """
    x = getattr(x, "_array", x)
    xp = backend.get_array_module(x)
    if x.ndim == 2:
        row, col = xp.nonzero(x)
        extra = max(0 if ldnz is None else ldnz - len(row), 0)
        data, row, col = (xp.concatenate([v, xp.full(extra, fill, v.dtype)]) for v, fill in (
            (x[row, col], 0), (row.astype(np.int32), -1), (col.astype(np.int32), -1)))
        return CooMatrix(data, row, col, x.shape, "C", requires_grad)
    if x.ndim != 3:
        raise ValueError(f"a matrix or a batch of matrices is needed, got an array of {x.ndim} axes")
    parts = [to_coo(v) for v in x]
    n = max([len(p.row) for p in parts] + [ldnz or 0])
    data, row, col = (xp.stack([xp.concatenate([v, xp.full(n - len(v), fill, v.dtype)]) for v in vs]) for vs, fill in (
        ([p.data.array for p in parts], 0), ([p.row for p in parts], -1), ([p.col for p in parts], -1)))
    return CooMatrix(data, row, col, x.shape[1:], "C", requires_grad)
