"""Functions of the user's own: the facts known of them, and each application in a replay.

Nothing is known of their code, so Python runs it, once for each time that define-by-run would. Which inputs and outputs
it retains, and to which inputs it gives gradients, is seen when it does.
"""
from __future__ import annotations

import copy
import gc
import random
import weakref
from collections import deque
from collections.abc import Generator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from sys import getrefcount
from types import FrameType, FunctionType, MethodType, ModuleType
from typing import Any

import numpy as np

from kusari.ir import Node, Value
from kusari.runtime.python_rows import RunError

from ... import tape as _tape
from ...configuration import config, using_config
from ...function_node import FunctionNode, select_gradients
from ...variable import Variable, output_variable
from ..errors import is_from_handler
from ..guards.reached import is_own
from .observation import is_ours

GENERATORS = (np.random.RandomState, np.random.Generator, np.random.BitGenerator, random.Random)
_CONTAINERS = (list, dict, set, deque, bytearray)


class Unforeseen(Exception):
    """A function of the user's has given other gradients than compiled code expects."""


class OwnKind:
    """The facts known of a function that a static function has applied; all its applications in replays share them.

    ``inputs`` and ``outputs`` are the numbers of retained ones; ``gives`` maps the outputs that had gradients to the
    inputs that got some. ``fresh`` are attributes as they were before the forward, of each object
    that the function consists of, which every application has for itself. ``arrays`` are attributes that were arrays
    then, each with the number of its object and what it contained; they are there until the function is recorded.
    """

    def __init__(self, function: FunctionNode, tape: Any) -> None:
        self.inputs: tuple[int, ...] = ()
        self.outputs: tuple[int, ...] = ()
        self.gives: dict[tuple[bool, ...], dict[int, bool]] = {}
        self.settings: dict[str, Any] = {}  # entries of `config` that the call has set around it
        self.parameters = False  # whether it can reach parameters, to which its backwards may give gradients
        self.changes = False  # whether its first backward has changed an array that its forward has retained
        self.fresh = _fresh_attributes(function, tape)
        self.arrays = [(i, name, x, x.tobytes()) for i, owner in enumerate(owners(function))
                       for name, x in vars(owner).items() if type(x) is np.ndarray]

    def take_arrays(self) -> list[tuple[int, str, Any, bytes]]:
        """Return the attributes that were arrays, and forget them."""
        found, self.arrays = self.arrays, []
        return found

    def note(self, indexes: tuple[int, ...], given: tuple[bool, ...], present: tuple[bool, ...]) -> None:
        """Note which of the inputs ``indexes`` had gradients."""
        self.gives.setdefault(given, {}).update(zip(indexes, present, strict=True))

    def expected(self, indexes: tuple[int, ...], given: tuple[bool, ...]) -> tuple[bool, ...]:
        """Return which of the inputs ``indexes`` will have gradients: the same as last time."""
        known = self.gives.get(given, {})
        return tuple([known.get(i, True) for i in indexes])

    def renew(self, function: FunctionNode) -> None:
        """Give a copy of the function the attributes that are its own."""
        for owner, entries in zip(owners(function), self.fresh, strict=True):
            vars(owner).update((name, _copied(value)) for name, value in entries.items())

    def observe(self, function: Any) -> None:
        """Note the arrays that the first forward of ``function`` retains, and the gradients that its backwards give."""
        kind, cls, me = self, type(function), weakref.ref(function)

        def forward(inputs: tuple[Any, ...]) -> Any:
            own: Any = me()
            del own.forward
            outputs = cls.forward(own, inputs)
            kind.inputs = tuple(own._input_indexes_to_retain or ())
            kind.outputs = tuple(own._output_indexes_to_retain or ())
            return outputs

        def backward(indexes: tuple[int, ...], grad_outputs: tuple[Any, ...]) -> Any:
            own: Any = me()
            kept = [own.inputs[i].data for i in kind.inputs] + list(own._retained_output_data or ())
            before = [(x, x.tobytes()) for x in kept if type(x) is np.ndarray]
            gxs = cls.backward(own, indexes, grad_outputs)
            kind.changes = kind.changes or any([x.tobytes() != content for x, content in before])
            if type(gxs) in (tuple, list) and len(gxs) in (len(indexes), len(own.inputs)):
                found = select_gradients(own, indexes, gxs)
                kind.note(indexes, tuple([g is not None for g in grad_outputs]), tuple([g is not None for g in found]))
            return gxs
        function.forward, function.backward = forward, backward


def template(function: FunctionNode) -> FunctionNode:
    """Return a copy of ``function`` as it is before its first forward, which is watched from now on."""
    tape, _tape.current.tape = _tape.current.tape, None  # to copy a generator is not to make one
    try:
        kind = OwnKind(function, tape)
        made = copy.copy(function)
        kind.renew(made)
    finally:
        _tape.current.tape = tape
    made._own_kind = kind
    kind.observe(function)
    return made


def apply_own(attrs: Any, *arrays: Any) -> tuple[Any, ...]:
    """Apply a fresh copy of a user's function; the last result is the `Applied` copy, which its gradient takes."""
    made = attrs["function"]
    function = copy.copy(made)
    if any(made._own_kind.fresh):
        made._own_kind.renew(function)
    fresh, held = attrs.get("fresh"), attrs.get("held", ())
    if fresh:
        arrays = tuple([x.copy() if i in fresh else x for i, x in enumerate(arrays)])
    given: list[Any] = []
    if held:
        given = [hold(function, place, array) for place, array in zip(held, arrays[-len(held):], strict=True)]
        arrays = arrays[:-len(held)]
    with settings(made._own_kind.settings), using_config("enable_backprop", True), raising():
        outputs = function.apply([Variable(x, requires_grad=x.dtype.kind in "fc") for x in arrays])
    found = tuple([v._array for v in outputs])
    places = [(i, name) if vars(owners(function)[i]).get(name) is array else None
              for (i, name), array in zip(held, given, strict=True)]
    return (*found, Applied(made, function, found, places))


def own_settings(observation: Any) -> dict[str, Any]:
    """Return the entries of `config` as blocks of the call have set them, but for ``enable_backprop``."""
    found = {name: getattr(config, name) for name, n in observation.settings.items() if n and name != "enable_backprop"}
    for name in [n for n, x in found.items() if issubclass(type(x), (Variable, np.ndarray))]:
        observation.note(f"config.{name} is an array or a Variable, which replays would not compute again; give it to "
                         "functions as an argument")
    return found


@contextmanager
def settings(entries: dict[str, Any]) -> Generator[None]:
    """Inside, entries of `config` are as the call has set them around Python of the user's."""
    with ExitStack() as stack:
        for name, value in entries.items():
            stack.enter_context(using_config(name, value))
        yield


@contextmanager
def raising() -> Generator[None]:
    """Inside, an exception of the user's is one that the call goes on with define-by-run, as its handlers may catch it.
    """
    try:
        yield
    except Exception as error:
        if isinstance(error, RunError) or is_from_handler(error):
            raise
        fault = RunError(f"a function of the user's raises {type(error).__name__}")
        fault.raised = error
        raise fault from error


def hold(function: Any, place: tuple[int, str], array: Any) -> Any:
    """Give a function an array in an attribute, which it may write to; returns the array that it gets."""
    owner, name = place
    array = array if array.flags.writeable else array.copy()
    vars(owners(function)[owner])[name] = array
    return array


def operands(node: Node) -> tuple[Value, ...]:
    """Return the values that the function of a node is applied to, without arrays in its attributes."""
    return node.inputs[:len(node.inputs) - len(node.attrs.get("held", ()))]


@dataclass(eq=False, slots=True)
class Applied:
    """One application of a user's function in a replay; ``given`` are gradients of its backward, while one runs.

    ``held`` are the places of the arrays in its attributes, which are operands of its node after its inputs; None
    where its forward has put something else. ``changed`` are inputs that it has changed, with their numbers.
    """

    template: FunctionNode
    function: Any
    outputs: tuple[Any, ...]
    held: list[tuple[int, str] | None]
    given: tuple[Any, ...] | None = None
    changed: Sequence[tuple[int, Any]] = ()

    def renew(self, inputs: tuple[int, ...], outputs: tuple[int, ...], arrays: tuple[Any, ...]) -> None:
        """Replace the operands and outputs with these numbers that it retains by ``arrays``, as they are now."""
        function = self.function
        count = len(function.inputs)
        for i, array in zip(inputs, arrays, strict=False):
            if i >= count:
                place = self.held[i - count]
                if place is not None:
                    hold(function, place, array)
            elif (node := function.inputs[i]).data is not None:
                node.data = array
        if outputs and function._retained_output_data is not None:
            now = dict(zip(outputs, arrays[len(inputs):], strict=True))
            function._retained_output_data = tuple([now.get(i, a) for i, a in zip(
                function._output_indexes_to_retain or (), function._retained_output_data, strict=True)])

    def backward(self, indexes: tuple[int, ...], grad_outputs: tuple[Any, ...]) -> tuple[Any, ...]:
        """Return its gradients, as in a backward that is not to be differentiated again; each a Variable, or None."""
        function = self.function
        with using_config("enable_backprop", False):
            if type(function).backward_accumulate is FunctionNode.backward_accumulate:
                found = function.backward(indexes, grad_outputs)
            else:
                found = function.backward_accumulate(indexes, grad_outputs, (None,) * len(indexes))
        gxs = select_gradients(function, indexes, found)
        given = tuple([g is not None for g in grad_outputs])
        self.template._own_kind.note(indexes, given, tuple([g is not None for g in gxs]))
        self.given = gxs
        return gxs

    def retained(self) -> list[tuple[int, Any]]:
        """Return the numbers of retained inputs, with their arrays."""
        nodes = self.function.inputs
        return [(i, nodes[i].data) for i in self.function._input_indexes_to_retain or ()]

    def join(self, inputs: tuple[Variable, ...]) -> tuple[Variable, ...]:
        """Let the function be part of a graph, applied to ``inputs``; its forward does not run again.

        Nor does its backward, once, if that has run already and its gradients could not be used.
        """
        function, self.function = self.function, None  # only that graph holds it from now on
        requires_grad = any([x.requires_grad for x in inputs])
        outputs = tuple([output_variable(a, requires_grad) for a in self.outputs])
        function._connect(inputs, tuple([x._array for x in inputs]), outputs)
        if self.given is not None:
            gxs, self.given = self.given, None
            me = weakref.ref(function)

            def backward(_: Any, __: Any) -> Any:
                own: Any = me()
                del own.backward
                return gxs
            function.backward = backward
        return outputs


def owners(function: Any) -> list[Any]:
    """Return the function, and the one of the old style that it adapts."""
    return [function, function._function] if function.is_adapter else [function]


def roots(function: Any) -> list[Any]:
    """Return the objects that a function has itself: attributes, and the methods and containers of its class."""
    found: list[Any] = []
    for owner in owners(function):
        found.extend(vars(owner).values())
        for kind in filter(is_own, type(owner).__mro__):
            found.extend(v for v in vars(kind).values() if isinstance(v, (FunctionType, dict, list, set)))
    return found


def _fresh_attributes(function: FunctionNode, tape: Any) -> list[dict[str, Any]]:
    """Return copies of attributes that can change and have no other owner: each application has its own.

    Notes a generator that the call has made and holds in a local name, too, as other code may draw from it.
    """
    found: list[dict[str, Any]] = []
    observation = getattr(tape, "observation", None)
    made = {} if observation is None else observation.made  # which holds the objects that the call has made
    for owner in owners(function):
        entries = vars(owner)
        found.append({})
        for name in list(entries):
            value = entries[name]
            if name.startswith("_") or not _can_change(value):
                continue
            if getrefcount(value) <= _OWN + (id(value) in made):
                found[-1][name] = _copied(value)
            elif isinstance(value, GENERATORS) and tape is not None and not _is_held(value, entries, owner, made):
                tape.note(f"{function.label} has a generator of random numbers in its attribute {name!r} that the call "
                          "has made, and replays would not make it again; make it outside, or in the function")
    return found


def _own() -> int:
    entries = {"x": [0]}
    for name in list(entries):
        value = entries[name]
        return getrefcount(value)
    return 0


_OWN = _own()  # the count for a value that only a dictionary and a local name hold


def _is_held(value: Any, *owners: Any) -> bool:
    """Whether any object but ``owners`` holds ``value``; local names of functions at work do not count."""
    return any(type(x) is not FrameType and all(x is not o for o in owners) for x in gc.get_referrers(value))


def _can_change(value: Any) -> bool:
    """Whether it is a generator of random numbers, a container, or an object of a class of the user's."""
    kind = type(value)
    return isinstance(value, (*GENERATORS, *_CONTAINERS)) or (
        hasattr(value, "__dict__") and not isinstance(value, (type, FunctionType, MethodType, ModuleType, np.ndarray))
        and not any(is_ours(cls.__module__) for cls in kind.__mro__))


def _copied(value: Any) -> Any:
    """Copy an object that can change; parts that cannot stay the same objects."""
    if isinstance(value, GENERATORS):
        return copy.deepcopy(value)
    if type(value) is dict:
        return {k: _copied(v) for k, v in value.items()}
    if type(value) in (list, deque):
        return type(value)([_copied(v) for v in value])
    if not _can_change(value):
        return value
    try:
        made = copy.copy(value)
    except Exception as error:  # it has a say in that
        if is_from_handler(error):
            raise
        return value
    if hasattr(made, "__dict__") and made is not value:
        vars(made).update((k, _copied(v)) for k, v in vars(value).items())
    return made
