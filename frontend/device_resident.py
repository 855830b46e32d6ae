"""`DeviceResident`: the base of objects that can be sent from device to device, such as links."""

from __future__ import annotations

import warnings
from typing import Any

from . import backend
from .backends import cuda

__all__ = ["DeviceResident", "DeviceResidentsVisitor"]

_MOVES = ("to_cpu", "to_gpu", "to_intel64")  # may be overridden, as they were before there were devices


class DeviceResidentsVisitor:
    """The base of visitors, which are shown all that an object and its children hold on devices."""

    def visit_device_resident(self, device_resident: Any) -> None:
        """Visit an object itself, before what it holds."""
        raise NotImplementedError(f"{type(self).__name__} has to define visit_device_resident")

    def visit_array(self, arr: Any) -> Any:
        """Return the array that takes the place of this one, which may be the same."""
        raise NotImplementedError(f"{type(self).__name__} has to define visit_array")

    def visit_variable(self, param: Any) -> None:
        """Visit a variable or parameter."""
        raise NotImplementedError(f"{type(self).__name__} has to define visit_variable")


class _Sender(DeviceResidentsVisitor):
    """Sends everything to a device; objects that override `to_cpu` or `to_gpu` have these called."""

    def __init__(self, device: Any, start: DeviceResident | None = None) -> None:
        self.device = device
        self._start = start  # whose own method has made this visitor

    def visit_device_resident(self, device_resident: Any) -> None:
        device_resident._device = self.device
        if device_resident is self._start or isinstance(self.device, backend.ChainerxDevice):
            return
        if isinstance(self.device, backend.CpuDevice):
            if type(device_resident).to_cpu is not DeviceResident.to_cpu:
                device_resident.to_cpu()
        elif type(device_resident).to_gpu is not DeviceResident.to_gpu:
            device_resident.to_gpu(self.device.device.id)

    def visit_array(self, arr: Any) -> Any:
        return self.device.send(arr)

    def visit_variable(self, param: Any) -> None:
        param.to_device(self.device)


class _IntoChainerX(DeviceResidentsVisitor):
    """Turns arrays into ChainerX's, each on the device that belongs to its own."""

    def visit_device_resident(self, device_resident: Any) -> None:
        if not isinstance(device_resident.device, backend.ChainerxDevice):
            device_resident._device = backend.ChainerxDevice.from_fallback_device(device_resident.device)

    def visit_array(self, arr: Any) -> Any:
        return backend.to_chx(arr)

    def visit_variable(self, param: Any) -> None:
        param.to_chx()


class _OutOfChainerX(DeviceResidentsVisitor):
    """Turns ChainerX's arrays into NumPy's or CuPy's."""

    def visit_device_resident(self, device_resident: Any) -> None:
        device_resident._device = device_resident.device.fallback_device

    def visit_array(self, arr: Any) -> Any:
        return backend.from_chx(arr)

    def visit_variable(self, param: Any) -> None:
        param.from_chx()


class DeviceResident:
    """An object whose arrays, and those of its children, live on one device.

    Classes that hold arrays say which:

    >>> class Table(kusari.DeviceResident):
    ...     def __init__(self):
    ...         self.rows = np.eye(3)
    ...     def device_resident_accept(self, visitor):
    ...         super().device_resident_accept(visitor)
    ...         self.rows = visitor.visit_array(self.rows)
    >>> Table().to_chx().rows.device
    native:0
    """

    __slots__ = ()  # links have a namespace of another kind
    _device: Any = backend.CpuDevice()

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        for name in ("to_device", "to_chx", "from_chx", *_MOVES):
            if name not in vars(cls):
                continue
            message = f"{cls.__name__} overrides {name}: override device_resident_accept(visitor) instead"
            if name not in _MOVES:
                raise TypeError(message)
            warnings.warn(message, DeprecationWarning, stacklevel=2)

    @property
    def device(self) -> Any:
        """The device that the object was sent to last."""
        return self._device

    @property
    def xp(self) -> Any:
        """The array module of the object's device: NumPy, CuPy or ChainerX."""
        return self._device.xp

    def device_resident_accept(self, visitor: DeviceResidentsVisitor) -> None:
        """Show a visitor this object, and in overrides what it holds."""
        visitor.visit_device_resident(self)

    def to_device(self, device: Any) -> Any:
        """Send all arrays, also of the children, to ``device``; returns the object."""
        return self._shown(_Sender(backend.get_device(device)))

    def to_cpu(self) -> Any:
        """Send everything to the CPU; returns the object (deprecated: ``to_device``)."""
        warnings.warn("to_cpu is deprecated. Please use to_device('@numpy') instead.", DeprecationWarning, stacklevel=2)
        return self._shown(_Sender(backend.CpuDevice(), self))

    def to_intel64(self) -> Any:
        """The same as :meth:`to_cpu`: there are no arrays of iDeep (deprecated: ``to_device``)."""
        warnings.warn("to_intel64 is deprecated. Please use to_device instead.", DeprecationWarning, stacklevel=2)
        return self._shown(_Sender(backend.CpuDevice(), self))

    def to_gpu(self, device: Any = None) -> Any:
        """Send everything to a GPU: number ``device``, by default the current one (deprecated: ``to_device``)."""
        cuda.check_cuda_available()
        warnings.warn("to_gpu is deprecated. Please use to_device instead.", DeprecationWarning, stacklevel=2)
        number = cuda.cupy.cuda.Device().id if device is None else int(device)
        return self._shown(_Sender(backend.GpuDevice.from_device_id(number), self))

    def to_chx(self) -> Any:
        """Turn all arrays into ChainerX's, which share their memory; returns the object."""
        return self._shown(_IntoChainerX())

    def from_chx(self) -> Any:
        """Turn all arrays of ChainerX into NumPy's or CuPy's, which share their memory; returns the object."""
        return self._shown(_OutOfChainerX())

    def _shown(self, visitor: DeviceResidentsVisitor) -> Any:
        self.device_resident_accept(visitor)
        return self
