"""Without the extra ``onnx`` tests that need it are skipped; no other test module imports it."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

TESTS = Path(__file__).resolve().parents[1]
HIDE = """
import sys

class Hide:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ("onnx", "onnxruntime"):
            raise ModuleNotFoundError(name)

sys.meta_path.insert(0, Hide())
"""


@pytest.mark.slow
def test_modules_that_need_onnx_are_skipped(tmp_path: Path) -> None:
    import_it = {f.relative_to(TESTS) for f in TESTS.rglob("test_*.py")
                 if re.search(r"^(import|from) onnx|importorskip\(\"onnx\"", f.read_text(encoding="utf-8"), re.M)}
    other = {f for f in import_it if f.parts[0] != "onnx"}
    (tmp_path / "hide.py").write_text(HIDE)
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "hide", "--collect-only", "--disable-plugin-autoload", "onnx",
         *map(str, other)], cwd=TESTS, capture_output=True, text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")])})
    assert len(import_it) > 10 and "no tests collected" in done.stdout and "rror" not in done.stdout, done.stdout
