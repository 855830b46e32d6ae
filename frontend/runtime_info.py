"""Versions and devices, for bug reports."""
from __future__ import annotations

import importlib.metadata
import platform
import sys
from typing import TextIO

from . import __version__

_PACKAGES = ("numpy", "numba", "llvmlite", "onnx", "onnxruntime", "cupy")


def print_runtime_info(out: TextIO | None = None) -> None:
    """Print the platform and the versions of Kusari and of what it works with.

    Args:
        out: A file to print to; standard output by default.
    """
    rows = {"Platform": platform.platform(), "Python": platform.python_version(), "kusari": __version__}
    for name in _PACKAGES:
        try:
            rows[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            rows[name] = "not installed"
    for name, value in rows.items():
        print(f"{name}: {value}", file=out or sys.stdout)
