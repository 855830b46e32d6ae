"""Fixtures: a machine with a card, and one with two."""
from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from cards.machines import KINDS, Machine, machine

_PARAMS: list[Any] = [pytest.param(kind, marks=pytest.mark.gpu) if kind == "cuda" else kind for kind in KINDS]


@pytest.fixture(params=_PARAMS)
def card(request: pytest.FixtureRequest) -> Iterator[Machine]:
    """A machine with one card."""
    with machine(request.param) as found:
        yield found


@pytest.fixture(params=_PARAMS)
def two_cards(request: pytest.FixtureRequest) -> Iterator[Machine]:
    """A machine with two cards."""
    with machine(request.param, 2) as found:
        if found.xp.cuda.runtime.getDeviceCount() < 2:
            pytest.skip("needs two cards")
        yield found
