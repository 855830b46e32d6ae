"""A stand-in for CuPy where there is no card: arrays of another type, that NumPy does not take.

It has the functions, methods and parameters that CuPy has (``cupy_api.json``, read off the package) and no others.
What CuPy refuses it refuses too: implicit conversion to NumPy, NumPy arrays among the arguments of functions, and
arrays that are on another device than the current one. ``waits`` counts by name whatever makes the host wait for the
card.
"""
from __future__ import annotations

import importlib.machinery
import inspect
import json
import sys
import threading
import types
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

import cupy_elementwise
import cupy_kernels
import cupy_libraries
import cupy_memory
import cupy_streams
import numpy as np
from cupy_memory import MemoryPointer, OutOfMemoryError, refuse_capture
from cupy_streams import Device, Event, Stream, alloc_pinned_memory, get_current_stream, get_elapsed_time, state

API: dict[str, Any] = json.loads((Path(__file__).parent / "cupy_api.json").read_text())
MODULES: dict[str, Any] = {}
waits: Counter[str] = Counter()
# Results that are views need no kernel: they may be made of arrays of any device.
_VIEWS = frozenset({"reshape", "ravel", "transpose", "swapaxes", "squeeze", "view", "diagonal", "broadcast_to",
                    "expand_dims", "moveaxis", "rollaxis", "split", "array_split", "as_strided", "asarray", "T", "real",
                    "atleast_1d", "atleast_2d", "shape", "ndim", "size", "result_type", "copyto", "empty_like"})
_FROM_HOST = frozenset({"array", "asarray", "ascontiguousarray", "asanyarray", "asfortranarray"})
_WAITING = frozenset({"item", "tolist", "nonzero", "argwhere", "flatnonzero", "unique", "array_equal", "allclose"})


def wait(kind: str) -> None:
    """Count something for which the host waits."""
    refuse_capture(kind)
    waits[kind] += 1
    get_current_stream().synchronize()


class ndarray:
    """``cupy.ndarray``."""

    __module__ = "cupy"
    __array_priority__ = 100
    _host: Any

    def __init__(self, shape: Any, dtype: Any = float, memptr: Any = None, strides: Any = None, order: str = "C",
                 ) -> None:
        self._host, self._device = cupy_memory.array_at(shape, dtype, memptr, strides, order)
        self._base: Any = None
        cupy_memory.pool.adopt(self._host)

    @classmethod
    def of(cls, host: Any, device: int | None = None, *sources: Any) -> ndarray:
        """The array over one of NumPy's, a view of that among ``sources`` in whose memory it lies."""
        made = object.__new__(cls)
        made._host = np.asarray(host)
        made._device = state.device if device is None else device
        root = next((x for x in sources if isinstance(x, ndarray) and np.may_share_memory(x._host, made._host)), None)
        made._base = root if root is None or root._base is None else root._base
        cupy_memory.pool.adopt(made._host)
        return made

    @property
    def base(self) -> Any:
        """The array in whose memory this one lies, if it is a view."""
        return self._base

    @property
    def device(self) -> Device:
        """The device that it is on."""
        return Device(self._device)

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        return {"shape": self._host.shape, "typestr": self._host.dtype.str, "data": (self._host.ctypes.data, False),
                "version": 3}

    @property
    def data(self) -> Any:
        """The memory, with its address."""
        root = self._host
        while isinstance(root.base, np.ndarray):
            root = root.base
        return MemoryPointer(root, self._host.ctypes.data - root.ctypes.data, self._device)

    def get(self, stream: Any = None, order: str = "C", out: Any = None, blocking: bool = True) -> Any:
        """Copy to the host."""
        wait("get")
        if stream is not None:
            stream.synchronize()
        if out is None:
            return self._host.copy()
        out[...] = self._host
        return out

    def set(self, arr: Any, stream: Any = None) -> None:
        """Copy from the host: from pinned memory when the stream gets to it."""
        if not isinstance(arr, np.ndarray) or arr.shape != self.shape or arr.dtype != self.dtype:
            raise ValueError(f"set needs a numpy.ndarray of {self.dtype} and shape {self.shape}, not {arr!r}")
        if cupy_streams.is_pinned(arr):
            (stream or get_current_stream()).add(lambda: np.copyto(self._host, arr))
        else:
            self._host[...] = arr

    def copy(self, order: str = "C") -> ndarray:
        """A copy on the current device."""
        return ndarray.of(self._host.copy(order))

    def scatter_add(self, slices: Any, value: Any) -> None:
        """Add to elements, also those that are named several times."""
        np.add.at(self._host, _host(slices, True), _host(value))

    def __array__(self, *args: Any, **kwargs: Any) -> Any:
        raise TypeError("Implicit conversion to a NumPy array is not allowed. Please use `.get()` to construct a NumPy "
                        "array explicitly.")

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **kwargs: Any) -> Any:
        found = getattr(MODULES["cupy"], ufunc.__name__, None)
        if found is None or kwargs.get("out", ()) and not all(isinstance(x, ndarray) for x in kwargs["out"]):
            return NotImplemented
        if kwargs.get("out"):
            kwargs["out"], = kwargs["out"]
        return found(*inputs, **kwargs) if method == "__call__" else NotImplemented

    def __array_function__(self, function: Any, kinds: Any, args: Any, kwargs: Any) -> Any:
        found: Any = MODULES["cupy"]
        try:
            for part in (*function.__module__.split(".")[1:], function.__name__):
                found = getattr(found, part)
        except AttributeError:
            return NotImplemented
        return found(*args, **kwargs)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or name not in API["cupy.ndarray"]:
            raise AttributeError(f"'cupy.ndarray' object has no attribute {name!r}")
        found = getattr(self._host, name)
        if not callable(found):
            return ndarray.of(found, self._device, self) if isinstance(found, np.ndarray) else found

        def method(*args: Any, **kwargs: Any) -> Any:
            return _call(name, found, (self, *args), kwargs, API["cupy.ndarray"][name], bound=True)
        return method

    def __getitem__(self, index: Any) -> Any:
        _count_masks(index)
        found = np.asarray(self._host[_host(index, True)])
        if not np.may_share_memory(found, self._host):
            _check_devices("take", (self, index), {})
        return ndarray.of(found, self._device, self)

    def __setitem__(self, index: Any, value: Any) -> None:
        if isinstance(value, np.ndarray) and value.ndim:
            raise ValueError("non-scalar numpy.ndarray cannot be used for fill")
        _check_devices("setitem", (self, index, value), {})
        self._host[_host(index, True)] = _host(value, True)

    def __len__(self) -> int:
        return len(self._host)

    def __iter__(self) -> Iterator[Any]:
        return (self[i] for i in range(len(self)))

    def __hash__(self) -> int:
        raise TypeError("unhashable type: 'cupy.ndarray'")

    def __copy__(self) -> ndarray:
        with self.device:
            return self.copy()

    def __deepcopy__(self, memo: Any) -> ndarray:
        return self.__copy__()

    def __reduce__(self) -> Any:
        return ndarray.of, (self.get(),)

    def __repr__(self) -> str:
        return repr(self._host)

    def __format__(self, spec: str) -> str:
        return format(self._host, spec)


def _operator(name: str, ufunc: str) -> Any:
    def apply(self: Any, *others: Any) -> Any:
        return _ufunc(ufunc)(self, *others) if all(map(_is_operand, others)) else NotImplemented

    def reflected(self: Any, other: Any) -> Any:
        return _ufunc(ufunc)(other, self) if _is_operand(other) else NotImplemented

    def in_place(self: Any, other: Any) -> Any:
        return _ufunc(ufunc)(self, other, out=self, casting="same_kind")
    return apply, reflected, in_place


def _is_operand(x: Any) -> bool:
    return not hasattr(x, "creator_node")  # a Variable has its own operators


for _name, _fn in {"add": "add", "sub": "subtract", "mul": "multiply", "truediv": "true_divide", "pow": "power",
                   "floordiv": "floor_divide", "mod": "remainder", "matmul": "matmul", "and": "bitwise_and",
                   "or": "bitwise_or", "xor": "bitwise_xor", "lshift": "left_shift", "rshift": "right_shift"}.items():
    for _form, _function in zip(("", "r", "i"), _operator(_name, _fn), strict=True):
        setattr(ndarray, f"__{_form}{_name}__", _function)
for _name, _fn in {"lt": "less", "le": "less_equal", "gt": "greater", "ge": "greater_equal", "eq": "equal",
                   "ne": "not_equal", "neg": "negative", "abs": "absolute", "invert": "invert"}.items():
    setattr(ndarray, f"__{_name}__", _operator(_name, _fn)[0])


def _scalar(kind: type) -> Any:
    def convert(self: Any) -> Any:
        wait(kind.__name__)
        return kind(self._host.item() if self._host.size == 1 else self._host)
    return convert


for _kind in (float, int, bool, complex):
    setattr(ndarray, f"__{_kind.__name__}__", _scalar(_kind))


def _ufunc(name: str) -> Any:
    return getattr(MODULES["cupy"], name)


def _count_masks(index: Any) -> None:
    for part in index if isinstance(index, tuple) else (index,):
        if isinstance(part, ndarray) and part.dtype == bool:
            wait("mask")


def _host(x: Any, from_host: bool = False) -> Any:
    if isinstance(x, ndarray):
        return x._host
    if not from_host and isinstance(x, np.ndarray):
        raise TypeError(f"Unsupported type {type(x)}")
    if isinstance(x, (tuple, list)):
        return type(x)([_host(each, from_host) for each in x])
    return x


def _device(x: Any, *sources: Any) -> Any:
    if isinstance(x, (np.ndarray, np.generic)):
        return ndarray.of(x, None, *sources)
    if isinstance(x, (tuple, list)):
        parts = [_device(each, *sources) for each in x]
        return parts if isinstance(x, list) else type(x)(*parts) if hasattr(x, "_fields") else tuple(parts)
    return x


def _arrays(*values: Any) -> Iterator[ndarray]:
    for x in values:
        if isinstance(x, ndarray):
            yield x
        elif isinstance(x, (tuple, list)):
            yield from _arrays(*x)
        elif isinstance(x, dict):
            yield from _arrays(*x.values())


def _check_devices(name: str, args: Any, kwargs: Any) -> None:
    for x in _arrays(args, kwargs):
        if x._device != state.device:
            raise ValueError(f"Array device must be same as the current device: array device = {x._device} while "
                             f"current = {state.device} ({name})")


@cache
def _signature(parameters: str) -> inspect.Signature:
    return inspect.signature(eval(f"lambda {parameters[1:-1]}: None"))


_UFUNC = "(*args, out=None, casting=None, dtype=None)"


def _call(name: str, function: Any, args: Any, kwargs: Any, parameters: str | None, bound: bool = False) -> Any:
    """Call a function of NumPy's as CuPy's of that name, with these parameters."""
    if parameters is not None:
        _signature(parameters).bind(*args, **kwargs)
    if name in _WAITING:
        wait(name)
    if name not in _VIEWS and name not in _FROM_HOST:  # which copy from another device
        _check_devices(name, args, kwargs)
    kwargs = {k: v for k, v in kwargs.items() if k != "blocking"}
    from_host = name in _FROM_HOST
    out = kwargs.get("out")
    made = function(*[_host(x, from_host) for x in (args[1:] if bound else args)],
                    **{k: _host(v, from_host or k in ("shape", "axes")) for k, v in kwargs.items()})
    if out is not None:
        return out[0] if isinstance(out, tuple) else out
    if name in ("asarray", "ascontiguousarray") and isinstance(args[0], ndarray) and (
            made is args[0]._host and args[0]._device == state.device):
        return args[0]
    if from_host and isinstance(made, np.ndarray) and any(
            np.may_share_memory(made, x) for x in args if type(x) is np.ndarray):
        made = made.copy()
    found = _device(made, *_arrays(args))
    if name in _VIEWS and isinstance(found, ndarray):
        found._device = next((x._device for x in _arrays(args) if np.may_share_memory(x._host, found._host)),
                             state.device)
    return found


class UFunc:
    """``cupy.ufunc``."""

    __module__ = "cupy"

    def __init__(self, function: Any) -> None:
        self.name = f"cupy_{function.__name__}"
        self.__name__ = function.__name__
        self._function = function
        self.nin, self.nout = getattr(function, "nin", 1), getattr(function, "nout", 1)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return _call(self.__name__, self._function, args, kwargs, _UFUNC)

    def reduce(self, array: Any, axis: Any = 0, dtype: Any = None, out: Any = None, keepdims: bool = False) -> Any:
        """Sums and products only."""
        if self.__name__ not in ("add", "multiply"):
            raise NotImplementedError(f"`{self.name}.reduce` is not supported yet")
        return _call("reduce", self._function.reduce, (array, axis, dtype, out, keepdims), {}, None)

    def at(self, a: Any, indices: Any, b: Any = None) -> None:
        """Sums and extremes only."""
        if self.__name__ not in ("add", "subtract", "maximum", "minimum"):
            raise NotImplementedError(f"`{self.name}.at` is not supported yet")
        _call("at", self._function.at, (a, indices, b), {}, None)

    def outer(self, a: Any, b: Any, **kwargs: Any) -> Any:
        """All pairs."""
        return _call("outer", self._function.outer, (a, b), kwargs, None)


class Module(types.ModuleType):
    """A module of CuPy: NumPy's functions on the stand-in's arrays, and some of its own."""

    def __init__(self, name: str, source: Any = None, **own: Any) -> None:
        super().__init__(name)
        self.__spec__ = importlib.machinery.ModuleSpec(name, None)
        self.__path__ = []
        self._source = source
        vars(self).update(own)
        MODULES[name] = self

    def __getattr__(self, name: str) -> Any:
        table = API.get(self.__name__, {})
        if name not in table or self._source is None:
            raise AttributeError(f"module {self.__name__!r} has no attribute {name!r}")
        found: Any = getattr(self._source, name)
        if table[name] == "ufunc":
            found = UFunc(found)
        elif callable(found) and not isinstance(found, (type, np.dtype)):
            def function(*args: Any, found: Any = found, **kwargs: Any) -> Any:
                return _call(name, found, args, kwargs, table[name])
            function.__name__ = function.__qualname__ = name
            function.__module__ = self.__name__
            found = function
        vars(self)[name] = found
        return found


class _Generator:
    """The draws of ``cupy.random``, from a generator for each device that is not NumPy's."""

    def __init__(self) -> None:
        self._states: dict[int, Any] = {}

    @property
    def state(self) -> np.random.RandomState:
        """The generator of the current device."""
        return self._states.setdefault(state.device, np.random.RandomState())

    def seed(self, seed: Any = None) -> None:
        """``cupy.random.seed``."""
        self._states[state.device] = np.random.RandomState(seed)

    RandomState = np.random.RandomState

    def get_random_state(self) -> np.random.RandomState:
        """``cupy.random.get_random_state``."""
        return self.state

    def set_random_state(self, rs: Any) -> None:
        """``cupy.random.set_random_state``."""
        self._states[state.device] = rs

    def __getattr__(self, name: str) -> Any:
        def draw(*args: Any, dtype: Any = None, **kwargs: Any) -> Any:
            drawn = getattr(self.state, name)(*args, **kwargs)
            return drawn if dtype is None else np.asarray(drawn).astype(dtype)
        return draw


def _copyto(dst: Any, src: Any, casting: str = "same_kind", where: Any = None) -> None:
    if isinstance(src, np.ndarray):
        raise TypeError(f"Unsupported type {type(src)}")
    np.copyto(dst._host, _host(src), casting, where=True if where is None else _host(where))


def _asnumpy(a: Any, stream: Any = None, order: str = "C", out: Any = None, *, blocking: bool = True) -> Any:
    return a.get(stream, order, out) if isinstance(a, ndarray) else np.asarray(a)


def _elementwise(function: Callable[[float], float]) -> Any:
    plain = np.vectorize(function, otypes=[float])

    def apply(x: Any, out: Any = None) -> Any:
        kind = x.dtype if x.dtype.kind == "f" else np.dtype(float)
        return ndarray.of(plain(x._host).astype(kind) if x.size else np.empty(x.shape, kind))
    return apply


def _modules() -> Any:
    """All modules of the stand-in."""
    import math
    generator = _Generator()
    nvtx: list[str] = []
    cuda = Module(
        "cupy.cuda", Device=Device, Event=Event, Stream=Stream, get_elapsed_time=get_elapsed_time,
        get_current_stream=get_current_stream, alloc_pinned_memory=alloc_pinned_memory, MemoryPointer=MemoryPointer,
        alloc=lambda size: cupy_memory.pool.malloc(size), Graph=cupy_kernels.Graph, OutOfMemoryError=OutOfMemoryError,
        memory=types.SimpleNamespace(OutOfMemoryError=OutOfMemoryError, MemoryPointer=MemoryPointer),
        nvtx=types.SimpleNamespace(RangePush=nvtx.append, RangePop=lambda: nvtx.append(""), log=nvtx),
        runtime=types.SimpleNamespace(
            getDeviceCount=lambda: cupy_streams.count, runtimeGetVersion=lambda: 12090, driverGetVersion=lambda: 13000,
            getDeviceProperties=lambda i: {"name": b"Stand-in", "totalGlobalMem": 4 << 30}))
    floats = {name: _elementwise(getattr(math, name)) for name in ("erf", "erfc", "gamma")}
    special = Module("cupyx.scipy.special", **floats, gammaln=_elementwise(math.lgamma))
    own: dict[str, Any] = {name: Module(f"cupy.{name}", getattr(np, name)) for name in ("linalg", "fft")}
    own["random"] = Module("cupy.random", generator)
    own["lib"] = Module("cupy.lib", stride_tricks=Module("cupy.lib.stride_tricks", np.lib.stride_tricks))
    scatter = {"scatter_add": lambda a, slices, value: a.scatter_add(slices, value),
               "rsqrt": lambda x, out=None: ndarray.of(1 / np.sqrt(x._host))}
    own["_core"] = cupy_libraries.Core()
    return Module("cupy", np, ndarray=ndarray, ufunc=UFunc, cuda=cuda, copyto=_copyto, asnumpy=_asnumpy,
                  __version__=API["version"], fuse=lambda *args, **kwargs: args[0],
                  get_default_memory_pool=lambda: cupy_memory.pool, RawKernel=cupy_kernels.RawKernel,
                  ElementwiseKernel=cupy_elementwise.ElementwiseKernel, **own), Module(
        "cupyx", **scatter, scipy=Module("cupyx.scipy", special=special))


_turn = threading.Lock()


@contextmanager
def cupy(devices: int = 1) -> Iterator[Any]:
    """Context in which ``import cupy`` gives the stand-in, and Kusari has this many cards."""
    from kusari.backends import cuda
    from kusari.chainerx import get_backend
    module, _ = _modules()
    lazy = [name for name in cuda._lazy() if name in vars(cuda)]
    before = {name: vars(cuda)[name] for name in lazy}
    hidden = {name: sys.modules[name] for name in MODULES if name in sys.modules}  # of a CuPy that is installed

    def forget() -> None:
        cuda._cupy.cache_clear()
        cuda.clear_memo()
        for name in cuda._lazy():
            vars(cuda).pop(name, None)
        get_backend("cuda")._devices.clear()
    with _turn, cupy_libraries.only():
        cupy_streams.count, state.device = devices, 0
        state.streams.clear()
        cupy_memory.reset()
        cupy_kernels.launches.clear()
        module._core.reset()
        waits.clear()
        sys.modules.update(MODULES)
        forget()
        try:
            yield module
        finally:
            for name in MODULES:
                del sys.modules[name]
            sys.modules.update(hidden)
            cupy_streams.count = 1
            forget()
            vars(cuda).update(before)


def host(x: Any) -> Any:
    """The elements as NumPy's array, without counting as a wait."""
    assert type(x) is ndarray, f"{type(x)} is not on the device"
    Device(x._device).synchronize()
    return x._host


__all__ = ["cupy", "host", "ndarray", "waits"]
