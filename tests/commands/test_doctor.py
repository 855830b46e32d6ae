"""``python -m kusari doctor``: with a card (the stand-in's), without, and where the core is broken."""
from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from cupy_double import cupy

import kusari
from kusari.backends import cuda
from kusari.commands import doctor, main

LINES = 24  # of a screen


def report(capsys: pytest.CaptureFixture[str]) -> tuple[int, str]:
    code = main(["doctor"])
    out = capsys.readouterr().out
    assert len(out.splitlines()) <= LINES
    assert all(len(line) <= doctor.WIDTH or "/" in line for line in out.splitlines())  # paths are not broken
    return code, out


@pytest.mark.skipif(cuda.available, reason="there is a card")
def test_without_a_card(capsys: pytest.CaptureFixture[str]) -> None:
    code, out = report(capsys)
    assert code == 0 and out.endswith("The core works.\n")
    assert f"kusari        {kusari.__version__}" in out
    for words in (r"  numpy +\d+\.\d+", r"  processor +\S+: .* of \d+ cores", r"compiled and ran a small function in",
                  r"can be written, \d+ files",
                  r"- CuPy +not installed: no graphics cards \(pip install 'kusari\[gpu\]'"):
        assert re.search(words, out), words


def test_with_cards(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    found = {"nvrtc": "/opt/libnvrtc.so.12", "cublasLt": None, "cudnn": "/opt/libcudnn.so.9", "nccl": None}
    monkeypatch.setattr(doctor, "library", lambda stem, major: found[stem])
    with cupy(2):
        code, out = report(capsys)
    assert code == 0
    for words in (r"  CuPy +14\.\S+, CUDA 12\.9, driver for CUDA up to 13\.0",
                  r"  card 0 +Stand-in, sm_90, 3\.0 of 4\.0 GiB free, runs kernels", r"  card 1 +Stand-in",
                  r"  NVRTC .*/opt/libnvrtc", r"- cuBLASLt +not found \(pip install nvidia-cublas-cu12\)",
                  r"- cuDNN .*libcudnn.so.9, without its frontend \(pip install 'kusari\[cudnn\]'\)",
                  r"- NCCL +not found \(pip install nvidia-nccl-cu12"):
        assert re.search(words, out), words


def test_a_card_that_fails_and_none_behind_cupy(capsys: pytest.CaptureFixture[str], monkeypatch: Any) -> None:
    def fail(*args: Any) -> Any:
        raise RuntimeError("cudaErrorNoDevice: no CUDA-capable device is detected")
    with cupy() as module:
        with monkeypatch.context() as patch:
            patch.setattr(module, "arange", fail, raising=False)
            assert ", but a kernel failed: RuntimeError: cudaErrorNoDevice" in re.sub(r"\s+", " ", report(capsys)[1])
        monkeypatch.setattr(module.cuda.runtime, "getDeviceCount", fail)
        code, out = report(capsys)
        out = re.sub(r"\s+", " ", out)
        assert code == 0 and "but there is no card: cudaErrorNoDevice" in out and "nvidia-smi" in out


@pytest.mark.parametrize(("name", "value", "words"), [
    ("version", lambda package: None if package == "numba" else "1.0", r"! numba +not installed \(pip install numba\)"),
    ("trial", lambda: doctor.Finding("compiler", "a small function failed: X", broken=True), r"! compiler +a small"),
])
def test_a_broken_core(name: str, value: Any, words: str, capsys: pytest.CaptureFixture[str], monkeypatch: Any) -> None:
    monkeypatch.setattr(doctor, name, value)
    code, out = report(capsys)
    assert code == 1 and re.search(words, out) and out.splitlines()[-1].startswith("The core does not work: see ")


def test_a_compiler_that_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kusari.functions, "relu", lambda x: 1 / 0)
    found = doctor.trial()
    assert found.broken and "ZeroDivisionError" in found.found


def test_a_cache_that_cannot_be_written(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("KUSARI_CACHE_DIR", str(tmp_path / "file"))
    found = doctor.cache()
    assert "cannot be written: Not a directory" in found.found and found.remedy and not found.broken
    monkeypatch.setenv("KUSARI_CACHE", "0")
    assert "turned off" in doctor.cache().found
