"""``static_graph(verify=k)``: some calls are run define-by-run as well, and everything observable is compared.

The define-by-run call comes first, on the same random numbers and the same state, which are put back before the
compiled one; so nothing is advanced twice, and the caller gets the compiled call's results. Gradients are compared
when they are asked for.
"""
from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from kusari.ir import Value

from ...backprop import grad
from ...configuration import config, using_config
from ...link import Link
from ...link.namespace import entries_of
from ...parameter import Parameter
from ...saved_state import SavedState
from ...variable import Variable
from ..arrays.bindings import ParameterBinding, StateBinding
from ..computed_numbers import KINDS
from ..errors import StaticGraphError
from ..gradients.differentiate import LEFT_OUT, differentiate
from ..replay.schedule import Schedule
from ..replay.static_call import StaticCall
from ..signature import owns_schedules
from ..trace.effects import changed_in_place
from ..trace.observation import Observation
from ..trace.observer.first_call import call_traced
from ..trace.python_nodes import STATIC_CODE
from ..trace.recorder import Tape
from ..trace.recording import Recording, begin
from ..trees import array_of, flatten, leaf_kinds, unflatten
from .blame import Blame, blame_backward, blame_forward
from .differences import coarsest, difference, largest


class _State(SavedState):
    """The state that a call may change: attributes of links, those it stores, persistent arrays, random numbers."""

    def __init__(self, holders: Sequence[tuple[str, dict[str, Any]]], changed: Sequence[Any] = (),
                 variables: Sequence[Variable] = ()) -> None:
        super().__init__([d for _, d in holders], changed, variables)
        self.holders, self._arrays_of = holders, variables

    def seen(self) -> dict[str, Any]:
        """The present state, as copies, by name."""
        state = np.random.get_state(legacy=False)
        found: dict[str, Any] = {"the state of numpy.random": np.append(state["state"]["key"], state["state"]["pos"])}
        found.update((f"the array of {v.name}", np.array(v._array)) for v in self._arrays_of)
        for name, holder in self.holders:
            for key, value in holder.items():
                if isinstance(value, Variable) and not isinstance(value, Parameter):
                    value = value._array
                if isinstance(value, np.ndarray):
                    found[f"{name}.{key}"] = value.copy()
                elif isinstance(value, (bool, int, float)):
                    found[f"{name}.{key}"] = np.asarray(value)
        return found


def _holders(args: tuple[Any, ...], recorded: Recording) -> list[tuple[str, dict[str, Any]]]:
    found: dict[int, tuple[str, dict[str, Any]]] = {}
    for x in args:
        if isinstance(x, Link):
            for path, link in x.namedlinks():
                entries = entries_of(link)
                found[id(entries)] = f"{type(x).__name__}{path.replace('/', '.').rstrip('.')}", entries
    for binding in recorded.bindings:
        if isinstance(binding, StateBinding):
            found.setdefault(id(entries_of(binding.link)), (type(binding.link).__name__, entries_of(binding.link)))
    for holder, _ in stored_entries(recorded):
        found.setdefault(id(holder), ("an object", holder))
    return list(found.values())


def stored_entries(recorded: Recording) -> list[tuple[dict[str, Any], str]]:
    """Return the entries of namespaces that a call stores: namespace and name."""
    if recorded.result[0] != "stored":
        return []
    return [(e.holder, e.key) for e in recorded.result[1] if e.is_entry]


class EagerCall:
    """One call run define-by-run: its results, with their graph, and the state it leaves behind."""

    def __init__(self, fn: Any, args: tuple[Any, ...], kwargs: dict[str, Any], recorded: Recording,
                 followed: Any) -> None:
        self.recorded = recorded
        self.excused: list[str] = []
        self.unit = coarsest(recorded)
        changed = [] if recorded.result[0] != "stored" else [e.holder for e in recorded.result[1] if not e.is_entry]
        changed.append([n.attrs["generator"] for n in recorded.graph.nodes if "generator" in n.attrs])
        bindings = dict(zip(recorded.graph.params, recorded.bindings, strict=True))
        variables = [b.parameter if isinstance(b := bindings[v], ParameterBinding) else Variable(b.array(), name=v.hint)
                     for v in changed_in_place(recorded.graph)]
        self.state = _State(_holders(args, recorded), changed, variables)
        self.sources = [np.array(b.array()) for b in recorded.bindings]
        given: list[Any] = []
        owner = args[:1] if args and owns_schedules(args[0]) else ()
        spec = flatten((args[len(owner):], kwargs), given)
        self.leaves = [x if isinstance(x, Parameter) or not isinstance(x, Variable)
                       else Variable(x._array, requires_grad=x.requires_grad) for x in given]
        args, kwargs = unflatten(spec, iter(self.leaves))
        # State without the graph behind it, as compiled gradients too stop there.
        carried = [holder[name] for holder, name in recorded.states]
        states = [Variable(v._array, requires_grad=v.requires_grad) for v in carried]
        self.leaves += states
        self.tape: Tape
        self.tape, _ = begin(self.leaves)
        self.tape.keeps_results = True
        try:
            for (holder, name), v in zip(recorded.states, states, strict=True):
                holder[name] = v
            observation = Observation(fn, self.tape, followed)  # as in the traced call, so that the same is recorded
            self.tape.observe(observation)
            result = call_traced(fn, self.tape, observation, (*owner, *args), kwargs, bool(owner))
            self.tape.numbers.told = None  # what reads numbers from now on is not the user's code
            self.results: list[Any] = []
            self.spec = flatten(result, self.results)
            if recorded.result[0] == "stored":
                self.effects = []  # the leaves of each
                for effect in observation.effects:
                    first = len(self.results)
                    flatten(effect.args, self.results)
                    self.effects.append(self.results[first:])
            self.after = self.state.seen()
            self.arrays = [np.array(array_of(y)) for y in self.results]
        finally:
            self.state.restore()
            for (holder, name), v in zip(recorded.states, carried, strict=True):
                holder[name] = v

    def is_alike(self) -> bool:
        """Whether the call has had the effects of the recorded one: arrays that are kept here may be in their way."""
        return self.recorded.result[0] != "stored" or len(self.effects) == len(self.recorded.result[1])

    def compare(self, name: str, schedule: Schedule, result: Any) -> None:
        """Raise ``StaticGraphError`` unless the call of ``schedule`` gave ``result`` and left the same state behind."""
        found: list[Any] = []
        spec = flatten(result, found)
        if spec != self.spec:
            raise StaticGraphError(f"{name}: compiled, it returns {spec!r}; define-by-run {self.spec!r}; "
                                   + str(blame_forward(self, schedule)))
        if self.recorded.result[0] == "stored":
            for effect, own in zip(self.recorded.result[1], self.effects, strict=True):
                now = effect.holder[effect.key] if effect.is_entry else None
                leaves: list[Any] = []
                flatten((np.asarray(now) if isinstance(now, KINDS) and own else now,), leaves)
                found += leaves if len(leaves) == len(own) else own  # the replay's result is referenced no more
        state = self.state.seen()
        outputs = self.recorded.graph.outputs
        values = self._values()
        pairs = [(f"result {i}", a, array_of(y), v)
                 for i, (a, y, v) in enumerate(zip(self.arrays, found, outputs, strict=True))]
        pairs += [(key, self.after.get(key), state.get(key), values.get(key))
                  for key in dict.fromkeys((*self.after, *state))]
        self._judge(name, pairs, lambda: blame_forward(self, schedule))

    def _values(self) -> dict[str, Value]:
        """The values of attributes after the call, by the names that ``seen`` gives these."""
        names = {id(holder): name for name, holder in self.state.holders}
        recorded = self.recorded
        found = {f"{names[id(entries_of(b.link))]}.{b.name}": v
                 for v, b in zip(recorded.graph.params, recorded.bindings, strict=True) if isinstance(b, StateBinding)}
        if recorded.result[0] == "stored":
            counts = [len(leaf_kinds(s)) for s in recorded.result[2]]
            for i, effect in enumerate(recorded.result[1], start=1):
                if counts[i] == 1 and id(effect.holder) in names:
                    found[f"{names[id(effect.holder)]}.{effect.key}"] = recorded.graph.outputs[sum(counts[:i])]
        return found

    def _take_over(self, function: Any, now: Sequence[Any]) -> None:
        """Copy changes that the caller has made to the compiled call's results, as far as gradients read them."""
        outputs = function.call.schedule.outputs
        held = dict(zip(outputs.held, function.results, strict=True))
        seen = [(i, held[i]) for i in held if i < len(self.results)]
        seen += [(i, show(held[at])) for i, (at, show) in outputs.views.items() if at in held]
        for i, array in seen:
            own = array_of(self.results[i])
            if own.flags.writeable:
                own[...] = array
        with_nodes = [y for y, d in zip(self.results, self.recorded.differentiable, strict=True) if d]
        for at, array in zip(outputs.read.values(), now, strict=False):  # assigned to a Variable
            if at.node >= 0 and not np.may_share_memory(array, function.results[at.result]):
                with_nodes[at.node].array = array.copy()

    def compare_gradients(self, name: str, function: Any, gys: Sequence[Any], grads: Sequence[Any],
                          results: Sequence[Any]) -> None:
        """Raise ``StaticGraphError`` unless ``grads`` are define-by-run's for the gradients ``gys``.

        ``results`` are the results of the call ``function`` that gradients read, as they are now.
        """
        self._take_over(function, results)
        schedule = function.call.schedule
        ys = [(y, g) for y, g in zip(self.results, gys, strict=True) if g is not None]
        parameters = dict(self.recorded.parameters)
        leaves = dict(zip(self.recorded.leaves, self.leaves, strict=True))
        xs = [leaves[v] if v in leaves else parameters[v] for v in schedule.wanted]
        with using_config("use_static_graph", False), using_config("enable_backprop", True):
            expected = grad([y for y, _ in ys], xs, [Variable(g, requires_grad=False) for _, g in ys])
        backward = differentiate(self.recorded, tuple(g is not None for g in gys), schedule.wanted, LEFT_OUT)
        pairs = [(f"the gradient of {getattr(x, 'name', None) or v.hint}", None if e is None else e._array, g, made)
                 for x, v, e, g, made in zip(xs, schedule.wanted, expected, grads, backward.grads, strict=True)]
        self._judge(name, pairs, lambda: blame_backward(self, schedule, backward, gys))

    def _judge(self, name: str, pairs: list[tuple[str, Any, Any, Value | None]], blame: Callable[[], Blame]) -> None:
        scale = largest(*(expected for _, expected, _, _ in pairs))
        suspect: Blame | None = None
        for what, expected, found, value in pairs:
            if difference(expected, found, self.unit, scale) is None:
                continue
            suspect = suspect or blame()  # knows the numbers on the way
            text = difference(expected, found, self.unit, max(scale, suspect.scale))
            if text is not None:
                if value is not None and suspect.rounding is not None and suspect.rounding.excuses(
                        value, expected, found):
                    self.excused.append(what)
                    continue
                raise StaticGraphError(
                    f"{name}: compiled code differs from define-by-run in {what}: {text}. {suspect} Until this is "
                    "mended, run it with config.use_static_graph = False.")


class Verifier:
    """Decides which calls of a static function are verified, and does it."""

    def __init__(self, every: int) -> None:
        self.every = every
        self.calls = 0     # of compiled code
        self.compared = 0
        self.excused: list[str] = []  # differences by nothing but rounding, and by its consequences
        self._local = threading.local()

    def due(self) -> bool:
        """Whether this call, which is about to be made, is to go through ``call``."""
        if getattr(self._local, "busy", False):
            return False
        self.calls += 1
        return self.calls % self.every == 0

    def step(self) -> bool:
        """Whether the whole step that is about to be made has to be made in parts, whose calls are verified."""
        if (self.calls + 1) % self.every == 0:
            return True
        self.calls += 1
        return False

    def call(self, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Call a static function, define-by-run as well if it is compiled."""
        recorded = function.recorded(args, kwargs)
        if recorded is not None and recorded.place is not None:
            function.say(f"{function.__qualname__} is not verified where its arrays lie on a graphics card, whose "
                         "generator cannot be put back; give it NumPy's arrays to compare its results")
            recorded = None
        self._local.busy = True
        try:
            if recorded is None or any(
                    n.op is STATIC_CODE or n.op.is_opaque and "function" in n.attrs for n in recorded.graph.nodes):
                return function.function(*args, **kwargs)  # Python with side effects cannot be taken back
            reference = EagerCall(function.fn, args, kwargs, recorded, function.cache_of(args).changing)
            reference.excused = self.excused
            result = function.function(*args, **kwargs)
            entry = function.entry(args, kwargs)
            if entry is None or entry.schedule is None or entry.recording is not recorded or not reference.is_alike():
                return result
            reference.compare(function.__qualname__, entry.schedule, result)
            self.compared += 1
            if config.enable_backprop:
                leaves: list[Any] = []
                flatten(result, leaves)
                for y in leaves:
                    creator = y.creator_node if isinstance(y, Variable) else None
                    if isinstance(creator, StaticCall) and creator.call.schedule is entry:
                        creator.reference, creator._tail = reference, None  # the compared results have no eager tail
            return result
        finally:
            self._local.busy = False
