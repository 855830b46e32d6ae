"""``benchmarks/gpu.py``: what it runs in which time, what it writes, and what it says it has not run."""
from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from cupy_double import cupy

from kusari.backends import cuda

BENCHMARKS = Path(__file__).resolve().parents[2] / "benchmarks"


@pytest.fixture(scope="module")
def gpu() -> Any:
    sys.path.insert(0, str(BENCHMARKS))
    try:
        spec = importlib.util.spec_from_file_location("benchmarks_gpu", BENCHMARKS / "gpu.py")
        assert spec is not None and spec.loader is not None
        made = sys.modules[spec.name] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(made)
        yield made
    finally:
        sys.path.remove(str(BENCHMARKS))


class Clock:
    """Time that passes by what is run."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


class Machine:
    """Runs nothing, takes time and prints what real processes would."""

    def __init__(self, clock: Clock, seconds: dict[str, float], problems: dict[str, str] | None = None) -> None:
        self.clock, self.seconds, self.problems = clock, seconds, problems or {}
        self.done: list[str] = []

    def __call__(self, command: list[str], seconds: float) -> tuple[str, str | None]:
        kind = "tests" if "pytest" in command else command[2]
        name = " ".join([kind, *command[3:5]]) if kind == "card" else kind
        self.done.append(name)
        takes = next((s for k, s in self.seconds.items() if name.startswith(k)), 1.0)
        self.clock.now += min(takes, seconds)
        stopped = f"stopped after {seconds:.0f} s" if takes > seconds else None
        problem = next((p for k, p in self.problems.items() if name.startswith(k)), stopped)
        if kind == "tests":
            text = ("tests/cards/a.py::test_x[cuda-a b] PASSED [ 1%]\ntests/cards/a.py::test_y FAILED\n"
                    "because tests/cards/a.py::test_y :: ValueError: 3 (a.py:7)\n"
                    "tests/cards/a.py::test_z SKIPPED (why)\n"
                    if "fails" in self.problems else "tests/cards/a.py::test_x[cuda] PASSED\n")
            if "fails" in self.problems:
                problem = "exit status 1"
            return text if problem and "stopped" in problem else text + "==== 1 passed in 3.41s ====", problem
        if kind == "prepare" or problem is not None:
            return "", problem
        library, model, variants = command[3], command[4], command[9:]
        lines: list[str] = []
        for variant in variants:
            phase, _, rest = variant.partition(":")
            facts: dict[str, Any] = dict(kind="step", model=model, phase=phase, library=library, variant=rest)
            if library == "jax" and phase == "infer":
                lines.append(json.dumps({**facts, "error": "RuntimeError: out of memory"}))
                continue
            lines += [json.dumps({**facts, "round": i, "step_ms": 2.0 if library == "kusari" else 3.0, "first_s": 0.5,
                                  "values": [1.0], "others": 0.0, "disturbed": False, "version": "1", "threads": "-"})
                      for i in range(3)]
        return "\n".join(["noise", *lines]), None


def reported(gpu: Any, tmp_path: Path, *arguments: str, seconds: dict[str, float] | None = None,
             problems: dict[str, str] | None = None, has: Any = lambda name: True) -> tuple[int, str, Machine]:
    clock = Clock()
    machine = Machine(clock, seconds or {}, problems)
    out = tmp_path / "gpu.md"
    with cupy():
        code = gpu.main([*arguments, "--out", str(out)], machine, has, clock)
    return code, out.read_text(), machine


def test_a_whole_report(gpu: Any, tmp_path: Path) -> None:
    code, text, machine = reported(gpu, tmp_path, "mnist_mlp", "gpt")
    assert code == 0
    assert machine.done == [*["tests"] * 4, "prepare", "card kusari mnist_mlp", "card torch mnist_mlp",
                            "card jax mnist_mlp", "card torch mnist_mlp", "prepare", "card kusari gpt",
                            "card torch gpt", "card torch gpt"]
    assert "Compiled functions call no cuBLASLt (cuBLASLt was not found (pip install nvidia-cublas-cu12)) and" in text
    assert "Stand-in (sm_90, 4 GiB), CUDA 12090" in text and "Marked `gpu`: 4 passed." in text
    assert "| mnist_mlp | train | kusari eager " in text and "**1.50** (1.50–1.50)" in text
    assert "- jax on mnist_mlp, infer:jit: `RuntimeError: out of memory`" in text
    assert text.rstrip().endswith("- jax on the survey: these models are not written for it")


def test_failures_are_named(gpu: Any, tmp_path: Path) -> None:
    code, text, _ = reported(gpu, tmp_path, "mnist_mlp", problems={"fails": ""})
    assert code == 1 and "Marked `gpu`: 4 passed, 4 failed, 4 skipped." in text
    assert text.count("- `tests/cards/a.py::test_y`: ValueError: 3 (a.py:7)\n") == 4 and "the tests of" not in text


def test_it_stops_in_time_and_says_what_is_missing(gpu: Any, tmp_path: Path) -> None:
    """Tests get their share, no worker more than its limit, and at nine minutes all is over."""
    code, text, machine = reported(gpu, tmp_path, seconds={"tests": 1000, "card kusari": 100, "card torch": 1000})
    assert code == 1 and machine.clock.now <= 9 * 60
    assert "Marked `gpu`: 4 passed, not to their end." in text
    assert "- the tests of whole models after 1 of them: stopped after 75 s" in text
    assert "- torch on elementwise, train:eager: stopped after 120 s" in text
    assert "- torch on resnet18 (train:compile, train:compile step, infer:compile): the time was over" in text
    at = [text.index(f"- kusari on {name} (") for name in ("resnet18", "mushroom_mlp", "gpt")]
    assert at == sorted(at)
    assert text.count("the time was over\n") > 40


def test_what_is_not_installed_and_what_fails(gpu: Any, tmp_path: Path) -> None:
    code, text, machine = reported(gpu, tmp_path, "mnist_mlp", "--skip-tests", has=lambda name: name == "kusari",
                                   problems={"card kusari": "ImportError: libcublasLt.so.12"})
    assert code == 0 and machine.done == ["prepare", "card kusari mnist_mlp"]
    assert "None was measured." in text and "Not run.\n" in text
    for line in ("torch: not installed", "jax: not installed", "the tests: --skip-tests",
                 "kusari on mnist_mlp, train:whole step: ImportError: libcublasLt.so.12"):
        assert f"- {line}\n" in text
    _, text, _ = reported(gpu, tmp_path, "mnist_mlp", problems={"prepare": "ValueError: x", "tests": "no module y"})
    assert "(train:eager, infer:eager): it could not be prepared: ValueError: x" in text


def test_a_run_that_is_cut_off_leaves_what_it_has_measured(gpu: Any, tmp_path: Path,
                                                           monkeypatch: pytest.MonkeyPatch) -> None:
    whole = Machine.__call__

    def cut(self: Machine, command: list[str], seconds: float) -> tuple[str, str | None]:
        if "torch" in command:
            raise KeyboardInterrupt
        return whole(self, command, seconds)

    monkeypatch.setattr(Machine, "__call__", cut)
    with pytest.raises(KeyboardInterrupt):
        reported(gpu, tmp_path, "mnist_mlp")
    text = (tmp_path / "gpu.md").read_text()
    assert "Marked `gpu`: 4 passed." in text and "| mnist_mlp | 2.00" in text
    assert "- torch on mnist_mlp (train:eager, infer:eager): not begun\n" in text


def test_what_cannot_be_shown_is_written_as_it_was_measured(gpu: Any, tmp_path: Path,
                                                            monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpu.report, "ratios", lambda results: 1 / 0)
    _, text, _ = reported(gpu, tmp_path, "mnist_mlp")
    assert "'library': 'kusari'" in text and "ZeroDivisionError" in text


@pytest.mark.skipif(cuda.available, reason="there is a card")
def test_without_a_card_nothing_is_written(gpu: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "gpu.md"
    assert gpu.main(["--out", str(out)]) == 2
    assert not out.exists() and "There is no card to test" in capsys.readouterr().err


def test_a_process_that_is_stopped_keeps_what_it_printed(gpu: Any) -> None:
    text, problem = gpu.run([sys.executable, "-c", "import time; print('begun'); time.sleep(60)"], 5.0)
    assert text == "begun\n" and problem == "stopped after 5 s"
    text, problem = gpu.run([sys.executable, "-c", "print(1); raise ValueError('two')"], 60.0)
    assert (text, problem) == ("1\n", "ValueError: two")


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="processes are looked at in /proc")
@pytest.mark.slow
def test_with_a_process_end_those_that_it_has_started(gpu: Any, tmp_path: Path) -> None:
    starts = ("import subprocess, sys, time\n"
              "print(subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(60)']).pid)\ntime.sleep(60)")
    log = tmp_path / "gpu.log"
    text, problem = gpu.run([sys.executable, "-S", "-c", starts], 10.0, log)  # time to start on a busy machine
    state = Path("/proc", text.strip(), "stat")
    assert problem == "stopped after 10 s" and (not state.exists() or ") Z " in state.read_text())
    assert text in log.read_text() and problem in log.read_text()


def test_failures_are_told_as_they_happen(gpu: Any, tmp_path: Path) -> None:
    (tmp_path / "test_x.py").write_text("def test_y():\n    assert 1 == 2, 'no'\n")
    (tmp_path / "test_z.py").write_text("import nothing_such\n")
    done = subprocess.run([sys.executable, "-m", "pytest", "-v", "-p", "no:cacheprovider", "-p", "benchmarks.reasons",
                           "-c", os.devnull, "--continue-on-collection-errors", "--rootdir", "."], cwd=tmp_path,
                          env={**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
                               "PYTHONPATH": str(BENCHMARKS.parent)}, capture_output=True, text=True, check=False)
    assert gpu.counted(done.stdout) == ({"failed": 2}, [
        "`test_z.py::collection`: E   ModuleNotFoundError: No module named 'nothing_such'",
        "`test_x.py::test_y`: AssertionError: no (test_x.py:2)"])


def test_a_worker_measures_on_a_card(gpu: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    """The real worker and Kusari's real steps, on the stand-in."""
    from peers import on_kusari, worker
    monkeypatch.setitem(sys.modules, "onnx", None)
    on_kusari.prepare("mushroom_mlp", tmp_path, "tiny", "no")
    monkeypatch.setattr(sys, "__stdout__", sys.stdout)
    with cupy():
        worker.measure_card("kusari", "mushroom_mlp", str(tmp_path), "0", "2", "0.01", "train:eager", "infer:eager",
                            "infer:static")
    records = [json.loads(line) for line in capsys.readouterr().out.splitlines() if line.startswith("{")]
    assert [(r["phase"], r["variant"], r["round"]) for r in records] == [
        (*pair, i) for i in range(2) for pair in (("train", "eager"), ("infer", "eager"), ("infer", "static"))]
    assert all(r["step_ms"] > 0 and r["values"] for r in records)
    infer = [r["values"] for r in records if r["phase"] == "infer"]
    assert all(v == pytest.approx(infer[0], rel=1e-5) for v in infer)
    assert gpu.report.Results([{"kind": "run"}, *records]).phases() == ["train", "infer"]
