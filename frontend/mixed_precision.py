"""``mixed16``: the data type of mixed precision, which NumPy does not have."""
from __future__ import annotations

from typing import Any

import numpy


class Mixed16:
    """Float16 values, and float32 where precision matters.

    ``numpy.dtype`` of it is float16. There is one instance, ``kusari.mixed16``.
    """

    __slots__ = ()
    dtype = numpy.dtype(numpy.float16)
    name = "mixed16"

    def __repr__(self) -> str:
        return "dtype('mixed16')"

    def __reduce__(self) -> str:
        return "mixed16"


mixed16 = Mixed16()


def dtype_named(name: Any) -> Any:
    """Return ``mixed16`` for its name or itself, and ``numpy.dtype(name)`` for everything else."""
    return mixed16 if name is mixed16 or name == "mixed16" else numpy.dtype(name)
