"""The verdicts on Chainer's examples: failures and other numbers are seen, and the page has all rows."""

from __future__ import annotations

from pathlib import Path

import pytest
from examples.rows import ROWS, Row
from examples.running import Done, numbers, printed_lines
from examples.verdict import difference, ends, judge

PAGE = Path(__file__).resolve().parents[2] / "docs" / "chainer_examples.md"
ROW = Row("one", (), tolerance=1e-3)
BROKEN = Row("two", (), fails="reset", chainer=False)
OLD = Row("three", (), fails="int()", numpy=(2, 4))
GOOD = Done(["1 0.5"], 0, "")


def failed(message: str) -> Done:
    return Done([], 1, f"Traceback …\nAttributeError: {message}\n")


@pytest.mark.parametrize(("row", "ours", "theirs", "expected", "text"), [
    (ROW, GOOD, GOOD, True, "works; 2 numbers, equal"),
    (ROW, Done(["1 0.5001"], 0, ""), GOOD, True, "works; 2 numbers, equal to rounding"),
    (ROW, Done(["1 0.51"], 0, ""), GOOD, False, "works; 2 numbers, within 0.007"),
    (Row("any", (), tolerance=None), Done(["0.5 1"], 0, ""), GOOD, True, "works; 2 numbers, equal in another order"),
    (ROW, Done(["1 nan"], 0, ""), GOOD, False, "works; 2 numbers, within inf"),
    (ROW, Done(["1"], 0, ""), GOOD, False, "works; prints 1 numbers, Chainer 2"),
    (ROW, GOOD, failed("x"), False, "works; fails on Chainer: `AttributeError: x`"),
    (ROW, failed("reset"), GOOD, False, "fails; works there: `AttributeError: reset`"),
    (BROKEN, failed("reset"), failed("x"), True, "fails, there too: `AttributeError: reset`"),
    (BROKEN, failed("y"), failed("x"), False, "fails, there too: `AttributeError: y`"),
    (BROKEN, GOOD, failed("x"), False, "works; fails on Chainer: `AttributeError: x`"),
    (OLD, failed("int()"), GOOD, True, "fails; works there: `AttributeError: int()`"),
    (OLD, GOOD, GOOD, False, "works; 2 numbers, equal"),
])
def test_verdicts(row: Row, ours: Done, theirs: Done, expected: bool, text: str) -> None:
    verdict = judge(row, ours, theirs, (2, 4))
    assert (verdict.expected, verdict.text) == (expected, text)


def test_an_error_of_newer_numpy_is_none_before_it() -> None:
    assert judge(OLD, GOOD, GOOD, (2, 3)).expected and not judge(OLD, failed("int()"), GOOD, (2, 3)).expected


def test_numbers_are_compared_by_their_values() -> None:
    assert difference([1.0, float("nan"), float("inf")], [1.0, float("nan"), float("inf")]) == 0
    assert difference([2.0], [2.3]) == pytest.approx(0.3 / 3.3)


def test_first_and_last_numbers_have_a_point() -> None:
    assert ends(["epoch 1 0.25", "7.8.1 12", "3 1e-05 nan 4"]) == "0.25 … nan"
    assert ends(["3 4"]) == "–"


def test_the_page_has_each_row_once() -> None:
    lines = PAGE.read_text(encoding="utf-8").splitlines()
    names = [line.split("|")[1].strip() for line in lines if line.startswith("|")][2:]
    assert names == [row.name for row in ROWS]


def test_seconds_and_dates_are_not_printed_numbers() -> None:
    text = "loss=0.5, elapsed_time=3.25\nread. 0.01 [s]\n2020-01-02 03:04:05.6 a 7\nepoch  elapsed_time\n1      2.5\n"
    assert numbers(list(printed_lines(text))) == [0.5, 7, 1]
