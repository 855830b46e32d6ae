"""Reports on programs of a card: launches, bytes, and the time of each kernel between two events."""
from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ...explanation import Section, Table
from ..compile.memory import megabytes

if TYPE_CHECKING:
    from ..compile.compile import Compiled


def line(compiled: Compiled) -> str:
    """Return the line on one program: launches, kernels, calls of libraries, and bytes of the card's memory."""
    report, place = compiled.executable.report, compiled.place
    calls = "".join(f", {count} calls of {library}" for library, count in report.calls.items())
    python = f" and {report.python_instructions} rows of Python" if report.python_instructions else ""
    graphs = "as CUDA graphs" if compiled.executable.graphs else " ".join(["one by one", report.uncaptured]).strip()
    return (f"compiled: {compiled.graph.name}, {report.launches - report.calls.total()} launches of {report.kernels} "
            f"kernels{calls}{python} on {place}, {graphs}, {megabytes(report.frame_bytes)} of its memory for a call")


def refused(compiled: Compiled) -> list[str]:
    """Return why products and convolutions are not computed by a library: how many for which reason."""
    return [f"{count} {kind} by kernels of Kusari's own: {reason}"
            for (kind, reason), count in compiled.executable.report.refused.items()]


def plan(compiled: Compiled) -> list[str]:
    """Return lines on the memory and the work of one program."""
    report = compiled.executable.report
    guarded = f"{report.guarded} launches change state only if all indices are in bounds" if report.guarded else ""
    return [f"{compiled.place}: a frame is one buffer of {report.frame_bytes:,} bytes: the arena, "
            f"{report.scratch_bytes:,} bytes that kernels of one node leave to each other, reports of gathers, "
            "tables of addresses",
            f"{report.const_bytes:,} bytes of constants, which all frames read",
            f"a run moves {report.moved_bytes:,} bytes and makes {report.flops:,} operations of products by count",
            *[guarded] * bool(guarded), *refused(compiled)]


def expensive(longest: Sequence[tuple[tuple[str, str], list[Any]]], total: float) -> Section:
    """Return a table of the kernels that take longest, each run alone, timed by events of the card."""
    rows = [(f"{(seconds := sum(r.seconds for r in found)) * 1e6:,.1f} µs", f"{seconds / total:.0%}",
             f"{sum(r.moved for r in found) / seconds / 1e9:,.0f} GB/s", str(len(found)), name, symbol,
             found[0].instruction.node.where) for (name, symbol), found in longest]
    table = Table(("time", "of all", "moves", "launches", "of", "kernel", "first at"), tuple(rows))
    return Section(2, f"most expensive on the card, of {total * 1e6:,.1f} µs", (table,))
