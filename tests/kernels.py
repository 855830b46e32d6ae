"""Runs one kernel without a schedule."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any

import llvmlite.binding as llvm
import numpy as np
import pytest

from kusari.ir import Graph, Kernel, parts_of
from kusari.ir.nest import nest_of
from kusari.runtime.loader import default_loader

SIGNATURE = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64)


GUARD = 64  # bytes on either side of what a kernel may write


def guarded(shape: tuple[int, ...], dtype: Any) -> tuple[np.ndarray, np.ndarray]:
    """An array full of 77, and all bytes of the buffer in the middle of which it lies."""
    array = np.full(shape, 77, dtype)
    raw = np.full(array.nbytes + 2 * GUARD, 170, np.uint8)
    inner = raw[GUARD:GUARD + array.nbytes].view(dtype).reshape(shape)
    inner[...] = array
    return inner, raw


def assert_untouched(raw: np.ndarray) -> None:
    """Nothing was written around a ``guarded`` array."""
    assert (raw[:GUARD] == 170).all() and (raw[raw.size - GUARD:] == 170).all()


def needs(text: str) -> None:
    """Skip a test whose kernel has an instruction that this processor has not: LLVM would end the process."""
    if "@llvm.x86.avx512" in text and "+avx512f" not in llvm.get_host_cpu_features().flatten():
        pytest.skip("this processor has no AVX-512, of which the text uses an instruction")


def module_of(text: str) -> Any:
    """The LLVM module of a text, with its parts linked in."""
    first, parts = parts_of(text)
    module = llvm.parse_assembly(first)
    for part in parts.values():
        module.link_in(llvm.parse_assembly(part))
    return module


def call(kernel: Kernel, arrays: Sequence[np.ndarray], threads: int = 1) -> None:
    """Run the kernel for every thread, the last one first; scratch is full of NaN."""
    needs(kernel.text)
    function = SIGNATURE(default_loader().load_one(kernel))
    raw = np.full(kernel.scratch * threads + 128, 255, np.uint8)
    scratch = raw[-raw.ctypes.data % 64:]
    slots = (ctypes.c_void_p * (len(arrays) + 1))(*[a.ctypes.data for a in arrays], scratch.ctypes.data)
    for tid in reversed(range(threads)):
        function(ctypes.addressof(slots), tid, threads)


def overwriting(graph: Graph, arrays: Sequence[np.ndarray]) -> tuple[list[np.ndarray], list[np.ndarray]] | None:
    """Return copies of the operands, and outputs that take their buffers where the nest allows; None if none may."""
    operands = [a.copy() for a in arrays]
    taken: dict[int, int] = {}
    for o, i in nest_of(graph).overwrites():
        if o not in taken and i not in taken.values():
            taken[o] = i
    outputs = [operands[taken[o]].reshape(-1).view(v.tensor.dtype).reshape(v.shape) if o in taken
               else np.empty(v.shape, v.tensor.dtype) for o, v in enumerate(graph.outputs)]
    return (operands, outputs) if taken else None
