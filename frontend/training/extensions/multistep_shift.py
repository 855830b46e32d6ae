"""Schedule in listed steps."""

from collections.abc import Sequence
from typing import Any

from ._shift import Shift


class MultistepShift(Shift):
    """Extension that multiplies an attribute of an optimizer by ``gamma`` at listed calls.

    Args:
        attr: name of the attribute, for example ``'lr'``.
        gamma: the factor.
        step_value: the numbers of calls at which it is applied, ascending.
        init: initial value; ``None`` takes the optimizer's.
        optimizer: the optimizer; ``None`` is the updater's main one.
    """

    def __init__(
        self,
        attr: str,
        gamma: float,
        step_value: Sequence[int],
        init: float | None = None,
        optimizer: Any = None,
    ) -> None:
        super().__init__(attr, init, optimizer)
        self._gamma = gamma
        self._steps = list(step_value)

    def _value(self, t: int) -> float:
        return self._init * self._gamma ** sum(step <= t for step in self._steps)

    def serialize(self, serializer: Any) -> None:
        """Save or load the number of calls and the number of steps taken."""
        self._t = int(serializer("_t", self._t))
        serializer("_current_step", sum(step <= self._t for step in self._steps))
        self._serialize_init(serializer)
        self._last_value = None if self._init is None else self._value(self._t)
