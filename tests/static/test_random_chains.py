"""Random chains of functions and links, through the whole pipeline: static equals define-by-run."""
from __future__ import annotations

import os
from collections import Counter

import pytest
from static.chains import check

FEW = 4
MANY = int(os.environ.get("RANDOM_CHAINS", "2500"))  # each takes about a tenth of a second
BLOCK = 100


def _check(seeds: range) -> None:
    """Check chains; most must be comparable, or the test says nothing."""
    verdicts = Counter(check(seed) for seed in seeds)
    assert verdicts["same"] >= 0.9 * len(seeds), verdicts


def test_a_few() -> None:
    _check(range(FEW))


@pytest.mark.slow
@pytest.mark.parametrize("first", range(FEW, MANY, BLOCK))
def test_many(first: int) -> None:
    _check(range(first, min(first + BLOCK, MANY)))
