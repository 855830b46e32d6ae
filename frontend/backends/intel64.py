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


def should_use_ideep(level: str) -> bool:
    """Return whether functions should use iDeep: never.

    Args:
        level (str): ``==always`` or ``>=auto``, the values of ``config.use_ideep`` that are asked about.
    """
    if level not in ("==always", ">=auto"):
        raise ValueError(f"invalid iDeep use level: {level!r} (must be either of '==always' or '>=auto')")
    return False


def inputs_all_ready(inputs: Any, supported_ndim: tuple[int, ...] = (2, 4)) -> bool:
    """Return whether iDeep could work with these arrays: never."""
    return False


class mdarray:
    """Chainer's name for arrays of iDeep: nothing is an instance of it."""


class Intel64Device(_device.Device):
    """Chainer's device for iDeep: cannot be made, nothing is an instance of it."""

    def __init__(self) -> None:
        check_ideep_available()

    @staticmethod
    def from_array(array: Any) -> None:
        """Return None: no array is on such a device."""
