"""The examples in the docstrings run, in every module of every layer."""

from __future__ import annotations

import doctest
import importlib
from pathlib import Path

import numpy as np
import pytest

ROOT = Path(__file__).resolve().parents[2]
LAYERS = {"frontend": "kusari", "ir": "kusari.ir", "passes": "kusari.passes", "codegen": "kusari.codegen"}
LAYERS["runtime"] = "kusari.runtime"
FLAGS = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE


def modules_with_examples() -> list[str]:
    """Found by text, so that collecting the tests imports nothing."""
    names = []
    for folder, package in LAYERS.items():
        for file in sorted((ROOT / folder).rglob("*.py")):
            if ">>> " in file.read_text(encoding="utf-8"):
                path = file.parent if file.name == "__init__.py" else file.with_suffix("")
                names.append(".".join((package, *path.relative_to(ROOT / folder).parts)))
    return names


@pytest.mark.parametrize("name", modules_with_examples())
def test_examples(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if name.startswith("kusari.onnx."):
        pytest.importorskip("onnxruntime")
    monkeypatch.chdir(tmp_path)
    np.random.seed(0)
    module = importlib.import_module(name)
    import kusari
    import kusari.functions as F
    import kusari.links as L

    names = {"np": np, "kusari": kusari, "F": F, "L": L, **vars(module)}
    failed, tried = doctest.testmod(module, globs=names, optionflags=FLAGS)
    assert tried and not failed
