"""Loops in which loss, backward and update follow each other directly: one schedule for all three.

The call of the loss runs it. The backward that comes next gives the gradients, and the update that comes after it has
been made already. `straight_code` proves that nothing runs in between and that no other code sees the loss; the names
of the code are read in each call, as its variables may have become others.

Invariant: whatever is not as it was found, the call is made in parts, and nothing has happened before.
"""
from __future__ import annotations

import sys
import weakref
from collections.abc import Callable, Iterable, Sequence
from sys import getrefcount
from threading import get_ident
from types import FrameType
from typing import TYPE_CHECKING, Any

from kusari.runtime.python_rows import RunError

from ... import tape
from ...configuration import config
from ...link import Link
from ...link.namespace import entries_of
from ...optimizer import GradientMethod
from ...variable import Variable
from ..errors import NotCompilable
from ..mode import Mode, may_run
from ..replay.receiving import none_has_gradients, receive
from ..signature import ArrayTypes
from ..source import Source
from ..trees import MISS, VARIABLE
from .step import Step, attempt, fast_path, recorded, step_of
from .straight_code import Name, Site, site_of

if TYPE_CHECKING:
    from ..function import StaticFunction
    from ..replay.schedule_cache import ScheduleCache

_CALL = Link.__call__.__code__
_MOST_LOOKED_AT_CALLS = 8
_WRITES_THROUGH = sys.version_info >= (3, 13)  # a frame's `f_locals` are its variables, and no copy of them
_OWN_READERS = 3  # of such a copy: the frame, a variable here, and the call that counts them

_monitoring: Any = getattr(sys, "monitoring", None)

_looks: weakref.WeakKeyDictionary[Any, int] = weakref.WeakKeyDictionary()


class JoinedStep(Step):
    """A step that returns its loss, whose backward gives the gradients to all that gets one."""

    gives_loss = True
    fast: Any = None  # its fast path, as it was last made

    def __init__(self, optimizer: Any, recording: Any, memory: str | float = "speed") -> None:
        if recording.result is not VARIABLE:
            raise NotCompilable("the loss is not all that is returned, or something is stored")
        if recording.graph.outputs[0].shape:
            raise NotCompilable("the loss has axes")  # of which its backward warns
        super().__init__(optimizer, recording, memory)
        if self.program.scaling is not None or self._reducer is not None:
            raise NotCompilable("gradients are scaled, or means over several processes")
        self.results = None
        self.has_no_gradients = none_has_gradients(self.parameters)

    def _deliver(self, leaves: Sequence[Any], found: list[Any], scale: Any) -> Any:
        loss: Any = Loss.__new__(Loss)
        loss._array = found[0]
        loss.left = self, [leaves[i] for i in self._asking], found[1:]
        return loss

    def hand_out(self, variables: Sequence[Any], found: list[Any]) -> None:
        """Give gradients as a backward does."""
        others = self._give(found)
        if others:
            receive([*variables, *self._others], others)


class Loss(Variable):
    """The loss of a joined step: seen by code that reads its array and does its backward, and by none else."""

    left: Any = None  # the step, and the gradients that are to be given
    update: Any = None  # the update that has been made already

    def backward(self, retain_grad: bool = False, enable_double_backprop: bool = False,
                 loss_scale: float | None = None) -> None:
        """Give the gradients.

        Raises:
            RuntimeError: They have been given.
        """
        if self.left is None:
            raise RuntimeError("this loss was made along with its update, so that it has no second backward; set "
                               "kusari.config.join_loops = False to look into it")
        (step, variables, found), self.left = self.left, None
        step.hand_out(variables, found)
        tape.updates[get_ident()], self.update = self.update, None


class Joined:
    """One place in code, and the step that it makes."""

    def __init__(self, static: StaticFunction, cache: ScheduleCache, optimizer: Any, site: Site,
                 frame: FrameType) -> None:
        self._static, self._cache, self._optimizer = weakref.ref(static), weakref.ref(cache), weakref.ref(optimizer)
        self.site, self.code = site, frame.f_code
        self._first, self._last = site.loss
        self._fast: Any = None
        self._step: Any = None
        names = (site.model, site.optimizer, site.cleared or site.optimizer)
        self._outside = all(name.outside for name in names)
        self._names = names
        self._usual: Callable[..., bool] = _never
        self._mode = Mode()
        self._mode.forget()

    def __call__(self, args: tuple[Any, ...]) -> Any:
        """Return the loss of a step that was made; ``MISS`` where there can be none, and nothing has happened."""
        frame: Any = sys._getframe(2)
        inner = frame.f_code is _CALL
        if inner:
            frame = frame.f_back
        if frame is None or frame.f_code is not self.code or not self._first <= frame.f_lasti < self._last:
            return MISS
        optimizer, static = self._optimizer(), self._static()
        if optimizer is None or static is None:
            return MISS
        if not (self._usual(frame, args, optimizer, inner) and (self.site.cleared is not None or self._is_clear())):
            if not self._may(frame, args, optimizer, static, inner):
                return MISS
            if not self._mode.is_current():
                self._expect(args[0], optimizer, static, inner)
        try:
            loss = self._fast(optimizer, args, ()) if self._fast is not None else False
            if loss is False:
                loss = self._run(optimizer, static, args)
        except RunError as changed:
            static.give_up(args, {}, changed)
            return MISS
        if loss is False:
            return MISS
        loss.update = optimizer, frame, self.site.update
        return loss

    def _expect(self, model: Any, optimizer: Any, static: StaticFunction, inner: bool) -> None:
        """Let ``_usual`` be what `_may` asks in the mode of now, as straight-line text for one model and optimizer."""
        source, mode, site = Source("joined", "usual(frame, args, optimizer, inner)"), Mode(), self.site
        name, miss = source.name, "return False"
        watched = [f"{name(f, 'looks')}() is not None" for f in (sys.gettrace, sys.getprofile)]
        if _monitoring is not None:
            watched.append(f"{name(_debugged, 'debugged')}()")
        model_kind, kind = name(type(model), "kind"), name(type(optimizer), "kind")
        own = f"{name(entries_of, 'entries_of')}(model)"
        other = [f"{name(object.__getattribute__, 'get')} is not {model_kind}.__getattribute__"]
        function = name(static.function, "function")
        if site.method:
            other += [f"{model_kind}.{site.method} is not {function}", f"{site.method!r} in {own}"]
        elif inner:
            other += [f"{model_kind}.forward is not {function}", f"'forward' in {own}", "model._local_link_hooks",
                      f"{model_kind}.__call__ is not {name(Link.__call__, 'call')}"]
        else:
            other.append(f"{model_kind}.__call__ is not {function}")
        names = ["model", "optimizer", *["optimizer.target"] * (site.cleared is not None)]
        with source.block("try"):
            source.line("model = args[0]",
                        f"if inner is not {inner} or {mode.test(source)} or {' or '.join(watched)}: {miss}",
                        f"if type(model) is not {model_kind} or {' or '.join(other)}: {miss}",
                        f"if type(optimizer) is not {kind} or {kind}.update is not "
                        f"{name(GradientMethod.update, 'update')} or optimizer._loss_scale is not None or "
                        f"'update' in optimizer.__dict__: {miss}")
            places = [f"{'frame.f_globals' if n.outside else 'inside'}.get({n.name!r})" for n in self._names]
            if not self._outside:
                source.line("inside = frame.f_locals")
            same = " and ".join([f"{p} is {n}" for p, n in zip(places, names, strict=False)])
            if not self._outside and not _WRITES_THROUGH:
                source.line(f"same = {name(getrefcount, 'getrefcount')}(inside) <= {_OWN_READERS} and {same}",
                            "inside.clear()", f"if not same: {miss}")
            else:
                source.line(f"if not ({same}): {miss}")
        source.otherwise(miss)
        source.line("return True")
        self._usual, self._mode = source.function(), mode

    def _is_clear(self) -> bool:
        """Whether no parameter has a gradient, to which that of the step would be added."""
        return self._step is None or self._step.has_no_gradients()

    def _may(self, frame: FrameType, args: tuple[Any, ...], optimizer: Any, static: StaticFunction,
             inner: bool) -> bool:
        """Whether the code means what it was found to mean, and nothing watches it."""
        if sys.gettrace() is not None or sys.getprofile() is not None or _debugged() or not (
                may_run(gradients=True) and config.join_loops and static.verifier is None):
            return False
        found = _values(frame, self._names, self._outside)
        if found is None or not args or found[0] is not args[0] or found[1] is not optimizer:
            return False
        if type(optimizer).update is not GradientMethod.update or optimizer._loss_scale is not None or (
                "update" in optimizer.__dict__):
            return False
        if not _calls(args[0], self.site.method, static, inner):
            return False
        if self.site.cleared is not None:
            return found[2] is optimizer.target
        return self._is_clear()

    def _run(self, optimizer: Any, static: StaticFunction, args: tuple[Any, ...]) -> Any:
        """Make the step for arguments of another signature than the last one's; False where it cannot be."""
        cache = self._cache()
        if cache is None:
            return False
        leaves: list[Any] = []
        recording = recorded(cache, args, {}, leaves)
        if recording is None:
            return False
        if self.site.cleared is None and not _without_gradients(optimizer.target.params()):
            return False
        step: Any = step_of(optimizer, static, cache, recording, JoinedStep)
        if step is None:
            if (id(recording), True) not in optimizer._steps.refused:  # for good
                cache.joined = None
            return False
        types = ArrayTypes.of(args, leaves)
        known, self._step = step.fast, step
        if known is not None and known is not self._fast and (loss := known(optimizer, args, ())) is not False:
            self._fast = known
            return loss
        step.fast = self._fast = None if types is None else fast_path(optimizer, types, (), recording.checks, step)
        loss = attempt(step, cache, leaves)
        if loss is None:
            self._fast = self._step = None
            return False
        return loss


def _never(*_: Any) -> bool:
    return False


def _without_gradients(params: Iterable[Any]) -> bool:
    """Whether no parameter has a gradient."""
    for p in params:
        if p._grad is not None or p._grad_var is not None:
            return False
    return True


def _debugged() -> bool:
    """Whether a debugger looks on, from Python 3.12 on without a trace function."""
    return _monitoring is not None and _monitoring.get_tool(_monitoring.DEBUGGER_ID) is not None


def _calls(first: Any, method: str, static: StaticFunction, inner: bool) -> bool:
    """Whether the call of an object, or of its method, is a call of the static function."""
    kind, function = type(first), static.function
    if not issubclass(kind, Link) or kind.__getattribute__ is not object.__getattribute__:
        return False
    own = entries_of(first)  # which does not say that its attributes may change unseen, as ``__dict__`` does
    if method:
        return not inner and getattr(kind, method, None) is function and method not in own
    if inner:
        return (getattr(kind, "forward", None) is function and kind.__call__ is Link.__call__ and "forward" not in own
                and not first._local_link_hooks)
    return kind.__call__ is function


def look(optimizer: Any, frame: FrameType) -> None:
    """Look whether the update that a frame is at ends a place that is to be joined."""
    try:
        count = _looks.get(optimizer, 0)
        if count >= _MOST_LOOKED_AT_CALLS:
            return
        _looks[optimizer] = count + 1
    except TypeError:  # a user's own, which has no hash
        return
    if not config.join_loops or (site := site_of(frame)) is None:
        return
    found = _values(frame, (site.model,), site.model.outside)
    if found is None or not issubclass(type(model := found[0]), Link):
        return
    names = (site.method,) if site.method else ("__call__", "forward")
    static = next((s for n in names if (s := getattr(getattr(type(model), n, None), "static", None)) is not None), None)
    if static is None or static.in_session or static.memory != "speed" or static.verifier is not None:
        return
    cache = static.cache_of((model,))
    if cache.joined is None and any(e.recording is not None for e in cache.entries.values()):
        cache.joined = Joined(static, cache, optimizer, site, frame)
        _looks[optimizer] = _MOST_LOOKED_AT_CALLS


def _values(frame: FrameType, names: Sequence[Name], outside: bool) -> list[Any] | None:
    """Return the objects that names are now; None where one is not there, or a copy of them is elsewhere.

    All of them are ``outside`` of the function, or some are its variables.
    """
    around, inside = frame.f_globals, None
    if not outside:
        inside = frame.f_locals
        if not _WRITES_THROUGH and getrefcount(inside) > _OWN_READERS:
            return None
    try:
        return [around[n.name] if n.outside else inside[n.name] for n in names]  # type: ignore[index]
    except KeyError:
        return None
    finally:
        if inside is not None and not _WRITES_THROUGH:
            inside.clear()  # else the frame would keep alive what its variables are now


def updated(optimizer: Any, frame: FrameType) -> bool:
    """Whether the update that a frame asks for was made along with its loss."""
    known, own, (first, last) = tape.updates.pop(get_ident())
    return known is optimizer and own is frame and first <= frame.f_lasti < last


def forget(frame: FrameType) -> None:
    """Forget an update that was made in a frame, which has another backward now: it was interrupted in between."""
    known = tape.updates.get(get_ident())
    if known is not None and known[1] is frame:
        del tape.updates[get_ident()]
