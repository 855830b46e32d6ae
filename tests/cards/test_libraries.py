"""NVIDIA's libraries: where they are looked for, and which package brings one."""
from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from card import the_card

from kusari.backends import cuda
from kusari.runtime.card import libraries
from kusari.runtime.card.libraries import find, package

_WITHOUT_LLVM = """
import sys
from card import the_card
the_card()  # OpenCL's compiler, which is told the processor by LLVM
for name in [n for n in sys.modules if n.partition(".")[0] in ("llvmlite", "numba")]:
    del sys.modules[name]
sys.modules["llvmlite"] = sys.modules["numba"] = None  # as if they were not installed
import warnings
warnings.simplefilter("error")
import cupy_kernels
from cards.machines import machine
from cards.test_compiled import on_card
with machine("stand-in") as card:
    _, step = on_card(card, "elementwise", "whole", True)
    for i in range(4):
        cupy_kernels.launches.clear()
        step(i)
print(cupy_kernels.launches["graphs"], cupy_kernels.launches["kernels"])
"""


@pytest.fixture
def nowhere(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A machine without any, but for what the folder gets."""
    monkeypatch.setenv("CUDA_PATH", str(tmp_path))
    monkeypatch.setattr(libraries.importlib.util, "find_spec", lambda name: None)
    monkeypatch.setattr(libraries.ctypes.util, "find_library", lambda name: None)
    return tmp_path


def touch(folder: Path, *names: str) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name in names:
        (folder / name).touch()


def test_toolkits(nowhere: Path) -> None:
    touch(nowhere / "lib64", "libcudnn_ops.so.9")
    assert find("cudnn") is None
    touch(nowhere / "lib64", "libcudnn.so.9")
    assert find("cudnn", 12) == str(nowhere / "lib64" / "libcudnn.so.9")
    touch(nowhere / "lib64", "libcublasLt.so", "libcublasLt.so.12", "libcublasLt.so.13")
    assert find("cublasLt", 13) == str(nowhere / "lib64" / "libcublasLt.so.13")


@pytest.mark.parametrize("folder, major", [("cublas/lib", 12), ("cu13/lib", 13)])
def test_packages_of_cuda_12_and_13(nowhere: Path, monkeypatch: pytest.MonkeyPatch, folder: str, major: int) -> None:
    class Spec:
        submodule_search_locations = (str(nowhere / "nvidia"),)
    monkeypatch.setattr(libraries.importlib.util, "find_spec", lambda name: Spec if name == "nvidia" else None)
    touch(nowhere / "nvidia/cublas/lib", "libcublas.so.12", "libcublasLt.so.12")
    touch(nowhere / "nvidia/cu13/lib", "libcublas.so.13", "libcublasLt.so.13")
    touch(nowhere / "lib64", f"libcublasLt.so.{major}", "libcublasLt.so.14")  # of a toolkit
    assert find("cublasLt", 14) == str(nowhere / "lib64" / "libcublasLt.so.14")
    assert find("cublasLt", major) == str(nowhere / "nvidia" / folder / f"libcublasLt.so.{major}")


def test_none_is_loaded_where_there_is_none(nowhere: Path) -> None:
    assert libraries.loaded("nothingSuch", 12) is None
    touch(nowhere / "lib64", "libnothingSuch.so.12")
    with pytest.raises(OSError):
        libraries.loaded("nothingSuch", 12)


def test_names_of_packages() -> None:
    assert [package(name, major) for name in ("nvidia-cublas", "nvidia-cudnn") for major in (12, 13)] == [
        "nvidia-cublas-cu12", "nvidia-cublas", "nvidia-cudnn-cu12", "nvidia-cudnn-cu13"]


@pytest.mark.slow
def test_a_card_needs_no_llvm() -> None:
    if cuda.available:
        pytest.skip("of the stand-in")
    the_card()  # skips where there is no OpenCL
    done = subprocess.run([sys.executable, "-c", _WITHOUT_LLVM], cwd=Path(__file__).parents[1], capture_output=True,
                          text=True, check=False)
    assert done.stdout == "1 0\n", done.stderr
