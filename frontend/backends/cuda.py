"""CuPy on the graphics card: devices, copies, kernels.

CuPy is optional and imported only when something here needs it. Without it ``available`` is False, and asking for the
card raises `kusari.errors.DeviceError` that names the extra to install.
"""
from __future__ import annotations

import contextlib
import functools
import importlib
import importlib.util
import warnings
from collections.abc import Callable, Sequence
from typing import Any

import numpy

from .. import device as _device
from ..callsite import user_location
from ..errors import ArrayTypeError, DeviceError
from ..pytorch_names import CUDA, hint

_INSTALL = "CuPy is needed to use a GPU. Install it with: pip install 'kusari[gpu]'"


class DummyDeviceType:
    """The device of a machine without one: a context manager that does nothing.

    Example:
        >>> with DummyDevice as device:
        ...     int(device)
        -1
    """

    id = -1

    def __init__(self, device: int | None = None) -> None:
        pass

    def __int__(self) -> int:
        return -1

    def __enter__(self) -> DummyDeviceType:
        return self

    def __exit__(self, *exc: object) -> None:
        return None

    def use(self) -> None:
        """Do nothing."""

    def synchronize(self) -> None:
        """Do nothing."""

    def __eq__(self, other: object) -> bool:
        return isinstance(other, DummyDeviceType)

    def __hash__(self) -> int:
        return hash(DummyDeviceType)


DummyDevice = DummyDeviceType()


def _absent(name: str) -> type:
    """Make a class that takes the place of one of CuPy's where there is no CuPy: nothing that works is an instance."""
    return type(name, (), {"__module__": __name__, "__doc__": f"Takes the place of CuPy's {name}."})


@functools.cache
def _cupy() -> Any:
    """Import CuPy, or return None; the reason of a failed import is kept in `_reason`."""
    global _reason
    try:
        found = importlib.util.find_spec("cupy")
    except (ImportError, ValueError) as error:
        found, _reason = None, str(error)
    if found is None:
        return None
    try:
        module = importlib.import_module("cupy")
        module.cuda.runtime.getDeviceCount()
    except Exception as error:
        _reason = f"{type(error).__name__}: {error}"
        return None
    return module


_reason = "No module named 'cupy'"


def _lazy() -> dict[str, Callable[[], Any]]:
    return {
        "available": lambda: _cupy() is not None,
        "cudnn_enabled": lambda: False,
        "cupy": lambda: _cupy() or _MissingCupy(),
        "ndarray": lambda: _cupy().ndarray if _cupy() else _absent("ndarray"),
        "Device": lambda: _cupy().cuda.Device if _cupy() else DummyDeviceType,
        "Event": lambda: _cupy().cuda.Event if _cupy() else _absent("Event"),
        "fuse": lambda: _cupy().fuse if _cupy() else _unfused,
        "Stream": lambda: _cupy().cuda.Stream if _cupy() else _absent("Stream"),
    }


def __getattr__(name: str) -> Any:
    make = _lazy().get(name)
    if make is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}{hint(name, CUDA)}")
    value = globals()[name] = make()
    return value


class _MissingCupy:
    """``cuda.cupy`` without CuPy: every use raises an error that names the package to install."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):  # a question of the interpreter's, not a use
            raise AttributeError(name)
        raise DeviceError(f"cupy.{name} was used, but there is no CuPy ({_reason}). {_INSTALL}")


def _unfused(*args: Any, **kwargs: Any) -> Any:
    """Stand in for ``cupy.fuse``: a decorator, with or without arguments, that changes nothing."""
    if len(args) == 1 and not kwargs and callable(args[0]):
        return args[0]
    return lambda function: function


def check_cuda_available() -> None:
    """Raise `DeviceError` unless CuPy and a CUDA device are there."""
    if _cupy() is None:
        there = importlib.util.find_spec("cupy") is not None
        remedy = "python -m kusari doctor says what was found." if there else _INSTALL
        raise DeviceError(f"CUDA environment is not correctly set up: {_reason}. {remedy}")


def is_of_cupy(kind: type) -> bool:
    """Return whether a class is CuPy's."""
    return str(kind.__module__).partition(".")[0] == "cupy"  # of classes that Cython makes it may be a descriptor


def is_cupy_array(array: Any) -> bool:
    """Return whether `array` is a CuPy array, without importing CuPy to find out."""
    return is_of_cupy(type(array)) and hasattr(array, "__cuda_array_interface__")


class GpuDevice(_device.Device):
    """One CUDA device, with CuPy arrays.

    Args:
        device: A ``cupy.cuda.Device``.
    """

    def __init__(self, device: Any) -> None:
        check_cuda_available()
        self.device = device

    @property
    def xp(self) -> Any:  # type: ignore[override]
        """The module ``cupy``."""
        return _cupy()

    @property
    def supported_array_types(self) -> tuple[type, ...]:  # type: ignore[override]
        """``(cupy.ndarray,)``."""
        return (_cupy().ndarray,)

    @staticmethod
    def from_device_id(device_id: int) -> GpuDevice:
        """Return the device with this number."""
        return GpuDevice(_card(device_id))

    @staticmethod
    def from_array(array: Any) -> GpuDevice | None:
        """Return the device a CuPy array is on, and None for anything else."""
        return GpuDevice(array.device) if is_cupy_array(array) else None

    @property
    def name(self) -> str:
        """``@cupy:<number>``."""
        return f"@cupy:{self.device.id}"

    def __repr__(self) -> str:
        return f"<GpuDevice (cupy):{self.device.id}>"

    def send_array(self, array: Any) -> Any:
        """Copy to this card, unless the array is on it."""
        return array_to_gpu(array, self.device)

    def create_context(self) -> Any:
        """Return a new ``cupy.cuda.Device`` of this card, to be used in a ``with`` statement."""
        return _cupy().cuda.Device(self.device.id)

    def use(self) -> None:
        """Make this card the current one of the thread."""
        self.device.use()


def array_to_cpu(array: Any) -> Any:
    """Return a NumPy array of the same values; a NumPy array and None come back as they are."""
    if array is None or isinstance(array, numpy.ndarray):
        return array
    if is_cupy_array(array):
        return array.get()
    if hasattr(array, "require_grad"):  # one of ChainerX
        return array_to_cpu(array._elements)
    if isinstance(array, (int, float, complex, bool, numpy.generic)):
        return numpy.asarray(array)
    raise ArrayTypeError(f"The array sent to the CPU must be a NumPy or CuPy array, not {type(array).__name__}.")


def array_to_gpu(array: Any, device: Any = None) -> Any:
    """Return a CuPy array of the same values on `device` (the current one by default); None stays None."""
    check_cuda_available()
    if array is None:
        return None
    cupy = _cupy()
    if hasattr(array, "require_grad"):  # one of ChainerX
        array = array._elements
    if not isinstance(array, (numpy.ndarray, numpy.generic, cupy.ndarray, int, float, bool)):
        raise ArrayTypeError(f"The array sent to the GPU must be a NumPy or CuPy array, not {type(array).__name__}.")
    with device or cupy.cuda.Device():
        if isinstance(array, cupy.ndarray) and array.device == cupy.cuda.Device():
            return array
        return cupy.array(array)


def to_cpu(array: Any, stream: Any = None) -> Any:
    """Copy an array, or a list or tuple of them, to the host.

    Args:
        array: A NumPy or CuPy array, a scalar, None, or a list or tuple of them.
        stream: A CUDA stream to copy in; None copies synchronously.
    """
    if isinstance(array, (list, tuple)):
        return type(array)([to_cpu(one, stream) for one in array])
    if stream is not None and is_cupy_array(array):
        return array.get(stream)
    return array_to_cpu(array)


def to_gpu(array: Any, device: Any = None, stream: Any = None) -> Any:
    """Copy an array, or a list or tuple of them, to a card.

    Args:
        array: A NumPy or CuPy array, a scalar, None, or a list or tuple of them.
        device: A number or a device; None means the current one.
        stream: A CUDA stream to copy in (deprecated).

    Raises:
        DeviceError: There is no CuPy or no card.
    """
    if stream is not None:
        warnings.warn("The stream option is deprecated in chainer.backends.cuda.to_gpu. Please remove it.",
                      DeprecationWarning, stacklevel=2)
    check_cuda_available()
    if isinstance(array, (list, tuple)):
        return type(array)([to_gpu(one, device, stream) for one in array])
    target = None if device is None else _device_of(device)
    if stream is None:
        return array_to_gpu(array, target)
    with stream:
        return array_to_gpu(array, target)


def copy(array: Any, out: Any = None, out_device: Any = None, stream: Any = None) -> Any:
    """Copy an array on a card, perhaps to another card.

    Args:
        array: The array.
        out: An array to copy into; None makes one.
        out_device: The card of the new array, as a number, a device or an array on it; None means that of `array`.
        stream: A CUDA stream to copy in.

    Raises:
        DeviceError: There is no CuPy or no card.
    """
    check_cuda_available()
    cupy = _cupy()
    if out is None:
        with _device_of(array if out_device is None else out_device):
            out = cupy.empty_like(array)
    with _device_of(array), contextlib.nullcontext() if stream is None else stream:
        cupy.copyto(out, array)
    return out


def get_device_from_id(device_id: int | None) -> Any:
    """Return the CUDA device of this number; a negative number or None gives `DummyDevice`."""
    if device_id is None or device_id < 0:
        return DummyDevice
    return _card(device_id)


def _card(number: int) -> Any:
    """Return the ``cupy.cuda.Device`` of this number; raises `DeviceError` if no card has it."""
    check_cuda_available()
    count = _cupy().cuda.runtime.getDeviceCount()
    if not 0 <= number < count:
        raise DeviceError(f"there is no card {number}: expected a number from 0 to {count - 1}, as there "
                          f"{'is 1 card' if count == 1 else f'are {count} cards'} (CUDA_VISIBLE_DEVICES may hide some)")
    return _cupy().cuda.Device(int(number))


def get_device_from_array(*arrays: Any) -> Any:
    """Return the CUDA device of the first CuPy array among `arrays`, else `DummyDevice`."""
    for array in arrays:
        if is_cupy_array(array) and array.device is not None:
            return array.device
    return DummyDevice


def away(arrays: Sequence[Any]) -> Any:
    """Return the card of the first CuPy array where another card is the current one, else None."""
    for array in arrays:
        if is_cupy_array(array):
            return None if array.device.id == _cupy().cuda.Device().id else array.device
    return None


def bound(function: Callable[..., Any], device: Any) -> Callable[..., Any]:
    """Return the function with a card as the current one."""
    def on_device(*args: Any) -> Any:
        with device:
            return function(*args)
    return on_device


def beside(x: Any, others: list[Any]) -> list[Any]:
    """Return arrays on the card that a Variable or an array is on, if it is on one; Variables stay where they are."""
    array = getattr(x, "_array", x)
    if not others or isinstance(array, numpy.ndarray) or not is_cupy_array(array):
        return others
    return [x if hasattr(x, "creator_node") else array_to_gpu(x, array.device) for x in others]


def expect_success(arrays: Sequence[Any], label: str) -> None:
    """Wait for cards to have made arrays; raises `DeviceError` with function and user's line where they fail."""
    try:
        synchronize(arrays)
    except Exception as error:
        raise DeviceError(f"{label} failed on the card: {type(error).__name__}: {error}\n"
                          f"Applied at: {user_location()}") from error


def synchronize(arrays: Sequence[Any]) -> None:
    """Wait for the cards that CuPy arrays are on, so that an error of a kernel is raised here and not later."""
    for device in dict.fromkeys([array.device for array in arrays if is_cupy_array(array)]):
        device.synchronize()


def get_device(*args: Any) -> Any:
    """Return the CUDA device of a number, a device or an array, trying the arguments in turn (deprecated)."""
    warnings.warn("get_device is deprecated. Please use get_device_from_id or get_device_from_array instead.",
                  DeprecationWarning, stacklevel=2)
    return _device_of(*args)


def _device_of(*args: Any) -> Any:
    for arg in args:
        if isinstance(arg, bool):
            continue
        if isinstance(arg, (int, numpy.integer)):
            return get_device_from_id(int(arg))
        if is_cupy_array(arg):
            return arg.device
        if isinstance(arg, GpuDevice):
            return arg.device
        if isinstance(arg, DummyDeviceType) or (_cupy() is not None and isinstance(arg, _cupy().cuda.Device)):
            return arg
    return DummyDevice


get_array_module: Callable[..., Any]  # `kusari.backend.get_array_module`, which that module installs


def memoize(for_each_device: bool = False) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Return a decorator that remembers the result for each tuple of positional arguments.

    Args:
        for_each_device (bool): Remember separately for each CUDA device.
    """

    def decorator(function: Callable[..., Any]) -> Callable[..., Any]:
        memory: dict[Any, Any] = {}
        _memories.append(memory)

        @functools.wraps(function)
        def memoized(*args: Any, **kwargs: Any) -> Any:
            device = _cupy().cuda.Device().id if for_each_device and _cupy() is not None else -1
            key = (device, args, frozenset(kwargs.items()))
            try:
                return memory[key]
            except KeyError:
                found = memory[key] = function(*args, **kwargs)
                return found

        return memoized

    return decorator


_memories: list[dict[Any, Any]] = []


def clear_memo() -> None:
    """Forget all that functions decorated with `memoize` remember."""
    for memory in _memories:
        memory.clear()


def map_kernel(exprs: Sequence[Any], dtypes: Sequence[Any], name: str) -> Any:
    """Make a kernel that computes trees of expressions at each point of arrays of these dtypes, which broadcast.

    It is a ``cupy.ElementwiseKernel``, for any card: one launch, whatever the trees have in them.
    """
    from kusari.codegen.cuda.scalar.elementwise import elementwise_text
    text = elementwise_text(exprs, dtypes)
    name = "kusari_" + "".join([c if c.isalnum() else "_" for c in name])
    return _cupy().ElementwiseKernel(text.inputs, text.outputs, text.operation, name, preamble=text.preamble,
                                     options=("--fmad=false",))  # rounded as on the processor


@memoize(for_each_device=True)
def elementwise(in_params: str, out_params: str, operation: str, name: str, **kwargs: Any) -> Any:
    """Make (once per card) an elementwise kernel: ``cupy.ElementwiseKernel``.

    Args:
        in_params (str): Types and names of the inputs, such as ``"T x, T y"``.
        out_params (str): Types and names of the outputs.
        operation (str): The body of the loop, in CUDA C++.
        name (str): The kernel's name.
    """
    check_cuda_available()
    return _cupy().ElementwiseKernel(in_params, out_params, operation, name, **kwargs)


@memoize(for_each_device=True)
def reduce(
    in_params: str, out_params: str, map_expr: str, reduce_expr: str, post_map_expr: str, identity: Any, name: str,
    **kwargs: Any,
) -> Any:  # fmt: skip
    """Make (once per card) a reduction kernel: ``cupy.ReductionKernel``."""
    check_cuda_available()
    return _cupy().ReductionKernel(
        in_params, out_params, map_expr, reduce_expr, post_map_expr, identity, name, **kwargs
    )


@memoize(for_each_device=True)
def raw(code: str, name: str, *args: Any, **kwargs: Any) -> Any:
    """Make (once per card) a kernel from CUDA C++ source: ``cupy.RawKernel``."""
    check_cuda_available()
    return _cupy().RawKernel(code, name, *args, **kwargs)


_workspace = 8 * 1024 * 1024


def get_max_workspace_size() -> int:
    """Return how many bytes cuDNN may use as a workspace."""
    return _workspace


def set_max_workspace_size(size: int) -> None:
    """Set how many bytes cuDNN may use as a workspace."""
    global _workspace
    _workspace = int(size)


def should_use_cudnn(level: str, lowest_version: int = 0) -> bool:
    """Return whether functions should call cuDNN: never, CuPy no longer carries its bindings."""
    _check_level(level)
    return False


def should_use_cudnn_tensor_core(dtype: Any) -> bool:
    """Return whether functions should ask cuDNN for tensor cores: never, see `should_use_cudnn`."""
    return False


def _check_level(level: str) -> None:
    if level not in ("==always", ">=auto"):
        raise ValueError(f"invalid cuDNN use level: {level!r} (must be either of \"==always\" or \">=auto\")")
