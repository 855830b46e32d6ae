"""Taking back the changes of a schedule that finds, in its middle, results of another type than expected."""
from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from kusari.codegen.native import UNIFORM
from kusari.ir import External, Instruction, Node, Trait
from kusari.runtime.python_rows import RunError

from ..._random_state import state_of
from ..compile.compile import Compiled
from ..trace import random_state
from ..trace.effects import early_effects
from ..trace.in_place import CHANGE_IN_PLACE, NEW_ARRAY, region
from ..trace.python_nodes import OPAQUE_GRADIENT, REPORT, STATIC_CODE


@dataclass
class Left:
    """The state that a function of the user's has left: of NumPy's random numbers, and of what the call has changed."""

    random: Any
    places: Sequence[Callable[[], None]]

    def put(self) -> None:
        """Let it be as it was then."""
        if self.random is not None:
            random_state.put(self.random)
        for put_back in self.places:
            put_back()


def is_given_again(node: Node) -> bool:
    """Whether a call that goes on define-by-run is given the results of a node, which does not run twice."""
    return node.op is STATIC_CODE or "function" in node.attrs


def _savers(nodes: Sequence[Node]) -> list[Callable[[], Any]]:
    """Return functions that save what nodes change outside, and where generators stand from which they draw."""
    generators = {id(g): g for node in nodes if (g := node.attrs.get("generator")) is not None}
    return [*[e.saved for e in early_effects(nodes)], *[partial(state_of, g) for g in generators.values()]]


def may_fail(row: Instruction) -> bool:
    """Whether an instruction runs Python that may raise: not what draws random numbers.

    Where a reduction raises, gradients and parameters are partly of this step: ranks that are out of step end.
    """
    return row.kernel is None and not row.node.op.traits & (Trait.RANDOM | Trait.CONFINED)


def undoing(compiled: Compiled, frame: Any, first: int, everything: bool = False,
            ) -> Callable[[], Callable[[RunError], None]] | None:
    """Return a function that saves the state before a run and returns its restorer; None if nothing needs that.

    The state is params (the externals from ``first`` on) that are written, what the call changes outside, and random
    numbers that are drawn, before the last function that Python runs, or by ``everything``.
    """
    rows, slots = compiled.program.instructions, compiled.plan.slots
    last = max([i for i, row in enumerate(rows)
                if may_fail(row) and row.node.op not in (OPAQUE_GRADIENT, REPORT)], default=-1)
    early = [row.node for row in (rows if everything else rows[:max(last, 0)])]
    params = range(first, first + len(compiled.plan.graph.params))
    in_place = [node for node in early if node.op is CHANGE_IN_PLACE]
    replaced = [node for node in early if node.op is NEW_ARRAY]
    written = {s.index for node in early for v in (*node.outputs, *(node.inputs[:1] if node.op.writes else ()))
               if node.op not in (CHANGE_IN_PLACE, NEW_ARRAY) and type(s := slots.get(v)) is External
               and s.index in params}
    drawn = {node.attrs["dist"] for node in early if node.op.traits & Trait.RANDOM}
    savers = _savers(early)
    if not any([written, drawn, savers, in_place, replaced]):
        return None
    plain = drawn <= {"rand", "uniform", *UNIFORM}
    position = None if not drawn else random_state.position if plain else random_state.complete

    def left(node: Node) -> Left | None:
        return Left(None if position is None else position(), [save() for save in savers]) if (
            is_given_again(node)) else None
    frame.noting = left  # functions that draw, or change what the call has changed, do so once

    def note() -> Callable[[RunError], None]:
        arrays = [(node, frame.array(node.inputs[0])) for node in replaced]
        before = [(i, frame.bound[i].copy()) for i in written]
        regions = [(there := region(node, frame.array(node.inputs[0])), there.copy()) for node in in_place]
        saved = [save() for save in savers]
        random = None if position is None else position()

        def back(error: RunError) -> None:
            if random is not None and error.run and error.run[-1][0] is error.node and error.run[-1][2] is not None:
                error.run[-1][2].random = random_state.complete()
            for node, array in arrays:
                frame.replace(node, array)
            for i, array in before:
                frame.restore(i, array)
            for there, elements in regions:
                there[...] = elements
            for put_back in reversed(saved):
                put_back()
            if random is not None:
                random_state.put(random)
        return back
    return note
