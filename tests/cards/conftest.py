"""Fixtures: a machine with a card, one with two, and one with cuBLASLt."""
from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from cards.machines import KINDS, Machine, machine
from cublaslt_double import CublasLt, cublaslt

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


@pytest.fixture
def blas(card: Machine) -> Iterator[CublasLt]:
    """The library beside the stand-in for CuPy."""
    if not card.simulated:
        pytest.skip("the libraries are doubles, for the stand-in alone")
    with cublaslt() as found:
        yield found
