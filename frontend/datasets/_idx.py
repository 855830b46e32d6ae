"""The family of data sets in MNIST's format: where the files are, how they are read and given out."""

import gzip
import os
from collections.abc import Sequence
from typing import Any

import numpy as np

from ..dataset import download
from ..dtypes import get_dtype
from .tuple_dataset import TupleDataset

FILES = {
    "train": ("train-images-idx3-ubyte.gz", "train-labels-idx1-ubyte.gz"),
    "test": ("t10k-images-idx3-ubyte.gz", "t10k-labels-idx1-ubyte.gz"),
}


def retrieve(part: str, name: str, mirrors: Sequence[str], advice: str) -> tuple[np.ndarray, np.ndarray]:
    """Pixels ``(N, 784)`` and labels ``(N,)``, uint8: from the cache, from files put in place, or downloaded."""
    directory = download.get_dataset_directory(name, create_directory=False)

    def create(path: str) -> tuple[np.ndarray, np.ndarray]:
        images, labels = (_read(file, directory, mirrors, advice) for file in FILES[part])
        images = images.reshape(len(images), -1)
        np.savez_compressed(path, x=images, y=labels)
        return images, labels

    def load(path: str) -> tuple[np.ndarray, np.ndarray]:
        with np.load(path) as archive:
            return archive["x"], archive["y"]

    return download.cache_or_load_file(os.path.join(directory, part + ".npz"), create, load)


def _read(file: str, directory: str, mirrors: Sequence[str], advice: str) -> np.ndarray:
    """The content of one file: from ``directory`` if it is there, else from the first mirror that answers."""
    path = os.path.join(directory, file)
    for candidate in (path, path.removesuffix(".gz")):
        if os.path.exists(candidate):
            return parse(candidate)
    errors: list[str] = []
    for mirror in mirrors:
        try:
            return parse(download.cached_download(mirror + file))
        except OSError as error:
            errors.append(str(error.__cause__ or error))
    raise OSError(
        f"cannot download {file} from {', '.join(mirrors)} ({errors[-1]}). Without a network, put the four files "
        f"{', '.join(f for pair in FILES.values() for f in pair)} into {directory}{advice}"
    )


def parse(path: str) -> np.ndarray:
    """Read a file in idx format, packed by gzip or not; raises ValueError when it is something else."""
    with open(path, "rb") as file:
        data = file.read()
    if data[:2] == b"\x1f\x8b":
        data = gzip.decompress(data)
    if len(data) < 4 or data[:3] != b"\0\0\x08" or len(data) < 4 + 4 * data[3]:
        raise ValueError(f"{path} is not an idx file of unsigned bytes; remove it to have it downloaded again")
    shape = np.frombuffer(data, ">i4", count=data[3], offset=4)
    body = np.frombuffer(data, np.uint8, offset=4 + 4 * data[3])
    if body.size != int(shape.prod()):
        raise ValueError(f"{path} is cut short: {body.size} bytes for shape {tuple(shape.tolist())}")
    return body.reshape(shape)


def present(
    images: np.ndarray,
    labels: np.ndarray,
    *,
    side: int,
    maximum: float,
    withlabel: bool,
    ndim: int,
    scale: float,
    dtype: Any,
    label_dtype: Any,
    rgb_format: bool = False,
) -> Any:
    """The dataset as the user asked for it: shape, scale and types; a TupleDataset, or the images alone."""
    if ndim not in (1, 2, 3):
        raise ValueError(f"invalid ndim for an image dataset: {ndim}; it is 1 (pixels), 2 (rows) or 3 (channels)")
    if rgb_format and ndim != 3:
        raise ValueError(f"rgb_format needs ndim = 3, got ndim = {ndim}")
    shape = {1: (-1, side * side), 2: (-1, side, side), 3: (-1, 1, side, side)}[ndim]
    images = images.reshape(shape)
    if rgb_format:
        images = np.repeat(images, 3, axis=1)
    dtype = get_dtype(dtype)
    images = images.astype(dtype)
    images *= dtype.type(scale / maximum)
    if not withlabel:
        return images
    return TupleDataset(images, labels.astype(label_dtype))
