"""Kernel texts are the same in every process, and ``tools/replay_texts.py`` finds the ones that differ."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

TOOL = Path(__file__).resolve().parents[2] / "tools" / "replay_texts.py"


def replay(*arguments: str, seed: str = "0") -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, str(TOOL), *arguments], capture_output=True, text=True, timeout=600,
                          env={**os.environ, "PYTHONHASHSEED": seed})


@pytest.mark.slow
def test_texts_are_equal_until_one_is_changed(tmp_path: Path) -> None:
    before, after = tmp_path / "before", tmp_path / "after"
    for seed, folder in enumerate((before, after)):
        done = replay("write", str(folder), "mushroom_mlp", seed=str(seed))
        assert done.returncode == 0, done.stderr
    same = replay("diff", str(before), str(after))
    assert same.returncode == 0 and " 0 changed, 0 gone, 0 new" in same.stdout, same.stdout
    assert {folder.name for folder in before.iterdir()} == {"avx512", "avx2", "sse", "neon"}
    first, second = sorted(after.rglob("*.ll"))[:2]
    first.write_text(first.read_text("utf-8").replace("entry:", "start:"), "utf-8")
    second.unlink()
    other = replay("diff", str(before), str(after))
    assert other.returncode == 1 and " 1 changed, 1 gone, 0 new" in other.stdout
    assert "-entry:\n+start:" in other.stdout and f"gone: avx2/{second.name}" in other.stdout
