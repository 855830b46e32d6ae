"""Arrays bound by native code: exactly those that kernels can work on as they are."""
from __future__ import annotations

import ctypes
from typing import Any

import numpy as np
import pytest

from kusari.runtime import default_pool
from kusari.runtime.memory import KNOWN_LAYOUT

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
    made = default_pool().invoker.placing(ctypes.addressof(slots), [(F32, (2, 3), [(2, 0), (0, 4)])])
    assert made is not None
    place, kept = made
    assert place(array) is accepted and kept
    if accepted:
        address = array.ctypes.data
        assert list(slots) == [address + 4, 0, address, 0]


def test_all_arrays_are_placed_or_the_answer_is_no() -> None:
    slots = (ctypes.c_size_t * 2)()
    scalar, empty = np.array(3.0), np.zeros((0, 4), F32)
    made = default_pool().invoker.placing(
        ctypes.addressof(slots), [(scalar.dtype, (), [(0, 0)]), (F32, (0, 4), [(1, 0)])])
    assert made is not None
    place, _ = made
    assert place(scalar, empty) is True
    assert list(slots) == [scalar.ctypes.data, empty.ctypes.data]
    assert [place(*arrays) for arrays in ((), (scalar,), (empty, scalar), (scalar, empty, empty))] == [False] * 4
