"""The elements of persistent arrays, and of inputs of the user's functions, while they are expected to stay.

Of persistent arrays only functions change them, as replays do; changes by NumPy are faults.
"""
from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from ...function_node import FunctionNode
from ..guards.reached import Reached
from .numpy_nodes import make_changes
from .own_functions import own_settings, owners, roots

if TYPE_CHECKING:
    from .observation import Observation
    from .recorder import Tape


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


class Given:
    """The inputs of a function of the user's as they were before its forward, which may write to them."""

    def __init__(self, inputs: Any, template: Any) -> None:
        self._template = template  # alive as long as its number is known
        self.reached = Reached(roots(template))
        self._arrays = [(v._array, v._array.tobytes()) for v in inputs if type(v._array) is np.ndarray]

    def expect(self, tape: Tape, function: FunctionNode) -> None:
        """Note a fault if one has changed: replays change a copy, and others may read the array, then or later.

        What the call has changed outside so far comes before the function, which is recorded next.
        """
        label = function.label
        for array, content in self._arrays:
            if array.tobytes() != content and not tape.written.is_outside(array):
                tape.note_at_user(f"{label} changes an array that it is given, which others may read; let it change a "
                                  "copy")
        make_changes(tape)
        if tape.observation is not None and tape.fault is None:
            if (kind := getattr(self._template, "_own_kind", None)) is not None:
                kind.settings = own_settings(tape.observation)
                kind.parameters = self.reached.parameters()
            if tape.observation.silenced:
                tape.observation.note(f"{label}, which may warn, runs while filters of warnings are others; apply it "
                                      "outside of that block")
            self.reached.expect(tape.observation, label)
            held = {id(x) for owner in owners(self._template) for x in vars(owner).values()}
            self.reached.require_known(tape, label, held)
            self.reached.compare(tape.observation)
            for now, before in zip(owners(function), owners(self._template), strict=True):
                tape.observation.left[id(now)] = now, dict(vars(before))
            tape.reached.append(self.reached)


def left_by_forward(o: Observation, x: Any, name: str, value: Any) -> Any:
    """Return an attribute of an object that the call has made; that of a function may be what its forward has set."""
    found = o.left.get(id(x))
    if found is not None and (name == "__dict__" or found[1].get(name, found) is not value) and (
            type(value) is not np.ndarray or o.tape.known(value) is None):
        o.note(f"{type(x).__name__}.{name} is read after the function was applied, and replays apply others; let its "
               "forward return it, too")
    return value
