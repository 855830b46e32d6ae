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


def test_places_of_maxima_are_of_one_dtype_compiled_or_not() -> None:
    x = R(0).randn(2, 3, 5, 6).astype("f")
    static = kusari.static_graph(lambda v: F.max_pooling_2d(v, 2, return_indices=True))
    _, expected = F.max_pooling_2d(x, 2, return_indices=True)
    for _ in range(3):
        _, places = static(x)
        assert places.dtype == expected.dtype == np.int64
        np.testing.assert_array_equal(places.array, expected)
