"""Order, epochs and resumption of the iterators; expected orders were taken from Chainer 7.8.1."""

import copy
import pickle
import time

import numpy as np
import pytest

from kusari import iterators
from kusari.serializers import DictionarySerializer, NpzDeserializer

SEED3 = [[4, 6, 5], [3, 1, 0], [2, 6, 4], [1, 2, 3], [5, 0, 6], [1, 3, 4], [0, 5, 2], [3, 5, 4]]
KINDS = {
    "serial": iterators.SerialIterator,
    "multithread": lambda *a, **k: iterators.MultithreadIterator(*a, n_threads=2, **k),
    "multiprocess": lambda *a, **k: iterators.MultiprocessIterator(*a, n_processes=1, **k),
}
QUICK = ["serial", "multithread"]


@pytest.fixture(params=QUICK)
def make(request):
    made = []

    def build(*args, **kwargs):
        made.append(KINDS[request.param](*args, **kwargs))
        return made[-1]

    yield build
    for each in made:
        each.finalize()


def test_shuffled_order_is_chainers(make):
    np.random.seed(3)
    it = make(list(range(7)), 3)
    assert [it.next() for _ in range(8)] == SEED3


@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")  # newer Pythons warn of fork with threads
def test_multiprocess_iterator():
    np.random.seed(3)
    with KINDS["multiprocess"](list(range(7)), 3) as it:
        assert [it.next() for _ in range(8)] == SEED3
    with pytest.raises(RuntimeError, match="finalized"):
        it.next()


def state(it):
    return it.epoch, it.is_new_epoch, it.current_position


@pytest.mark.parametrize(
    ("size", "batch_size", "expected"),
    [
        (7, 3, [([0, 1, 2], 0, False, 3), ([3, 4, 5], 0, False, 6), ([6, 0, 1], 1, True, 2), ([2, 3, 4], 1, False, 5)]),
        (3, 7, [([0, 1, 2, 0, 1, 2, 0], 2, True, 1), ([1, 2, 0, 1, 2, 0, 1], 4, True, 2)]),
        (3, 6, [([0, 1, 2, 0, 1, 2], 2, True, 0), ([0, 1, 2, 0, 1, 2], 4, True, 0)]),
    ],
)
def test_repeating(make, size, batch_size, expected):
    it = make(list(range(size)), batch_size, shuffle=False)
    assert it.previous_epoch_detail is None
    before = 0.0
    for batch, *after in expected:
        assert it.next() == batch
        assert state(it) == tuple(after)
        assert it.previous_epoch_detail == before
        assert it.epoch_detail == pytest.approx(it.epoch + it.current_position / size)
        before = it.epoch_detail


def test_one_pass_and_reset(make):
    it = make(list(range(7)), 3, repeat=False, shuffle=False)
    for _ in range(2):
        assert list(it) == [[0, 1, 2], [3, 4, 5], [6]]
        assert (it.epoch, it.is_new_epoch, it.epoch_detail, it.previous_epoch_detail) == (1, True, 1.0, 1.0)
        with pytest.raises(StopIteration):
            it.next()
        it.reset()
        assert (it.epoch, it.is_new_epoch, it.epoch_detail, it.previous_epoch_detail) == (0, False, 0.0, None)


def test_order_sampler_sees_where_the_last_batch_began(make):
    calls = []

    def sampler(order, position):
        calls.append((list(order), position))
        return np.roll(np.arange(5), len(calls))

    it = make(list(range(5)), 2, order_sampler=sampler)
    assert [it.next() for _ in range(5)] == [[4, 0], [1, 2], [3, 3], [4, 0], [1, 2]]
    assert calls[:2] == [([0, 1, 2, 3, 4], 0), ([4, 0, 1, 2, 3], 4)]


def test_order_may_be_shorter_than_the_dataset(make):
    it = make(list(range(3)), 2, order_sampler=lambda order, position: np.array([2, 0]))
    assert [it.next() for _ in range(3)] == [[2, 0]] * 3
    assert (it.epoch, it.epoch_detail) == (3, 3.0)


@pytest.mark.parametrize("kind", QUICK)
@pytest.mark.parametrize("steps", [0, 1, 2, 5])
def test_resumed_goes_on(kind, steps):
    """A new iterator continues where the saved one stood; orders drawn for batches read ahead are not drawn again."""
    with KINDS[kind](list(range(7)), 3) as it:
        for _ in range(steps):
            it.next()
        saved = DictionarySerializer()
        it.serialize(saved)
        random = np.random.get_state()
        expected = [it.next() for _ in range(6)]
    np.random.seed(99)
    with KINDS[kind](list(range(7)), 3) as other:
        other.serialize(NpzDeserializer(saved.target))
        np.random.set_state(random)
        assert (other.epoch, other.current_position) == (steps * 3 // 7, steps * 3 % 7)
        assert [other.next() for _ in range(6)] == expected


def test_own_generator_of_a_sampler_is_resumed():
    def build(seed):
        sampler = iterators.ShuffleOrderSampler(np.random.RandomState(seed))
        return iterators.SerialIterator(list(range(5)), 5, order_sampler=sampler)

    it = build(0)
    it.next()
    saved = DictionarySerializer()
    it.serialize(saved)
    other = build(1)
    other.serialize(NpzDeserializer(saved.target))
    assert [other.next() for _ in range(3)] == [it.next() for _ in range(3)]


def test_position_of_chainers_file():
    """Chainer writes these keys and no others."""
    it = iterators.SerialIterator(list(range(4)), 3)
    it.serialize(
        NpzDeserializer(
            {
                "current_position": np.array(3),
                "epoch": np.array(2),
                "is_new_epoch": np.array(False),
                "order": np.array([3, 2, 1, 0]),
                "previous_epoch_detail": np.array(2.0),
            }
        )
    )
    assert it.next()[0] == 0
    assert (it.epoch, it.previous_epoch_detail) == (3, 2.75)


def test_errors_in_a_worker_reach_the_caller():
    class Broken(list):
        def __getitem__(self, i):
            raise KeyError("no such picture")

    with iterators.MultithreadIterator(Broken([1]), 1) as it, pytest.raises(KeyError, match="no such picture"):
        it.next()


def test_copy_of_a_thread_iterator_stands_at_the_same_place():
    with iterators.MultithreadIterator(list(range(6)), 2, shuffle=False, repeat=False) as it:
        it.next()
        with copy.copy(it) as other:
            assert list(other) == [[2, 3], [4, 5]] == list(it)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (dict(shuffle=True, order_sampler=lambda o, p: o), "Please set `shuffle` to `None`"),
        (dict(shuffle=False, order_sampler=lambda o, p: o), "Please set `shuffle` to `None`"),
    ],
)
def test_wrong_arguments(make, arguments, message):
    with pytest.raises(ValueError, match=message):
        make([1, 2], 1, **arguments)


def test_empty_dataset(make):
    with pytest.raises(ValueError, match="empty"):
        make([], 2).next()


def test_shuffle_order_sampler_draws_one_permutation():
    sampler = iterators.ShuffleOrderSampler(np.random.RandomState(0))
    assert sampler(np.arange(5), 2).tolist() == [2, 0, 1, 3, 4]
    assert sampler(np.arange(5), 0).tolist() == [0, 2, 1, 4, 3]


@pytest.mark.parametrize("make", [
    lambda data: iterators.MultiprocessIterator(data, 2, shuffle=False, n_processes=1, n_prefetch=2),
    lambda data: iterators.MultithreadIterator(data, 2, shuffle=False)])
def test_pickled_while_it_reads(make):
    one = make(list(range(6)))
    assert one.next() == [0, 1]
    other = pickle.loads(pickle.dumps(one))
    for iterator in one, other:
        assert [iterator.next(), iterator.next(), iterator.next()] == [[2, 3], [4, 5], [0, 1]]
        iterator.finalize()


class Slow:
    """Data that come a little late."""

    def __len__(self):
        return 2

    def __getitem__(self, i):
        time.sleep(0.2 * i)
        return i


@pytest.mark.filterwarnings("ignore:.*multi-threaded, use of fork")  # Python's, where tests run side by side
def test_slow_data_only_warn():
    iterator = iterators.MultiprocessIterator(Slow(), 2, shuffle=False, n_processes=1, dataset_timeout=0.01)
    with pytest.warns(iterators.MultiprocessIterator.TimeoutWarning, match="0.01 s"):
        assert iterator.next() == [0, 1]
    iterator.finalize()
