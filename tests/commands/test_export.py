"""``python -m kusari export``: what it writes, prints and returns."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kusari import compat
from kusari.commands import main

onnx: Any = pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")

MODELS = """
import chainer
import chainer.functions as F
import chainer.links as L


class Net(chainer.Chain):
    def __init__(self):
        super().__init__()
        with self.init_scope():
            self.l1 = L.Linear(4, 3)

    def forward(self, x, t):
        return F.softmax_cross_entropy(F.dropout(self.l1(x)), t)


def make(width=5):
    return chainer.Sequential(L.Linear(4, width), F.relu)


def needs(x, width):
    return x


class Wide:
    def __init__(self, width):
        self.width = width


net = Net()
number = 3


def breaks(x):
    raise KeyError("mine")


def reads(x):
    return x * float(F.sum(x).array)
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "my_models.py").write_text(MODELS)
    return tmp_path


def export(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "kusari", "export", *arguments, "--out", "m.onnx"]
    return subprocess.run(command, capture_output=True, text=True, cwd=folder, timeout=600)


def shapes(path: Path) -> dict[str, list[int | str]]:
    return {i.name: [d.dim_param or d.dim_value for d in i.type.tensor_type.shape.dim]
            for i in onnx.load(path).graph.input}


@pytest.mark.slow
def test_a_factory(folder: Path) -> None:
    done = export(folder, "my_models:make", "--input", "2,4", "--dynamic", "batch", "--opset", "13")
    assert done.returncode == 0, done.stderr
    assert [line.split()[2:] for line in done.stderr.splitlines()] == [
        ["tracing"], ["tracing", "at", "other", "extents"], ["verifying"], ["writing", "m.onnx"]]
    rows = dict(line.split(None, 1) for line in done.stdout.replace("max error", "max_error").splitlines())
    assert rows["inputs"] == "Input_0[batch,4]" and rows["outputs"] == "Output_0[batch,5]"
    assert (rows["nodes"], rows["parameters"], rows["opset"]) == ("2", "25 in 2 arrays", "13")
    assert float(rows["max_error"]) < 1e-5 and re.fullmatch(r"\d+\.\d s", rows["time"])
    assert shapes(folder / "m.onnx") == {"Input_0": ["batch", 4]}
    assert onnx.load(folder / "m.onnx").opset_import[0].version == 13


@pytest.mark.parametrize("name", ["net", pytest.param("Net", marks=pytest.mark.slow)])
def test_links_and_classes_with_several_inputs(folder: Path, name: str) -> None:
    done = export(folder, f"my_models:{name}", "--input", "x=6,4", "--input", "t=6:int32", "--train", "--no-verify",
                  "--dynamic", "x:0=n", "--dynamic", "t:0=n")
    assert done.returncode == 0, done.stderr
    assert "not verified" in done.stdout and "verifying" not in done.stderr
    assert shapes(folder / "m.onnx") == {"x": ["n", 4], "t": ["n"]}
    assert "Dropout" in {node.op_type for node in onnx.load(folder / "m.onnx").graph.node}


FAILING = [
    (("my_models:missing", "--input", "2"), 2, "my_models has no 'missing'"),
    (("my_mdels:net", "--input", "2"), 2, "there is no module 'my_mdels'"),
    (("my_models:number", "--input", "2"), 2, "is int, expected a link"),
    (("my_models:Wide", "--input", "2"), 2, "cannot be called without arguments"),
    (("my_models:needs", "--input", "2"), 2, "the model does not take 1 inputs: missing a required argument: 'width'"),
]


@pytest.fixture
def here(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The folder as the command finds it in this process, which then forgets its modules."""
    monkeypatch.chdir(folder)
    monkeypatch.setattr(sys, "path", list(sys.path))
    yield folder
    sys.modules.pop("my_models", None)
    compat.uninstall()


@pytest.mark.parametrize(("arguments", "code", "message"), FAILING)
def test_models_that_cannot_be_used(
    here: Path, capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...], code: int, message: str
) -> None:
    assert main(["export", *arguments, "--out", "m.onnx"]) == code
    stderr = capsys.readouterr().err
    assert len(stderr.splitlines()) == 1 and message in stderr, stderr
    assert not (here / "m.onnx").exists()


@pytest.mark.parametrize(("name", "message"), [("breaks", "KeyError: 'mine'"), ("reads", "takes data out of")])
def test_models_that_fail(here: Path, capsys: pytest.CaptureFixture[str], name: str, message: str) -> None:
    assert main(["export", f"my_models:{name}", "--input", "2", "--out", "m.onnx"]) == 1
    assert message in capsys.readouterr().err.splitlines()[-1]
    assert not (here / "m.onnx").exists()


WRONG = [
    (("m:f", "--out", "m.onnx"), "--input"),
    (("m:f", "--input", "2"), "--out"),
    (("m:f", "--input", "2,x", "--out", "m.onnx"), "expected extents above 0 like 1,3,224,224, got '2,x'"),
    (("m:f", "--input", "0", "--out", "m.onnx"), "expected extents above 0"),
    (("m:f", "--input", "2:float31", "--out", "m.onnx"), "expected a dtype like float32 or int32, got 'float31'"),
    (("m:f", "--input", "2", "--out", "no/m.onnx"), "cannot write no/m.onnx"),
    (("m:f", "--input", "2", "--out", "."), "cannot write ."),
    (("m:f", "--input", "2", "--out", "m.onnx", "--opset", "8"), "between 9 and 26"),
    (("m:f", "--input", "2", "--out", "m.onnx", "--dynamic", "x:0=n"), "INPUT:AXIS=NAME with an input of Input_0"),
    (("m:f", "--input", "2", "--out", "m.onnx", "--dynamic", "Input_0:1=n"), "no axis 1"),
    (("m", "--input", "2", "--out", "m.onnx"), "expected module:attribute, got 'm'"),
]


@pytest.mark.parametrize(("arguments", "message"), WRONG)
def test_wrong_use(
    arguments: tuple[str, ...], message: str, capsys: pytest.CaptureFixture[str], tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    try:
        code = main(["export", *arguments])
    except SystemExit as error:
        code = error.code
    lines = capsys.readouterr().err.splitlines()
    assert code == 2 and len(lines) == 1
    assert message in lines[0] and lines[0].startswith("python -m kusari export: ")
