"""NVIDIA's libraries, which know nothing of the memory of the stand-in for CuPy."""
from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from kusari.runtime.card import cublaslt, cudnn, libraries


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
