"""Marks of pytest that say what a test needs: a GPU, cuDNN, ChainerX, several GPUs, or much time.

>>> from kusari.testing import attr
>>> @attr.slow
... def test_everything(): ...
>>> [mark.name for mark in test_everything.pytestmark]
['slow']
"""

from __future__ import annotations

import functools
import importlib
import unittest
from collections.abc import Callable
from typing import Any

from .. import environment

__all__ = ["check_available", "chainerx", "cudnn", "get_error", "gpu", "ideep", "is_available", "multi_gpu", "nccl",
           "slow"]

chainerx: Any
cudnn: Any
ideep: Any
nccl: Any
slow: Any


@functools.cache
def _imported() -> Any:
    """The module pytest, which only tests need; or the error of importing it."""
    try:
        return importlib.import_module("pytest")
    except ImportError as error:
        return error


def get_error() -> ImportError | None:
    """Return the error of importing pytest; None where it is there."""
    return _imported() if isinstance(_imported(), ImportError) else None


def is_available() -> bool:
    """Return whether pytest is there."""
    return get_error() is None


def check_available() -> None:
    """Raise RuntimeError unless pytest is there."""
    if not is_available():
        raise RuntimeError(f"{__name__} needs pytest, which is not installed: {get_error()}")


def multi_gpu(gpu_num: int) -> Callable[[Any], Any]:
    """Mark a test that needs a number of GPUs; it is skipped beyond ``KUSARI_TEST_GPU_LIMIT``, where that is set."""
    check_available()
    limit = int(environment.text("TEST_GPU_LIMIT", "-1"))

    def mark(test: Any) -> Any:
        return unittest.skipIf(0 <= limit < gpu_num, f"{gpu_num} GPUs required")(_imported().mark.gpu(test))

    return mark


def gpu(f: Any) -> Any:
    """Mark a test that needs a GPU."""
    return multi_gpu(1)(f)


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}; it has {', '.join(__all__)}")
    check_available()
    return getattr(_imported().mark, name)
