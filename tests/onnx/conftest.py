"""Modules whose tests need the extra ``onnx``: they are skipped where that is not installed."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import pytest


class NeedsOnnx(pytest.Module):
    """A module that is not imported without ONNX and ONNX Runtime."""

    def collect(self) -> Iterable[pytest.Item | pytest.Collector]:
        pytest.importorskip("onnx")
        pytest.importorskip("onnxruntime")
        return super().collect()


def pytest_pycollect_makemodule(module_path: Path, parent: pytest.Collector) -> pytest.Module:
    """Make what collects the tests of one file."""
    return NeedsOnnx.from_parent(parent, path=module_path)
