"""Exponential schedule."""

from typing import Any

from ._shift import Shift, clip


class ExponentialShift(Shift):
    """Extension that multiplies an attribute of an optimizer by ``rate`` at every call.

    After ``t`` calls it is ``init * rate ** t``.

    Args:
        attr: name of the attribute, for example ``'lr'``.
        rate: the factor.
        init: initial value; ``None`` takes the optimizer's.
        target: the value it stops at.
        optimizer: the optimizer; ``None`` is the updater's main one.

    Raises:
        ValueError: ``rate`` is negative.
    """

    def __init__(
        self, attr: str, rate: float, init: float | None = None, target: float | None = None, optimizer: Any = None
    ) -> None:
        if rate < 0:
            raise ValueError(f"ExponentialShift does not support negative rate, got {rate}")
        super().__init__(attr, init, optimizer)
        self._rate = rate
        self._target = target

    def _value(self, t: int) -> float:
        return clip(self._init * self._rate**t, self._init, self._target)
