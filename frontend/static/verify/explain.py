"""Reports on static functions as sections: graphs before and after the passes, plans, kernels, reasons."""
from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from kusari.ir import Arena, parts_of, print_graph
from kusari.ir.drawing import dot_of

from ...explanation import SUMMARY, Explanation, Section, asks_for, checked
from ...link import Link
from ...link.tree import tree
from ..compile.memory import report as report_memory
from ..guards.guard import MISSING
from ..replay.schedule_cache import ALIKE_SIGNATURES, OFTEN_CALLS, UNSEEN_CALLS, CacheEntry, ScheduleCache
from ..trace.recording import Recording
from . import cards
from .signature_text import mode_and_arguments
from .summary import expensive, in_parts, signatures, uncompiled

if TYPE_CHECKING:
    from ..compile.compile import Compiled
    from ..function import StaticFunction


def explain(functions: Sequence[StaticFunction], what: str = SUMMARY) -> Explanation:
    """Return a report on static functions, for all the objects that they have been called on."""
    owners = {id(o): o for f in functions for o in f.owners() if isinstance(o, Link)} if asks_for(
        checked(what), "model") else {}
    return Explanation((*map(tree, owners.values()), *reports(functions, None, what)))


def reports(functions: Sequence[StaticFunction], owner: Any, what: str) -> tuple[Section, ...]:
    """Return the sections of a report on static functions (on one object, if ``owner`` is given)."""
    if what == "model":
        return ()
    found = [s for f in functions for s in _function(f, owner, what)]
    return (*found, *expensive(_programs(functions, owner))) if asks_for(what, SUMMARY) else (*found,)


def _function(function: StaticFunction, owner: Any, what: str) -> Iterator[Section]:
    """Yield the sections on all signatures of a function."""
    caches = function.caches(owner)
    lines = _counts(function, caches)
    if what == SUMMARY:
        lines += signatures(caches)
    yield Section(0, f"static function {function.__qualname__}", tuple(lines))
    number = 0
    for o in caches:
        for key, entry in o.entries.items():
            number += 1
            if what != SUMMARY:
                yield from _signature(number, key, entry, o, what)
            tail = None if entry.schedule is None else entry.schedule.tail
            for f in () if tail is None else list(tail.composed.values()):
                yield from _function(f.static, None, what)


def _counts(function: StaticFunction, caches: Sequence[ScheduleCache]) -> list[str]:
    """Return lines on how many signatures there are of each kind."""
    every = [e for o in caches for e in _entries(o)]
    schedules = [e for e in every if e.schedule is not None]
    traced = sum(e.schedule is None and e.fault is None for e in every)
    steps = [s for o in caches for e in _entries(o) for s, _ in o.steps(e) if s is not None]
    parts: list[str] = []
    if not every:
        parts.append("  no call was traced; those under hooks, in debug mode and inside other static functions are not")
    else:
        whole = f" and {len(steps)} whole step{'s' * (len(steps) != 1)}" if steps else ""
        parts.append(f"  {len(schedules)} schedule{'s' * (len(schedules) != 1)}{whole} in {bytes_held(caches)} bytes, "
                     f"{traced} traced, {len(every) - len(schedules) - traced} fell back")
    if function.verifier is not None:
        verifier = function.verifier
        parts.append(f"  every {verifier.every}. call verified: {verifier.compared} compared so far"
                     + f", where {len(verifier.excused)} arrays differ since values lie within rounding of a threshold"
                     * bool(verifier.excused))
    parts += [f"  further signatures are looked at in one of {UNSEEN_CALLS} calls, as {ALIKE_SIGNATURES} in turn fell "
              f"back: {fault}" for o in caches for fault in o.alike]
    return parts + [f"  {o.waiting} more signatures run define-by-run: beyond {function.soon}, those are traced that "
                    f"come {OFTEN_CALLS} times" for o in caches if o.waiting]


def _entries(owner: ScheduleCache) -> list[CacheEntry]:
    return [e for key, entry in owner.entries.items() for e in (entry, *owner.others(key))]


def _programs(functions: Sequence[StaticFunction], owner: Any) -> list[Compiled]:
    """Return everything compiled for some functions, whole steps and programs behind their results included."""
    found: list[Compiled] = []
    for function in functions:
        for o in function.caches(owner):
            for entry in _entries(o):
                found += [s.compiled for s, _ in o.steps(entry) if hasattr(getattr(s, "compiled", None), "plan")]
                if entry.schedule is not None:
                    tail = entry.schedule.tail
                    found += entry.schedule.compiled
                    found += [] if tail is None else [
                        *tail.native, *_programs([f.static for f in list(tail.composed.values())], None)]
    return list(dict.fromkeys(found))


def bytes_held(caches: Iterable[ScheduleCache]) -> int:
    """Return the bytes of memory that schedules and whole steps hold."""
    entries = [(o, e) for o in caches for e in _entries(o)]
    steps = [s for o, e in entries for s, _ in o.steps(e) if s is not None]
    return sum(e.nbytes for e in (*(e for _, e in entries), *steps))


def _signature(number: int, key: Any, entry: CacheEntry, owner: ScheduleCache, what: str) -> Iterator[Section]:
    """Yield the sections on one signature and its whole steps."""
    lines = [f"traced again: {reason}" for reason in owner.retraces.get(key, ())]
    if owner.others(key):
        lines.append(f"{len(owner.others(key))} more kept, for when what was read is again as it was then")
    lines += uncompiled(owner, entry)
    yield Section(1, f"signature {number}: {mode_and_arguments(key)}", tuple(lines))
    if entry.recording is not None:
        yield from _recorded(entry.recording, entry.schedule, what)
    for step, reason in owner.steps(entry):
        yield from _step(step, reason, what)


def _recorded(recording: Recording, schedule: Any, what: str) -> Iterator[Section]:
    """Yield the sections on a recording and its schedule, if it is compiled."""
    elsewhere = [] if schedule is None else schedule.elsewhere()
    if elsewhere:
        yield from (Section(2, title, tuple(lines) if asks_for(what, "plan") else ()) for title, lines in elsewhere)
        return
    if asks_for(what, "ir"):
        yield from _dependencies(recording)
        if schedule is None:
            yield Section(2, "as traced", (print_graph(recording.graph),), dot_of(recording.graph))
    if schedule is None:
        return
    for compiled in schedule.compiled:
        yield from _compiled(compiled, what)
    tail = schedule.tail
    if tail is not None and (tail.kinds or tail.composed):
        if asks_for(what, "plan"):
            yield Section(2, "applied to the results define-by-run", tuple(tail.describe()))
        for compiled in tail.native:
            yield from _compiled(compiled, what)


def _step(step: Any, reason: str, what: str) -> Iterator[Section]:
    """Yield the sections on the whole step of one optimizer, or why there is none."""
    if step is None:
        yield Section(2, f"optimizer.update(lossfun, ...) is made in parts: {reason}")
        return
    name = type(step.program.optimizer).__name__
    compiled: Any = step.compiled
    lines = in_parts(step) + ["compiled at the next step"] * (compiled is None)
    yield Section(2, f"whole step of {name}: forward, backward and update are one schedule", tuple(lines))
    if compiled is not None and hasattr(compiled, "plan"):
        yield from _compiled(compiled, what)


def _dependencies(recording: Recording) -> Iterator[Section]:
    """Yield the state that a schedule depends on besides its arguments, except for functions of the library."""
    found = [g.line() for g in recording.checks.guards if g.versioned != "modules" and g.value is not MISSING]
    if found:
        yield Section(2, "depends on", tuple(found))


def _compiled(compiled: Compiled, what: str) -> Iterator[Section]:
    """Yield graph, final graph, plan, schedule and kernels of one compiled graph."""
    plan, report = compiled.plan, compiled.executable.report
    if asks_for(what, "ir"):
        yield Section(2, "as traced", (print_graph(compiled.graph),), dot_of(compiled.graph))
        yield Section(2, "after the passes", (print_graph(plan.graph),), dot_of(plan.graph))
    if asks_for(what, "plan"):
        in_arena = sum(isinstance(s, Arena) for s in plan.slots.values())
        bound = f"{len(plan.externals)} buffers bound per call"
        yield Section(2, "plan", (f"{plan.describe()}; {in_arena} values in the arena, {bound}",))
        if compiled.place is not None:
            yield Section(2, "on the card", tuple(cards.plan(compiled)))
        yield Section(2, "memory", tuple(report_memory(compiled)))
        lines = [cards.line(compiled) if compiled.place is not None else
                 f"{report.instructions} instructions ({report.python_instructions} of Python), "
                 f"{report.kernels} kernels, {report.threads} thread{'s' * (report.threads > 1)}; compiled in "
                 f"{compiled.seconds * 1e3:.1f} ms ({report.cached} of {report.cached + report.compiled} kernels from "
                 "the disk cache)"]
        for i, instruction in enumerate(compiled.program.instructions):
            runs = instruction.kernel.symbol if instruction.kernel else f"Python: {instruction.node.op.name}"
            lines.append(f"{i:4}  {runs}{f'  # {instruction.node.where}' if instruction.node.where else ''}")
            if instruction.choice is not None:
                lines.append(f"      {instruction.choice()}")
        yield Section(2, "schedule", tuple(lines), "" if asks_for(what, "ir") else dot_of(plan.graph))
    if asks_for(what, "kernels"):
        shared: dict[str, str] = {}
        for kernel in compiled.program.kernels:
            text, parts = parts_of(kernel.text)
            shared |= parts
            yield Section(2, f"kernel {kernel.symbol} ({kernel.language})", (text.rstrip(),))
        for name, text in shared.items():
            yield Section(2, f"{name}, which kernels share", (text.rstrip(),))
