"""Arrays as messages: what describes them, flat arrays in this memory, and the way back to a device."""
from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from ... import backend
from ...utils.arrays import is_array
from ...variable import Variable

__all__ = ["Header", "describe", "flat", "restored", "shown"]

_HOST = backend.CpuDevice()


@dataclass(frozen=True)
class Header:
    """The description of an array, or of a tuple of arrays."""

    is_tuple: bool
    dtypes: tuple[str, ...]
    shapes: tuple[tuple[int, ...], ...]
    on_card: bool = False

    def empty(self) -> list[np.ndarray]:
        """Return flat arrays to receive it in."""
        return [np.empty(int(np.prod(s, dtype=np.int64)), np.dtype(d))
                for d, s in zip(self.dtypes, self.shapes, strict=True)]

    def __str__(self) -> str:
        texts = [f"{d}{list(s)}" for d, s in zip(self.dtypes, self.shapes, strict=True)]
        return f"({', '.join(texts)})" if self.is_tuple else texts[0]


def shown(data: Any) -> str:
    """Return a short text for an argument that is no array."""
    return f"{data!r:.60} of type {type(data).__name__}"


def describe(operation: str, data: Any, tuples: bool = False) -> Header:
    """Return the description of an array, or where ``tuples`` are taken of a tuple or list of arrays.

    Raises:
        TypeError: It is something else, or its elements are no numbers.
    """
    if isinstance(data, Variable):
        raise TypeError(f"{operation} takes arrays, not Variables: give it x.array, or use "
                        f"chainermn.functions.{operation}, which has a gradient")
    several = isinstance(data, (tuple, list))
    if several and not tuples:
        raise TypeError(f"{operation} cannot handle tuple data")
    arrays = list(data) if several else [data]
    for array in arrays:
        if not is_array(array):
            raise TypeError(f"{operation} takes arrays{', or a tuple of them' if tuples else ''}: got {shown(array)}")
        if np.dtype(array.dtype).kind not in "biuf":
            raise TypeError(f"{operation} does not support dtype {array.dtype}")
    return Header(several, tuple([np.dtype(a.dtype).name for a in arrays]), tuple([tuple(a.shape) for a in arrays]),
                  any(not isinstance(_native(a), np.ndarray) for a in arrays))


def _native(array: Any) -> Any:
    """Return the array of NumPy or CuPy behind one."""
    return backend.from_chx(array)


def flat(array: Any) -> np.ndarray:
    """Return the elements of an array in this memory, contiguous; the array's own where that is possible."""
    return np.ascontiguousarray(_HOST.send(_native(array))).reshape(-1)


def restored(values: np.ndarray, shape: tuple[int, ...], like: Any) -> Any:
    """Return flat values as an array of a shape, where the array ``like`` is."""
    found = values.reshape(shape)
    if like is None or isinstance(like, np.ndarray):
        return found
    return backend.get_device_from_array(like).send(found)
