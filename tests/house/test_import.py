"""``import kusari`` is light: nothing that takes long to import comes with it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

HEAVY = "numba llvmlite onnx onnxruntime cupy matplotlib networkx scipy sklearn mlxtend PIL argparse".split()
HEAVY += ["kusari.passes", "kusari.codegen", "kusari.runtime", "kusari.compat", "kusari.compat_modules"]
PROGRAM = f"""
import sys, time
import numpy
start = time.perf_counter()
import kusari, kusari.functions, kusari.links
took = time.perf_counter() - start
print([name for name in {HEAVY} if name in sys.modules])
print(f"import kusari: {{took * 1e3:.0f}} ms", file=sys.stderr)
"""


def test_import_brings_nothing_heavy() -> None:
    done = subprocess.run([sys.executable, "-W", "error", "-c", PROGRAM], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == "[]"
    print(done.stderr.strip())


@pytest.mark.slow
def test_python_may_run_in_the_folder_above_a_clone(tmp_path: Path) -> None:
    """The clone, called kusari, would be an empty package there; ``-S``: no other one is found."""
    (tmp_path / "kusari").symlink_to(Path(__file__).parents[2], target_is_directory=True)
    program = f"""
import sys
sys.path += {sys.path!r}
import numpy as np, kusari, kusari.functions as F
f = kusari.static_graph(lambda x: F.relu(x) * 2)
print(kusari.__file__, [float(f(np.ones(1, "f")).array[0]) for _ in range(3)])
"""
    done = subprocess.run([sys.executable, "-S", "-c", program], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == f"{tmp_path / 'kusari' / 'frontend' / '__init__.py'} [2.0, 2.0, 2.0]"


def test_import_alone_brings_no_compressors() -> None:
    program = "import sys, numpy, kusari; print('lzma' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"
