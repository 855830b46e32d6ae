"""Runs one kernel without a schedule."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence

import numpy as np

from kusari.ir import Kernel
from kusari.runtime.loader import default_loader

SIGNATURE = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64)


def call(kernel: Kernel, arrays: Sequence[np.ndarray], threads: int = 1) -> None:
    """Run the kernel for every thread, the last one first; scratch is full of NaN."""
    function = SIGNATURE(default_loader().load_one(kernel))
    raw = np.full(kernel.scratch * threads + 64, 255, np.uint8)
    scratch = raw[-raw.ctypes.data % 64:]
    slots = (ctypes.c_void_p * (len(arrays) + 1))(*[a.ctypes.data for a in arrays], scratch.ctypes.data)
    for tid in reversed(range(threads)):
        function(ctypes.addressof(slots), tid, threads)
