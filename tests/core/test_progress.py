"""Work that takes long shows how far it is: as a bar on a terminal, as lines elsewhere, and not at all if told so."""
from __future__ import annotations

import io
import time

import pytest

from kusari.progress import Work, current, listeners


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def shown(file: io.StringIO, patience: float, work: float = 0.0) -> str:
    with Work("compiling", "loss", file, patience) as outer:
        outer.step("1 of 4 kernels", 0.25)
        with Work("loading", "inner", file, patience):  # which is not shown
            deadline = time.monotonic() + work
            while time.monotonic() < deadline and not file.getvalue():
                time.sleep(0.001)
    assert current() is None
    return file.getvalue()


@pytest.mark.parametrize(("file", "expected"), [
    (Terminal(), "\r\x1b[K" + "━" * 6 + "─" * 18 + " compiling loss, 0 s: 1 of 4 kernels"),
    (io.StringIO(), "compiling loss, 0 s: 1 of 4 kernels\n")])
def test_long_work(file: io.StringIO, expected: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("KUSARI_PROGRESS")
    found = shown(file, 0.1, 10)
    assert found.startswith(expected) and "inner" not in found
    assert found.endswith("\r\x1b[K" if file.isatty() else "\n")


def test_short_work_shows_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("KUSARI_PROGRESS")
    assert shown(Terminal(), 100) == ""


def test_it_can_be_switched_off() -> None:
    assert shown(Terminal(), 0.0, 0.05) == ""


def test_a_file_that_is_closed_is_no_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("KUSARI_PROGRESS")
    file = io.StringIO()
    with Work("exporting", "model", file, 0.0):
        file.close()


def test_listeners_hear_of_all_work() -> None:
    heard: list[tuple[str, str]] = []
    listeners.append(listener := lambda kind, name, begin, end: heard.append((kind, name)))
    try:
        shown(io.StringIO(), 100)
    finally:
        listeners.remove(listener)
    assert heard == [("loading", "inner"), ("compiling", "loss")]
