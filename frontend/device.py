"""`Device`: the base of all devices, and which of them this thread uses."""
from __future__ import annotations

import threading
from typing import Any


class Device:
    """A kind of array and the place its memory is in.

    Attributes:
        xp: The array module: ``numpy`` or ``cupy``.
        supported_array_types: The array classes it works with.
        name (str): The specifier that `get_device` understands.
    """

    xp: Any = None
    supported_array_types: tuple[type, ...] = ()

    @property
    def name(self) -> str:
        """The specifier of this device, such as ``@numpy``."""
        raise NotImplementedError

    def __str__(self) -> str:
        return self.name

    @property
    def fallback_device(self) -> Device:
        """The device of NumPy or CuPy that computes for this one: itself, unless it is ChainerX's."""
        return self

    def send(self, arrays: Any) -> Any:
        """Copy arrays to this device where they are not there already.

        Args:
            arrays: An array, or a list, tuple or dict of such trees; None stays None.

        Returns:
            The same tree with arrays of this device.
        """
        if arrays is None:
            return None
        if isinstance(arrays, (list, tuple)):
            sent = [self.send(array) for array in arrays]
            if isinstance(arrays, list):
                return sent
            return type(arrays)(*sent) if hasattr(arrays, "_fields") else tuple(sent)
        if isinstance(arrays, dict):
            return {key: self.send(array) for key, array in arrays.items()}
        return self.send_array(arrays)

    def send_array(self, array: Any) -> Any:
        """Copy one array to this device where it is not there already."""
        raise NotImplementedError

    def create_context(self) -> Any:
        """Return a context manager in which new arrays of `xp` are made on this device."""
        return self

    def __enter__(self) -> Device:
        return self

    def __exit__(self, *exc: object) -> None:
        return None

    def use(self) -> None:
        """Make this the current device of the thread."""

    def is_array_supported(self, array: Any) -> bool:
        """Return whether `array` is on this device."""
        return isinstance(array, self.supported_array_types)

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other) and self.name == other.name  # type: ignore[attr-defined]

    def __hash__(self) -> int:
        return hash(self.name)


class Current(threading.local):
    """The device chosen with `using_device` or `Device.use`, per thread."""

    device: Device | None = None


current = Current()
