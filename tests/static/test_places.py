"""Where a call is not static: the user's line, also where an installed package was called."""
from __future__ import annotations

import re
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import kusari
import kusari.functions as F

PACKAGE = """
def memory(x):
    return x.strides
"""


@pytest.mark.parametrize("folder, places", [
    ("site-packages", r"site-packages/given\.py:3, in memory, called from .*test_places\.py:\d+, in body: \.strides"),
    ("elsewhere", r"elsewhere/given\.py:3, in memory: \.strides"),
])
def test_installed_packages_are_named_with_their_callers(
        tmp_path: Path, monkeypatch: pytest.MonkeyPatch, folder: str, places: str) -> None:
    (tmp_path / folder).mkdir()
    (tmp_path / folder / "given.py").write_text(PACKAGE)
    monkeypatch.syspath_prepend(tmp_path / folder)
    monkeypatch.delitem(__import__("sys").modules, "given", raising=False)
    given: Any = __import__("given")

    @kusari.static_graph
    def body(x: Any) -> Any:
        return F.exp(x) * given.memory(x)[0]
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        body(np.ones((2, 3), "f"))
    assert len(caught) == 1 and re.search(places, str(caught[0].message)), [str(w.message) for w in caught]
