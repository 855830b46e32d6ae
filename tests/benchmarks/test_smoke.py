"""The benchmarks run, say what they should, and their report marks what must not be believed."""

from __future__ import annotations

import importlib.util
import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from mpi_ranks import needs_mpi

BENCHMARKS = Path(__file__).resolve().parents[2] / "benchmarks"


def bench(script: str, *arguments: str) -> str:
    done = subprocess.run([sys.executable, str(BENCHMARKS / script), *arguments], capture_output=True, text=True,
                          timeout=600)
    assert done.returncode == 0, done.stderr
    return done.stdout


def module(name: str) -> Any:
    """A script as a module, under another name: the tests have a module ``kernels``, too."""
    spec = importlib.util.spec_from_file_location(f"benchmarks_{name}", BENCHMARKS / f"{name}.py")
    assert spec is not None and spec.loader is not None
    made = sys.modules[spec.name] = importlib.util.module_from_spec(spec)  # where dataclasses look
    spec.loader.exec_module(made)
    return made


def cells(text: str, heading: str, name: str) -> list[str]:
    """The row ``name`` of the first table after ``heading``."""
    after = text[text.index(heading):]
    row = next(line for line in after.splitlines() if line.startswith(f"| {name} "))
    return [cell.strip() for cell in row.strip("|").split("|")]


def record(library: str, variant: str, turn: int, ms: float, **more: Any) -> dict[str, Any]:
    return {"kind": "step", "model": "some_mlp", "phase": "train", "library": library, "variant": variant,
            "round": turn, "attempt": 0, "step_ms": ms, "first_s": 2.0 if turn == 0 else 0.5, "peak_mb": 80.0,
            "values": [0.7, 0.6, 0.5], "others": 0.01, "disturbed": False, "version": "1", "python": "3",
            "threads": "2", **more}


CANNED = [
    {"kind": "run", "machine": "a machine", "rounds": 2, "seconds": 1.0, "threads": 2},
    # Of two attempts the less disturbed one counts, and the mark stays while it is disturbed.
    record("kusari", "eager", 0, 99, others=0.9, disturbed=True),
    record("kusari", "eager", 0, 8, others=0.2, disturbed=True, attempt=1),
    record("kusari", "eager", 1, 10),
    record("kusari", "static step", 0, 2.0),
    record("kusari", "static step", 1, 4.0),
    record("chainer", "eager", 0, 16),
    record("chainer", "eager", 1, 20),
    record("jax", "jit", 0, 6.0),
    record("jax", "jit", 1, 8.0),
    # Quicker than all, but it computes something else.
    record("torch", "eager", 0, 1.0, values=[0.7, 0.6, 0.5001]),
    record("torch", "eager", 1, 1.0, values=[0.7, 0.6, 0.5001]),
    {"kind": "step", "model": "some_mlp", "phase": "train", "library": "torch", "variant": "compile", "round": 0,
     "attempt": 0, "python": "3", "error": "no compiler"},
]


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> str:
    file = tmp_path_factory.mktemp("report") / "results.jsonl"
    file.write_text("".join(json.dumps(line) + "\n" for line in CANNED), encoding="utf-8")
    return bench("side_by_side.py", "--report", str(file))


@pytest.mark.slow
def test_report_of_steps(report: str) -> None:
    assert report.startswith("a machine; 2 rounds of 1 s, 2 threads.")
    assert cells(report, "### Training: milliseconds per step", "some_mlp")[1:] == [
        "9.00 (8.00–10.0) ~", "3.00 (2.00–4.00)", "18.0 (16.0–20.0)", "7.00 (6.00–8.00)", "1.00 (1.00–1.00) ≠", "error"]
    assert cells(report, "### Training: seconds", "some_mlp")[2] == "2.00 / 0.500"
    assert "- some_mlp, train, torch compile: `no compiler`" in report


def test_report_of_first_calls() -> None:
    written = module("report")
    first = {"first_cpu_s": 0.5, "process_cpu_s": 2.0}
    lines = [{**CANNED[0], "cold": True}, record("kusari", "eager", 0, 1, first_cpu_s=0.1, process_cpu_s=0.5),
             record("kusari", "static step", 0, 2, **first),
             record("jax", "jit", 0, 1, first_cpu_s=0.25, process_cpu_s=4.0)]
    text = written.text(written.Results(lines))
    assert cells(text, "### Processor seconds of the same", "some_mlp")[2:] == [
        "kusari static step", "jax jit", "0.500", "0.250", "**0.50** (0.50–0.50)"]  # define-by-run compiles nothing
    assert cells(text, "### Processor seconds from the start", "some_mlp")[6] == "**2.00** (2.00–2.00)"
    assert "per step" not in text


def test_report_of_several_files(tmp_path: Path) -> None:
    written, files = module("report"), [tmp_path / f"{i}.jsonl" for i in range(2)]
    for i, file in enumerate(files):
        lines = [CANNED[0], record("kusari", "eager", 0, 2 + i), record("jax", "jit", 0, 9)]
        file.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    text = written.text(written.Results.read(*files))
    assert text.startswith("a machine; 2 rounds")
    assert cells(text, "### Best peer ÷ ours", "some_mlp")[6] == "**3.75** (3.00–4.50)"


@pytest.mark.slow
def test_report_of_ratios(report: str) -> None:
    _, _, ours, peer, *times, ratio, eager = cells(report, "### Best peer ÷ ours", "some_mlp")
    assert (ours, peer) == ("kusari static step", "jax jit")  # torch was quicker, but its losses differ
    assert times == ["3.00", "7.00"]
    assert ratio == "**2.50** (2.00–3.00)"
    assert eager == "**2.00** (2.00–2.00)"


@pytest.mark.parametrize(("arguments", "message"), [
    pytest.param(("no_such_model",), "expected one of mushroom_mlp, mnist_mlp, ", marks=pytest.mark.slow),
    pytest.param(("--only", "numpy"), "got numpy", marks=pytest.mark.slow),
    pytest.param(("--python", "torch"), "expected LIBRARY=PATH", marks=pytest.mark.slow),
])
def test_side_by_side_refuses(arguments: tuple[str, ...], message: str) -> None:
    done = subprocess.run([sys.executable, str(BENCHMARKS / "side_by_side.py"), *arguments], capture_output=True,
                          text=True)
    assert done.returncode == 2
    assert message in done.stderr


@pytest.mark.slow
def test_side_by_side(tmp_path: Path) -> None:
    pytest.importorskip("onnxruntime")
    out, picture = tmp_path / "results.jsonl", tmp_path / "results.png"
    text = bench("side_by_side.py", "mushroom_mlp", "--only", "kusari", "--seconds", "0.02", "--rounds", "1",
                 "--patience", "0", "--threads", "1", "--out", str(out), "--plot", str(picture))
    lines = [json.loads(line) for line in out.read_text(encoding="utf-8").splitlines()]
    assert [line["kind"] for line in lines] == ["run", *["step"] * 6]
    assert all("error" not in line and len(line["values"]) == 3 for line in lines[1:])
    assert "≠" not in text[text.index("### Training"):]  # the four ways to train compute the same losses
    assert picture.read_bytes().startswith(b"\x89PNG")


@pytest.mark.slow
@pytest.mark.parametrize(("arguments", "rows"), [
    (["--seconds", "0.02"], ["infer", "train", "whole step"]),
    (["--first"], ["traced, cold", "compiled, cold", "traced", "compiled", "again"])], ids=["steps", "first"])
def test_checkouts(arguments: list[str], rows: list[str], tmp_path: Path) -> None:
    """A checkout beside itself: another has links to the same folders."""
    root = BENCHMARKS.parent
    subprocess.run([sys.executable, str(root / "tools" / "link_typings.py")], check=True, capture_output=True)
    (tmp_path / "typings").symlink_to(root / "typings")
    text = bench("checkouts.py", str(tmp_path), "mushroom_mlp", "--rounds", "1", *arguments)
    found = {line[:30].strip(): [float(cell) for cell in line[30:].split()[:3]] for line in text.splitlines()[1:]}
    assert list(found) == [f"mushroom_mlp {row}" for row in rows]
    for before, now, ratio in found.values():
        assert min(before, now) > 0 and ratio == pytest.approx(now / before, rel=0.1)


@pytest.mark.slow
def test_checkouts_that_cannot_be_imported(tmp_path: Path) -> None:
    done = subprocess.run([sys.executable, str(BENCHMARKS / "checkouts.py"), str(tmp_path)], capture_output=True,
                          text=True)
    assert done.returncode == 2 and "run tools/link_typings.py there" in done.stderr


@pytest.mark.slow
def test_overhead() -> None:
    text = bench("overhead.py", "steps", "--models", "mushroom_mlp", "--seconds", "0.02")
    step, kernels, python, floor = map(float, cells(text, "| model", "mushroom_mlp")[4:8])
    assert min(step, kernels, python) > 0
    assert floor == pytest.approx(kernels + python, rel=0.02)
    assert python < step  # with its native rows off a step takes less
    whole, loop = map(float, cells(bench("overhead.py", "loops", "--models", "mushroom_mlp", "--seconds", "0.02"),
                                   "| model", "mushroom_mlp")[1:3])
    assert min(whole, loop) > 0
    assert "| linear " in bench("overhead.py", "operations", "--seconds", "0.02")


@pytest.mark.slow
def test_kernels() -> None:
    text = bench("kernels.py", "--threads", "1", "--seconds", "0.01", "softmax cross entropy", "layer norm", "adam")
    assert float(cells(text, "| ", "multiply-adds, GFLOP/s")[1]) > 0.1
    for row in ("forward:", "backward:", "update:"):
        assert float(cells(text, "| softmax cross entropy", row)[2]) > 0


@pytest.mark.slow
def test_kernels_of_a_convolution() -> None:
    text = bench("kernels.py", "--threads", "1", "--seconds", "0.01", "convolution 1×1")
    assert float(cells(text, "| convolution", "forward: all")[3]) > 0
    assert float(cells(text, "| convolution", "backward: all")[4]) > 0


@pytest.mark.slow
def test_choices() -> None:
    text = bench("choices.py", "--seconds", "0.001", "--directions", "forward", "weight", "--", "3x3 40 to 12", "2x2")
    for direction, ways in (("forward", 4), ("weight", 3)):
        row = next(line for line in text.splitlines() if line.startswith("| 3x3 40 to 12") and direction in line)
        assert row.count("(") == ways, "all that can compute it are timed, and equal"
    assert "loss: " in text


@pytest.mark.slow
def test_choices_of_products() -> None:
    text = bench("choices.py", "products", "--seconds", "0.001")
    row = next(line for line in text.splitlines() if line.startswith("| lstm"))
    assert row.count("(") == 3 and "loss: " in text, "all that can compute it are timed, and equal"


def test_names_of_kernels() -> None:
    assert tuple(module("kernel_cases").CASES) == module("kernels").NAMES


@pytest.mark.slow
def test_sweeps(tmp_path: Path) -> None:
    out, picture = tmp_path / "points.jsonl", tmp_path / "sweeps.png"
    text = bench("sweeps.py", "depth", "--values", "2", "3", "--seconds", "0.01", "--threads", "1", "--out", str(out),
                 "--plot", str(picture))
    assert all(float(cell) > 0 for cell in cells(text, "| depth", "3")[1:])
    assert picture.read_bytes().startswith(b"\x89PNG")
    assert bench("sweeps.py", "--report", str(out)) == text[:text.index("\npicture")]


@pytest.mark.slow
def test_first_calls(capsys: pytest.CaptureFixture[str]) -> None:
    script = module("first_call")
    for phase in script.PHASES:
        script.child("mushroom_mlp", phase, True)
        calls = json.loads(capsys.readouterr().out.splitlines()[-1])
        assert len(calls) == script.FIRST + script.LATER
        assert script.extra(calls, calls, 0) == pytest.approx(sum(c[0] for c in calls[1:3]) - 2 * min(
            c[0] for c in calls[3:]))


@pytest.mark.slow
def test_functions() -> None:
    cases = "softmax 4x5", "matmul 2x3 3x4"
    text = bench("functions.py", *cases, "--turns", "1", "--seconds", "0.001", "--threads", "1")
    for case in cases:
        kernels, call, numpy = map(float, cells(text, "| µs", case)[1:4])
        assert 0 < kernels < call and numpy > 0


@pytest.mark.slow
def test_rows_in_turn() -> None:
    text = bench("overhead.py", "rows", "--models", "mushroom_mlp", "--step", "whole step")
    rows = [[float(cell) for cell in cells(text, "| mushroom_mlp", line.split()[1])[1:4]]
            for line in text.splitlines() if line.startswith(("| gemm", "| nest", "| foreach", "| all"))]
    assert rows[-1][0] == sum(row[0] for row in rows[:-1])
    assert min(min(row) for row in rows) > 0


def test_steps_on_many_ranks_are_simulated() -> None:
    scaling = module("scaling")
    buckets = [scaling.Bucket(800, 0.5, 0.1), scaling.Bucket(800, 0.8, 0.1)]
    card = scaling.Network(0.0, 100.0, hidden=True)
    assert card.ring(800, 2) == 8 and card.ring(800, 8) == 14
    assert scaling.simulated(10, buckets, 1, card) == 10
    # Leaves at 5, arrives at 13; the second from 13 to 21, then its update.
    assert scaling.simulated(10, buckets, 2, card) == pytest.approx(22)
    # Updates of the first fill the time in which the second travels.
    assert scaling.simulated(1000, buckets, 2, card) == pytest.approx(1000)
    assert scaling.simulated(1000, buckets, 2, scaling.Network(0.0, 100.0, hidden=False)) == pytest.approx(1016)
    line = scaling.Line.through((1, 0.5, 0.25), (12, 7, 4.5))
    assert line.at(0.1) == pytest.approx(3)


@needs_mpi
@pytest.mark.slow
def test_steps_on_two_ranks(tmp_path: Path) -> None:
    text = bench("distributed.py", "mushroom_mlp", "--ranks", "1", "2", "--steps", "6", "--plot",
                 str(tmp_path / "picture.svg"))
    rows = [line.split() for line in text.splitlines() if line.startswith("mushroom_mlp ") and "MB in" in line]
    assert [len([cell for cell in row[1:7] if float(cell) > 0]) for row in rows] == [6, 6]
    assert "in 0 buckets" in text and "in 1 buckets" in text
    for title in ("batch for each rank", "one batch for all"):
        assert re.search(rf"mushroom_mlp +{title}: simulated here \S+ ms with 1 \(\S+%\), \S+ ms with 2 \(\S+%\); "
                         r"efficiency with 8: .*1024: ", text), text
    assert (tmp_path / "picture.svg").stat().st_size > 1000
