"""Modules that are called like the function in them, as ``onnx_chainer.export`` is both."""
from __future__ import annotations

import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any


def callable_as(name: str, function: Callable[..., Any]) -> None:
    """Let the module ``name`` be called as ``function``."""
    kind = type("CallableModule", (ModuleType,), {"__call__": staticmethod(function)})
    sys.modules[name].__class__ = kind
