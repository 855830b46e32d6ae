"""The elements of persistent arrays: only functions change them, as replays do; changes by NumPy are faults."""
from __future__ import annotations

from collections.abc import Callable
from typing import Any


class Contents:
    """Persistent arrays as functions and side-effect code have left them; ``note`` gets the reasons of faults."""

    def __init__(self, note: Callable[[str], None]) -> None:
        self._note = note
        self._known: dict[int, tuple[Any, bytes, str]] = {}

    def add(self, array: Any, name: str) -> None:
        """Compare the elements of ``array``, called ``name``, from now on."""
        self._known[id(array)] = array, array.tobytes(), name

    def take(self, array: Any) -> None:
        """Take an array as it is now: replays will change it as well."""
        found = self._known.get(id(array))
        if found is not None:
            self._known[id(array)] = array, array.tobytes(), found[2]

    def expect(self, array: Any) -> None:
        """Note a fault if an array was changed by anything but functions."""
        found = self._known.get(id(array))
        if found is not None and array.tobytes() != found[1]:
            self._note(f"the elements of {found[2]} are changed by NumPy, which replays would not repeat; assign to it "
                       "what functions compute, or do it in a function decorated with static_code")

    def take_all(self) -> None:
        """Take all arrays as they are now."""
        for array, _, _ in list(self._known.values()):
            self.take(array)

    def expect_all(self) -> None:
        """Note a fault if any array was changed by anything but functions."""
        for array, _, _ in self._known.values():
            self.expect(array)
