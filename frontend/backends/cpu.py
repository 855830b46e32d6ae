"""NumPy on the processor."""
from __future__ import annotations

from typing import Any

import numpy

from ..device import Device
from . import cuda


class CpuDevice(Device):
    """The processor, with NumPy arrays.

    Example:
        >>> CpuDevice()
        <CpuDevice (numpy)>
        >>> str(CpuDevice())
        '@numpy'
    """

    xp = numpy
    supported_array_types = (numpy.ndarray,)

    @property
    def name(self) -> str:
        """``@numpy``."""
        return "@numpy"

    def __repr__(self) -> str:
        return "<CpuDevice (numpy)>"

    @staticmethod
    def from_array(array: Any) -> CpuDevice | None:
        """Return the device of a NumPy array, and None for anything else."""
        return CpuDevice() if isinstance(array, numpy.ndarray) else None

    def send_array(self, array: Any) -> Any:
        """Return a NumPy array; a NumPy array is returned as it is."""
        return cuda.array_to_cpu(array)
