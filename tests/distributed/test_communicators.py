"""Communicators and functions, on two, three and four ranks, and on machines of two ranks that are made believe."""
from __future__ import annotations

import mpi_ranks as ranks
import pytest


@ranks.needs_mpi
@pytest.mark.slow
@pytest.mark.parametrize("name", ranks.names("checks_communicators"))
def test_two_ranks(name: str) -> None:
    ranks.require(("checks_communicators",), name)


@ranks.needs_mpi
@pytest.mark.slow
@pytest.mark.parametrize("size", [3, 4, 5, 16])
def test_more_ranks_on_machines_of_two(size: int) -> None:
    for name in ranks.names("checks_communicators"):
        ranks.require(("checks_communicators",), name, size, KUSARI_RANKS_PER_NODE="2")
