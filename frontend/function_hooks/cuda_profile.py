"""`CUDAProfileHook`: marks functions in the timeline of NVIDIA's profilers."""
from __future__ import annotations

from typing import Any

from ..backends import cuda
from ..function_hook import FunctionHook


class CUDAProfileHook(FunctionHook):
    """Surrounds each function with a named range that NVIDIA's profilers show.

    Raises:
        DeviceError: There is no CuPy or no card.
    """

    name = "CUDAProfileHook"

    def __init__(self) -> None:
        cuda.check_cuda_available()

    def forward_preprocess(self, function: Any, in_data: tuple[Any, ...]) -> None:
        """Open a range."""
        cuda.cupy.cuda.nvtx.RangePush(f"{function.label}.forward")

    def forward_postprocess(self, function: Any, in_data: tuple[Any, ...]) -> None:
        """Close the range."""
        cuda.cupy.cuda.nvtx.RangePop()

    def backward_preprocess(self, function: Any, in_data: tuple[Any, ...], out_grad: tuple[Any, ...]) -> None:
        """Open a range."""
        cuda.cupy.cuda.nvtx.RangePush(f"{function.label}.backward")

    def backward_postprocess(self, function: Any, in_data: tuple[Any, ...], out_grad: tuple[Any, ...]) -> None:
        """Close the range."""
        cuda.cupy.cuda.nvtx.RangePop()
