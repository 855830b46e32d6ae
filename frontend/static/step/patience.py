"""The time at which a refused step is tried again."""
from __future__ import annotations

LONGEST_WAIT_CALLS = 1024


class Patience:
    """Waits for one step, then for two, four, …: a step that is refused for good is hardly ever tried."""

    def __init__(self) -> None:
        self._wait = self._left = 0

    def begin(self) -> None:
        """It was refused: wait longer than before."""
        self._wait = self._left = min(2 * self._wait, LONGEST_WAIT_CALLS) or 1

    def over(self) -> bool:
        """Count one step; returns whether that was the last to wait for."""
        self._left -= 1
        return self._left < 0
