"""Schedule in equal steps."""

from typing import Any

from ._shift import Shift, clip


class StepShift(Shift):
    """Extension that multiplies an attribute of an optimizer by ``gamma`` at every ``step``-th call.

    After ``t`` calls it is ``init * gamma ** floor(t / step)``.

    Args:
        attr: name of the attribute, for example ``'lr'``.
        gamma: the factor.
        step: number of calls between two changes.
        init: initial value; ``None`` takes the optimizer's.
        target: the value it stops at.
        optimizer: the optimizer; ``None`` is the updater's main one.
    """

    def __init__(
        self,
        attr: str,
        gamma: float,
        step: int,
        init: float | None = None,
        target: float | None = None,
        optimizer: Any = None,
    ) -> None:
        super().__init__(attr, init, optimizer)
        self._gamma = gamma
        self._step = step
        self._target = target

    def _value(self, t: int) -> float:
        return clip(self._init * self._gamma ** (t // self._step), self._init, self._target)
