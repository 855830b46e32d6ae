"""Sessions of ONNX Runtime in place of compiled schedules: ``static_graph(backend="onnxruntime")``."""
from __future__ import annotations

import importlib.util
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from kusari.ir import Graph

from ..static.arguments import Stale
from ..static.recording import Recording
from ..static.schedule import Schedule
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


class _Replay(Export):
    """A recording on its way to a model whose inputs are those of its graph, followed by its params."""

    def __init__(self, recording: Recording, whole: Graph) -> None:
        # A leaf that was given twice is one input.
        self._given = replace(recording, graph=whole, leaves=whole.inputs)
        names = tuple(f"x{i}" for i in range(len(whole.inputs)))
        super().__init__(Call(None, None, (), names, False), DEFAULT_OPSET, {}, {}, None)

    def traced(self) -> tuple[Recording, Any]:
        """Return the recording that is there already."""
        return self._given, [np.empty(0)] * len(self._given.graph.outputs)


_EFFECTS = {"random": "random numbers are drawn", "assign": "state is written"}


class SessionSchedule(Schedule):
    """A schedule whose forward runs in ONNX Runtime; for calls that need no gradients.

    Raises ``ExportError`` where ONNX cannot say what the recording does, random numbers and written state included.
    """

    def __init__(self, recording: Recording) -> None:
        super().__init__(recording, backprop=False)

    def _compile(self, whole: Graph) -> Any:
        from kusari.passes import lower

        effect = next((node for node in lower(whole).nodes if node.has_effect), None)
        if effect is not None:
            raise ExportError(f"{effect.where}: {_EFFECTS.get(effect.op.name, f'{effect.op.name} runs Python')}")
        writer = _Replay(self.recording, whole)
        self.model = writer.model(False, whole.name)
        self.bound = [(name, b, v.tensor) for name, b, v in zip(
            writer.bound, self.recording.bindings, whole.params, strict=True) if name in writer.parameters]
        runtime = optional_runtime()
        options = runtime.SessionOptions()
        options.log_severity_level = 4  # what goes wrong is raised
        try:
            self.session = runtime.InferenceSession(
                self.model.SerializeToString(), options, providers=["CPUExecutionProvider"])
        except Exception as error:
            raise ExportError(f"ONNX Runtime {runtime.__version__} cannot run it: {error}") from None

    def _new_call(self) -> Any:
        return SessionCall(self)

    @property
    def compiled(self) -> list[Any]:
        """Nothing: the runtime does not tell."""
        return []

    @property
    def nbytes(self) -> int:
        """Bytes of the model, constants included; what the runtime allocates it does not tell."""
        return self.model.ByteSize()

    def explain(self) -> str:
        """Return a report."""
        nodes = "\n".join(f"{i:4}  {node.op_type}{f'  # {node.doc_string}' if node.doc_string else ''}"
                          for i, node in enumerate(self.model.graph.node))
        return f"runs in ONNX Runtime, {len(self.model.graph.node)} nodes of opset {DEFAULT_OPSET}\n{nodes}"


class SessionCall:
    """One binding of a session's inputs and outputs to the arrays of callers and parameters; nothing is copied.

    Invariant: what is bound has the dtype and shape that was traced (else ``Stale``), and is alive while it runs.
    Arrays that are not contiguous, of which pointers say too little, are copied.
    """

    def __init__(self, schedule: SessionSchedule) -> None:
        self.arguments = self  # as other schedules' calls have them
        self._session = schedule.session
        self._io = schedule.session.io_binding()
        graph = schedule.recording.graph
        self._inputs = [f"x{i}" for i in range(len(graph.inputs))]
        self._params = [[name, b, t, None, None] for name, b, t in schedule.bound]
        self._outputs = [(info.name, v.shape, v.tensor.dtype)
                         for info, v in zip(schedule.model.graph.output, graph.outputs, strict=True)]

    def run(self, arrays: Sequence[Any]) -> list[Any]:
        """Run the session on one array per input; returns the outputs, new arrays."""
        io = self._io
        held = [_bind(io.bind_input, name, x) for name, x in zip(self._inputs, arrays, strict=True)]
        for entry in self._params:
            name, binding, kind, known, _ = entry
            now = binding.array()
            if now is not known:
                if type(now) is not np.ndarray or now.shape != kind.shape or now.dtype != kind.dtype:
                    raise Stale(f"expected {kind!r} for {name}, got "
                                f"{getattr(now, 'dtype', type(now))}{getattr(now, 'shape', '')}")
                entry[4] = bound = _bind(io.bind_input, name, now)
                entry[3] = now if bound is now else None  # a copy is made again at every call
        outputs = [np.empty(shape, dtype) for _, shape, dtype in self._outputs]
        for (name, _, _), y in zip(self._outputs, outputs, strict=True):
            _bind(io.bind_output, name, y)
        self._session.run_with_iobinding(io)
        del held
        return outputs


def _bind(bind: Any, name: str, x: Any) -> Any:
    """Bind an array by its address; returns the one that has to stay alive."""
    if not x.flags.c_contiguous:
        x = np.array(x, order="C")
    bind(name, "cpu", 0, x.dtype, x.shape, x.ctypes.data)
    return x
