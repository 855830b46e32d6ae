"""Fast paths: the whole replay of a call as one function, for calls like one that was seen.

It asks in straight-line Python whether all is as it was: the configuration, guards, arguments, params. Then the frame
runs; else the call is one for `StaticFunction.call`, or for the general function of the frame's `Arguments`.
"""
from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ...configuration import config
from ...variable import Variable
from ..errors import Stale
from ..mode import Mode
from ..signature import ArrayTypes, Given, unpack
from ..source import Source
from ..trees import MISS
from .arguments import FastPath

if TYPE_CHECKING:
    from .schedule import Schedule

MOST_KNOWN_CALLS = 64  # whose arguments are known
Run = Callable[[tuple[Any, ...]], Any]  # returns ``MISS``, and has done nothing, where something is not as it was


@dataclass(frozen=True, eq=False)
class Replay:
    """The fast path to a schedule, in one configuration."""

    run: Run
    mode: Mode


class _Text:
    """The text of a fast path, for distinct plain arrays of certain types."""

    def __init__(self, types: ArrayTypes) -> None:
        self.source = Source("replay", "replay(args)")
        self.miss = f"return {self.source.name(MISS, 'MISS')}"
        self.mode = Mode()
        self._types = types

    def begin(self) -> Given:
        """Append lines that take the arrays, and the test of the configuration."""
        given = unpack(self.source, "args", len(self._types.types), self._types.first)
        self.source.line(f"if {self.mode.test(self.source)}: {self.miss}")
        return given

    def arrays(self, given: Given, first: str = "") -> None:
        """Append the test of the arrays, and the line ``first`` where it fails."""
        with self.source.block(f"if not ({self._types.test(self.source, given)})"):
            self.source.line(*[first] * bool(first), self.miss)


def define_by_run(fn: Callable[..., Any], args: tuple[Any, ...], leaves: Sequence[Any], known: set[Any]) -> Run:
    """Return the fast path to ``fn`` itself, which stays define-by-run: for arrays of these types, or these objects.

    Objects are ``known`` by their numbers, so that none is kept alive: another one of a number runs define-by-run, too.
    """
    types = ArrayTypes.of(args, leaves)
    if types is None:
        if len(known) >= MOST_KNOWN_CALLS:
            known.clear()
        known.add((config.train, config.enable_backprop, *map(id, args)))
        return lambda args: fn(*args) if (config.train, config.enable_backprop, *map(id, args)) in known else MISS
    text = _Text(types)
    with text.source.block("try"):
        text.arrays(text.begin())
    text.source.otherwise(text.miss)
    text.source.line(f"return {text.source.name(fn, 'fn')}(*args)")
    return text.source.function()


def compiled(schedule: Schedule, args: tuple[Any, ...], leaves: Sequence[Any]) -> Replay | None:
    """Return the fast path to a schedule; None for other arguments than plain arrays."""
    types = ArrayTypes.of(args, leaves)
    if types is None:
        return None
    text = _Text(types)
    if schedule.trial is not None:
        source = text.source
        source.line(f"if {source.name(next, 'next')}({source.name(schedule.trial.left, 'left')}, 1): {text.miss}")
    (_write_plain if schedule.plain else _write)(text, schedule)
    return Replay(text.source.function(), text.mode)


def _write(text: _Text, schedule: Schedule) -> None:
    """Append the text for a schedule that has to look after more than the run of a frame."""
    source = text.source
    with source.block("try"):
        given = text.begin()
        text.arrays(given)
        schedule.recording.checks.write(source, text.miss)
    source.otherwise(text.miss)
    source.line(f"try: return {source.name(schedule, 'schedule')}({given.together})",
                f"except {source.name(Stale, 'Stale')}: {text.miss}")


def _write_plain(text: _Text, schedule: Schedule) -> None:
    """Append the text for a schedule whose calls are nothing but the run of a frame."""
    source, own = text.source, text.source.name(schedule, "schedule")
    if not schedule.free:
        schedule.free.append(schedule.new_call())
    first = schedule.free[-1]
    call, found, usual = map(source.fresh, ("call", "found", "usual"))
    free = source.name(schedule.free, "free")
    with source.block("try"):
        given = text.begin()
        fast: FastPath | None = first.arguments.fast_path(source, given)
        if fast is None:
            text.arrays(given)
        schedule.recording.checks.write(source, text.miss)
        if fast is not None:
            source.line(f"{usual} = {' and '.join(fast.tests) or True}")
        source.line(f"{call} = {free}.pop() if {free} else {own}.new_call()")
    source.otherwise(text.miss)
    connected = bool(schedule.wanted and config.enable_backprop)
    single = bool(schedule.simple and not connected)  # one result that is no part of a graph
    run = (f"try: {found} = {call}.arguments.run({given.together}){'[0]' * single}",
           f"except {source.name(Stale, 'Stale')}: {text.miss}")
    if fast is None:
        source.line(*run)
    else:
        with source.block(f"if {usual} and {call} is {source.name(first, 'first')} and {fast.placed}"):
            results = fast.write()
            together = f"[{', '.join(results)}]"
            source.line(f"{found} = {results[0] if single else together}")
        with source.block("else"):
            text.arrays(given, f"{free}.append({call})")
            source.line(*run)
    if connected:
        arrays = source.fresh("arrays")
        source.line(f"{arrays} = {given.together}", f"return {own}.connect({call}, {arrays}, {found}, {arrays})")
        return
    if single:
        y, variable = source.fresh("y"), source.name(Variable, "Variable")
        source.line(f"{y} = {source.name(Variable.__new__, 'new')}({variable})", f"{y}._array = {found}",
                    f"{y}._requires_grad = {schedule.recording.requires_grad[0]}", f"{free}.append({call})",
                    f"return {y}")
        return
    source.line(f"{free}.append({call})", f"return {own}.tree({found}, {given.together})")
