"""What every test gets: fixed seeds, a kernel cache of its own, kusari's settings as they are by default."""

from __future__ import annotations

import os
import random
import tempfile
from collections.abc import Iterator

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


@pytest.fixture(autouse=True)
def _settings() -> Iterator[None]:
    """Put back what a test changes in ``kusari.config`` and ``kusari.global_config``."""
    from kusari.configuration import config, global_config

    before, local = dict(vars(global_config)), dict(vars(config))
    yield
    vars(config).clear()
    vars(config).update(local)
    for name in vars(global_config).keys() - before.keys():
        delattr(global_config, name)
    for name, value in before.items():
        if vars(global_config)[name] is not value:
            setattr(global_config, name, value)
