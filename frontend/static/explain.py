"""What became of a static function, as text: graphs before and after the passes, plans, kernels, reasons."""
from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kusari.ir import Arena, print_graph

from .memory import report as report_memory
from .recording import Recording

if TYPE_CHECKING:
    from .compile import Compiled
    from .function import StaticFunction


def explain_function(function: StaticFunction, owner: Any = None, kernels: bool = True) -> str:
    """Return a report on all signatures of ``function`` (on one object, if ``owner`` is given)."""
    owners = function.owners(owner)
    every = [e for o in owners for key, entry in o.entries.items() for e in (entry, *o.others(key))]
    schedules = [e for e in every if hasattr(e, "nbytes")]
    parts: list[str] = [f"static function {function.__qualname__}"]
    if not every:
        parts.append("  not called yet")
    else:
        size = sum(e.nbytes for e in schedules)
        parts.append(f"  {len(schedules)} schedule{'s' * (len(schedules) != 1)} in {size} bytes, "
                     f"{sum(isinstance(e, Recording) for e in every)} traced, "
                     f"{len(every) - len(schedules) - sum(isinstance(e, Recording) for e in every)} stepped aside")
    if function.verifier is not None:
        verifier = function.verifier
        parts.append(f"  every {verifier.every}. call verified: {verifier.compared} compared so far"
                     + f", where {len(verifier.excused)} arrays differ since values lie within rounding of a threshold"
                     * bool(verifier.excused))
    number = 0
    for o in owners:
        for key, entry in o.entries.items():
            number += 1
            mode = f"train={key[0]}, enable_backprop={key[1]}"
            leaves = ", ".join(str(k) for k in key[2:]) or "no arguments"
            parts.append(f"\n== signature {number}: {mode}; {leaves}")
            parts += [f"traced again: {reason}" for reason in o.retraces.get(key, ())]
            if o.others(key):
                parts.append(f"{len(o.others(key))} more kept, for when what was read is again as it was then")
            parts.append(explain_entry(entry, kernels))
    return "\n".join(parts)


def explain_entry(entry: Any, kernels: bool = True) -> str:
    """Return a report on one signature."""
    from .function import Aside
    if isinstance(entry, Aside):
        return f"stepped aside, runs define-by-run: {entry.fault}"
    if isinstance(entry, Recording):
        return "traced, compiled at the next call\n\n-- as traced\n" + print_graph(entry.graph)
    if hasattr(entry, "explain"):  # it is not ours to show
        return entry.explain()
    return "\n".join(explain_compiled(c, kernels) for c in entry.compiled)


def explain_compiled(compiled: Compiled, kernels: bool = True) -> str:
    """Return graph, final graph, plan, schedule and kernels of one compiled graph."""
    plan, report = compiled.plan, compiled.executable.report
    lines = ["\n-- as traced", print_graph(compiled.graph), "\n-- after the passes", print_graph(plan.graph)]
    in_arena = sum(isinstance(s, Arena) for s in plan.slots.values())
    bound = f"{len(plan.externals)} buffers bound per call"
    lines += ["\n-- plan", f"{plan.describe()}; {in_arena} values in the arena, {bound}"]
    lines += ["\n-- memory", *report_memory(compiled)]
    lines += ["\n-- schedule", f"{report.rows} rows ({report.python_rows} of Python), {report.kernels} kernels, "
              f"{report.threads} thread{'s' * (report.threads > 1)}; compiled in {compiled.seconds * 1e3:.1f} ms "
              f"({report.cached} of {report.cached + report.compiled} kernels from the disk cache)"]
    for i, row in enumerate(compiled.program.rows):
        what = row.kernel.symbol if row.kernel is not None else f"Python: {row.node.op.name}"
        where = f"  # {row.node.where}" if row.node.where else ""
        lines.append(f"{i:4}  {what}{where}")
    if kernels:
        for kernel in compiled.program.kernels:
            lines += [f"\n-- kernel {kernel.symbol} ({kernel.language})", kernel.text.rstrip()]
    return "\n".join(lines)


class StaticView:
    """What an object's static functions did, as ``model.static``; also accepted as Chainer's ``schedule_manager``."""

    def __init__(self, owner: Any) -> None:
        self._owner = owner

    def explain(self, kernels: bool = True, print: bool = True) -> str:  # reads as what it does
        """Print and return graphs, plans and kernels of each schedule, or why it stepped aside."""
        from .function import static_functions
        texts = [explain_function(f, self._owner, kernels) for f in static_functions() if f.signatures(self._owner)]
        text = "\n\n".join(texts) or "no static function of this object has been called"
        if print:
            import builtins
            builtins.print(text)
        return text

    def end_forward(self) -> None:
        """Accepted for Chainer's sake: calls in flight have frames of their own, so nothing needs to be said."""

    @property
    def nbytes(self) -> int:
        """Bytes of memory that the schedules of this object hold."""
        from .function import static_functions
        owners = [o for f in static_functions() for o in f.owners(self._owner)]
        entries = [e for o in owners for key, entry in o.entries.items() for e in (entry, *o.others(key))]
        return sum(getattr(e, "nbytes", 0) for e in entries)
