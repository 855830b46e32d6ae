"""Decorators that run a test several times, for tests that draw random numbers."""

from __future__ import annotations

import functools
import unittest
from collections.abc import Callable
from typing import Any

__all__ = ["QuietTestRunner", "repeat", "repeat_with_success_at_least", "retry"]


def repeat_with_success_at_least(times: int, min_success: int) -> Callable[[Callable[..., Any]], Callable[..., None]]:
    """Run a test up to ``times`` times; it passes once it has passed ``min_success`` times.

    Between two runs a ``TestCase`` is torn down and set up again.

    Args:
        times: Number of runs.
        min_success: Number of runs that must pass.

    Raises:
        AssertionError: More runs are to pass than there are.
    """
    if not 0 <= min_success <= times:
        raise AssertionError(f"between 0 and {times} of {times} runs can have to pass, got {min_success}")

    def decorate(test: Callable[..., Any]) -> Callable[..., None]:
        @functools.wraps(test)
        def run(*args: Any, **kwargs: Any) -> None:
            case = args[0] if args and isinstance(args[0], unittest.TestCase) else None
            passed = 0
            errors: list[Exception] = []
            while passed < min_success:
                if case is not None and passed + len(errors):
                    case.tearDown()
                    case.setUp()
                try:
                    test(*args, **kwargs)
                    passed += 1
                except unittest.SkipTest:
                    raise
                except Exception as error:
                    errors.append(error)
                    if len(errors) > times - min_success:
                        raise AssertionError(
                            f"{len(errors)} runs failed and {passed} passed; of {times}, {min_success} must pass; "
                            f"first error message: {type(errors[0]).__name__}: {errors[0]}"
                        ) from errors[0]

        return run

    return decorate


class QuietTestRunner:
    """Runs a suite of ``unittest`` and prints nothing."""

    def run(self, suite: unittest.TestSuite) -> unittest.TestResult:
        """Run the tests and return their results."""
        return suite.run(unittest.TestResult())


def repeat(times: int) -> Callable[[Callable[..., Any]], Callable[..., None]]:
    """Run a test ``times`` times; it passes if all runs pass."""
    return repeat_with_success_at_least(times, times)


def retry(times: int) -> Callable[[Callable[..., Any]], Callable[..., None]]:
    """Run a test until it passes, ``times`` times at most."""
    return repeat_with_success_at_least(times, 1)
