"""The results of a whole step: Variables that the loss function stores, with the graph behind them."""
from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from kusari.ir import Graph
from kusari.passes import Kept, choose_kept

from ..errors import NotCompilable
from ..gradients.differentiate import Backward
from ..replay.calls import Call
from ..replay.schedule import Schedule
from ..trace import random_state
from ..trace.recording import Recording


class StepResults(Schedule):
    """The graph behind Variables that a step stores (states of recurrent links, ``self.loss = loss``), as of any call.

    Invariant: all that a backward reads is kept and nothing is computed again, as the step has updated the parameters
    by then. The step compiles the forward along with itself: its results come first, then the ``saved`` values.
    """

    updated = True

    def __init__(self, recording: Recording) -> None:
        behind = any(recording.differentiable[1:]) or 0 in recording.same.values()
        if behind and any(n.op.is_opaque and "function" in n.attrs for n in recording.graph.nodes):
            raise NotCompilable("a result is stored with its graph, in which there is a function of the user's own")
        self._arguments: Callable[[], Any] | None = None
        super().__init__(recording, behind)

    def _choose_kept(self, full: Backward) -> Kept:
        return choose_kept(self.recording.graph, full.nodes, full.present, recompute=False)

    def _compile(self, whole: Graph) -> Any:
        """Nothing: the step does."""

    def _state_reader(self) -> Any:
        return random_state.complete if self.recording.draws else None

    def new_call(self) -> Call:
        assert self._arguments is not None
        return StepCall(self, self._arguments())

    def renew(self, compiled: Any, arguments: Callable[[], Any]) -> None:
        """From now on the step runs as ``compiled``; calls in flight keep what they have."""
        self.forward, self._arguments = compiled, arguments
        self.free.clear()

    def call(self) -> Call:
        """Return the frames of the next step."""
        return self.free.pop() if self.free else self.new_call()

    def state(self) -> Any:
        """The state of NumPy's random numbers, if there are draws."""
        return None if self._state is None else self._state()

    def give(self, call: Call, arrays: Sequence[Any], results: list[Any], leaves: Sequence[Any], state: Any) -> None:
        """Repeat the stores of the loss function."""
        self.show(results, arrays)
        if self.wanted:
            self.connect(call, arrays, results, leaves, state)
        else:
            self.free.append(call)
            self.tree(results, leaves)


class StepCall(Call):
    """One step in flight."""

    __slots__ = ()

    def recycle(self, _: Any) -> None:
        """Give the frames back, unless the step has been compiled anew."""
        if self.arguments.compiled is self.schedule.forward:
            super().recycle(_)
