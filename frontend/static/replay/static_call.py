"""The graph node of one replay, the part of it that define-by-run sees."""
from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from kusari.ir import behind

from ...backprop import grad
from ...configuration import config
from ...epochs import Cut, Given, Whole
from ...function_node import FunctionNode
from ...graph_walks import gradients_given
from ...variable import output_variable
from ...variable_node import VariableNode
from ..errors import NotCompilable, Stale
from ..trace.own_functions import Unforeseen
from ..trees import array_of
from .expand import expand
from .receiving import receive

if TYPE_CHECKING:
    from .calls import Call

Whole.ever = True


class StaticCall(FunctionNode):
    """One replay in the graph of define-by-run."""

    call: Call
    arrays: Sequence[Any]
    results: Sequence[Any] = ()  # the returned arrays, if backwards read of them
    assigned: Mapping[int, Any] = MappingProxyType({})  # arrays that their Variables have got, by their nodes' numbers
    givers: Sequence[tuple[int, Any]] = ()  # which of them came in Variables, and those Variables' nodes
    state: Any = None      # of NumPy's random numbers before the call, if it draws some
    reference: Any = None  # the same call define-by-run, if the call is verified

    @property
    def label(self) -> str:
        return f"static {self.call.schedule.recording.name}"

    def backward(self, target_input_indexes: tuple[int, ...], grad_outputs: tuple[Any, ...]) -> tuple[Any, ...]:
        recording = self.call.schedule.recording
        if config.enable_backprop:
            return self._expanded_backward(grad_outputs, target_input_indexes)
        arrays, results = self.arrays_now(), self.results_now()
        if arrays is None or results is None or self._asks_own_python(target_input_indexes):
            return self._expanded_backward(grad_outputs, target_input_indexes)
        it = iter(grad_outputs)
        gys = [None if not d else (None if (g := next(it)) is None else array_of(g)) for d in recording.differentiable]
        try:
            grads = self.call.gradients(arrays, gys, tuple([g is not None for g in gys]), results, self.arrays)
        except (Unforeseen, NotCompilable, Stale):
            return self._expanded_backward(grad_outputs, target_input_indexes)
        if self.reference is not None and arrays is self.arrays:
            self.reference.compare_gradients(self.label, self, gys, grads, results)
        return tuple([None if (g := grads[i]) is None else output_variable(g, True) for i in target_input_indexes])

    def backward_from(self, y: Any) -> bool:
        """Do all of ``y.backward()`` when nothing but leaves lies behind this node; returns whether it did.

        The same gradients go to the same variables as from the general engine, with a fraction of its bookkeeping.
        """
        arrays, results = self.arrays_now(), self.results_now()
        if self.cuts or arrays is None or results is None or self.call.schedule.surprising or (
                Given.ever and gradients_given(self, (y._node,))):
            return False
        if self.rank and any([x.creator_node is not None for x in self.inputs]):
            return self._tail is not None and self._tail.backward_from(y)
        call = self.call
        schedule = call.schedule
        gy = y.grad
        if gy is None:
            if y._array.size != 1:
                return False
            gy = schedule.one(y._array)
        if schedule.single:
            seeds, given = [gy], schedule.recording.differentiable
        else:
            node, references = y._node, iter(self.outputs or ())
            seeds = [gy if d and next(references)() is node else None for d in schedule.recording.differentiable]
            given = tuple([g is not None for g in seeds])
        try:
            grads = call.gradients(arrays, seeds, given, results, self.arrays)
        except (Unforeseen, NotCompilable, Stale):
            self.expand()
            return False
        if self.reference is not None and arrays is self.arrays:
            self.reference.compare_gradients(self.label, self, seeds, grads, results)
        y._grad = y._grad_var = None
        receivers = schedule.wanted_parameters
        if schedule.wanted_leaves:
            receivers = [n.get_variable_or_none() for n in self.inputs[:len(schedule.wanted_leaves)]] + receivers
        receive(receivers, grads)
        return True

    def arrays_now(self) -> Sequence[Any] | None:
        """Return the arrays of the arguments as Variables have them now, which is what define-by-run's gradients read.

        None where one has got an array of another shape or dtype, or another array than one that views lie in, which
        stay where they are.
        """
        found = self.arrays
        schedule = self.call.schedule
        for i, node in self.givers:
            array = node.data
            if array is not found[i] and array is not None:
                given = self.arrays[i]
                if i in schedule.viewed_inputs or type(array) is not type(given) or (
                        array.shape != given.shape or array.dtype != given.dtype):
                    return None
                found = [*found[:i], array, *found[i + 1:]]
        for i, parameter in schedule.viewed_parameters:
            if self.call.arguments.bound(i) is not parameter._array:
                return None
        return found

    def results_now(self) -> Sequence[Any] | None:
        """Return the results that backwards read as Variables have them now; None where one is of another type."""
        read, results = self.call.schedule.outputs.read, self.results
        found: list[Any] = []
        for at in read.values() if results else ():
            array = before = at.of(results)
            if at.node in self.assigned:
                now = self.assigned[at.node]
                if type(now) is not type(before) or (now.shape, now.dtype) != (before.shape, before.dtype):
                    return None
                array = now
            found.append(array)
        return found

    def array_assigned(self, node: VariableNode, array: Any) -> None:
        """Take in that the Variable of a result has got another array; it may be gone when gradients are asked for."""
        number = [r() for r in self.outputs or ()].index(node)
        if array is not None:
            self.assigned = {**self.assigned, number: array}

    def expand(self) -> None:
        """Let the functions that were recorded stand in the graph in place of this node."""
        expand(self)

    def lies_behind(self, nodes: Sequence[Any]) -> bool:
        """Whether all functions of the call lie behind those of its results that ``nodes`` are."""
        alive = [r() for r in self.outputs or ()]
        values = [v for v, d in zip(self.call.schedule.recording.graph.outputs,
                                    self.call.schedule.recording.differentiable, strict=True) if d]
        those = {v for v, node in zip(values, alive, strict=True) if node is not None and node in nodes}
        those.update(v for v, everything in self.cuts if everything)
        others = {v for v, node in zip(values, alive, strict=True)
                  if node is not None and node.creator_node is self} - those
        graph = self.call.schedule.recording.graph
        return not others or set(behind(graph.nodes, others)) <= set(behind(graph.nodes, those))

    def cut(self, node: Any, everything: bool) -> None:
        """Cut the graph right behind the result ``node``, or ``everything`` behind it.

        The consequence for other results is found out when the graph behind them is walked.
        """
        graph = self.call.schedule.recording.graph
        nodes = [r() for r in self.outputs or ()]
        values = [v for v, d in zip(graph.outputs, self.call.schedule.recording.differentiable, strict=True) if d]
        value = values[nodes.index(node)]
        node.unchain()
        self.cuts = (*self.cuts, (value, everything))
        Cut.ever = True
        if everything:
            gone = {v for n in behind(graph.nodes, [value]) for v in n.outputs}
            for v, other in zip(values, nodes, strict=True):
                if other is not None and v in gone:
                    other.unchain()
            if self.lies_behind(()):
                self.unchain()

    def _asks_own_python(self, targets: tuple[int, ...]) -> bool:
        """Whether functions of the user's see that few gradients are asked for, or give what cannot be foreseen."""
        schedule = self.call.schedule
        return schedule.surprising or schedule.own_python and len(targets) < len(schedule.wanted)

    def _expanded_backward(self, grad_outputs: tuple[Any, ...], targets: tuple[int, ...]) -> tuple[Any, ...]:
        """Return gradients of define-by-run, for code that calls ``backward`` of this very node."""
        pairs = [(r(), g) for r, g in zip(self.outputs or (), grad_outputs, strict=True)]
        nodes = self.inputs
        inputs = [nodes[i].get_variable() for i in targets]
        self.expand()
        pairs = [(node.get_variable(), g) for node, g in pairs if node is not None and g is not None]
        creators = [node.creator_node for node in nodes]
        for node in nodes:  # an argument may depend on another, or on a parameter: that part is its creator's
            node.creator_node = None
        try:
            return tuple(grad([y for y, _ in pairs], inputs, [g for _, g in pairs],
                              enable_double_backprop=config.enable_backprop))
        finally:
            for node, creator in zip(nodes, creators, strict=True):
                node.creator_node = creator
            self.inputs = nodes  # gradients that are asked for later go to these
