"""Random numbers that are the same in every run of a test."""

from __future__ import annotations

import functools
import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy

from ..backends import cuda

__all__ = ["fix_random", "generate_seed"]


def generate_seed() -> int:
    """Draw a seed from NumPy's global generator, for a generator of a test's own."""
    return int(numpy.random.randint(0x7FFFFFFF))


@contextmanager
def _fixed() -> Iterator[None]:
    """Start Python's, NumPy's and CuPy's global generators anew, and go on where the first two were afterwards."""
    states = random.getstate(), numpy.random.get_state()
    random.seed(0)
    numpy.random.seed(0)
    if cuda.available:
        cuda.cupy.random.seed(0)
    try:
        yield
    finally:
        random.setstate(states[0])
        numpy.random.set_state(states[1])


def fix_random(*, setup_method: str = "setUp", teardown_method: str = "tearDown") -> Callable[[Any], Any]:
    """Let a test, or each test of a class, draw the same random numbers every time, and others nothing of it.

    Do not put it inside of ``condition.retry`` or ``condition.repeat``, which hope for other numbers.

    Args:
        setup_method: Of a class, the method that is called before each test.
        teardown_method: The method that is called after each.

    >>> @kusari.testing.fix_random()
    ... def draw():
    ...     return np.random.rand()
    >>> draw() == draw()
    True
    """

    def decorate(test: Any) -> Any:
        if not isinstance(test, type):

            @functools.wraps(test)
            def run(*args: Any, **kwargs: Any) -> Any:
                with _fixed():
                    return test(*args, **kwargs)

            return run
        set_up, tear_down = getattr(test, setup_method, None), getattr(test, teardown_method, None)

        def before(self: Any) -> None:
            self._fixed_random = _fixed()
            self._fixed_random.__enter__()
            if set_up is not None:
                set_up(self)

        def after(self: Any) -> None:
            try:
                if tear_down is not None:
                    tear_down(self)
            finally:
                self._fixed_random.__exit__(None, None, None)

        setattr(test, setup_method, before)
        setattr(test, teardown_method, after)
        return test

    return decorate
