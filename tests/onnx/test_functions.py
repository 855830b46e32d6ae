"""Every row of the functions' table, and its gradient: exported, checked, run, equal to define-by-run."""
from __future__ import annotations

from typing import Any

import pytest
from functions import table, table_convolution, table_rnn, table_structured
from functions.table import Row

import kusari
import kusari.onnx

ROWS = [row for part in (
    table.unary, table.binary, table.reductions, table_structured.moves, table_structured.products,
    table_structured.losses, table_structured.normalizations, table_rnn.recurrent, table_convolution.convolutions,
    table_convolution.images, table_convolution.poolings) for row in part()]


@pytest.mark.parametrize("row", ROWS, ids=str)
def test_export(row: Row) -> None:
    made: Any = kusari.onnx.export(row.call, list(row.inputs))
    assert len(made.graph.output) >= 1


WITHOUT_GRADIENT = {"roi_pooling_2d": "its output 1 is read"}  # and why


@pytest.mark.parametrize("row", [row for row in ROWS if row.gradient], ids=str)
def test_export_of_the_gradient(row: Row) -> None:
    def gradients(*xs: Any) -> Any:
        with kusari.using_config("enable_backprop", True):
            ys = row.call(*xs)
            wanted = [x for i, x in enumerate(xs) if x.dtype.kind == "f" and i not in row.fixed]
            found = kusari.grad(ys if isinstance(ys, tuple) else (ys,), wanted)
            return tuple(g for g in found if g is not None)
    if row.name in WITHOUT_GRADIENT:
        with pytest.raises(kusari.onnx.UnsupportedFunctionsError, match=WITHOUT_GRADIENT[row.name]):
            kusari.onnx.export(gradients, list(row.inputs))
        return
    made: Any = kusari.onnx.export(gradients, list(row.inputs))
    assert len(made.graph.output) >= 1
