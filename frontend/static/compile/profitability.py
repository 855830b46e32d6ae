"""Whether compiled code is faster than define-by-run: the program decides, not a clock.

A clock would measure how busy the machine is: next to other programs a kernel for two threads waits for a processor,
and takes a hundred times as long. Whether a function stays define-by-run, and its last digits, would be chance.
"""
from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from kusari.ir import Arg, Instruction, TensorType
from kusari.ir.costs import BYTE_PICOSECONDS
from kusari.runtime.executable import picoseconds_of

if TYPE_CHECKING:
    from ..replay.schedule import CompiledBackward, Schedule

QUICKLY_COPIED_BYTES = 1 << 15  # are copied in less time than it takes to find out that a call stays define-by-run
COMPUTED_RATIO = 2     # how much more it gains to compute on all cores, fused, than it costs to copy as many bytes
_VIEWS = frozenset(("transpose", "slice", "broadcast_to", "reshape"))  # views in NumPy
_MOVES = _VIEWS | {"concat", "pad_slice", "assign"}


def reason_against(schedule: Schedule) -> str | None:
    """Return the reason why ``schedule`` gains nothing, if it does not.

    That is so if Python runs all functions anyway, or if compiled code mostly copies results and gradients that
    define-by-run returns as views of arguments, of parameters or of other gradients.
    """
    outputs = schedule.forward.outputs[:len(schedule.recording.graph.outputs)]
    shared = {v for i, v in enumerate(outputs) if i not in schedule.recording.apart}
    for instruction in reversed(schedule.forward.program.instructions):
        if _is_view(instruction) and shared.intersection(instruction.node.outputs):
            shared.update(instruction.node.inputs)  # a view of a view
    copies: list[Instruction] = []
    gained = 0.0
    python = True

    def count(instructions: Iterable[Instruction], is_copy: Callable[[Instruction], bool]) -> None:
        nonlocal gained, python
        for instruction in instructions:
            if instruction.kernel is None:
                continue
            python = False
            if is_copy(instruction):
                copies.append(instruction)
            else:
                gained += picoseconds_of(instruction) * (1 if instruction.node.op.name in _MOVES else COMPUTED_RATIO)
    count(schedule.forward.program.instructions, lambda x: bool(shared.intersection(x.node.outputs)))
    backward = schedule.own_backward
    if backward is not None and (python or copies or not _outweighs(gained, backward)):
        backward.ensure()
    for compiled in schedule.compiled[1:]:
        count(compiled.program.instructions, _is_view)
    if python and any(c.program.instructions for c in schedule.compiled):
        return "Python runs all functions of it, so that compiling would gain nothing"
    size = sum(v.tensor.nbytes for instruction in copies for v in instruction.node.outputs)
    if size < QUICKLY_COPIED_BYTES or gained > sum(map(picoseconds_of, copies)):
        return None
    return (f"compiled code would copy {size:,} bytes that define-by-run hands out as views, and compute too little to "
            "make up for it")


def _outweighs(gained: float, backward: CompiledBackward) -> bool:
    """Whether a forward gains more than a backward could lose, which copies its operands and results once at most."""
    size = sum(v.tensor.nbytes for v in (*backward.graph.inputs, *backward.graph.outputs)
               if isinstance(v.type, TensorType))
    return size < QUICKLY_COPIED_BYTES or gained > 2 * size * BYTE_PICOSECONDS


def _is_view(instruction: Instruction) -> bool:
    node = instruction.node
    return node.op.name in _VIEWS or (node.op.name == "map" and node.attrs["expr"] == Arg(0)
                                      and node.inputs[0].type == node.output.type)

