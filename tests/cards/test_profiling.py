"""Hooks that measure and name what a card does, and the benchmark's worker on one."""
from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from cards.machines import Machine

import kusari
import kusari.functions as F
from kusari.commands import bench, main, worker
from kusari.function_hooks import CUDAProfileHook, CupyMemoryProfileHook, TimerHook

A = np.arange(6, dtype=np.float32).reshape(2, 3)


def test_ranges_have_names_and_lines(card: Machine) -> None:
    x = kusari.Variable(card.xp.asarray(A))
    if card.simulated:
        card.xp.cuda.nvtx.log.clear()
    with CUDAProfileHook():
        y = F.sum(F.relu(x))  # the line
        y.backward()
    if card.simulated:
        log, line = card.xp.cuda.nvtx.log, test_ranges_have_names_and_lines.__code__.co_firstlineno + 5
        names = [name.replace(str(line), "LINE") for name in log if name]
        wanted = [f"{name} test_profiling.py:LINE" for name in ("ReLU.forward", "Sum.forward", "Sum.backward",
                                                                "ReLU.backward")]
        assert [name for name in names if name in wanted] == wanted
        assert len(names) == log.count("")  # each is closed


def test_hooks_measure(card: Machine) -> None:
    x = kusari.Variable(card.xp.asarray(A))
    with TimerHook() as timer, CupyMemoryProfileHook() as memory:
        F.sum(F.exp(x)).backward()
    assert timer.total_time() >= 0 and {"Exp", "Sum"} <= set(timer.summary())
    assert {name for name, *_ in memory.call_history} >= {"Exp", "Sum"}


@pytest.mark.parametrize(("mode", "phase"), [("eager", "train"), ("eager", "infer")])
def test_a_measurement_on_a_card(mode: str, phase: str, card: Machine, capsys: pytest.CaptureFixture[str]) -> None:
    assert worker.main(["mushroom_mlp", mode, phase, "0.01", "@cupy:0"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["steps"] >= 5 and found["step_ms"] > 0 and found["peak_mb"] >= 0


def test_the_place_of_a_benchmark(card: Machine) -> None:
    assert [bench.place(text) for text in ("cpu", "cuda", "cuda:0", "@cupy:0")] == ["@numpy", *["@cupy:0"] * 3]
    assert "CuPy" in bench.machine(None, "@cupy:0")
    with pytest.raises(bench.CommandError, match="--device cuda:99: there is no card 99"):
        bench.place("cuda:99")


@pytest.mark.skipif(kusari.backends.cuda.available, reason="there is a card")
def test_a_benchmark_without_a_card_names_the_extra(capsys: pytest.CaptureFixture[Any]) -> None:
    assert main(["bench", "--device", "cuda:0"]) == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1 and "pip install 'kusari[gpu]'" in error
    assert main(["bench", "--device", "disk"]) == 2
    assert "expected cpu, or cuda:0" in capsys.readouterr().err
