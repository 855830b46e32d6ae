"""Replays become define-by-run's graph where gradients inside of it are asked for.

The gradient of a gradient, the gradient of one result with respect to another, ``retain_grad``, and gradients of the
rest where some results were cut off all concern values between the arguments and the results of a call. So the
recorded functions are applied once more to the arguments of that call, with the random numbers of that call, and the
nodes that this makes take the place of the one node of the replay.
"""
from __future__ import annotations

import copy
import traceback
import weakref
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any

import numpy as np

from kusari.ir import Node, Value

from ... import tape as _tape
from ...configuration import using_config
from ...functions.math.identity import Identity
from ...graph_walks import unchain_behind
from ...tape import recording
from ...variable import Variable
from ..arrays.bindings import ParameterBinding
from ..arrays.overlap import Spans, address_of, has_address, is_writable
from ..trace import random_state
from ..trace.own_functions import operands
from ..trace.python_nodes import runs_once
from ..trees import array_of

if TYPE_CHECKING:
    from .static_call import StaticCall


def expand(call: StaticCall) -> None:
    """Put the functions that ``call`` stands for in its place in the graph.

    Nothing outside changes: neither persistent state nor random numbers are advanced again, functions of the user's do
    not run again, and the results stay the arrays they are. Whatever gradients read is what the call has kept for
    them, as parameters may have changed since.
    """
    recorded = call.call.schedule.recording
    kept = {address_of(a): (a, a.copy()) for i, b in enumerate(recorded.bindings)
            if not isinstance(b, ParameterBinding) and has_address(a := call.call.binding(i).array())}
    now = random_state.complete() if call.state is not None else None
    hooks = _tape.own_hooks()
    if hooks:  # they have seen the call, or were not there
        _tape.current.function_hooks = {}
    try:
        if call.state is not None:
            random_state.put(call.state)
        with (recording(None), using_config("enable_backprop", True), using_config("debug", False),
              using_config("type_check", False), np.errstate(all="ignore"),
              nullcontext() if recorded.place is None else recorded.place.other_draws()):
            _Expansion(call).run()
    finally:
        if hooks:
            _tape.current.function_hooks = hooks
        if now is not None:
            random_state.put(now)
        for array, before in kept.values():
            if is_writable(array):
                array[...] = before
    call.inputs = None  # type: ignore[assignment]  # it is not part of the graph any more
    call.outputs = None


class _Expansion:
    """The functions of one call being applied again.

    Invariant: ranks lie between that of the call and the next, so whatever uses its results comes before all of them.
    """

    def __init__(self, call: StaticCall) -> None:
        self.call = call
        schedule = call.call.schedule
        recorded = schedule.recording
        self.graph = graph = recorded.graph
        self.detached = recorded.detached
        self.held = {v: at.of(call.results) for v, at in schedule.outputs.read.items()} if call.results else {}
        self.assigned = {v: now for v, at in schedule.outputs.read.items()
                         if (now := call.assigned.get(at.node)) is not None}
        self.contents = call.call.contents(call.arrays)
        self.env: dict[Value, Variable] = {v: Variable(a, requires_grad=False)
                                           for v, a in zip(graph.inputs, call.arrays, strict=True)}
        self.env.update((graph.inputs[i], node.get_variable()) for i, node in call.givers)
        before: dict[Value, Any] = dict(zip(graph.inputs, call.arrays, strict=True))
        for i, (value, binding) in enumerate(zip(graph.params, recorded.bindings, strict=True)):
            if isinstance(binding, ParameterBinding):
                self.env[value], before[value] = binding.parameter, call.call.parameter_array(i)
            else:
                self.env[value] = Variable(call.call.binding(i).array(), requires_grad=False)
        self.env.update((v, Variable(a, requires_grad=False)) for v, a in recorded.constants().items())
        for value, node in zip(schedule.wanted, call.inputs or (), strict=True):
            self.env[value] = node.get_variable()
        # The places of results in the graph, as far as they are still referenced.
        it = iter(call.outputs or ())
        places = [next(it)() if d else None for d in recorded.differentiable]
        self.places: dict[Value, list[Any]] = {}
        for value, node in zip(graph.outputs, places, strict=True):
            if node is not None:
                self.places.setdefault(value, []).append(node)
        # Variables that have got other arrays since: functions were applied to the former ones.
        self.replaced: list[tuple[Variable, Any]] = []
        for value, array in before.items():
            self._put_back(self.env[value], array)
        self.given = Spans([*call.arrays, *(array_of(self.env[v]) for v in graph.params), *call.results])
        self.step = 1 / (len(graph.nodes) + len(places) + 2)
        self.rank: float = call.rank

    def _put_back(self, variable: Any, array: Any) -> None:
        """Let a Variable have the array that it had at the call, until everything is applied."""
        now = variable._array
        if now is not array:
            if now is not None:  # else only the graph refers to it
                self.replaced.append((variable, now))
            variable._array = array

    def run(self) -> None:
        """Apply everything."""
        try:
            for value in [v for v in self.places if v in self.env]:  # an argument or a parameter is a result
                self._further(value)
            for node in self.graph.nodes:
                self._apply(node)
        finally:
            for variable, now in self.replaced:
                variable.array = now
        for value, everything in self.call.cuts:  # they are in the graph, but as leaves
            node = self.env[value].node
            unchain_behind(node) if everything else node.unchain()

    def _apply(self, node: Node) -> None:
        function = node.attrs.get("function")
        if function is None:  # side-effect code has run: what it gave is used, and nothing is reported twice
            found: Any = ()
            if runs_once(node):
                found = map(self._content, node.outputs)
            elif node.outputs:
                found = node.op.call(node.attrs, *[array_of(self.env[v]) for v in node.inputs])
            self.env.update((v, Variable(a, requires_grad=False)) for v, a in zip(node.outputs, found, strict=False))
            return
        inputs = tuple([self.env[v] for v in operands(node)])
        if node.op.is_opaque:
            applied = self.call.call.applied(function)
            for i, array in applied.retained():
                self._settle(self.env[node.inputs[i]], node.inputs[i], array)
            outputs = applied.join(inputs)
        else:
            outputs = copy.copy(function).apply(inputs)
        self._ranked(outputs)
        _located(outputs, node.where)
        for value, y in zip(node.outputs, outputs, strict=False):  # an opaque node has a token, too
            self._settle(y, value, self.contents.get(value))
            cut = value in self.detached
            self.env[value] = Variable(array_of(y), requires_grad=False) if cut else y
            if not cut and value in self.places:
                self._place(value, y, self.places[value].pop(0))
                self._further(value)
            elif value in self.assigned:  # to a Variable that is gone
                self.replaced.append((y, self.assigned[value]))

    def _place(self, value: Value, y: Variable, place: Any) -> None:
        """Let a result that is still referenced, or was assigned another array, take the place of ``y``."""
        variable = self.env[value] = _replace(y, place)
        array = self.held.get(value)
        if array is not None and variable is not y:
            self._put_back(variable, array)
        elif value in self.assigned:
            self.replaced.append((y, self.assigned[value]))

    def _content(self, value: Value) -> Any:
        """Return a copy of the array that the call has computed for ``value``."""
        found = self.held.get(value)
        return (self.contents[value] if found is None else found).copy()

    def _settle(self, y: Any, value: Value, content: Any) -> None:
        """Give values that were computed again the elements of the first time, if these are known.

        Views of arguments and of results follow them, as in define-by-run.
        """
        if value in self.held:
            _put(y, self.held[value])
        elif content is not None and not self.given.touch(y._array):
            if is_writable(y._array):
                y._array[...] = content
            else:  # one element in many places
                _put(y, content.copy())

    def _further(self, value: Value) -> None:
        """Let results that are the same value as another follow it."""
        for node in self.places.pop(value, ()):
            outputs = Identity().apply((self.env[value],))
            self._ranked(outputs)
            _replace(outputs[0], node)

    def _ranked(self, outputs: Any) -> None:
        self.rank += self.step
        for y in outputs:
            if y.creator_node is not None:
                y.creator_node.rank = self.rank


def _put(y: Any, array: Any) -> None:
    """Let a function's result be ``array``, also where it is retained."""
    node = y.node
    y._array = array
    if node.data is not None:
        node.data = array
    function: Any = node.creator_node
    if function is not None and function._retained_output_data is not None:
        function._retained_output_data = tuple([
            array if function.outputs[i]() is node else a
            for i, a in zip(function._output_indexes_to_retain, function._retained_output_data, strict=True)])


def _located(outputs: Any, where: str) -> None:
    """Say of the function that made ``outputs`` where the user's code had applied it."""
    file, _, line = where.rpartition(":")
    if line.isdigit() and outputs and outputs[0].creator_node is not None:
        frame = traceback.FrameSummary(file, int(line), "the static function", lookup_line=False)
        outputs[0].creator_node.stack = [frame]


def _replace(y: Any, place: Any) -> Variable:
    """Let ``place`` be the node of ``y`` in the graph; returns the Variable of that node."""
    own = y.node
    function: Any = own.creator_node
    if function is None:
        place.creator_node = None
        return y
    function.outputs = tuple([weakref.ref(place) if r() is own else r for r in function.outputs])
    place.creator_node = function
    if own.data is not None:  # what uses the result may hold on to its array already
        place.data = own.data
    variable = place.get_variable_or_none()
    if variable is None:  # the result is referenced no more, but its node is still part of the graph
        y._node = place
        place._variable = weakref.ref(y)
        return y
    return variable
