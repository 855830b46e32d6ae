"""Polynomial schedule."""

from typing import Any

from ._shift import Shift, clip


class PolynomialShift(Shift):
    """Extension that moves an attribute of an optimizer along a polynomial, from its initial value to zero.

    After ``t`` calls it is ``init * (1 - t / max_count) ** rate``, and zero from ``max_count`` calls on.

    Args:
        attr: name of the attribute, for example ``'lr'``.
        rate: exponent.
        max_count: number of calls after which it is zero.
        init: initial value; ``None`` takes the optimizer's.
        target: the value it stops at.
        optimizer: the optimizer; ``None`` is the updater's main one.
    """

    def __init__(
        self,
        attr: str,
        rate: float,
        max_count: float,
        init: float | None = None,
        target: float | None = None,
        optimizer: Any = None,
    ) -> None:
        super().__init__(attr, init, optimizer)
        self._rate = rate
        self._max_count = max_count
        self._target = target

    def _value(self, t: int) -> float:
        left = max(1 - t / self._max_count, 0.0)
        return clip(self._init * left**self._rate, self._init, self._target)
