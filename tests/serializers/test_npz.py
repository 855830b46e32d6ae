"""Saving and loading: Chainer's layout, all or nothing, clear errors."""

from __future__ import annotations

import io
import os
from pathlib import Path

import numpy as np
import pytest

import kusari
from kusari import errors, serializers

GOLDEN = Path(__file__).resolve().parents[1] / "golden"


class Part(kusari.Link):
    def __init__(self, *shape: int, initialized: bool = True) -> None:
        super().__init__()
        with self.init_scope():
            self.W = kusari.Parameter(kusari.initializers.Normal(), shape if initialized else None)
        self.add_persistent("count", 3)
        self.add_persistent("mean", np.zeros(2, "f"))


def model(**kwargs) -> kusari.Chain:
    return kusari.Chain(a=Part(2, 3), items=kusari.ChainList(Part(1), Part(2, **kwargs)))


def test_round_trip(tmp_path: Path) -> None:
    one, two = model(), model()
    one.a.count, two.a.count = 5, 6
    one.a.mean[...] = 7
    mean = two.a.mean
    for compression in (True, False):
        serializers.save_npz(tmp_path / "m", one, compression)
        serializers.load_npz(tmp_path / "m", two)
        assert (two.items[1].W.array == one.items[1].W.array).all() and two.a.count == 5
        assert two.a.mean is mean and (mean == 7).all()
    assert os.listdir(tmp_path) == ["m"]
    with np.load(tmp_path / "m") as file:
        assert sorted(file.files) == sorted(
            f"{part}/{name}" for part in ("a", "items/0", "items/1") for name in ("W", "count", "mean")
        )


def test_uninitialized_parameters(tmp_path: Path) -> None:
    for saved, loaded in ((False, True), (True, False), (False, False)):
        one, two = model(initialized=saved), model(initialized=loaded)
        before = two.items[1].W.array
        serializers.save_npz(tmp_path / "m", one)
        serializers.load_npz(tmp_path / "m", two)
        if saved:
            assert (two.items[1].W.array == one.items[1].W.array).all()
        else:
            assert two.items[1].W.array is before


def test_parts_and_names(tmp_path: Path) -> None:
    one = model()
    serializers.save_npz(tmp_path / "m", one)
    for path in ("a", "a/", "/a"):
        part = Part(2, 3)
        serializers.load_npz(tmp_path / "m", part, path=path)
        assert (part.W.array == one.a.W.array).all()
    for ignored in ("a/W", ["a/W"], lambda name: name == "a/W"):
        two = model()
        serializers.load_npz(tmp_path / "m", two, ignore_names=ignored)
        assert (two.a.W.array != one.a.W.array).any() and (two.items[0].W.array == one.items[0].W.array).all()
    for wrong in (3, [3]):
        with pytest.raises(ValueError, match="callable, string or list"):
            serializers.load_npz(tmp_path / "m", one, ignore_names=wrong)


def test_what_is_missing(tmp_path: Path) -> None:
    serializers.save_npz(tmp_path / "m", Part(2, 3))
    with pytest.raises(errors.MissingEntryError, match="'a/count'") as caught:
        serializers.load_npz(tmp_path / "m", kusari.Chain(a=Link()))
    assert isinstance(caught.value, KeyError) and "strict=False" in str(caught.value) and "W" in str(caught.value)
    serializers.load_npz(tmp_path / "m", model(), strict=False)


class Link(kusari.Link):
    def __init__(self) -> None:
        super().__init__()
        self.add_persistent("count", 0)


@pytest.mark.parametrize(
    ("value", "saved", "result"),
    [
        (0, np.array(3), 3), (0.0, np.array(3), 3.0), (0.0, np.array(1.5), 1.5), ("", np.array("hi"), "hi"),
        (1, None, None), (None, np.array([1, 2]), [1, 2]), ([0], np.array([1, 2]), [1, 2]),
        (True, np.array(False), False),
        (0, np.array(1.5), errors.EntryTypeError), (0, np.array([1, 2]), errors.EntryTypeError),
        (True, np.array(1), errors.EntryTypeError), ("", np.array(1), errors.EntryTypeError),
        (np.zeros(2), np.array([1, 2]), [1, 2]), (np.zeros(1), np.array(4.0), [4]),
        (np.zeros(2, "i"), np.array([1.5, 2]), errors.EntryTypeError),
        (np.zeros(3), np.array([1, 2]), errors.EntryMismatchError),
        (np.zeros((2, 2)), np.array([1.0, 2]), errors.EntryMismatchError),
    ],
)  # fmt: skip
def test_values(value, saved, result) -> None:
    deserializer = serializers.NpzDeserializer({"x/y": np.array(saved)})["/x/"]
    if isinstance(result, type):
        with pytest.raises(result, match="'x/y'"):
            deserializer("y", value)
        return
    found = deserializer("y", value)
    np.testing.assert_array_equal(found, result)
    if value is not None and result is not None:
        assert type(found) is type(value)


def test_dictionary_serializer() -> None:
    serializer = serializers.DictionarySerializer(path="p/")
    assert serializer["/x/"]("/y", 1.5) == 1.5 and serializer("n", None) is None
    assert sorted(serializer.target) == ["p/n", "p/x/y"]
    with pytest.raises(errors.EntryTypeError, match="'p/o' cannot be saved"):
        serializer("o", object())


def test_dictionaries_file_objects_and_awkward_names() -> None:
    file = io.BytesIO()
    serializers.save_npz(file, {"file": np.arange(6).reshape(2, 3).T, "arr_0": np.float32(1)})
    found = serializers.npz_file.read(file)
    assert (found["file"] == [[0, 3], [1, 4], [2, 5]]).all() and found["arr_0"].dtype == np.float32
    with pytest.raises(errors.EntryTypeError, match="'o' cannot be saved"):
        serializers.save_npz(file, {"o": np.array([1, None])})


@pytest.mark.parametrize("damage", ["empty", "text", "truncated", "flipped", "npy", "header"])
def test_damaged_files_change_nothing(tmp_path: Path, damage: str) -> None:
    file = tmp_path / "m.npz"
    big = kusari.Chain(a=Part(40, 50), b=Part(3))
    serializers.save_npz(file, big)
    content = bytearray(file.read_bytes())
    if damage == "flipped":
        content[len(content) // 2] ^= 255
    elif damage == "header":
        content = bytearray(io.BytesIO().getvalue())
        stream = io.BytesIO()
        import zipfile

        with zipfile.ZipFile(stream, "w") as archive:
            archive.writestr("a/W.npy", b"\x93NUMPY\x01\x00nonsense")
        content = bytearray(stream.getvalue())
    elif damage == "npy":
        np.save(stream := io.BytesIO(), np.ones(3))
        content = bytearray(stream.getvalue())
    else:
        content = {"empty": b"", "text": b"hello", "truncated": content[: len(content) // 2]}[damage]
    file.write_bytes(content)
    other = kusari.Chain(a=Part(40, 50), b=Part(3))
    before = {name: param.array.copy() for name, param in other.namedparams()}
    with pytest.raises(errors.SnapshotFormatError, match="m.npz' is not a complete .npz file"):
        serializers.load_npz(file, other)
    assert all((param.array == before[name]).all() for name, param in other.namedparams())


def test_no_pickle_is_ever_read(tmp_path: Path) -> None:
    class Bomb:
        def __reduce__(self):
            return (pytest.fail, ("a pickle was read",))

    np.savez(tmp_path / "m.npz", count=np.array(Bomb(), dtype=object))
    link = Link()
    serializers.load_npz(tmp_path / "m.npz", link)
    assert link.count is None


def test_unwritable_places(tmp_path: Path) -> None:
    part = Part(2)
    with pytest.raises(FileNotFoundError, match="the folder .*nowhere' does not exist"):
        serializers.save_npz(tmp_path / "nowhere" / "m.npz", part)
    with pytest.raises(IsADirectoryError):
        serializers.save_npz(tmp_path, part)
    with pytest.raises(FileNotFoundError):
        serializers.load_npz(tmp_path / "nothing.npz", part)
    assert os.listdir(tmp_path) == []


def test_a_failed_save_leaves_the_old_file(tmp_path: Path) -> None:
    file = tmp_path / "m.npz"
    serializers.save_npz(file, Part(2))
    old = file.read_bytes()

    class Full:
        def __array__(self, dtype=None, copy=None):
            raise OSError(28, "No space left on device")

    with pytest.raises(OSError, match="cannot save: No space left"):
        serializers.save_npz(file, {"a": np.ones(9), "b": Full()})
    assert file.read_bytes() == old and os.listdir(tmp_path) == ["m.npz"]


def test_links_and_permissions_stay(tmp_path: Path) -> None:
    real = tmp_path / "real.npz"
    real.touch()
    (tmp_path / "link.npz").symlink_to(real)
    serializers.save_npz(tmp_path / "link.npz", Part(2))
    assert (tmp_path / "link.npz").is_symlink() and real.stat().st_size > 0
    plain = tmp_path / "plain"
    plain.touch()
    assert real.stat().st_mode == plain.stat().st_mode


def test_numpys_own_reader_works_too(tmp_path: Path) -> None:
    serializers.save_npz(tmp_path / "m.npz", model(initialized=False))
    with np.load(tmp_path / "m.npz") as file:
        two = model()
        serializers.NpzDeserializer(file).load(two)
    with np.load(tmp_path / "m.npz", allow_pickle=True) as file:
        assert file["items/1/W"][()] is None


def chainer_model() -> kusari.Chain:
    import kusari.functions as F
    import kusari.links as L

    return kusari.Chain(
        l1=L.Linear(3, 4), bn=L.BatchNormalization(4), rest=kusari.Sequential(F.relu, L.Linear(4, 2)), lazy=L.Linear(2),
        some=kusari.ChainList(L.Linear(2, 1, nobias=True)),
    )  # fmt: skip


def test_files_of_chainer() -> None:
    loaded = chainer_model()
    serializers.load_npz(GOLDEN / "chainer_model.npz", loaded)
    np.random.seed(0)
    expected = chainer_model()  # the same seed gives the same parameters
    for (name, one), (_, two) in zip(loaded.namedparams(), expected.namedparams(), strict=True):
        np.testing.assert_array_equal(one.array, two.array, err_msg=name)
    assert loaded.bn.avg_mean.tolist() == [1, 2, 3, 4] and loaded.bn.N == 3
    optimizer = kusari.optimizers.Adam().setup(loaded)
    serializers.load_npz(GOLDEN / "chainer_adam.npz", optimizer)
    assert (optimizer.t, optimizer.epoch, loaded.l1.W.update_rule.t) == (2, 1, 2)
    assert loaded.l1.W.update_rule.state["m"].shape == (4, 3) and loaded.lazy.W.update_rule.state is None


def test_files_for_chainer(tmp_path: Path) -> None:
    """Names, shapes and dtypes are those of the files that Chainer wrote."""
    model = chainer_model()
    serializers.load_npz(GOLDEN / "chainer_model.npz", model)
    optimizer = kusari.optimizers.Adam().setup(model)
    serializers.load_npz(GOLDEN / "chainer_adam.npz", optimizer)
    for name, obj in (("chainer_model.npz", model), ("chainer_adam.npz", optimizer)):
        serializers.save_npz(tmp_path / name, obj)
        with np.load(tmp_path / name, allow_pickle=True) as ours, np.load(GOLDEN / name, allow_pickle=True) as theirs:
            assert sorted(ours.files) == sorted(theirs.files)
            for key in theirs.files:
                assert ours[key].dtype == theirs[key].dtype
                np.testing.assert_array_equal(ours[key], theirs[key], err_msg=key)
    import zipfile

    with zipfile.ZipFile(tmp_path / "chainer_model.npz") as file:
        # NumPy 1 does not know the module by its new name.
        assert b"numpy.core.multiarray" in file.read("lazy/W.npy") and b"_core" not in file.read("lazy/W.npy")
