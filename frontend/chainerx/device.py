"""Contexts, backends and devices: where arrays lie, ``native:0`` with NumPy and ``cuda:0`` with CuPy."""
from __future__ import annotations

import threading
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import numpy as np

from ..backends import cuda
from .errors import BackendError, ChainerxError, ContextError, DeviceError

__all__ = [
    "BackpropId", "Backend", "Context", "Device", "context_scope", "get_backend", "get_default_context",
    "get_default_device", "get_device", "get_global_default_context", "set_default_context", "set_default_device",
    "set_global_default_context", "using_device",
]

_NATIVE_DEVICES = 4  # as many as ChainerX has: one processor under several names, to try out programs


class BackpropId:
    """The name of one of several graphs that arrays are recorded in.

    Attributes:
        context: The context it belongs to.
        name (str): Its name, for messages.
    """

    def __init__(self, context: Context, name: str) -> None:
        self.context = context
        self._name = name
        self.released = False

    @property
    def name(self) -> str:
        """The name, ``<default>`` of the graph that is there without asking."""
        return "<expired>" if self.released else self._name

    def __repr__(self) -> str:
        return f"BackpropId({self.name!r})"

    def check(self) -> None:
        """Raise `ChainerxError` where the graph was given up."""
        if self.released:
            raise ChainerxError(f"backprop id {self._name!r} has expired: its backprop_scope was left")


class Context:
    """The backends of one environment, and its graphs.

    One is made when the module is imported; few programs need another.
    """

    def __init__(self) -> None:
        self._backends = {kind.name: kind(self) for kind in (_Native, _Cuda)}
        self.default_backprop_id = BackpropId(self, "<default>")

    def get_backend(self, backend_name: str) -> Backend:
        """Return the backend of that name, ``native`` or ``cuda``.

        Raises:
            BackendError: There is no such backend.
        """
        found = self._backends.get(backend_name)
        if found is None:
            raise BackendError(f"there is no backend {backend_name!r}; there are {', '.join(self._backends)}")
        return found

    def get_device(self, device_name: str, index: int | None = None) -> Device:
        """Return a device, of ``"native:0"``, ``"native"`` or ``("native", 0)``."""
        name, _, number = device_name.partition(":")
        backend = self.get_backend(name)
        if number and (index is not None or not number.isdigit()):
            raise DeviceError(f"invalid device name {device_name!r}: expected '<backend>:<number>'")
        return backend.get_device(int(number or index or 0))

    def make_backprop_id(self, backprop_name: str) -> BackpropId:
        """Return the id of a new graph."""
        return BackpropId(self, backprop_name)

    def release_backprop_id(self, backprop_id: BackpropId) -> None:
        """Give up a graph; its id is not valid any more."""
        backprop_id.check()
        backprop_id.released = True

    def _check_valid_backprop_id(self, backprop_id: BackpropId) -> None:
        backprop_id.check()


class Backend:
    """A kind of devices.

    Attributes:
        context: The context it belongs to.
        name (str): Its name, ``native`` or ``cuda``.
    """

    name: str

    def __init__(self, context: Context) -> None:
        self.context = context
        self._devices: dict[int, Device] = {}

    def get_device_count(self) -> int:
        """Return how many devices there are."""
        raise NotImplementedError

    def get_device(self, index: int) -> Device:
        """Return the device of that number, always the same object.

        Raises:
            DeviceError: There is no such device.
        """
        if index not in self._devices:
            self._check(index)
            self._devices[index] = Device(self, index)
        return self._devices[index]

    def _check(self, index: int) -> None:
        if not 0 <= index < self.get_device_count():
            raise DeviceError(f"there is no device {self.name}:{index}, only {self.get_device_count()} of its kind")


class _Native(Backend):
    """The processor, with NumPy arrays."""

    name = "native"
    xp = np

    def get_device_count(self) -> int:
        return _NATIVE_DEVICES

    def active(self, index: int) -> AbstractContextManager[Any]:
        return nullcontext()

    def put(self, array: Any, index: int) -> Any:
        return cuda.array_to_cpu(array)

    def synchronize(self, index: int) -> None:
        """Nothing: every operation has ended when it returns."""


class _Cuda(Backend):
    """Graphics cards, with CuPy arrays."""

    name = "cuda"

    @property
    def xp(self) -> Any:
        return cuda.cupy

    def get_device_count(self) -> int:
        return cuda.cupy.cuda.runtime.getDeviceCount() if cuda.available else 0

    def _check(self, index: int) -> None:
        if not cuda.available:
            raise BackendError(f"device 'cuda:{index}' needs CuPy. Install it with: pip install 'kusari[gpu]'")
        super()._check(index)

    def active(self, index: int) -> AbstractContextManager[Any]:
        return cuda.cupy.cuda.Device(index)

    def put(self, array: Any, index: int) -> Any:
        return cuda.array_to_gpu(array, cuda.cupy.cuda.Device(index))

    def synchronize(self, index: int) -> None:
        cuda.cupy.cuda.Device(index).synchronize()


class Device:
    """A device: where arrays lie, and what computes with them.

    Attributes:
        backend (Backend): Its kind.
        index (int): Its number.
        name (str): Both, such as ``native:0``.
    """

    def __init__(self, backend: Any, index: int) -> None:
        self.backend = backend
        self.index = index
        self.name = f"{backend.name}:{index}"

    @property
    def context(self) -> Context:
        """The context it belongs to."""
        return self.backend.context

    @property
    def xp(self) -> Any:
        """The module that computes, NumPy or CuPy."""
        return self.backend.xp

    def active(self) -> AbstractContextManager[Any]:
        """Return a context manager in which ``xp`` makes arrays here."""
        return self.backend.active(self.index)

    def put(self, array: Any) -> Any:
        """Return an array of NumPy or CuPy as one that lies here, itself where it does already."""
        return self.backend.put(array, self.index)

    def synchronize(self) -> None:
        """Wait until all that was asked of the device is done."""
        self.backend.synchronize(self.index)

    def __repr__(self) -> str:
        return self.name

    def __reduce__(self) -> Any:
        return get_device, (self.name,)


class _Current(threading.local):
    """The context and the device chosen by a thread."""

    context: Context | None = None
    device: Device | None = None


class _Global:
    """The context of threads that choose none."""

    context: Context | None = Context()


_current = _Current()


def get_default_context() -> Context:
    """Return the context of this thread, else the global one.

    Raises:
        ContextError: There is neither.
    """
    found = _current.context or _Global.context
    if found is None:
        raise ContextError("there is no default context: call set_default_context or set_global_default_context")
    return found


def set_default_context(context: Context | None) -> None:
    """Choose the context of this thread; None for the global one."""
    if _current.context is not context:
        _current.context, _current.device = context, None


def get_global_default_context() -> Context:
    """Return the context of threads that choose none.

    Raises:
        ContextError: There is none.
    """
    if _Global.context is None:
        raise ContextError("there is no global default context: call set_global_default_context")
    return _Global.context


def set_global_default_context(context: Context | None) -> None:
    """Choose the context of threads that choose none."""
    _Global.context = context


class context_scope:
    """A context manager that chooses the context of this thread."""

    def __init__(self, context: Context) -> None:
        self._context = context

    def __enter__(self) -> None:
        self._before = _current.context, _current.device
        set_default_context(self._context)

    def __exit__(self, *exc: object) -> None:
        _current.context, _current.device = self._before


def get_backend(backend_name: str) -> Backend:
    """Return a backend of the default context, ``native`` or ``cuda``."""
    return get_default_context().get_backend(backend_name)


def get_device(*device: Any) -> Device:
    """Return a device.

    Args:
        device: A `Device`, a name such as ``"native:0"`` or ``"native"``, a name and a number, or nothing (or None)
            for the default device.
    """
    if not device or device[0] is None:
        return get_default_device()
    if isinstance(device[0], Device):
        return device[0]
    if not isinstance(device[0], str):
        raise TypeError(f"a device is given by its name, not by {device[0]!r}")
    return get_default_context().get_device(*device)


def get_default_device() -> Device:
    """Return the device on which this thread makes arrays."""
    return _current.device or get_default_context().get_device("native", 0)


def set_default_device(device: Any) -> None:
    """Choose the device on which this thread makes arrays.

    Args:
        device (Device or str): The device.
    """
    _current.device = get_device(device)


class using_device:
    """A context manager that chooses the device on which this thread makes arrays.

    Args:
        device: What `get_device` understands.

    Example:
        >>> import kusari.chainerx as chx
        >>> with chx.using_device("native:1"):
        ...     chx.zeros(2).device
        native:1
    """

    def __init__(self, *device: Any) -> None:
        self.device = get_device(*device)

    def __enter__(self) -> using_device:
        self._before = _current.device
        _current.device = self.device
        return self

    def __exit__(self, *exc: object) -> None:
        _current.device = self._before
