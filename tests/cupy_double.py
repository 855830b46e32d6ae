"""A stand-in for CuPy where there is no card: arrays of another type, that NumPy does not take.

What CuPy refuses this refuses too: implicit conversion to NumPy, and NumPy arrays among the arguments of functions.
"""
from __future__ import annotations

import importlib.machinery
import operator
import sys
import types
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np


class Device:
    """``cupy.cuda.Device``."""

    def __init__(self, device: Any = 0) -> None:
        self.id = int(device)

    def __int__(self) -> int:
        return self.id

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Device) and other.id == self.id

    def __hash__(self) -> int:
        return self.id

    def __enter__(self) -> Device:
        return self

    def __exit__(self, *exc: object) -> None:
        return None

    def use(self) -> None:
        return None

    def synchronize(self) -> None:
        return None


class Stream:
    """``cupy.cuda.Stream``."""

    null: Any
    ptr = 0

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        return None

    def synchronize(self) -> None:
        return None


Stream.null = Stream()


class ndarray:
    """``cupy.ndarray``."""

    __module__ = "cupy"
    device = Device()
    __array_priority__ = 100

    def __init__(self, host: Any) -> None:
        self._host = np.asarray(host)

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        return {"shape": self._host.shape, "typestr": self._host.dtype.str, "data": (self._host.ctypes.data, False),
                "version": 3}

    @property
    def data(self) -> Any:
        """The memory, with its address."""
        return types.SimpleNamespace(ptr=self._host.ctypes.data)

    def get(self, stream: Any = None) -> Any:
        """Copy to the host."""
        return self._host.copy()

    def __array__(self, *args: Any, **kwargs: Any) -> Any:
        raise TypeError("Implicit conversion to a NumPy array is not allowed. Please use `.get()`.")

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **kwargs: Any) -> Any:
        return _call(getattr(ufunc, method) if method != "__call__" else ufunc, inputs, kwargs)

    def __array_function__(self, function: Any, kinds: Any, args: Any, kwargs: Any) -> Any:
        return _call(function, args, kwargs)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        found = getattr(self._host, name)
        return (lambda *args, **kwargs: _call(found, args, kwargs)) if callable(found) else _device(found)

    def __getitem__(self, index: Any) -> Any:
        return ndarray(self._host[_host(index, strict=False)])

    def __setitem__(self, index: Any, value: Any) -> None:
        self._host[_host(index, strict=False)] = _host(value)

    def __len__(self) -> int:
        return len(self._host)

    def __iter__(self) -> Iterator[Any]:
        return (self[i] for i in range(len(self)))

    def __hash__(self) -> int:
        return id(self)


def _operator(name: str) -> Any:
    def apply(self: Any, *others: Any) -> Any:
        return _call(getattr(operator, name), (self, *others), {})

    def reflected(self: Any, other: Any) -> Any:
        return _call(getattr(operator, name), (other, self), {})

    def in_place(self: Any, other: Any) -> Any:
        self._host = getattr(operator, f"__i{name.strip('_')}__")(self._host, _host(other))
        return self
    return apply, reflected, in_place


for _name in ("add", "sub", "mul", "truediv", "floordiv", "mod", "pow", "matmul", "and", "or", "xor"):
    for _form, _function in zip(("", "r", "i"), _operator(f"__{_name}__"), strict=True):
        setattr(ndarray, f"__{_form}{_name}__", _function)
for _name in ("lt", "le", "gt", "ge", "eq", "ne", "neg", "abs", "invert"):
    setattr(ndarray, f"__{_name}__", _operator(f"__{_name}__")[0])
for _kind in (float, int, bool):
    setattr(ndarray, f"__{_kind.__name__}__", lambda self, kind=_kind: kind(self._host))


def _host(x: Any, strict: bool = True) -> Any:
    if isinstance(x, ndarray):
        return x._host
    if strict and isinstance(x, np.ndarray) and x.ndim:
        raise TypeError("Unsupported type <class 'numpy.ndarray'>")
    if isinstance(x, (tuple, list)):
        return type(x)([_host(each, strict) for each in x])
    return x


def _device(x: Any) -> Any:
    if isinstance(x, (np.ndarray, np.bool_)) or isinstance(x, np.generic) and not isinstance(x, np.dtype):
        return ndarray(x)
    if isinstance(x, (tuple, list)):
        return type(x)([_device(each) for each in x])
    return x


def _call(function: Any, args: Any, kwargs: Any, strict: bool = True) -> Any:
    out = kwargs.get("out")
    made = function(*[_host(x, strict) for x in args], **{k: _host(v, strict) for k, v in kwargs.items()})
    if out is not None:
        return out[0] if isinstance(out, tuple) else out
    return _device(made)


class _Module(types.ModuleType):
    """NumPy's functions, on the stand-in's arrays."""

    def __init__(self, name: str, source: Any) -> None:
        super().__init__(name)
        self.__spec__ = importlib.machinery.ModuleSpec(name, None)
        self._source = source

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._source, name)
        if isinstance(found, (type, np.dtype)) or not callable(found):
            return found
        into = name in ("array", "asarray", "ascontiguousarray", "asanyarray")
        return lambda *args, **kwargs: _call(found, args, kwargs, strict=not into)


@contextmanager
def cupy() -> Iterator[Any]:
    """Context in which ``import cupy`` gives the stand-in, and Kusari has one card."""
    from kusari.backends import cuda
    module: Any = _Module("cupy", np)
    module.ndarray = ndarray
    module.random, module.linalg = _Module("cupy.random", np.random), _Module("cupy.linalg", np.linalg)
    module.cuda = types.SimpleNamespace(Device=Device, Event=Device, Stream=Stream, runtime=types.SimpleNamespace(
        getDeviceCount=lambda: 1))
    module.lib = types.SimpleNamespace(stride_tricks=_Module("cupy.lib.stride_tricks", np.lib.stride_tricks))
    module.fuse = lambda *args, **kwargs: args[0]
    lazy = [name for name in cuda._lazy() if name in vars(cuda)]
    before = {name: vars(cuda)[name] for name in lazy}
    assert "cupy" not in sys.modules

    def forget() -> None:
        cuda._cupy.cache_clear()
        for name in cuda._lazy():
            vars(cuda).pop(name, None)
    sys.modules["cupy"] = module
    forget()
    try:
        yield module
    finally:
        del sys.modules["cupy"]
        forget()
        vars(cuda).update(before)
