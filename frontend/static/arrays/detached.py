"""The arrays of computed Variables, as user code takes them: values of their own, through which no gradient goes."""
from __future__ import annotations

import weakref
from typing import TYPE_CHECKING, Any

import numpy as np

from kusari.ir import Value

from ..configuration import using_config
from ..functions.math.identity import Identity
from ..variable import Variable
from .given import give

if TYPE_CHECKING:
    from .tape import Tape


class Detached:
    """What stands for them in one call, as long as somebody has it. Invariant: nothing here keeps arrays alive."""

    def __init__(self) -> None:
        self._known: dict[int, tuple[Any, Any, Any]] = {}  # references to an array, its view, and what stands for that

    def has(self, given: Any) -> bool:
        """Whether that stands for the array of a computed Variable."""
        return any(ref() is given for _, _, ref in self._known.values())

    def source(self, tape: Tape, array: Any) -> Value | None:
        """Return the value whose array, as it was taken, ``array`` is; None where it is something else."""
        for whole, view, _ in self._known.values():
            if view() is array:
                return None if whole() is None else tape.known(whole())
        return None

    def take(self, tape: Tape, array: Any) -> Any:
        """Return what stands for a computed array; what is done with it is recorded, and noted, as for arguments.

        None where the tape does not know the array, or has given up.
        """
        if type(array) is not np.ndarray or (
                not tape.takes_arrays if tape.watch is None else tape.watch.asks_type is not None):
            return None
        found = self._known.get(id(array))
        given = None if found is None or found[0]() is not array else found[2]()
        if given is None and tape.fault is None and tape.known(array) is not None:
            with using_config("enable_backprop", False):
                view = Identity().apply((Variable(array, requires_grad=False),))[0]._array
            given = give(view)
            self._known[id(array)] = weakref.ref(array), weakref.ref(view), weakref.ref(given)
        return given
