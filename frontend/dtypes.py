"""Default data types: ``mixed16`` and `get_dtype`."""
from __future__ import annotations

from typing import Any

import numpy

from .configuration import config
from .mixed_precision import mixed16


def get_compute_mode() -> str | None:
    """Return ``config.compute_mode``: None, or ``"cudnn_fast"``, which changes nothing here.

    Raises:
        ValueError: It is something else.
    """
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
        dtype = config.dtype
    if dtype is mixed16:
        return numpy.dtype(numpy.float16 if map_mixed16 is None else map_mixed16)
    return numpy.dtype(dtype)
