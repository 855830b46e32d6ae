"""From batches to arrays."""

import pickle

import numpy as np
import pytest

from kusari import dataset
from kusari.dataset import concat_examples

F32 = np.float32


def flat(result):
    """Values and dtypes of a tree of arrays."""
    if isinstance(result, tuple):
        return tuple(flat(each) for each in result)
    if isinstance(result, dict):
        return {key: flat(each) for key, each in result.items()}
    return result.tolist(), result.dtype.name


@pytest.mark.parametrize(
    ("batch", "padding", "expected"),
    [
        ([(np.zeros(2, F32), 1), (np.ones(2, F32), 2)], None, (([[0, 0], [1, 1]], "float32"), ([1, 2], "int64"))),
        ([{"a": 1, "b": 2.0}, {"a": 2, "b": 3.0}], None, {"a": ([1, 2], "int64"), "b": ([2, 3], "float64")}),
        ([np.int32(1), np.int32(2)], None, ([1, 2], "int32")),
        ([True, False], None, ([True, False], "bool")),
        ([True, 2], None, ([1, 2], "int64")),
        ([1, 2.5], None, ([1.0, 2.5], "float64")),
        ([2**63, 1], None, ([2.0**63, 1.0], "float64")),
        ([np.float16(1), F32(2)], None, ([1.0, 2.0], "float32")),
        ([np.array(1, F32), np.array(2, F32)], None, ([1.0, 2.0], "float32")),
        ([np.ones(1, np.int8), np.zeros(1, F32)], None, ([[1], [0]], "float32")),
        ([np.arange(6.0).reshape(3, 2).T] * 2, None, ([[[0, 2, 4], [1, 3, 5]]] * 2, "float64")),
        ([np.ones((0, 2), F32)] * 3, None, ([[]] * 3, "float32")),
        ([[1, 2], [3, 4]], None, ([[1, 2], [3, 4]], "int64")),
        (np.arange(3, dtype=F32), None, ([0, 1, 2], "float32")),
        ([np.ones(2, F32), np.ones(3, F32)], 0, ([[1, 1, 0], [1, 1, 1]], "float32")),
        ([np.ones((1, 2), F32), np.ones((2, 1), F32)], 7, ([[[1, 1], [7, 7]], [[1, 7], [1, 7]]], "float32")),
        ([(np.ones(1), 1), (np.ones(2), 2)], (-1, None), (([[1, -1], [1, 1]], "float64"), ([1, 2], "int64"))),
        ([{"a": np.ones(1)}, {"a": np.ones(2)}], {"a": 9}, {"a": ([[1, 9], [1, 1]], "float64")}),
    ],
)
@pytest.mark.parametrize("device", [None, -1, "@numpy"])
def test_concat_examples(batch, padding, expected, device):
    assert flat(concat_examples(batch, device, padding)) == expected
    assert flat(dataset.ConcatWithAsyncTransfer()(batch, device, padding)) == expected


@pytest.mark.parametrize(
    ("batch", "padding", "message"),
    [
        ([], None, "batch is empty"),
        ([(1, 2), (1,)], None, "the first has 2, the one at 1 has 1"),
        ([np.zeros(2), np.zeros(3)], None, r"the first has \(2,\), the one at 1 has \(3,\); give concat_examples"),
        ([(np.ones(2), 1), (np.ones(3), 1)], None, "element 0 of a batch"),
        ([(1, 2)], (1,), "padding has 1 elements for examples of 2"),
        ([np.ones(2), np.ones((2, 2))], 0, "equal ndim"),
    ],
)
def test_errors(batch, padding, message):
    with pytest.raises(ValueError, match=message):
        concat_examples(batch, padding=padding)


def test_converter_sees_a_device_object():
    @dataset.converter()
    def show(batch, device):
        """What it is for."""
        return batch, device

    assert isinstance(show, dataset.Converter) and show.__doc__ == "What it is for."
    for device in (-1, "@numpy"):
        assert show([1], device)[1].xp is np
    assert show([1], None) == ([1], None)


@pytest.mark.parametrize(("device", "seen"), [(None, None), (-1, -1), ("@numpy", -1)])
def test_plain_function_sees_an_old_style_device(device, seen):
    from kusari.dataset.convert import call_converter

    assert call_converter(lambda batch, device: device, [1], device) == seen


def test_to_device():
    x = np.ones(1)
    assert dataset.to_device(None, x) is x
    assert dataset.to_device("@numpy", [x])[0] is x


def test_converters_are_pickled_by_name():
    assert pickle.loads(pickle.dumps(concat_examples)) is concat_examples
