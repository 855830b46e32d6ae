"""iDeep, which Kusari does not have: NumPy arrays are what the processor works with."""
from __future__ import annotations

from typing import Any

from .. import device as _device
from ..errors import DeviceError


def is_ideep_available() -> bool:
    """Return False."""
    return False


def check_ideep_available() -> None:
    """Raise `DeviceError`."""
    raise DeviceError("iDeep is not available. Use the device '@numpy' instead.")


class Intel64Device(_device.Device):
    """Chainer's device for iDeep: cannot be made, nothing is an instance of it."""

    def __init__(self) -> None:
        check_ideep_available()

    @staticmethod
    def from_array(array: Any) -> None:
        """Return None: no array is on such a device."""
