"""The recording tape: while a static function runs for the first time, every function applied becomes a node.

Values are recognised by the identity of their arrays. The tape keeps arrays from outside alive; results of functions
may die as they would without a tape, and are forgotten then. A use that the tape cannot follow is noted as a *fault*,
the first of which is the reason for the fallback; recording never changes the results of the user's code.
"""
from __future__ import annotations

import functools
import weakref
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any, TypeGuard

import numpy as np

from kusari.ir import Node, Op, TokenType, Value, tensor_type

from ...backends.cuda import is_cupy_array
from ...callsite import short, user_location, user_place
from ...configuration import config
from ...function_node import FunctionNode
from ...link.namespace import entries_of
from ...parameter import Parameter
from ...variable import Variable
from ..arrays.aliasing import Aliases
from ..arrays.bindings import ArrayBinding, Binding, ParameterBinding, StateBinding
from ..arrays.captured import outside_value, owner
from ..arrays.constants import Constants
from ..arrays.detached import Detached
from ..arrays.of_parameters import OfParameters
from ..arrays.overlap import Spans, has_address
from ..arrays.picked import Picked
from ..arrays.places import Places
from ..arrays.written import Written
from ..computed_numbers import Reader, numbers_in, settled
from ..errors import Fault, is_handled
from ..guards.guard import Entry, type_of
from ..trees import array_of
from .contents import Contents, Given
from .in_place import change_now
from .net import Net
from .numpy_nodes import look_again, taken_out, told
from .observation import NOT_DRAWN_AGAIN, Observation
from .ops import asks, held_arrays, op_of, pristine, runs_users_python, static_attributes
from .python_nodes import record_report
from .random_state import is_lazy, position


class Tape:
    """Records one call; installed by ``recording``, read by ``Recording``."""

    takes_arrays = False  # whether arrays of computed Variables are values, though nothing watches

    def __init__(self) -> None:
        self.nodes: list[Node] = []
        self.bindings: dict[Value, Binding] = {}
        self.consts: list[tuple[Value, Any]] = []
        self.fault: Fault | None = None
        # While gradients are derived: where the functions were applied whose gradients they are, and which is at work.
        self.places: dict[FunctionNode, str] = {}
        self.memo: Any = None  # runs their backwards, if they do not themselves
        self._where: str | None = None
        self._values, self._keep = dict[int, Value](), list[Any]()
        self.constants, self.written, self.picked = Constants(), Written(), Picked()
        self.of_parameters, self.places_before = OfParameters(), Places()
        self._results: dict[int, Any] = {}  # weak references to results of functions, by identity
        self.computed, self.aliases = Detached(), Aliases()
        self.at_work, self.reached = 0, list[Any]()  # functions and code; what functions of the user's can reach
        self._given = dict[int, Given]()  # the inputs of functions of the user's that are at work, by template
        self._parameters: dict[int, Value] = {}
        self._states: dict[int, StateBinding] = {}
        self.outside: dict[int, Any] = {}  # arrays that the user's code has from elsewhere and that functions read
        self.observation: Observation | None = None
        self.net = Net(self)
        self._drawn: Any = None
        self.draws = self.handled = False  # whether functions have drawn, or code handles indices out of range
        self.numbers, self.errors = Reader(functools.partial(told, self)), np.geterr()
        self.checks = 0  # numbers that replays compare
        self.compared: dict[int, Any] = {}  # computed numbers among them
        # Variables found in attributes, that functions read: they are further inputs.
        self.carried: dict[int, tuple[Value, Variable, Entry]] = {}
        self._nodes, self._detached = list[tuple[Value, Any]](), list[Value]()
        self._promised, self._made = set[int](), dict[int, Parameter]()  # arrays that are the same at every call
        self.contents, self.keeps_results = Contents(self.note), False
        self._initializing = self._first_arrays = False  # parameters get their first arrays, perhaps by random numbers
        self._leaves, self.arguments = list[Any](), dict[int, Any]()  # the latter by identity
        self.made_inside: Fault | None = None  # a function reads a parameter that the call has made

    # -- called by the core ------------------------------------------------------------------------------------

    def before(self, function: FunctionNode, inputs: Any) -> FunctionNode:
        """Called right before ``function.forward``, which runs unrecorded; returns the template to replay it by."""
        self.settle()
        self.at_work += 1
        for v in inputs:
            self.contents.expect(v._array)
            self.constants.value(self, v._array)  # before functions may update it
        template = pristine(function)
        if runs_users_python(function):
            self.net.unobserved += 1
            self._given[id(template)] = Given(inputs, template)
        return template

    def after(self, template: FunctionNode, function: FunctionNode, inputs: Any, outputs: Any) -> None:
        """Called when ``function`` has made its outputs."""
        self.at_work -= 1
        self.draws |= self.observation is not None and self._has_drawn()
        if (of_user := self._given.pop(id(template), None)) is not None:
            self.net.unobserved -= 1
            of_user.expect(self, function)
        for v in inputs:  # functions may update them
            self.contents.take(v._array)
        if self.fault is not None:
            return
        if numbers_in(vars(template)):
            vars(template).update(settled(dict(vars(template)), function.label))
        if (held := held_arrays(self, template)) is None:
            return
        if of_user is not None and any(self.of_parameters.has(v._array) and not _is_parameter(v) for v in inputs):
            self.note(f"{function.label} reads the array of a parameter, and might write to it; give it the parameter")
            return
        change_now(self, self.written.kept(function, inputs) if of_user is None else ())
        values = tuple([v for x in inputs if (v := self.value_of(x, function.label)) is not None])
        if self.fault is not None or len(values) < len(inputs):
            return
        self.written.applied(self, function, inputs, outputs, of_user is not None)
        if (record := getattr(function, "record", None)) is not None:
            record(self, values, outputs)
        else:
            op = op_of(template)
            attrs = {"function": template, **static_attributes(template), **self.constants.attributes(op, inputs)}
            attrs |= {k: v for k, v in (("on_card", is_cupy_array(outputs[0]._array)), ("held", tuple(held)),
                                        ("asks", asks(template, inputs))) if v}
            self.append(op, (*values, *held.values()), outputs, attrs)
            if of_user is not None:
                look_again(self, of_user.reached, returned=outputs)
            if self.observation is not None:
                made = [(v, y._array) for y in outputs if (v := self.known(y._array)) is not None]
                moves = op.is_opaque or getattr(function, "numbers", False)  # views that are others in replays
                self.aliases.made([*zip(values, [x._array for x in inputs], strict=True)], made, moves)

    @property
    def where(self) -> str | None:
        """The place of the function whose call is recorded, if it is one of the user's."""
        return None if self.observation is None else self.observation.where

    @contextmanager
    def unobserved(self) -> Iterator[None]:
        """Context for Python that runs in replays as well, or of which guards ask again."""
        self.net.unobserved += 1
        try:
            yield
        finally:
            self.net.unobserved -= 1

    def link(self, link: Any) -> None:
        """Called when a link is called: its persistent arrays may be read and written as state."""
        if self.observation is not None:
            if is_lazy(link):
                self.settle()
                self._initializing = True  # its parameters draw their first values
            self.observation.hooks(link)
        for name in link._persistent:
            self.register(link, name)

    def made(self, parameter: Parameter) -> None:
        """Called when a parameter is made, or copied."""
        self._made[id(parameter)] = parameter

    def initialize(self, parameter: Parameter, array: Any) -> None:
        """Called when a parameter gets its first array, perhaps of random numbers: later calls find it there."""
        self._first_arrays = True
        with self.unobserved():
            parameter.initializer(array)

    def is_made(self, x: Any) -> bool:
        """Whether the call has made a parameter."""
        return id(x) in self._made

    def is_computed(self, variable: Variable) -> bool:
        """Whether a Variable is a result of a recorded function."""
        array = variable._array
        return array is not None and id(array) in self._values and id(variable) not in self.arguments

    def is_argument(self, x: Any) -> bool:
        """Whether an object is an array or a Variable among the arguments."""
        return id(x) in self.arguments

    def is_from_outside(self, x: Any) -> bool:
        """Whether an array or a Variable was there before the call, other than as an argument."""
        if self.observation is None or id(x) in self.arguments:
            return False
        return issubclass(type(x), Parameter) or self.observation.owns(x) or self.observation.state(x) is not None

    def enter(self, inputs: Any) -> Any:
        """Called with the inputs of a function."""
        return tuple(inputs)

    def take(self, variable: Variable) -> Any:
        """Called when code asks for a Variable's array; returns the array that it gets."""
        array = variable._array
        if not _is_parameter(variable):
            if array in self.constants:
                return array
            found = self.computed.take(self, array)
            if found is not None:
                return found
            self.escape(variable, "array")
            return array
        if self.observation is not None and type(array) is np.ndarray:
            self.of_parameters.take(array, variable)
            self.places_before.add(array, variable.__dict__, "_array", variable.name or "a parameter")
        return array

    def read(self, array: Any, what: str) -> None:
        """Called when anything but a function looks at the elements of an argument or a parameter."""
        if self.computed.has(array):
            self._taken_out(what)
        kind = "a parameter" if self.of_parameters.has(array) else (
            "an argument" if any(owner(array) is owner(array_of(x)) for x in self._leaves) else "a computed array")
        self.note(f"{what} reads elements of {kind}, and replays would not read again; use functions instead (shapes "
                  "and dtypes may be read freely), or do it outside the static function")

    def _taken_out(self, what: str) -> None:
        self.note(taken_out(what))

    def escape(self, variable: Variable, what: str) -> None:
        """Called when user code takes the data out of a Variable."""
        if _is_parameter(variable):
            if what != "array" and self.observation is not None:
                self.note(f"{what} reads a parameter, and replays would not read again; use functions instead")
            return
        if id(variable._array) in self._values or (
                self.observation is not None and variable._array not in self.constants):
            self._taken_out(what)

    report = record_report  # called by ``kusari.report``

    # -- random numbers that no function draws ------------------------------------------------------------------

    def take_leaves(self, leaves: list[Any]) -> None:
        """Take note of the leaves of the arguments."""
        self._leaves = leaves
        self.arguments = {id(x): x for x in leaves}

    def end(self, result: Any) -> Any:
        """Return the result of the call with plain numbers."""
        self.numbers.told = None
        return settled(result, "the result")

    def close(self) -> None:
        """Release the traced arrays, now and not at the next collection: NumPy resizes no array with references."""
        self._results.clear()
        self._keep.clear()
        self.net.tape, self.contents = None, Contents(lambda _: None)  # neither refers to the tape any more
        self.numbers.told = None
        if self.observation is not None:
            self.observation.close()

    def observe(self, observation: Observation) -> None:
        """Note a fault from now on if the call draws random numbers outside of functions."""
        self.observation = observation
        self._drawn = position()

    def expect_draws(self) -> None:
        """Count the draws so far as draws of replays, too."""
        if self.observation is not None:
            self._drawn = position()

    def _has_drawn(self) -> bool:
        """Whether random numbers have been drawn since the last time; those are expected from now on."""
        before, self._drawn = self._drawn, position()
        return self._drawn != before

    def settle(self, where: str | None = None) -> None:
        """Note a fault if random numbers have been drawn since they were last expected to be."""
        if self.observation is None or self.fault is not None:
            return
        if self._has_drawn() and not self._initializing and not self._first_arrays and (
                not self.observation.made_parts):
            self.note(f"random numbers are drawn from numpy.random outside functions, {NOT_DRAWN_AGAIN}", where)
        self._initializing = False

    # -- persistent arrays that no function changes --------------------------------------------------------------

    def register(self, link: Any, name: str) -> None:
        """From now on a persistent array is state, which functions may read and write."""
        array, o = entries_of(link).get(name), self.observation
        if o is not None and type(array) is np.ndarray and not o.is_stored(entries_of(link), name):
            self.places_before.add(array, entries_of(link), name, f"{type(link).__name__}.{name}")
        if hasattr(array, "dtype") and getattr(array, "shape", None) is not None and id(array) not in self._states:
            self._states[id(array)] = StateBinding(link, name)
            given = [a for x in self._leaves if has_address(a := array_of(x))]
            if o is not None and has_address(array) and Spans(given).touch(array):
                self.note("an argument shares memory with a persistent array of a link; pass a copy", self.where)
            self._keep.append(array)
            if has_address(array):
                self.contents.add(array, f"{type(link).__name__}.{name}")

    # -- parts of recording ------------------------------------------------------------------------------

    def note(self, reason: str, where: str | None = None) -> None:
        """Keep the first reason why this call is not static."""
        if self.fault is None:
            self.fault = Fault(reason, where or self._where or user_place())

    def note_at_user(self, reason: str) -> None:
        """Keep a reason with the line of the user's code, not that of a library which it has called."""
        (self if self.observation is None else self.observation).note(reason)

    def define(self, array: Any, hint: str = "") -> Value:
        """Map ``array`` to a new value."""
        if array.dtype.kind not in "fiubc" or not array.dtype.isnative:
            self.note(f"there is an array of dtype {array.dtype}, for which no code is generated")
        value = Value(tensor_type(array.dtype, array.shape), hint)
        self._values[id(array)] = value
        self._keep.append(array)
        return value

    def _define_result(self, array: Any) -> Value:
        """Map the result of a function to a new value, as long as it lives."""
        value = self.define(array)
        if type(array) is np.ndarray and not self.keeps_results:
            self._keep.pop()
            self.lend(array, value)
        return value

    def lend(self, array: Any, value: Value) -> None:
        """Map an array to a value as long as it lives."""
        key, values, results = id(array), self._values, self._results  # not the tape: it would be part of a cycle

        def gone(_: Any) -> None:
            values.pop(key, None)
            results.pop(key, None)
        values[key], results[key] = value, weakref.ref(array, gone)

    def live_arrays(self) -> list[Any]:
        """Return the arrays with a value."""
        return [a for a in (*self._keep, *(r() for r in self._results.values())) if type(a) is np.ndarray]

    def alias(self, array: Any, value: Value, views: Iterable[Any] = ()) -> None:
        """Map ``array`` to an existing value; ``views`` are parts of it from now on."""
        self._values[id(array)] = value
        self._keep.append(array)
        for view in views:
            self._values.pop(id(view), None)

    def known(self, array: Any) -> Value | None:
        """Return the value of ``array``, if any."""
        self.picked.settle(array)
        return self._values.get(id(array))

    def knows_elements(self, array: Any) -> bool:
        """Whether ``array`` is an argument, or has been computed from arguments by recorded functions."""
        return self.known(array) is not None and not self.of_parameters.has(array)

    def is_value(self, array: Any) -> bool:
        """Whether an array is an argument, was computed of arguments, or is bound by replays."""
        self.picked.settle(array)
        key, others = id(array), (self.outside, self._states, self._promised)
        if array in self.written or array in self.of_parameters:
            return True
        return key in self._values and array not in self.constants and not (
            self.of_parameters.has(array) or any(key in known for known in others))

    def forget(self, arrays: Iterable[Any]) -> None:
        """Give up the values of arrays."""
        for array in arrays:
            self._values.pop(id(array), None)

    def bind(self, array: Any, binding: Binding, hint: str) -> Value:
        """Map ``array`` to a new value that is bound to an outside object."""
        value = self.define(array, hint)
        self.bindings[value] = binding
        return value

    def is_state(self, array: Any) -> bool:
        """Whether ``array`` is a persistent array of a link."""
        return id(array) in self._states

    def state_entry(self, array: Any) -> Any:
        """Return the dictionary and the key of such an array; None of others."""
        return self._states[id(array)].holder if id(array) in self._states else None

    def states(self) -> list[Any]:
        """Return the persistent arrays."""
        return [a for b in self._states.values() if has_address(a := b.array())]

    def given_arrays(self) -> list[Any]:
        """Return the arrays that are arguments, or that functions and optimizers may write."""
        states = [b.array() for b in self._states.values()]
        parameters = [p._array for p in self._keep if issubclass(type(p), Parameter)]
        return [a for a in (*self._keep, *states, *parameters)
                if has_address(a) and id(a) not in self.outside]

    def bind_outside(self, array: Any) -> None:
        """Let replays read ``array`` itself, which guards find where it is now."""
        self.outside[id(array)] = array
        self.bind(array, ArrayBinding(array), "outside")

    def bind_state(self, array: Any) -> Value:
        """Let replays read the persistent array in the place of ``array``."""
        binding = self._states[id(array)]
        return self.bind(array, binding, binding.name)

    def constant(self, array: Any) -> None:
        """Promise that ``array`` is the same at every call with this signature."""
        if id(array) not in self._values and id(array) not in self._states:
            self.consts.append((self.define(array), array))
            self._promised.add(id(array))

    def value_of(self, variable: Variable, label: str) -> Value | None:
        """Return the value that a function reads; notes a fault when it comes from outside the trace."""
        array, o, known = variable._array, self.observation, self.of_parameters
        if not _is_parameter(variable) and (known.has(array) or known.is_other(self, variable)):
            return known.value(self, array)
        if _is_parameter(variable):
            if id(variable) in self._made and self.made_inside is None:
                self.made_inside = Fault(
                    f"{label} reads a parameter that the call itself has made or copied, and replays would not make it "
                    "again; make it outside", user_location())
            value = self._parameters.get(id(variable))
            if value is None:
                argument = self._values.get(id(array))
                value = self.bind(array, ParameterBinding(variable), variable.name or "param")
                if argument is not None:  # the array is given as an argument, too: that is another value
                    self._values[id(array)] = argument
                self._parameters[id(variable)] = value
                self._keep.append(variable)
                self.of_parameters.read(array)
                self.places_before.add(array, variable.__dict__, "_array", variable.name or "a parameter", True)
            return value
        if (value := self.constants.value(self, array)) is not None:
            return value
        self.written.read(self, array)
        value = self.known(array)
        slot = None if o is None else o.state(variable)
        if slot is not None and id(variable) not in self.carried:
            return self._carry(variable, slot, label, value)
        if value is not None:
            return value
        if id(array) in self._states:
            return self.bind_state(array)
        if variable.creator_node is None and (value := outside_value(self, array)) is not None:
            return value
        made_outside = variable.creator_node is not None or variable.requires_grad and variable.name is not None
        what = "a Variable made outside the static function" if made_outside else (
            "an array that is neither an argument nor made by a function")
        self.note(f"{label} reads {what} (shape {tuple(array.shape)}, {array.dtype}); pass it as an argument, make it "
                  "with functions, register it as persistent, or compute it in a function decorated with static_code")
        return None

    def _carry(self, variable: Variable, slot: Entry, label: str, value: Value | None) -> Value | None:
        """Make a Variable in an attribute an input: replays read the Variable that is there then."""
        if value is not None or type_of(variable) is None:
            self.note(f"{label} reads {slot.what}, which is an argument too; pass a copy")
            return None
        slot.state = type_of(variable)
        value = self.define(variable._array, str(slot.key))
        self.carried[id(variable)] = (value, variable, slot)
        return value

    def append(self, op: Op, inputs: tuple[Value, ...], outputs: Any, attrs: dict[str, Any]) -> None:
        """Record a node; ``outputs`` are Variables or arrays."""
        made: list[Value] = []
        self.handled = self.handled or self.observation is not None and is_handled(inputs)
        for v in outputs:
            array = array_of(v)
            if array is None:
                self.note(f"{op.name} returned None as an output")
                return
            if issubclass(type(v), Variable) and id(array) in self._values:
                # A function that returns its operand: another value, with a gradient of its own.
                array = v._array = array.view()
            made.append(self._define_result(array))
            if issubclass(type(v), Variable) and config.enable_backprop and v._node is not None:
                self._nodes.append((made[-1], weakref.ref(v._node)))
            else:
                self._detached.append(made[-1])
        if op.is_opaque and "function" in attrs:
            made.append(Value(TokenType(), "applied"))
        self.nodes.append(Node(op, inputs, tuple(made), attrs, self.place()))

    def differentiating(self, function: FunctionNode) -> None:
        """Give nodes from now on the place where ``function`` was applied, if that is known."""
        self._where = self.places.get(function)

    def place(self) -> str:
        """The place and the path of links for nodes recorded now."""
        return self._where or short(user_location())

    def detached(self) -> frozenset[Value]:
        """Return the values that have been cut from the graph behind them."""
        cut = [value for value, ref in self._nodes if (node := ref()) is not None and node.creator_node is None]
        return frozenset(cut + self._detached)


def _is_parameter(variable: Variable) -> TypeGuard[Parameter]:
    return issubclass(type(variable), Parameter)
