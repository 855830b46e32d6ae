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
from dataclasses import dataclass
from functools import partial
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
from ..errors import NotCompilable, Stale
from ..mode import Mode, may_run
from ..replay.receiving import gradients_of, none_has_gradients, receive
from ..signature import ArrayTypes, unpack
from ..source import Source
from ..trees import MISS, VARIABLE
from .step import Step, attempt, recorded, step_of
from .straight_code import Name, Site, site_of
from .taken_over import Conditions

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
    known: Any = None  # the usual case of the place that makes it

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
        loss.left = partial(self._hand_out, [leaves[i] for i in self._asking]), found
        return loss

    def _hand_out(self, variables: Sequence[Any], found: list[Any]) -> None:
        """Give gradients, which come behind the loss, as a backward does."""
        others = self._give(found[1:])
        if others:
            receive([*variables, *self._others], others)

    def _write_delivery(self, source: Source, found: str) -> None:
        own, loss = Source("gradients", "give(found)"), source.fresh("loss")
        own.line(f"{own.fresh('loss')}, {gradients_of(own, self._given)} = found")
        source.line(f"{loss} = {source.name(Loss.__new__, 'new')}({source.name(Loss, 'Loss')})",
                    f"{loss}._array = {found}[0]",
                    f"{loss}.left = {source.name(own.function(), 'give')}, {found}", f"return {loss}")


class ClearedStep(JoinedStep):
    """One that is made only where no parameter has a gradient."""

    clears = False


class Loss(Variable):
    """The loss of a joined step: seen by code that reads its array and does its backward, and by none else."""

    # No values in the class: CPython finds attributes faster of which it has none.
    left: Any  # what gives the gradients, and those, behind the loss; None once they have been given
    update: Any  # the update that has been made already

    def backward(self, retain_grad: bool = False, enable_double_backprop: bool = False,
                 loss_scale: float | None = None) -> None:
        """Give the gradients.

        Raises:
            RuntimeError: They have been given.
        """
        left = self.left
        if left is None:
            raise RuntimeError("this loss was made along with its update, so that it has no second backward; set "
                               "kusari.config.join_loops = False to look into it")
        self.left = None
        left[0](left[1])
        tape.updates[get_ident()], self.update = self.update, None


class Joined:
    """One place in code, and the step that it makes."""

    def __init__(self, static: StaticFunction, cache: ScheduleCache, optimizer: Any, site: Site,
                 frame: FrameType) -> None:
        self._static, self._cache, self._optimizer = weakref.ref(static), weakref.ref(cache), weakref.ref(optimizer)
        self.site, self.code = site, frame.f_code
        names = (site.model, site.optimizer, site.cleared or site.optimizer)
        self._outside = all(name.outside for name in names)
        self._names = names
        cache.joined = self.begin

    def begin(self, args: tuple[Any, ...]) -> Any:
        """Stand for the usual case before there is one."""
        return self(args)

    def __call__(self, args: tuple[Any, ...]) -> Any:
        """Return the loss of a step that was made; ``MISS`` where there can be none, and nothing has happened.

        It is called by the function that the cache has, the usual case, and that by the static function.
        """
        frame: Any = sys._getframe(3)
        inner = frame.f_code is _CALL
        if inner:
            frame = frame.f_back
        first, last = self.site.loss
        if frame is None or frame.f_code is not self.code or not first <= frame.f_lasti < last:
            return MISS
        optimizer, static = self._optimizer(), self._static()
        if optimizer is None or static is None or not self._may(frame, args, optimizer, static, inner):
            return MISS
        try:
            loss = self._run(optimizer, static, args, inner)
        except RunError as changed:
            return self._give_up(args, changed)
        if loss is False:
            return MISS
        loss.update = optimizer, frame, self.site.update
        return loss

    def _give_up(self, args: tuple[Any, ...], changed: RunError) -> Any:
        """Leave a call whose results have other types to define-by-run."""
        static = self._static()
        if static is None:
            raise changed
        static.give_up(args, {}, changed)
        return MISS

    def _write(self, static: StaticFunction, inner: bool, model: Any, types: ArrayTypes, step: JoinedStep) -> _Usual:
        """Return `__call__` in the mode of now as straight-line text, for a model and arguments of ``types``."""
        source, mode, site, optimizer = Source("joined", "joined(args)"), Mode(), self.site, step.program.optimizer
        name, miss = source.name, "break"
        frame, own, loss, inside, same, arrays, error = map(
            source.fresh, ("frame", "own", "loss", "inside", "same", "arrays", "error"))
        watched = [f"{name(f, 'looks')}() is not None" for f in (sys.gettrace, sys.getprofile)]
        if _monitoring is not None:
            watched.append(f"{name(_debugged, 'debugged')}()")
        first, last = site.loss
        with source.block("while True"):
            with source.block("try"):
                source.line(f"{frame} = {name(sys._getframe, 'getframe')}(2)")
                if inner:
                    source.line(f"if {frame}.f_code is not {name(_CALL, 'call')}: {miss}", f"{frame} = {frame}.f_back")
                source.line(f"if {frame}.f_code is not {name(self.code, 'code')} or not "
                            f"{first} <= {frame}.f_lasti < {last} or {mode.test(source)} or "
                            f"{' or '.join(watched)}: {miss}")
                given = unpack(source, "args", len(types.types), types.first)
                source.line(f"model, {own}, optimizer = args[0], {name(weakref.ref(step), 'reference')}(), "
                            f"{name(weakref.ref(optimizer), 'known')}()",
                            f"if {own} is None or optimizer is None or not ({types.test(source, given)}): {miss}")
                self._write_calls(source, static, inner, model, optimizer, miss)
                names = ["model", "optimizer", *["optimizer.target"] * (site.cleared is not None)]
                places = [f"{f'{frame}.f_globals' if n.outside else inside}[{n.name!r}]" for n in self._names]
                are = " and ".join([f"{p} is {n}" for p, n in zip(places, names, strict=False)])  # or KeyError
                if not self._outside:
                    source.line(f"{inside} = {frame}.f_locals")
                if not self._outside and not _WRITES_THROUGH:
                    source.line(f"try: {same} = {name(getrefcount, 'getrefcount')}({inside}) <= {_OWN_READERS} and "
                                f"{are}", f"finally: {inside}.clear()", f"if not {same}: {miss}")
                else:
                    source.line(f"if not ({are}): {miss}")
                if site.cleared is None:
                    source.line(f"if not {own}.has_no_gradients(): {miss}")
                step.recording.checks.write(source, miss)
            source.otherwise(miss)
            with source.block("try"):
                source.line(f"{arrays} = {given.together}", f"{loss} = {own}.usual({arrays})",
                            f"if {loss} is False: {loss} = {own}({arrays})")
            source.line(f"except {name((Stale, NotCompilable), 'errors')}: {miss}",
                        f"except {name(RunError, 'RunError')} as {error}: return {name(self._give_up, 'give_up')}("
                        f"args, {error})",
                        f"if {loss} is False: {miss}",
                        f"{loss}.update = optimizer, {frame}, {name(site.update, 'update')}", f"return {loss}")
        source.line(*[f"{inside} = None"] * (not self._outside), f"return {name(self, 'general')}(args)")
        return _Usual(source.function(), mode, inner, self)

    def _write_calls(self, source: Source, static: StaticFunction, inner: bool, model: Any, optimizer: Any,
                     miss: str) -> None:
        """Append the test that a call of the model is one of the static function, and ``update`` the library's."""
        name, kinds, method = source.name, Conditions(), self.site.method
        kinds.attribute(type(model), "__getattribute__", object.__getattribute__)
        kinds.attribute(type(model), method or ("forward" if inner else "__call__"), static.function)
        kinds.attribute(type(optimizer), "update", GradientMethod.update)
        other = [f"{method or 'forward'!r} in {name(entries_of(model), 'entries')}"] * bool(method or inner)
        if inner and not method:
            kinds.attribute(type(model), "__call__", Link.__call__)
            other.append("model._local_link_hooks")
        test = " or ".join([f"type(model) is not {name(type(model), 'kind')}", *other, "'update' in optimizer.__dict__",
                            f"not ({kinds.test(source)})"])  # the step asks for the class of the optimizer
        source.line(f"if {test}: {miss}")

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
        return self.site.cleared is None or found[2] is optimizer.target

    def _run(self, optimizer: Any, static: StaticFunction, args: tuple[Any, ...], inner: bool) -> Any:
        """Make the step, and let the next one like it be made the usual way; False where it cannot be."""
        cache = self._cache()
        if cache is None:
            return False
        leaves: list[Any] = []
        recording = recorded(cache, args, {}, leaves)
        if recording is None:
            return False
        if self.site.cleared is None and not _without_gradients(optimizer.target.params()):
            return False
        kind = ClearedStep if self.site.cleared is None else JoinedStep
        step: Any = step_of(optimizer, static, cache, recording, kind)
        if step is None:
            # There is none for good, or the one there was may hold again: then it is not asked, but made anew.
            cache.joined = self.begin if (id(recording), True) in optimizer._steps.refused else None
            return False
        loss = attempt(step, cache, leaves)
        if loss is None:
            cache.joined = self.begin
            return False
        known: _Usual | None = step.known
        if known is None or known.of is not self or known.inner is not inner or not known.mode.is_current():
            types = ArrayTypes.of(args, leaves)
            if types is None:
                return loss
            known = step.known = self._write(static, inner, args[0], types, step)
        cache.joined = known.run
        return loss


@dataclass(frozen=True, eq=False)
class _Usual:
    """The usual case of a place, in one mode; ``inner`` says whether the call of the model is that of a link."""

    run: Callable[[tuple[Any, ...]], Any]
    mode: Mode
    inner: bool
    of: Joined


def _without_gradients(params: Iterable[Any]) -> bool:
    """Whether no parameter has a gradient, to which that of the step would be added."""
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
        Joined(static, cache, optimizer, site, frame)
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
    known, own, (first, last) = tape.updates.pop(get_ident(), _NONE)
    return known is optimizer and own is frame and first <= frame.f_lasti < last


_NONE = None, None, (0, 0)


def forget(frame: FrameType) -> None:
    """Forget an update that was made in a frame, which has another backward now: it was interrupted in between."""
    known = tape.updates.get(get_ident())
    if known is not None and known[1] is frame:
        del tape.updates[get_ident()]
