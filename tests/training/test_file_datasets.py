"""Data sets that are files: images, lines of text, pickled examples."""
from __future__ import annotations

import io
import pickle
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from kusari import datasets

R = np.random.RandomState(0)
COLOUR, GREY = R.randint(0, 255, (4, 5, 3), np.uint8), R.randint(0, 255, (4, 5), np.uint8)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    image: Any = pytest.importorskip("PIL.Image")
    image.fromarray(COLOUR).save(tmp_path / "a.png")
    image.fromarray(GREY).save(tmp_path / "b.png")
    (tmp_path / "paths.txt").write_text("a.png\nb.png\n")
    (tmp_path / "pairs.txt").write_text("b.png 3\na.png -1\n")
    with zipfile.ZipFile(tmp_path / "all.zip", "w") as file:
        file.writestr("sub/", "")
        for name in ("b.png", "a.png"):
            file.write(tmp_path / name, name)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def check(array: np.ndarray, image: np.ndarray, dtype: Any = np.float32) -> None:
    assert array.dtype == dtype
    np.testing.assert_array_equal(array, image[None] if image.ndim == 2 else image.transpose(2, 0, 1))


def test_images(folder: Path) -> None:
    for given in ("paths.txt", ["a.png", Path("b.png")]):
        data = datasets.ImageDataset(given)
        assert len(data) == 2
        check(data[0], COLOUR)
        check(data[1], GREY)
    check(datasets.ImageDataset(["b.png"], root=folder, dtype=np.uint8)[0], GREY, np.uint8)
    for pairs in ("pairs.txt", [("b.png", 3), ("a.png", -1)]):
        image, label = datasets.LabeledImageDataset(pairs, label_dtype=np.int64)[-1]
        check(image, COLOUR)
        assert label.dtype == np.int64 and label == -1
    (folder / "pairs.txt").write_text("a.png\n")
    with pytest.raises(ValueError, match="line 1 of pairs.txt"):
        datasets.LabeledImageDataset("pairs.txt")
    with pytest.raises(OSError, match="none.png"):
        datasets.ImageDataset(["none.png"])[0]


def test_zipped_images(folder: Path) -> None:
    data = pickle.loads(pickle.dumps(datasets.ZippedImageDataset("all.zip")))
    assert len(data) == 2
    check(data[0], GREY)
    check(data.get_example("a.png"), COLOUR)
    many = datasets.MultiZippedImageDataset(["all.zip", "all.zip"])
    assert len(many) == 4
    check(many[3], COLOUR)
    labeled = datasets.LabeledZippedImageDataset("all.zip", "pairs.txt")
    check(labeled[1][0], COLOUR)
    assert [int(label) for _, label in labeled[:]] == [3, -1]


def test_without_pillow(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(name: str, package: Any = None) -> Any:
        raise ImportError(f"No module named {name}")
    monkeypatch.setattr("importlib.import_module", refuse)
    with pytest.raises(ImportError, match=r"kusari\[image\]"):
        datasets.ImageDataset(["a.png"])[0]


def test_text(tmp_path: Path) -> None:
    one, two = tmp_path / "one.txt", tmp_path / "two.txt"
    one.write_text("ä b\n\nc", encoding="utf-8")
    two.write_text("1\n2\n3\n")
    data = datasets.TextDataset(one, encoding="utf-8")
    assert data[:] == ["ä b\n", "\n", "c"] and data[-1] == "c"
    both = datasets.TextDataset([one, two], encoding=["utf-8", None], filter_func=lambda a, b: b != "2\n")
    assert both[:] == [("ä b\n", "1\n"), ("c", "3\n")]
    again = pickle.loads(pickle.dumps(both))
    both.close()
    with pytest.raises(ValueError, match="closed"):
        both[1]
    assert again[1] == ("c", "3\n")
    for d in (data, both, again):
        d.close()
    (tmp_path / "two.txt").write_text("1\n")
    with pytest.raises(ValueError, match=r"equally many lines, got \[3, 1\]"):
        datasets.TextDataset([one, two])
    with pytest.raises(ValueError, match="encoding"):
        datasets.TextDataset(one, encoding=["utf-8", "utf-8"])


def test_pickle(tmp_path: Path) -> None:
    path = tmp_path / "x.pkl"
    with datasets.open_pickle_dataset_writer(path) as writer:
        for x in (1, {"a": np.arange(3)}, "three"):
            writer.write(x)
        writer.flush()
    with datasets.open_pickle_dataset(path) as data:
        assert len(data) == 3 and data[2] == "three" and data[0] == 1 and data[1]["a"].tolist() == [0, 1, 2]
        copy = pickle.loads(pickle.dumps(data))
    assert copy[-1] == "three"
    copy.close()
    with datasets.open_pickle_dataset_writer(path):
        pass
    with datasets.open_pickle_dataset(path) as data:
        assert len(data) == 0


def test_pickled_data_are_pickled_with_their_reader():
    file = io.BytesIO()
    writer = datasets.PickleDatasetWriter(file)
    for x in (1, "two"):
        writer.write(x)
    data = pickle.loads(pickle.dumps(datasets.PickleDataset(file)))
    assert data[:] == [1, "two"]
