"""Default data types: ``mixed16`` and `get_dtype`."""
from __future__ import annotations

from typing import Any

import numpy


class Mixed16:
    """The mixed-precision data type: float16 values, float32 where precision matters.

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


def get_compute_mode() -> str | None:
    """Return ``config.compute_mode``: None, or ``"cudnn_fast"``, which changes nothing here.

    Raises:
        ValueError: It is something else.
    """
    from .configuration import config

    if config.compute_mode not in (None, "cudnn_fast"):
        raise ValueError(f"invalid compute mode: {config.compute_mode!r}")
    return config.compute_mode


def get_dtype(dtype: Any = None, map_mixed16: Any = None) -> Any:
    """Resolve a data type: `dtype`, or ``config.dtype`` where it is None.

    Args:
        dtype: A data type or None.
        map_mixed16: What to return for ``mixed16``; None means float16.

    Returns:
        numpy.dtype: The data type to allocate arrays with.

    Example:
        >>> import kusari
        >>> kusari.get_dtype()
        dtype('float32')
        >>> kusari.get_dtype(kusari.mixed16, map_mixed16="float32")
        dtype('float32')
    """
    if dtype is None:
        from .configuration import config

        dtype = config.dtype
    if dtype is mixed16:
        return numpy.dtype(numpy.float16 if map_mixed16 is None else map_mixed16)
    return numpy.dtype(dtype)
