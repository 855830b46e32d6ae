"""Calls in flight: the arrays that the forward of a schedule leaves for its backwards, and backwards bound to them."""
from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from kusari.ir import TensorType, Value

from ..arrays.bindings import CallBinding, StateBinding
from ..errors import NotCompilable
from ..room import KEPT_CALLS
from ..trace.own_functions import Applied, Unforeseen
from .arguments import arguments_of

if TYPE_CHECKING:
    from .schedule import CompiledBackward, Schedule


class InFlight:
    """A call whose graph is still there; ``arguments`` have its forward's arrays and kept values."""

    __slots__ = ()

    schedule: Any
    arguments: Any

    def contents(self, arrays: Sequence[Any]) -> dict[Value, Any]:
        """Return the values that the call on ``arrays`` has kept, with their arrays, which may be overwritten."""
        schedule, arguments = self.schedule, self.arguments
        first = len(schedule.outputs.values)
        found: dict[Value, Any] = {}
        if schedule.checkpointed:
            found.update(schedule.computed_again(self, arrays))
        else:
            for position, v in enumerate(schedule.saved, first):
                if isinstance(v.type, TensorType):
                    kept = arguments.kept(position)
                    found[v] = arguments.current(position, arrays) if kept is None else kept
        known = {**schedule.recording.constants(), **found}
        for node in schedule.kept.again:
            known.update(zip(node.outputs, node.op.call(node.attrs, *[known[v] for v in node.inputs]), strict=True))
            found.update((v, known[v]) for v in node.outputs)
        return found

    def binding(self, number: int) -> Any:
        """Return binding ``number`` for what is computed after the call: define-by-run keeps persistent arrays."""
        binding = self.schedule.recording.bindings[number]
        return CallBinding(self.arguments, number) if isinstance(binding, StateBinding) else binding

    def parameter_array(self, number: int) -> Any:
        """Return the array that the parameter of binding ``number`` had in the call."""
        now, bound = self.schedule.recording.bindings[number].array(), self.arguments.bound(number)
        if bound is None or now is None or self.schedule.recording.place is None and not now.flags.carray:
            return now  # it is bound as a copy, or gone
        return bound

    def applied(self, template: Any) -> Applied:
        """Return the application of a function of the user's in the call."""
        return next(t for t in self.arguments.frame.tokens.values() if t.template is template)


class Call(InFlight):
    """The frames of one call in flight; it goes back to its schedule when the graph node of the call is gone."""

    __slots__ = ("schedule", "arguments", "function", "_backwards")

    def __init__(self, schedule: Schedule, arguments: Any = None) -> None:
        self.schedule = schedule
        recording, outputs = schedule.recording, schedule.outputs
        self.arguments = arguments or arguments_of(
            schedule.forward, recording.bindings, returned=range(len(outputs.values)), apart=recording.apart,
            views=outputs.views, **{"handled": True} if recording.handled and recording.place is None else {})
        self.function: Any = None
        self._backwards: dict[tuple[bool, ...], CallBackward] = {}

    def recycle(self, _: Any) -> None:
        """Give the frames back to the schedule."""
        schedule = self.schedule
        schedule.free.append(self)
        if len(schedule.free) > KEPT_CALLS:
            schedule.waiting.settle(schedule.free)

    def forget(self) -> None:
        """Release the frames of its backwards."""
        for backward in self._backwards.values():
            backward.close()
        self._backwards.clear()

    def close(self) -> None:
        """Release its frames, which are needed no more."""
        self.forget()
        self.arguments.close()

    def gradients(self, arrays: Sequence[Any], gys: list[Any], given: tuple[bool, ...],
                  results: Sequence[Any] = (), before: Sequence[Any] = ()) -> list[Any]:
        """Run the backward and return one array (or None) per wanted value.

        ``arrays`` are the arguments as they are now, ``before`` the arrays that the forward ran on. Raises
        ``NotCompilable`` or ``Unforeseen`` where define-by-run is to compute the gradients.
        """
        backward = self._backwards.get(given)
        if backward is None:
            try:
                backward = self._backwards[given] = self._backward(given)
            except NotCompilable as error:
                self.schedule.give_up(error)
                raise
        if backward.filled:  # gradients that are not there are zero
            outputs, place = self.schedule.recording.graph.outputs, self.schedule.recording.place
            zeros = np.zeros if place is None else place.zeros
            gys = [zeros(outputs[i].shape, outputs[i].tensor.dtype) if i in backward.filled else g
                   for i, g in enumerate(gys)]
        try:
            return backward(arrays, gys, results, before)
        except Unforeseen:
            self.schedule.learn()
            self.forget()
            raise

    def _backward(self, given: tuple[bool, ...]) -> CallBackward:
        schedule = self.schedule
        compiled = schedule.backward_for(given)
        if compiled is not None:
            return CallBackward(self, compiled, ())
        # What a backward of its own would need was not kept.
        every = schedule.recording.differentiable
        compiled = schedule.backward_for(every)
        assert compiled is not None
        return CallBackward(self, compiled, tuple(i for i, d in enumerate(every) if d and not given[i]))


class CallBackward:
    """A backward bound to the frame of its forward.

    What the forward keeps at a fixed place is bound once, the rest (seeds, results that callers own, arguments passed
    over by pointer) at every run.
    """

    __slots__ = ("filled", "_arguments", "_seeds", "_read", "_inputs", "_current", "_tokens", "_forward", "_present",
                 "_shared")

    def __init__(self, call: Call, backward: CompiledBackward, filled: tuple[int, ...]) -> None:
        self.filled = filled
        self._forward = forward = call.arguments
        self._present = None if all(backward.present) else backward.present
        self._seeds = backward.seeds
        self._current: list[int] = []
        self._tokens: list[tuple[Value, Value]] = []
        fixed: dict[int, Any] = {}
        schedule = call.schedule
        outputs = len(schedule.outputs.values)
        self._read = tuple([k for k, _ in backward.read])
        at = len(backward.seeds) + len(backward.read)
        for position, value in backward.saved:
            if not isinstance(value.type, TensorType):
                self._tokens.append((value, forward.compiled.outputs[outputs + position]))
                fixed[at] = None
            elif (kept := forward.kept(outputs + position)) is not None:
                fixed[at] = kept
            else:
                self._current.append(outputs + position)
            at += 1
        self._inputs = list(backward.inputs)  # as they are at the backward, which is what define-by-run reads
        compiled = backward.ensure()
        self._arguments = arguments_of(compiled, [call.binding(i) for i in backward.params], fixed=fixed)
        # Gradients that are one value, or a seed itself, are returned as arrays of their own.
        self._shared = self._arguments.shared_results()

    def close(self) -> None:
        """Release its frame."""
        self._arguments.close()

    def __call__(self, arrays: Sequence[Any], gys: Sequence[Any], results: Sequence[Any],
                 before: Sequence[Any]) -> list[Any]:
        """Run and return one array (or None) per wanted value."""
        values = [gys[i] for i in self._seeds]
        if self._read:
            values += [results[k] for k in self._read]
        if self._current:
            values += [self._forward.current(at, before) for at in self._current]
        if self._inputs:
            values += [arrays[i] for i in self._inputs]
        if self._tokens:
            found = self._run_own_python(values)
        else:
            found = self._arguments.run(values)
        for i in self._shared:
            found[i] = found[i].copy()
        if self._present is None:
            return found
        it = iter(found)
        return [next(it) if present else None for present in self._present]

    def _run_own_python(self, values: list[Any]) -> list[Any]:
        """Run the backward with functions of the user's; what they give is kept only where it cannot go on."""
        tokens = self._forward.frame.tokens
        applied = {value: tokens[kept] for value, kept in self._tokens}
        self._arguments.frame.tokens.update(applied)
        try:
            return self._arguments.run(values)
        except Unforeseen:
            applied.clear()
            raise
        finally:
            for one in applied.values():
                one.given = None
