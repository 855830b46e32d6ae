"""The devices of ChainerX, and arrays sent to and from them; ChainerX itself is imported when it is first used."""
from __future__ import annotations

from typing import Any

import numpy

from .. import device as _device
from ..errors import ArrayTypeError
from . import cuda
from .cpu import CpuDevice

__all__ = ["ChainerxDevice", "from_chx", "is_chainerx_array", "to_chx"]

variables: Any = None  # the module kusari.chainerx.variables, once ChainerX is loaded


def loaded() -> Any:
    """Return the module ``chainerx``, which loads with its first use."""
    from .. import chainerx
    return chainerx


def is_chainerx_array(array: Any) -> bool:
    """Return whether `array` is one of ChainerX, without importing it to find out."""
    return type(array).__module__ == "kusari.chainerx.arrays" and hasattr(array, "require_grad")


class ChainerxDevice(_device.Device):
    """A device of ChainerX, with its arrays.

    Args:
        device (chainerx.Device): The device.

    Example:
        >>> kusari.get_device("native:0")
        <ChainerxDevice native:0>
    """

    def __init__(self, device: Any) -> None:
        self.device = device

    @property
    def xp(self) -> Any:  # type: ignore[override]
        """The module ``chainerx``."""
        return loaded()

    @property
    def supported_array_types(self) -> tuple[type, ...]:  # type: ignore[override]
        """``(chainerx.ndarray,)``."""
        return (self.xp.ndarray,)

    @property
    def name(self) -> str:
        """The device's name, such as ``native:0``."""
        return self.device.name

    def __repr__(self) -> str:
        return f"<ChainerxDevice {self.name}>"

    @staticmethod
    def from_array(array: Any) -> ChainerxDevice | None:
        """Return the device an array of ChainerX is on, and None for anything else."""
        return ChainerxDevice(array.device) if is_chainerx_array(array) else None

    @staticmethod
    def from_fallback_device(device: _device.Device) -> ChainerxDevice:
        """Return ChainerX's device for the processor, or for a card of CuPy's."""
        if isinstance(device, cuda.GpuDevice):
            return ChainerxDevice(loaded().get_device("cuda", device.device.id))
        if isinstance(device, CpuDevice):
            return ChainerxDevice(loaded().get_device("native", 0))
        raise RuntimeError(f"only NumPy's and CuPy's devices have one of ChainerX, not {device!r}")

    @property
    def fallback_device(self) -> _device.Device:
        """The device of NumPy or CuPy that is the same processor or card."""
        if self.device.backend.name == "cuda":
            return cuda.GpuDevice.from_device_id(self.device.index)
        return CpuDevice()

    def send_array(self, array: Any) -> Any:
        """Return an array of ChainerX on this device; NumPy's or CuPy's shares its memory with it where it can."""
        if is_chainerx_array(array):
            return array.to_device(self.device)
        if not isinstance(array, numpy.ndarray) and not cuda.is_cupy_array(array) and not numpy.isscalar(array):
            raise ArrayTypeError(f"an array of {type(array)} cannot be sent to {self.name}")
        return self.xp.array(array, device=self.device, copy=False)

    def create_context(self) -> Any:
        """Return a context manager in which new arrays are made on this device."""
        return self.xp.using_device(self.device)

    def use(self) -> None:
        """Make this the default device of the thread."""
        self.xp.set_default_device(self.device)

    def is_array_supported(self, array: Any) -> bool:
        """Return whether `array` is on this device."""
        return is_chainerx_array(array) and array.device is self.device


def to_chx(array: Any) -> Any:
    """Return arrays as ChainerX's, which share their memory; lists, tuples and dicts of them likewise."""
    return _ToChainerx().send(array)


def from_chx(array: Any) -> Any:
    """Return ChainerX's arrays as NumPy's or CuPy's, which share their memory; lists, tuples and dicts likewise."""
    return _FromChainerx().send(array)


class _ToChainerx(_device.Device):
    def send_array(self, array: Any) -> Any:
        if is_chainerx_array(array):
            return array
        gpu = cuda.GpuDevice.from_array(array)
        return ChainerxDevice.from_fallback_device(CpuDevice() if gpu is None else gpu).send_array(array)


class _FromChainerx(_device.Device):
    def send_array(self, array: Any) -> Any:
        if is_chainerx_array(array):
            return array._elements
        if isinstance(array, numpy.ndarray) or cuda.is_cupy_array(array):
            return array
        raise TypeError(f"expected an array of ChainerX, NumPy or CuPy, got {type(array)}")
