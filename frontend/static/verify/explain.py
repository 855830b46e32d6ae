"""Reports on a static function as text: graphs before and after the passes, plans, kernels, reasons."""
from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from kusari.ir import Arena, print_graph

from ..compile.memory import report as report_memory
from ..guards.guard import MISSING
from ..replay.schedule_cache import OFTEN_CALLS, CacheEntry, ScheduleCache
from ..trace.recording import Recording

if TYPE_CHECKING:
    from ..compile.compile import Compiled
    from ..function import StaticFunction


def explain_function(function: StaticFunction, owner: Any = None, kernels: bool = True) -> str:
    """Return a report on all signatures of ``function`` (on one object, if ``owner`` is given)."""
    caches = function.caches(owner)
    every = [e for o in caches for e in _entries(o)]
    schedules = [e for e in every if e.schedule is not None]
    traced = sum(e.schedule is None and e.fault is None for e in every)
    steps = [s for o in caches for e in _entries(o) for s, _ in o.steps(e) if s is not None]
    parts: list[str] = [f"static function {function.__qualname__}"]
    if not every:
        parts.append("  not called yet")
    else:
        size = sum(e.nbytes for e in (*schedules, *steps))
        whole = f" and {len(steps)} whole step{'s' * (len(steps) != 1)}" if steps else ""
        parts.append(f"  {len(schedules)} schedule{'s' * (len(schedules) != 1)}{whole} in {size} bytes, "
                     f"{traced} traced, {len(every) - len(schedules) - traced} fell back")
    if function.verifier is not None:
        verifier = function.verifier
        parts.append(f"  every {verifier.every}. call verified: {verifier.compared} compared so far"
                     + f", where {len(verifier.excused)} arrays differ since values lie within rounding of a threshold"
                     * bool(verifier.excused))
    parts += [f"  {o.waiting} more signatures run define-by-run: beyond {function.soon}, those are traced that come "
              f"{OFTEN_CALLS} times" for o in caches if o.waiting]
    number = 0
    for o in caches:
        for key, entry in o.entries.items():
            number += 1
            mode = f"train={key[0]}, enable_backprop={key[1]}"
            leaves = ", ".join(str(k) for k in key[2:]) or "no arguments"
            parts.append(f"\n== signature {number}: {mode}; {leaves}")
            parts += [f"traced again: {reason}" for reason in o.retraces.get(key, ())]
            if o.others(key):
                parts.append(f"{len(o.others(key))} more kept, for when what was read is again as it was then")
            parts.append(explain_entry(entry, kernels))
            parts += [explain_step(step, reason, kernels) for step, reason in o.steps(entry)]
    return "\n".join(parts)


def _entries(owner: ScheduleCache) -> list[CacheEntry]:
    return [e for key, entry in owner.entries.items() for e in (entry, *owner.others(key))]


def bytes_held(caches: Iterable[ScheduleCache]) -> int:
    """Return the bytes of memory that schedules and whole steps hold."""
    entries = [(o, e) for o in caches for e in _entries(o)]
    steps = [s for o, e in entries for s, _ in o.steps(e) if s is not None]
    return sum(e.nbytes for e in (*(e for _, e in entries), *steps))


def explain_step(step: Any, reason: str, kernels: bool = True) -> str:
    """Return a report on the whole step of one optimizer, or why there is none."""
    if step is None:
        return f"\n-- optimizer.update(lossfun, ...) is made in parts: {reason}"
    name = type(step.program.optimizer).__name__
    lines = [f"\n-- whole step of {name}: forward, backward and update are one schedule"]
    if step.in_parts:
        lines.append(f"{step.in_parts} step{'s' * (step.in_parts != 1)} made in parts: gradients go on behind an "
                     "argument or a state; unchain_backward() cuts there")
    if step.compiled is None:
        lines.append("compiled at the next step")
    elif hasattr(step.compiled, "plan"):
        lines.append(explain_compiled(step.compiled, kernels))
    return "\n".join(lines)


def explain_entry(entry: CacheEntry, kernels: bool = True) -> str:
    """Return a report on one signature."""
    recording, schedule = entry.recording, entry.schedule
    if recording is None:
        return f"fell back to define-by-run: {entry.fault}"
    if schedule is None:
        return "\n".join(["traced, compiled at the next call", *_dependencies(recording), "\n-- as traced",
                          print_graph(recording.graph)])
    if report := schedule.explain():
        return report
    parts = [*_dependencies(recording), *(explain_compiled(c, kernels) for c in schedule.compiled)]
    tail = schedule.tail
    if tail is not None and (tail.kinds or tail.composed):
        parts += ["\n".join(tail.describe()), *(explain_compiled(c, kernels) for c in tail.native)]
        parts += ["\n" + explain_function(f.static, kernels=kernels) for f in list(tail.composed.values())]
    return "\n".join(parts)


def _dependencies(recording: Recording) -> list[str]:
    """Return the state that a schedule depends on besides its arguments, except for functions of the library."""
    found = [g.line() for g in recording.checks.guards if g.versioned != "modules" and g.value is not MISSING]
    return ["\n-- depends on", *found] if found else []


def explain_compiled(compiled: Compiled, kernels: bool = True) -> str:
    """Return graph, final graph, plan, schedule and kernels of one compiled graph."""
    plan, report = compiled.plan, compiled.executable.report
    lines = ["\n-- as traced", print_graph(compiled.graph), "\n-- after the passes", print_graph(plan.graph)]
    in_arena = sum(isinstance(s, Arena) for s in plan.slots.values())
    bound = f"{len(plan.externals)} buffers bound per call"
    lines += ["\n-- plan", f"{plan.describe()}; {in_arena} values in the arena, {bound}"]
    lines += ["\n-- memory", *report_memory(compiled)]
    lines += ["\n-- schedule", f"{report.instructions} instructions ({report.python_instructions} of Python), "
              f"{report.kernels} kernels, "
              f"{report.threads} thread{'s' * (report.threads > 1)}; compiled in {compiled.seconds * 1e3:.1f} ms "
              f"({report.cached} of {report.cached + report.compiled} kernels from the disk cache)"]
    for i, instruction in enumerate(compiled.program.instructions):
        what = instruction.kernel.symbol if instruction.kernel is not None else f"Python: {instruction.node.op.name}"
        where = f"  # {instruction.node.where}" if instruction.node.where else ""
        lines.append(f"{i:4}  {what}{where}")
        if instruction.choice is not None:
            lines.append(f"      {instruction.choice()}")
    if kernels:
        for kernel in compiled.program.kernels:
            lines += [f"\n-- kernel {kernel.symbol} ({kernel.language})", kernel.text.rstrip()]
    return "\n".join(lines)
