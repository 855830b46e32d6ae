"""Batches cut from arrays are what reading and stacking examples gives, and notice when they are changed."""

import numpy as np
import pytest

from kusari import dataset, datasets, iterators, training
from kusari.dataset import _batch

X = np.random.RandomState(0).rand(9, 2, 3).astype(np.float32)
T = np.arange(9, dtype=np.int32)
PAIRS = datasets.TupleDataset(X, T)
OBJECTS = np.empty(9, object)
OBJECTS[:] = list(X)
WHOLE = {
    "array": X,
    "labels": T,
    "pairs": PAIRS,
    "part": datasets.SubDataset(PAIRS, 2, 8),
    "shuffled part": datasets.SubDataset(PAIRS, 2, 8, list(range(9))[::-1]),
    "random halves": datasets.split_dataset_random(PAIRS, 6, seed=0)[0],
    "nested": datasets.SubDataset(datasets.SubDataset(X, 1, 9), 1, 8, np.arange(8)[::-1]),
}


class Doubled(datasets.TupleDataset):
    def __getitem__(self, index):
        x, t = super().__getitem__(index)
        return 2 * x, t


class Halved(datasets.SubDataset):
    def get_example(self, i):
        x, t = super().get_example(i)
        return x / 2, t


ONE_BY_ONE = {
    "list": [(x, t) for x, t in zip(X, T, strict=True)],
    "dicts": datasets.DictDataset(x=X, t=T),
    "mixed": datasets.TupleDataset(X, list(T)),
    "subclass": Doubled(X, T),
    "subclass of part": Halved(PAIRS, 0, 9),
    "part of subclass": datasets.SubDataset(Doubled(X, T), 1, 9),
    "transformed": datasets.TransformDataset(PAIRS, lambda pair: pair),
    "objects": OBJECTS,
}


def same(a, b):
    assert type(a) is type(b)
    if isinstance(a, tuple):
        assert len(a) == len(b) and all(same(x, y) for x, y in zip(a, b, strict=True))
    elif isinstance(a, dict):
        assert list(a) == list(b) and all(same(a[k], b[k]) for k in a)
    else:
        assert a.dtype == b.dtype and np.array_equal(a, b)
    return True


@pytest.mark.parametrize("data", [*WHOLE.values(), *ONE_BY_ONE.values()], ids=[*WHOLE, *ONE_BY_ONE])
def test_same_as_one_by_one(data):
    order = np.random.RandomState(1).permutation(len(data))
    it = iterators.SerialIterator(data, 4, order_sampler=lambda o, p: order)
    plain = [data[int(i)] for i in order[:4]]
    batch = it.next()
    assert len(batch) == len(plain) and all(same(a, b) for a, b in zip(batch, plain, strict=True))
    same(dataset.concat_examples(batch, -1), dataset.concat_examples(plain, -1))


class Called(iterators.SerialIterator):
    def next(self):
        return [(x * 2, t) for x, t in super().next()]


class Recorded:
    """An optimizer that keeps what it is given."""

    target = None

    def __init__(self):
        self.given = []

    def update(self, loss, *args, **kwargs):
        self.given.append(args or kwargs)

    def new_epoch(self, auto=False):
        self.given.append(auto)


@pytest.mark.parametrize(("name", "kind"), [(name, iterators.SerialIterator) for name in (*WHOLE, *ONE_BY_ONE)]
                         + [("pairs", Called), ("list", Called)])
def test_an_updater_gives_what_concatenating_batches_gives(name, kind):
    """Epochs end within batches and with them, numbers are drawn as by ``next``."""
    data = {**WHOLE, **ONE_BY_ONE}[name]

    def run(converter):
        np.random.seed(5)
        optimizer = Recorded()
        updater = training.StandardUpdater(kind(data, 4), optimizer, converter)
        details = []
        for _ in range(2 * len(data)):
            updater.update()
            details.append((updater.epoch_detail, updater.previous_epoch_detail, updater.is_new_epoch))
        return optimizer.given, details

    whole, one_by_one = run(dataset.concat_examples), run(lambda batch, device: dataset.concat_examples(list(batch)))
    assert whole[1] == one_by_one[1] and len(whole[0]) == len(one_by_one[0])
    for a, b in zip(whole[0], one_by_one[0], strict=True):
        assert a == b if isinstance(a, bool) else same(a, b)


@pytest.mark.parametrize("name", [*WHOLE, *ONE_BY_ONE])
def test_which_are_taken_at_once(name):
    batch = iterators.SerialIterator({**WHOLE, **ONE_BY_ONE}[name], 2).next()
    assert (_batch.columns_of_batch(batch) is not None) == (name in WHOLE)


@pytest.mark.parametrize(
    "change",
    [
        lambda batch: batch.append(PAIRS[0]),
        lambda batch: batch.pop(),
        lambda batch: batch.reverse(),
        lambda batch: batch.__setitem__(0, PAIRS[5]),
        lambda batch: batch[1][0].fill(7),
    ],
)
def test_a_changed_batch(change):
    batch = iterators.SerialIterator(PAIRS, 3, shuffle=False).next()
    change(batch)
    same(dataset.concat_examples(batch), dataset.concat_examples(list(batch)))


def test_batches_do_not_write_to_the_dataset():
    before = X.copy()
    batch = iterators.SerialIterator(PAIRS, 3).next()
    x, _ = dataset.concat_examples(batch)
    x[...] = -1
    np.testing.assert_array_equal(X, before)
