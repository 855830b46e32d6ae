"""NVIDIA's libraries, which know nothing of the memory of the stand-in for CuPy."""
from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from kusari.runtime.card import cublaslt, cudnn, libraries


class Core:
    """``cupy._core``: how products of a dtype are computed, by CuPy's numbers; ``CUPY_TF32`` is read once."""

    COMPUTE_TYPE_TBD, COMPUTE_TYPE_DEFAULT, COMPUTE_TYPE_PEDANTIC = 0, 1, 2
    COMPUTE_TYPE_BF16, COMPUTE_TYPE_TF32 = 6, 7

    def __init__(self) -> None:
        self._types: dict[str, int] = {}

    def reset(self) -> None:
        """Forget what was set."""
        self._types.clear()

    def get_compute_type(self, dtype: Any) -> int:
        kind = np.dtype(dtype)
        if kind.char not in "efd":
            raise TypeError(f"dtype is not supported: {dtype}")
        if not self._types.get(kind.char):
            tf32 = kind.char == "f" and int(os.environ.get("CUPY_TF32", "0")) > 0
            self._types[kind.char] = self.COMPUTE_TYPE_TF32 if tf32 else self.COMPUTE_TYPE_DEFAULT
        return self._types[kind.char]

    def set_compute_type(self, dtype: Any, compute_type: int) -> None:
        if compute_type not in range(8):
            raise ValueError(f"Unknown compute type: {compute_type}")
        self._types[np.dtype(dtype).char] = compute_type


@contextmanager
def only(blas: Any = None, dnn: Any = None) -> Iterator[None]:
    """Context in which these are found and no others."""
    before = libraries.loaded, cudnn.module

    def look(loaded: Any, module: Any) -> None:
        libraries.loaded, cudnn.module = loaded, module
        cublaslt.library.cache_clear()
        cudnn.library.cache_clear()
    if blas is None and dnn is not None:
        look(before[0], lambda: dnn)
    elif blas is not None:
        look(lambda stem, major: blas if stem == "cublasLt" else None, before[1])
    else:
        look(lambda stem, major: None, lambda: None)
    try:
        yield
    finally:
        look(*before)
