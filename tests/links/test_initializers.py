"""Initializers: options, dtypes and wrong use (their values are compared in tests/optimizers)."""

from __future__ import annotations

import numpy as np
import pytest

import kusari
from kusari import initializers as I
from kusari.initializers import _get_initializer, generate_array


def made(initializer, shape, dtype="float32"):
    return generate_array(initializer, shape, np, dtype)


def test_constants() -> None:
    assert made(I.Constant(np.arange(3)), (2, 3)).tolist() == [[0, 1, 2]] * 2
    assert np.isnan(made(I.NaN(), 2)).all() and made(I.Zero(), 3).tolist() == [0, 0, 0] and made(I.One(), ()) == 1
    assert made(I.Identity(2), (2, 2)).tolist() == [[2, 0], [0, 2]]


def test_dtypes() -> None:
    assert generate_array(I.Normal(), (2,), np).dtype == np.float32
    assert generate_array(I.Normal(dtype="f2"), (2,), np).dtype == np.float16
    with kusari.using_config("dtype", np.float64):
        assert generate_array(I.Zero(), (2,), np).dtype == np.float64
    assert generate_array(lambda array: array.fill(3), 2, np, device="@numpy").tolist() == [3, 3]


@pytest.mark.parametrize("mode", ["auto", "embedding"])
def test_orthogonal(mode: str) -> None:
    matrix = made(I.Orthogonal(2.0, mode=mode), (4, 3), "float64")
    np.testing.assert_allclose(matrix.T @ matrix, 4 * np.eye(3), atol=1e-12)
    assert abs(made(I.Orthogonal(), ())) == np.float32(1.1)


def test_own_generator() -> None:
    one = made(I.Uniform(rng=np.random.RandomState(5)), (3,))
    assert (one == made(I.Uniform(rng=np.random.RandomState(5)), (3,))).all() and (np.abs(one) <= 0.05).all()


@pytest.mark.parametrize(
    ("act", "error", "words"),
    [
        (lambda: made(I.Identity(), (2, 3)), ValueError, "squared"),
        (lambda: made(I.LeCunNormal(), (3,)), ValueError, "length >= 2"),
        (lambda: made(I.HeNormal(fan_option="fan"), (3, 3)), ValueError, "fan_option"),
        (lambda: made(I.Orthogonal(mode="basis"), (3, 4)), ValueError, "4-dim input and 3-dim output"),
        (lambda: made(I.Orthogonal(mode="projection"), (4, 3)), ValueError, "orthogonal projection"),
        (lambda: made(I.Orthogonal(mode="embedding"), (3, 4)), ValueError, "orthogonal embedding"),
        (lambda: made(I.Orthogonal(), (0, 3)), ValueError, "non-empty"),
        (lambda: I.Orthogonal(mode="q"), ValueError, "Invalid mode"),
        (lambda: I.Normal(sigma=3), TypeError, "'sigma'"),
        (lambda: generate_array(I.Normal(dtype="f2"), 2, np, "f4"), ValueError, "dtype mismatch"),
        (lambda: I.Normal(dtype="f2")(np.zeros(2)), TypeError, "float16"),
        (lambda: _get_initializer([1, 2]), TypeError, "invalid type"),
        (lambda: _get_initializer("x"), TypeError, "invalid type"),
        (lambda: kusari.Initializer()(np.zeros(1)), NotImplementedError, "override __call__"),
    ],
)
def test_wrong_use(act, error, words) -> None:
    with pytest.raises(error, match=words):
        act()


def test_what_an_argument_means() -> None:
    assert type(_get_initializer(None)) is I.LeCunNormal
    for value in (3, 2.5, np.float32(1), np.ones(3)):
        assert type(_get_initializer(value)) is I.Constant
    assert _get_initializer(made) is made


@pytest.mark.parametrize(("name", "size", "axis"), [
    ("UpsamplingDeconvFilter", 4, [0.25, 0.75, 0.75, 0.25]), ("UpsamplingDeconvFilter", 3, [0.5, 1, 0.5]),
    ("DownsamplingConvFilter", 4, [0.125, 0.375, 0.375, 0.125]), ("DownsamplingConvFilter", 3, [0.25, 0.5, 0.25]),
])
def test_filters_that_scale_images(name: str, size: int, axis: list[float]) -> None:
    initializer = getattr(I, name)()
    for shape in ((2, 2, size, size), (2, 1, size, size)):
        made = generate_array(initializer, shape, np)
        assert made.dtype == np.float32
        for out, n_in in np.ndindex(*shape[:2]):
            own = shape[1] == 1 or out == n_in
            np.testing.assert_allclose(made[out, n_in], np.outer(axis, axis) * own)
    for shape in ((2, 3, 4), (1, 2, 4), (2, 2)):
        with pytest.raises(ValueError, match="expected filters"):
            generate_array(initializer, shape, np)
    with pytest.raises(ValueError, match="must be 'linear', got 'cubic'"):
        getattr(I, name)("cubic")
