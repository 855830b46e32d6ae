"""The arrays of computed Variables, as user code takes them: values of their own, through which no gradient goes."""
from __future__ import annotations

import weakref
from typing import TYPE_CHECKING, Any

import numpy as np

from kusari.ir import Value

from ...configuration import using_config
from ...functions.math.identity import Identity
from ...variable import Variable

if TYPE_CHECKING:
    from ..trace.recorder import Tape


def cut_off(variable: Variable) -> Any:
    """Return a view of an array that is another value, as a tape records it: no gradient goes through it."""
    with using_config("enable_backprop", False):
        return Identity().apply((variable,))[0]._array


class Detached:
    """Views that take their place, as long as they are referenced. Invariant: nothing here keeps arrays alive."""

    def __init__(self) -> None:
        self._known: dict[int, tuple[Any, Any]] = {}  # references to an array and its view

    def has(self, array: Any) -> bool:
        """Whether an array is the view of the array of a computed Variable."""
        return any(view() is array for _, view in self._known.values())

    def source(self, tape: Tape, array: Any) -> Value | None:
        """Return the value whose array, as it was taken, ``array`` is; None if there is none."""
        for whole, view in self._known.values():
            if view() is array:
                return None if whole() is None else tape.known(whole())
        return None

    def take(self, tape: Tape, array: Any) -> Any:
        """Return the view of a computed array; NumPy on it is recorded, and noted, as on arguments.

        None if the tape does not know the array, or has given up.
        """
        if type(array) is not np.ndarray or (tape.observation is None and not tape.takes_arrays):
            return None
        found = self._known.get(id(array))
        if found is not None and found[0]() is array and (view := found[1]()) is not None:
            return view
        if self.has(array):
            return array
        if tape.fault is not None or tape.known(array) is None:
            return None
        view = cut_off(Variable(array, requires_grad=False))
        self._known[id(array)] = weakref.ref(array), weakref.ref(view)
        return view
