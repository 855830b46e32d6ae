"""Helpers of Chainer's modules that programs import and Kusari itself has no use for."""
from __future__ import annotations

import functools
import sys
import time
import warnings
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, TextIO

import numpy as np

from . import testing
from .backend import get_array_module
from .dataset.convert import concat_examples
from .link import Link
from .links.model.vision.pretrained import crops
from .parameter import Parameter
from .utils.arrays import is_array

__all__ = [
    "PerformanceWarning", "ProgressBar", "as_mat", "as_vec", "assert_allclose", "concat_arrays", "empty_like",
    "gather_grads", "gather_params", "oversample", "scatter_grads", "scatter_params", "size_num_grads",
]


class PerformanceWarning(RuntimeWarning):
    """Says that something takes longer than it need; nothing of Kusari's warns like that."""


def _deprecated(name: str, instead: str) -> None:
    warnings.warn(f"chainer.{name} is deprecated. Please refer to {instead}.", DeprecationWarning, stacklevel=3)


def as_vec(x: Any) -> Any:
    """Return an array with one axis (deprecated)."""
    _deprecated("utils.array.as_vec", "numpy.ravel")
    return x.ravel()


def as_mat(x: Any) -> Any:
    """Return an array with two axes, the first as it is (deprecated)."""
    _deprecated("utils.array.as_mat", "numpy.reshape")
    return x.reshape(len(x), -1)


def empty_like(x: Any) -> Any:
    """Return an array of the same shape and dtype (deprecated)."""
    _deprecated("utils.array.empty_like", "numpy.empty_like")
    return get_array_module(x).empty_like(x)


def assert_allclose(x: Any, y: Any, atol: float = 1e-5, rtol: float = 1e-4, verbose: bool = True) -> None:
    """Compare arrays (deprecated); see `kusari.testing.assert_allclose`."""
    _deprecated("gradient_check.assert_allclose", "chainer.testing.assert_allclose")
    testing.assert_allclose(x, y, atol, rtol, verbose=verbose)


def concat_arrays(arrays: Sequence[Any], padding: Any = None) -> Any:
    """Stack arrays, or numbers and lists, of which each is one example.

    >>> concat_arrays([(1, 2), (3, 4)]).shape
    (2, 2)
    """
    return concat_examples(list(arrays if is_array(arrays[0]) else np.asarray(arrays)), padding=padding)


def _sized(link: Link) -> list[Parameter]:
    """The parameters that have elements, by name."""
    return [parameter for _, parameter in sorted(link.namedparams()) if parameter.size]


def size_num_grads(link: Link) -> tuple[int, int]:
    """Return how many elements the parameters have, and how many parameters have any."""
    sizes = [parameter.size for parameter in _sized(link)]
    return sum(sizes), len(sizes)


def _gather(link: Link, attribute: str, name: str) -> Any:
    if link.xp is np:
        raise RuntimeError(f"{name} works only on GPU.")
    xp, parameters = link.xp, _sized(link)
    gathered = xp.zeros(sum(parameter.size for parameter in parameters), np.float32)
    place = 0
    for parameter in parameters:
        if (array := getattr(parameter, attribute)) is not None:
            gathered[place:place + parameter.size] = array.ravel()
        place += parameter.size
    return gathered


def _scatter(link: Link, array: Any, attribute: str) -> None:
    place = 0
    for parameter in _sized(link):
        if getattr(parameter, attribute) is None:
            setattr(parameter, attribute, link.xp.zeros(parameter.shape, parameter.dtype))
        getattr(parameter, attribute)[...] = array[place:place + parameter.size].reshape(parameter.shape)
        place += parameter.size


def gather_grads(link: Link) -> Any:
    """Return the gradients of a link on a card as one array of float32, in the order of the parameters' names.

    Raises:
        RuntimeError: The link is not on a card.
    """
    return _gather(link, "grad", "gather_grads")


def gather_params(link: Link) -> Any:
    """Return the parameters of a link on a card as one array of float32, in the order of their names.

    Raises:
        RuntimeError: The link is not on a card.
    """
    return _gather(link, "array", "Link.gather_params")


def scatter_grads(link: Link, array: Any) -> None:
    """Copy what `gather_grads` has put together into the gradients of a link."""
    _scatter(link, array, "grad")


def scatter_params(link: Link, array: Any) -> None:
    """Copy what `gather_params` has put together into the parameters of a link."""
    _scatter(link, array, "array")


def oversample(images: Sequence[Any], crop_dims: tuple[int, int]) -> np.ndarray:
    """Return the corners and the middle of images, each also mirrored.

    Args:
        images: Arrays of channels, height and width.
        crop_dims: Height and width of the parts.
    """
    return crops(np.stack(images), *crop_dims)


def _fp16_mixed_precision_helper(fn: Callable[..., Any]) -> Callable[..., Any]:
    """Let a ``forward`` compute in float32 where its inputs are float16; results are float16 if all floats are."""

    @functools.wraps(fn)
    def wrapper(self: Any, in_data: tuple[Any, ...]) -> Any:
        half = all(x.dtype.kind != "f" or x.dtype == np.float16 for x in in_data)
        found = fn(self, tuple([x.astype(np.float32) if x.dtype == np.float16 else x for x in in_data]))
        if not half:
            return found
        return tuple([y.astype(np.float16) if y is not None and y.dtype == np.float32 else y for y in found])

    return wrapper


class ProgressBar:
    """The base of bars on the terminal: `get_lines` gives the lines, ``update()`` draws them anew."""

    def __init__(self, bar_length: int | None = None, out: TextIO | None = None) -> None:
        self._bar_length = 50 if bar_length is None else bar_length
        self._out = sys.stdout if out is None else out
        self._recent_timing: deque[tuple[int, float, float]] = deque(maxlen=100)

    def update_speed(self, iteration: int, epoch_detail: float) -> tuple[float, float]:
        """Return iterations and epochs in a second, over the last hundred calls."""
        self._recent_timing.append((iteration, epoch_detail, time.perf_counter()))
        (old, old_detail, began), now = self._recent_timing[0], self._recent_timing[-1][2]
        span = now - began
        return ((iteration - old) / span, (epoch_detail - old_detail) / span) if span else (np.inf, np.inf)

    def get_lines(self) -> Sequence[str]:
        """Return the lines, each with its end; to be defined."""
        raise NotImplementedError(f"{type(self).__name__} has to define get_lines")

    def update(self) -> None:
        """Draw the lines, and go back to the first."""
        self.erase_console()
        lines = self.get_lines()
        self._out.write("".join(lines))
        self.move_cursor_up(len(lines))
        self.flush()

    def close(self) -> None:
        """Remove the lines."""
        self.erase_console()
        self.flush()

    def erase_console(self) -> None:
        """Erase all that is below the cursor."""
        self._out.write("\033[J")

    def move_cursor_up(self, n: int) -> None:
        """Move the cursor by lines."""
        self._out.write(f"\033[{n}A")

    def flush(self) -> None:
        """Flush the stream, where it can be."""
        if hasattr(self._out, "flush"):
            self._out.flush()
