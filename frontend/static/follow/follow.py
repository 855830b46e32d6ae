"""The eager tail of a static call: functions that are applied define-by-run to its results are compiled too.

The loss of a network whose forward alone is static stays a graph of define-by-run, with all its nodes and what they
retain. But from the second time on a kernel computes the results of such a function, where that pays, and the backward
through all of them and the static call is one schedule (`joint_backward`).
"""
from __future__ import annotations

import logging
import weakref
from collections.abc import Callable
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import numpy as np

from kusari.ir import Call, Graph, Node, Value, VerifyError, tensor_type, walk
from kusari.passes import OPENING, run_pipeline

from ... import tape as _tape
from ...callsite import short, user_location
from ...configuration import config
from ...elementwise import Elementwise
from ...epochs import Traced
from ...function_node import FunctionNode
from ...utils import type_check
from ...variable import Variable
from ..arrays.overlap import Spans
from ..compile.compile import Compiled, compile_graph
from ..errors import NotCompilable
from ..gradients.differentiate import Backward, differentiate
from ..mode import may_run
from ..replay.arguments import arguments_of
from ..room import close_all
from ..trace.ops import array_attribute, is_opaque, op_of, pristine, static_attributes
from ..trace.recording import NotStatic, Recording
from ..trees import VARIABLE

if TYPE_CHECKING:
    from ..card.place import CardPlace

MOST_KINDS = 1024        # per schedule: beyond that all are forgotten, as a literal may be new at every call
NEW_APPLICATIONS = 64    # per schedule: applications beyond these are looked at when they come again
COMPILED_FUNCTIONS = 64  # per schedule: functions beyond these stay NumPy's
CHEAP_NUMPY_CALLS = 5    # cost no more than a call of compiled code
SMALL_BYTES = 1 << 16    # are read and written as quickly by NumPy
_RETAINED = frozenset(("_input_indexes_to_retain", "_output_indexes_to_retain", "_formula"))
_MISSING: Any = object()
_ONCE: Any = SimpleNamespace(again=False)  # of functions that have been applied once
_log = logging.getLogger("kusari.static")


class Tail:
    """The tail of one schedule: all functions applied to the results of its calls.

    Invariant: it does not hold the schedule, nor a graph, nor arrays of a caller: it goes when the schedule goes.
    """

    def __init__(self, backward_from: Callable[[Variable], bool], place: CardPlace | None = None) -> None:
        _tape.following = follow  # from the first one on
        self.place = place  # where all arrays lie, None for the host
        self.backward_from = backward_from  # does all of a backward in one schedule, where it can: `joint_backward`
        self.kinds: dict[Any, Any] = {}  # a `TailFunction`, ``_ONCE``, or None for a function that cannot be compiled
        self.mark = object()  # stands for the calls in the structure of a graph
        self.joined: dict[Any, Any] = {}  # by the structure of the graph behind a variable
        self.compiled = 0  # functions
        self.tried = 0  # structures
        self.composed: dict[Any, Any] = {}  # functions of many others, each static here: see `composed`
        self.apart: dict[str, str] = {}  # the reason why something is left to define-by-run

    def holds(self, array: Any) -> bool:
        """Whether an array lies where those of the schedule do."""
        return type(array) is np.ndarray if self.place is None else self.place.holds(array)

    def kind(self, key: Any, function: FunctionNode, arrays: tuple[Any, ...],
             places: tuple[int, ...]) -> TailFunction | None:
        """Return the entry of an application that is new; None if it cannot be compiled."""
        if len(self.kinds) >= NEW_APPLICATIONS and key not in self.kinds:  # it may be a literal that never comes again
            if len(self.kinds) >= MOST_KINDS:
                self.kinds = {k: v for k, v in list(self.kinds.items()) if v is not None and v.again}
            if len(self.kinds) < MOST_KINDS:
                self.kinds[key] = _ONCE
                Traced.version = object()
            return None
        reason = _unknown(function, arrays)
        kind = TailFunction(self, function, arrays, places) if reason is None else None
        self.kinds[key] = kind
        if reason is not None and len(self.apart) < MOST_KINDS:
            self.apart.setdefault(f"{function.label} of {short(user_location())}", reason)
        return kind

    @property
    def native(self) -> list[Compiled]:
        """Everything compiled for it: functions, then backwards."""
        found = [*self.kinds.values(), *self.joined.values()]
        return [native for x in found if (native := getattr(x, "native", None)) is not None]

    @property
    def schedules(self) -> list[Any]:
        """The schedules of functions composed of many others."""
        entries = [e for f in list(self.composed.values()) for _, e in f.static.signatures()]
        return [e for e in entries if e.schedule is not None]

    @property
    def nbytes(self) -> int:
        """Bytes of all frames."""
        return sum(c.executable.report.held for c in self.native) + sum(s.nbytes for s in self.schedules)

    def release(self) -> None:
        """Release the frames that are not in flight."""
        for x in [*self.kinds.values(), *self.joined.values()]:
            if getattr(x, "native", None) is not None:
                close_all(x.free)
        for schedule in self.schedules:
            schedule.release()

    def describe(self) -> list[str]:
        """Return lines on the functions of the tail and how they run."""
        lines = [f"{k.text}: {k.runs}" for k in list(self.kinds.values()) if type(k) is TailFunction]
        lines += [f"{fn.__name__}: a static function of its own" for fn in list(self.composed)]
        lines += [f"{text}: not compiled, {reason}" for text, reason in list(self.apart.items())]
        return lines + [f"one schedule for the backward through {j.text}" for j in list(self.joined.values())
                        if getattr(j, "native", None) is not None]


def _unknown(function: FunctionNode, arrays: tuple[Any, ...]) -> str | None:
    """Return why the compiler does not know a function on some arrays; None if it does."""
    kind = type(function)
    if not kind.__module__.startswith("kusari.") or not hasattr(kind, "lower") or is_opaque(function):
        return f"{kind.__name__} states no expressions"
    if kind.backward_accumulate is not FunctionNode.backward_accumulate:
        return f"{kind.__name__} adds to gradients itself"
    if (name := array_attribute(function)) is not None:
        return f"its attribute {name} holds an array"
    odd = [a.dtype for a in arrays if a.dtype.kind not in "fiub" or not a.dtype.isnative]
    return f"an array of {odd[0]}" if odd else None


class TailFunction:
    """One function with its attributes on arrays of certain types, applied in the tail of a static call.

    ``places`` says which inputs are the same one. Invariant: ``retained`` is what its forward retains, once that has
    run; ``native`` is there if a kernel runs in its place.
    """

    def __init__(self, tail: Tail, function: FunctionNode, arrays: tuple[Any, ...], places: tuple[int, ...]) -> None:
        self._tail = weakref.ref(tail)
        self._place = tail.place
        self.places = places
        self.where = short(user_location())
        self._template = pristine(function)
        self._first = tuple(places.index(k) for k in range(max(places) + 1))
        self.inputs = tuple([Value(tensor_type(arrays[i].dtype, arrays[i].shape), f"x{i}") for i in self._first])
        self.text = f"{function.label}({', '.join(repr(self.inputs[k].type) for k in places)}) of {self.where}"
        self.runs = "seen once"
        self.retained: tuple[Any, Any] | None = None
        self.native: Compiled | None = None
        self.graph: Graph | None = None
        self._opened: Any = _MISSING
        holds: Any = getattr(self._template, "lower_holds", None)
        # On a card nothing looks at integers before the kernels do, which report any that is out of range.
        self._holds = holds if self._place is None else None
        self._checked = False
        self.again = False  # whether it has been applied again
        self._judged = holds is None and type(function) is not Elementwise and any(
            a.dtype.kind != "f" for a in arrays)
        if self._judged:
            self.runs = "define-by-run: only NumPy looks whether its integers are in range"
        self._apart: frozenset[int] = frozenset()
        self.free: list[Any] = []  # of `Arguments`
        self._backwards: dict[Any, Backward | None] = {}

    def forward(self, function: FunctionNode, arrays: tuple[Any, ...]) -> tuple[Any, ...]:
        """Run compiled code in place of ``function.forward``, or that itself."""
        if self._holds is not None and not self._holds(arrays):
            function._kind = function._tail = function.backward_from = None  # NumPy decides the types of the results
            return self._define_by_run(function, arrays)
        if self.native is None:
            self.again = self.graph is not None
            if self._checked and self.retained is not None and not self._judged:
                self._judge()
        if self.native is None or self.retained is None:
            return self._define_by_run(function, arrays)
        function._input_indexes_to_retain, function._output_indexes_to_retain = self.retained
        if len(self._first) < len(arrays):
            arrays = tuple([arrays[i] for i in self._first])
        try:
            call = self.free.pop()
        except IndexError:
            call = arguments_of(self.native, (), apart=self._apart)
        outputs = call.run(arrays)
        self.free.append(call)
        return tuple(outputs)

    def _define_by_run(self, function: FunctionNode, arrays: tuple[Any, ...]) -> tuple[Any, ...]:
        if not self._checked and config.type_check:
            if type(function).check_type_forward is not FunctionNode.check_type_forward:
                type_check.check(function, arrays, user_location)
            self._checked = True  # an entry is found by types
        if self._place is None:
            outputs = function.forward(arrays)
        else:
            with self._place.current():
                outputs = function.forward(arrays)
        if self.graph is None and type(outputs) is tuple:
            self._learn(function, arrays, outputs)
        return outputs

    def _learn(self, function: FunctionNode, arrays: tuple[Any, ...], outputs: tuple[Any, ...]) -> None:
        """Note the attributes set by a forward; a function that sets more than retained arrays is not compiled."""
        own, before, tail = vars(function), vars(self._template), self._tail()
        left = own.keys() - before.keys() - _OWN
        if tail is None or not left <= _RETAINED or any(own[k] is not v for k, v in before.items()) or not all(
                tail.holds(a) and a.dtype.kind in "fiub" for a in outputs):
            function._kind = function._tail = function.backward_from = None
            self._judged, self.runs = True, "define-by-run: it keeps more than inputs and outputs"
            return
        results = tuple([Value(tensor_type(a.dtype, a.shape)) for a in outputs])
        attrs = {"function": self._template, **static_attributes(self._template)}
        node = Node(op_of(self._template), tuple([self.inputs[k] for k in self.places]), results, attrs, self.where)
        self.graph = Graph(function.label.lower(), self.inputs, (), (), (node,), results)
        given = Spans(arrays)
        self._apart = frozenset([j for j, y in enumerate(outputs) if not given.touch(y)])
        self.retained = function._input_indexes_to_retain, function._output_indexes_to_retain

    def _judge(self) -> None:
        """Compile the forward where that pays: that many calls, or on the host that much memory, in one kernel.

        A call of CuPy's takes the host as long as a copy of an input to where a graph reads it, and little memory is
        moved for less than that takes.
        """
        self._judged = True
        tail, graph = self._tail(), self.graph
        assert graph is not None
        if tail is None or len(self._apart) < len(graph.outputs):
            self.runs = "define-by-run: its results are views"
            return
        opened = self._lowered()
        if opened is None or any(n.has_effect for n in opened.nodes):
            self.runs = "define-by-run: no kernel does what it does"
            return
        work = [n for n in opened.nodes if not n.op.is_view]
        calls = sum(max(1, sum(isinstance(e, Call) for e in walk(n.attrs["expr"]))) if n.op.name == "map" else 1
                    for n in work)
        moved = sum(v.tensor.nbytes for n in work for v in (*n.inputs, *n.outputs))
        if calls < CHEAP_NUMPY_CALLS and (moved < SMALL_BYTES or tail.place is not None):
            self.runs = "define-by-run: a kernel would gain nothing"
        elif tail.compiled >= COMPILED_FUNCTIONS:
            self.runs = f"define-by-run: {COMPILED_FUNCTIONS} functions behind one schedule are compiled already"
        else:
            tail.compiled += 1
            try:
                self.native = compile_graph(graph, place=tail.place)
                self.runs = "compiled"
            except NotCompilable as error:
                self.runs = f"define-by-run: {error}"

    def _lowered(self) -> Graph | None:
        """Return it in primitives; None if Python would have to run it, or if it changes its operands."""
        if self._opened is _MISSING:
            self._opened = None
            graph: Any = self.graph  # which there is by now
            try:
                opened = run_pipeline(graph, OPENING)
            except VerifyError as error:
                _log.debug("%s: %s", self.text, error)
            else:
                if all(n.op.types is not None and not n.op.writes for n in opened.nodes):
                    self._opened = opened
        return self._opened

    def backward(self, given: tuple[bool, ...], wanted: tuple[int, ...]) -> Backward | None:
        """Return the gradients of the distinct inputs ``wanted``, given some of the outputs'; None if there are none.

        They read inputs and outputs that the forward retains.
        """
        key = given, wanted
        if key not in self._backwards:
            self._backwards[key] = self._differentiate(given, wanted)
        return self._backwards[key]

    def _differentiate(self, given: tuple[bool, ...], wanted: tuple[int, ...]) -> Backward | None:
        graph, retained = self.graph, self.retained
        if graph is None or retained is None or self._lowered() is None:
            return None
        asked = tuple([k in wanted for k in range(len(self.inputs))])
        record = Recording(graph.name, graph, self.inputs, (), VARIABLE, given, asked, given)
        try:
            found = differentiate(record, given, tuple([self.inputs[k] for k in wanted]))
        except NotStatic:
            return None
        there = {self.inputs[self.places[i]] for i in retained[0] or ()} | {graph.outputs[j] for j in retained[1] or ()}
        there.update(v for v in found.seeds if v is not None)
        there.update(v for v, _ in found.consts)
        return found if found.reads.keys() <= there | {v for n in found.nodes for v in n.outputs} else None


_OWN = frozenset(("_kind", "_tail", "backward_from"))


def follow(function: Any, inputs: tuple[Any, ...], arrays: tuple[Any, ...]) -> TailFunction | None:
    """Return the forward to run in place of ``function.forward`` if ``function`` is in the tail of a static call.

    None if it is not, or if it is to run as ever: hooks, debug mode and verification want to see each function.
    """
    tail: Tail | None = None
    for x in inputs:
        if isinstance(x, Variable) and (node := x._node) is not None and (creator := node.creator_node) is not None:
            tail = creator._tail
            if tail is not None:
                break
    if tail is None or not may_run(gradients=True, following=True):
        return None
    cls = type(function)
    if len(inputs) == 1:
        places = _ONE
    elif len(inputs) == 2:
        places = _SAME if inputs[0] is inputs[1] else _TWO
    else:
        ids = [id(x) for x in inputs]
        numbers = {i: k for k, i in enumerate(dict.fromkeys(ids))}
        places = tuple([numbers[i] for i in ids])
    key: list[Any] = [cls, places]
    if cls is Elementwise:
        key.append(function.body)
    else:
        for name, x in function.__dict__.items():
            kind = type(x)
            key += (name, kind, x if kind in _EXACT else _frozen(x))
    for a in arrays:
        if type(a) is not np.ndarray and (tail.place is None or not tail.place.holds(a)):
            return None
        key += (a.shape, a.dtype)
    found = tail.kinds.get(known := tuple(key), _MISSING)
    if found is _MISSING or found is _ONCE:
        found = tail.kind(known, function, arrays, places)
    if found is None:
        return None
    function._kind, function._tail, function.backward_from = found, tail, tail.backward_from
    return found


_ONE, _TWO, _SAME = (0,), (0, 1), (0, 0)
_EXACT = frozenset((bool, int, str, type(None)))


def _frozen(x: Any) -> Any:
    """Return a hashable form of an attribute in which other values differ."""
    if type(x) is tuple or type(x) is list:
        return tuple([(type(y), _frozen(y)) for y in x])
    if type(x) is slice:
        return _frozen((x.start, x.stop, x.step))
    if isinstance(x, float):
        return repr(x)
    try:
        hash(x)
    except TypeError:
        return object()  # like nothing else
    return x
