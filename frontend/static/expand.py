"""Replays become define-by-run's graph where somebody wants to look into it.

The gradient of a gradient, the gradient of one result with respect to another, ``retain_grad``, and gradients of what
is left where some results were cut off are all about what lies between the arguments and the results of a call. So the
recorded functions are applied once more to the arguments of that call, with the random numbers of that call, and the
nodes that this makes take the place of the one node of the replay.
"""
from __future__ import annotations

import copy
import traceback
import weakref
from typing import TYPE_CHECKING, Any

import numpy as np

from kusari.ir import Value

from .. import tape as _tape
from ..backprop import unchain_behind
from ..configuration import using_config
from ..functions.math.identity import Identity
from ..variable import Variable
from .arrays.overlap import Spans
from .errors import StaticGraphError
from .trace import random_state
from .trace.bindings import ParameterBinding
from .trace.side_effects import STATIC_CODE
from .trace.tape import recording

if TYPE_CHECKING:
    from .static_call import StaticCall


def expand(call: StaticCall, twice: bool = False) -> None:
    """Put the functions that ``call`` stands for in its place in the graph.

    Nothing outside changes: neither persistent state nor random numbers are advanced again, and the results stay the
    arrays they are. Where a whole step has updated the parameters, what first gradients read is what the step has kept;
    for gradients of gradients (``twice``) that need not be enough: ``StaticGraphError`` is raised.
    """
    recorded = call.call.schedule.recording
    if twice and call.call.schedule.updated:
        raise StaticGraphError(
            f"gradients of gradients are asked for through a call of {recorded.name} whose parameters "
            "optimizer.update(lossfun, ...) has updated since, in one schedule with that call. Ask for them before the "
            "update, with loss.backward() and optimizer.update(), or run it with config.use_static_graph = False")
    kept = {b.array().ctypes.data: (b.array(), b.array().copy()) for b in recorded.bindings
            if not isinstance(b, ParameterBinding) and isinstance(b.array(), np.ndarray)}
    now = random_state.complete() if call.state is not None else None
    hooks = _tape.current.function_hooks
    if hooks:  # they have seen the call, or were not there
        _tape.current.function_hooks = {}
    try:
        if call.state is not None:
            random_state.put(call.state)
        with recording(None), using_config("enable_backprop", True), using_config("debug", False):
            _Expansion(call).run()
    finally:
        if hooks:
            _tape.current.function_hooks = hooks
        if now is not None:
            random_state.put(now)
        for array, before in kept.values():
            if array.flags.writeable:
                array[...] = before
    call.inputs = None  # type: ignore[assignment]  # it is not part of the graph any more
    call.outputs = None


class _Expansion:
    """The functions of one call being applied again.

    Invariant: ranks lie between that of the call and the next, so whatever uses its results comes before all of them.
    """

    def __init__(self, call: StaticCall) -> None:
        self.call = call
        recorded = call.call.schedule.recording
        self.graph = graph = recorded.graph
        self.detached = recorded.detached
        self.env: dict[Value, Variable] = {v: Variable(a, requires_grad=False)
                                           for v, a in zip(graph.inputs, call.arrays, strict=True)}
        for value, binding in zip(graph.params, recorded.bindings, strict=True):
            self.env[value] = (binding.parameter if isinstance(binding, ParameterBinding)
                               else Variable(binding.array(), requires_grad=False))
        self.env.update((v, Variable(a, requires_grad=False)) for v, a in graph.consts)
        given = dict(zip(graph.inputs, call.arrays, strict=True))
        for value, node in zip(call.call.schedule.wanted, call.inputs or (), strict=True):
            self.env[value] = node.get_variable()
            if self.env[value]._array is None:  # nobody holds it but this call
                self.env[value]._array = given[value]
        # Variables that have got other arrays since: functions were applied to the former ones.
        self.replaced = [(v, v._array, given[value]) for value, v in self.env.items()
                         if value in given and v._array is not given[value]]
        for i, node in call.givers:
            value, giver = graph.inputs[i], node.get_variable_or_none()
            if giver is not None and giver is not self.env[value] and giver._array is not given[value]:
                self.replaced.append((self.env[value], giver._array, given[value]))
        # The places of results in the graph, as far as somebody still holds them.
        it = iter(call.outputs or ())
        places = [next(it)() if d else None for d in recorded.differentiable]
        self.places: dict[Value, list[Any]] = {}
        for value, node in zip(graph.outputs, places, strict=True):
            if node is not None:
                self.places.setdefault(value, []).append(node)
        schedule = call.call.schedule
        self.saved: set[Value] = set(schedule.saved) if schedule.updated else set()
        self.given = Spans([*call.arrays, *(b.array() for b in recorded.bindings)]) if self.saved else Spans(())
        self.step = 1 / (len(graph.nodes) + len(places) + 2)
        self.rank: float = call.rank

    def run(self) -> None:
        """Apply everything."""
        for variable, _, before in self.replaced:
            variable._array = before
        for value in [v for v in self.places if v in self.env]:  # an argument or a parameter is a result
            self._further(value)
        for node in self.graph.nodes:
            function = node.attrs.get("function")
            if function is None:  # side-effect code has run: what it gave is used, and nothing is reported twice
                if node.op is STATIC_CODE:
                    self.env.update((v, Variable(self.call.kept(v), requires_grad=False)) for v in node.outputs)
                continue
            outputs = copy.copy(function).apply(tuple([self.env[v] for v in node.inputs]))
            for value, y in zip(node.outputs, outputs, strict=False):  # what it computes from updated parameters
                if value in self.saved:
                    self._fill(y, self.call.kept(value))
            self._ranked(outputs)
            _located(outputs, node.where)
            for value, y in zip(node.outputs, outputs, strict=False):  # an opaque node has a token, too
                cut = value in self.detached
                self.env[value] = Variable(y._array, requires_grad=False) if cut else y
                if not cut and value in self.places:
                    self.env[value] = _replace(y, self.places[value].pop(0))
                    self._further(value)

        for variable, now, _ in self.replaced:
            variable.array = now
        for value, everything in self.call.cuts:  # they are in the graph, but as leaves
            node = self.env[value].node
            unchain_behind(node) if everything else node.unchain()

    def _fill(self, y: Variable, content: Any) -> None:
        """Let a computed value be what it was; views of parameters follow those in define-by-run, too."""
        if self.given.touch(y._array):
            return
        if y._array.flags.writeable:
            y._array[...] = content
        else:  # one element in many places
            y._array = content

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


def _located(outputs: Any, where: str) -> None:
    """Say of the function that made ``outputs`` where the user's code had applied it."""
    file, _, line = where.rpartition(":")
    if line.isdigit() and outputs and outputs[0].creator_node is not None:
        frame = traceback.FrameSummary(file, int(line), "the static function", lookup_line=False)
        outputs[0].creator_node.stack = [frame]


def _replace(y: Variable, place: Any) -> Variable:
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
    if variable is None:  # nobody holds the result, but its node is still part of the graph
        y._node = place
        place._variable = weakref.ref(y)
        return y
    return variable
