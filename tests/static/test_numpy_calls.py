"""What NumPy computes of arguments inside a static function is compiled, where a function does the same."""
from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import kusari.functions as F
from kusari import static_graph

f32 = np.float32
MEAN, SPREAD = np.arange(6, dtype=f32) / 9, np.full((1, 5), 2, f32)


def masked(mask: Any, x: Any) -> Any:
    return F.where(mask, F.exp(x), F.sin(x))


COMPILED: dict[str, Callable[[Any, Any], Any]] = {
    "padding mask": lambda x, t: F.exp(x) * (t != 0).astype("f")[:, None],
    "not padding": lambda x, t: masked(~(t == 2)[:, None].astype(bool), x[:, :1]),
    "and, or": lambda x, t: masked(((t > 1) & (t <= 4)) | (t == 0), x[:, 0]),
    "logical functions": lambda x, t: masked(np.logical_or(np.logical_not(t > 1), 3 < t), x[:, 0]),
    "arrays": lambda x, t: masked(x[:, 0] >= x[:, 1], x[:, 2]),
    "threshold": lambda x, t: masked(x > 0.1, x),
    "number first": lambda x, t: masked(1 > x, x),
    "next word": lambda x, t: F.softmax_cross_entropy(F.exp(x[:-1]), t[1:]),
    "shifted": lambda x, t: F.softmax_cross_entropy(F.exp(x), t * 2 - t + (-t) * 0),
    "ravel": lambda x, t: F.softmax_cross_entropy(F.exp(x), t[:, None].ravel()),
    "flatten": lambda x, t: F.softmax_cross_entropy(F.exp(x), t.reshape(2, 3).T.flatten()),
    "copy": lambda x, t: F.exp(x.copy()),
    "scalars of NumPy's": lambda x, t: F.exp((x - f32(0.5)) / f32(3)) * (x + np.float16(0.25) > f32(0.3)),
    "clipped": lambda x, t: F.exp(np.clip(x, 0.2, 0.8)) * x.clip(0, 1),
    "functions for methods": lambda x, t: F.exp((x - np.mean(x, axis=1, keepdims=True)) / np.sum(x, 0) - np.max(x, 0)),
    "steps": lambda x, t: F.exp(np.sign(x - 0.3)) + np.floor(4 * x) - np.ceil(3 * x) + np.log2(x) + np.arctan(x),
    "moved": lambda x, t: F.exp(np.moveaxis(x, 0, 1)) + np.rollaxis(np.flip(x, 1), 1) + np.squeeze(x[None]).T,
    "laid out": lambda x, t: F.exp(np.tile(x, (2, 1))) * np.ravel(x)[:5] - np.broadcast_to(x.cumsum(1)[1:2], (12, 5)),
    "one-hot rows": lambda x, t: F.exp(x) * np.eye(5, dtype="f")[t],
    "rows by number": lambda x, t: F.exp(x[t]) + x[-t],
    "squeeze": lambda x, t: F.exp(x[:, None].squeeze(1)),
    "reductions": lambda x, t: F.exp((x - x.mean(axis=1, keepdims=True)) / x.max(1)[:, None] - x.min(axis=0)),
    "both halves": lambda x, t: F.exp(np.concatenate([x, x * 2])),
    "joined": lambda x, t: F.exp(np.concatenate((x[:, :2], x[:, 3:]), axis=1)),
    "stacked": lambda x, t: F.sin(np.stack([x[0], x[1]], 1)),
    "rows": lambda x, t: F.exp(np.hstack([np.vstack((x, x)), np.concatenate([x, x], axis=0)])),
    "sum": lambda x, t: F.exp(x / x.sum(axis=0, keepdims=True)),
    "integers and a fraction": lambda x, t: masked(t > 0.5, x[:, 0]) * ((1.0 - t) * (t.astype("u1") / 2)).astype("f"),
    "booleans and numbers": lambda x, t: F.exp(x) * ((1.0 - (x > 0.3)) * x + 2 * (t == 1)[:, None]).astype(x.dtype),
    "products of booleans": lambda x, t: masked((t > 1) * (t < 4) + (t == 0), x[:, 0]),
    "greatest": lambda x, t: F.select_item(F.exp(x), x.argmax(axis=1)) + np.argmin(x[1:], 0)[:1].astype(x.dtype),
    "numbers": lambda x, t: F.where(np.isnan(x), np.zeros_like(x), masked(np.isfinite(x / 2) & ~np.isinf(x), x)),
    "two dtypes joined": lambda x, t: F.exp(np.concatenate([x, t[:, None]], axis=1).astype("f")),
    "another order": lambda x, t: F.exp(x.flatten("F")),
    "bounds that cross": lambda x, t: F.exp(np.clip(x, 0.7, 0.3)),
    "outside of the dtype": lambda x, t: masked(t.astype(np.uint8) > -1, x[:, 0]),
    "remainders": lambda x, t: F.softmax_cross_entropy(F.exp(x), t % 3),
    "bits": lambda x, t: F.softmax_cross_entropy(F.exp(x), t & 1),
    "parts as arrays": lambda x, t: F.exp(np.asarray(x[:, 1])) + np.asarray(x.T, x.dtype)[0],
}


def data(i: int, float_dtype: Any = np.float32, int_dtype: Any = np.int32) -> tuple[Any, Any]:
    r = np.random.RandomState(i)
    x = r.rand(6, 5).astype(float_dtype)
    x[0, :2] = 0.1, np.nextafter(float_dtype(0.1), float_dtype(1))
    if i == 3:
        x[1, 1], x[2, 2] = np.nan, np.inf
    return x, r.randint(0, 5, 6).astype(int_dtype)


@pytest.mark.parametrize("compute", COMPILED.values(), ids=list(COMPILED))
@pytest.mark.parametrize("dtypes", [(f32, np.int32), (np.float64, np.int64)], ids=["32", "64"])
def test_compiled(compute: Any, dtypes: Any) -> None:
    static = static_graph(compute, strict=True)
    with np.errstate(all="ignore"):
        for i in range(5):
            np.testing.assert_allclose(static(*data(i, *dtypes)).array, compute(*data(i, *dtypes)).array,
                                       rtol=2e-5, atol=1e-5)


REFUSED: dict[str, tuple[Callable[[Any, Any], Any], str]] = {
    "a number": (lambda x, t: F.leaky_relu(x, x.mean()), "of a float32 takes data out"),
    "a sum of integers": (lambda x, t: F.exp(x[:t.sum(axis=0) % 6 + 1]), "takes a number out"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_numbers_stay_define_by_run(name: str) -> None:
    compute, reason = REFUSED[name]
    static = static_graph(compute)
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        for i in range(3):
            np.testing.assert_array_equal(static(*data(i)).array, compute(*data(i)).array)
    assert len(seen) == 1 and reason in str(seen[0].message)


def test_arrays_of_others_are_guarded() -> None:
    """What NumPy makes of an argument and an attribute follows the attribute."""
    held = {"mean": np.zeros(5, f32)}

    def compute(x: Any) -> Any:
        return F.exp((x - held["mean"] + MEAN[:5]) / SPREAD)
    static = static_graph(compute, strict=True)
    for i in range(6):
        held["mean"][2] += i // 3
        x = data(i)[0]
        np.testing.assert_allclose(static(x).array, compute(x).array, rtol=1e-5)


def test_integers_wrap_as_numpys() -> None:
    def compute(x: Any, t: Any) -> Any:
        return F.where(t + t * 3 - 100 < 0, x, x * 2)
    static = static_graph(compute, strict=True)
    for i in range(4):
        x = np.random.RandomState(i).rand(200).astype(f32)
        t = np.random.RandomState(i).randint(-128, 128, 200).astype(np.int8)
        np.testing.assert_array_equal(np.asarray(static(x, t).array), np.asarray(compute(x, t).array))
