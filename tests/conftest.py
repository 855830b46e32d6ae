"""What every test gets: fixed seeds, a kernel cache of its own, and no settings from the user's environment."""

from __future__ import annotations

import os
import random
import tempfile

import numpy as np
import pytest

# Before kusari is imported, so that no test reads or fills the user's cache.
KEPT = {"KUSARI_ORACLE", "KUSARI_NUM_THREADS"}
for _name in [name for name in os.environ if name.startswith(("CHAINER_", "KUSARI_")) and name not in KEPT]:
    del os.environ[_name]
_CACHE = tempfile.TemporaryDirectory(prefix="kusari-test-cache-")
os.environ["KUSARI_CACHE_DIR"] = _CACHE.name
os.environ.setdefault("MPLBACKEND", "agg")


@pytest.fixture(autouse=True)
def _seeds() -> None:
    """The same random numbers in every run and in every order of the tests."""
    random.seed(0)
    np.random.seed(0)
