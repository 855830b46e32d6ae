"""HDF5 files: what is saved comes back; errors are told as for other files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import kusari
import kusari.links as L
from kusari import errors, serializers


class Model(kusari.Chain):
    def __init__(self, size: int | None = 3) -> None:
        super().__init__()
        with self.init_scope():
            self.l1 = L.Linear(size, 2)
            self.items = kusari.ChainList(L.BatchNormalization(2))
        self.add_persistent("count", 3)
        self.add_persistent("text", "ä")


def test_round_trip(tmp_path: Path) -> None:
    h5py: Any = pytest.importorskip("h5py")
    one, two = Model(), Model(None)
    one.count, one.text = 5, "ö"
    one.items[0].avg_mean[...] = 7
    for compression in (4, None):
        serializers.save_hdf5(tmp_path / "m.h5", one, compression)
        serializers.load_hdf5(tmp_path / "m.h5", two)
        assert (two.l1.W.array == one.l1.W.array).all() and two.count == 5 and two.text == "ö"
        assert (two.items[0].avg_mean == 7).all()
    with h5py.File(tmp_path / "m.h5") as file:
        assert file["l1/W"].shape == (2, 3) and "items/0/gamma" in file
    optimizer = kusari.optimizers.Adam().setup(one)
    one.l1.W.grad = one.l1.W.array
    optimizer.update()
    serializers.save_hdf5(tmp_path / "o.h5", optimizer)
    other = kusari.optimizers.Adam().setup(two)
    serializers.load_hdf5(tmp_path / "o.h5", other)
    assert other.t == 1 and (two.l1.W.update_rule.state["m"] == one.l1.W.update_rule.state["m"]).all()
    serializers.save_hdf5(tmp_path / "u.h5", Model(None))
    serializers.load_hdf5(tmp_path / "u.h5", Model(None))


def test_errors(tmp_path: Path) -> None:
    h5py: Any = pytest.importorskip("h5py")
    serializers.save_hdf5(tmp_path / "l.h5", L.Linear(3, 2))
    with pytest.raises(errors.EntryMismatchError, match="shape"):
        serializers.load_hdf5(tmp_path / "l.h5", L.Linear(4, 2))
    with pytest.raises(errors.MissingEntryError, match="is not in the group"):
        serializers.load_hdf5(tmp_path / "l.h5", Model())
    with h5py.File(tmp_path / "l.h5") as file:
        model = Model()
        before = model.l1.W.array.copy()
        serializers.HDF5Deserializer(file, strict=False).load(model)
        assert (model.l1.W.array == before).all()
    with h5py.File(tmp_path / "e.h5", "w") as file, pytest.raises(errors.EntryTypeError, match="'x'"):
        serializers.HDF5Serializer(file)("x", object())


def test_without_h5py(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(name: str, package: Any = None) -> Any:
        raise ImportError(f"No module named {name}")
    monkeypatch.setattr("importlib.import_module", refuse)
    with pytest.raises(ImportError, match=r"kusari\[hdf5\]"):
        serializers.save_hdf5("x.h5", None)
