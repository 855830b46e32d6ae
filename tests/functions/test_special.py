"""Special functions over their whole ranges, against SciPy where it is installed, in both dtypes."""
from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import kusari.functions as F
from kusari import Variable, grad, static_graph

scipy: Any = pytest.importorskip("scipy.special")
TINY = 10.0 ** -np.arange(1, 300)
UNIT = np.concatenate([np.linspace(0, 1, 2001), TINY, [0.075, 0.925, -1, 2]])
GAMMA = np.concatenate([np.linspace(-19.97, 60, 5011), 10.0 ** np.arange(-300, 300, 7), np.arange(-5, 6), [np.inf]])
RANGES: list[tuple[str, str, Any, float]] = [
    ("erfcx", "erfcx", np.concatenate([np.linspace(-26, 30, 5001), [100, 1e10, 0.46875, 4, -4]]), 2e-15),
    ("log_ndtr", "log_ndtr", np.concatenate([np.linspace(-1000, 30, 3001), np.linspace(-3, 9, 1001)]), 1e-13),
    ("ndtri", "ndtri", UNIT, 3e-15), ("erfcinv", "erfcinv", UNIT * 2, 3e-15),
    ("erfinv", "erfinv", np.concatenate([UNIT * 2 - 1, TINY]), 3e-15),
    ("lgamma", "gammaln", GAMMA, 2e-14), ("digamma", "psi", GAMMA, 1e-10),
]


@pytest.mark.parametrize("name,theirs,x,bound", RANGES, ids=[r[0] for r in RANGES])
@pytest.mark.filterwarnings("ignore::RuntimeWarning")  # infinities, and what float32 cannot hold
def test_range(name: str, theirs: str, x: Any, bound: float) -> None:
    for dtype, rtol in ((np.float64, bound), (np.float32, 2e-5)):
        given = x.astype(dtype)
        given = given[(given == 0) | (abs(given) > 2 * np.finfo(dtype).tiny)]
        expected = getattr(scipy, theirs)(given.astype(np.float64))
        found = getattr(F, name)(given).array
        assert found.dtype == dtype
        held = expected.astype(dtype)
        finite = np.isfinite(held) & (abs(held) > np.finfo(dtype).tiny)
        # Logarithms are accurate to the last place of numbers near 1, not of what is left next to their zeros.
        near = 1.0 if name in ("lgamma", "digamma") else 0.0
        np.testing.assert_allclose(found[finite], expected[finite], rtol=rtol, atol=rtol * near)
        np.testing.assert_array_equal(found[~np.isfinite(held)], held[~np.isfinite(held)])


@pytest.mark.parametrize("name,x", [
    ("erfcx", np.linspace(0, 60, 121)), ("log_ndtr", np.linspace(-60, 3, 121)), ("ndtri", np.linspace(0.01, 0.99, 99)),
    ("erfinv", np.linspace(-0.97, 0.97, 99)), ("erfcinv", np.linspace(0.05, 1.95, 99)),
    ("ndtr", np.linspace(-3, 9, 99))])
def test_float16(name: str, x: Any) -> None:
    """Steps of the computation are not rounded to float16."""
    half = Variable(x.astype(np.float16))
    expected = getattr(F, name)(half.array.astype(float)).array
    static = static_graph(lambda x: getattr(F, name)(x))
    for f in getattr(F, name), static, static:
        y = f(half)
        gx, = grad([y], [half])
        assert y.dtype == gx.dtype == np.float16
        np.testing.assert_allclose(y.array, expected, 2 ** -10, 1e-7)


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_zeta() -> None:
    r = np.random.RandomState(0)
    x, q = r.uniform(1.0001, 60, 2000), r.uniform(1e-3, 50, 2000)
    np.testing.assert_allclose(F.zeta(x, q).array, scipy.zeta(x, q), rtol=1e-13)
    edges = np.array([1.0, 0.5, 2.0, 2.0]), np.array([2.0, 2.0, 0.0, -1.0])
    np.testing.assert_array_equal(F.zeta(*edges).array, [np.inf, np.nan, np.inf, np.inf])
    n = np.arange(5, dtype=np.int32)[:, None]
    np.testing.assert_allclose(F.polygamma(n, q).array, scipy.polygamma(n, q), rtol=1e-11)
