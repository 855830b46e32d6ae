"""Functions that draw: the numbers Chainer 7.8.1 draws from the same seed, and what they do with them."""
from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from functions.lowered import lowering

import kusari
import kusari.functions as F

X = np.arange(1, 13, dtype=np.float32).reshape(3, 4)
# First rows of what Chainer 7.8.1 gives for X after numpy.random.seed(0).
CHAINER: dict[str, tuple[Any, list[float]]] = {
    "dropout": (lambda x: F.dropout(x, 0.3), [
        1.4285714626312256, 2.857142925262451, 4.285714149475098, 5.714285850524902]),
    "zoneout": (lambda x: F.zoneout(x, -x, 0.3), [-1.0, -2.0, -3.0, -4.0]),
    "gaussian": (lambda x: F.gaussian(x, x * 0.1), [2.8544974327087402, 2.44224214553833, 4.137131214141846,
                                                   6.737032890319824]),
    "rrelu": (lambda x: F.rrelu(-x), [-0.23933614790439606, -0.5479955673217773, -0.7517271041870117,
                                      -0.9540693163871765]),
    "gumbel_softmax": (F.gumbel_softmax, [8.38634581700956e-14, 1.928886390889506e-11, 9.222344488080125e-06,
                                          0.9999908208847046]),
}


@pytest.mark.parametrize("name", CHAINER)
def test_same_seed_same_numbers(name: str) -> None:
    call, expected = CHAINER[name]
    np.random.seed(0)
    y = call(X)
    assert y.dtype == np.float32
    np.testing.assert_allclose(y.array[0], expected, rtol=2e-6 if name != "gumbel_softmax" else 1e-4)


@pytest.mark.parametrize("name", CHAINER)
def test_lowered_draws_are_the_same(name: str) -> None:
    """The tape compares values and the generator's state after every node, backward included."""
    call, _ = CHAINER[name]
    with lowering(1e-5) as tape:
        x = kusari.Variable(X.copy())
        y = call(x)
        gx, = kusari.grad([y], [x], [kusari.Variable(np.ones_like(X))], enable_double_backprop=True)
        if gx.creator is not None and name in ("gaussian", "gumbel_softmax"):
            kusari.grad([gx], [x], [kusari.Variable(np.ones_like(X))])
    assert not [name for name in tape.seen if "not lowered" in name]


def test_dropout_gradient_uses_the_mask() -> None:
    x = kusari.Variable(X.copy())
    y, mask = F.dropout(x, 0.5, return_mask=True)
    y.grad = X.copy()
    y.backward()
    assert set(np.unique(mask)) == {0, 2}
    np.testing.assert_array_equal(y.array, X * mask)
    np.testing.assert_array_equal(x.grad, X * mask)


def test_dropout_options() -> None:
    mask = np.full((3, 4), 3, np.float32)
    np.testing.assert_array_equal(F.dropout(X, 0.5, mask=mask).array, X * 3)
    with kusari.using_config("train", False):
        y, none = F.dropout(X, 0.5, return_mask=True)
        assert none is None
        np.testing.assert_array_equal(y.array, X)
        np.testing.assert_array_equal(F.zoneout(X, -X).array, -X)
        for options in {}, {"r": X}:  # slopes are for training
            y, r = F.rrelu(-X, 0.2, 0.4, return_r=True, **options)
            np.testing.assert_allclose(y.array, -X * np.float32(0.3), rtol=1e-6)
            np.testing.assert_array_equal(r, np.full_like(X, 0.3))


def test_masks_broadcast() -> None:
    """One mask for all steps of a sequence, say."""
    mask = np.array([2, 0, 2, 2], "f")
    y, same = F.dropout(X, mask=mask, return_mask=True)
    np.testing.assert_array_equal(y.array, X * mask)
    assert same is mask
    with pytest.raises(kusari.utils.type_check.InvalidType, match="mask.shape"):
        F.dropout(X[:, :1], mask=mask)


@pytest.mark.parametrize("ratio", [-0.1, 1.0, 1.5])
def test_dropout_ratio(ratio: float) -> None:
    with pytest.raises(ValueError, match="must be in the range"):
        F.dropout(X, ratio)


def test_removed_and_unknown_keywords() -> None:
    with pytest.raises(ValueError, match="using_config"):
        F.dropout(X, 0.5, train=True)
    with pytest.raises(TypeError, match="'foo'"):
        F.dropout(X, 0.5, foo=1)


def test_gaussian_and_rrelu_with_given_noise() -> None:
    eps = np.full((3, 4), 2, np.float32)
    y, same = F.gaussian(X, np.zeros_like(X), eps=eps, return_eps=True)
    assert same is eps
    np.testing.assert_array_equal(y.array, X + 2)
    y, r = F.rrelu(-X, r=eps, return_r=True)
    assert r is eps
    np.testing.assert_array_equal(y.array, -2 * X)


def test_batch_normalization_statistics() -> None:
    """Running statistics: in place, unbiased variance, as Chainer 7.8.1 computed them."""
    mean, var = np.ones(4, np.float32), np.ones(4, np.float32)
    one, zero = np.ones(4, np.float32), np.zeros(4, np.float32)
    x = np.arange(48, dtype=np.float32).reshape(2, 4, 3, 2)
    F.batch_normalization(x, one, zero, running_mean=mean, running_var=var)
    expected = x.mean((0, 2, 3)), x.var((0, 2, 3)) * 12 / 11
    np.testing.assert_allclose(mean, 0.9 + 0.1 * expected[0], rtol=1e-6)
    np.testing.assert_allclose(var, 0.9 + 0.1 * expected[1], rtol=1e-6)
    with lowering(1e-5) as tape:  # the lowered form writes the same statistics
        F.batch_normalization(x, one, zero, running_mean=mean, running_var=var, decay=0.5)
    assert tape.seen["BatchNormalization"] == 1


def test_recomputing_leaves_statistics_alone() -> None:
    mean, var = np.ones(4, np.float32), np.ones(4, np.float32)
    with kusari.using_config("in_recomputing", True):
        F.batch_normalization(X, np.ones(4, "f"), np.zeros(4, "f"), running_mean=mean, running_var=var)
    np.testing.assert_array_equal(mean, 1)
