"""Sessions of ONNX Runtime in place of compiled schedules: ``static_graph(backend="onnxruntime")``.

Forward, backward and whole training steps are graphs, and any graph may be a session. Parts without a form in ONNX
stay with Python: random numbers are drawn before a session runs, and are inputs; values that a graph assigns to its
params are outputs, and are copied when it has run.
"""
from __future__ import annotations

import importlib.util
from collections.abc import Callable, Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np

from kusari.ir import Builder, Graph, Node, Value

from ..static.errors import NotCompilable, Stale
from ..static.gradients.differentiate import Backward
from ..static.replay.calls import InFlight
from ..static.replay.schedule import CompiledBackward, Schedule
from ..static.step.step import Step
from ..static.step.step_results import StepResults
from ..static.trace import random_state
from ..static.trace.recording import Recording
from .errors import ExportError, MissingExtraError
from .exporter import Export
from .trace import Call
from .versions import DEFAULT_OPSET, optional_runtime


def require_packages() -> None:
    """Raise ``MissingExtraError`` unless onnx and onnxruntime are there; imports neither."""
    missing = [name for name in ("onnx", "onnxruntime") if importlib.util.find_spec(name) is None]
    if missing:
        raise MissingExtraError(f'static_graph(backend="onnxruntime") needs {" and ".join(missing)}, of the extra '
                                "`onnx`: pip install kusari[onnx]")


def _drawn_outside(graph: Graph) -> tuple[Graph, list[Node]]:
    """Return the graph with its random numbers as further inputs, and the nodes that draw them, in order."""
    from kusari.passes import lower

    effects = {n.op.name for n in lower(graph).nodes if n.has_effect}
    if effects <= {"assign"}:
        return graph, []
    now: dict[Value, Value] = {}
    nodes: list[Node] = []
    draws: list[Node] = []
    for node in graph.nodes:
        inputs = tuple(now.get(v, v) for v in node.inputs)
        parts = [node]
        if node.op.lower is not None:
            b = Builder(node.where)
            made = node.op.lower(b, node.attrs, *inputs)
            if made is not None and any(n.op.name == "random" for n in b.nodes):
                parts = b.nodes
                now.update(zip(node.outputs, (made,) if isinstance(made, Value) else made, strict=True))
        if parts == [node]:
            parts = [replace(node, inputs=inputs)]
        for part in parts:
            if part.op.name == "random":
                draws.append(part)
            elif part.has_effect and part.op.name != "assign":
                raise ExportError(f"{part.where}: {part.op.name} runs Python")
            else:
                nodes.append(part)
    return Graph(graph.name, (*graph.inputs, *(n.output for n in draws)), graph.params, graph.consts, tuple(nodes),
                 tuple(now.get(v, v) for v in graph.outputs)), draws


class _Replay(Export):
    """A graph on its way to a model whose inputs are those of the graph; what it assigns are further outputs."""

    trains = True

    def __init__(self, recording: Recording, whole: Graph, bindings: Sequence[Any]) -> None:
        # A leaf that was given twice is one input.
        self._given = replace(recording, graph=whole, leaves=whole.inputs)
        self._bindings = bindings
        inputs = tuple(f"x{i}" for i in range(len(whole.inputs)))
        super().__init__(Call(None, None, (), inputs, False), DEFAULT_OPSET, {}, {}, [
            f"y{i}" for i in range(len(whole.outputs))] or None)
        self.assigned = [name for name in self.bound if name in self.g.writes]
        self.made += [self.g.writes[name] for name in self.assigned]
        self.output_names = (*self.output_names, *(f"new_{name}" for name in self.assigned))

    def traced(self) -> tuple[Recording, Any]:
        """Return the recording that is there already."""
        return self._given, [np.empty(0)] * len(self._given.graph.outputs)

    def graph(self) -> tuple[Graph, Sequence[Any], list[str]]:
        """Return the graph that was given."""
        return self._given.graph, self._bindings, [f"p{i}" for i in range(len(self._bindings))]


class Session:
    """A graph as a session: the common part of its `Runs`.

    Raises ``ExportError`` if ONNX has no form for the graph, or ONNX Runtime cannot run it.
    """

    def __init__(self, recording: Recording, whole: Graph, bindings: Sequence[Any]) -> None:
        # A value that goes out several times is made once, one that only passes through is not made here at all.
        given = {v: i for i, v in enumerate(whole.inputs)}
        made = [v for v in dict.fromkeys(whole.outputs) if v not in given]
        places = {v: i for i, v in enumerate(made)}
        self.sources = [("input", given[v]) if v in given else ("made", places[v]) for v in whole.outputs]
        graph, self.draws = _drawn_outside(replace(whole, outputs=tuple(made)))
        writer = _Replay(recording, graph, bindings)
        self.model = writer.model(False, whole.name)
        self.made = [(name, v.shape, v.tensor.dtype)
                     for name, v in zip(writer.output_names, graph.outputs, strict=False)]
        at = {name: (b, v.tensor) for name, b, v in zip(writer.bound, bindings, graph.params, strict=True)}
        self.params = [(name, *at[name]) for name in writer.bound if name in writer.parameters]
        self.assigned = [(f"new_{name}", *at[name]) for name in writer.assigned]
        read = {n for node in self.model.graph.node for n in node.input}
        self.inputs = [f"x{i}" if f"x{i}" in read else None for i in range(len(graph.inputs))]
        from kusari.ir.threads import thread_limit

        runtime = optional_runtime()
        options = runtime.SessionOptions()
        options.log_severity_level = 4  # what goes wrong is raised
        options.intra_op_num_threads = thread_limit()
        try:
            self.live = runtime.InferenceSession(
                self.model.SerializeToString(), options, providers=["CPUExecutionProvider"])
        except Exception as error:
            raise ExportError(f"ONNX Runtime {runtime.__version__} cannot run it: {error}") from None


def _nothing() -> None:
    """The placeholder of a function that was not given."""


class Runs:
    """One binding of a session's inputs and outputs to the arrays of callers and parameters; nothing is copied in.

    Invariant: what is bound has the dtype and shape that was traced (else ``Stale``), and is alive while it runs.
    Arrays that are not contiguous, of which pointers say too little, are copied. Outputs from ``returned`` on are
    buffers that every run overwrites; the others are new arrays. ``ready`` is called before it runs.
    """

    frame = SimpleNamespace(failed=None)  # as other schedules' calls have one

    def __init__(self, session: Session, returned: int | None = None, ready: Callable[[], None] = _nothing,
                 params: Sequence[Any] | None = None) -> None:
        self._session = session
        self._ready = ready
        self._io = io = session.live.io_binding()
        self._params = [[name, b, t, None, None] for name, b, t in (session.params if params is None else params)]
        fresh = {i for kind, i in session.sources[:returned] if kind == "made"}
        # StepResults that are one value are arrays of their own to those who get them.
        outputs = session.sources[:returned]
        self._repeated = [i for i, source in enumerate(outputs) if source[0] == "made" and source in outputs[:i]]
        self._fresh = [(i, *session.made[i]) for i in sorted(fresh)]
        self._made: list[Any] = [None if i in fresh else np.empty(shape, dtype)
                                 for i, (_, shape, dtype) in enumerate(session.made)]
        for (name, _, _), y in zip(session.made, self._made, strict=True):
            if y is not None:
                _bind(io.bind_output, name, y)
        self._assigned = [(b, np.empty(t.shape, t.dtype)) for _, b, t in session.assigned]
        for (name, _, _), (_, y) in zip(session.assigned, self._assigned, strict=True):
            _bind(io.bind_output, name, y)

    def bound(self, binding: Any) -> Any:
        """Return the array of a binding that the last run has read; None where it is not read, or was copied."""
        return next((known for _, b, _, known, _ in self._params if b is binding), None)

    def run(self, arrays: Sequence[Any]) -> list[Any]:
        """Run the session on one array per input; returns the outputs."""
        io, session = self._io, self._session
        for entry in self._params:
            name, binding, kind, known, _ = entry
            now = binding.array()
            if now is not known:
                if type(now) is not np.ndarray or now.shape != kind.shape or now.dtype != kind.dtype:
                    raise Stale(f"expected {kind!r} for {name}, got "
                                f"{getattr(now, 'dtype', type(now))}{getattr(now, 'shape', '')}")
                entry[4] = bound = _bind(io.bind_input, name, now)
                entry[3] = now if bound is now else None  # a copy is made again at every call
        if session.draws:
            arrays = [*arrays, *(x for node in session.draws for x in node.op.call(node.attrs))]
        held = [_bind(io.bind_input, name, x) for name, x in zip(session.inputs, arrays, strict=True)
                if name is not None]
        self._ready()
        made = self._made
        for i, name, shape, dtype in self._fresh:
            made[i] = np.empty(shape, dtype)
            _bind(io.bind_output, name, made[i])
        session.live.run_with_iobinding(io)
        for binding, new in self._assigned:
            binding.array()[...] = new
        del held
        outputs = [arrays[i] if kind == "input" else made[i] for kind, i in session.sources]
        for i in self._repeated:
            outputs[i] = outputs[i].copy()
        for i, *_ in self._fresh:
            made[i] = None  # the caller's
        return outputs


def _bind(bind: Any, name: str, x: Any) -> Any:
    """Bind an array by its address; returns the one that has to stay alive."""
    if not x.flags.c_contiguous:
        x = np.array(x, order="C")
    bind(name, "cpu", 0, x.dtype, x.shape, x.ctypes.data)
    return x


class SessionBackward(CompiledBackward):
    """A backward graph as a session."""

    def _compile(self) -> Any:
        return Session(self.recording, self.graph, [self.recording.bindings[i] for i in self.params])


class SessionSchedule(Schedule):
    """A schedule whose forward and backward run in ONNX Runtime.

    Raises ``ExportError`` where ONNX cannot say what the recording does.
    """

    def __init__(self, recording: Recording, backprop: bool) -> None:
        super().__init__(recording, backprop)
        backward = self.own_backward
        if backward is not None:  # now, as ONNX may not have what it does
            backward.ensure()

    def _compile(self, whole: Graph) -> Any:
        return Session(self.recording, whole, self.recording.bindings)

    def _compile_backward(self, part: Backward) -> Any:
        return SessionBackward(self.recording, part, self.saved, self.outputs.read)

    def new_call(self) -> Any:
        return SessionCall(self)

    def _state_reader(self) -> Any:
        return random_state.complete if self.recording.draws else None

    @property
    def _sessions(self) -> list[Session]:
        return [self.forward, *(c for b in self.backwards.values() if b is not None and (c := b.compiled) is not None)]

    @property
    def compiled(self) -> list[Any]:
        """Nothing: the runtime does not tell."""
        return []

    @property
    def nbytes(self) -> int:
        """Bytes of the models, constants included; what the runtime allocates it does not tell."""
        return sum(s.model.ByteSize() for s in self._sessions)

    def elsewhere(self) -> list[tuple[str, list[str]]]:
        """Return titles and lines on the models."""
        return [(f"{s.model.graph.name} runs in ONNX Runtime, {len(s.model.graph.node)} nodes of opset {DEFAULT_OPSET}",
                 [f"{i:4}  {node.op_type}{f'  # {node.doc_string}' if node.doc_string else ''}"
                  for i, node in enumerate(s.model.graph.node)]) for s in self._sessions]


class SessionCall(InFlight):
    """One call in flight: what its forward left for its backward."""

    def __init__(self, schedule: SessionSchedule) -> None:
        self.schedule = schedule
        self.arguments = self  # as other schedules' calls have them
        self.function: Any = None
        self._runs = Runs(schedule.forward, len(schedule.outputs.values))
        self._kept: list[Any] = []
        self._backwards: dict[tuple[bool, ...], tuple[Any, Runs, tuple[int, ...]]] = {}

    def run(self, arrays: Sequence[Any]) -> list[Any]:
        """Run the forward; returns the results."""
        outputs = self._runs.run(arrays)
        of = self.schedule.outputs
        n = len(of.values)
        self._kept = outputs[n:]
        for i, (at, show) in of.views.items():
            outputs[i] = show(outputs[at])
        return outputs[:n]

    def close(self) -> None:
        """ONNX Runtime looks after its memory itself."""

    def fast_path(self, *_: Any) -> None:
        """Nothing runs faster than ``run``."""

    def kept(self, position: int) -> Any:
        """Nothing is at the same place in every call."""

    def current(self, position: int, arrays: Sequence[Any]) -> Any:
        """Return the array that output ``position`` was, counted from the results on."""
        return self._kept[position - len(self.schedule.outputs.values)]

    def bound(self, number: int) -> Any:
        """Return the array that param ``number`` was bound to in the last run; None where the model does not read it.
        """
        return self._runs.bound(self.schedule.recording.bindings[number])

    def recycle(self, _: Any) -> None:
        """Go back to the schedule."""
        self._kept = []
        self.schedule.free.append(self)

    def gradients(self, arrays: Sequence[Any], gys: list[Any], given: tuple[bool, ...],
                  results: Sequence[Any] = (), before: Sequence[Any] = ()) -> list[Any]:
        """Run the backward and return one array (or None) per wanted value."""
        if given not in self._backwards:
            self._backwards[given] = self._backward(given)
        backward, runs, filled = self._backwards[given]
        outputs = self.schedule.recording.graph.outputs
        gys = [np.zeros(outputs[i].shape, outputs[i].tensor.dtype) if i in filled else g for i, g in enumerate(gys)]
        found = runs.run([*(gys[i] for i in backward.seeds), *(results[k] for k, _ in backward.read),
                          *(self._kept[i] for i, _ in backward.saved), *(arrays[i] for i in backward.inputs)])
        for i, (kind, _) in enumerate(backward.compiled.sources):
            if kind == "input":  # a seed, or what the forward has kept
                found[i] = found[i].copy()
        it = iter(found)
        return [next(it) if present else None for present in backward.present]

    def _backward(self, given: tuple[bool, ...]) -> tuple[Any, Runs, tuple[int, ...]]:
        schedule = self.schedule
        backward = schedule.backward_for(given)
        filled: tuple[int, ...] = ()
        if backward is None:  # what a backward of its own would need was not kept
            every = schedule.recording.differentiable
            backward = schedule.backward_for(every)
            assert backward is not None
            filled = tuple(i for i, d in enumerate(every) if d and not given[i])
        numbers = {b: i for i, b in enumerate(schedule.recording.bindings)}
        session = backward.ensure()
        params = [(name, self.binding(numbers[b]), t) for name, b, t in session.params]
        return backward, Runs(session, params=params), filled


class SessionStep(Step):
    """A whole training step in a session: forward, backward and update."""

    plain = True

    def __init__(self, optimizer: Any, recording: Recording, memory: str | float = "speed") -> None:
        super().__init__(optimizer, recording, memory)
        self.program.advance()
        try:
            self._compile()
        except ExportError as error:
            raise NotCompilable(str(error)) from None
        finally:
            self.program.retreat()

    def _results(self) -> StepResults:
        if any(self.recording.differentiable[1:]):
            raise NotCompilable("a result is stored with its graph")
        return super()._results()

    def _compile_step(self, whole: Graph, bindings: Sequence[Any]) -> tuple[Any, Callable[[], Any]]:
        session = Session(self.recording, whole, bindings)
        first = 0 if self.results is None else len(self.results.outputs.values)
        self._shared = [i for i, (kind, _) in enumerate(session.sources) if kind == "input" and i >= first]
        return session, lambda: Runs(session, ready=self._clear)
