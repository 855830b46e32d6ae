"""The survey's models in tiny sizes: every way to run them, and every peer that is installed, computes the same."""

from __future__ import annotations

import importlib
import importlib.util
from pathlib import Path
from typing import Any

import pytest

BENCHMARKS = Path(__file__).resolve().parents[2] / "benchmarks"
NAMES = ("wide_mlp", "batch_norm_mlp", "autoencoder", "actor_critic", "dqn", "siamese", "conv3d", "mobilenet",
         "densenet", "unet", "wavenet", "gpt", "bilstm", "seq2seq", "ctc", "dlrm")
QUICK = "actor_critic"
STEPS = 3


@pytest.fixture
def peers(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Modules of ``benchmarks/peers``, by name."""
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    return lambda name: importlib.import_module(f"peers.{name}")


def values(peer: Any, case: Any) -> list[float]:
    step, value = peer.build(case)
    return [value(i, step(i)) for i in range(STEPS)]


@pytest.mark.parametrize("name", [n if n == QUICK else pytest.param(n, marks=pytest.mark.slow) for n in NAMES])
def test_all_compute_the_same(name: str, tmp_path: Path, peers: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("onnxruntime")
    ours, case = peers("on_kusari"), peers("case")
    ours.prepare(name, tmp_path, "tiny")
    for phase, variants in (("train", ("static step", "whole step")), ("infer", ("static",))):
        expected = values(ours, case.load(name, phase, "eager", 1, tmp_path))
        assert all(v == v for v in expected) and any(expected), "numbers that can be compared"
        for variant in variants:
            found = values(ours, case.load(name, phase, variant, 1, tmp_path))
            assert found == pytest.approx(expected, rel=1e-4), variant
        for library in ("torch", "onnxruntime"):
            if (library, phase) == ("onnxruntime", "train") or importlib.util.find_spec(library) is None:
                continue
            peer = peers("on_" + library)
            if library == "onnxruntime":
                monkeypatch.setattr(peer, "_session", [])  # which a process of its own would have
            found = values(peer, case.load(name, phase, "eager", 1, tmp_path))
            assert found == pytest.approx(expected, rel=1e-4), library


def test_the_survey_is_whole(peers: Any) -> None:
    assert tuple(peers("survey_sequences").SURVEY) == NAMES
