"""Backwards through a static call and its tail, joined into one schedule.

A backward is found by its structure: the functions, their inputs, and which inputs want gradients. It reads the arrays
that define-by-run's own backward would read: those retained by functions or kept by the call, and parameters, as they
are at the backward.
"""
from __future__ import annotations

import heapq
import weakref
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from kusari.ir import Builder, Graph, Node, TensorType, Value, copied, tensor_type

from ...backprop import go_on
from ...epochs import Given, Traced
from ...function_node import FunctionNode
from ...graph_walks import gradients_given
from ...variable import Variable
from ...variable_node import VariableNode
from ..arrays.bindings import CallBinding
from ..compile.compile import compile_graph
from ..errors import NotCompilable, Stale
from ..mode import may_run
from ..replay.arguments import arguments_of
from ..replay.receiving import receive
from ..replay.static_call import StaticCall
from .follow import Tail, TailFunction

if TYPE_CHECKING:
    from ..card.place import CardPlace

MOST_FUNCTIONS = 2048      # that one backward goes through
MOST_BACKWARDS = 16        # compiled, or tried, for the tail of one schedule
SEEN_STRUCTURES = 256      # remembered after the first time
_STRIDE_OUTPUTS = 1 << 20  # outputs of one function are numbered below that
_SEEN: Any = object()
_APART: Any = object()


@dataclass(eq=False, slots=True)
class Walk:
    """The graph behind a variable: its functions, the sources of their inputs, and its leaves.

    ``wires`` has for each input -1 where no gradient is wanted, below that a leaf, else function and output in one.
    Results of functions outside of the tail count as leaves (``partial``); none depends on any of ``functions``.
    """

    functions: list[Any]
    wires: list[list[int]]
    leaves: list[VariableNode]
    key: Any
    partial: bool


def walk_from(start: FunctionNode) -> Walk | None:
    """Walk the graph behind ``start``; None if a function in the middle of it is not in the tail."""
    functions: list[Any] = [start]
    numbers: dict[Any, int] = {start: 0}
    leaves: dict[VariableNode, int] = {}
    places: dict[int, dict[Any, int]] = {}
    key: list[Any] = []
    wires: list[list[int]] = []
    others: list[FunctionNode] = []
    for function in functions:
        inputs, kind = function.inputs, function._kind
        if inputs is None or kind is None or function._tail is None or function._local_function_hooks or function.cuts:
            return None
        key.append(kind)
        if type(function) is StaticCall:
            inputs = inputs[:len(function.call.schedule.wanted_leaves)]
        own: list[int] = []
        for x in inputs:
            if not x.requires_grad:
                own.append(-1)
                continue
            creator = x.creator_node
            if creator is None or creator._kind is None:
                if creator is not None:
                    others.append(creator)
                own.append(-2 - leaves.setdefault(x, len(leaves)))
                continue
            number = numbers.get(creator)
            if number is None:
                number = numbers[creator] = len(functions)
                if number >= MOST_FUNCTIONS:
                    return None
                functions.append(creator)
            outputs = creator.outputs or ()
            if len(outputs) > 1:
                if number not in places:
                    places[number] = {r(): j for j, r in enumerate(outputs)}
                number += places[number][x] * _STRIDE_OUTPUTS
            own.append(number)
        key += own
        wires.append(own)
    partial = bool(others)
    if partial and _depend(others, numbers):
        return None
    return Walk(functions, wires, list(leaves), tuple(key), partial)


def _depend(functions: list[Any], on: dict[Any, int]) -> bool:
    """Whether any of ``functions`` depends on one of ``on``, as far as gradients go."""
    seen: set[Any] = set()
    while functions:
        function = functions.pop()
        if function in on or function.cuts or len(seen) > MOST_FUNCTIONS:
            return True
        if function not in seen:
            seen.add(function)
            functions += [x.creator_node for x in function.inputs or () if x.creator_node is not None]
    return False


def backward_from(y: Variable) -> bool:
    """Do all of ``y.backward()`` in one schedule, if the graph behind ``y`` has one; returns whether it did."""
    node: Any = y._node
    start = node.creator_node
    tail: Tail = start._tail
    if not may_run(following=True):
        return False
    found = walk_from(start)
    if found is None or Given.ever and any([gradients_given(f, (node,)) for f in found.functions]):
        return False
    gy = y.grad
    if gy is None:
        if y._array.size != 1:
            return False
    elif not tail.holds(gy) or gy.shape != y._array.shape or gy.dtype != y._array.dtype:
        return False
    key = found.key, _place(start, y)
    joined = tail.joined.get(key)
    if joined is None or joined is _SEEN:
        joined = tail.joined[key] = _made(tail, joined, found, key)
    if joined is _SEEN or joined is _APART:
        return False
    return joined.run(found, y, gy)


def _place(function: Any, y: Variable) -> int:
    outputs, node = function.outputs, y._node
    return 0 if outputs[0]() is node else next(j for j, r in enumerate(outputs) if r() is node)


def _made(tail: Tail, before: Any, walk: Walk, key: Any) -> Any:
    """Compile the first whole structure when it is seen, others when they are seen for the second time."""
    if before is None and (tail.tried or walk.partial):
        if len(tail.joined) >= SEEN_STRUCTURES:
            for k, j in list(tail.joined.items()):
                if type(j) is not JointBackward:
                    tail.joined.pop(k, None)
        Traced.version = object()
        return _SEEN
    if tail.tried >= MOST_BACKWARDS:
        return _APART
    tail.tried += 1
    try:
        made = JointBackward(walk, key[1], tail.place)
    except NotCompilable as error:
        tail.apart[f"the backward through {_labels(walk)}"] = str(error)
        return _APART
    joined = tail.joined

    def forget(_: Any) -> None:
        joined.pop(key, None)
    # It goes when any of the schedules goes that it is made of.
    others = {f._tail for f in walk.functions} - {tail}
    made.others = [weakref.ref(other, forget) for other in others]
    return made


def _labels(walk: Walk) -> str:
    return ", ".join(dict.fromkeys(f.label for f in walk.functions))


class JointBackward:
    """One backward through several functions and static calls.

    Invariant: it holds neither a graph of define-by-run nor arrays of callers, except for the gradients that it
    returned last: once they are referenced no more, they are written to again.
    """

    def __init__(self, walk: Walk, output: int, place: CardPlace | None) -> None:
        made = _JointGraph(walk)
        made.start(output)
        y = walk.functions[0].outputs[output]()
        self._one = np.ones(y.shape, y.dtype) if place is None else place.ones(y.shape, y.dtype)  # never written to
        self.others: list[Any] = []
        self.text = _labels(walk)
        self.sources = made.sources
        # The static calls of whose arguments or parameters views are read.
        self._viewing = [k for k, f in enumerate(walk.functions) if type(f) is StaticCall and (
            f.call.schedule.viewed_inputs or f.call.schedule.viewed_parameters)]
        self._bindings = tuple(made.params.values())
        grads = made.results()
        self.receivers = [who for who, _ in grads]
        graph = Graph("backward_from_" + walk.functions[0].label.lower().replace(" ", "_"), tuple(made.inputs),
                      tuple(made.params), tuple(made.consts), tuple(made.b.nodes),
                      tuple(v for _, v in grads))
        families = [f.call.schedule.recording.family for f in walk.functions if type(f) is StaticCall]
        self.native = compile_graph(graph, copy_in=0, copy_out=0, place=place,
                                    family=families[0] if families else None)
        # What calls keep lies where it lay in the last step: on a card it is not copied to where kernels read it.
        self._options = {} if place is None else {
            "bound": frozenset([i for i, (how, _, _) in enumerate(made.sources) if how == "kept"])}
        first = arguments_of(self.native, self._bindings, **self._options)
        self._shared = first.shared_results()
        self.free = [first]

    def run(self, walk: Walk, y: Variable, gy: Any) -> bool:
        """Run it and store the gradients; returns False, and has done nothing, if its assumptions do not hold."""
        arrays = self._arrays(walk.functions, self._one if gy is None else gy)
        if arrays is None:
            return False
        try:
            arguments = self.free.pop()
        except IndexError:
            arguments = arguments_of(self.native, self._bindings, **self._options)
        try:
            grads = arguments.run(arrays)
        except (Stale, ValueError):
            return False
        self.free.append(arguments)
        for i in self._shared:
            grads[i] = grads[i].copy()
        y._grad = y._grad_var = None
        self._hand_out(walk, grads)
        return True

    def _arrays(self, functions: list[Any], gy: Any) -> list[Any] | None:
        """Return the arrays that it reads, as they are now; None if one is not there."""
        if self._viewing and any([functions[k].arrays_now() is None for k in self._viewing]):
            return None
        arrays: list[Any] = []
        for how, k, i in self.sources:
            array = gy if how == "seed" else _source(functions[k], how, i)
            if array is None:
                return None
            arrays.append(array)
        return arrays

    def _hand_out(self, walk: Walk, grads: list[Any]) -> None:
        """Add the gradients to those of parameters and leaves; behind results of other functions go on."""
        variables: list[Any] = []
        further: list[Any] = []
        for who, gx in zip(self.receivers, grads, strict=True):
            node = walk.leaves[who] if type(who) is int else None
            if node is not None and node.creator_node is not None:
                further.append((node, gx))
            variables.append(who if node is None else None if node.creator_node is not None
                             else node.get_variable_or_none())
        receive(variables, grads)
        if further:
            go_on(further)


def _source(function: Any, how: str, i: int) -> Any:
    """Return an array that gradients of a function read; None if it has none of the right type now."""
    if how == "input":
        return function.inputs[i].data
    if how == "output":
        node = function.outputs[i]()
        array = None if node is None else node.data
        return function._retained_output_data[function._output_indexes_to_retain.index(i)] if array is None else array
    if how == "given" or how == "result":
        now = function.arrays_now() if how == "given" else function.results_now()
        return None if now is None else now[i]
    own = function.call.arguments
    if how == "param":
        return own.bound(i)
    array = own.kept(i)
    return own.current(i, function.arrays) if array is None else array


class _JointGraph:
    """Puts the gradients of all functions into one graph, in the order of the engine of define-by-run."""

    def __init__(self, walk: Walk) -> None:
        self.walk = walk
        self.b = Builder("joined")
        self.inputs: list[Value] = []
        self.sources: list[tuple[str, int, int]] = []
        self.params: dict[Value, Any] = {}
        self.consts: list[tuple[Value, Any]] = []
        self._known: dict[Any, Value] = {}
        self._retained: dict[int, Value] = {}  # by wire
        self._grads: dict[Any, Value] = {}  # by wire, and by parameter
        self._parameters: dict[int, Any] = {}
        self._heap: list[tuple[int, int, int]] = []
        self._seen: set[int] = set()

    def start(self, place: int) -> None:
        """Append the whole backward from output ``place`` of the first function."""
        y = self.walk.functions[0].outputs[place]()
        self._grads[place * _STRIDE_OUTPUTS] = self._input("seed", 0, place, tensor_type(y.dtype, y.shape))
        self._push(0)
        while self._heap:
            k = heapq.heappop(self._heap)[2]
            function = self.walk.functions[k]
            gys = [self._grads.pop(k + j * _STRIDE_OUTPUTS, None) for j in range(len(function.outputs))]
            if type(function) is StaticCall:
                self._static_call(k, function, gys)
            else:
                self._function(k, function._kind, gys)

    def results(self) -> list[tuple[Any, Value]]:
        """The owners of the gradients: leaves by number, and parameters."""
        return [(self._parameters[w[1]] if isinstance(w, tuple) else -2 - w, v) for w, v in self._grads.items()]

    def _push(self, k: int) -> None:
        if k not in self._seen:
            self._seen.add(k)
            heapq.heappush(self._heap, (-self.walk.functions[k].rank, len(self._seen), k))

    def _input(self, how: str, k: int, i: int, kind: TensorType) -> Value:
        """Return the value of an input of the graph."""
        value = self._known.get((how, k, i))
        if value is None:
            value = self._known[how, k, i] = Value(kind, how)
            self.inputs.append(value)
            self.sources.append((how, k, i))
        return value

    def _read(self, how: str, k: int, i: int, kind: TensorType, wire: int) -> Value:
        """Return the input for the retained variable at ``wire``: one, however many functions retain it."""
        if wire == -1:
            return self._input(how, k, i, kind)
        value = self._retained.get(wire)
        if value is None:
            value = self._retained[wire] = self._input(how, k, i, kind)
        return value

    def _receive(self, wire: Any, gradient: Value) -> None:
        before = self._grads.get(wire)
        self._grads[wire] = gradient if before is None else self.b.call("add", before, gradient)
        if isinstance(wire, int) and wire >= 0:
            self._push(wire % _STRIDE_OUTPUTS)

    def _copy(self, nodes: Sequence[Node], env: dict[Value, Value]) -> None:
        """Append copies of ``nodes``, with their operands mapped by ``env``."""
        if any(n.has_effect for n in nodes):
            raise NotCompilable("a part has effects")
        self.b.nodes += copied(nodes, env)

    def _function(self, k: int, kind: TailFunction, gys: list[Any]) -> None:
        wires = self.walk.wires[k]
        wanted = tuple(dict.fromkeys([p for p, w in zip(kind.places, wires, strict=True) if w != -1]))
        given = tuple([g is not None for g in gys])
        found = kind.backward(given, wanted) if wanted and any(given) else None
        if found is None:
            raise NotCompilable(f"{kind.text} has no compiled gradient")
        function = self.walk.functions[k]
        graph = kind.graph
        assert graph is not None
        reads = found.reads
        env: dict[Value, Value] = {s: g for s, g in zip(found.seeds, gys, strict=True) if s is not None}
        for i, p in enumerate(kind.places):
            v = kind.inputs[p]
            if v in reads and v not in env:
                if function.inputs[i].data is None:
                    raise NotCompilable(f"{kind.text} has not retained an input that its gradient reads")
                env[v] = self._read("input", k, i, v.tensor, wires[i])
        for j, v in enumerate(graph.outputs):
            if v in reads:
                env[v] = self._read("output", k, j, v.tensor, k + j * _STRIDE_OUTPUTS)
        self._constants(found.consts, env)
        self._copy(found.nodes, env)
        for p, g in zip(wanted, found.grads, strict=True):
            if g is not None:
                self._receive(wires[kind.places.index(p)], env[g])

    def _static_call(self, k: int, function: StaticCall, gys: list[Any]) -> None:
        """Append the compiled backward of a static call, which reads what the call kept."""
        schedule = function.call.schedule
        differentiable = schedule.recording.differentiable
        seeds = dict(zip([i for i, d in enumerate(differentiable) if d], gys, strict=True))  # by result
        compiled = schedule.backward_for(tuple([seeds.get(i) is not None for i in range(len(differentiable))]))
        if compiled is None or schedule.checkpointed or any(
                not isinstance(v.type, TensorType) for _, v in compiled.saved):
            raise NotCompilable(f"{function.label} computes values again or keeps more than arrays")
        graph = compiled.graph
        kept = len(schedule.outputs.values)  # the number of the first array that the call keeps
        operands = [
            *[seeds[i] for i in compiled.seeds],
            *[self._result(k, function, v, j) for j, v in compiled.read],
            *[self._input("kept", k, kept + i, v.tensor) for i, v in compiled.saved]]
        operands += [self._input("given", k, i, v.tensor)
                     for i, v in zip(compiled.inputs, graph.inputs[len(operands):], strict=True)]
        env: dict[Value, Value] = dict(zip(graph.inputs, operands, strict=True))
        env.update((v, self._param(v, k, function, i)) for v, i in zip(graph.params, compiled.params, strict=True))
        self._constants(graph.consts, env)
        self._copy(graph.nodes, env)
        receivers = [*self.walk.wires[k], *schedule.wanted_parameters]
        present = [r for r, there in zip(receivers, compiled.present, strict=True) if there]
        for receiver, v in zip(present, graph.outputs, strict=True):
            if isinstance(receiver, int):
                self._receive(receiver, env[v])
            else:
                self._parameters[id(receiver)] = receiver
                self._receive(("parameter", id(receiver)), env[v])

    def _result(self, k: int, function: StaticCall, value: Value, j: int) -> Value:
        """Return a result that the call reads; where another function retains it, both are one input."""
        place = function.call.schedule.outputs.read[value].node
        retained = None if place < 0 else self._retained.get(k + place * _STRIDE_OUTPUTS)
        return self._input("result", k, j, value.tensor) if retained is None else retained

    def _param(self, value: Value, k: int, function: StaticCall, number: int) -> Value:
        """Return the param of a binding, one for all static calls that read it; of a persistent array each has its own.
        """
        binding = function.call.binding(number)
        if isinstance(binding, CallBinding):
            return self._input("param", k, number, value.tensor)
        known = self._known.get(id(binding))
        if known is None:
            known = self._known[id(binding)] = Value(value.type, value.hint)
            self.params[known] = binding
        return known

    def _constants(self, consts: Sequence[tuple[Value, Any]], env: dict[Value, Value]) -> None:
        for v, array in consts:
            env[v] = Value(v.type, v.hint)
            self.consts.append((env[v], array))
