"""The CIFAR-10 and CIFAR-100 sets of small colour photographs."""

import os
import tarfile
from collections.abc import Sequence
from typing import Any

import numpy as np

from ..dataset import download
from ..dtypes import get_dtype
from .tuple_dataset import TupleDataset

__all__ = ["get_cifar10", "get_cifar100"]

_SITE = "https://www.cs.toronto.edu/~kriz/"
_PIXELS = 3 * 32 * 32


def get_cifar10(withlabel: bool = True, ndim: int = 3, scale: float = 1.0, dtype: Any = None) -> tuple[Any, Any]:
    """CIFAR-10 as a training set of 50,000 and a test set of 10,000 images of 32 by 32 pixels in ten classes.

    Downloaded once into ``<dataset root>/pfnet/chainer/cifar`` (see
    :func:`kusari.dataset.get_dataset_root`), where Chainer's copy is used if there is one.

    Args:
        withlabel: pairs of image and label (a ``TupleDataset``), or the images alone (an array).
        ndim: 3 for shape ``(3, 32, 32)``, 1 for ``(3072,)``.
        scale: pixels run from 0 to this value.
        dtype: of the images; ``None`` is ``kusari.config.dtype``.

    Raises:
        OSError: the archive is not there and cannot be downloaded; the message says where to put it.
        ValueError: ``ndim`` is neither 1 nor 3, or the archive is broken.

    Source: A. Krizhevsky, *Learning Multiple Layers of Features from Tiny Images* (2009).
    """
    batches = [f"data_batch_{i}.bin" for i in range(1, 6)]
    return _get("cifar-10", batches, ["test_batch.bin"], 1, withlabel, ndim, scale, dtype)


def get_cifar100(withlabel: bool = True, ndim: int = 3, scale: float = 1.0, dtype: Any = None) -> tuple[Any, Any]:
    """CIFAR-100, with a hundred classes (the fine labels).

    Sizes, arguments, what is raised and the source are those of :func:`get_cifar10`.
    """
    return _get("cifar-100", ["train.bin"], ["test.bin"], 2, withlabel, ndim, scale, dtype)


def _get(name: str, train: Sequence[str], test: Sequence[str], label_bytes: int,
         withlabel: bool, ndim: int, scale: float, dtype: Any) -> tuple[Any, Any]:  # fmt: skip
    if ndim not in (1, 3):
        raise ValueError(f"invalid ndim for CIFAR: {ndim}; it is 1 (pixels) or 3 (channels, rows, columns)")

    def create(path: str) -> dict[str, np.ndarray]:
        # The archive of plain records, not that of pickles: what is downloaded is data, never code.
        archive = download.cached_download(f"{_SITE}{name}-binary.tar.gz")
        arrays = _read(archive, {"train": train, "test": test}, label_bytes)
        np.savez_compressed(path, train_x=arrays["train_x"], train_y=arrays["train_y"],
                            test_x=arrays["test_x"], test_y=arrays["test_y"])  # fmt: skip
        return arrays

    def load(path: str) -> dict[str, np.ndarray]:
        with np.load(path) as archive:
            return dict(archive)

    cache = os.path.join(download.get_dataset_directory("pfnet/chainer/cifar", create_directory=False), name + ".npz")
    arrays = download.cache_or_load_file(cache, create, load)
    dtype = get_dtype(dtype)
    parts: list[Any] = []
    for part in ("train", "test"):
        pixels = arrays[part + "_x"]
        images = pixels.reshape(-1, 3, 32, 32) if ndim == 3 else pixels.reshape(-1, _PIXELS)
        images = images.astype(dtype)
        images *= dtype.type(scale / 255)
        parts.append(TupleDataset(images, arrays[part + "_y"].astype(np.int32)) if withlabel else images)
    return parts[0], parts[1]


def _read(path: str, files: dict[str, Sequence[str]], label_bytes: int) -> dict[str, np.ndarray]:
    """Pixels ``(N, 3072)`` and labels ``(N,)`` of each part; a record has its labels, then pixels."""
    found: dict[str, np.ndarray] = {}
    try:
        with tarfile.open(path, "r:gz") as archive:
            for member in archive:
                name = os.path.basename(member.name)
                stream = archive.extractfile(member) if any(name in names for names in files.values()) else None
                if stream is not None:
                    found[name] = np.frombuffer(stream.read(), np.uint8).reshape(-1, label_bytes + _PIXELS)
        arrays: dict[str, np.ndarray] = {}
        for part, names in files.items():
            records = np.concatenate([found[name] for name in names])
            arrays[part + "_x"] = np.ascontiguousarray(records[:, label_bytes:])
            arrays[part + "_y"] = records[:, label_bytes - 1].copy()
        return arrays
    except (tarfile.TarError, EOFError, KeyError, ValueError) as error:
        raise ValueError(f"{path} is not a whole archive of CIFAR ({error}); remove it to have it downloaded again"
                         ) from error  # fmt: skip
