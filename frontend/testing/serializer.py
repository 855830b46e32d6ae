"""From one object to another by way of a file."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable
from typing import Any

from .. import serializers

__all__ = ["save_and_load", "save_and_load_hdf5", "save_and_load_npz"]


def save_and_load(src: Any, dst: Any, filename: str, saver: Callable[..., Any], loader: Callable[..., Any]) -> None:
    """Save ``src`` into a file of a temporary folder, and load it into ``dst``.

    Args:
        src: The object to save.
        dst: The object to load into.
        filename: Name of the file.
        saver: Called as ``saver(path, src)``.
        loader: Called as ``loader(path, dst)``.
    """
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, filename)
        saver(path, src)
        loader(path, dst)


def save_and_load_npz(src: Any, dst: Any) -> None:
    """Save ``src`` into an NPZ file, and load it into ``dst``.

    >>> model, other = L.Linear(3, 2), L.Linear(3, 2)
    >>> kusari.testing.save_and_load_npz(model, other)
    >>> bool((model.W.array == other.W.array).all())
    True
    """
    save_and_load(src, dst, "saved.npz", serializers.save_npz, serializers.load_npz)


def save_and_load_hdf5(src: Any, dst: Any) -> None:
    """Save ``src`` into an HDF5 file, and load it into ``dst``."""
    save_and_load(src, dst, "saved.h5", serializers.save_hdf5, serializers.load_hdf5)
