"""Arrays that NumPy makes of numbers while a call is traced: ``np.zeros((n, h))``, ``np.arange(n)``, a causal mask.

They are made of shapes and of numbers that guards compare. So every replay would make the same arrays, and functions
may read them as constants. Results of NumPy on such arrays, also in place, are constants again.
"""
from __future__ import annotations

import weakref
from typing import TYPE_CHECKING, Any

from kusari.ir import Op, Value

from ...broadcasting import broadcast_to
from ...configuration import using_config
from ...variable import Variable
from .captured import owner
from .detached import cut_off

if TYPE_CHECKING:
    from ..trace.recorder import Tape


class Constants:
    """The constants of one call. Invariant: arrays in it are kept alive, so that identities are unique."""

    def __init__(self) -> None:
        self._memory: dict[int, Any] = {}
        self._read: dict[int, tuple[Any, Value, bytes]] = {}  # by functions, as they were then
        self._equal: dict[Any, Value] = {}
        self._by_number: dict[int, Any] = {}  # weak references to parts that computed numbers pick

    def add(self, array: Any) -> None:
        """Take in an array that NumPy has made."""
        memory = owner(array)
        self._memory[id(memory)] = memory

    def __contains__(self, array: Any) -> bool:
        """Whether an array is, or is a part of, one that NumPy has made of constants."""
        return bool(self._memory) and array is not None and id(owner(array)) in self._memory and not (
            id(array) in self._by_number and self._by_number[id(array)]() is array)

    def view_by_number(self, array: Any) -> None:
        """Note that an array is a part which a computed number picks, another one in other calls: no constant."""
        self._by_number[id(array)] = weakref.ref(array)

    def give_away(self, arrays: list[Any]) -> dict[int, Any]:
        """Return copies, by identity, of the constants among ``arrays``, which Python of the user's may write to."""
        found = {id(a): a.copy() for a in arrays if a in self}
        for memory in [id(owner(a)) for a in arrays if id(a) in found]:
            self._memory.pop(memory, None)
        return found

    def was_read(self, array: Any) -> bool:
        """Whether a function has read a constant, or another part of its memory."""
        return array in self and any(owner(x) is owner(array) for x, _, _ in self._read.values())

    def release(self, array: Any) -> None:
        """Forget an array, which has another value from now on; nothing will read its elements of before."""
        memory = owner(array)
        self._memory.pop(id(memory), None)
        self._read = {key: read for key, read in self._read.items() if owner(read[0]) is not memory}

    def value(self, tape: Tape, array: Any) -> Value | None:
        """Return the constant of the graph that a function reads; None if the array is no constant."""
        if array not in self or tape.fault is not None:
            return None
        content = array.tobytes()
        known = self._read.get(id(array))
        if known is not None:
            if known[2] != content:
                self._note(tape)
            return known[1]
        key = array.dtype, array.shape, content
        value = self._equal.get(key)
        repeated = tuple([s == 0 and n > 1 for s, n in zip(array.strides, array.shape, strict=True)])
        if value is None and any(repeated) and array.size:  # as in define-by-run, its elements are there once
            part = array[tuple([slice(0, 1) if r else slice(None) for r in repeated])]
            with using_config("enable_backprop", False):
                made = broadcast_to(Variable(part, requires_grad=False), array.shape)._array
            value = tape.known(made)
            if value is None:  # the tape has given up meanwhile
                return None
            self._equal[key] = value
            tape.alias(array, value)
        elif value is None:
            value = self._equal[key] = tape.define(array, "made")
            kept = array.copy()
            kept.flags.writeable = False  # by functions of the user's
            tape.consts.append((value, kept))
        else:
            tape.alias(array, value)
        self._read[id(array)] = array, value, content
        return value

    def attributes(self, op: Op, inputs: Any) -> dict[str, Any]:
        """Return an attribute with the inputs that a node's Python might write to: replays copy those first."""
        own = tuple([i for i, v in enumerate(inputs) if v._array in self]) if op.is_opaque else ()
        return {"fresh": own} if own else {}

    def result(self, tape: Tape, leaf: Any, array: Any) -> Value | None:
        """Return, under the tape, the value of a constant that is returned: replays return a new array each time."""
        if isinstance(leaf, Variable) and leaf.requires_grad and array.dtype.kind in "fc" and id(array) in self._read:
            tape.note("a Variable of an array that NumPy made in the call is returned or stored, and may be asked for "
                      "its gradient; make it outside")
        if self.value(tape, array) is None:
            return None
        return tape.known(cut_off(Variable(array, requires_grad=False)))

    def settle(self, tape: Tape) -> None:
        """Note a fault if functions have read an array that was changed later: their gradients would read it, too."""
        if any(array.tobytes() != content for array, _, content in self._read.values()):
            self._note(tape)

    def _note(self, tape: Tape) -> None:
        tape.note("an array that NumPy made in the call changes after functions have read it; make another one",
                  tape.where)
