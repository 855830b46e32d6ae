"""Schedules: the compiled forward and backward of one recording, and the graph node that joins them."""
from __future__ import annotations

import operator
import warnings
import weakref
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from kusari.ir import Builder, Graph, Node, Trait, Value, behind
from kusari.passes import Kept, choose_kept

from ...callsite import user_stacklevel
from ...configuration import config
from ...variable import Variable, output_variable
from ...variable_node import VariableNode
from ..arrays.aliasing import ForwardOutputs, Read, shown_in, through_views
from ..arrays.bindings import ParameterBinding
from ..compile.checkpointing import Checkpointing, checkpointed_forward
from ..compile.compile import Compiled, compile_graph
from ..compile.families import Trial
from ..compile.memory import SPEED
from ..errors import NotCompilable, StaticGraphWarning
from ..gradients.differentiate import LEFT_OUT, ZEROS, Backward, differentiate, wanted_values
from ..room import Free, close_all
from ..trace import random_state
from ..trace.effects import Filled
from ..trace.python_nodes import OPAQUE_GRADIENT, runs_once
from ..trace.recording import Recording
from ..trees import ARRAY, VARIABLE, array_of, leaf_kinds, unflatten
from .arguments import arguments_of
from .calls import Call
from .ranks import Ranks
from .static_call import StaticCall

if TYPE_CHECKING:
    from ..follow.follow import Tail
    from .fast_path import Replay

MOST_SURPRISING_CALLS = 16  # after which gradients that functions of the user's give are not foreseen any more


class Schedule:
    """A compiled recording; calling it with the leaves of the arguments replays it.

    Invariant: every call in flight has frames of its own, so results are never overwritten and any number of calls
    may precede their backwards.
    """

    fault = None
    updated = False  # whether its parameters have been updated when a call is over

    def __init__(self, recording: Recording, backprop: bool, memory: str | float = SPEED) -> None:
        self.recording = recording
        graph = recording.graph
        self.wanted = wanted_values(recording) if backprop and any(recording.differentiable) else ()
        self.backwards: dict[tuple[bool, ...], CompiledBackward | None] = {}
        self.kept = Kept(())
        self.saved: tuple[Value, ...] = ()  # what stays in the frame of a call
        full: Backward | None = None
        reads: list[Value] = []
        viewed: frozenset[Value] = frozenset()
        if self.wanted:
            everything = differentiate(recording, recording.differentiable, self.wanted, ZEROS)
            full, viewed = through_views(recording, everything)
            reads = [*full.reads]
        self.outputs = outputs = ForwardOutputs(recording, reads)
        if full is not None:
            self.kept = self._choose_kept(full)
            self.saved = self.kept.saved
            repeated = [n for n in graph.nodes if runs_once(n) or recording.place is not None and _draws(n)]
            self.saved += tuple(v for n in repeated for v in n.outputs if v not in self.saved)
        whole = Graph(graph.name, graph.inputs, graph.params, graph.consts, graph.nodes + self.kept.copies,
                      outputs.values + self.saved)
        self.forward: Any = self._compile(whole)
        self._state = self._state_reader() if self.wanted else None
        self._full = full
        self.trial = Trial.of(self.forward)
        self._checkpointing: Checkpointing | None = None
        if full is not None and memory != SPEED:
            self.forward, self._checkpointing = checkpointed_forward(self, whole, memory)
            self.backwards = {given: self._checkpointed(b) for given, b in self.backwards.items()}
        self.own_python = full is not None and any(n.op is OPAQUE_GRADIENT for n in full.nodes)
        self._surprises = 0
        self.surprising = False  # whether gradients are define-by-run's: those of the user's functions come and go
        if self.own_python:  # what is derived from now on leaves out what they have not given
            self._full = None
            self.backwards.clear()
        self.tail: Tail | None = None  # what follows its calls, if it is to be compiled
        self.free: list[Any] = []
        self.waiting = Free()
        self.fast: Replay | None = None  # for calls as it last had one
        self._find_leaves(reads, viewed)
        self._states = recording.states
        self.check = recording.check
        self.single = recording.differentiable == (True,)
        self._filled = Filled(recording.result, recording.graph, recording.bindings)
        self._shown = [(s.number, self._array_of(s.source), s) for s in shown_in(recording)]
        # Whether a call is nothing but its run: no states to read, no random numbers or arrays to look after.
        self.plain = self._identical and not (self._states or self._state or self._filled.targets or self._shown)
        self._one: Any = None
        self.simple = recording.result is VARIABLE and graph.outputs[0] not in recording.leaves

    def _find_leaves(self, reads: Sequence[Value], viewed: frozenset[Value]) -> None:
        """Note which leaves and parameters are inputs, are read by gradients, or want them."""
        recording, graph = self.recording, self.recording.graph
        first = recording.first_leaves()
        self._input_leaves = tuple(first[v] for v in graph.inputs)
        self._identical = self._input_leaves == tuple(range(len(recording.leaves)))
        known = set(reads)
        self._givers = tuple((i, j) for i, j in enumerate(self._input_leaves)
                             if recording.variables[j] and graph.inputs[i] in known)
        # Arguments and parameters that gradients read views of, by their numbers.
        self.viewed_inputs = frozenset([i for i, v in enumerate(graph.inputs) if v in viewed])
        self.viewed_parameters = tuple([(i, b.parameter) for i, (v, b) in enumerate(zip(
            graph.params, recording.bindings, strict=True)) if v in viewed and isinstance(b, ParameterBinding)])
        self.wanted_leaves = tuple(first[v] for v in self.wanted if v in first)
        self._ranks = Ranks(recording, [v for v in self.wanted if v in first])
        parameters = {v: p for v, p in recording.parameters}
        self.wanted_parameters = [parameters[v] for v in self.wanted if v not in first]
        for p in self.wanted_parameters:
            p.is_static = True  # its gradients come from here: the optimizer compiles its update too

    def _array_of(self, source: Value) -> Callable[[Sequence[Any]], Any]:
        """Return a function that returns the array of an input or a param, given those of all inputs."""
        graph = self.recording.graph
        if source in graph.inputs:
            return operator.itemgetter(graph.inputs.index(source))
        binding = self.recording.bindings[graph.params.index(source)]
        return lambda _: binding.array()

    def show(self, results: list[Any], arrays: Sequence[Any]) -> None:
        """Put the views of arguments and bound arrays among the results of a call on ``arrays``."""
        for number, array_of_source, view in self._shown:
            results[number] = view(array_of_source(arrays))

    def _choose_kept(self, full: Backward) -> Kept:
        """Choose the values that the forward keeps for its backwards."""
        return choose_kept(self.recording.graph, full.nodes, full.present, changing=self.outputs.changing)

    def _compile(self, whole: Graph) -> Any:
        """Compile the forward."""
        return compile_graph(whole, self.saved, place=self.recording.place,
                             family=self.recording.family)

    def _state_reader(self) -> Any:
        """Return a reader of NumPy's random state, as far as recorded functions depend on it; None if they do not."""
        nodes = self.forward.plan.graph.nodes
        drawn = {n.attrs["dist"] for n in nodes if n.op.traits & Trait.RANDOM}
        if not self.recording.draws:
            return None
        simple = drawn and drawn <= {"rand", "random_sample", "uniform"} and not any(
            n.op.traits & Trait.OPAQUE for n in nodes)
        return random_state.position if simple else random_state.complete

    def _compile_backward(self, part: Backward) -> CompiledBackward:
        """Compile a backward."""
        found = CompiledBackward(self.recording, part, self.saved, self.outputs.read)
        first = len(self.outputs.values)
        if self._checkpointing is None:
            found.forward = self.forward, {k: first + i for k, (i, _) in enumerate(
                found.saved, len(found.seeds) + len(found.read))}
        return found

    def new_call(self) -> Call:
        """Return the frames of one call."""
        return Call(self)

    def backward_for(self, given: tuple[bool, ...]) -> CompiledBackward | None:
        """Return the backward for gradients at the outputs ``given`` marks; None when the saved values are too few."""
        if given not in self.backwards:
            part = self._full if given == self.recording.differentiable else None
            if part is None:
                part, _ = through_views(self.recording, self._differentiate(given))
            again = behind(self.kept.again, [v for n in part.nodes for v in n.inputs])
            nodes = (*again, *part.nodes)
            made = {v for n in self.recording.graph.nodes for v in n.outputs}
            reads = {v for n in nodes for v in n.inputs if v in made}.difference(v for n in nodes for v in n.outputs)
            there = {*self.saved, *self.outputs.read}
            found = self._compile_backward(replace(part, nodes=nodes)) if reads <= there else None
            self.backwards[given] = self._checkpointed(found)
        return self.backwards[given]

    def _differentiate(self, given: tuple[bool, ...]) -> Backward:
        """Derive the gradients, as far as functions of the user's give any."""
        return differentiate(self.recording, given, self.wanted, LEFT_OUT)

    def learn(self) -> None:
        """Derive gradients anew, as functions of the user's have given others than expected."""
        self.backwards.clear()
        for call in self.free:
            call.forget()
        self._surprises += 1
        self.surprising = self._surprises >= MOST_SURPRISING_CALLS

    def give_up(self, reason: NotCompilable) -> None:
        """Leave gradients to define-by-run from now on, with one warning."""
        if not self.surprising:
            warnings.warn(f"{self.recording.name} is compiled, its gradients run define-by-run: {reason}",
                          StaticGraphWarning, stacklevel=user_stacklevel())
        self.surprising = True

    def _checkpointed(self, backward: CompiledBackward | None) -> CompiledBackward | None:
        """The same backward with recomputation; None if it needs more than is kept then."""
        return backward if backward is None or self._checkpointing is None else self._checkpointing(backward)

    @property
    def checkpointed(self) -> bool:
        """Whether backwards compute again what the forward has not kept."""
        return self._checkpointing is not None

    def computed_again(self, in_flight: Any, arrays: Sequence[Any]) -> dict[Value, Any]:
        """Compute the values that a call on ``arrays`` would save without checkpoints."""
        assert self._checkpointing is not None
        values, compiled, used, final = self._checkpointing.again(self.saved)
        first, call = len(self.outputs.values), in_flight.arguments
        kept = [call.current(first + i, arrays) if (a := call.kept(first + i)) is None else a for i in used]
        graph = self.recording.graph
        given = dict(zip(graph.inputs, arrays, strict=True))
        numbers = {v: i for i, v in enumerate(graph.params)}
        run = arguments_of(compiled, [in_flight.binding(numbers[v]) for v in final.params]).run
        return dict(zip(values, run([*kept, *[given[v] for v in final.inputs[len(kept):]]]), strict=True))

    @property
    def returned(self) -> int:
        """How many of the outputs are returned, and not stored."""
        result = self.recording.result
        return len(leaf_kinds(result[2][0] if result[0] == "stored" else result))

    def one(self, like: Any) -> Any:
        """The gradient of one that a backward starts with: the same array every time, never written to."""
        one = self._one
        if one is None or one.shape != like.shape or one.dtype != like.dtype:
            place = self.recording.place
            one = self._one = np.ones_like(like) if place is None else place.ones(like.shape, like.dtype)
        return one

    def __call__(self, leaves: Sequence[Any]) -> Any:
        self._filled.require_apart(leaves)
        if self._states:
            leaves = [*leaves, *[holder[name] for holder, name in self._states]]
        arrays = [x if type(x) is np.ndarray else array_of(x) for x in leaves]
        if not self._identical:
            arrays = [arrays[i] for i in self._input_leaves]
        backprop = config.enable_backprop
        try:
            call = self.free.pop()
        except IndexError:
            call = self.new_call()
        state = self._state() if self._state is not None and backprop else None
        results = call.arguments.run(arrays)
        if self._shown:
            self.show(results, arrays)
        if not self.wanted or not backprop:
            self.free.append(call)
            if self.simple:
                return output_variable(results[0], self.recording.requires_grad[0])
            return self.tree(results, leaves)
        return self.connect(call, arrays, results, leaves, state)

    def connect(self, call: Call, arrays: Sequence[Any], results: list[Any], leaves: Sequence[Any],
                 state: Any = None) -> Any:
        """Make the call part of the graph of define-by-run."""
        function: Any = StaticCall()
        function.call = call
        function.arrays = arrays
        if self.outputs.read:
            function.results = [results[i] for i in self.outputs.held]
        if self._givers:
            function.givers = givers = [(i, leaves[j].node) for i, j in self._givers]
            for i, node in givers:
                node.data = arrays[i]
        tail = self.tail
        if tail is not None:
            function._tail, function._kind = tail, tail.mark
        if state is not None:
            function.state = state
        nodes = [p._node or p.node for p in self.wanted_parameters]
        rank, ranks = 0, self._ranks.lowest  # a parameter's rank is 0, as it is a leaf
        if self.wanted_leaves:
            given = [leaves[i].node for i in self.wanted_leaves]
            nodes = given + nodes
            rank = max([n.rank for n in given])
            if rank:
                ranks = self._ranks.above([n.rank for n in given])
        function.inputs = tuple(nodes)
        function.rank = rank
        variables: list[Any] = []
        references: list[Any] = []
        recording = self.recording
        for array, differentiable, requires_grad, distance in zip(  # noqa: B905  # results may go on
                results, recording.differentiable, recording.requires_grad, ranks):
            y: Any = output_variable(array, requires_grad)
            variables.append(y)
            if differentiable:
                node = VariableNode(y)
                node.creator_node = function
                node.rank = distance
                y._node = node
                references.append(weakref.ref(node))
        function.outputs = tuple(references)
        call.function = weakref.ref(function, call.recycle)
        if self.simple:
            return variables[0]
        return self.tree(variables, leaves)

    def tree(self, results: Sequence[Any], leaves: Sequence[Any]) -> Any:
        kinds = leaf_kinds(self.recording.result)
        graph_inputs = {v: i for i, v in enumerate(self.recording.leaves)}
        out: list[Any] = []
        same = self.recording.same
        for i, kind in enumerate(kinds):
            if same and i in same:
                out.append(out[same[i]])
                continue
            given = graph_inputs.get(self.recording.graph.outputs[i])
            x = results[i] if given is None else leaves[given]  # which is that argument, as in define-by-run
            if kind is VARIABLE and not isinstance(x, Variable):
                x = output_variable(x, self.recording.requires_grad[i])
            out.append(array_of(x) if kind is ARRAY else x)
        return unflatten(self.recording.result, iter(out))

    @property
    def compiled(self) -> list[Compiled]:
        """Everything compiled for this schedule so far: the forward, then the backwards."""
        return [self.forward, *(c for b in self.backwards.values() if b is not None and (c := b.compiled) is not None)]

    @property
    def own_backward(self) -> CompiledBackward | None:
        """The backward for gradients of all that is returned; those of what is stored are rarely asked for."""
        recording = self.recording
        return self.backward_for(recording.differentiable) if self.wanted and recording.result[0] != "stored" else None

    @property
    def schedule(self) -> Schedule:
        """The schedule itself, as it is an entry that is compiled."""
        return self

    def elsewhere(self) -> list[tuple[str, list[str]]]:
        """Return titles and lines on the programs of a schedule that runs elsewhere; empty for others."""
        return []

    def release(self) -> None:
        """Release the frames that are not in flight."""
        self.fast = None
        close_all(self.free)
        if self.tail is not None:
            self.tail.release()

    @property
    def nbytes(self) -> int:
        """Bytes of all frames."""
        own = sum(c.executable.report.held for c in self.compiled)
        return own if self.tail is None else own + self.tail.nbytes


def _draws(node: Node) -> bool:
    """Whether a function draws random numbers."""
    if node.op.lower is None:
        return False
    b = Builder()
    node.op.lower(b, node.attrs, *node.inputs)
    return any(n.op.traits & Trait.RANDOM for n in b.nodes)


class CompiledBackward:
    """A backward graph: seeds and saved values in, gradients out; compiled when it is needed."""

    compiled: Any = None
    forward: Any = None  # that is compiled, and which of its outputs are inputs here

    def __init__(self, recording: Recording, backward: Backward, saved: tuple[Value, ...],
                 read: Mapping[Value, Read]) -> None:
        graph, reads = recording.graph, backward.reads
        seeds = [(i, v) for i, v in enumerate(backward.seeds) if v is not None and v in reads]
        self.seeds = tuple(i for i, _ in seeds)
        self.read = tuple((k, v) for k, v in enumerate(read) if v in reads)  # results, as they are then
        self.saved = tuple((i, v) for i, v in enumerate(saved) if v in reads and v not in read)
        self.inputs = tuple(i for i, v in enumerate(graph.inputs) if v in reads)
        self.params = tuple(i for i, v in enumerate(graph.params) if v in reads)
        consts = tuple((v, a) for v, a in (*graph.consts, *backward.consts) if v in reads)
        self.present = tuple(g is not None for g in backward.grads)
        whole = Graph(
            f"{graph.name}_backward",
            (*(v for _, v in (*seeds, *self.read, *self.saved)), *(graph.inputs[i] for i in self.inputs)),
            tuple(graph.params[i] for i in self.params), consts, backward.nodes, backward.present)
        self.recording = recording
        self.graph = whole

    def ensure(self) -> Any:
        """Return the graph compiled."""
        if self.compiled is None:
            self.compiled = self._compile()
        return self.compiled

    def _compile(self) -> Any:
        return compile_graph(self.graph, copy_in=0, copy_out=0, place=self.recording.place,
                             family=self.recording.family, forward=self.forward)
