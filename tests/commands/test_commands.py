"""``python -m kusari``: what it prints and returns, in a process of its own."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import mpi_ranks
import pytest

from kusari.commands import bench, main
from kusari.commands.common import CommandError, require
from kusari.static import function


def kusari(*arguments: str, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "kusari", *arguments]
    return subprocess.run(command, capture_output=True, text=True, cwd=cwd, timeout=600)


@pytest.mark.parametrize("command", [(), ("demo",), ("run",), ("explain",), ("export",), ("bench",), ("doctor",)])
def test_help(command: tuple[str, ...], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as exit:
        main([*command, "--help"])
    assert exit.value.code == 0
    assert len(capsys.readouterr().out.splitlines()) > 8


@pytest.mark.parametrize("columns", [80, 110])
def test_help_is_as_wide_as_the_terminal(
    columns: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str],
) -> None:
    """Examples, which are indented, stay as they are."""
    monkeypatch.setenv("COLUMNS", str(columns))
    for command in ((), ("demo",), ("run",), ("explain",), ("export",), ("bench",), ("doctor",)):
        with pytest.raises(SystemExit):
            main([*command, "--help"])
        text = capsys.readouterr().out
        filled = [line for line in text.splitlines() if not line.startswith("  python -m kusari")]
        assert ("\n  python -m kusari" in text) == (command != ("demo",))
        assert columns - 20 < max(map(len, filled)) <= columns, text


WRONG = [
    ((), "expected a command"),
    (("frobnicate",), "invalid choice: 'frobnicate'"),
    (("run",), "required: script (see python -m kusari run --help)"),
    (("run", "--trace", "x.py"), "required: script (see"),
    (("explain", "--width", "80", "x.py"), "unrecognized arguments: --width (see python -m kusari explain --help)"),
    (("run", "no_such_script.py"), "cannot read the script no_such_script.py: No such file or directory"),
    (("run", "."), "expected the path of a Python file"),
    (("run", "--trace", "no/such/folder/x.json", __file__), "cannot write no/such/folder/x.json: No such file"),
    (("explain", "no_such_script.py"), "cannot read the script"),
    (("bench", "no_such_model"), "no model 'no_such_model'; there are mushroom_mlp, mnist_mlp, "),
    (("bench", "mnist"), "no model 'mnist'; did you mean mnist_mlp? there are mushroom_mlp, "),
    (("bench", "--rounds", "0"), "expected a number above 0"),
    (("bench", "--rounds", "many"), "invalid int value: 'many'"),
    (("bench", "--plot", "mnist_mlp"), "expected a file name ending in .png"),
    (("bench", "--json", "no/such/folder/x.json"), "its folder is missing or not writable"),
    (("demo", "--epochs", "0"), "expected 1 or more"),
    (("demo", "--output", "no/such/folder/x.png"), "its folder is missing or not writable"),
]


@pytest.mark.parametrize(("arguments", "message"), WRONG)
def test_wrong_use_is_one_line_and_exit_code_2(
    arguments: tuple[str, ...], message: str, capsys: pytest.CaptureFixture[str], tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    before = sys.modules["__main__"]
    try:
        code = main(arguments)
    except SystemExit as error:
        code = error.code
    lines = capsys.readouterr().err.splitlines()
    assert code == 2
    assert len(lines) == 1 and message in lines[0] and lines[0].startswith("python -m kusari")
    assert sys.modules["__main__"] is before and function._kept is None, "the command left something behind"


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--version"]) == 0
    assert re.fullmatch(r"kusari \d+\.\d+\.\d+\n", capsys.readouterr().out)


SCRIPT = """
import sys
import chainer
from chainer import links as L
from neighbour import word

if __name__ == "__main__":
    print(chainer.__version__, L.__name__, word, sys.argv[1:], sys.argv[0])
"""


def test_run_a_script_as_python_would(tmp_path: Path) -> None:
    (tmp_path / "neighbour.py").write_text("word = 'found'")
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    done = kusari("run", str(script), "--epoch", "3", "--help")
    assert (done.stderr, done.returncode) == ("", 0)
    assert done.stdout == f"7.8.1 kusari.links found ['--epoch', '3', '--help'] {script}\n"


ENDS = [
    ("import sys; sys.exit(3)", 3, ""),
    ("raise SystemExit('bad luck')", 1, "bad luck\n"),
    ("raise SystemExit", 0, ""),
]


@pytest.mark.parametrize(("source", "code", "stderr"), ENDS)
def test_run_returns_the_scripts_exit_code(tmp_path: Path, source: str, code: int, stderr: str) -> None:
    (tmp_path / "script.py").write_text(source)
    done = kusari("run", "script.py", cwd=tmp_path)
    assert (done.returncode, done.stderr) == (code, stderr)


def test_run_shows_the_scripts_traceback_only(tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text("def f():\n    return 1 / 0\n\n\nf()\n")
    done = kusari("run", "script.py", cwd=tmp_path)
    assert done.returncode == 1
    assert "script.py" in done.stderr and done.stderr.rstrip().endswith("ZeroDivisionError: division by zero")
    assert "commands" not in done.stderr
    (tmp_path / "script.py").write_text("def f(:\n")
    done = kusari("run", "script.py", cwd=tmp_path)
    assert done.returncode == 1 and "SyntaxError" in done.stderr and "commands" not in done.stderr


CHILDREN = """
import multiprocessing
import chainer


class Answer:
    def __init__(self, value):
        self.value = value


def work(i):
    return Answer((i + 1, chainer.__version__))


if __name__ == "__main__":
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        print([answer.value for answer in pool.map(work, [1, 2])])
"""


@pytest.mark.slow
def test_run_a_script_that_starts_processes(tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text(CHILDREN)
    done = kusari("run", "script.py", cwd=tmp_path)
    assert (done.stdout, done.stderr) == ("[(2, '7.8.1'), (3, '7.8.1')]\n", "")


STATIC = """
import numpy as np
import chainer
import chainer.functions as F
import chainer.links as L
from chainer import static_graph


class Model(chainer.Chain):
    def __init__(self):
        super().__init__()
        with self.init_scope():
            self.l1 = L.Linear(3, 4)

    @static_graph
    def forward(self, x):
        return F.relu(self.l1(x))


def main():
    model = Model()
    for _ in range(3):
        F.sum(model(np.ones((2, 3), np.float32))).backward()
    print("the script's own output")


main()
"""


@pytest.mark.slow
def test_explain(tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text(STATIC)
    done = kusari("explain", "--what", "ir", "--output", "report.txt", "script.py", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout == "" and "the script's own output" in done.stderr
    report = (tmp_path / "report.txt").read_text()
    assert "forward" in report and "f32[2,3]" in report
    done = kusari("explain", "script.py", cwd=tmp_path)
    assert done.returncode == 0 and "-- most expensive" in done.stdout and "f32[2,3]" not in done.stdout, done.stderr


@pytest.mark.slow
def test_debug_switches(tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text(STATIC)
    switches = {"KUSARI_LOG": "passes", "KUSARI_DUMP": "dump", "KUSARI_CHECK": "1"}
    done = subprocess.run(
        [sys.executable, "-m", "kusari", "run", "script.py"], capture_output=True, text=True, cwd=tmp_path,
        env={**os.environ, **switches},
    )
    assert done.returncode == 0, done.stderr
    assert "kusari.passes: forward: lower: " in done.stderr
    assert "graph forward" in (tmp_path / "dump" / "000-forward-00-traced.txt").read_text()


def test_explain_without_static_functions(tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text("import chainer")
    done = kusari("explain", "script.py", cwd=tmp_path)
    assert done.returncode == 1
    assert done.stderr == "script.py: no function decorated with @static_graph was called\n"


def test_missing_extra_is_named() -> None:
    with pytest.raises(CommandError, match=r'needs nothing_like_this, of the extra "examples": pip install'):
        require("nothing_like_this.data", "examples")


def measured(eager: float, compiled: float) -> dict[str, dict[str, float]]:
    return {
        "eager": {"step_ms": eager, "first_s": 0.5, "peak_mb": 60.0},
        "compiled": {"step_ms": 2 * compiled, "first_s": 2.25, "peak_mb": 95.0},
        "whole step": {"step_ms": compiled, "first_s": 1.25, "peak_mb": 90.0},
    }


def test_bench_table() -> None:
    case = bench.Case("some_mlp", "train", [measured(10, 5), measured(12, 4), measured(9, 3)])
    assert case.speedup == 3
    header, rule, row = bench.table([case]).splitlines()
    assert len(header) == len(rule) == len(row)
    cells = [cell.strip() for cell in row.strip("|").split("|")]
    assert cells == ["some_mlp", "train", "10.0", "8.00", "4.00", "3.00x", "0.500", "1.25", "1.25", "60.0", "90.0"]


@pytest.mark.slow
def test_bench_measures(tmp_path: Path) -> None:
    done = kusari("bench", "mushroom_mlp", "--infer", "--rounds", "2", "--seconds", "0.05", "--plot", "b.png",
                  "--json", "b.json", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "| mushroom_mlp | infer |" in done.stdout
    (case,) = json.loads((tmp_path / "b.json").read_text())
    assert [sorted(measured) for measured in case["rounds"]] == [["compiled", "eager"]] * 2
    assert (tmp_path / "b.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.slow
def test_demo(tmp_path: Path) -> None:
    pytest.importorskip("onnxruntime")
    done = kusari("demo", "--epochs", "2", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    accuracy = re.search(r"accuracy +([\d.]+)%", done.stdout)
    assert accuracy and float(accuracy[1]) > 85
    assert "answers 1000 of 1000 digits alike" in done.stdout
    assert (tmp_path / "demo.png").read_bytes().startswith(b"\x89PNG")
    assert (tmp_path / "demo.onnx").stat().st_size > 1_000_000


def test_a_trace_of_a_script(tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text("import chainer.functions as F, numpy as np\nF.relu(np.ones(3, 'f'))\n")
    done = kusari("run", "--trace", "trace.json", "--profile", "script.py", cwd=tmp_path)
    assert done.returncode == 0 and done.stdout == ""
    assert "trace.json, 1 events" in done.stderr and "script.py:2" in done.stderr
    assert "script.py:2" in (tmp_path / "trace.json").read_text(encoding="utf-8")


def test_a_script_may_have_a_profile_of_its_own(tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text(
        "import kusari, kusari.functions as F, numpy as np\nx = np.ones(3, 'f')\nF.relu(x)\n"
        "with kusari.profile() as p:\n    F.exp(x)\nF.tanh(x)\nprint([e.name for e in p.events])\n")
    done = kusari("run", "--trace", "trace.json", "--profile", "script.py", cwd=tmp_path)
    assert (done.returncode, done.stdout) == (0, "['exp']\n"), done.stderr
    names = [e["name"] for e in json.loads((tmp_path / "trace.json").read_text("utf-8"))["traceEvents"] if "ts" in e]
    assert names == ["ReLU", "exp", "Tanh"]


OWN = "import argparse\np = argparse.ArgumentParser()\np.add_argument('--trace')\nprint(p.parse_args().trace)"


@pytest.mark.parametrize(("source", "arguments", "said"), [
    ("import sys; print(sys.argv[2])", ["--trace", "x"], True), (OWN, ["--trace", "x"], False),
    ("import sys; print(sys.argv[1])", ["x", "--trace=t.json"], True),
    ("import sys; print(sys.argv[1])", ["x", "trace", "--traces"], False)])
def test_options_behind_the_script_are_the_scripts(
    tmp_path: Path, source: str, arguments: list[str], said: bool,
) -> None:
    (tmp_path / "script.py").write_text(source)
    done = kusari("run", "script.py", *arguments, cwd=tmp_path)
    assert (done.stdout, done.returncode) == ("x\n", 0)
    line = "python -m kusari run: --trace is handed to script.py: options of run come before the script\n"
    assert done.stderr == line * said


@pytest.mark.slow
@mpi_ranks.needs_mpi
def test_every_rank_writes_a_trace_of_its_own(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text("import chainermn, chainer.functions as F, numpy as np\n"
                      "comm = chainermn.create_communicator('naive')\nF.relu(np.ones(3, 'f'))\n")
    code, _, err, _ = mpi_ranks.run(["-m", "kusari", "run", "--trace", str(tmp_path / "trace.json"), str(script)])
    assert code == 0, err
    assert sorted(p.name for p in tmp_path.glob("*.json")) == ["trace-0.json", "trace-1.json"]
    for rank in range(2):
        assert "script.py:3" in (tmp_path / f"trace-{rank}.json").read_text(encoding="utf-8")
