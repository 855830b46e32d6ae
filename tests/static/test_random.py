"""Random chains of functions and links, and programs with state that changes: static equals define-by-run."""
from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable
from typing import NamedTuple

import pytest
from static import chains, programs


class Kind(NamedTuple):
    """A kind of random code, where most must have the verdict that makes the test say something.

    Attributes:
        check: Checks that of a seed, in a tenth to a third of a second, and returns a verdict.
        verdict: The verdict that most must have.
        most: The share that must have it.
        few: The number of seeds that are always looked at.
        some: The number of seeds up to which ``make test`` begins blocks; ``make test-sweep`` has the others.
        many: The number of seeds that there are.
        block: The number of seeds of one slow test.
    """

    check: Callable[[int], str]
    verdict: str
    most: float
    few: int
    some: int
    many: int
    block: int


KINDS = {"chains": Kind(chains.check, "same", 0.9, 4, 250, int(os.environ.get("RANDOM_CHAINS", "1000")), 40),
         "programs": Kind(programs.check, "replays", 0.5, 10, 150, int(os.environ.get("RANDOM_PROGRAMS", "300")), 30)}


def _check(kind: Kind, first: int, last: int) -> None:
    verdicts = Counter(kind.check(seed) for seed in range(first, last))
    assert verdicts[kind.verdict] >= kind.most * (last - first), verdicts


@pytest.mark.parametrize("name", KINDS)
def test_a_few(name: str) -> None:
    _check(KINDS[name], 0, KINDS[name].few)


@pytest.mark.slow
@pytest.mark.parametrize(("name", "first"), [
    pytest.param(name, first, marks=[pytest.mark.sweep] * (first >= kind.some))
    for name, kind in KINDS.items() for first in range(kind.few, kind.many, kind.block)])
def test_many(name: str, first: int) -> None:
    kind = KINDS[name]
    _check(kind, first, min(first + kind.block, kind.many))
