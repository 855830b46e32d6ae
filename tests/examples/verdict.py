"""The verdict on a row: whether the example works here and on Chainer, and how far the printed numbers agree."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from examples.rows import Row
from examples.running import Done, numbers

DECIMAL = re.compile(r"(?<![\w.])[-+]?(?:\d+\.\d*(?:e[-+]?\d+)?|\d+e[-+]?\d+|nan\b)(?![\w.])", re.IGNORECASE)
LETTERS = 120  # of a message
ERROR = re.compile(r"(\w+\.)*\w*(Error|Exception|InvalidType)\b")


@dataclass(frozen=True)
class Verdict:
    """The end of a row.

    Attributes:
        works: whether it worked on Kusari.
        expected: whether all that the `Row` says of it held.
        text: a short phrase.
    """

    works: bool
    expected: bool
    text: str


def ends(lines: Sequence[str]) -> str:
    """The first and the last number with a decimal point."""
    found = DECIMAL.findall("\n".join(lines))
    return f"{found[0]} … {found[-1]}" if found else "–"


def difference(given: Sequence[float], expected: Sequence[float]) -> float:
    """The least relative tolerance, which serves as the absolute one too, within which the numbers are equal."""
    ours, theirs = np.array(given), np.array(expected)
    same = (ours == theirs) | (np.isnan(ours) & np.isnan(theirs))
    with np.errstate(invalid="ignore"):
        apart = np.where(same, 0, abs(ours - theirs) / (1 + abs(theirs)))
    return float(np.where(np.isnan(apart), np.inf, apart).max(initial=0))


def _message(errors: str) -> str:
    own = errors.split("\nkusari.distributed: ")[0]  # what else it prints tells how the other ranks were ended
    lines = [line.strip() for line in own.splitlines() if line.strip()] or ["no message"]
    at = max((i for i, line in enumerate(lines) if ERROR.match(line)), default=len(lines) - 1)
    return " ".join(lines[at:])[:LETTERS]


def judge(row: Row, ours: Done, theirs: Done | None, numpy: tuple[int, ...]) -> Verdict:
    """Compare the ends of a row's processes.

    Args:
        row: the row.
        ours: Kusari's end.
        theirs: Chainer's end; None where Chainer was not asked.
        numpy: the version of NumPy that Kusari ran with.
    """
    works = ours.code == 0
    fails = row.fails if numpy >= row.numpy else ""
    expected = (not works and fails in ours.errors) if fails else works
    if theirs is not None:
        expected &= (theirs.code == 0) == row.chainer
    if not works:
        there = "" if theirs is None else "; works there" if theirs.code == 0 else ", there too"
        return Verdict(False, expected, f"fails{there}: `{_message(ours.errors)}`")
    if theirs is None:
        return Verdict(True, expected, "works; not run on Chainer")
    if theirs.code:
        return Verdict(True, expected, f"works; fails on Chainer: `{_message(theirs.errors)}`")
    given, wanted = numbers(ours.printed), numbers(theirs.printed)
    if len(given) != len(wanted):
        text = f"works; prints {len(given)} numbers, Chainer {len(wanted)}"
        return Verdict(True, expected and row.tolerance is None, text)
    apart = difference(given, wanted)
    agree = "equal" if not apart else "equal to rounding" if apart < 1e-4 else f"within {apart:.1g}"
    if row.tolerance is None and apart and sorted(given) == sorted(wanted):
        agree = "equal in another order"
    text = f"works; {len(given)} numbers, {agree}" if given else "works; prints no numbers"
    return Verdict(True, expected and (row.tolerance is None or apart <= row.tolerance), text)
