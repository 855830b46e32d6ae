"""Random programs with state: static equals define-by-run, whatever changes between calls."""
from __future__ import annotations

from collections import Counter

import pytest
from static.programs import check

FEW = 30
MANY = 300  # each takes about a tenth of a second
BLOCK = 30


def _check(seeds: range) -> None:
    """Check programs; most must replay, or the test says nothing."""
    verdicts = Counter(check(seed) for seed in seeds)
    assert verdicts["replays"] >= 0.5 * len(seeds), verdicts


def test_a_few() -> None:
    _check(range(FEW))


@pytest.mark.slow
@pytest.mark.parametrize("first", range(FEW, MANY, BLOCK))
def test_many(first: int) -> None:
    _check(range(first, min(first + BLOCK, MANY)))
