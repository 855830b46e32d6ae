"""`DeviceResident`: the base of links, which can be sent from device to device."""

from __future__ import annotations

import warnings
from typing import Any

from .. import backend
from ..backends import cuda
from .namespace import entries_of
from .walk import WatchedNamespace

__all__ = ["DeviceResident", "DeviceVisitor"]

_MOVES = ("to_cpu", "to_gpu", "to_intel64")  # may be overridden, as they were before there were devices


class DeviceVisitor:
    """Sends the arrays of a link to a device; see :meth:`Link.device_resident_accept`."""

    def __init__(self, device: Any) -> None:
        self.device = device

    def visit_array(self, array: Any) -> Any:
        """Return the array on the device."""
        return self.device.send(array)

    def visit_variable(self, variable: Any) -> None:
        """Send a variable to the device."""
        variable.to_device(self.device)


class DeviceResident(WatchedNamespace):
    """An object whose arrays, and those of its children, live on one device."""

    _device: Any
    children: Any

    def __init__(self) -> None:
        super().__init__()
        entries_of(self)["_device"] = backend.CpuDevice()

    @property
    def device(self) -> Any:
        """The device that the link was sent to last."""
        return self._device

    @property
    def xp(self) -> Any:
        """The array module of the link's device: NumPy, CuPy or ChainerX."""
        return self._device.xp

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        for name in ("to_device", "to_chx", "from_chx", "to_cpu", "to_gpu", "to_intel64"):
            if name not in vars(cls):
                continue
            message = f"{cls.__name__} overrides {name}: override device_resident_accept(visitor) instead"
            if name not in _MOVES:
                raise TypeError(message)
            warnings.warn(message, DeprecationWarning, stacklevel=2)

    def to_device(self, device: Any) -> Any:
        """Send parameters and persistent arrays, also of all links below, to ``device``; returns the link."""
        self._send(backend.get_device(device))
        return self

    def to_cpu(self) -> Any:
        """Send everything to the CPU; returns the link (deprecated: ``to_device``)."""
        warnings.warn("to_cpu is deprecated. Please use to_device('@numpy') instead.", DeprecationWarning, stacklevel=2)
        return self._send_all(backend.CpuDevice())

    def to_intel64(self) -> Any:
        """The same as :meth:`to_cpu`: there are no arrays of iDeep (deprecated: ``to_device``)."""
        warnings.warn("to_intel64 is deprecated. Please use to_device instead.", DeprecationWarning, stacklevel=2)
        return self._send_all(backend.CpuDevice())

    def to_gpu(self, device: Any = None) -> Any:
        """Send everything to a GPU: number ``device``, by default the current one (deprecated: ``to_device``)."""
        cuda.check_cuda_available()
        warnings.warn("to_gpu is deprecated. Please use to_device instead.", DeprecationWarning, stacklevel=2)
        number = cuda.cupy.cuda.Device().id if device is None else int(device)
        return self._send_all(backend.GpuDevice.from_device_id(number))

    def to_chx(self) -> Any:
        """Turn all arrays into ChainerX's, which share their memory; returns the link."""
        if isinstance(self._device, backend.ChainerxDevice):
            return self
        return self._send_all(backend.ChainerxDevice.from_fallback_device(self._device))

    def from_chx(self) -> Any:
        """Turn all arrays of ChainerX into NumPy's or CuPy's, which share their memory; returns the link."""
        if not isinstance(self._device, backend.ChainerxDevice):
            return self
        return self._send_all(self._device.fallback_device)

    def _send(self, device: Any) -> None:
        """Send the link and those below it; classes that override `to_cpu` or `to_gpu` do it themselves."""
        if isinstance(device, backend.ChainerxDevice):
            pass
        elif isinstance(device, backend.CpuDevice):
            if type(self).to_cpu is not DeviceResident.to_cpu:
                self.to_cpu()
                return
        elif type(self).to_gpu is not DeviceResident.to_gpu:
            self.to_gpu(device.device.id)
            return
        self._send_all(device)

    def _send_all(self, device: Any) -> Any:
        self.device_resident_accept(DeviceVisitor(device))
        for link in self.children():
            link._send(device)
        return self

    def device_resident_accept(self, visitor: DeviceVisitor) -> None:
        """Let the visitor send what this object holds itself."""
        entries_of(self)["_device"] = visitor.device
