"""Files: one or two of them, whole or not at all; streams."""
from __future__ import annotations

import io
import os
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest

import kusari
import kusari.functions as F
import kusari.links as L
import kusari.onnx
from kusari.onnx import files

X = np.linspace(-1, 1, 80, dtype=np.float32).reshape(2, 40)


def net(seed: int = 0) -> Any:
    np.random.seed(seed)
    return kusari.Sequential(L.Linear(40, 30), F.relu, L.Linear(30, 20))


def run(path: Path) -> Any:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(os.fspath(path), options, providers=["CPUExecutionProvider"])
    return session.run(None, {"Input_0": X})[0]


def test_external_data(tmp_path: Path) -> None:
    path, model = tmp_path / "x.onnx", net()
    made = kusari.onnx.export(model, X, path, external_data_threshold=2000)
    model_file, data_file = sorted(os.listdir(tmp_path))
    assert model_file == "x.onnx" and data_file.startswith("x.onnx.") and data_file.endswith(".data")
    assert (tmp_path / model_file).stat().st_size < 3000
    onnx.checker.check_model(os.fspath(path), full_check=True)
    np.testing.assert_allclose(run(path), model(X).array, atol=1e-5)
    stored = {t.name: t for t in onnx.load(os.fspath(path), load_external_data=False).graph.initializer}
    places = {n: {e.key: e.value for e in t.external_data} for n, t in stored.items() if t.external_data}
    assert set(places) == {"/0/W", "/1/W"}  # what is small stays in the model
    for name, place in places.items():
        offset, length = int(place["offset"]), int(place["length"])
        assert place["location"] == data_file and offset % files.ALIGNMENT == 0
        part = (tmp_path / data_file).read_bytes()[offset:offset + length]
        np.testing.assert_array_equal(np.frombuffer(part, "f"), dict(model.namedparams())[name].array.ravel())
    # What is returned is whole.
    assert all(t.raw_data for t in made.graph.initializer)
    assert onnx.load(os.fspath(path)).graph.node == made.graph.node


def test_the_old_model_keeps_its_data_until_the_new_one_is_there(
        tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, old = tmp_path / "x.onnx", net(0)

    def export(model: Any) -> None:
        kusari.onnx.export(model, X, path, external_data_threshold=0)
    export(old)
    before = {name: (tmp_path / name).read_bytes() for name in os.listdir(tmp_path)}
    write = files.write

    def full(path: str, data: bytes) -> None:
        raise kusari.onnx.ExportFileError(28, "cannot write the ONNX file: No space left on device", path)
    monkeypatch.setattr(files, "write", full)
    with pytest.raises(kusari.onnx.ExportFileError, match="No space left"):
        export(net(1))
    assert {name: (tmp_path / name).read_bytes() for name in os.listdir(tmp_path)} == before
    monkeypatch.setattr(files, "write", write)
    np.testing.assert_allclose(run(path), old(X).array, atol=1e-5)
    export(old)  # the same again
    assert {name: (tmp_path / name).read_bytes() for name in os.listdir(tmp_path)} == before
    new = net(1)
    export(new)
    assert len(os.listdir(tmp_path)) == 2
    np.testing.assert_allclose(run(path), new(X).array, atol=1e-5)
    kusari.onnx.export(new, X, path)
    assert os.listdir(tmp_path) == ["x.onnx"]
    np.testing.assert_allclose(run(path), new(X).array, atol=1e-5)


def test_what_does_not_fit_is_verified_from_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "LIMIT", 2000)
    path, model = tmp_path / "x.onnx", net()
    kusari.onnx.export(model, X, path, dynamic_shapes={"Input_0": {0: "batch"}})
    assert len(os.listdir(tmp_path)) == 2
    np.testing.assert_allclose(run(path), model(X).array, atol=1e-5)
    kusari.onnx.export_testcase(model, X, tmp_path / "case")
    np.testing.assert_allclose(run(tmp_path / "case" / "model.onnx"), model(X).array, atol=1e-5)
    optimizer = kusari.optimizers.SGD().setup(model)
    t = np.array([1, 0], np.int32)
    kusari.onnx.export_train_step(model, lambda x, t: F.softmax_cross_entropy(model(x), t), optimizer, (X, t),
                                  tmp_path / "step.onnx")
    onnx.checker.check_model(os.fspath(tmp_path / "step.onnx"))


@pytest.mark.parametrize("limit", [100, None])
def test_streams(limit: int | None) -> None:
    stream = io.BytesIO()
    if limit:
        with pytest.raises(kusari.onnx.ExportError, match=r"holds 7,400 bytes .* one stream at most 100; give a path"):
            kusari.onnx.export(net(), X, stream, external_data_threshold=limit)
        assert not stream.getvalue()
    else:
        made = kusari.onnx.export(net(), X, stream)
        assert onnx.load_from_string(stream.getvalue()) == made


@pytest.mark.parametrize(("file", "message"), [
    (io.StringIO(), "takes no bytes .* binary mode"), (123, "a path or a binary file object, got int"),
])
def test_what_is_no_file(file: Any, message: str) -> None:
    with pytest.raises(kusari.onnx.ExportFileError, match=message):
        kusari.onnx.export(F.relu, X, file)


def test_the_same_model_gives_the_same_bytes(tmp_path: Path) -> None:
    def written(name: str) -> dict[str, bytes]:
        folder = tmp_path / name
        folder.mkdir()
        kusari.onnx.export(net(), X, folder / "x.onnx", save_text=True, external_data_threshold=0)
        return {n: (folder / n).read_bytes() for n in os.listdir(folder)}
    first = written("a")
    assert first == written("b") and len(first) == 3
