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

# The most expensive to compile, each of which has a smaller relation among the other rows, in tests/static or in
# tests/codegen.
LONG = {"n_step_gru", "n_step_bilstm", "n_step_bigru", "polygamma", "zeta", "connectionist_temporal_classification",
        "crf1d", "im2col", "shift dilate", "n_step_rnn", "resize_images borders", "resize_images one",
        "roi_max_align_2d (2, 3)", "n_step_lstm", "shift", "erfinv"}


def family(row: Row) -> str:
    """The function that a row is one of several cases of.

    Convolutions and elementwise functions, with tests of their own in tests/codegen, are one family each.
    """
    name = row.name.split()[0]
    if row.name in ELEMENTWISE:
        return "elementwise"
    return "convolution" if "convolution_" in name and "deformable" not in name else name


ELEMENTWISE = {row.name for part in (table.unary, table.binary) for row in part()}
FAMILIES = [None if row.name in LONG else family(row) for row in ROWS]


def is_sample(row: Row) -> bool:
    """Whether a row is in the sample that covers all families: the first of each, and every eighth elementwise one."""
    i = ROWS.index(row)
    before = FAMILIES[:i].count(FAMILIES[i])
    return FAMILIES[i] is not None and before % 8 == 0 and (before == 0 or FAMILIES[i] == "elementwise")


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
