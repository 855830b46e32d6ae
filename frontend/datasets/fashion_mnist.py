"""Fashion-MNIST: photographs of clothes in MNIST's format."""

from typing import Any

import numpy as np

from ._idx import present, retrieve

_MIRRORS = (
    "http://fashion-mnist.s3-website.eu-central-1.amazonaws.com/",
    "https://raw.githubusercontent.com/zalandoresearch/fashion-mnist/master/data/fashion/",
)


def get_fashion_mnist_labels() -> list[str]:
    """The names of the ten classes, in the order of the labels."""
    return ["T-shirt/top", "Trouser", "Pullover", "Dress", "Coat", "Sandal", "Shirt", "Sneaker", "Bag", "Ankle boot"]


def get_fashion_mnist(
    withlabel: bool = True,
    ndim: int = 1,
    scale: float = 1.0,
    dtype: Any = None,
    label_dtype: Any = np.int32,
    rgb_format: bool = False,
) -> tuple[Any, Any]:
    """Fashion-MNIST as a training set of 60,000 and a test set of 10,000 images of 28 by 28 pixels.

    Arguments and errors are those of :func:`kusari.datasets.get_mnist`; the files are kept in
    ``<dataset root>/pfnet/chainer/fashion-mnist``.

    Source: H. Xiao, K. Rasul, R. Vollgraf, *Fashion-MNIST* (arXiv:1708.07747).
    """
    train, test = (
        present(
            *retrieve(part, "pfnet/chainer/fashion-mnist", _MIRRORS, ""),
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
