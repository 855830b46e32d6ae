"""The one table of costs, and the estimates by it."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from kusari.ir import FUSED, Builder, Graph, Node, Value, costs, tensor_type

ROOT = Path(__file__).resolve().parents[2]


def node(build: Any, *shapes: tuple[int, ...]) -> Node:
    """The last node of what ``build`` makes of values of these shapes."""
    b = Builder()
    build(b, *[Value(tensor_type("float32", shape)) for shape in shapes])
    return b.nodes[-1]


def conv(b: Builder, x: Value, w: Value, stride: int = 1) -> None:
    b.one("conv", x, w, stride=(stride, stride), pad=(1, 1), dilate=(1, 1), groups=1, size=(64 // stride, 64 // stride))


WINDOWS = 2 * 9 * 64 * 64 * 64 * 64  # operations of 64 to 64 channels on 64 x 64 pixels


@pytest.mark.parametrize(("made", "expected"), [
    (node(lambda b, x: b.reshape(x, (64,)), (8, 8)), 0),
    (node(lambda b, x: b.call("add", x, 1.0), (100,)), 800 * costs.BYTE_PICOSECONDS),
    (node(lambda b, x: b.call("tanh", x), (100,)), 100 * costs.COSTLY_CALL_PICOSECONDS),
    (node(lambda b, x: b.reduce("sum", x, 0), (100, 1)), 404 * costs.BYTE_PICOSECONDS),
    (node(lambda b, x: b.matmul(x, x), (128, 128)), 2 * 128 ** 3 * costs.OPERATION_PICOSECONDS),
    (node(conv, (1, 64, 64, 64), (64, 64, 3, 3)), WINDOWS * costs.OPERATION_PICOSECONDS // costs.WINOGRAD_RATIO),
    (node(lambda b, x, w: conv(b, x, w, 2), (1, 64, 64, 64), (64, 64, 3, 3)),
     WINDOWS // 4 * costs.OPERATION_PICOSECONDS),
])
def test_a_node_takes_the_longer_of_its_arithmetic_and_its_bytes(made: Node, expected: int) -> None:
    assert costs.node_picoseconds(made) == expected


def test_a_body_takes_what_its_nodes_take() -> None:
    b = Builder()
    x = Value(tensor_type("float32", (100,)), "x")
    y = b.call("tanh", b.call("exp", x))
    made = Node(FUSED, (x,), (y,), {"body": Graph("body", (x,), (), (), tuple(b.nodes), (y,))})
    assert costs.node_picoseconds(made) == 200 * costs.COSTLY_CALL_PICOSECONDS


def test_there_is_no_other_table() -> None:
    files = [file for layer in ("ir", "passes", "codegen", "runtime", "frontend/static")
             for file in (ROOT / layer).rglob("*.py") if file != ROOT / "ir" / "costs.py"]
    assert [f"{file} {name}" for file in files for name in re.findall(
        r"^(\w*(?:PICOSECONDS|PER_SECOND)) ?[:=]", file.read_text("utf-8"), re.MULTILINE)] == []
