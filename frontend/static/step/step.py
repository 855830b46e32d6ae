"""Whole steps: forward, loss, backward and update of ``optimizer.update(lossfun, *args)`` as one schedule."""
from __future__ import annotations

import weakref
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from itertools import repeat
from sys import getrefcount
from typing import TYPE_CHECKING, Any

import numpy as np

from kusari.ir import Builder, External, Graph, Value, tensor_type
from kusari.runtime.python_rows import RunError

from ...epochs import Scaled
from ...lazy_array import LazyArray
from ...variable import Variable
from ..arrays.bindings import ArrayBinding, ParameterBinding
from ..arrays.overlap import Spans
from ..compile.compile import compile_graph
from ..compile.families import Trial
from ..errors import NotCompilable, Refused, Stale
from ..gradients.differentiate import differentiate, wanted_values
from ..mode import may_run
from ..replay.arguments import arguments_of
from ..replay.bind import ALONE
from ..replay.receiving import clearing, giving, gradients_of, receive
from ..replay.schedule_cache import MAX_SCHEDULES, ScheduleCache
from ..replay.undo import may_fail
from ..room import close_all, free_memory, made
from ..signature import ArrayTypes, signature
from ..source import Source
from ..trace.effects import Filled
from ..trace.python_nodes import OPAQUE_GRADIENT
from ..trace.recording import NotStatic, Recording
from ..trees import VARIABLE
from .loss_scaling import full
from .reduction import StepReduction
from .step_results import StepResults
from .update import Patience, UpdateProgram
from .usual import due, fast_path, never, retreat, usual_step

if TYPE_CHECKING:
    from ..function import StaticFunction


class Step:
    """One training step compiled; calling it with the leaves of the loss function's arguments runs it.

    Gradients come out of it for all that asks for them: those of the optimizer's parameters are set, those of
    arguments, of states and of other parameters are added to the present ones, once the schedule has run. With
    ``memory="low"`` those of parameters that are updated do not come out: each is gone once it has been used.
    """

    plain = False  # whether scales, noise and float16 parameters are beyond what runs it
    gives_loss = False  # whether the loss is the first result
    clears = True  # whether there may be gradients, which go before the new ones come
    usual: Callable[[Sequence[Any]], Any] = staticmethod(never)  # the usual case as one function: False for any other

    def __init__(self, optimizer: Any, recording: Recording, memory: str | float = "speed") -> None:
        self.recording = recording
        self.memory = memory
        try:
            program = UpdateProgram(optimizer, with_hooks=True, whole=True, plain=self.plain)
        except NotCompilable as error:
            raise Refused(str(error)) from error
        self.program = program
        self._reducer = optimizer._reducer
        self._reduction: StepReduction | None = None
        self._shown: list[Any] = []  # parameters that show means which are nowhere yet
        if any(p._array is not None and not _lies_in(p._array, recording.place) for p in program.members):
            raise NotCompilable("parameters and arguments lie on several devices")
        if self._reducer is not None and recording.place is not None and not self._reducer.on_cards:
            raise NotCompilable("gradients on a card travel through the memory of the host")
        if self._reducer is not None and self.plain:
            raise NotCompilable("gradients are means over several processes")
        self._may_fail = False
        self._places: Sequence[int] = ()  # of gradients in the frame, -1 for those written before Python has run
        self.in_parts = 0  # steps that were made in parts, as gradients went on behind an argument or a state
        self.parameters = [p for p in program.params if _lies_in(p._array, recording.place)]
        self._require_possible()
        self._given = self.parameters  # which get their gradients
        self._clear, self._give = clearing(program.params), giving(self._given)
        wanted = wanted_values(recording)
        given = (True,) + (False,) * (len(recording.graph.outputs) - 1)
        self.backward = differentiate(recording, given, wanted)
        self._find_receivers(wanted)
        self._inputs = tuple(recording.first_leaves()[v] for v in recording.graph.inputs)
        self._states = recording.states
        stored = recording.result is not VARIABLE and recording.result[0] == "stored"
        self.results = self._results() if stored else None
        self._filled = Filled(recording.result, recording.graph, recording.bindings)
        self.compiled: Any = None
        self._left: Iterator[int] = repeat(1)  # zeros as long as it need not be compiled
        self._often = False  # whether it has kernels of its own, as it runs often
        self._settled = False  # whether the kernels stay
        self._free: list[Any] = []
        self._shared: list[int] = []
        self._arguments: Callable[[], Any] = lambda: None
        self._flags = range(0)  # the outputs that say which gradients are finite

    def _require_possible(self) -> None:
        """Raise unless the recording has a loss, and parameters that nothing else shares memory with."""
        recording, program, result = self.recording, self.program, self.recording.result
        loss = result[2][0] if result is not VARIABLE and result[0] == "stored" else result
        if loss is not VARIABLE or not recording.differentiable[0] or recording.graph.outputs[0].tensor.size != 1:
            raise NotCompilable("the loss is not one differentiable number")
        if program.hooks and len(self.parameters) < len(program.params):
            raise NotCompilable("a parameter has no array in this memory")
        if recording.handled:
            raise NotCompilable("the loss function may handle an index that is out of range")
        if any(n.op.is_opaque and "function" in n.attrs and n.attrs["function"]._own_kind.parameters
               for n in recording.graph.nodes):
            raise NotCompilable("a function of the user's own can reach parameters, and may give them gradients itself")
        spans = Spans(p._array for p in self.parameters)
        if any(isinstance(b, ArrayBinding) and spans.touch(b.buffer) for b in recording.bindings):
            raise NotCompilable("an array that functions read shares memory with a parameter")

    def _find_receivers(self, wanted: Sequence[Value]) -> None:
        """Find whose gradients are added to those there are: arguments and states by number, other parameters."""
        recording, scaling = self.recording, self.program.scaling
        own = {id(p) for p in self.parameters}
        first = recording.first_leaves()
        others = [(v, g) for v, g in zip(wanted, self.backward.grads, strict=True) if g is not None]
        parameters = dict(recording.parameters)
        self._asking = tuple(first[v] for v, _ in others if v in first)
        self._others = [parameters[v] for v, _ in others if v not in first and id(parameters[v]) not in own]
        self._more = tuple(g for v, g in others if v in first) + tuple(
            g for v, g in others if v not in first and id(parameters[v]) not in own)
        reached = {id(p) for v, p in recording.parameters for w, _ in others if v is w}
        self._reached = [p for p in self.parameters if id(p) in reached]  # by gradients, which may be scaled
        if scaling is not None:
            scaling.reached = reached
            if not scaling.holds():
                raise NotCompilable("the gradient of a parameter that the loss does not reach has been scaled")

    @property
    def nbytes(self) -> int:
        """Bytes of all frames, those of backwards from what it stores included."""
        more = [] if self.results is None else self.results.compiled[1:]
        return sum(c.executable.report.held for c in (self.compiled, *more) if hasattr(c, "executable"))

    def release(self) -> None:
        """Release the frames that are not in flight."""
        close_all(self._free)
        if self.results is not None:
            self.results.release()

    def _results(self) -> StepResults:
        """Make the results that Variables stored by the loss function hang on."""
        return StepResults(self.recording)

    def _compile(self) -> None:
        graph, backward = self.recording.graph, self.backward
        seed = backward.seeds[0]
        assert seed is not None
        b = Builder("optimizer")
        params = {id(p): v for v, p in self.recording.parameters}
        unread = [p for p in self.parameters if id(p) not in params]
        params.update((id(p), Value(tensor_type(p._array.dtype, p._array.shape), p.name or "param")) for p in unread)
        grads, zero = self._gradients(b)
        nodes = [*graph.nodes, *backward.nodes]
        if self._reducer is not None:
            first = len(b.nodes) + len(graph.nodes)
            nodes, grads = self._reduced([*b.nodes, *nodes], first, grads, grads.keys() - {id(p) for p in zero})
            b.nodes.clear()
        shared = () if self._reduction is None else self._reduction.states
        hyper, states, final = self.program.emit(b, grads, params)
        consts = (*graph.consts, *backward.consts)
        if self.program.scaling is None:
            consts += ((seed, np.ones(seed.shape, seed.tensor.dtype)),)
        else:
            scale = self.program.scaling.number
            self.program.more.insert(0, (seed, lambda: full(seed, scale())))
            hyper.insert(0, seed)
        self._given = [p for p in self.parameters if isinstance(final[id(p)], Value)]
        self._shown = [p for p in self.parameters if not isinstance(final[id(p)], Value)]
        outputs = graph.outputs[:1] if self.gives_loss else ()
        if self.results is not None:
            outputs = (*self.results.outputs.values, *self.results.saved)
        whole = Graph(
            f"{graph.name}_step", (*graph.inputs, *hyper),
            (*graph.params, *(params[id(p)] for p in unread), *(v for v, _ in (*states, *shared))),
            consts, (*nodes, *b.nodes),
            (*outputs, *self.program.flags, *(final[id(p)] for p in self._given), *self._more))
        bindings = (*self.recording.bindings, *(ParameterBinding(p) for p in unread),
                    *(s for _, s in (*states, *shared)))
        self.compiled, self._arguments = self._compile_step(whole, bindings)
        trial = Trial.of(self.compiled)
        self._left = repeat(0) if trial is None else trial.left
        self._settled = trial is None
        self._give = giving(self._given)
        self._free.clear()
        if self.results is not None:
            self.results.renew(self.compiled, self._arguments)

    def _gradients(self, b: Builder) -> tuple[dict[int, Value], list[Any]]:
        """Return the gradients of all parameters by identity, and the parameters whose gradients are zeros."""
        bound = {v: p for v, p in self.recording.parameters}
        grads = {id(bound[v]): g for v, g in zip(self.backward.wanted, self.backward.grads, strict=True)
                 if v in bound and g is not None}
        zero = [p for p in self.parameters if id(p) not in grads]
        for p in zero:  # as an optimizer does with gradients that nothing has set
            grads[id(p)] = b.full(p._array.shape, 0, p._array.dtype)
        return grads, zero

    def _reduced(self, nodes: list[Any], first: int, grads: dict[int, Value], reached: Any) -> Any:
        """Return the nodes with those of a reduction among them, and the means of gradients over the processes."""
        params = self._reducer.members(self.program.optimizer.target, reached)
        if any(id(p) not in grads for _, p in params):
            raise NotCompilable("a parameter has no array in this memory")
        self._reduction = StepReduction(self._reducer.part_of_step(params), [p for _, p in params])
        return self._reduction.nodes(grads, nodes, first)

    def _compile_step(self, whole: Graph, bindings: Sequence[Any]) -> tuple[Any, Callable[[], Any]]:
        """Compile the graph; returns it, and a function that makes the arguments of one run."""
        kept = () if self.results is None else self.results.saved
        flags = self.program.flags
        first = int(self.gives_loss) if self.results is None else len(self.results.outputs.values)
        base = first + len(kept) + len(flags)  # of the gradients
        self._flags = range(first + len(kept), base)
        spent: tuple[int, ...] = ()
        if self.memory == "low":
            updated = {id(p) for p in self.program.members}
            spent = tuple([base + i for i, p in enumerate(self._given) if id(p) in updated])
            self._given, self._shown = ([p for p in each if id(p) not in updated] for each in (
                self._given, self._shown))
        # A loss that is given is a copy of the frame's: the array of the last one is still held.
        stay = (*whole.outputs[:int(self.gives_loss)], *kept, *flags)
        compiled = compile_graph(whole, stay, copy_out=0, memory=self.memory, spent=spent,
                                 place=self.recording.place,
                                 family=None if self._often else self.recording.family)
        self._may_fail = any(map(may_fail, compiled.program.instructions))
        if self._may_fail:
            places = _places(compiled, base, len(self._given))
            place = dict(zip(map(id, self._given), places, strict=True))
            self._places = [place.get(id(p), -1) for p in self.parameters]
        elif spent:
            self._clear()  # before the frame is made, which gives back to the system what is free
        returned = [*range(first), *range(base, len(whole.outputs) - len(spent))]

        def arguments() -> Any:
            made = arguments_of(compiled, bindings, returned=returned, apart=self.recording.apart,
                                views={} if self.results is None else self.results.outputs.views,
                                ready=self._clear if self.clears else None)
            # Gradients that are an argument or a parameter itself are returned as arrays of their own.
            least = 0 if self.gives_loss else base
            self._shared = [returned.index(i) for i in made.shared_results() if i >= least]
            return made
        return compiled, arguments

    def __call__(self, leaves: Sequence[Any]) -> Any:
        """Run the step; returns False, or raises ``Stale``, before anything has happened where it does not fit."""
        program = self.program
        if program.optimizer._reducer is not self._reducer or not program.still_holds() or (
                self._reduction is not None and not self._reduction.holds()):
            raise Stale("the optimizer has changed")
        self._filled.require_apart(leaves)
        scale = None
        if program.scaling is not None:
            scale = program.scaling.number()
            Scaled.ever = True
        if self._states:
            leaves = [*leaves, *[holder[name] for holder, name in self._states]]
        for i in self._asking:
            node = leaves[i]._node
            if node is not None and node.creator_node is not None:
                return False
        if not program.advance() or next(self._left, 1):
            self._compile_anew()
        arrays = [x._array if isinstance(x := leaves[i], Variable) else x for i in self._inputs]
        results = self.results
        try:  # there may be no memory left
            call = None if results is None else results.call()
            arguments = call.arguments if call is not None else self._free.pop() if self._free else self._arguments()
        except BaseException:
            program.retreat()
            raise
        state = None if results is None else results.state()
        found = self._run(arguments, arrays)
        flags = _flags(arguments, self._flags, arrays) if self._flags else ()
        for i in self._shared:
            found[i] = found[i].copy()
        if call is None or results is None:
            self._free.append(arguments)
        else:
            count = len(results.outputs.values)
            results.give(call, arrays, found[:count], leaves, state)
            del found[:count]
        done = self._deliver(leaves, found, scale)
        if scale is not None:
            self._settle(scale, flags)
        else:
            self._write_usual()
        return done

    def _write_usual(self) -> None:
        """Write the usual case of a step that is no more than a run of the frame and its delivery, if it has none."""
        if self.usual is never and self._settled and due(self.program) and not (
                self.plain or self._reducer is not None or self.results is not None or self._states or self._asking or
                self._others or self._flags or self._shared or self._may_fail or self._filled.targets):
            self.usual = usual_step(self.program, self._free, self._inputs, self._write_delivery)

    def _write_delivery(self, source: Source, found: str) -> None:
        """Append lines that give gradients, and return."""
        source.line(*[f"{gradients_of(source, self._given)} = {found}"] * bool(self._given), "return True")

    def _deliver(self, leaves: Sequence[Any], found: list[Any], scale: Any) -> Any:
        """Give gradients to all that gets one; returns whether the step is done."""
        others = self._give(found)
        if self._shown and self._reduction is not None:
            self._reduction.give(self._shown)
        if others:
            receive([*[leaves[i] for i in self._asking], *self._others], others, scale)
        return True

    def _compile_anew(self) -> None:
        """Compile the step; the program has counted it by now."""
        self._often = self._often or self.compiled is not None and next(self._left, 1) == 1
        self.compiled, self._left, self.usual = None, repeat(1), never
        try:
            self._compile()
        except BaseException as error:
            self.program.retreat()
            if isinstance(error, (ValueError, TypeError, OverflowError)):  # what has been changed does not fit
                raise Stale(str(error)) from error
            raise

    def _run(self, arguments: Any, arrays: list[Any]) -> list[Any]:
        """Run the schedule; where it raises, all is as it was.

        Only a function of the user's can fail: then gradients are kept until it is known that it did not. The frame
        keeps gradients that no other object refers to.
        """
        before: Any = ()
        if self._may_fail:
            bound = arguments.frame.bound
            before = [(p, k if k >= 0 and p._grad is bound[k] and getrefcount(bound[k]) <= ALONE else
                       _apart(p._grad), p._grad_var) for p, k in zip(self.parameters, self._places, strict=True)]
        try:
            return arguments.run(arrays + self.program.hyper_arrays())
        except BaseException as error:
            retreat(self.program, error, self._may_fail)
            failed = arguments.frame.failed
            if failed is not None and failed.op is not OPAQUE_GRADIENT:  # gradients are cleared after the forward
                for p, grad, grad_var in before:
                    p._grad = arguments.frame.bound[grad] if type(grad) is int else (
                        grad.array() if type(grad) is LazyArray else grad)
                    p._grad_var = grad_var
            raise

    def _settle(self, scale: Any, flags: Sequence[bool]) -> None:
        """Note that gradients are scaled, and which of them are finite."""
        for p in self._reached:
            p._loss_scale = scale
        if self.program.flags:
            self.program.settle(flags)
        else:
            self.program.optimizer._gradients_are_finite = True


def _flags(arguments: Any, positions: Sequence[int], arrays: Sequence[Any]) -> list[bool]:
    """Return outputs that stay in the frame."""
    kept = [arguments.kept(i) for i in positions]
    return [bool(arguments.current(i, arrays) if x is None else x) for i, x in zip(positions, kept, strict=True)]


def _apart(grad: Any) -> Any:
    """Return a gradient; one that is lazy is not kept alive."""
    return grad.apart() if type(grad) is LazyArray else grad


def _places(compiled: Any, first: int, count: int) -> list[int]:
    """Return which externals the ``count`` outputs from ``first`` on are; -1 where Python runs after one is written."""
    slots, instructions = compiled.plan.slots, compiled.program.instructions
    last = max([i for i, x in enumerate(instructions) if may_fail(x)])
    early = {s.index for x in instructions[:last + 1] for v in x.node.outputs if type(s := slots.get(v)) is External}
    of = [slots.get(v) for v in compiled.outputs[first:first + count]]
    return [s.index if type(s) is External and not s.offset and s.index not in early and of.count(s) == 1 else -1
            for s in of]


def _lies_in(array: Any, place: Any) -> bool:
    """Whether an array is one of NumPy's, or lies in ``place`` where there is one."""
    return isinstance(array, np.ndarray) if place is None else place.holds(array)


class Steps:
    """The compiled steps of one optimizer; not part of what is copied or pickled."""

    def __init__(self) -> None:
        # By loss, and whether the step gives it; the one used last comes last.
        self.by_loss: OrderedDict[tuple[int, bool], tuple[Any, Step | None]] = OrderedDict()
        self.refused: dict[tuple[int, bool], Patience] = {}  # steps that may be made once the optimizer is another
        self.made = 0  # large frames, when it was looked at who has them

    def asks_again(self, loss: tuple[int, bool]) -> bool:
        """Whether it is time to look if a step that was refused can be made now."""
        return loss in self.refused and self.refused[loss].over()

    def __deepcopy__(self, memo: Any) -> Steps:
        return Steps()

    def __reduce__(self) -> Any:
        return Steps, ()


def run_step(optimizer: Any, function: StaticFunction, first: tuple[Any, ...], args: tuple[Any, ...],
             kwargs: dict[str, Any]) -> bool:
    """Do forward, backward and update of the parameters in one schedule, if there can be one; returns whether it did.

    The first step with a signature is define-by-run (and traced), as is every step that has no whole schedule.
    """
    if not may_run(gradients=True):
        return False
    args = first + args
    cache = function.cache_of(args)
    recent = cache.step
    names = tuple(kwargs)
    given = (*args, *kwargs.values()) if names else args
    try:
        if recent is not None and recent(optimizer, given, names):
            return True
    except RunError as changed:
        function.give_up(args, kwargs, changed)
        return False
    leaves: list[Any] = []
    recording = recorded(cache, args, kwargs, leaves)
    step = None if recording is None else step_of(optimizer, function, cache, recording)
    if recording is None or step is None or (function.verifier is not None and function.verifier.step()):
        return False
    types = None if function.verifier is not None else ArrayTypes.of(given, leaves)
    cache.step = None if types is None else fast_path(optimizer, types, names, recording.checks, step)
    try:
        done = attempt(step, cache, leaves)
    except RunError as changed:
        done = None
        function.give_up(args, kwargs, changed)
    if done is None:
        cache.step = None
        return False
    step.in_parts += not done
    return done


def recorded(cache: ScheduleCache, args: tuple[Any, ...], kwargs: dict[str, Any],
             leaves: list[Any]) -> Recording | None:
    """Return the recording of a loss with these arguments, if a step can be made of it; appends their leaves."""
    entry = cache.fitting(signature(args, kwargs, leaves))
    recording = None if entry is None else entry.recording
    return None if recording is None or recording.is_tentative else recording


def attempt(step: Step, cache: ScheduleCache, leaves: Sequence[Any]) -> Any:
    """Return the result of a step; None, with nothing done, where it is not one any more: another may be made."""
    recording, optimizer = step.recording, step.program.optimizer
    place = id(recording), step.gives_loss
    try:
        return step(leaves)
    except Stale:
        del optimizer._steps.by_loss[place]
    except NotCompilable as error:
        optimizer._steps.by_loss[place] = (weakref.ref(recording), None)
        cache.note_step(recording, optimizer, None, str(error))
    return None


def step_of(optimizer: Any, function: StaticFunction, cache: ScheduleCache, recording: Recording,
            kind: type[Step] | None = None) -> Step | None:
    """Return the step of an optimizer for a recording of its loss function, made now if it is new; None without one."""
    made_by: Any = kind or (function.step_class() if recording.place is None else Step)
    place = id(recording), made_by.gives_loss
    steps: Steps = optimizer.__dict__.get("_steps") or optimizer.__dict__.setdefault("_steps", Steps())
    known = steps.by_loss.get(place)
    if known is None or known[0]() is not recording or known[1] is None and steps.asks_again(place):
        step, reason = None, ""
        try:
            step = made_by(optimizer, recording, function.memory)
        except (NotCompilable, NotStatic) as error:
            reason = str(error)
            if isinstance(error, Refused):
                steps.refused.setdefault(place, Patience()).begin()
        else:
            steps.refused.pop(place, None)
        known = steps.by_loss[place] = (weakref.ref(recording), step)
        if len(steps.by_loss) > MAX_SCHEDULES:
            first, (_, old) = steps.by_loss.popitem(last=False)
            steps.refused.pop(first, None)
            if old is not None:
                old.release()
        cache.note_step(recording, optimizer, step, reason)
    steps.by_loss.move_to_end(place)
    if steps.made != (now := made()):
        steps.made = now
        if known[1] is not None:
            free_memory([s for _, s in steps.by_loss.values() if s is not None], known[1])
    return known[1]

