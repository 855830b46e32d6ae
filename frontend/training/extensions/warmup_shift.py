"""Linear warm-up."""

from typing import Any

from ._shift import Shift


class WarmupShift(Shift):
    """Extension that raises an attribute of an optimizer linearly from a small value to ``init``.

    Args:
        attr: name of the attribute, for example ``'lr'``.
        warmup_start: value before the first call.
        warmup_iter: number of calls after which ``init`` is reached.
        init: final value.
        optimizer: the optimizer; ``None`` is the updater's main one.
    """

    def __init__(
        self, attr: str, warmup_start: float, warmup_iter: int, init: float, optimizer: Any = None
    ) -> None:
        super().__init__(attr, init, optimizer)
        self._start = warmup_start
        self._calls = warmup_iter

    def _value(self, t: int) -> float:
        if t >= self._calls:
            return self._init
        return self._start + (self._init - self._start) * t / self._calls

    def serialize(self, serializer: Any) -> None:
        """Save or load the number of calls."""
        self._t = int(serializer("_t", self._t))
        self._last_value = self._value(self._t)
