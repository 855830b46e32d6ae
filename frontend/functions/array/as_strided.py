"""Windows over memory."""
from __future__ import annotations

from typing import Any

from ...structured import Structured
from ...variable import Variable, as_variable
from .indexing import GetItemAdvanced
from .shape import reshape


class StridedPlaces(Structured):
    """The places ``offset + index * strides``, int32; of the input only the device is read."""

    def __init__(self, shape: tuple[int, ...], strides: tuple[int, ...], offset: int) -> None:
        super().__init__()
        self.shape = shape
        self.strides = strides
        self.offset = offset

    def _along(self, i: int) -> tuple[int, ...]:
        return (self.shape[i], *(1,) * (len(self.shape) - 1 - i))

    def lower(self, b: Any, x: Any) -> tuple[Any, ...]:
        y = b.call("add", b.arange(1), self.offset)
        for i, (n, stride) in enumerate(zip(self.shape, self.strides, strict=True)):
            y = b.map(lambda y, i, stride=stride: y + i * stride, y, b.reshape(b.arange(n), self._along(i)))
        return b.reshape(y, self.shape),


def as_strided(x: Any, shape: tuple[int, ...], strides: tuple[int, ...], storage_offset: int | None = None) -> Variable:
    """Take the elements ``storage_offset + index * strides`` of an array in C order.

    Args:
        x: Input.
        shape: Shape of the result.
        strides: Steps in elements, not in bytes, one for each axis of the result.
        storage_offset: Place of the first element; None: 0.

    Returns:
        Variable: Always a copy. (Chainer's shares memory, and reads that of the array that a view was made of.)

    Raises:
        ValueError: There are not as many strides as axes, or a place is outside of ``x``.

    >>> import numpy as np
    >>> import kusari.functions as F
    >>> F.as_strided(np.arange(4, dtype="f"), (3, 2), (1, 1)).array
    array([[0., 1.],
           [1., 2.],
           [2., 3.]], dtype=float32)
    """
    x = as_variable(x)
    shape, strides = tuple(int(n) for n in shape), tuple(int(n) for n in strides)
    offset = 0 if storage_offset is None else int(storage_offset)
    if len(shape) != len(strides):
        raise ValueError(f"as_strided needs one stride per axis, got {len(strides)} for {len(shape)}")
    reach = [(n - 1) * stride for n, stride in zip(shape, strides, strict=True)]
    least, most = offset + sum(min(r, 0) for r in reach), offset + sum(max(r, 0) for r in reach)
    if 0 not in shape and (least < 0 or most >= x.size):
        raise ValueError(f"as_strided reads the elements {least} to {most} of {x.size}")
    places = StridedPlaces(shape, strides, offset).apply((x,))[0]
    return GetItemAdvanced(("@",)).apply((reshape(x, (x.size,)), places))[0]
