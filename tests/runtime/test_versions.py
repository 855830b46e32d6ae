"""Classes and dictionaries that get other attributes are seen to, natively; without that, everything is looked at."""
from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from kusari.runtime import versions


class Base:
    def method(self) -> None:
        pass


class Kind(Base):
    more: int


def base_changes(own: dict[str, Any]) -> None:
    Base.method = lambda self: None


def class_grows(own: dict[str, Any]) -> None:
    Kind.more = len(own)


def entry_comes(own: dict[str, Any]) -> None:
    own["method"] = 1


@pytest.mark.parametrize("change", [base_changes, class_grows, entry_comes])
def test_changes_are_seen(change: Callable[[dict[str, Any]], None]) -> None:
    own: dict[str, Any] = {"t": 0}
    looked = versions.Versions([Kind], [own])
    assert not looked.same()
    assert Kind.method is not None  # a look-up, as there is one before each note
    looked.note()
    own["t"] += 1
    assert looked.same() is versions.KNOWN_LAYOUT
    change(own)
    assert not looked.same()


def test_unknown_layout(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(versions, "KNOWN_LAYOUT", False)
    looked = versions.Versions([Kind], [])
    looked.note()
    assert not looked.same()
