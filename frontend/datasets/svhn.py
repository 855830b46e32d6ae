"""The Street View House Numbers: cropped photographs of digits."""

import os
from typing import Any

import numpy as np

from ..dataset import download
from ..dtypes import get_dtype
from .tuple_dataset import TupleDataset

__all__ = ["get_svhn"]

_SITE = "http://ufldl.stanford.edu/housenumbers/"


def get_svhn(
    withlabel: bool = True,
    scale: float = 1.0,
    dtype: Any = None,
    label_dtype: Any = np.int32,
    add_extra: bool = False,
) -> tuple[Any, ...]:
    """SVHN as a training set of 73,257 and a test set of 26,032 images of shape ``(3, 32, 32)`` in ten classes.

    Downloaded once into ``<dataset root>/pfnet/chainer/svhn`` (see :func:`kusari.dataset.get_dataset_root`), where
    Chainer's copy is used if there is one. The files are MATLAB's, which SciPy reads.

    Args:
        withlabel: pairs of image and label (a ``TupleDataset``), or the images alone (an array).
        scale: pixels run from 0 to this value.
        dtype: of the images; ``None`` is ``kusari.config.dtype``.
        label_dtype: of the labels, which are the digits.
        add_extra: give out the extra training set of 531,131 simpler images too, as a third.

    Raises:
        OSError: a file is not there and cannot be downloaded; the message says where to put it.
        ImportError: a file was downloaded, and SciPy is not installed.

    Source: Y. Netzer et al., *Reading Digits in Natural Images with Unsupervised Feature Learning* (2011),
    http://ufldl.stanford.edu/housenumbers/.
    """
    names = ("train", "test", "extra")[: 3 if add_extra else 2]
    return tuple([_get(name, withlabel, scale, get_dtype(dtype), label_dtype) for name in names])


def _get(name: str, withlabel: bool, scale: float, dtype: Any, label_dtype: Any) -> Any:
    def create(path: str) -> dict[str, np.ndarray]:
        file = download.cached_download(f"{_SITE}{name}_32x32.mat")
        arrays = _read(file)
        np.savez_compressed(path, x=arrays["x"], y=arrays["y"])
        return arrays

    def load(path: str) -> dict[str, np.ndarray]:
        with np.load(path) as archive:
            return dict(archive)

    folder = download.get_dataset_directory("pfnet/chainer/svhn", create_directory=False)
    arrays = download.cache_or_load_file(os.path.join(folder, name + ".npz"), create, load)
    images = arrays["x"].transpose(3, 2, 0, 1).astype(dtype, order="C")  # the file has samples last
    images *= dtype.type(scale / 255)
    if not withlabel:
        return images
    return TupleDataset(images, (arrays["y"].reshape(-1) % 10).astype(label_dtype))  # the digit 0 is class 10


def _read(path: str) -> dict[str, np.ndarray]:
    """Pixels ``(32, 32, 3, N)`` and labels ``(N, 1)`` from 1 to 10, as the file and Chainer's cache have them."""
    try:
        from scipy.io import loadmat
    except ImportError as error:
        raise ImportError(f"SVHN comes as a file of MATLAB's, {path}, which SciPy reads: pip install scipy") from error
    content = loadmat(path)
    return {"x": content["X"], "y": content["y"]}
