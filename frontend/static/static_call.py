"""The graph node of one replay: what define-by-run sees of it."""
from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from kusari.ir import Graph, Node, Value

from ..backprop import Cut, Scaled
from ..configuration import config
from ..function_node import FunctionNode
from ..utils.arrays import add_arrays
from ..variable import Variable, output_variable

if TYPE_CHECKING:
    from .schedule import Call


class StaticCall(FunctionNode):
    """One replay in the graph of define-by-run."""

    call: Call
    arrays: Sequence[Any]
    results: Sequence[Any] = ()  # what was handed out, if backwards read of it
    givers: Sequence[tuple[int, Any]] = ()  # which of them came in Variables, and those Variables' nodes
    state: Any = None      # of NumPy's random numbers before the call, if it draws some
    reference: Any = None  # the same call define-by-run, if the call is verified

    @property
    def label(self) -> str:
        return f"static {self.call.schedule.recording.name}"

    def backward(self, target_input_indexes: tuple[int, ...], grad_outputs: tuple[Any, ...]) -> tuple[Any, ...]:
        recording = self.call.schedule.recording
        arrays, results = self.arrays_now(), self.results_now()
        if config.enable_backprop:
            return self._expanded_backward(grad_outputs, True)
        if arrays is None or results is None:
            inputs = self.inputs
            grads = self._expanded_backward(grad_outputs, False)
            self.inputs = inputs  # whoever asks for gradients hands them to these
            return tuple([grads[i] for i in target_input_indexes])
        it = iter(grad_outputs)
        gys = [None if not d else (None if (g := next(it)) is None else g._array) for d in recording.differentiable]
        grads = self.call.gradients(arrays, gys, tuple([g is not None for g in gys]), results)
        if self.reference is not None and arrays is self.arrays:
            self.reference.compare_gradients(self.label, self, gys, grads, results)
        return tuple([None if (g := grads[i]) is None else output_variable(g, False) for i in target_input_indexes])

    def backward_from(self, y: Variable) -> bool:
        """Do all of ``y.backward()`` when nothing but leaves lies behind this node; returns whether it did.

        The same gradients go to the same variables as from the general engine, with a fraction of its bookkeeping.
        """
        arrays, results = self.arrays_now(), self.results_now()
        if self.cuts or arrays is None or results is None:
            return False
        if self.rank and any([x.creator_node is not None for x in self.inputs]):
            if self._tail is None:
                return False
            from .joint_backward import backward_from
            return backward_from(y)
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
        grads = call.gradients(arrays, seeds, given, results)
        if self.reference is not None and arrays is self.arrays:
            self.reference.compare_gradients(self.label, self, seeds, grads, results)
        y._grad = y._grad_var = None
        receivers = schedule.wanted_parameters
        if schedule.wanted_leaves:
            receivers = [n.get_variable_or_none() for n in self.inputs[:len(schedule.wanted_leaves)]] + receivers
        for x, gx in zip(receivers, grads):  # noqa: B905  # as many by construction
            if gx is None or x is None:
                continue
            if Scaled.ever:
                x._loss_scale = None
            if x._grad is None and x._grad_var is None:
                x._grad = gx
            else:
                x.grad = add_arrays(x.grad, gx)
        return True

    def arrays_now(self) -> Sequence[Any] | None:
        """Return the arrays of the arguments as Variables have them now, which is what define-by-run's gradients read.

        None where one has got an array of another shape or dtype.
        """
        found = self.arrays
        for i, node in self.givers:
            variable = node.get_variable_or_none()
            array = found[i] if variable is None else variable._array
            if array is not found[i]:
                given = self.arrays[i]
                if type(array) is not type(given) or array.shape != given.shape or array.dtype != given.dtype:
                    return None
                found = [*found[:i], array, *found[i + 1:]]
        return found

    def results_now(self) -> Sequence[Any] | None:
        """Return the results that backwards read as Variables have them now; None where one is of another type."""
        read, results = self.call.schedule.handed.read, self.results
        found: list[Any] = []
        for at in read.values() if results else ():
            array = before = results[at.result] if at.view is None else at.view(results[at.result])
            node = None if at.node < 0 or self.outputs is None else self.outputs[at.node]()
            variable = None if node is None else node.get_variable_or_none()
            if variable is not None:
                array = variable._array
                if array is not before and (
                        type(array) is not type(before) or (array.shape, array.dtype) != (before.shape, before.dtype)):
                    return None
            found.append(array)
        return found

    def expand(self, twice: bool = False) -> None:
        """Let the functions that were recorded stand in the graph in place of this node; ``twice``: for gradients of
        gradients.
        """
        from .expand import expand
        expand(self, twice)

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
        return not others or behind(graph, others) <= behind(graph, those)

    def cut(self, node: Any, everything: bool) -> None:
        """Cut the graph right behind the result ``node``, or ``everything`` behind it.

        What that means for other results is found out when somebody looks at what they were computed from.
        """
        graph = self.call.schedule.recording.graph
        nodes = [r() for r in self.outputs or ()]
        values = [v for v, d in zip(graph.outputs, self.call.schedule.recording.differentiable, strict=True) if d]
        value = values[nodes.index(node)]
        node.unchain()
        self.cuts = (*self.cuts, (value, everything))
        Cut.ever = True
        if everything:
            gone = {v for n in behind(graph, {value}) for v in n.outputs}
            for v, other in zip(values, nodes, strict=True):
                if other is not None and v in gone:
                    other.unchain()
            if self.lies_behind(()):
                self.unchain()

    def kept(self, value: Value) -> Any:
        """Return a copy of what the forward has kept for ``value``."""
        schedule, arguments = self.call.schedule, self.call.arguments
        if value in schedule.handed.read:
            now = self.results_now()
            if now is not None:
                return now[list(schedule.handed.read).index(value)].copy()
        position = len(schedule.handed.values) + schedule.saved.index(value)
        kept = arguments.kept(position)
        return (arguments.current(position, self.arrays) if kept is None else kept).copy()

    def _expanded_backward(self, grad_outputs: tuple[Any, ...], twice: bool) -> tuple[Any, ...]:
        """Gradients of define-by-run for whoever calls ``backward`` of this very node; ``twice``: of gradients, too."""
        from ..backprop import grad
        pairs = [(r(), g) for r, g in zip(self.outputs or (), grad_outputs, strict=True)]
        inputs = [node.get_variable() for node in self.inputs or ()]
        self.expand(twice)
        pairs = [(node.get_variable(), g) for node, g in pairs if node is not None and g is not None]
        return tuple(grad([y for y, _ in pairs], inputs, [g for _, g in pairs], enable_double_backprop=twice))


def behind(graph: Graph, values: set[Value]) -> set[Node]:
    """Return the nodes of a graph that ``values`` are computed by."""
    found: set[Node] = set()
    needed = set(values)
    for node in reversed(graph.nodes):
        if any(v in needed for v in node.outputs):
            found.add(node)
            needed.update(node.inputs)
    return found
