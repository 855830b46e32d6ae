"""Communicators and functions, on two, three and four ranks, and on machines of two ranks that are made believe."""
from __future__ import annotations

import pytest
import ranks


@ranks.needs_mpi
@pytest.mark.parametrize("name", ranks.names("checks_communicators"))
def test_two_ranks(name: str) -> None:
    ranks.require("checks_communicators", name)
