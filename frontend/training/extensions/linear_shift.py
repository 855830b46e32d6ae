"""Linear schedule."""

from typing import Any

from ._shift import Shift


class LinearShift(Shift):
    """Extension that moves an attribute of an optimizer linearly between two points in time.

    Args:
        attr: name of the attribute, for example ``'lr'``.
        value_range: the values before and after.
        time_range: the numbers of calls at which the movement starts and ends.
        optimizer: the optimizer; ``None`` is the updater's main one.
    """

    def __init__(
        self, attr: str, value_range: tuple[float, float], time_range: tuple[float, float], optimizer: Any = None
    ) -> None:
        super().__init__(attr, value_range[0], optimizer)
        self._values = value_range
        self._times = time_range

    def _value(self, t: int) -> float:
        start, end = self._times
        first, last = self._values
        if t <= start:
            return first
        if t >= end:
            return last
        return first + (last - first) * (t - start) / (end - start)

    def _serialize_init(self, serializer: Any) -> None:
        """Nothing: both ends are given."""
