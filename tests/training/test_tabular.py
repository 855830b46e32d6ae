"""Datasets with named columns: what is read of them and what comes out; the expected values are Chainer 7.8.1's."""

from __future__ import annotations

import numpy as np
import pytest

from kusari import iterators
from kusari.dataset import TabularDataset, concat_examples, tabular


class Table(TabularDataset):
    """Four rows; it notes what it was asked for."""

    def __init__(self, mode=tuple, names="abc"):
        self._mode, self._keys, self.log = mode, tuple(names), []

    def __len__(self):
        return 4

    @property
    def keys(self):
        return self._keys

    @property
    def mode(self):
        return self._mode

    def get_examples(self, indices, key_indices):
        self.log.append((indices, key_indices))
        data = np.arange(4 * len(self._keys)).reshape(4, -1)[slice(None) if indices is None else indices]
        return tuple((data.T if key_indices is None else data.T[list(key_indices)]).tolist())


@pytest.mark.parametrize(("mode", "names", "first", "whole"), [
    (tuple, "ab", (0, 1), ([0, 2, 4, 6], [1, 3, 5, 7])),
    (dict, "ab", {"a": 0, "b": 1}, {"a": [0, 2, 4, 6], "b": [1, 3, 5, 7]}),
    (None, "a", 0, [0, 1, 2, 3]),
])  # fmt: skip
def test_modes(mode, names, first, whole):
    table = Table(mode, names)
    assert table[0] == first and table[-4] == first and table[:2][0] == first
    assert table.fetch() == whole
    columns = tuple(whole.values()) if mode is dict else whole if mode is tuple else (whole,)
    assert table.astuple().fetch() == columns and table.asdict().fetch() == dict(zip(names, columns, strict=True))
    converted = table.convert(whole)
    arrays = converted.values() if mode is dict else converted if mode is tuple else [converted]
    assert all(isinstance(a, np.ndarray) for a in arrays)


@pytest.mark.parametrize(("index", "asked", "keys", "mode", "found"), [
    (slice(1, 3), (slice(1, 3), None), "abc", tuple, ([3, 6], [4, 7], [5, 8])),
    ([3, -3], ([3, 1], None), "abc", tuple, ([9, 3], [10, 4], [11, 5])),
    (np.array([True, False, True, False]), ([0, 2], None), "abc", tuple, ([0, 6], [1, 7], [2, 8])),
    ([], ([], None), "abc", tuple, ([], [], [])),
    ((slice(None), "b"), (slice(None), (1,)), "b", None, [1, 4, 7, 10]),
    (([2, 0], (-1, "a")), ([2, 0], (2, 0)), "ca", tuple, ([8, 2], [6, 0])),
])  # fmt: skip
def test_slices_read_what_they_show(index, asked, keys, mode, found):
    table = Table()
    view = table.slice[index]
    assert (view.keys, view.mode, view.fetch()) == (tuple(keys), mode, found)
    assert table.log == [asked]
    assert len(view) == len(found if mode is None else found[0])


@pytest.mark.parametrize(("make", "rows"), [
    (lambda t: t.slice[[3, 1, 0]].slice[[2, 0]], [0, 3]), (lambda t: t.slice[[3, 1, 0]].slice[1:], [1, 0]),
    (lambda t: t.slice[1:].slice[::2], slice(1, 4, 2)), (lambda t: t.slice[1:4].slice[[1, 0]], [2, 1]),
    (lambda t: t.slice[::-1].slice[:], slice(3, None, -1)), (lambda t: t.slice[2:].slice[5:], slice(0, 0)),
])  # fmt: skip
def test_slices_of_slices_are_one(make, rows):
    table = Table()
    view = make(table)
    found = view.fetch()
    assert table.log == [(rows, None)]
    assert found == table.slice[rows].fetch() and len(view) == len(found[0])


@pytest.mark.parametrize("rows", [slice(None), slice(2, 6), slice(None, None, -1), slice(6, 1, -2), [5, 0, 6], [],
                                  [-1]], ids=str)  # fmt: skip
def test_concatenated_rows(rows):
    one, other = Table(), tabular.from_data({k: [10 * i for i in range(3)] for k in "abc"})
    whole = one.concat(other)
    assert (len(whole), whole.mode) == (7, tuple)
    expected = [[*column, 0, 10, 20] for column in Table().fetch()]
    chosen = range(7)[rows] if isinstance(rows, slice) else rows
    assert whole.slice[rows].fetch() == tuple([[column[i] for i in chosen] for column in expected])
    assert whole.slice[rows, "c"].fetch() == [expected[2][i] for i in chosen]


def test_concatenated_rows_of_one_dataset_stay_as_they_are():
    one = tabular.from_data({"a": np.arange(4)})
    whole = one.concat(tabular.from_data({"a": [10, 20, 30]}))
    np.testing.assert_equal(whole.get_examples(slice(3, None, -2), None), (np.array([3, 1]),))
    assert type(whole.get_examples([0, 1], None)[0]) is np.ndarray
    assert whole.get_examples([5, 4], None) == ([20, 10],)


def test_joined_columns_are_read_where_they_are():
    one, other = Table(), Table(dict, "xy")
    both = one.join(other)
    assert (both.keys, both.mode, len(both)) == (tuple("abcxy"), tuple, 4)
    assert both[1] == (3, 4, 5, 2, 3)
    one.log.clear(), other.log.clear()
    assert both.slice[[0, 2], ("y", "a", "x")].fetch() == ([1, 5], [0, 6], [0, 4])
    assert (one.log, other.log) == ([([0, 2], (0,))], [([0, 2], (1, 0))])
    assert both.slice[:, "b"].fetch() == [1, 4, 7, 10] and len(other.log) == 1
    assert Table(None, "a").join(other).mode is dict


@pytest.mark.parametrize(("result", "mode", "first"), [
    (lambda s: (s, -s), tuple, (3, -3)), (lambda s: {"q": s, "p": -s}, dict, {"p": -3, "q": 3})])
def test_transforms(result, mode, first):
    for source in Table(), Table(dict):
        view = source.transform(("p", "q"), lambda *a, **k: result(sum(a) + sum(k.values())))
        assert view.mode is mode and view[0] == first and source.log == [([0], None), ([0], None)]
        assert view.slice[1:3, "p"].fetch() == ([12, 21] if mode is tuple else [-12, -21])
        batch = source.transform_batch(("p", "q"), lambda *a, **k: result(np.sum([*a, *k.values()], 0)))
        assert batch.mode is mode and batch[0] == first
        assert list(batch.slice[[2, 1], "q"].fetch()) == ([-21, -12] if mode is tuple else [21, 12])


def test_transforms_to_single_values():
    view = Table().transform("sum", lambda a, b, c: a + b + c)
    assert (view.keys, view.mode, view.fetch()) == (("sum",), None, [3, 12, 21, 30])
    assert Table().slice[:0].transform_batch(("p",), lambda a, b, c: a).fetch() == []


def test_converters():
    table = Table().with_converter(lambda a, b, c: (sum(a), c))
    for view in table, table.slice[:], table.concat(Table()), table.asdict().astuple():
        assert view.convert(table.fetch()) == (18, [2, 5, 8, 11])
    assert table.asdict().convert({"a": [1, 2], "b": 0, "c": 5}) == (3, 5)
    assert Table(None, "a").with_converter(max).convert([1, 3]) == 3


@pytest.mark.parametrize(("data", "options", "mode", "second", "part"), [
    ([5, 6, 7], {}, None, 6, [7, 6]), (("a", np.arange(3)), {}, None, 1, [2, 1]),
    (([5, 6, 7], ("b", [1, 2, 3])), {}, tuple, (6, 2), ([7, 6], [3, 2])), (([5, 6, 7],), {}, tuple, (6,), ([7, 6],)),
    ({"a": [5, 6, 7], "b": lambda i: i * 10}, {}, dict, {"a": 6, "b": 10}, {"a": [7, 6], "b": [20, 10]}),
    (("a", lambda i: i * i), {"size": 3}, None, 1, [4, 1]),
    ((("a", "b"), lambda i: {"b": i, "a": -i}), {"size": 3}, dict, {"b": 1, "a": -1}, {"b": [2, 1], "a": [-2, -1]}),
    ((("c", [5, 6, 7]), (("a", "b"), lambda i: (i, -i))), {}, tuple, (6, 1, -1), ([7, 6], [2, 1], [-2, -1])),
])  # fmt: skip
def test_from_data(data, options, mode, second, part):
    made = tabular.from_data(data, **options)
    assert (made.mode, len(made), made[1]) == (mode, 3, second)
    found = made.slice[[2, 1]].fetch()
    np.testing.assert_equal(found, part)
    np.testing.assert_equal(made.slice[:0:-1].fetch(), part)
    columns = found.values() if mode is dict else found if mode is tuple else [found]
    assert len(columns) == len(made.keys) == len(set(made.keys))


@pytest.mark.parametrize(("call", "error", "text"), [
    (lambda t: t.slice[1], TypeError, "single example"), (lambda t: t.slice[[9]], IndexError, "row 9"),
    (lambda t: t.slice[[True]], ValueError, "1 flags for 4 rows"), (lambda t: t.slice[:, "z"], KeyError, "'z' among"),
    (lambda t: t.slice[:, 3], IndexError, "column 3"), (lambda t: t.slice[:, (1.5,)], KeyError, "1.5"),
    (lambda t: t.concat(Table(tuple, "xyz")), ValueError, "same keys"),
    (lambda t: t.join(t), ValueError, "'a' is there twice"), (lambda t: t.join(t.slice[:1]), ValueError, "4 and 1"),
    (lambda t: t.transform("p", lambda *a: (1, 2))[0], ValueError, r"one value for each of \('p',\), got 2"),
    (lambda t: t.transform("p", lambda *a: {"q": 1})[0], ValueError, "a dictionary of"),
    (lambda t: t.transform("p", lambda a, *b: (a,) if a else a).fetch(), ValueError, "a single value before"),
    (lambda t: t.transform_batch("p", lambda *a: [1]).fetch(), ValueError, "it was given, 4, got 1"),
    (lambda t: t.slice[:0].transform("p", lambda *a: 1).mode, ValueError, "first example"),
    (lambda t: tabular.from_data(()), ValueError, "at least one"), (lambda t: tabular.from_data(5), TypeError, "int"),
    (lambda t: tabular.from_data(len, size=2), ValueError, "needs a name"),
    (lambda t: tabular.from_data(("a", len)), ValueError, "size must be given"),
    (lambda t: tabular.from_data(([1], [1, 2])), ValueError, "same length"),
    (lambda t: TabularDataset().mode, NotImplementedError, "has to define mode"),
])  # fmt: skip
def test_errors(call, error, text):
    with pytest.raises(error, match=text):
        call(Table())


def test_iterators_take_them():
    batch = next(iterators.SerialIterator(Table(), 2, shuffle=False))
    assert batch == [(0, 1, 2), (3, 4, 5)]
    np.testing.assert_equal(concat_examples(batch), ([0, 3], [1, 4], [2, 5]))
