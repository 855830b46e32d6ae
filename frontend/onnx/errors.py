"""Errors and warnings of exporting: branches of the tree in ``kusari.errors``."""
from __future__ import annotations

from typing import Any

from ..errors import KusariError


class ExportError(KusariError, RuntimeError, ValueError):
    """A model cannot be exported; the message names the user's line, the reason and the way out."""


class UnsupportedFunctionsError(ExportError):
    """Functions of the model have no ONNX form; ``functions`` lists each as ``(label, where, reason)``."""

    def __init__(self, message: str, functions: list[tuple[str, str, str]]) -> None:
        super().__init__(message)
        self.functions = functions


class DataReadError(ExportError):
    """The model cannot be exported, as it reads data that are computed of its arguments."""


class OpsetError(ExportError):
    """There is no such opset, or not with this exporter."""


class InputShapesError(ExportError):
    """``input_shapes`` or ``dynamic_shapes`` do not fit the arguments."""


class MismatchError(ExportError):
    """The exported model computes something else than define-by-run does."""


class MissingExtraError(ExportError, ImportError):
    """The package `onnx` is not installed."""


class ExportFileError(ExportError, OSError):
    """The file cannot be written; nothing is left behind. ``errno``, ``strerror`` and ``filename`` are the system's."""

    def __new__(cls, *args: Any) -> ExportFileError:
        return OSError.__new__(cls, *args)  # that of the other base knows nothing of them

    def __str__(self) -> str:
        return f"{self.strerror}: {self.filename!r}" if self.filename else str(self.args[0])


class OnnxRuntimeWarning(UserWarning):
    """ONNX Runtime has no kernel for something that ONNX allows; the file is right but may not run everywhere."""


class NoForm(Exception):
    """Internal: an operator is not to be had here; the message is the reason. Never leaves the exporter."""
