"""Tests that are run with NumPy and with ChainerX, and compare the results."""
from __future__ import annotations

import functools
import importlib
import traceback
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np

from ..arrays import ndarray
from ..device import get_default_device
from .array import assert_allclose_ex, assert_array_equal_ex

__all__ = ["ignore", "numpy_chainerx_allclose", "numpy_chainerx_array_equal"]

_IGNORED = object()


def ignore() -> Any:
    """Return what a test returns, with either module, where nothing is to be compared."""
    return _IGNORED


def numpy_chainerx_allclose(*, name: str = "xp", accept_error: Any = (), **options: Any) -> Any:
    """Decorate a test that returns arrays, computed with the module in ``name``: they should differ by little.

    Args:
        name (str): The argument that is ``chainerx`` first, then ``numpy``.
        accept_error: Exceptions that are accepted, if both modules raise one of them.
        options: Arguments of `chainerx.testing.assert_allclose_ex`.
    """
    return _decorator(functools.partial(assert_allclose_ex, **options), name, accept_error)


def numpy_chainerx_array_equal(*, name: str = "xp", accept_error: Any = (), **options: Any) -> Any:
    """Decorate a test that returns arrays, computed with the module in ``name``: they should be equal.

    Args:
        name (str): The argument that is ``chainerx`` first, then ``numpy``.
        accept_error: Exceptions that are accepted, if both modules raise one of them.
        options: Arguments of `chainerx.testing.assert_array_equal_ex`.
    """
    return _decorator(functools.partial(assert_array_equal_ex, **options), name, accept_error)


def _decorator(check: Callable[..., None], name: str, accepted: Any) -> Any:
    import pytest

    def decorate(test: Callable[..., Any]) -> Any:
        @functools.wraps(test)
        def run(*args: Any, **kwargs: Any) -> None:
            found, error = _outcome(test, args, {**kwargs, name: importlib.import_module("kusari.chainerx")})
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", RuntimeWarning)
                expected, numpy_error = _outcome(test, args, {**kwargs, name: np})
            if error is None and numpy_error is None:
                _compare(check, found, expected, "")
            elif not (isinstance(error, accepted) and isinstance(numpy_error, accepted)):
                _fail(error, numpy_error)
        return pytest.mark.parametrize(name, [None])(run)
    return decorate


def _outcome(test: Callable[..., Any], args: Any, kwargs: dict[str, Any]) -> tuple[Any, Exception | None]:
    try:
        return test(*args, **kwargs), None
    except Exception as error:
        return None, error


def _fail(error: Exception | None, numpy_error: Exception | None) -> None:
    import pytest

    texts = [f"{who}: {''.join(traceback.format_exception(e)) if e else 'no error'}"
             for who, e in (("chainerx", error), ("numpy", numpy_error))]
    pytest.fail("ChainerX and NumPy should both do without errors, or raise accepted ones\n" + "\n".join(texts))


def _compare(check: Callable[..., None], found: Any, expected: Any, where: str) -> None:
    if found is _IGNORED and expected is _IGNORED:
        return
    assert found is not None and expected is not None, f"a test returns arrays, not None{where}"
    if isinstance(found, (list, tuple)):
        assert isinstance(expected, (list, tuple)) and len(found) == len(expected), f"results differ in number{where}"
        for i, (x, y) in enumerate(zip(found, expected, strict=True)):
            _compare(check, x, y, f"{where}[{i}]")
    elif isinstance(found, ndarray):
        assert isinstance(expected, (np.ndarray, np.generic)), f"NumPy's result is of type {type(expected)}{where}"
        assert found.shape == expected.shape, f"shapes differ{where}: {found.shape} and {expected.shape}"
        assert found.device is get_default_device(), f"the result is on {found.device}{where}"
        check(found, expected)
    else:
        assert not isinstance(found, (np.ndarray, np.generic)), f"ChainerX's result is NumPy's{where}"
        assert type(found) is type(expected) and found == expected, f"results differ{where}: {found} and {expected}"
