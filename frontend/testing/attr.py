"""Marks of pytest that say what a test needs: a GPU, cuDNN, ChainerX, several GPUs, or much time.

>>> from kusari.testing import attr
>>> @attr.slow
... def test_everything(): ...
>>> [mark.name for mark in test_everything.pytestmark]
['slow']
"""

from __future__ import annotations

from typing import Any

__all__ = ["chainerx", "cudnn", "gpu", "ideep", "multi_gpu", "nccl", "slow"]

chainerx: Any
cudnn: Any
gpu: Any
ideep: Any
multi_gpu: Any
nccl: Any
slow: Any


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}; it has {', '.join(__all__)}")
    import pytest  # only tests need it

    return getattr(pytest.mark, name)
