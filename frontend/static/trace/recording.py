"""Recordings: traced calls as graphs, before compilation."""
from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from kusari.ir import Graph, Value

from ...backends.cuda import is_cupy_array
from ...parameter import Parameter
from ...tape import recording
from ...variable import Variable
from ..arrays.aliasing import Aliases, handed_on
from ..arrays.bindings import ArrayBinding, Binding, ParameterBinding
from ..arrays.overlap import Spans, has_address
from ..errors import Fault
from ..guards.check import Checks
from ..guards.reached import EXPECT
from ..trees import array_of, flatten, parts_of
from .in_place import refuse_shared
from .numpy_nodes import apart
from .observation import Observation
from .recorder import Tape

if TYPE_CHECKING:
    from ..card.place import CardPlace
    from ..compile.families import Family


class NotStatic(Exception):
    """A call cannot be replayed; carries the ``Fault``."""

    def __init__(self, fault: Fault) -> None:
        super().__init__(str(fault))
        self.fault = fault


class TryAgain(Exception):
    """The next call is worth a trace, this one is not: the message says why if every call is like that.

    It made parameters or links that later calls find there, or a function has raised.
    """


@dataclass(frozen=True, eq=False)
class Recording:
    """One call as a graph over its leaves.

    ``leaves`` are the values of the argument tree's leaves (one value may stand for several; ``graph.inputs`` has
    each once), ``graph.params`` the values that ``bindings`` bind, and
    ``graph.outputs`` the leaves of the result tree ``result``; ``differentiable`` says which outputs carry gradients
    (of an object that is returned twice, or returned and stored, its first place only) and ``wanted`` which inputs ask
    for them; ``requires_grad`` is that of the Variables among the outputs.
    ``detached`` are values that were cut from the graph behind them. ``checks`` are the guards of the other state that
    the call has read, ``where`` is the place of the function. The last leaves are no arguments but the Variables in
    ``states``, each a namespace and a name.
    """

    name: str
    graph: Graph
    leaves: tuple[Value, ...]
    bindings: tuple[Binding, ...]
    result: Any
    differentiable: tuple[bool, ...]
    wanted: tuple[bool, ...]
    requires_grad: tuple[bool, ...]
    detached: frozenset[Value] = frozenset()
    checks: Checks = field(default_factory=Checks)
    where: str = "unknown"
    states: tuple[tuple[Any, Any], ...] = ()
    draws: bool = False  # whether functions have drawn from NumPy's global generator
    apart: frozenset[int] = frozenset()  # the outputs that shared no memory with the arguments and bound arrays
    same: dict[int, int] = field(default_factory=dict)  # outputs that are the very object that an earlier one is
    variables: tuple[bool, ...] = ()  # which leaves are Variables
    aliases: Aliases = field(default_factory=Aliases)
    place: CardPlace | None = None  # where its arrays lie, if not in the memory of the host
    handled: bool = False  # whether code of the call may handle an index that is out of range
    is_tentative: bool = False  # whether another trace has to find the same numbers before it is compiled
    family: Family | None = None  # the calls whose signatures differ from this one's in extents only

    schedule = fault = None  # as an entry of a cache of schedules: traced, not compiled yet, without frames
    nbytes = 0

    @property
    def recording(self) -> Recording:
        """The recording itself."""
        return self

    def release(self) -> None:
        """There are no frames."""

    @property
    def check(self) -> Callable[[], bool] | None:
        """The test of all guards; None without guards."""
        return self.checks.test

    @property
    def parameters(self) -> list[tuple[Value, Any]]:
        """The params that are Parameters, with them, in order of first use."""
        return [(v, b.parameter) for v, b in zip(self.graph.params, self.bindings, strict=True)
                if isinstance(b, ParameterBinding)]

    def constants(self) -> dict[Value, Any]:
        """The constants of the graph, which are NumPy's arrays there, where the others are."""
        place = self.place
        return {v: a if place is None else place.send(a) for v, a in self.graph.consts}

    def first_leaves(self) -> dict[Value, int]:
        """Map each value of a leaf to the number of the leaf, the first one where a value stands for several."""
        return {v: i for i, v in reversed(list(enumerate(self.leaves)))}


def begin(leaves: list[Any]) -> tuple[Tape, tuple[Value, ...]]:
    """Return a tape on which the argument leaves stand for the graph's inputs."""
    tape = Tape()
    tape.take_leaves(leaves)
    inputs: list[Value] = []
    first: dict[int, Any] = {}
    for leaf in leaves:
        array = array_of(leaf)
        value = tape.known(array) if array is not None else None
        if array is None:
            tape.note("an argument is a Variable without data")
            break
        if isinstance(array, np.ndarray) and type(array) not in (np.ndarray, np.memmap):
            tape.note(f"an argument is of type {type(array).__qualname__}, whose functions may do something else")
            break
        if first.setdefault(id(array), leaf) is not leaf and any(
                isinstance(x, Variable) and x.requires_grad for x in (leaf, first[id(array)])):
            tape.note("one array is given twice, once as a Variable that asks for its gradient; pass a copy")
            break
        # The same array given twice is two inputs; the first stands for both while tracing, so they stay equal only
        # as long as the caller passes one object: part of the signature (see signature.py).
        inputs.append(value if value is not None else tape.define(array, f"x{len(inputs)}"))
    return tape, tuple(inputs)


def finish(name: str, tape: Tape, inputs: tuple[Value, ...], leaves: list[Any], result: Any,
           card: Callable[[int], CardPlace] | None = None) -> Recording:
    """Return the recording of a call that returned ``result``; raises ``NotStatic``, or ``TryAgain``.

    ``card`` gives the place that the card with a number is; without it there is none.
    """
    out_leaves: list[Any] = []
    observation = tape.observation
    containers: dict[int, Any] = {}
    spec = flatten(result, out_leaves, containers, None if observation is None else observation.keeps)
    if observation is not None:
        spec = _settled(spec, tape, observation, out_leaves, containers)
    outputs = _outputs(tape, out_leaves)
    _note_what_replays_miss(tape, spec)
    if tape.fault is not None:
        raise NotStatic(tape.fault)
    _guard_places(tape, leaves)
    inputs += tuple(value for value, _, _ in tape.carried.values())
    leaves = [*leaves, *(variable for _, variable, _ in tape.carried.values())]
    states = tuple((entry.holder, entry.key) for _, _, entry in tape.carried.values())
    distinct = tuple(dict.fromkeys(inputs))
    place = _place(tape, leaves, out_leaves, card)
    consts = tuple([(v, a.get() if is_cupy_array(a) else a) for v, a in tape.consts])
    nodes, outputs = apart(tape.nodes, outputs, tape.written.sources, tape.where or "")
    graph = Graph(name, distinct, tuple(tape.bindings), consts, nodes, outputs)
    _refuse_views(graph, tape)
    detached = tape.detached()
    first: dict[int, int] = {}
    same = {i: j for i, v in enumerate(out_leaves) if (j := first.setdefault(id(v), i)) != i}
    asking = [isinstance(v, Variable) and v.requires_grad for v in out_leaves]
    differentiable = tuple(_may_have_gradient(v) and y not in detached and i not in same
                           for i, (v, y) in enumerate(zip(out_leaves, outputs, strict=True)))
    _refuse_cut_results(graph, [v for v, asks in zip(outputs, asking, strict=True) if asks and v in detached],
                        [v for v, d in zip(outputs, differentiable, strict=True) if d], tape.where)
    checks = Checks() if observation is None else observation.finish()
    return Recording(name, graph, inputs, tuple(tape.bindings.values()), spec, differentiable,
                     tuple(map(_may_have_gradient, leaves)), tuple(asking), detached, checks,
                     tape.where or "unknown", states, tape.draws,
                     _apart(tape, leaves, out_leaves), same, tuple(isinstance(v, Variable) for v in leaves),
                     tape.aliases, place, tape.handled, tape.checks > 0)


def _guard_places(tape: Tape, leaves: list[Any]) -> None:
    """Guard that arrays are one that were one; raises ``TryAgain`` where an argument is also read by a name."""
    observation = tape.observation
    if observation is None or not observation.guarded:
        return
    if (what := tape.places_before.given(leaves, observation)) is not None:
        raise TryAgain(f"an argument is the array that is read as {what}, too, in every call; pass a copy")
    tape.places_before.guard(observation)


def _refuse_views(graph: Graph, tape: Tape) -> None:
    """Raise ``NotStatic`` where a function of the user's makes a result a view of what the caller sees, too."""
    if (maker := handed_on(graph, tape.aliases)) is not None:
        raise NotStatic(Fault(f"{maker.op.name} returns a view of an array that the caller sees, too, of which replays "
                              "would make a copy; let it return a copy", maker.where or tape.where or "unknown"))


def _place(tape: Tape, leaves: list[Any], out_leaves: list[Any],
           card: Callable[[int], CardPlace] | None) -> CardPlace | None:
    """Return the card on which all arrays of the call lie, and guard how it multiplies.

    Raises ``NotStatic`` where some lie elsewhere.
    """
    arrays = [*map(array_of, leaves), *(b.array() for b in tape.bindings.values()), *map(array_of, out_leaves)]
    devices = {a.device.id for a in arrays if is_cupy_array(a)}
    if not devices or card is None:
        return None
    if len(devices) > 1 or any(isinstance(a, np.ndarray) for a in arrays):
        raise NotStatic(Fault("arrays of several devices, or of the host and a card, are in one call",
                              tape.where or "unknown"))
    place = card(devices.pop())
    if tape.observation is not None:
        tape.observation.called_again(*place.setting)
    return place


def _may_have_gradient(leaf: Any) -> bool:
    return isinstance(leaf, Variable) and leaf.requires_grad and leaf.dtype.kind in "fc"


def _apart(tape: Tape, leaves: list[Any], out_leaves: list[Any]) -> frozenset[int]:
    """Return the numbers of the outputs that share no memory with the arguments and bound arrays."""
    given = [*map(array_of, leaves), *(b.array() for b in tape.bindings.values())]
    spans = Spans(a for a in given if has_address(a))
    return frozenset(i for i, a in enumerate(map(array_of, out_leaves))
                     if has_address(a) and not spans.touch(a))


def _settled(spec: Any, tape: Tape, observation: Observation, out_leaves: list[Any], containers: dict[int, Any]) -> Any:
    """Note reads and changes of the call; returns ``spec`` together with its effects."""
    tape.settle(tape.where)
    if observation.imported or observation.made_parts:
        raise TryAgain("every call makes new links or parameters")
    if tape.at_work:
        raise TryAgain("functions raise exceptions in every call")
    spec = _with_effects(spec, observation, out_leaves, containers)
    tape.contents.expect_all()
    _expect_arrays_of_parameters(tape, observation)
    found = [r.read(observation.guards) for r in tape.reached]
    tape.nodes = [n for n in tape.nodes if n.op is not EXPECT or n.attrs["guards"]]
    for read in [g for g in found if g is not None]:
        tape.note(f"{read.what} is read after a function of the user's has changed it, and replays would look for "
                  "changes before; read it before that function", read.where)
    tape.constants.settle(tape)
    if tape.fault is None:
        tape.fault = tape.made_inside
    return spec


def _expect_arrays_of_parameters(tape: Tape, observation: Observation) -> None:
    """Guard that arrays which the call has found elsewhere, too, are those of parameters: replays read them there."""
    bound = {id(b.array()): b.parameter for b in tape.bindings.values() if isinstance(b, ParameterBinding)}
    for array in observation.seen_arrays():
        parameter = tape.of_parameters.first(array, bound.get(id(array)))
        if parameter is not None:
            observation.called_again(_has_array, (parameter, array), True, "whether an array is a parameter's, too")


def _has_array(parameter: Parameter, array: Any) -> bool:
    return parameter._array is array


def _outputs(tape: Tape, out_leaves: list[Any]) -> tuple[Value, ...]:
    """Return the values of the results; fewer if a fault is noted."""
    outputs: list[Value] = []
    for leaf in out_leaves:
        array = array_of(leaf)
        if tape.of_parameters.lies_in(array) and not isinstance(leaf, Parameter):
            tape.note(f"the static function returns or stores the array of a parameter (shape {array.shape}, "
                      f"{array.dtype}), which replays would copy")
            break
        if array is not None and tape.written.is_outside(array):
            tape.note("an array from outside whose elements the call has changed is returned or stored, which replays "
                      "would copy")
            break
        with recording(tape):
            value = None if array is None else tape.constants.result(tape, leaf, array)
        value = value if value is not None or array is None else (
            tape.value_of(leaf, "the result") if isinstance(leaf, Variable) else tape.known(array))
        if value is None:
            tape.note("the static function returns an array that no recorded function made")
            break
        outputs.append(value)
    for i, leaf in enumerate(out_leaves):  # define-by-run returns the array of the Variable itself
        value = None if isinstance(leaf, Variable) or tape.fault is not None else tape.computed.source(tape, leaf)
        if value is not None and value in outputs:
            tape.note("a Variable and its array are both returned or stored; keep one of them", tape.where)
        elif value is not None:
            outputs[i] = value
    return tuple(outputs)


def _note_what_replays_miss(tape: Tape, spec: Any) -> None:
    """Note a fault where a result, a Variable that is cut, or an array from outside is none that replays can give."""
    cut = next((entry for _, v, entry in tape.carried.values() if entry.chained and v.creator_node is None), None)
    if cut is not None:
        tape.note(f"{cut.what} is unchained inside the static function, which replays do not repeat; do it outside",
                  tape.where)
    for effect, made in zip(spec[1], spec[2][1:], strict=True) if spec[0] == "stored" else ():
        if _has_object(made):
            tape.note(f"{effect.what} is given an object that the call has made, and replays would not make another "
                      "one; do it outside, or in a function decorated with static_code", tape.where)
    if _has_object(spec):
        tape.note(f"the static function returns an object that is not a tree of Variables and arrays: {spec!r}")
    refuse_shared(tape)
    filled = Spans(tape.written.outside())
    o = tape.observation
    given = map(array_of, tape.arguments.values())
    others = [] if o is None else [*o.found_arrays(), *o.read_elements(), *tape.states(), *given]
    if filled.starts and (any(filled.touch(x) for x in _bound_again(tape)) or any(
            not tape.written.is_outside(x) and filled.touch(x) for x in others if has_address(x))):
        tape.note("an array from outside that the call has changed shares memory with another one; use a copy")
    if tape.outside and (spans := Spans(tape.given_arrays())).starts and any(map(spans.touch, tape.outside.values())):
        tape.note("an array that functions read from an attribute or a global shares memory with an argument or with a "
                  "link's arrays; use a copy")


def _bound_again(tape: Tape) -> list[Any]:
    """Return the arrays of parameters, and persistent ones that the call has not written to themselves."""
    changed = {id(x) for x in tape.written.outside()}
    found = [(b, b.array()) for b in tape.bindings.values() if not isinstance(b, ArrayBinding)]
    return [x for b, x in found if has_address(x) and (isinstance(b, ParameterBinding) or id(x) not in changed)]


def _refuse_cut_results(graph: Graph, cut: list[Value], results: list[Value], where: str | None) -> None:
    """Raise ``NotStatic`` where a result that is ``cut`` gets a gradient, as others are computed from it."""
    depending = set(cut)
    for node in graph.nodes if cut else ():
        if not depending.isdisjoint(node.inputs):
            depending.update(node.outputs)
    if not depending.isdisjoint(results):
        raise NotStatic(Fault("a Variable that is returned or stored is unchained after functions have read it, and "
                              "gets a gradient that replays would not give; do it outside", where or "unknown"))


def _with_effects(spec: Any, observation: Observation, leaves: list[Any], containers: dict[int, Any]) -> Any:
    """Return the specification of a result together with the specifications of effects, whose leaves are appended."""
    effects = tuple(observation.effects)
    if not effects:
        return spec
    return ("stored", effects, (spec, *[flatten(e.args, leaves, containers, observation.keeps) for e in effects]))


def _has_object(spec: Any) -> bool:
    if type(spec) is not tuple:
        return False
    if spec[0] == "object":
        return not isinstance(spec[1].value, Parameter)
    return any(map(_has_object, (*(spec[1] if spec[0] == "dict" else ()), *(parts_of(spec) or ()))))
