"""Tests of elementwise functions of one input."""

from __future__ import annotations

import unittest
import warnings
from collections.abc import Callable
from typing import Any

import numpy

from .. import gradient_check
from ..variable import Variable
from .array import assert_allclose
from .backend import BackendConfig
from .parameterized import parameterize, product

__all__ = ["unary_math_function_unittest"]

_DOUBLE: dict[str, Any] = {"dtype": numpy.float64}
_LOOSE = {numpy.float16: {"atol": 5e-2, "rtol": 5e-2}}


def _uniform(shape: tuple[int, ...], dtype: Any) -> tuple[Any, ...]:
    return tuple([numpy.asarray(numpy.random.uniform(-1, 1, shape)).astype(dtype) for _ in range(3)])


def unary_math_function_unittest(
    func: Any,
    func_expected: Callable[..., Any] | None = None,
    label_expected: str | None = None,
    make_data: Callable[..., Any] | None = None,
    is_linear: Any = None,
    forward_options: dict[str, Any] | None = None,
    backward_options: dict[str, Any] | None = None,
    double_backward_options: dict[str, Any] | None = None,
) -> Callable[[type], type]:
    """Give a TestCase the tests of an elementwise function: value, gradients of both orders, label.

    They are run for arrays with and without axes, in float16, float32 and float64, on the CPU and on a GPU, where there
    is one.

    Args:
        func: The function, or a class of functions.
        func_expected: Called with an input and the dtype of the result; by default NumPy's function of the same name.
        label_expected: The function's label, upper or lower case; by default its name.
        make_data: Called with a shape and a dtype; returns an input, a gradient and a second gradient. By default they
            are drawn from [-1, 1).
        is_linear: Not needed anymore (deprecated).
        forward_options: Keyword arguments of `assert_allclose`.
        backward_options: Keyword arguments of `check_backward`.
        double_backward_options: Keyword arguments of `check_double_backward`.

    Raises:
        ValueError: NumPy has no function of that name.

    >>> import unittest
    >>> @kusari.testing.unary_math_function_unittest(F.sin)
    ... class TestSin(unittest.TestCase):
    ...     pass
    """
    if is_linear is not None:
        warnings.warn("is_linear option is deprecated", DeprecationWarning, stacklevel=2)
    name = func.__name__
    if func_expected is None and not hasattr(numpy, name):
        raise ValueError(f"NumPy has no function {name!r}; give func_expected")
    expected = (lambda x, dtype: getattr(numpy, name)(x)) if func_expected is None else func_expected
    label = name if label_expected is None else label_expected
    made = _uniform if make_data is None else make_data
    dtypes = [numpy.float16, numpy.float32, numpy.float64]

    def called(x: Any) -> Any:
        return func()(x) if isinstance(func, type) else func(x)

    def options(self: Any, given: dict[str, Any] | None) -> dict[str, Any]:
        return {**_LOOSE.get(self.dtype, {"atol": 1e-4, "rtol": 1e-4}), **(given or {})}

    def forward(self: Any, config: BackendConfig) -> None:
        x = made(self.shape, self.dtype)[0]
        with config:
            y = called(Variable(config.get_array(x)))
        assert y.dtype == self.dtype, f"the result is {y.dtype}, the input is {x.dtype}"
        assert_allclose(y, numpy.asarray(expected(x, x.dtype), x.dtype), **options(self, forward_options))

    def backward(self: Any, config: BackendConfig) -> None:
        x, gy, _ = map(config.get_array, made(self.shape, self.dtype))
        with config:
            gradient_check.check_backward(called, x, gy, **{**_DOUBLE, **options(self, backward_options)})

    def double_backward(self: Any, config: BackendConfig) -> None:
        x, gy, ggx = map(config.get_array, made(self.shape, self.dtype))
        with config:
            gradient_check.check_double_backward(
                called, x, gy, ggx, **{**_DOUBLE, **options(self, double_backward_options)})

    def test_label(self: Any) -> None:
        y = called(Variable(made(self.shape, self.dtype)[0]))
        assert y.creator is not None and y.creator.label.lower() == label.lower(), y.creator and y.creator.label

    def on(test: Callable[[Any, BackendConfig], None], config: BackendConfig) -> Callable[[Any], None]:
        def run(self: Any) -> None:
            if config.missing:
                raise unittest.SkipTest(f"{config.missing} is not available")
            test(self, config)

        return run

    def decorate(cls: type) -> type:
        tests: dict[str, Callable[..., None]] = {"test_label": test_label}
        for test in forward, backward, double_backward:
            for place, config in (("cpu", BackendConfig({})), ("gpu", BackendConfig({"use_cuda": True}))):
                tests[f"test_{test.__name__}_{place}"] = on(test, config)
        for key, test in tests.items():
            setattr(cls, key, test)
        return parameterize(*product({"shape": [(3, 2), ()], "dtype": dtypes}))(cls)

    return decorate
