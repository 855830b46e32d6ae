"""A loader without a disk cache, and one with a cache of its own."""

from __future__ import annotations

from pathlib import Path

import pytest

from kusari.runtime import Loader, ObjectCache


@pytest.fixture
def loader() -> Loader:
    return Loader(ObjectCache(None))


@pytest.fixture
def cache(tmp_path: Path) -> ObjectCache:
    return ObjectCache(tmp_path / "kernels")
