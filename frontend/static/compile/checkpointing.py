"""Schedules with checkpoints: a forward that keeps less, and backwards that compute the rest again from that."""
from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from kusari.ir import Arg, Builder, Graph, TensorType, Value
from kusari.passes import Cut

from .compile import COPY_BELOW_BYTES, Compiled, copied_below, load
from .memory import Joint

if TYPE_CHECKING:
    from ..replay.schedule import CompiledBackward, Schedule


class Checkpointing:
    """Rewrites backwards so that they need only ``kept`` of what ``forward`` (as the passes left it) would keep."""

    def __init__(self, schedule: Schedule, forward: Graph, kept: tuple[Value, ...]) -> None:
        self.recording, self.forward, self.kept = schedule.recording, forward, kept
        self.outputs = len(schedule.outputs.values)

    def joint(self, backward: CompiledBackward) -> Joint:
        """The forward and that backward as one graph."""
        return Joint(self.forward, backward.ensure().plan.graph, self.outputs,
                     [(self.outputs + i, v) for i, v in backward.saved], len(backward.seeds) + len(backward.read))

    def __call__(self, backward: CompiledBackward) -> CompiledBackward | None:
        """Rewrite ``backward``; returns None if it needs more than is kept."""
        joint = self.joint(backward)
        found = joint.backward(self.kept) if joint.fits else None
        if found is None:
            return None
        final, used = found
        recording, reads = self.recording, set(final.sources())
        backward.saved = tuple((i, self.kept[i]) for i in used)
        backward.inputs = tuple(i for i, v in enumerate(recording.graph.inputs) if v in reads)
        backward.params = tuple(i for i, v in enumerate(recording.graph.params) if v in reads)
        backward.compiled = load(backward.graph, final, (), 0, 0, place=recording.place)
        return backward

    def again(self, saved: Sequence[Value]) -> tuple[tuple[Value, ...], Compiled, tuple[int, ...], Graph]:
        """Compile the computation of values that would be ``saved`` without checkpoints, but for draws and Python's.

        Returns these values, the compiled graph, the numbers of the kept values that are its first inputs, and its
        graph; the other inputs are the forward's.
        """
        made = [(i, v) for i, v in enumerate(saved, self.outputs) if isinstance(v.type, TensorType)]
        found = self._copying(made).backward(self.kept)
        if found is None:  # some was not kept as no gradient that was foreseen reads it
            made = [one for one in made if self._copying([one]).backward(self.kept) is not None]
            found = self._copying(made).backward(self.kept)
            assert found is not None
        final, used = found
        return tuple([v for _, v in made]), load(final, final, (), 0, 0, place=self.recording.place), used, final

    def _copying(self, made: Sequence[tuple[int, Value]]) -> Joint:
        """The forward and, in place of a backward, copies of these outputs of it."""
        b = Builder("again")
        inputs = tuple([Value(v.type, v.hint) for _, v in made])
        copies = tuple([b.map(Arg(0), v) for v in inputs])
        graph = Graph("again", inputs, (), (), tuple(b.nodes), copies)
        return Joint(self.forward, graph, self.outputs, list(zip([i for i, _ in made], inputs, strict=True)), 0)


def checkpointed_forward(schedule: Schedule, whole: Graph,
                         memory: str | float) -> tuple[Compiled, Checkpointing | None]:
    """Return the forward for ``memory``, and the rewriter of its backwards; None if they stay as they are."""
    every = schedule.recording.differentiable
    usual = tuple([d and i < schedule.returned for i, d in enumerate(every)])  # stored results get no gradients
    backward = schedule.backward_for(usual if any(usual) else every)
    assert backward is not None
    before, place = schedule.forward, schedule.recording.place
    copy_in = copied_below(whole) if place is None else COPY_BELOW_BYTES
    checkpointing = Checkpointing(schedule, before.plan.graph, ())
    joint = checkpointing.joint(backward)
    kept, text = joint.choose(memory, {"copy_in_below": copy_in, "copy_out_below": COPY_BELOW_BYTES})
    if kept is not None and usual != every:  # enough for gradients of everything, too
        other = schedule.backward_for(every)
        assert other is not None
        del schedule.backwards[every]  # it is made again should anybody want it
        last = checkpointing.joint(other)
        kept = tuple(dict.fromkeys((*kept, *Cut(last.graph, last.cut).attempt(kept).kept))) if last.fits else None
    if kept is None:
        return replace(before, recomputation=text), None
    checkpointing.kept = kept
    return load(whole, joint.forward(kept), kept, copy_in, COPY_BELOW_BYTES, text, place), checkpointing
