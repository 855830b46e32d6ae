"""Devices and array modules, whatever the hardware: what `kusari.backend` offers."""
from __future__ import annotations

import importlib
from typing import Any

import numpy

from .backends import cuda
from .backends.chainerx import ChainerxDevice, from_chx, is_chainerx_array, to_chx
from .backends.cpu import CpuDevice
from .backends.cuda import GpuDevice
from .backends.intel64 import Intel64Device
from .device import Device, current
from .errors import DeviceSpecifierError

__all__ = [
    "ChainerxDevice", "CpuDevice", "Device", "GpuDevice", "Intel64Device", "copyto", "from_chx", "get_array_module",
    "get_device", "get_device_from_array", "to_chx", "using_device",
]  # fmt: skip

_cpu = CpuDevice()


def get_array_module(*args: Any) -> Any:
    """Return the module to compute with: ``chainerx`` or ``cupy`` if an argument is an array of it, else ``numpy``.

    Args:
        args: Arrays, variables, or anything else (which is taken for NumPy).

    Example:
        >>> get_array_module(numpy.ones(2)).__name__
        'numpy'
    """
    for arg in args:
        array = getattr(arg, "_array", arg)
        if type(array) is not numpy.ndarray:
            if cuda.is_cupy_array(array):
                return cuda.cupy
            if is_chainerx_array(array):
                return importlib.import_module("kusari.chainerx")
    return numpy


cuda.get_array_module = get_array_module


def get_device(device_spec: Any) -> Device:
    """Return a device from its description.

    Args:
        device_spec: A `Device`, a ``cupy.cuda.Device``, a number (of a card; negative for the processor), or a string:
            ``"@numpy"``, ``"@cupy"``, ``"@cupy:1"``, a number in digits, or ChainerX's ``"native"`` and ``"cuda:0"``.

    Raises:
        DeviceSpecifierError: No device has that name.
        DeviceError: The device is not available here.
        TypeError: The argument is of another type.

    Example:
        >>> get_device("@numpy")
        <CpuDevice (numpy)>
    """
    if isinstance(device_spec, Device):
        return device_spec
    if isinstance(device_spec, (int, numpy.integer)) and not isinstance(device_spec, bool):
        return _cpu if device_spec < 0 else GpuDevice.from_device_id(int(device_spec))
    if isinstance(device_spec, str):
        return _from_name(device_spec)
    if isinstance(device_spec, cuda.Device) and not isinstance(device_spec, cuda.DummyDeviceType):
        return GpuDevice(device_spec)
    if type(device_spec).__module__ == "kusari.chainerx.device":
        return ChainerxDevice(device_spec)
    raise TypeError(
        "Device specifier must be a kusari.backend.Device, a cuda.Device, an integer or a string. "
        f"Actual: {type(device_spec)}"
    )


def _from_name(name: str) -> Device:
    if name in ("@numpy", "@intel64"):
        return _cpu
    module, _, number = name.strip().partition(":")
    if module == "@cupy" and (number.isdigit() or not number):
        return GpuDevice.from_device_id(int(number or 0))
    if not number and module.lstrip("-").isdigit():
        return get_device(int(module))
    if module in ("native", "cuda"):
        return ChainerxDevice(importlib.import_module("kusari.chainerx").get_device(name.strip()))
    raise DeviceSpecifierError(
        f"Device specifier {name!r} is not understood. Expected '@numpy', '@cupy', '@cupy:<number>' or a number."
    )


def get_device_from_array(*arrays: Any) -> Device:
    """Return the device of the first argument that is an array (or a variable), else the processor."""
    for arg in arrays:
        array = getattr(arg, "_array", arg)
        found = GpuDevice.from_array(array) or ChainerxDevice.from_array(array)
        if found is not None:
            return found
    return _cpu


class using_device:
    """A context manager that makes a device the current one of the thread.

    Args:
        device_spec: What `get_device` understands.

    Example:
        >>> with using_device("@numpy") as device:
        ...     device.xp.zeros(2)
        array([0., 0.])
    """

    def __init__(self, device_spec: Any) -> None:
        self.device = get_device(device_spec)
        self._context = self.device.create_context()
        self._saved: list[Device | None] = []

    def __enter__(self) -> Device:
        self._context.__enter__()
        self._saved.append(current.device)
        current.device = self.device
        return self.device

    def __exit__(self, *exc: object) -> None:
        current.device = self._saved.pop()
        self._context.__exit__(*exc)


def copyto(dst: Any, src: Any) -> None:
    """Copy the elements of one array into another, which may be on another device.

    Args:
        dst: The array to write into.
        src: The array to read, of a shape and data type that can be broadcast and cast to `dst`'s.
    """
    if is_chainerx_array(dst):
        dst[...] = ChainerxDevice(dst.device).send_array(src)
    elif isinstance(dst, numpy.ndarray):
        numpy.copyto(dst, cuda.array_to_cpu(src))
    elif cuda.is_cupy_array(dst):
        if cuda.is_cupy_array(src):
            cuda.cupy.copyto(dst, src)
        else:
            dst.set(numpy.ascontiguousarray(numpy.broadcast_to(src, dst.shape), dtype=dst.dtype))
    else:
        raise TypeError(f"copyto needs a NumPy or CuPy array to write into, not {type(dst).__name__}.")
