"""Arrays that the user's code fills with computed values: padding, one-hot rows, running averages.

Each write maps such an array to another value: its former elements with the written ones in their place. A write to a
part maps the whole, and other parts are parts of that from then on. It is right as long as nothing else reads the
memory: functions that retain it for their gradients would do so later. Arrays from outside are written to by replays
at their end.
"""
from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np

from kusari.ir import Value

from ... import functions as F
from ...configuration import config
from ...function_node import FunctionNode
from ...functions.array.entries import encode
from ...functions.array.indexing import GetItemGrad, ScatterAdd
from ...parameter import Parameter
from ...variable import Variable
from ..trees import array_of
from . import numpy_calls
from .captured import Part, outside_value, owner, part_of

if TYPE_CHECKING:
    from ..trace.recorder import Tape


class Written:
    """The filled arrays of one call. Invariant: arrays in it are kept alive, so that identities are unique."""

    def __init__(self) -> None:
        self._own: dict[int, Any] = {}  # arrays that own their memory
        self._memory: dict[int, Any] = {}  # arrays that have been written to
        self._outside: dict[int, Any] = {}  # those of them that were there before the call
        self.sources: list[Value] = []  # the values of these as they were
        self._by_number: dict[int, Any] = {}  # memory of which there are views by computed numbers
        self._sources: dict[int, Value] = {}  # the same by the memory's identity
        self._read: dict[int, Any] = {}  # arrays that functions may read again, or write to
        self._numpy = False
        self._followed: set[int] = set()  # persistent arrays that NumPy reads as values: the call may put others there
        self._early: dict[int, Any] = {}  # effects on arrays that replays change before their end

    def __contains__(self, array: Any) -> bool:
        """Whether an array lies in the memory of one that has been written to, or is followed."""
        return bool(self._memory or self._followed) and type(array) is np.ndarray and (
            id(owner(array)) in self._memory or id(array) in self._followed)

    def follow(self, tape: Tape, array: Any) -> None:
        """Take a persistent array, or one from outside, for a value where NumPy reads it, too."""
        if tape.is_state(array) and tape.known(array) is None:
            tape.bind_state(array)
        if tape.is_state(array) or outside_value(tape, array) is not None:
            self._followed.add(id(array))

    def owns(self, array: Any) -> bool:
        """Whether an array lies in memory of the call's own that may be written to."""
        return id(owner(array)) in self._own

    def let_go(self, memory: Any) -> None:
        """Note that an array from outside is changed in place from now on."""
        self.sources.remove(self._sources.pop(id(memory)))
        self._memory.pop(id(memory))
        self._outside.pop(id(memory))

    def source(self, memory: Any) -> Value | None:
        """Return the value that an array from outside had before the call changed it."""
        return self._sources.get(id(memory))

    def kept(self, function: FunctionNode, inputs: Any) -> list[Any]:
        """Return the arrays from outside that the call has changed and a gradient of a function reads again."""
        if not self._outside or self._numpy or not (config.enable_backprop and any([v.requires_grad for v in inputs])):
            return []
        return [memory for i in function._input_indexes_to_retain or ()
                if id(memory := owner(array_of(inputs[i]))) in self._outside]

    def arrays(self) -> list[Any]:
        """Return the arrays that have been written to."""
        return [*self._memory.values()]

    def outside(self) -> list[Any]:
        """Return those of them that were there before the call."""
        return [*self._outside.values()]

    def changed(self, effect: Any) -> None:
        """Note that replays change an array from outside before a function of the user's looks at it."""
        self._early[id(effect.holder)] = effect

    def change(self, tape: Tape, array: Any) -> None:
        """Note that a function of the user's has changed an array from outside."""
        if id(array) not in self._outside and (source := tape.known(array)) is not None:
            self.sources.append(source)
        self._memory[id(array)] = self._outside[id(array)] = array

    def early(self) -> list[Any]:
        """Return the effects on such arrays, the last one of each."""
        return [*self._early.values()]

    def is_outside(self, array: Any) -> bool:
        """Whether an array lies in the memory of one of those."""
        return bool(self._outside) and id(owner(array)) in self._outside

    def made(self, array: Any) -> None:
        """Take in an array that NumPy has made, or computed from values that the tape knows."""
        if array.base is None:
            self._own[id(array)] = array

    def view_by_number(self, array: Any) -> None:
        """Note that there is a view of an array by a computed number, which is another part in other calls."""
        self._by_number[id(owner(array))] = owner(array)

    def may_change(self, tape: Tape, array: Any, whole: Any) -> bool:
        """Whether it is known which part of ``whole`` an array, which changes, and other views of it are."""
        memory = owner(whole)
        return id(memory) not in self._by_number or array is whole and not any(
            owner(y) is memory and y.size < whole.size for y in tape.live_arrays())

    def is_kept(self, array: Any) -> bool:
        """Whether a function may read an array, or another part of its memory, again."""
        return id(owner(array)) in self._read

    def read(self, tape: Tape, array: Any) -> None:
        """Note that a function is applied to an array; a persistent one it may write to."""
        if not self._numpy and not self.is_outside(array) and tape.is_state(memory := owner(array)):
            self._read[id(memory)] = memory

    def retain(self, tape: Tape, array: Any, direct: bool = False) -> None:
        """Note that a function reads an array again later; constants are compared at the end."""
        memory = owner(array)
        if not self._numpy and not direct and (tape.of_parameters.is_read(memory) or tape.is_state(memory)
                                               or tape.is_from_outside(memory)):
            tape.of_parameters.retain(memory)
        if not self._numpy and self.is_outside(memory):
            tape.note_at_user("a function keeps an array from outside after the call has changed its elements, and "
                              "later calls may change them again before its gradient reads them; give it a copy")
        if not self._numpy and (id(memory) in self._own or memory in tape.constants or tape.is_from_outside(memory)):
            self._read[id(memory)] = memory

    def applied(self, tape: Tape, function: FunctionNode, inputs: Any, outputs: Any, keeps_any: bool) -> None:
        """Note the arrays that the gradient of a function reads; one of the user's may keep any."""
        if tape.observation is None:
            return
        formula = getattr(function, "_formula", None)
        if self._outside and formula is not None and any([n.op.writes for n in formula.nodes]) and any(
                [self.is_outside(v._array) for v in inputs]):
            tape.note_at_user(f"{function.label} writes to an array from outside that the call has changed")
        if keeps_any or config.enable_backprop and any([v.requires_grad for v in inputs]):
            for variables, indexes in ((inputs, function._input_indexes_to_retain),
                                       (outputs, function._output_indexes_to_retain)):
                for i in range(len(variables)) if keeps_any else indexes or ():
                    array, by_parameter = array_of(variables[i]), issubclass(type(variables[i]), Parameter)
                    if not by_parameter and not self._numpy and tape.of_parameters.is_gone(array):
                        tape.note_at_user("a gradient reads an array that a parameter had before the call gave it "
                                          "another one, which replays would read instead; give it a copy")
                    whole = by_parameter or getattr(array, "base", None) is None and not tape.of_parameters.has(array)
                    self.retain(tape, array, whole and not keeps_any)

    @contextmanager
    def by_numpy(self) -> Iterator[None]:
        """Inside, functions are applied in place of NumPy's, which retain nothing that they read."""
        before, self._numpy = self._numpy, True
        try:
            yield
        finally:
            self._numpy = before

    def write(self, tape: Tape, array: Any, compute: Callable[[Any], Any]) -> Any:
        """Map ``array`` to ``compute(array)``, which the caller writes to it.

        Returns the array of the new value of all the memory that it lies in; None if that is impossible.
        """
        memory = owner(array)
        own = memory in tape.constants or id(memory) in self._own
        if type(memory) is not np.ndarray or id(memory) in self._read or not self.may_change(tape, array, memory):
            return None
        if not own and outside_value(tape, memory) is None:
            return None
        views = [y for y in tape.live_arrays() if y is not memory and owner(y) is memory]
        part = None if array is memory else part_of(array, memory)
        if any(part_of(y, memory) is None for y in views) or part is None and array is not memory:
            return None
        before = memory
        if own and (not tape.knows_elements(memory) or memory in tape.constants):
            before = memory.copy()  # elements that functions have read are compared at the end
            tape.constants.add(before)
        value = compute(before) if part is None else _with_part(tape, before, part, compute)
        if value is None or (known := tape.known(value)) is None:
            return None
        tape.constants.release(memory)
        if not own and id(memory) not in self._outside and (source := tape.known(memory)) is not None:
            self.sources.append(source)
            self._sources[id(memory)] = source
        self._memory[id(memory)] = memory
        (self._own if own else self._outside)[id(memory)] = memory
        tape.alias(memory, known, views)
        return value


def _with_part(tape: Tape, whole: Any, part: Part, compute: Callable[[Any], Any]) -> Any:
    """Return the recorded value of ``whole`` after a part of it has become what ``compute`` makes of that."""
    def assign(x: Any, y: Any) -> Any:
        made = x.copy()
        part.of_array(made)[...] = y
        return made
    before = numpy_calls.recorded(tape, part.of, part.of_array, (whole,))
    after = None if before is None else compute(before)
    return None if after is None else numpy_calls.recorded(
        tape, lambda x, y: part.replaced(x, y, functools.partial(_constant, tape)), assign, (whole, after))


def with_item(tape: Tape, array: Any, key: Any, value: Any) -> Any:
    """Return the recorded value of ``array`` after ``array[key] = value``; None if no functions compute it."""
    keys = key if type(key) is tuple else (key,)
    arrays = [x for x in keys if isinstance(x, np.ndarray)]
    if not all(isinstance(x, np.ndarray) or _is_basic(x) for x in keys):
        return None
    kinds = {x.dtype.kind for x in arrays}
    if not arrays and isinstance(value, np.ndarray):
        assign, operands = _slices, (value,)
    elif not isinstance(value, (bool, int, float, np.generic)):
        return None
    elif kinds == {"b"} and len(keys) == 1:
        assign, operands = _masked, (arrays[0], value)
    elif kinds <= {"i"}:
        assign, operands = (_places if arrays else _slices), (*arrays, value)
    else:
        return None

    def original(x: Any, *_: Any) -> Any:
        y = x.copy()
        operator.setitem(y, key, value)
        return y
    return numpy_calls.recorded(tape, lambda x, *rest: assign(tape, x, key, *rest), original, (array, *operands))


def _masked(tape: Tape, x: Variable, key: Any, mask: Variable, number: Any) -> Variable:
    """Return ``x`` with a number where a mask of its first axes is set."""
    mask = F.reshape(mask, mask.shape + (1,) * (x.ndim - mask.ndim))
    return F.where(mask, _constant(tape, np.asarray(number).astype(x.dtype)), x)


def _places(tape: Tape, x: Variable, key: Any, *rest: Any) -> Variable:
    """Return ``x`` with a number where arrays of integers point."""
    *arrays, number = rest
    ones = _constant(tape, np.ones(_part(x, key).shape, np.float32))
    count = ScatterAdd(encode(key)[0], x.shape).apply((ones, *arrays))[0]
    there, = numpy_calls.Compare("greater", (None, 0)).apply((count,))
    return F.where(there, _constant(tape, np.asarray(number).astype(x.dtype)), x)


def _slices(tape: Tape, x: Variable, key: Any, value: Any) -> Variable:
    """Return ``x`` with a number, or an array, in a part."""
    if isinstance(value, Variable) and value.shape == x.shape and all(i == slice(None) or i is Ellipsis for i in (
            key if type(key) is tuple else (key,))):
        return F.cast(value, x.dtype)
    inside = np.zeros(x.shape, bool)
    inside[key] = True
    if isinstance(value, Variable):
        shape = _part(x, key).shape
        value = F.reshape(value, value.shape[max(value.ndim - len(shape), 0):])  # without axes in front of one element
        part = F.broadcast_to(F.cast(value, x.dtype), shape)
        value, = GetItemGrad(encode(key)[0], x.shape).apply((part,))
    else:
        value = _constant(tape, np.asarray(value).astype(x.dtype))
    return F.where(_constant(tape, inside), value, x)


def _part(x: Variable, key: Any) -> Any:
    """Return an array of the shape that an index selects of ``x``."""
    return np.broadcast_to(False, x.shape)[key]


def _is_basic(index: Any) -> bool:
    if isinstance(index, slice):
        return all(i is None or isinstance(i, (int, np.integer)) for i in (index.start, index.stop, index.step))
    return index is None or index is Ellipsis or isinstance(index, (int, np.integer)) and type(index) is not bool


def _constant(tape: Tape, array: Any) -> Variable:
    """Return a Variable of an array that is a constant in replays."""
    tape.constants.add(array)
    return Variable(array, requires_grad=False)
