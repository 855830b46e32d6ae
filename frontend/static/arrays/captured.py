"""Arrays that the user's code has from attributes, globals and closures: functions read them as they are at each call.

The lookup of such an array is a guard, so the object is the same in every replay; its elements are read anew. A part
of one in define-by-run (``self.mask[:n]``) is the same part of the array that the graph reads.
"""
from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from kusari.ir import Value

from ... import functions as F
from ...functions.array.entries import encode
from ...functions.array.indexing import GetItemGrad
from ...variable import Variable
from .overlap import Spans

if TYPE_CHECKING:
    from ..trace.recorder import Tape

_STRIDED: Any = type(np.lib.stride_tricks.as_strided(np.zeros(1)).base)  # which stands between a view and its array


def outside_value(tape: Tape, array: Any) -> Value | None:
    """Return the value of an array from outside, or of a part of one; None if it is neither.

    An array that shares memory with arguments, or with arrays that the call may write, has no value: the graph takes
    those for different.
    """
    observation = tape.observation
    if observation is None or type(array) is not np.ndarray:
        return None
    memory = owner(array)
    if array in tape.of_parameters:
        whole = tape.of_parameters.around(array)
        return whole if whole is None else tape.of_parameters.value(tape, array) if array is whole else _part(
            tape, array, whole)
    for whole in (*tape.written.arrays(), *tape.states(), *observation.found_arrays()):
        if owner(whole) is not memory:
            continue
        if tape.known(whole) is None:
            if tape.is_state(whole):
                tape.bind_state(whole)
            elif whole.dtype.kind not in "fiubc" or Spans(tape.given_arrays()).touch(whole):
                return None
            elif whole is array or part_of(array, whole) is not None:
                tape.bind_outside(whole)
        value = tape.known(whole) if whole is array else _part(tape, array, whole)
        if value is not None:
            return value
    return None


def owner(array: Any) -> Any:
    """Return the array in whose memory ``array`` lies, the outermost one for views of views.

    >>> x = np.zeros(4)
    >>> [owner(y) is x for y in (x[1:], np.frombuffer(memoryview(x)), np.lib.stride_tricks.as_strided(x, (2,)))]
    [True, True, True]
    """
    while (base := getattr(array, "base", None)) is not None:
        if type(base) is memoryview:
            base = base.obj
        elif type(base) is _STRIDED:
            base = base.base
        if not (isinstance(base, np.ndarray) or type(base) is type(array)):
            break
        array = base
    return array


def _part(tape: Tape, view: Any, whole: Any) -> Value | None:
    part = part_of(view, whole)
    if part is None:
        return None
    with tape.written.by_numpy():
        return tape.known(part.of(Variable(whole, requires_grad=False))._array)


@dataclass(frozen=True)
class Part:
    """A part of an array: ``whole.reshape(rows)[index].transpose(order).reshape(shape)``."""

    rows: tuple[int, ...]
    index: tuple[slice, ...]
    order: tuple[int, ...]
    shape: tuple[int, ...]

    def of(self, whole: Variable) -> Variable:
        """Return the part of a Variable."""
        y = F.get_item(_shaped(whole, self.rows), self.index)
        if self.order != tuple(range(len(self.order))):
            y = F.transpose(y, self.order)
        return _shaped(y, self.shape)

    def of_array(self, whole: Any) -> Any:
        """Return the part of an array, which shares its memory."""
        return whole.reshape(self.rows)[(*self.index, ...)].transpose(self.order).reshape(self.shape)

    def replaced(self, whole: Variable, part: Variable, constant: Callable[[Any], Variable]) -> Variable:
        """Return ``whole`` with other elements in the place of its part."""
        x = _shaped(whole, self.rows)
        inside = np.zeros(x.shape, bool)
        inside[self.index] = True
        cut = inside[self.index].transpose(self.order).shape
        y = F.transpose(_shaped(part, cut), tuple(map(int, np.argsort(self.order))))
        y, = GetItemGrad(encode(self.index)[0], x.shape).apply((y,))
        return _shaped(F.where(constant(inside), y, x), whole.shape)


def _shaped(x: Variable, shape: tuple[int, ...]) -> Variable:
    return x if x.shape == shape else F.reshape(x, shape)


def part_of(view: Any, whole: Any) -> Part | None:
    """Return the part of an array that a view is; None where `index_of` finds none, and its elements are not in a row.
    """
    found = index_of(view, whole)
    if found is not None:
        return Part(whole.shape, *found, view.shape)
    start = _first_element(view, whole)
    if start is None or not view.flags.c_contiguous:
        return None
    first = int(np.ravel_multi_index(start, whole.shape))
    if first + view.size > whole.size:  # both are parts of a larger array
        return None
    return Part((whole.size,), (slice(first, first + view.size),), (0,), view.shape)


def index_of(view: Any, whole: Any) -> tuple[tuple[slice, ...], tuple[int, ...]] | None:
    """Return slices and an order of axes such that ``whole[slices].transpose(order)`` reshaped is ``view``'s memory.

    None if ``whole`` is not in C order, or the view repeats elements.

    >>> x = np.arange(24).reshape(4, 6)
    >>> index_of(x[1, None, ::2], x)
    ((slice(1, 2, None), slice(0, 5, 2)), (0, 1))
    >>> index_of(x.T[3:5], x)
    ((slice(0, 4, 1), slice(3, 5, 1)), (1, 0))
    """
    starts = _first_element(view, whole)
    if starts is None:
        return None
    slices = [slice(start, start + 1) for start in starts]
    order: list[int] = []
    for n, stride in _long_axes(view):
        axis = next((j for j, (m, s) in enumerate(zip(whole.shape, whole.strides, strict=True))
                     if m > 1 and j not in order and stride > 0 and stride % s == 0
                     and starts[j] + (n - 1) * (stride // s) < m), None)
        if axis is None:
            return None
        step = stride // whole.strides[axis]
        slices[axis] = slice(starts[axis], starts[axis] + (n - 1) * step + 1, step)
        order.append(axis)
    order = [j for j in range(whole.ndim) if j not in order and slices[j].stop - slices[j].start == 1] + order
    part = whole[(*slices, ...)].transpose(order)  # an array also where there is no axis
    same = part.ctypes.data == view.ctypes.data and _long_axes(part) == _long_axes(view)
    return (tuple(slices), tuple(order)) if same else None


def _first_element(view: Any, whole: Any) -> list[int] | None:
    """Return the index in ``whole``, in C order, of the first element of ``view``; None if it is none of its own."""
    if not (whole.size and view.size and whole.flags.c_contiguous and view.dtype == whole.dtype):
        return None
    offset, rest = divmod(view.ctypes.data - whole.ctypes.data, whole.itemsize)
    if rest or not 0 <= offset < whole.size:
        return None
    return [*map(int, np.unravel_index(offset, whole.shape))]


def _long_axes(array: Any) -> list[tuple[int, int]]:
    """Return the lengths and strides of the axes that have more than one element."""
    return [(n, s) for n, s in zip(array.shape, array.strides, strict=True) if n > 1]
