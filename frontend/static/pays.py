"""Whether compiled code is quicker than define-by-run; what tells is the program, not a clock.

A clock would tell how busy the machine is: beside other programs a kernel for two threads waits for a processor, and
takes a hundred times as long. What would be kept define-by-run then, and the last digits with it, would be chance.
"""
from __future__ import annotations

from typing import TYPE_CHECKING

from kusari.ir import Arg, Row
from kusari.runtime.schedule import seconds_of

if TYPE_CHECKING:
    from .schedule import Schedule

SMALL = 1 << 15  # bytes that are copied in less time than it takes to find out that a call stays define-by-run
COMPUTED = 2     # how much more it gains to compute on all cores, fused, than it costs to copy as many bytes
_VIEWS = frozenset(("transpose", "slice", "broadcast_to", "reshape"))  # what is a view in NumPy
_MOVES = _VIEWS | {"concat", "pad_slice", "assign"}


def against(schedule: Schedule) -> str | None:
    """Say why ``schedule`` gains nothing, if it does not.

    That is where Python runs all functions anyway, or where compiled code mostly copies what define-by-run hands out
    as it is: results and gradients that are views of arguments, of parameters or of other gradients.
    """
    outputs = schedule.forward.outputs[:len(schedule.recording.graph.outputs)]
    shared = {v for i, v in enumerate(outputs) if i not in schedule.recording.apart}
    for row in reversed(schedule.forward.program.rows):
        if _is_view(row) and shared.intersection(row.node.outputs):
            shared.update(row.node.inputs)  # a view of a view
    copies: list[Row] = []
    gained = 0.0
    rows = python = 0
    for number, compiled in enumerate(schedule.compiled):
        for row in compiled.program.rows:
            rows += 1
            if row.kernel is None:
                python += 1
            elif shared.intersection(row.node.outputs) if number == 0 else _is_view(row):
                copies.append(row)
            else:
                gained += seconds_of(row) * (1 if row.node.op.name in _MOVES else COMPUTED)
    if python and python == rows:
        return "Python runs all functions of it, so that compiling would gain nothing"
    size = sum(v.tensor.nbytes for row in copies for v in row.node.outputs)
    if size < SMALL or gained > sum(map(seconds_of, copies)):
        return None
    return (f"compiled code would copy {size:,} bytes that define-by-run hands out as views, and compute too little to "
            "make up for it")


def _is_view(row: Row) -> bool:
    node = row.node
    return node.op.name in _VIEWS or (node.op.name == "map" and node.attrs["expr"] == Arg(0)
                                      and node.inputs[0].type == node.output.type)

