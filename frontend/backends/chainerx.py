"""The devices of ChainerX, which Kusari does not have."""
from __future__ import annotations

from typing import Any

from .. import device as _device
from ..errors import DeviceError


class ChainerxDevice(_device.Device):
    """Chainer's device for ChainerX: cannot be made, nothing is an instance of it."""

    def __init__(self, device: Any = None) -> None:
        raise DeviceError("ChainerX is not available. Use the device '@numpy' or '@cupy:0' instead.")

    @staticmethod
    def from_array(array: Any) -> None:
        """Return None: no array is on such a device."""
