"""The update of an optimizer compiled on its own, for steps in parts: the gradients are there already."""
from __future__ import annotations

from collections.abc import Callable
from typing import Any

from kusari.ir import Builder, Graph, Value, tensor_type

from ..arrays.bindings import ParameterBinding
from ..compile.compile import SCALAR_BYTES, compile_graph
from ..errors import NotCompilable, Stale
from ..replay.arguments import Arguments, arguments_of
from .rule_groups import GradientBinding, share_memory
from .update import Patience, UpdateProgram
from .usual import UNFIT, due, no_update, usual_update


class CompiledUpdate:
    """The update of one optimizer, compiled on its own: for gradients that are there already."""

    def __init__(self, optimizer: Any) -> None:
        try:
            self.program = UpdateProgram(optimizer, with_hooks=True)
        except NotCompilable:
            self.program = UpdateProgram(optimizer, with_hooks=False)
        self.usual: Callable[[], bool] = no_update  # the usual case as one function: False for any other
        self._arguments: Arguments | None = None
        self._outdated = False
        self.with_hooks = self.program.with_hooks  # whether the optimizer's pre-update hooks are compiled too

    def __deepcopy__(self, memo: Any) -> None:
        """A copy of an optimizer compiles for itself."""

    def __reduce__(self) -> Any:
        return type(None), ()

    def still_holds(self) -> bool:
        """Whether the optimizer would still do what was compiled."""
        return not self._outdated and self.program.still_holds()

    def __call__(self, grads: list[Any]) -> bool:
        """Update all parameters, given their gradients; returns False where it cannot, and then has done nothing."""
        program = self.program
        if share_memory(program.members, grads):
            return False
        try:
            fits = program.advance()
        except (NotCompilable, Stale):
            return self._give_up()
        try:
            arguments = self._compile() if not fits or self._arguments is None else self._arguments
            arrays = [] if program.changes_gradients else grads
            if len(program.members) < len(grads) and arrays:
                arrays = [p.grad for p in program.members]
            flags = arguments.run(program.hyper_arrays() + arrays)
        except (NotCompilable, Stale, *UNFIT):
            program.retreat()
            return self._give_up()
        except (MemoryError, IndexError):  # of a card: nothing has been updated
            program.retreat()
            raise
        if program.scaling is not None and not program.scaling.dynamic:
            program.optimizer._gradients_are_finite = True
        if program.flags:
            program.settle(flags)
        if self.with_hooks and self.usual is no_update and due(program):
            self.usual = usual_update(program, arguments)
        return True

    def _give_up(self) -> bool:
        self._outdated, self.usual = True, no_update
        return False

    def _compile(self) -> Arguments:
        program = self.program
        self.usual = no_update
        b = Builder("optimizer")
        used = program.params if program.hooks else program.members
        params = {id(p): Value(tensor_type(p._array.dtype, p._array.shape), p.name or "param") for p in used}
        grads = {id(p): Value(tensor_type(p._array.dtype, p._array.shape), "grad") for p in used}
        hyper, states, final = program.emit(b, grads, params)
        bindings: list[Any] = [ParameterBinding(p) for p in used]
        values = [params[id(p)] for p in used]
        inputs = [grads[id(p)] for p in used]
        if program.changes_gradients:  # hooks change gradients in place: so do we
            bindings += [GradientBinding(p) for p in used]
            values += inputs
            for p in used:
                if final[id(p)] is not grads[id(p)]:
                    b.assign(grads[id(p)], final[id(p)])
            inputs = []
        graph = Graph("update", (*hyper, *inputs), (*values, *(v for v, _ in states)), (), tuple(b.nodes),
                      program.flags)
        bindings += [s for _, s in states]
        compiled = compile_graph(graph, copy_in=SCALAR_BYTES, place=program.place)
        made = self._arguments = arguments_of(compiled, bindings, given_apart=True)
        return made


def compiled_update(optimizer: Any) -> CompiledUpdate | None:
    """Return the update of an optimizer, compiled; None where it cannot be, or could not be a few updates ago."""
    patience = optimizer.__dict__.get("_patience")
    if patience is not None and not patience.over():
        return None
    try:
        compiled = CompiledUpdate(optimizer)
    except NotCompilable:
        if patience is None:
            patience = optimizer._patience = Patience()
        patience.begin()
        return None
    optimizer._patience = None
    return compiled
