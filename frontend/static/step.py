"""Whole steps: forward, loss, backward and update of ``optimizer.update(lossfun, *args)`` as one schedule."""
from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from kusari.ir import Builder, Graph, Value

from .. import tape as _tape
from ..configuration import config
from ..variable import Variable
from .arguments import Arguments, Stale
from .compile import compile_graph
from .differentiate import differentiate, wanted_values
from .function import Aside, StaticFunction
from .recording import NotStatic, Recording
from .side_effects import OPAQUE_GRADIENT
from .signature import matcher, signature
from .update import NotCompilable, UpdateProgram


class Step:
    """One training step compiled; calling it with the leaves of the loss function's arguments runs it."""

    def __init__(self, optimizer: Any, recording: Recording, memory: str | float = "speed") -> None:
        self.recording = recording
        self.memory = memory
        self.program = program = UpdateProgram(optimizer, with_hooks=True)
        self.wanted = wanted = wanted_values(recording)
        self._may_fail = False
        parameters = dict(recording.parameters)
        if recording.states:
            raise NotCompilable("state is carried over from call to call")
        if any(v not in parameters for v in wanted):
            raise NotCompilable("an argument asks for its gradient")
        targets = {id(p) for p in program.params if p._array is not None}
        if targets != {id(parameters[v]) for v in wanted}:
            raise NotCompilable("the loss does not depend on just the optimizer's parameters")
        if recording.differentiable != (True,) or recording.graph.outputs[0].tensor.size != 1:
            raise NotCompilable("the loss is not one differentiable number")
        self.backward = backward = differentiate(recording, (True,), wanted)
        if any(g is None for g in backward.grads):
            raise NotCompilable("a parameter gets no gradient")
        self.parameters = [parameters[v] for v in wanted]
        first = {v: i for i, v in reversed(list(enumerate(recording.leaves)))}
        self._inputs = tuple(first[v] for v in recording.graph.inputs)
        self.compiled: Any = None
        self._free: list[Any] = []
        self._arguments: Callable[[], Any] = _none

    def _compile(self) -> None:
        graph, backward = self.recording.graph, self.backward
        seed = backward.seeds[0]
        assert seed is not None
        b = Builder("optimizer")
        params = {id(p): v for v, p in self.recording.parameters}
        grads: dict[int, Value] = {id(p): g for p, g in zip(self.parameters, backward.grads, strict=True)
                                   if g is not None}
        hyper, states, final = self.program.emit(b, grads, params)
        whole = Graph(
            f"{graph.name}_step", (*graph.inputs, *hyper), (*graph.params, *(v for v, _ in states)),
            (*graph.consts, *backward.consts, (seed, np.ones(seed.shape, seed.tensor.dtype))),
            (*graph.nodes, *backward.nodes, *b.nodes), tuple(final[id(p)] for p in self.parameters))
        self.compiled, self._arguments = self._compile_step(whole, (*self.recording.bindings, *(s for _, s in states)))
        self._free.clear()

    def _compile_step(self, whole: Graph, bindings: Sequence[Any]) -> tuple[Any, Callable[[], Any]]:
        """Compile the graph; returns that, and what makes the arguments of one run."""
        compiled = compile_graph(whole, copy_out=0, memory=self.memory)
        self._may_fail = any(row.kernel is None for row in compiled.program.rows)
        return compiled, lambda: Arguments(compiled, bindings)

    def __call__(self, leaves: Sequence[Any]) -> None:
        """Run the step; raises ``Stale`` before anything has happened when it no longer fits."""
        program = self.program
        if not program.still_holds():
            raise Stale("the optimizer has changed")
        if not program.advance() or self.compiled is None:
            self._compile()
        assert self.compiled is not None
        arrays = [x._array if isinstance(x := leaves[i], Variable) else x for i in self._inputs]
        arrays += program.hyper_arrays()
        # Only a function of the user's can fail: then gradients are kept until it is known that it did not.
        before = [(p, p._grad, p._grad_var) for p in self.parameters] if self._may_fail else ()
        for p in self.parameters:
            p._grad = p._grad_var = None
        arguments = self._free.pop() if self._free else self._arguments()
        try:
            gradients = arguments.run(arrays)
        except BaseException:
            program.retreat()
            failed = arguments.frame.failed
            if failed is not None and failed.op is not OPAQUE_GRADIENT:  # gradients are cleared after the forward
                for p, grad, grad_var in before:
                    p._grad, p._grad_var = grad, grad_var
            raise
        for p, g in zip(self.parameters, gradients, strict=True):
            p._grad = g
        self._free.append(arguments)


def _none() -> None:
    """Stands for arguments before anything is compiled."""


class Steps:
    """The compiled steps of one optimizer; not part of what is copied or pickled."""

    def __init__(self) -> None:
        self.by_loss: dict[Any, tuple[Any, Step | None]] = {}

    def __deepcopy__(self, memo: Any) -> Steps:
        return Steps()

    def __reduce__(self) -> Any:
        return Steps, ()


def run_step(optimizer: Any, function: StaticFunction, first: tuple[Any, ...], args: tuple[Any, ...],
             kwargs: dict[str, Any]) -> bool:
    """Do forward, backward and update of the parameters in one schedule, if there can be one; returns whether it did.

    The first step with a signature is define-by-run (and traced), as is every step that has no whole schedule.
    """
    if not config.use_static_graph or config.debug or _tape.watched() or not config.enable_backprop \
            or not optimizer._use_cleargrads:
        return False
    args = first + args
    owner = function.owner_of(args)
    recent = owner.step
    if recent is not None and not kwargs and recent(optimizer, args):
        return True
    leaves: list[Any] = []
    key = signature(args, kwargs, leaves)
    entry = owner.entries.get(key)
    if entry is None or type(entry) is Aside or (entry.check is not None and not entry.check()):
        return False
    recording = entry if type(entry) is Recording else entry.recording
    steps: Steps = optimizer.__dict__.get("_steps") or optimizer.__dict__.setdefault("_steps", Steps())
    known = steps.by_loss.get((id(owner), key))
    if known is None or known[0]() is not recording:
        try:
            step = function.step_class()(optimizer, recording, function.memory)
        except (NotCompilable, NotStatic):
            step = None
        if len(steps.by_loss) >= 32:
            steps.by_loss.clear()
        known = steps.by_loss[id(owner), key] = (weakref.ref(recording), step)
    step = known[1]
    if step is None or (function.verifier is not None and function.verifier.step()):
        return False
    matches = None if kwargs or function.verifier is not None else matcher(args, leaves)
    owner.step = None if matches is None else shortcut(optimizer, matches, len(leaves), entry.check, step)
    try:
        step(leaves)
    except Stale:
        del steps.by_loss[id(owner), key]
        owner.step = None
        return False
    return True


def shortcut(optimizer: Any, matches: Callable[[tuple[Any, ...]], bool], leaves: int, check: Callable[[], bool] | None,
             step: Step) -> Callable[[Any, tuple[Any, ...]], bool]:
    """Return what does a step of ``optimizer`` again in the mode of now, for arguments that ``matches``.

    It returns whether it did: False where something is not as it was. It keeps neither alive.
    """
    known, reference, train = weakref.ref(optimizer), weakref.ref(step), config.train

    def again(other: Any, args: tuple[Any, ...]) -> bool:
        step = reference()
        if other is not known() or step is None or not matches(args) or config.train is not train or (
                check is not None and not check()):
            return False
        try:
            step(args[-leaves:])
        except Stale:
            return False
        return True
    return again
