"""All rows of the tables, and how a row is evaluated with any library of Chainer's API."""
from __future__ import annotations

from typing import Any

import numpy as np
from functions import (
    table,
    table_convolution,
    table_regions,
    table_rnn,
    table_sequences,
    table_special,
    table_statistics,
    table_structured,
)
from functions.table import Row

PARTS = (
    table.unary, table.binary, table.reductions, table_structured.moves, table_structured.products,
    table_structured.losses, table_structured.normalizations, table_rnn.recurrent, table_convolution.convolutions,
    table_convolution.images, table_convolution.poolings, table_regions.regions, table_regions.transformers,
    table_sequences.paths, table_special.special, table_special.matrices, table_statistics.statistics,
)
ROWS = [row for part in PARTS for row in part()]


def as_tuple(ys: Any) -> tuple[Any, ...]:
    """Return one or several outputs as a tuple."""
    return ys if isinstance(ys, tuple) else (ys,)


def directions(arrays: Any, seed: int) -> tuple[Any, ...]:
    """Return random arrays like the given ones."""
    r = np.random.RandomState(seed)
    return tuple([r.uniform(-1, 1, a.shape).astype(a.dtype) for a in arrays])


def evaluate(variable: Any, grad: Any, row: Row) -> list[Any]:
    """Return the outputs of a row, then its gradients (None where there is none), as arrays."""
    xs = [variable(x.copy()) if x.dtype.kind == "f" else x for x in row.inputs]
    ys = as_tuple(row.call(*xs))
    found = [y.array for y in ys]
    if row.gradient:
        free = [x for i, x in enumerate(xs) if isinstance(x, variable) and i not in row.fixed]
        gxs = grad(ys, free, [variable(g) for g in directions(found, 1)])
        found += [None if g is None else g.array for g in gxs]
    return found
