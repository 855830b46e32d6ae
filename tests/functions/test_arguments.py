"""Arguments that the rows of the table leave at their defaults, and shapes at the edge of what is allowed."""
from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import kusari
import kusari.functions as F
from kusari.gradient_check import check_backward, check_double_backward
from kusari.utils.type_check import InvalidType

R = np.random.RandomState


def _checked(call: Any, *xs: np.ndarray) -> Any:
    """Return ``call(*xs)``, after its gradients of both orders were compared with differences."""
    y = call(*map(kusari.as_variable, xs))
    g = np.asarray(R(1).randn(*y.shape))
    check_backward(call, xs, g, eps=1e-5, atol=1e-6, rtol=1e-5)
    check_double_backward(lambda *vs: call(*vs) ** 2, xs, g, [np.asarray(R(2).randn(*x.shape)) for x in xs], eps=1e-5,
                          atol=1e-5, rtol=1e-4)
    return y.array


def test_batch_normalization_over_all_axes() -> None:
    x = R(0).randn(4, 3)
    y = _checked(lambda *a: F.batch_normalization(*a, axis=(0, 1)), x, np.array(1.5), np.array(0.3))
    np.testing.assert_allclose(y, (x - x.mean()) / np.sqrt(x.var() + 2e-5) * 1.5 + 0.3)


def test_a_running_mean_alone_is_refused() -> None:
    x, one = np.ones((2, 3), "f"), np.ones(3, "f")
    with pytest.raises(TypeError, match="running_var"):
        F.batch_normalization(x, one, one, running_mean=one.copy())


@pytest.mark.parametrize("subscripts, shapes", [
    ("ii->i", [(3, 3)]), ("ii", [(3, 3)]), ("iij,jk->ik", [(2, 2, 3), (3, 2)]), ("i,jijj->ji", [(2,), (3, 2, 3, 3)]),
    ("...ii->...", [(2, 3, 3)]), ("aa,bb->ab", [(2, 2), (3, 3)])])
def test_einsum_takes_diagonals(subscripts: str, shapes: list[tuple[int, ...]]) -> None:
    xs = [R(i).randn(*s) for i, s in enumerate(shapes)]
    np.testing.assert_allclose(_checked(lambda *a: F.einsum(subscripts, *a), *xs), np.einsum(subscripts, *xs))


@pytest.mark.parametrize("axes", [((0, 1), (1, 2)), ((0, 1), (1, 2), (2, 0)), ((..., 1), (1, 2), (..., 2))], ids=str)
def test_einsum_takes_lists_of_labels(axes: Any) -> None:
    a, b = R(0).randn(2, 3), R(1).randn(3, 4)
    rest = list(map(list, axes[2:]))
    y = _checked(lambda x, y: F.einsum(x, list(axes[0]), y, list(axes[1]), *rest), a, b)
    np.testing.assert_allclose(y, np.einsum(a, list(axes[0]), b, list(axes[1]), *rest))


def test_einsum_of_two_dtypes_is_of_the_wider_and_gradients_are_of_each() -> None:
    a, b = (kusari.Variable(R(i).randn(2, 2).astype(d)) for i, d in enumerate("ef"))
    y = F.einsum("ij,jk->ik", a, b)
    y.grad = np.ones((2, 2), "f")
    y.backward()
    assert (y.dtype, a.grad_var.dtype, b.grad_var.dtype) == ("f", "e", "f")


def test_windows_of_padding_average_to_zero() -> None:
    x = R(0).randn(1, 1, 4).astype("f")
    static = kusari.static_graph(lambda v: F.average_pooling_1d(v, 2, 3, 3, pad_value=None))
    for _ in range(3):
        np.testing.assert_allclose(static(x).array.ravel(), [0, x[0, 0, :2].mean(), x[0, 0, 3]], rtol=1e-6)


@pytest.mark.parametrize("dtype", ["i", "B", "?", "d"])
def test_likelihoods_take_data_of_any_dtype(dtype: str) -> None:
    x, y = np.eye(3, dtype=dtype), R(0).randn(3, 3).astype("f")
    for call in (lambda v: F.bernoulli_nll(v, y), lambda v: F.gaussian_nll(v, y, y)):
        assert call(x).dtype == np.float32
        np.testing.assert_array_equal(call(x).array, call(x.astype("f")).array)


def test_scatter_add_wants_what_the_index_takes() -> None:
    x, b = R(0).randn(3, 2), R(1).randn(2)
    np.testing.assert_array_equal(F.scatter_add(x, ([0, 0], 1), b).array - x, [[0, b.sum()], [0, 0], [0, 0]])


def test_einsum_refuses_diagonals_of_axes_that_differ() -> None:
    with pytest.raises(InvalidType, match="one extent for 'i'"):
        F.einsum("ii->i", np.ones((2, 3), "f"))


@pytest.mark.parametrize("values", [(1.5, 2.5), ((1, 2), (3, 4))])
def test_padding_with_a_value_for_each_side(values: Any) -> None:
    x, widths = R(0).randn(2, 3), ((1, 2), (2, 0))
    y = _checked(lambda v: F.pad(v, widths, "constant", constant_values=values), x)
    np.testing.assert_array_equal(y, np.pad(x, widths, "constant", constant_values=values))


@pytest.mark.parametrize("function", [F.squared_error, F.squared_difference, F.absolute_error],
                         ids=["squared_error", "squared_difference", "absolute_error"])
def test_errors_of_different_shapes_are_refused(function: Any) -> None:
    with pytest.raises(InvalidType, match="shape"):  # they would broadcast to all pairs
        function(np.ones((3, 1), "f"), np.ones(3, "f"))


def test_sequences_longer_than_asked_for_are_refused() -> None:
    with pytest.raises(InvalidType, match="length=2"):
        F.pad_sequence([np.ones(3, "f")], length=2)


@pytest.mark.parametrize("dtype", ["i", "l", "?"])
def test_sequences_of_labels_are_padded_compiled_or_not(dtype: str) -> None:
    xs = [np.array([1, 0, 1], dtype), np.array([1], dtype)]
    static = kusari.static_graph(lambda *xs: (F.pad_sequence(xs, padding=-1), F.pad_sequence(xs, 4)))
    for _ in range(3):
        y, z = static(*xs)
        assert y.dtype == z.dtype == xs[0].dtype
        np.testing.assert_array_equal(y.array, np.array([[1, 0, 1], [1, -1, -1]]).astype(dtype))
        np.testing.assert_array_equal(z.array, np.array([[1, 0, 1, 0], [1, 0, 0, 0]]).astype(dtype))


def test_places_of_maxima_are_of_one_dtype_compiled_or_not() -> None:
    x = R(0).randn(2, 3, 5, 6).astype("f")
    static = kusari.static_graph(lambda v: F.max_pooling_2d(v, 2, return_indices=True))
    _, expected = F.max_pooling_2d(x, 2, return_indices=True)
    for _ in range(3):
        _, places = static(x)
        assert places.dtype == expected.dtype == np.int64
        np.testing.assert_array_equal(places.array, expected)
