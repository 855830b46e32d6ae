"""Kuzushiji-MNIST: cursive hiragana in MNIST's format."""

from typing import Any

import numpy as np

from ._idx import present, retrieve

_MIRRORS = ("http://codh.rois.ac.jp/kmnist/dataset/kmnist/",)


def get_kuzushiji_mnist_labels() -> list[tuple[str, str]]:
    """The ten classes, in the order of the labels: the name in Latin letters and the hiragana."""
    names = ["o", "ki", "su", "tsu", "na", "ha", "ma", "ya", "re", "wo"]
    return list(zip(names, "おきすつなはまやれを", strict=True))


def get_kuzushiji_mnist(
    withlabel: bool = True,
    ndim: int = 1,
    scale: float = 1.0,
    dtype: Any = None,
    label_dtype: Any = np.int32,
    rgb_format: bool = False,
) -> tuple[Any, Any]:
    """Kuzushiji-MNIST as a training set of 60,000 and a test set of 10,000 images of 28 by 28 pixels.

    Arguments and errors are those of :func:`kusari.datasets.get_mnist`; the files are kept in
    ``<dataset root>/pfnet/chainer/kuzushiji_mnist``.

    Source: T. Clanuwat et al., *Deep Learning for Classical Japanese Literature* (arXiv:1812.01718).
    """
    train, test = (
        present(
            *retrieve(part, "pfnet/chainer/kuzushiji_mnist", _MIRRORS, ""),
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
