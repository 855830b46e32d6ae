"""Inverse schedule."""

from typing import Any

from ._shift import Shift, clip


class InverseShift(Shift):
    """Extension that sets an attribute of an optimizer to ``init * (1 + gamma * t) ** -power`` after ``t`` calls.

    Args:
        attr: name of the attribute, for example ``'lr'``.
        gamma: speed of the decay.
        power: exponent of the decay.
        init: initial value; ``None`` takes the optimizer's.
        target: the value it stops at.
        optimizer: the optimizer; ``None`` is the updater's main one.

    Raises:
        ValueError: ``gamma`` is negative.
    """

    def __init__(
        self,
        attr: str,
        gamma: float,
        power: float,
        init: float | None = None,
        target: float | None = None,
        optimizer: Any = None,
    ) -> None:
        if gamma < 0:
            raise ValueError(f"InverseShift does not support negative gamma, got {gamma}")
        super().__init__(attr, init, optimizer)
        self._gamma = gamma
        self._power = power
        self._target = target

    def _value(self, t: int) -> float:
        return clip(self._init * (1 + self._gamma * t) ** -self._power, self._init, self._target)
