"""Differences from Chainer 7.8.1 that the sweep of `tests/oracle` found, with what it gives."""
from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import kusari
import kusari.functions as F
import kusari.links as L
from kusari import Variable, datasets

X = np.arange(12, dtype="f").reshape(3, 4)
A = np.arange(6, dtype="f").reshape(2, 3)


@pytest.mark.parametrize("use", [
    lambda x: F.tile(x, 1), lambda x: F.tile(x, ()), lambda x: F.broadcast(x), lambda x: F.broadcast(x, A[:1])[0],
    lambda x: F.pad(x, 0, "constant", constant_values=((1, 2),) * 2)])  # fmt: skip
def test_results_that_are_like_their_inputs_are_of_their_own(use: Any) -> None:
    x = Variable(A)
    y = use(x)
    assert y is not x and y.creator is not None
    y.grad = A + 1
    y.backward()
    np.testing.assert_array_equal(x.grad, A + 1)


def test_datasets_of_pairs_take_lists_of_indices_to_their_arrays() -> None:
    for found in (datasets.TupleDataset(X, X[:, 0])[[2, 0]], [*datasets.DictDataset(a=X, b=X[:, 0])[[2, 0]].values()]):
        np.testing.assert_array_equal(found[0], X[[2, 0]])
        np.testing.assert_array_equal(found[1], X[[2, 0], 0])
    assert [b for _, b in datasets.TupleDataset(X, [1, 2, 3])[1:]] == [2, 3]


def test_parameters_of_a_distribution_are_those_given() -> None:
    low, scale = Variable(np.zeros(3, "f")), Variable(np.ones(3, "f"))
    uniform = kusari.distributions.Uniform(loc=low, scale=scale)
    assert uniform.params == {"loc": low, "scale": scale} and uniform.scale is scale
    F.sum(uniform.entropy).backward()
    assert low.grad is None and scale.grad is not None
    with pytest.warns(RuntimeWarning, match="undefined"):
        assert kusari.distributions.Cauchy(low, scale).mean.creator is None


def test_spectral_normalization_begins_with_what_is_drawn() -> None:
    np.random.seed(4)
    link = L.Linear(2, 3, initialW=0.5).add_hook(kusari.link_hooks.SpectralNormalization())
    np.random.seed(4)
    np.testing.assert_array_equal(link.W_u, np.random.normal(size=3).astype("f"))


def test_samples_of_a_dirichlet_distribution_come_row_after_row() -> None:
    alpha = np.array([[1, 2, 3], [4, 5, 6]], "f")
    np.random.seed(2)
    expected = np.stack([np.random.dirichlet(row, 2) for row in alpha], 1)
    np.random.seed(2)
    np.testing.assert_allclose(kusari.distributions.Dirichlet(alpha).sample(2).array, expected, rtol=1e-5)
