"""Arrays that NumPy makes in a call and the user's code then fills with computed values: padding, one-hot rows.

Each write maps such an array to another value: its former elements with the written ones in their place. That
is right as long as nothing else reads its memory: functions whose gradients would do so later, or views of it.
"""
from __future__ import annotations

import operator
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np

from ... import functions as F
from ...functions.array.indexing import GetItemGrad, ScatterAdd, encode
from ...variable import Variable
from . import numpy_calls
from .captured import owner

if TYPE_CHECKING:
    from ..trace.recorder import Tape


class Written:
    """The filled arrays of one call. Invariant: arrays in it are kept alive, so that identities are unique."""

    def __init__(self) -> None:
        self._own: dict[int, Any] = {}  # arrays that own their memory
        self._memory: dict[int, Any] = {}  # arrays that have been written to
        self._read: set[int] = set()  # those of them that functions of the user's have read
        self._numpy = False

    def __contains__(self, array: Any) -> bool:
        """Whether an array lies in the memory of one that has been written to."""
        return bool(self._memory) and type(array) is np.ndarray and id(owner(array)) in self._memory

    def owns(self, array: Any) -> bool:
        """Whether an array may be written to."""
        return id(array) in self._own

    def made(self, array: Any) -> None:
        """Take in an array that NumPy has made, or computed from values that the tape knows."""
        if array.base is None:
            self._own[id(array)] = array

    def read(self, array: Any) -> None:
        """Note that a function reads an array; constants are compared at the end."""
        if not self._numpy and self.owns(array):
            self._read.add(id(array))

    @contextmanager
    def by_numpy(self) -> Iterator[None]:
        """Inside, functions are applied in place of NumPy's, which retain nothing that they read."""
        before, self._numpy = self._numpy, True
        try:
            yield
        finally:
            self._numpy = before

    def write(self, tape: Tape, array: Any, compute: Callable[[Any], Any]) -> bool:
        """Map ``array`` to ``compute(array)``, which the caller writes to it; returns whether that is possible."""
        if array.base is not None or not (array in tape.constants or self.owns(array)) or id(array) in self._read:
            return False
        if any(y is not array and owner(y) is array for y in tape.live_arrays()):
            return False
        before = array
        if not tape.knows_elements(array) or array in tape.constants:
            before = array.copy()  # elements that functions have read are compared at the end
            tape.constants.add(before)
        value = compute(before)
        if value is None or (known := tape.known(value)) is None:
            return False
        tape.constants.release(array)
        self._own[id(array)] = self._memory[id(array)] = array
        tape.alias(array, known)
        return True


def with_item(tape: Tape, array: Any, key: Any, value: Any) -> Any:
    """Return the recorded value of ``array`` after ``array[key] = value``; None if no functions compute it."""
    keys = key if type(key) is tuple else (key,)
    arrays = [x for x in keys if isinstance(x, np.ndarray)]
    if not all(isinstance(x, np.ndarray) or _is_basic(x) for x in keys):
        return None
    kinds = {x.dtype.kind for x in arrays}
    if not arrays and isinstance(value, np.ndarray):
        assign, operands = _slices, (value,)
    elif not isinstance(value, (bool, int, float, np.generic)):
        return None
    elif kinds == {"b"} and len(keys) == 1:
        assign, operands = _masked, (arrays[0], value)
    elif kinds <= {"i"}:
        assign, operands = (_places if arrays else _slices), (*arrays, value)
    else:
        return None

    def original(x: Any, *_: Any) -> Any:
        y = x.copy()
        operator.setitem(y, key, value)
        return y
    return numpy_calls.recorded(tape, lambda x, *rest: assign(tape, x, key, *rest), original, (array, *operands))


def _masked(tape: Tape, x: Variable, key: Any, mask: Variable, number: Any) -> Variable:
    """Return ``x`` with a number where a mask of its first axes is set."""
    mask = F.reshape(mask, mask.shape + (1,) * (x.ndim - mask.ndim))
    return F.where(mask, _constant(tape, np.asarray(number).astype(x.dtype)), x)


def _places(tape: Tape, x: Variable, key: Any, *rest: Any) -> Variable:
    """Return ``x`` with a number where arrays of integers point."""
    *arrays, number = rest
    ones = _constant(tape, np.ones(_part(x, key).shape, np.float32))
    count = ScatterAdd(encode(key)[0], x.shape).apply((ones, *arrays))[0]
    there, = numpy_calls.Compare("greater", (None, 0)).apply((count,))
    return F.where(there, _constant(tape, np.asarray(number).astype(x.dtype)), x)


def _slices(tape: Tape, x: Variable, key: Any, value: Any) -> Variable:
    """Return ``x`` with a number, or an array, in a part."""
    inside = np.zeros(x.shape, bool)
    inside[key] = True
    if isinstance(value, Variable):
        shape = _part(x, key).shape
        value = F.reshape(value, value.shape[max(value.ndim - len(shape), 0):])  # without axes in front of one element
        part = F.broadcast_to(F.cast(value, x.dtype), shape)
        value, = GetItemGrad(encode(key)[0], x.shape).apply((part,))
    else:
        value = _constant(tape, np.asarray(value).astype(x.dtype))
    return F.where(_constant(tape, inside), value, x)


def _part(x: Variable, key: Any) -> Any:
    """Return an array of the shape that an index selects of ``x``."""
    return np.broadcast_to(False, x.shape)[key]


def _is_basic(index: Any) -> bool:
    if isinstance(index, slice):
        return all(i is None or isinstance(i, (int, np.integer)) for i in (index.start, index.stop, index.step))
    return index is None or index is Ellipsis or isinstance(index, (int, np.integer)) and type(index) is not bool


def _constant(tape: Tape, array: Any) -> Variable:
    """Return a Variable of an array that is a constant in replays."""
    tape.constants.add(array)
    return Variable(array, requires_grad=False)
