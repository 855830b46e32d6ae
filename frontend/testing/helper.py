"""Small helpers: tests that need other packages, replaced functions, matrices that are no trouble."""

from __future__ import annotations

import importlib.metadata
import pydoc
import unittest
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from unittest import mock

import numpy

__all__ = ["assert_warns", "generate_matrix", "patch", "run_module", "with_requires", "without_requires"]

_API = "7.8.1"  # the version of Chainer that Kusari stands in for


def _missing(requirements: tuple[str, ...]) -> list[str]:
    """The requirements that are not installed."""
    from packaging.requirements import Requirement  # comes with pytest

    def installed(requirement: Requirement) -> bool:
        try:
            version = _API if requirement.name == "chainer" else importlib.metadata.version(requirement.name)
        except importlib.metadata.PackageNotFoundError:
            return False
        return requirement.specifier.contains(version, prereleases=True)

    return [text for text in requirements if not installed(Requirement(text))]


def with_requires(*requirements: str) -> Callable[[Any], Any]:
    """Skip a test where not all of the packages are installed.

    Args:
        requirements: Packages and versions, as pip has them.

    >>> @kusari.testing.with_requires("numpy>=2", "surely-not-there")
    ... def test(): ...
    >>> test()
    Traceback (most recent call last):
        ...
    unittest.case.SkipTest: requires: surely-not-there
    """
    missing = _missing(requirements)
    return unittest.skipIf(missing, f"requires: {', '.join(missing)}")


def without_requires(*requirements: str) -> Callable[[Any], Any]:
    """Skip a test where all of the packages are installed."""
    return unittest.skipIf(not _missing(requirements), f"requires not to have installed: {', '.join(requirements)}")


def patch(target: str, *args: Any, **kwargs: Any) -> Any:
    """``unittest.mock.patch`` that still calls what it replaces, unless it is given ``wraps``."""
    if "wraps" not in kwargs:
        kwargs["wraps"] = pydoc.locate(target)
        if kwargs["wraps"] is None:
            raise ValueError(f"there is nothing called {target!r} to replace")
    return mock.patch(target, *args, **kwargs)


@contextmanager
def assert_warns(expected: type[Warning]) -> Iterator[None]:
    """Raise AssertionError unless the block warns of a category."""
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        yield
    if not any(issubclass(w.category, expected) for w in seen):
        raise AssertionError(f"{expected.__name__} was expected, but there were {[w.category.__name__ for w in seen]}")


def generate_matrix(shape: tuple[int, ...], dtype: Any = float, *, singular_values: Any) -> Any:
    """Draw matrices with given singular values.

    Args:
        shape: ``(…, M, N)``.
        dtype: Floating point or complex.
        singular_values: What broadcasts to ``(…, min(M, N))``; not negative.

    Raises:
        ValueError: The shape has fewer than two axes, or a value is negative.
        TypeError: The dtype is another, or a value is complex.

    >>> matrix = kusari.testing.generate_matrix((3, 2), singular_values=[2, 0.5])
    >>> np.linalg.svd(matrix)[1].round(6).tolist()
    [2.0, 0.5]
    """
    dtype, values = numpy.dtype(dtype), numpy.asarray(singular_values)
    if dtype.kind not in "fc" or values.dtype.kind == "c":
        raise TypeError(f"a floating point or complex dtype and real values are expected, got {dtype} and "
                        f"{values.tolist()}")
    if len(shape) < 2 or (values < 0).any():
        raise ValueError(f"a shape of two axes or more and no negative values are expected, got {shape} and "
                         f"{values.tolist()}")
    drawn: Any = numpy.random.standard_normal(shape)
    if dtype.kind == "c":
        drawn = drawn + 1j * numpy.random.standard_normal(shape)
    left, found, right = numpy.linalg.svd(drawn, full_matrices=False)
    return ((left * numpy.broadcast_to(values, found.shape)[..., None, :]) @ right).astype(dtype)


def run_module(name: str, file: str) -> None:
    """Run the tests of a file where it is run as a program: ``run_module(__name__, __file__)`` at its end."""
    if name == "__main__":
        import pytest

        raise SystemExit(pytest.main([file, "-vvs", "-x"]))

