"""`CUDAProfileHook`: marks functions in the timeline of NVIDIA's profilers."""
from __future__ import annotations

import weakref
from typing import Any

from ..backends import cuda
from ..callsite import short, user_location
from ..function_hook import FunctionHook


class CUDAProfileHook(FunctionHook):
    """Surrounds each function with a range that NVIDIA's profilers show, named by it and the line that applies it.

    ``ReLU.forward model.py:31`` is followed by ``ReLU.backward model.py:31``.

    Raises:
        DeviceError: There is no CuPy or no card.
    """

    name = "CUDAProfileHook"

    def __init__(self) -> None:
        cuda.check_cuda_available()
        self._lines: weakref.WeakKeyDictionary[Any, str] = weakref.WeakKeyDictionary()

    def forward_preprocess(self, function: Any, in_data: tuple[Any, ...]) -> None:
        """Open a range."""
        line = self._lines[function] = short(user_location())
        cuda.cupy.cuda.nvtx.RangePush(f"{function.label}.forward {line}")

    def forward_postprocess(self, function: Any, in_data: tuple[Any, ...]) -> None:
        """Close the range."""
        cuda.cupy.cuda.nvtx.RangePop()

    def backward_preprocess(self, function: Any, in_data: tuple[Any, ...], out_grad: tuple[Any, ...]) -> None:
        """Open a range."""
        line = self._lines.get(function)
        cuda.cupy.cuda.nvtx.RangePush(f"{function.label}.backward{'' if line is None else f' {line}'}")

    def backward_postprocess(self, function: Any, in_data: tuple[Any, ...], out_grad: tuple[Any, ...]) -> None:
        """Close the range."""
        cuda.cupy.cuda.nvtx.RangePop()
