"""Variables on devices: where their arrays lie, and moving them."""
from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

from . import backend
from .backends import chainerx as _chainerx
from .backends import cuda
from .backends.chainerx import is_chainerx_array
from .errors import DeviceError

if TYPE_CHECKING:
    from .variable import Variable

__all__ = ["VariableDevices"]


class VariableDevices:
    """The methods of a Variable that are about devices."""

    _array: Any
    _grad: Any
    _grad_var: Any
    _gradient: Any
    array: Any

    def to_cpu(self) -> None:
        """Move array and gradient to the processor."""
        self.to_device(backend.CpuDevice())

    def to_gpu(self, device: Any = None) -> None:
        """Move array and gradient to a graphics card.

        Args:
            device: The number of the card; None means the current one.

        Raises:
            DeviceError: There is no CuPy or no card.
        """
        cuda.check_cuda_available()
        self.to_device(backend.GpuDevice(cuda.Device() if device is None else cuda.Device(device)))

    def to_device(self, device: Any) -> None:
        """Move array and gradient to a device.

        Args:
            device: What `kusari.get_device` understands.
        """
        device = backend.get_device(device)
        grad = self._gradient()
        self._grad_var = None
        if self._array is not None:
            self.array = device.send(self._array)
        self._grad = device.send(grad)

    def to_intel64(self) -> None:
        """Refuse: there is no iDeep, NumPy arrays are what the processor works with."""
        raise DeviceError("iDeep is not available. Use to_cpu() instead.")

    @property
    def chx_array(self) -> Any:
        """The array of ChainerX, with its place in the graph; `array` has none.

        Raises:
            ValueError: The array is not one of ChainerX.
        """
        if self._array is None:
            return None
        if not is_chainerx_array(self._array):
            raise ValueError("chx_array is there for arrays of ChainerX; call to_chx() first")
        return _chainerx.variables.connected(self)

    def _join(self, array: Any) -> None:
        """Take the place that an array of ChainerX has in its graph."""
        _chainerx.variables.join(self, array)

    def as_layout(self, layout: Any) -> Variable:
        """Return the variable: its elements have one order, whatever layout of cuDNN's is asked for."""
        return cast("Variable", self)

    def to_chx(self) -> None:
        """Turn array and gradient into ChainerX's, which share their memory; an uninitialized parameter will be one."""
        device = cast("Variable", self).device
        if not isinstance(device, backend.ChainerxDevice):
            self.to_device(backend.ChainerxDevice.from_fallback_device(device))

    def from_chx(self) -> None:
        """Turn array and gradient of ChainerX into NumPy's or CuPy's, which share their memory."""
        device = cast("Variable", self).device
        if isinstance(device, backend.ChainerxDevice):
            self.to_device(device.fallback_device)
