"""`ndarray`: an array on a device, with the place it has in graphs."""
from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from . import device as _device
from .dtypes import as_dtype
from .errors import ChainerxError, DeviceError, DimensionError

if TYPE_CHECKING:
    from ..variable import Variable

__all__ = ["ndarray", "shape_of"]

# The modules of these names, which set them: methods of arrays are functions there.
graph: Any = None
apply: Any = None


def shape_of(shape: Any) -> tuple[int, ...]:
    """Return a shape given as a number or a sequence of them."""
    found = tuple([int(n) for n in shape]) if hasattr(shape, "__iter__") else (int(shape),)
    if any(n < 0 for n in found):
        raise DimensionError(f"a shape has no negative numbers, but got {found}")
    return found


class ndarray:
    """An array of one data type on one device.

    It is a face: elements lie in an array of NumPy or CuPy, and what it was computed from is the graph behind a
    `Variable`, there only where gradients are asked for.

    Args:
        shape (int or tuple of ints): Its shape; elements are not initialized.
        dtype: Its data type.
        device (Device or str): Where it lies; None is the default device.

    Example:
        >>> import kusari.chainerx as chx
        >>> x = chx.array([1, 2, 3], dtype="float32").require_grad()
        >>> (x * x).sum().backward()
        >>> x.grad
        array([2., 4., 6.], shape=(3,), dtype=float32, device='native:0')
    """

    __slots__ = ("__weakref__", "_elements", "_device", "_variable")

    __array_priority__ = 100
    __array_ufunc__ = None
    __hash__ = None  # type: ignore[assignment]
    _elements: Any
    _device: Any
    _variable: Variable | None

    if TYPE_CHECKING:  # routines that are methods as well
        def __getattr__(self, name: str) -> Any: ...
        def __add__(self, other: Any) -> ndarray: ...
        def __mul__(self, other: Any) -> ndarray: ...
        def __truediv__(self, other: Any) -> ndarray: ...

    def __init__(self, shape: Any, dtype: Any, device: Any = None) -> None:
        self._device = _device.get_device(device)
        with self._device.active():
            self._elements = self._device.xp.empty(shape_of(shape), as_dtype(dtype))
        self._variable = None

    @classmethod
    def of(cls, array: Any, device: Any, variable: Variable | None = None) -> ndarray:
        """Return the face of an array that lies on ``device``, without copying it."""
        made = cls.__new__(cls)
        made._elements = array
        made._device = device
        made._variable = variable
        return made

    # The array

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape."""
        return self._elements.shape

    @property
    def dtype(self) -> Any:
        """The data type, as NumPy has it."""
        return self._elements.dtype

    @property
    def device(self) -> _device.Device:
        """The device it lies on."""
        return self._device

    @property
    def ndim(self) -> int:
        """The number of axes."""
        return self._elements.ndim

    @property
    def size(self) -> int:
        """The number of elements."""
        return self._elements.size

    @property
    def itemsize(self) -> int:
        """The number of bytes of an element."""
        return self._elements.itemsize

    @property
    def nbytes(self) -> int:
        """The number of bytes of all elements."""
        return self._elements.nbytes

    @property
    def strides(self) -> tuple[int, ...]:
        """The distances of neighbours along each axis, in bytes."""
        return self._elements.strides

    @property
    def is_contiguous(self) -> bool:
        """Whether elements lie one behind the other, in the order of the last axis first."""
        return bool(self._elements.flags.c_contiguous)

    @property
    def data_ptr(self) -> int:
        """The address of the memory that the array is a part of."""
        return self._address() - self.offset

    @property
    def offset(self) -> int:
        """The distance of the first element from `data_ptr`, in bytes."""
        if not isinstance(self._elements, np.ndarray):
            return self._elements.data.ptr - self._elements.data.mem.ptr
        whole = self._elements
        while isinstance(whole.base, np.ndarray):
            whole = whole.base
        return self._address() - whole.__array_interface__["data"][0]

    def _address(self) -> int:
        if isinstance(self._elements, np.ndarray):
            return self._elements.__array_interface__["data"][0]
        return self._elements.data.ptr

    @property
    def data_size(self) -> int:
        """The number of bytes from the first element to the end of the last."""
        if not self.size:
            return 0
        steps = [(n - 1) * stride for n, stride in zip(self.shape, self.strides, strict=True)]
        return sum([max(step, 0) for step in steps]) - sum([min(step, 0) for step in steps]) + self.itemsize

    @property
    def T(self) -> ndarray:
        """The array with its axes reversed."""
        return self.transpose()

    def __len__(self) -> int:
        if not self.ndim:
            raise TypeError("len() of an array without axes")
        return self.shape[0]

    def item(self) -> Any:
        """Return the only element as a Python number.

        Raises:
            DimensionError: There is not exactly one element.
        """
        if self.size != 1:
            raise DimensionError(f"only an array of one element is a number, not one of shape {self.shape}")
        return self._elements.item()

    def __float__(self) -> float:
        return float(self.item())

    def __int__(self) -> int:
        return int(self.item())

    def __bool__(self) -> bool:
        return bool(self.item())

    def __index__(self) -> int:
        value = self.item()
        if self.dtype.kind not in "iu":
            raise TypeError(f"only integer arrays can be an index, not {self.dtype}")
        return value

    def tolist(self) -> Any:
        """Return the elements as nested lists."""
        return self._elements.tolist()

    def fill(self, value: Any) -> None:
        """Set all elements to a number."""
        self._elements[...] = np.asarray(getattr(value, "_elements", value)).astype(self.dtype)

    @property
    def _debug_flat_data(self) -> list[Any]:
        return self._elements.ravel().tolist()

    @property
    def _debug_data_memory_address(self) -> int:
        return self._address()

    # Exchange with others

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        return np.array(self._device.context.get_device("native").put(self._elements), dtype, copy=copy)

    def __dlpack__(self, **kwargs: Any) -> Any:
        if self.is_backprop_required(anygraph):
            raise ChainerxError("an array that is part of a graph cannot be shared: use x.as_grad_stopped()")
        return self._elements.__dlpack__(**kwargs)

    def __dlpack_device__(self) -> tuple[Any, Any]:
        return self._elements.__dlpack_device__()

    def __reduce__(self) -> Any:
        return _restored, (self._device.context.get_device("native").put(self._elements), self._device.name)

    def __copy__(self) -> ndarray:
        return self.copy()

    def __deepcopy__(self, memo: dict[int, Any]) -> ndarray:
        with self._device.active():
            copied = memo[id(self)] = ndarray.of(self._elements.copy(), self._device)
        return copied

    def __repr__(self) -> str:
        shown = np.array2string(np.asarray(self), separator=", ", prefix="array(") if self.size else "[]"
        rest = f"shape={self.shape}, dtype={self.dtype}, device={self._device.name!r}"
        ids = self._backprop_ids()
        if ids:
            rest += f", backprop_ids={sorted(one.name for one in ids)}"
        return f"array({shown}, {rest})"

    # Graphs

    def _backprop_ids(self) -> set[Any]:
        return set() if self._variable is None else graph.ids_behind([self._variable.node])

    def require_grad(self, backprop_id: Any = None) -> ndarray:
        """Ask for gradients of what will be computed from this array; returns the array.

        Args:
            backprop_id (BackpropId): The graph; None is the default one.

        Raises:
            DtypeError: The array is not floating point.
        """
        return graph.require_grad(self, backprop_id)

    def is_grad_required(self, backprop_id: Any = None) -> bool:
        """Return whether gradients of this very array were asked for."""
        return graph.is_grad_required(self, backprop_id)

    def is_backprop_required(self, backprop_id: Any = None) -> bool:
        """Return whether this array, or one it was computed from, wants a gradient.

        Args:
            backprop_id (BackpropId): The graph; None is the default one, `anygraph` any.
        """
        if self._variable is None:
            return False
        ids = self._backprop_ids()
        return bool(ids) if backprop_id is anygraph else graph.resolve(backprop_id, self) in ids

    def _is_chained(self, backprop_id: Any = None) -> bool:
        if not self.is_backprop_required(backprop_id):
            raise ChainerxError("the array is not part of the graph")
        return self._variable is not None and self._variable.creator_node is not None

    @property
    def grad(self) -> Any:
        """The gradient in the default graph, or None."""
        return self.get_grad()

    @grad.setter
    def grad(self, value: Any) -> None:
        self.set_grad(value)

    def get_grad(self, backprop_id: Any = None) -> Any:
        """Return the gradient, or None.

        Raises:
            ChainerxError: The array wants no gradient.
        """
        return graph.get_grad(self, backprop_id)

    def set_grad(self, grad: Any, backprop_id: Any = None) -> None:
        """Set the gradient; None removes it.

        Raises:
            ChainerxError: The array wants no gradient, and is not part of the graph.
            GradientError: The gradient is of another type, shape or device.
        """
        graph.set_grad(self, grad, backprop_id)

    def cleargrad(self, backprop_id: Any = None) -> None:
        """Remove the gradient."""
        self.set_grad(None, backprop_id)

    def backward(self, backprop_id: Any = None, enable_double_backprop: bool = False, loss_scale: Any = None) -> None:
        """Compute the gradients of all that this was computed from and wants them, see `chainerx.backward`."""
        graph.backward(self, backprop_id, enable_double_backprop, loss_scale)

    def as_grad_stopped(self, backprop_ids: Any = None, copy: bool = False) -> ndarray:
        """Return the same array outside of graphs.

        Args:
            backprop_ids (list of BackpropId): The graphs to leave; None is all.
            copy (bool): Whether elements are copied, too.
        """
        if isinstance(backprop_ids, bool):
            backprop_ids, copy = None, backprop_ids
        alone = ndarray.of(self._elements, self._device)
        found = alone if backprop_ids is None else graph.stopped(self, frozenset(backprop_ids))
        return found.copy() if copy else found

    def to_device(self, *device: Any) -> ndarray:
        """Return the array on a device, itself where it is there already."""
        target = _device.get_device(*device)
        if target is self._device:
            return self
        if target.context is not self._device.context:
            raise DeviceError(f"the device {target.name} is of another context than the array")
        return apply.moved(self, target)


class AnyGraph:
    """The type of `anygraph`, which stands for any of the graphs."""

    def __repr__(self) -> str:
        return "anygraph"


anygraph = AnyGraph()


def _restored(array: Any, device: str) -> ndarray:
    place = _device.get_device(device)
    return ndarray.of(place.put(array), place)

