"""ONNX Runtime, on the file that Kusari exported; loading it is part of the first call."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import onnxruntime

from .case import Case, magnitude

_session: list[Any] = []


def build(case: Case) -> tuple[Callable[[int], Any], Callable[[int, Any], float]]:
    """The step of inference."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = case.threads
    options.inter_op_num_threads = 1
    feed = {f"x{i}": x for i, x in enumerate(case.inputs)}

    def infer(i: int) -> Any:
        if not _session:
            _session.append(onnxruntime.InferenceSession(str(case.onnx), options, ["CPUExecutionProvider"]))
        return _session[0].run(None, feed)

    return infer, lambda i, y: magnitude(y)


def threads() -> str:
    """The threads inside an operator."""
    return str(_session[0].get_session_options().intra_op_num_threads)


def version() -> str:
    """The library's version."""
    return onnxruntime.__version__
