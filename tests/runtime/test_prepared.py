"""Arrays bound by native code: exactly those that kernels can work on as they are."""
from __future__ import annotations

import ctypes
from typing import Any

import numpy as np
import pytest

from kusari.runtime import default_pool
from kusari.runtime.memory import KNOWN_LAYOUT
from kusari.runtime.prepared import Held

pytestmark = pytest.mark.skipif(not KNOWN_LAYOUT, reason="arrays are laid out in another way here")
F32 = np.dtype(np.float32)
RIGHT = np.arange(6, dtype=F32).reshape(2, 3)
MISALIGNED = np.frombuffer(bytes(25), np.uint8)[1:].view(F32).reshape(2, 3)


class Own(np.ndarray):
    """An array of a kind of its own."""


def read_only() -> np.ndarray:
    array = RIGHT.copy()
    array.flags.writeable = False
    return array


@pytest.mark.parametrize(("array", "accepted"), [
    (RIGHT, True),
    (read_only(), True),
    (np.arange(12, dtype=F32)[6:].reshape(2, 3), True),
    (np.arange(12, dtype=F32)[::2].reshape(2, 3)[:, ::-1], False),
    (np.arange(12, dtype=F32).reshape(2, 6)[:, :3], False),
    (np.asfortranarray(RIGHT), False),
    (MISALIGNED, False),
    (RIGHT.T, False),
    (RIGHT.reshape(3, 2), False),
    (RIGHT.reshape(6), False),
    (RIGHT.reshape(2, 3, 1), False),
    (RIGHT.view(np.int32), False),
    (RIGHT.astype(np.float64), False),
    (RIGHT.astype(F32.newbyteorder()), False),
    (RIGHT.view(Own), False),
    (RIGHT[0, 0], False),
    (None, False),
    ([1.0, 2.0], False),
])
def test_only_plain_arrays_of_the_dtype_and_shape_are_placed(array: Any, accepted: bool) -> None:
    slots = (ctypes.c_size_t * 4)()
    made = default_pool().invoker.binder(ctypes.addressof(slots), [(F32, (2, 3), [(2, 0), (0, 4)])])
    assert made is not None
    assert made.call(array) is accepted
    if accepted:
        address = array.ctypes.data
        assert list(slots) == [address + 4, 0, address, 0]


def test_all_arrays_are_placed_or_the_answer_is_no() -> None:
    slots = (ctypes.c_size_t * 2)()
    scalar, empty = np.array(3.0), np.zeros((0, 4), F32)
    made = default_pool().invoker.binder(
        ctypes.addressof(slots), [(scalar.dtype, (), [(0, 0)]), (F32, (0, 4), [(1, 0)])])
    assert made is not None
    assert made.call(scalar, empty) is True
    assert list(slots) == [scalar.ctypes.data, empty.ctypes.data]
    assert [made.call(*arrays) for arrays in ((), (scalar,), (empty, scalar), (scalar, empty, empty))] == [False] * 4


def test_arrays_that_may_not_move_are_compared() -> None:
    slots = (ctypes.c_size_t * 1)(RIGHT.ctypes.data)
    made = default_pool().invoker.binder(ctypes.addressof(slots), [(F32, (2, 3), [(0, 0)])], may_move=False)
    assert made is not None
    assert made.call(RIGHT) and not made.call(RIGHT.copy()) and list(slots) == [RIGHT.ctypes.data]


CHANGES: dict[str, Any] = {
    "nothing": lambda a: None, "elements": lambda a: a.fill(1), "memory": None,
    "size": lambda a: a.resize(999, refcheck=False), "shape": lambda a: setattr(a, "shape", (1, *a.shape)),
    "extents": lambda a: setattr(a, "shape", a.shape[::-1]), "strides": lambda a: setattr(a, "strides", (0,) * a.ndim),
    "dtype": lambda a: setattr(a, "dtype", "i4"), "flags": lambda a: setattr(a.flags, "writeable", False)}


@pytest.mark.filterwarnings("ignore:Setting the (strides|shape)")
@pytest.mark.parametrize("shape", [(2, 3), (5,), (2, 3, 2, 1), (2, 1, 2, 1, 3, 2)], ids=len)
@pytest.mark.parametrize("change", CHANGES)
def test_what_is_held_is_as_it_was_or_the_answer_is_no(change: str, shape: tuple[int, ...]) -> None:
    if change == "extents" and len(shape) == 1:
        return
    array = np.zeros(shape, F32)
    slots = (ctypes.c_size_t * 2)(0, array.ctypes.data + 4)
    bound = [None, array, None]
    held = [Held(1, F32, shape, (1, 4), True), Held(2, F32, (), None, False)]
    made = default_pool().invoker.binder(ctypes.addressof(slots), [], held, bound)
    assert made is not None and made.call()
    if change == "memory":  # by another array's
        bound[1] = np.zeros(shape, F32)
    else:
        CHANGES[change](array)
    assert made.call() is (change in ("nothing", "elements"))
