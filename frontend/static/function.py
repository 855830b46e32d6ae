"""``static_graph``: the decorator, and the cache of schedules behind it."""
from __future__ import annotations

import contextlib
import functools
import warnings
import weakref
from collections.abc import Callable, Iterator
from dataclasses import replace
from threading import get_ident
from typing import Any, Literal, overload

import numpy as np

from kusari.runtime.python_rows import RunError

from .. import environment
from ..callsite import definition, user_stacklevel
from ..configuration import config
from ..epochs import Traced
from ..explanation import SUMMARY, Explanation
from ..link import Link
from ..progress import Work
from ..variable import Variable
from .collector import without_collector
from .compile.memory import checked
from .compile.profitability import reason_against
from .decorated import Decorated, Decorator, P, R
from .errors import Fault, Stale, StaticGraphError, StaticGraphWarning, without_observing
from .follow.follow import Tail
from .follow.joint_backward import backward_from
from .guards.reached import EXPECT
from .mode import may_run
from .replay import fast_path
from .replay.resume import going_on
from .replay.schedule import Schedule
from .replay.schedule_cache import SOON_SIGNATURES, CacheEntry, Fallback, ScheduleCache, guards_hold
from .signature import owns_schedules, signature
from .step.step import Step, run_step
from .trace import numpy_nodes
from .trace.observation import Observation
from .trace.observer.first_call import call_traced
from .trace.recorder import Tape
from .trace.recording import NotStatic, Recording, TryAgain, begin, finish
from .trees import MISS
from .verify.explain import bytes_held, explain
from .verify.verify import Verifier

_functions: weakref.WeakSet[StaticFunction] = weakref.WeakSet()
_kept: list[Any] | None = None  # objects that live on only for their schedules: see keeping_objects


class StaticFunction:
    """The object behind a function decorated with ``static_graph``, its attribute ``static``.

    Its Python runs once per signature, and compiled code from then on. Invariant: ``function`` is what the decorator
    has returned, which keeps this object alive.
    """

    soon = SOON_SIGNATURES

    def __init__(self, fn: Callable[..., Any], strict: bool, verify: int = 0, in_session: bool = False,
                 memory: str | float = "speed", only_training: bool = False) -> None:
        self.__name__ = getattr(fn, "__name__", type(fn).__name__)  # callable objects need not have one
        self.__qualname__ = getattr(fn, "__qualname__", self.__name__)
        self.fn = fn
        self.strict = strict
        self.in_session = in_session  # of ONNX Runtime
        self.memory = memory
        self.only_training = only_training
        self.verifier: Any = Verifier(verify) if verify else None
        self._caches: dict[int, tuple[Any, Any]] = {}  # a reference to each object; its cache, or a reference
        self._warned: set[str] = set()
        _functions.add(self)

    def decorated(self) -> Callable[..., Any]:
        """Return the function to call in place of ``fn``: a replay of what ran last, or else ``call``."""
        static = self
        on_links: bool | None = None

        def function(*args: Any, **kwargs: Any) -> Any:
            nonlocal on_links
            cache = None
            if on_links is None:
                on_links = bool(args) and issubclass(type(args[0]), Link)
            if on_links:  # the fast path, if there is one
                try:
                    caches = args[0]._static_caches
                    cache = caches[static] if type(caches) is dict else None
                except (AttributeError, IndexError, KeyError):
                    pass
            if cache is None:
                cache = static.cache_of(args)
            joined = cache.joined
            if joined is not None and not kwargs and (result := joined(args)) is not MISS:
                return result
            recent = cache.recent
            if recent is not None and not kwargs:
                try:
                    result = recent(args)
                except RunError as changed:
                    static.give_up(args, kwargs, changed)
                else:
                    if result is not MISS:
                        return result
            return static.call(cache, args, kwargs)

        functools.update_wrapper(function, self.fn)
        function.__name__, function.__qualname__ = self.__name__, self.__qualname__
        function.__dict__.update(static=self, explain=self.explain, is_static_function=True)
        self._function = weakref.ref(function)
        return function

    @property
    def function(self) -> Callable[..., Any] | None:
        """The function that the decorator has returned."""
        return self._function()

    def cache_of(self, args: tuple[Any, ...]) -> ScheduleCache:
        """Return the schedules for the object that the function is called on (its first argument, if an object)."""
        first = args[0] if args else None
        own = getattr(first, "_static_caches", None) if issubclass(type(first), Link) else None
        if type(own) is dict:  # not of a class
            cache = own.get(self)
            if cache is not None:
                return cache
        entry = self._caches.get(id(None) if type(first) in (np.ndarray, Variable) else id(first))
        if entry is not None and entry[0] is _Nothing:
            return entry[1]
        if entry is not None and entry[0]() is first and type(entry[1]) is ScheduleCache:
            return entry[1]
        return self._new_cache(first)

    def _new_cache(self, first: Any) -> ScheduleCache:
        caches, key, cache = self._caches, id(first), ScheduleCache()
        if not owns_schedules(first):
            return caches.setdefault(id(None), (_Nothing, cache))[1]

        def forget(_: Any) -> None:
            caches.pop(key, None)
        try:
            ref = weakref.ref(first, forget)
        except TypeError:
            return cache
        kept: Any = cache
        if issubclass(type(first), Link):
            # What is compiled may refer to the link: held by the link alone, both can be freed together.
            if getattr(first, "_static_caches", None) is None:
                first._static_caches = {}
            first._static_caches[self] = cache
            kept = weakref.ref(cache)
        caches[key] = ref, kept
        if _kept is not None:
            _kept.append(first)
        return cache

    def call(self, cache: ScheduleCache, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Run the call: the function itself, its trace, or the schedule of its signature.

        The function itself runs where a resumed run goes on, where ``may_run`` says no, where a number among the
        arguments changes in every call, where a new signature has to come more often (``postpones``), and where the
        signature falls back, or all do (``is_unseen``). A signature is traced when it is new, or when none of its
        guards hold; its second call compiles. ``fast_path`` states the same in text for the calls that follow.
        """
        if cache.run is not None and cache.run[0] == get_ident():
            run, cache.run = cache.run[1], None
            with going_on(run):
                return self.fn(*args, **kwargs)
        # Inside another trace this call is inlined into it; hooks and debug mode want to see every function.
        if not may_run(training=self.only_training) or cache.is_unseen():
            return self.fn(*args, **kwargs)
        if self.verifier is not None and self.verifier.due():
            return self.verifier.call(self, args, kwargs)
        leaves: list[Any] = []
        key = signature(args, kwargs, leaves)
        entry = cache.entries.get(key)
        if entry is not None and not guards_hold(entry):
            entry, fault = cache.other(key, entry)
            if fault is not None:
                self._fall_back(cache, key, fault)
                return self.fn(*args, **kwargs)
        if entry is None:
            if self._changes(cache, key) or cache.postpones(key, self.soon):
                return self.fn(*args, **kwargs)
            return self._trace(cache, key, leaves, args, kwargs)
        fast = not kwargs and self.verifier is None
        schedule = self._with_own_kernels(cache, key, entry.schedule)
        if schedule is None and entry.recording is not None:
            if entry.recording.is_tentative:
                return self._trace_again(cache, key, entry.recording, leaves, args, kwargs)
            schedule = self._compile(cache, key, entry.recording)
        elif len(cache.entries) > 1:
            cache.touch(key)
        if schedule is None:
            cache.recent = fast_path.define_by_run(self.fn, args, leaves, cache.objects) if fast else None
            return self.fn(*args, **kwargs)
        cache.free_memory(schedule)
        try:
            result = self._replay(cache, schedule, args, leaves) if fast else MISS
            if not fast:
                cache.recent = None
            return schedule(leaves) if result is MISS else result
        except Stale as stale:
            cache.note(key, f"{schedule.recording.where}: {stale}")
            cache.drop(key)
            return self._trace(cache, key, leaves, args, kwargs)
        except RunError as changed:
            self.give_up(args, kwargs, changed)
            return self.call(cache, args, kwargs)

    def _with_own_kernels(self, cache: ScheduleCache, key: Any, schedule: Schedule | None) -> Schedule | None:
        """Return a schedule, compiled for its own extents once it has been called often."""
        if schedule is None or schedule.trial is None or not schedule.trial.is_over():
            return schedule
        schedule.release()
        return self._compile(cache, key, replace(schedule.recording, family=None))

    def _replay(self, cache: ScheduleCache, schedule: Schedule, args: tuple[Any, ...], leaves: list[Any]) -> Any:
        """Take the fast path that there is for a schedule; ``MISS`` where it does not fit, one is made if need be."""
        fast = schedule.fast
        if fast is not None and fast.run is not cache.recent and (result := fast.run(args)) is not MISS:
            cache.recent = fast.run
            return result
        if fast is None or not fast.mode.is_current():
            schedule.fast = fast = fast_path.compiled(schedule, args, leaves)
        cache.recent = None if fast is None else fast.run
        return MISS

    def give_up(self, args: tuple[Any, ...], kwargs: dict[str, Any], changed: RunError) -> None:
        """Stay define-by-run as a function's results have other types; the next call is the one that noticed it.

        Raises what compiled code has raised where that was not this function's.
        """
        node, cache, key = changed.node, self.cache_of(args), signature(args, kwargs, [])
        entry = cache.entries.get(key)
        if node is None or entry is not None and entry.fault is not None:
            raise changed
        cache.joined = None  # the step of a loop may be that of this call
        if changed.raised is not None:  # which another call need not
            pass
        elif changed.changed:
            changed.run[-1][1][-1].changed = changed.changed
            self._fall_back(cache, key, Fault(f"{node.op.name} changes an array that it is given, in some calls, which "
                                              "others may read; let it change a copy", node.where or "unknown"))
        elif node.op is EXPECT:
            self._fall_back(cache, key, Fault(str(changed), node.where or "unknown"))
        elif node.op is not numpy_nodes.CHECK:
            self._fall_back(cache, key, Fault(f"{node.op.name} gives results whose shapes or dtypes depend on values",
                                              node.where or "unknown"))
        elif not node.attrs["tally"].pays:
            self._fall_back(cache, key, Fault(numpy_nodes.reason(node), node.where or "unknown"))
        cache.run = get_ident(), changed.run

    def _trace_again(self, cache: ScheduleCache, key: Any, before: Recording, leaves: list[Any], args: tuple[Any, ...],
                     kwargs: dict[str, Any]) -> Any:
        """Trace a call again, before it is compiled: numbers of the user's code have to be what they were."""
        result = self._trace(cache, key, leaves, args, kwargs)
        entry = cache.entries.get(key)
        now = None if entry is None else entry.recording
        if now is not None and now.schedule is None:
            node = numpy_nodes.changed(*map(numpy_nodes.assumptions, (before.graph, now.graph)))
            if node is None:
                cache.put(key, replace(now, is_tentative=False))
            else:
                self._fall_back(cache, key, Fault(numpy_nodes.reason(node), node.where or "unknown"))
        return result

    def _changes(self, cache: ScheduleCache, key: Any) -> bool:
        """Whether to trace a new signature would be pointless, as a number or an object changes in every call."""
        changes, told = cache.numbers_change(key)
        if changes and told:
            cache.count_alike(key, others=not self.strict)
        elif changes:
            self.say(f"{self.__qualname__} runs define-by-run as long as a number among its arguments changes in "
                     "every call, or an object is another one, as each would be another trace: "
                     f"{definition(self.fn)}; pass arrays")
        return changes

    def _trace(self, cache: ScheduleCache, key: Any, leaves: list[Any], args: tuple[Any, ...],
               kwargs: dict[str, Any]) -> Any:
        if cache.hooked is not None and cache.hooked.get("_local_link_hooks"):
            return self.fn(*args, **kwargs)
        Traced.version = object()
        tape, inputs = begin(leaves)
        observation = Observation(self.fn, tape, cache.changing)
        tape.observe(observation)
        try:
            with Work("tracing", self.__qualname__):
                return self._traced(cache, key, leaves, args, kwargs, tape, observation, inputs)
        finally:
            tape.close()

    def _traced(self, cache: ScheduleCache, key: Any, leaves: list[Any], args: tuple[Any, ...], kwargs: dict[str, Any],
                tape: Tape, observation: Observation, inputs: Any) -> Any:
        try:
            result = call_traced(self.fn, tape, observation, args, kwargs, bool(args) and owns_schedules(args[0]))
        except Exception as error:
            raise error.with_traceback(without_observing(error.__traceback__))  # noqa: B904 (the same error)
        cache.hooked = observation.hooked
        if cache.hooked is not None:  # hooks of links want to see every call
            return tape.end(result)
        try:
            recorded = finish(self.__name__, tape, inputs, leaves, result, _card)
            cache.put(key, replace(recorded, family=cache.family(key)))
        except TryAgain as again:
            if cache.waste(key, True):
                self._fall_back(cache, key, Fault(str(again), observation.where))
        except NotStatic as error:
            if not cache.changing.learned() and not cache.tries_again(key, observation.guards):
                self._fall_back(cache, key, error.fault)
        return tape.end(result)

    @without_collector()
    def _compile(self, cache: ScheduleCache, key: Any, recorded: Recording) -> Schedule | None:
        try:
            schedule = self._session(recorded) if self.in_session else None
            if schedule is None:
                schedule = Schedule(recorded, config.enable_backprop, self.memory)
                schedule.tail = Tail(backward_from, recorded.place)
        except NotStatic as error:
            self._fall_back(cache, key, error.fault)
            return None
        reason = None
        if config.keep_define_by_run and type(schedule) is Schedule and recorded.place is None:
            reason = reason_against(schedule)
        if reason is not None:
            cache.put(key, Fallback(Fault(reason, recorded.where)))
            return None
        cache.put(key, schedule)
        return schedule

    def _session(self, recorded: Recording) -> Any:
        """Return a schedule that runs in ONNX Runtime; None, with a warning, where that cannot be."""
        sessions = _sessions()
        if recorded.place is not None:
            self.say(f"{self.__qualname__} is compiled, it cannot run in ONNX Runtime: its arrays are on a "
                     "graphics card")
            return None
        try:
            return sessions.SessionSchedule(recorded, config.enable_backprop)
        except sessions.ExportError as error:
            self.say(f"{self.__qualname__} is compiled, it cannot run in ONNX Runtime: {error}")
            return None

    def step_class(self) -> Any:
        """Return the class of compiled training steps."""
        return _sessions().SessionStep if self.in_session else Step

    def run_step(self, optimizer: Any, first: tuple[Any, ...], args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
        """Do a whole step of ``optimizer`` with this loss function, if there can be one; returns whether it did."""
        return run_step(optimizer, self, first, args, kwargs)

    def _fall_back(self, cache: ScheduleCache, key: Any, fault: Fault) -> None:
        cache.fall_back(key, fault, others=not self.strict)
        self.say(f"{self.__qualname__} runs define-by-run, it is not static: {fault}")

    def say(self, text: str) -> None:
        """Warn once, or raise if the function is strict."""
        if self.strict:
            raise StaticGraphError(text)
        if text not in self._warned:
            self._warned.add(text)
            warnings.warn(text, StaticGraphWarning, stacklevel=user_stacklevel())

    def entry(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> CacheEntry | None:
        """Return the entry for these arguments, if there is one whose guards hold."""
        entry = self.cache_of(args).entries.get(signature(args, kwargs, []))
        return entry if entry is None or guards_hold(entry) else None

    def recorded(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Recording | None:
        """Return the recording that a call with these arguments would replay, if any."""
        entry = self.entry(args, kwargs)
        return None if entry is None else entry.recording

    def caches(self, of: Any = None) -> list[ScheduleCache]:
        """Return the schedules of all objects, or of one."""
        found = [(ref, c() if isinstance(c, weakref.ref) else c) for ref, c in list(self._caches.values())]
        return [o for ref, o in found if o is not None and (of is None or ref() is of)]

    def owners(self) -> list[Any]:
        """Return the objects that the function has been called on, as long as they live."""
        return [ref() for ref, _ in list(self._caches.values())]

    def signatures(self, of: Any = None) -> list[tuple[Any, CacheEntry]]:
        """Return ``(signature, entry)`` for all objects, or those of one."""
        return [item for o in self.caches(of) for item in o.entries.items()]

    def explain(self, what: str = SUMMARY) -> Explanation:
        """Return a report on all signatures; for ``what`` see ``model.static.explain``, which is that of one model."""
        return explain([self], what)

    def nbytes(self, of: Any = None) -> int:
        """Return the bytes of memory that the schedules and whole steps of all objects hold, or those of one."""
        return bytes_held(self.caches(of))


def _card(device: int) -> Any:
    """Return the card with a number as a place of arrays."""
    from .card.place import card
    return card(device)


def _sessions() -> Any:
    """Return the module of sessions in ONNX Runtime, which needs the extra ``onnx``."""
    from ..onnx import session
    return session


def _Nothing() -> None:  # stands for a weak reference
    """The cache of calls that are on no object."""


@overload
def static_graph(fn: Callable[P, R], /) -> Decorated[P, R]: ...
@overload
def static_graph(*, strict: bool = ..., verify: int = ..., backend: Literal["kusari", "onnxruntime"] = ...,
                 memory: Literal["speed", "balanced", "low"] | float = ..., force_test_define_by_run: bool = ...,
                 minimize_cache_size: bool = ..., verbosity_level: int = ...,
                 enable_double_backprop: bool = ...) -> Decorator: ...
def static_graph(*args: Any, **kwargs: Any) -> Any:
    """Decorate a method or function so that its Python runs once and compiled code from the second call on.

    The first call with a signature (shapes, dtypes, other arguments, ``config.train`` and ``enable_backprop``) runs
    define-by-run and is traced; later ones replay it, compiled. A call that cannot be replayed faithfully runs
    define-by-run for good, with one warning that names line and reason.

    Args:
        strict (bool): Raise ``StaticGraphError`` instead of that warning.
        verify (int): Run every so many calls define-by-run as well, compare results, state and gradients, and raise
            ``StaticGraphError`` with the first node that differs; 0 for never. ``KUSARI_CHECK=1`` means every call.
        backend (str): ``"kusari"``, or ``"onnxruntime"``: forward, backward and, in ``optimizer.update(lossfun, ...)``,
            the whole step run in sessions of ONNX Runtime, as far as ONNX has their functions. That needs the extra
            ``onnx``.
        memory (str or float): The memory that training may take for the values that a backward needs of its forward.
            ``"speed"`` keeps them all; ``"balanced"`` computes cheap ones again, but no product and no convolution;
            ``"low"`` computes again whatever makes the frames smallest, some of it more than once, and in
            ``optimizer.update(lossfun, ...)`` does not keep gradients: once a parameter is updated, its gradient is
            gone (``p.grad`` is None). A number is a limit that the fastest choice keeps, if one does (``explain()``
            says where none does): below 1 a part of the bytes of ``"speed"``, else bytes. Results are the same, bit for
            bit; draws of random numbers are never repeated. Parameters must be the same in a forward and its backward.
        force_test_define_by_run (bool): Stay define-by-run where ``config.train`` is false.
        minimize_cache_size, verbosity_level, enable_double_backprop: accepted for Chainer's sake; schedules are
            cached per signature, nothing is printed, and double backward needs no option.

    Where define-by-run is known to be faster, a signature stays so (``explain`` says why); with
    ``config.keep_define_by_run = False`` everything is compiled that can be.

    May be used bare or with arguments, on any number of methods and functions; nested ones are inlined. With
    ``config.use_static_graph = False`` the decorated function is simply called.
    Source: the manual, "Static Subgraph Optimizations: Usage".

    Example:
        >>> import numpy as np, kusari, kusari.functions as F
        >>> @kusari.static_graph
        ... def double(x):
        ...     return F.relu(x) * 2
        >>> x = np.array([-1, 3], dtype=np.float32)
        >>> [double(x * k).array.tolist() for k in (1, 2, 3)]
        [[0.0, 6.0], [0.0, 12.0], [0.0, 18.0]]
    """
    options = {"strict": False, "minimize_cache_size": True, "verbosity_level": 0, "enable_double_backprop": False,
               "force_test_define_by_run": False, "verify": 0, "backend": "kusari", "memory": "speed"}
    unknown = kwargs.keys() - options.keys()
    if unknown:
        raise TypeError(f"static_graph got unexpected keyword argument(s) {', '.join(sorted(unknown))}; "
                        f"known: {', '.join(options)}")
    strict = bool(kwargs.get("strict", False))
    verify = int(kwargs.get("verify", 0)) or int(environment.flag("CHECK"))
    if verify < 0:
        raise ValueError(f"verify must be 0 or the number of calls from one comparison to the next, got {verify}")
    backend = kwargs.get("backend", "kusari")
    if backend not in ("kusari", "onnxruntime"):
        raise ValueError(f"backend must be 'kusari' or 'onnxruntime', got {backend!r}")
    if backend == "onnxruntime":
        _sessions().require_packages()
    memory = checked(kwargs.get("memory", "speed"))
    if not args:
        return functools.partial(static_graph, **kwargs)
    if len(args) != 1 or not callable(args[0]):
        raise TypeError("static_graph decorates one function: @static_graph or @static_graph(strict=True)")
    if isinstance(args[0], type):
        raise TypeError(f"static_graph decorates functions, {args[0].__name__} is a class: decorate its forward")
    return StaticFunction(args[0], strict, verify, backend == "onnxruntime", memory,
                          bool(kwargs.get("force_test_define_by_run", False))).decorated()


@contextlib.contextmanager
def keeping_objects() -> Iterator[None]:
    """Inside, every object that a static function is called on lives on, to explain its schedules when all is over."""
    global _kept
    before, _kept = _kept, []
    try:
        yield
    finally:
        _kept = before


def static_functions() -> list[StaticFunction]:
    """Return all functions decorated with ``static_graph`` that are alive, in the order of their names."""
    return sorted(_functions, key=lambda f: f.__qualname__)
