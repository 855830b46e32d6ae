"""Opsets and the IR versions that are pinned to them, and the packages that exporting needs."""
from __future__ import annotations

import importlib
from typing import Any

from .errors import MissingExtraError, OpsetError

DEFAULT_OPSET = 18

# The IR version of the first onnx release with the opset: what every runtime that knows the opset can load.
IR_VERSIONS = {9: 4, 10: 5, 11: 6, 12: 7, 13: 7, 14: 7, 15: 8, 16: 8, 17: 8, 18: 8, 19: 9, 20: 9, 21: 10, 22: 10,
               23: 11, 24: 12, 25: 13, 26: 13}

MINIMUM_OPSET_VERSION = min(IR_VERSIONS)
MAXIMUM_OPSET_VERSION = max(IR_VERSIONS)


def checked_opset(opset: Any) -> int:
    """Return the opset to write; raises ``OpsetError``."""
    if opset is None:
        return DEFAULT_OPSET
    if isinstance(opset, bool) or not isinstance(opset, int) or opset not in IR_VERSIONS:
        raise OpsetError(f"opset_version must be an int between {MINIMUM_OPSET_VERSION} and {MAXIMUM_OPSET_VERSION}, "
                         f"got {opset!r}; leave it out for {DEFAULT_OPSET}")
    return opset


def require_onnx() -> Any:
    """Import and return the package ``onnx``; raises ``MissingExtraError``."""
    try:
        return importlib.import_module("onnx")
    except ImportError as error:
        raise MissingExtraError(
            f"exporting needs the package onnx, which cannot be imported ({error}); it comes with the extra `onnx`: "
            "pip install kusari[onnx]") from error


def optional_runtime() -> Any:
    """Import and return the package ``onnxruntime``, or None."""
    try:
        return importlib.import_module("onnxruntime")
    except ImportError:
        return None
