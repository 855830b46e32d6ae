"""The first screen of a report: what became of each signature, memory, and the kernels that take longest."""
from __future__ import annotations

import textwrap
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from kusari.runtime.executable import Measured

from ...explanation import Section, Table
from ..compile.memory import megabytes, peak_of
from ..replay.schedule_cache import CacheEntry, ScheduleCache
from ..step.reduction import under_way
from . import cards
from .roof import bandwidth, forget, peak
from .signature_text import MOST_ITEMS, mode_and_arguments

if TYPE_CHECKING:
    from ..compile.compile import Compiled

SHOWN_SIGNATURES = 6
MANY_SIGNATURES = 8                    # of which none has come again
SHOWN_REASONS = 3
SHOWN_KERNELS_ROWS = 5
WIDEST_CHARACTERS = 110
SYMBOL_CHARACTERS = 40
SHORTEST_SECONDS = 1e-7                # of a launch: the time of entering native code is known no better
MOST_SHARE = 1.5                       # of the roof: above, the roof is wrong
ROOF_SECONDS = 0.03                    # to measure a number of the roof, once per process
LARGEST_FOOTPRINT_BYTES = 1 << 27      # beyond, no cache holds it, and bandwidth does not depend on the footprint
ABOVE = "  -: above 150 %, as where the roof was measured beside other programs; the next report measures it again"


def signatures(caches: Sequence[ScheduleCache]) -> list[str]:
    """Return lines on a few signatures: first any that fell back, then compiled ones, then others."""
    every = [(o, key, entry) for o in caches for key, entry in o.entries.items()]
    every.sort(key=lambda each: (each[2].fault is None, not _is_compiled(each[0], each[2])))
    lines: list[str] = []
    for o, key, entry in every[:SHOWN_SIGNATURES]:
        text = mode_and_arguments(key, MOST_ITEMS)
        lines.append("  * " + textwrap.shorten(text, WIDEST_CHARACTERS, placeholder=" ..."))
        lines += [f"    {line}" for line in _signature(o, key, entry)]
    more = len(every) - SHOWN_SIGNATURES
    if len(every) >= MANY_SIGNATURES and not any(_is_compiled(o, entry) for o, _, entry in every):
        lines.insert(0, "  each call had other arguments, so that nothing is compiled: pad them to few shapes")
    return lines + [f"  and {more} more signature{'s' * (more > 1)}: explain(\"plan\") lists all"] * (more > 0)


def _is_compiled(owner: ScheduleCache, entry: CacheEntry) -> bool:
    """Whether a signature fell back, or has come again: its calls, or whole steps, are compiled."""
    return entry.fault is not None or entry.schedule is not None or any(step for step, _ in owner.steps(entry))


def uncompiled(owner: ScheduleCache, entry: CacheEntry) -> list[str]:
    """Return a line on a signature that has no schedule of its own; none for others."""
    if entry.recording is None:
        return [f"fell back to define-by-run: {entry.fault}"]
    only = any(step is not None for step, _ in owner.steps(entry))
    return [] if entry.schedule is not None else ["run by whole steps only, else compiled at the next call" if only else
                                                  "traced, compiled at the next call"]


def _signature(owner: ScheduleCache, key: Any, entry: CacheEntry) -> Iterator[str]:
    schedule = entry.schedule
    yield from uncompiled(owner, entry)
    if schedule is not None:
        yield from (title for title, _ in schedule.elsewhere())
        yield from (line for compiled in schedule.compiled for line in _program(compiled))
        tail = schedule.tail
        if tail is not None:
            yield from (line for compiled in tail.native for line in _program(compiled))
            yield from _few([f"not compiled behind the results: {text}, {why}" for text, why in tail.apart.items()])
    for step, reason in owner.steps(entry):
        if step is None:
            yield f"optimizer.update(lossfun, ...) is made in parts: {reason}"
        else:
            made = ["compiled at the next step"] if step.compiled is None else (
                _program(step.compiled) if hasattr(step.compiled, "plan") else ["runs in ONNX Runtime"])
            yield f"whole step of {type(step.program.optimizer).__name__}: {made[0]}"
            yield from made[1:]
            yield from in_parts(step)
    yield from _few([f"traced again: {reason}" for reason in reversed(owner.retraces.get(key, ()))])


def in_parts(step: Any) -> list[str]:
    """Return lines on gradients that are reduced, and on steps that were made in parts though there is a whole one."""
    lines = under_way(step.compiled.program.instructions) if hasattr(step.compiled, "program") else []
    if step.in_parts:
        lines.append(f"{step.in_parts} step{'s' * (step.in_parts != 1)} made in parts: gradients go on behind an "
                     "argument or a state; unchain_backward() cuts there")
    return lines


def _few(lines: list[str]) -> list[str]:
    more = len(lines) - SHOWN_REASONS
    return lines[:SHOWN_REASONS] + [f"and {more} more"] * (more > 0)


def _program(compiled: Compiled) -> list[str]:
    """Return lines on one compiled graph."""
    report = compiled.executable.report
    if compiled.place is not None:
        first = cards.line(compiled)
        return [first, *[compiled.recomputation] * bool(compiled.recomputation), *_few(cards.refused(compiled)),
                *_few(_python(compiled))]
    launches = report.instructions - report.python_instructions
    python = f" and {report.python_instructions} of Python" if report.python_instructions else ""
    line = (f"compiled: {compiled.graph.name}, {launches} native rows{python} "
            f"on {report.threads} thread{'s' * (report.threads > 1)}, peak of one call {megabytes(peak_of(compiled))}")
    told = sum(bool(row.numbers) for row in compiled.program.instructions)
    if told:
        line += f"; {told} rows have kernels that are compiled once for any extents and told theirs"
    return [line, *[compiled.recomputation] * bool(compiled.recomputation), *_few(_python(compiled))]


def _python(compiled: Compiled) -> list[str]:
    return [f"run by Python: {row.node.op.name}{f' at {row.node.where}' if row.node.where else ''}"
            for row in compiled.program.instructions if row.kernel is None]


def expensive(programs: Sequence[Compiled]) -> list[Section]:
    """Return a table of the kernels that take longest, all launches of one in a program together.

    Each is run alone and several times in memory of its own (`Executable.measure`), so the times are there without a
    call, and are those of operands as near as the caches can have them. The roof of a launch is the longer of two
    times: its operations at the rate of multiply-adds in registers, and its bytes at the bandwidth of a triad whose
    arrays are as large as its operands together. Both rates are measured once per process, by kernels of our own.
    Operations are those of products and convolutions, as their kernels count them: a launch that is mostly
    exponentials stays far below the roof, one by Winograd's algorithm may seem to reach above it. A roof that a launch
    is far above was measured while other programs ran: it is not shown, and the next report measures it again.
    """
    host = [compiled for compiled in programs if compiled.place is None]
    longest, total, count = _longest(host)
    found = [Section(2, "most expensive: nothing runs natively")] if host and not longest else []
    if longest:
        shares = [_roof(rows) for _, rows in longest]
        table = Table(("time", "of all", "of the roof", "bound by", "launches", "of", "kernel", "first at"),
                      tuple(_row(name, symbol, rows, total, *share) for ((name, symbol), rows), share in zip(
                          longest, shares, strict=True)))
        above = any(share > MOST_SHARE for share, _ in shares)
        if above:
            forget()
        found.append(Section(2, f"most expensive, of {_time(total)} in {count} launches", (table, *[ABOVE] * above)))
    on_cards, total, _ = _longest([compiled for compiled in programs if compiled.place is not None])
    return [*found, cards.expensive(on_cards, total)] if on_cards else found


def _longest(programs: Sequence[Compiled]) -> tuple[list[tuple[tuple[str, str], list[Any]]], float, int]:
    """Return the rows of the kernels that take longest, by graph and kernel; and seconds and launches of all."""
    groups: dict[tuple[str, str], list[Any]] = {}
    for compiled in programs:
        for row in compiled.executable.measure():
            groups.setdefault((compiled.graph.name, row.kernel.symbol), []).append(row)
    longest = sorted(groups.items(), key=lambda group: -sum(row.seconds for row in group[1]))
    every = [row.seconds for rows in groups.values() for row in rows]
    return longest[:SHOWN_KERNELS_ROWS], sum(every), len(every)


def _roof(rows: list[Measured]) -> tuple[float, str]:
    """Return which part of the roof some launches reach, 0 where they are too short to say, and what bounds them."""
    seconds = sum(row.seconds for row in rows)
    limits = [(row.kernel.flops / peak(row.threads, ROOF_SECONDS), row.moved / bandwidth(
        min(row.footprint, LARGEST_FOOTPRINT_BYTES), row.threads, ROOF_SECONDS)) for row in rows]
    roof, arithmetic = sum(map(max, limits)), sum(a > b for a, b in limits)
    bound = "arithmetic" if 2 * arithmetic > len(rows) else "memory"
    return roof / seconds if seconds > SHORTEST_SECONDS * len(rows) else 0.0, bound


def _row(name: str, symbol: str, rows: list[Measured], total: float, share: float, bound: str) -> tuple[str, ...]:
    seconds = sum(row.seconds for row in rows)
    cut = symbol if len(symbol) <= SYMBOL_CHARACTERS else f"{symbol[:SYMBOL_CHARACTERS]}..."
    shown = f"{share:.0%}" if 0 < share <= MOST_SHARE else "-"
    return (_time(seconds), f"{seconds / total:.0%}", shown, bound, str(len(rows)), name,
            cut, rows[0].instruction.node.where)


def _time(seconds: float) -> str:
    """Seconds for people."""
    if seconds < SHORTEST_SECONDS:
        return f"<{SHORTEST_SECONDS * 1e6:.1f} µs"
    return f"{seconds * 1e3:,.2f} ms" if seconds >= 1e-3 else f"{seconds * 1e6:,.1f} µs"
