"""``import kusari`` is light: nothing that takes long to import comes with it."""

from __future__ import annotations

import subprocess
import sys

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


def test_import_alone_brings_no_compressors() -> None:
    program = "import sys, numpy, kusari; print('lzma' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"
