"""Versions and devices, for bug reports."""
from __future__ import annotations

import importlib.metadata
import platform
import sys
from typing import TextIO

from . import __version__

API_VERSION = "7.8.1"
"""The version of Chainer whose API this is: ``chainer.__version__`` under the alias."""

_PACKAGES = ("numpy", "numba", "llvmlite", "onnx", "onnxruntime", "cupy")


def runtime_info() -> str:
    """The lines that `print_runtime_info` prints."""
    rows = {"Platform": platform.platform(), "Python": platform.python_version(), "kusari": __version__,
            "API of Chainer": API_VERSION}
    for name in _PACKAGES:
        try:
            rows[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            rows[name] = "not installed"
    return "".join([f"{name}: {value}\n" for name, value in rows.items()])


def print_runtime_info(out: TextIO | None = None) -> None:
    """Print the platform and the versions of Kusari and of what it works with.

    Args:
        out: A file to print to; standard output by default.
    """
    (out or sys.stdout).write(runtime_info())
