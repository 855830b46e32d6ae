"""The arrays of parameters in one call: which ones the user's code has, reads and changes.

Reads by the user's code are values of their own, through which no gradient goes. Where elements of an array change, or
its parameter gets another one, values from before are given up: what is read next is read anew.
"""
from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kusari.ir import Value

from ...parameter import Parameter
from ...variable import Variable
from .bindings import ParameterBinding
from .captured import owner
from .detached import cut_off
from .overlap import has_address

if TYPE_CHECKING:
    from ..trace.recorder import Tape


class OfParameters:
    """The arrays of one call. Invariant: arrays in it are kept alive, so that identities are unique."""

    def __init__(self) -> None:
        self._taken: dict[int, tuple[Any, Parameter]] = {}  # which the user's code has
        self._first: dict[int, tuple[Any, Parameter]] = {}  # the same, and arrays that parameters had before
        self._views: dict[int, Any] = {}  # views of these, through which no gradient goes
        self._read: dict[int, Any] = {}  # memory that functions read
        self._viewed: set[int] = set()  # such memory of which functions may read a view again
        self.changed: dict[int, Any] = {}  # arrays with elements that the call changes, by the identity of the memory
        self._others: dict[int, Variable] = {}  # such arrays that are no parameters', in Variables
        self._gone: dict[int, Any] = {}  # memory of arrays that parameters had until the call gave them others

    def take(self, array: Any, parameter: Parameter) -> None:
        """Note that the user's code has the array of a parameter."""
        self._first.setdefault(id(array), (array, parameter))
        self._taken[id(array)] = array, parameter

    def has(self, array: Any) -> bool:
        """Whether an array is that of a parameter which the user's code has asked for."""
        return id(array) in self._taken

    def is_other(self, tape: Tape, variable: Variable) -> bool:
        """Whether a Variable has the array of a parameter that functions read, and is another one."""
        value = None if tape.observation is None or tape.observation.state(variable) else tape.known(variable._array)
        binding = None if value is None else tape.bindings.get(value)
        if not isinstance(binding, ParameterBinding) or binding.parameter._node is variable._node is not None:
            return False
        self.take(variable._array, binding.parameter)
        return True

    def parameter(self, array: Any) -> Parameter | None:
        """Return the parameter of such an array."""
        return self._taken.get(id(array), (None, None))[1]

    def first(self, array: Any, default: Parameter | None) -> Parameter | None:
        """Return the parameter by which an array was read first, be it another's by now."""
        return self._first.get(id(array), (None, default))[1]

    def value(self, tape: Tape, array: Any) -> Value | None:
        """Return the value of such an array: no gradient goes through it."""
        view = self._views.get(id(array))
        if view is None:
            view = self._views[id(array)] = cut_off(self.variable(array))
        return tape.known(view)

    def variable(self, array: Any) -> Variable:
        """Return the Variable by which functions read such an array."""
        return self._taken[id(array)][1] if id(array) in self._taken else self._others[id(array)]

    def adopt(self, array: Any) -> None:
        """Let an array from outside, which functions read, be changed in place, too."""
        self._others[id(array)] = Variable(array, requires_grad=False)
        self.changed[id(array)] = array

    def around(self, array: Any) -> Any:
        """Return such an array in whose memory an array lies; None if there is none."""
        memory = owner(array) if has_address(array) else None
        return self.changed.get(id(memory), next((x for x, _ in self._taken.values() if owner(x) is memory), None))

    def lies_in(self, array: Any) -> bool:
        """Whether an array lies in the memory of one that a parameter has or had."""
        return self.around(array) is not None or self.is_gone(array)

    def is_gone(self, array: Any) -> bool:
        """Whether an array lies in memory of one that a parameter had until the call gave it another."""
        return bool(self._gone) and id(owner(array)) in self._gone

    def __contains__(self, array: Any) -> bool:
        """Whether an array lies in memory that the call changes, or that a parameter had."""
        return bool(self.changed or self._gone) and (
            id(memory := owner(array)) in self.changed or id(memory) in self._gone)

    def read(self, array: Any) -> None:
        """Note that functions read a parameter, whose array this is."""
        self._read[id(owner(array))] = owner(array)

    def is_read(self, memory: Any) -> bool:
        """Whether functions read a parameter that lies in some memory."""
        return id(memory) in self._read

    def retain(self, memory: Any) -> None:
        """Note that a gradient may read part of some memory, and not by its parameter, or a function of the user's."""
        self._viewed.add(id(memory))

    def keeps_view(self, array: Any) -> bool:
        """Whether a gradient may read a view of a parameter's memory, which it would see as it was."""
        return id(owner(array)) in self._viewed

    def change(self, tape: Tape, whole: Any) -> None:
        """Note that elements of a parameter's array have changed."""
        self.changed[id(owner(whole))] = whole
        self._forget(tape, whole)

    def replace(self, tape: Tape, before: Any, parameter: Parameter, value: Value | None) -> None:
        """Note that a parameter has got another array than ``before``, which stays as it was, a ``value``."""
        now = parameter._array
        self._gone[id(owner(before))] = owner(before)
        self.changed.pop(id(owner(before)), None)
        self._taken.pop(id(before), None)
        self._forget(tape, before)
        tape.forget((before, now))
        if value is not None:
            tape.alias(before, value)
        self.take(now, parameter)
        self.read(now)
        self.changed[id(now)] = now

    def _forget(self, tape: Tape, whole: Any) -> None:
        self._views.pop(id(whole), None)
        tape.forget([y for y in tape.live_arrays() if y is not whole and owner(y) is owner(whole)])
