"""Distributions: densities integrate to one, and to the moments, entropies and divergences that are stated."""
from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import kusari
import kusari.distributions as D
import kusari.functions as F


def v(*values: float) -> Any:
    return np.array(values, float)


REAL = np.linspace(-40, 44, 84001) + 5e-4
POSITIVE = np.linspace(0, 60, 120001)[:-1] + 2.5e-4
UNIT = np.linspace(0, 1, 200001)[:-1] + 2.5e-6
WHOLE = np.arange(0.0, 200)
Case = tuple[Callable[[], Any], Callable[[], Any] | None, Any]
CASES: dict[str, Case] = {
    "Normal": (lambda: D.Normal(v(1.0), v(0.7)), lambda: D.Normal(v(0.0), log_scale=v(0.3)), REAL),
    "Laplace": (lambda: D.Laplace(v(1.0), v(0.7)), lambda: D.Laplace(v(0.0), v(2.0)), REAL),
    "Gumbel": (lambda: D.Gumbel(v(1.0), v(0.7)), lambda: D.Gumbel(v(0.5), v(1.2)), REAL),
    "Uniform": (lambda: D.Uniform(low=v(-1.0), high=v(2.0)), lambda: D.Uniform(loc=v(-2.0), scale=v(6.0)), REAL),
    "Exponential": (lambda: D.Exponential(v(1.5)), lambda: D.Exponential(v(0.8)), POSITIVE),
    "Gamma": (lambda: D.Gamma(v(2.5), v(0.7)), lambda: D.Gamma(v(1.7), v(1.2)), POSITIVE),
    "Chisquare": (lambda: D.Chisquare(v(3.0)), None, POSITIVE),
    "LogNormal": (lambda: D.LogNormal(v(0.1), v(0.5)), lambda: D.LogNormal(v(0.4), v(0.8)), POSITIVE),
    "Pareto": (lambda: D.Pareto(v(1.0), v(9.0)), lambda: D.Pareto(v(0.5), v(2.0)), POSITIVE),
    "Beta": (lambda: D.Beta(v(2.5), v(3.0)), lambda: D.Beta(v(1.5), v(1.2)), UNIT),
    "Bernoulli": (lambda: D.Bernoulli(v(0.3)), lambda: D.Bernoulli(logit=v(0.4)), WHOLE[:2]),
    "Geometric": (lambda: D.Geometric(v(0.3)), lambda: D.Geometric(v(0.5)), WHOLE),
    "Poisson": (lambda: D.Poisson(v(2.5)), lambda: D.Poisson(v(4.0)), WHOLE),
}


@pytest.mark.parametrize("name", CASES)
def test_integrals(name: str) -> None:
    make, other, x = CASES[name]
    d, step = make(), x[1] - x[0]
    log = d.log_prob(x).array
    p = np.exp(log) * step
    assert abs(p.sum() - 1) < 1e-3
    mean = (p * x).sum()
    np.testing.assert_allclose(d.mean.array, [mean], rtol=2e-3, atol=1e-3)
    np.testing.assert_allclose(d.variance.array, [(p * (x - mean) ** 2).sum()], rtol=5e-3)
    np.testing.assert_allclose(d.stddev.array ** 2, d.variance.array, rtol=1e-6)
    inside = p > 0
    if name not in ("Geometric", "Poisson"):
        np.testing.assert_allclose(d.entropy.array, [-(p[inside] * log[inside]).sum()], rtol=2e-3, atol=1e-3)
        np.testing.assert_allclose(d.perplexity().array, np.exp(d.entropy.array))
    if other is not None:
        expected = (p[inside] * (log[inside] - other().log_prob(x).array[inside])).sum()
        np.testing.assert_allclose(kusari.kl_divergence(d, other()).array, [expected], rtol=5e-3, atol=1e-3)
    if name in ("Normal", "Laplace", "Uniform", "Exponential"):
        at = len(x) // 2 if name == "Exponential" else len(x) // 2 - 1300
        np.testing.assert_allclose(d.cdf(x).array[at], p[:at + 1].sum(), atol=2e-3)
        np.testing.assert_allclose(d.icdf(d.cdf(v(0.4)).array).array, v(0.4), rtol=1e-6)
        np.testing.assert_allclose(d.log_cdf(x[at:at + 1]).array, np.log(d.cdf(x[at:at + 1]).array), rtol=1e-6)
        np.testing.assert_allclose(d.survival_function(v(0.4)).array, 1 - d.cdf(v(0.4)).array, rtol=1e-6)


SAMPLES: list[tuple[Callable[[], Any], Any]] = [  # what Chainer draws from seed 0
    (lambda: D.Normal(v(1, 2), v(0.5, 3)), [1.8820, 3.2005]), (lambda: D.Laplace(v(1, 2), v(0.5, 3)), [1.0514, 3.6884]),
    (lambda: D.Gumbel(v(1, 2), v(0.5, 3)), [1.1142, 1.3164]), (lambda: D.Cauchy(v(1, 2), v(0.5, 3)), [3.2042, 3.3103]),
    (lambda: D.Uniform(low=v(0, 1), high=v(2, 5)), [1.0976, 3.8608]),
    (lambda: D.Beta(v(1, 2), v(0.5, 3)), [0.67, 0.7987]),
    (lambda: D.Exponential(v(1, 2)), [0.7959, 0.6280]), (lambda: D.Pareto(v(1, 2), v(3, 4)), [1.3038, 2.7377]),
    (lambda: D.LogNormal(v(0.1, 0.2), v(0.5, 1)), [2.6699, 1.8224]), (lambda: D.Geometric(v(0.2, 0.7)), [4, 2]),
    (lambda: D.Poisson(v(1, 2)), [2, 3]), (lambda: D.Gamma(v(1, 2), v(0.5, 3)), [0.3979, 8.4572]),
    (lambda: D.Chisquare(v(1, 2)), [0.6080, 1.8465]), (lambda: D.Bernoulli(v(0.2, 0.7)), [0, 0]),
    (lambda: D.Categorical(np.array([[0.2, 0.3, 0.5], [0.1, 0.1, 0.8]])), [2, 2]),
    (lambda: D.MultivariateNormal(v(1, 2), scale_tril=np.array([[1, 0], [0.5, 2]])), [2.7641, 3.6823]),
    (lambda: D.Dirichlet(np.array([1.0, 2, 3])), [0.0820, 0.2904, 0.6276]),
]


@pytest.mark.parametrize("make,expected", SAMPLES, ids=lambda x: None if callable(x) else str(x))
def test_samples(make: Callable[[], Any], expected: Any) -> None:
    np.random.seed(0)
    d = make()
    drawn = d.sample((2,))
    assert drawn.shape == (2, *d.batch_shape, *d.event_shape)
    np.testing.assert_allclose(drawn.array[0], expected, atol=1e-3)


def test_vectors() -> None:
    covariance = np.array([[2.0, 0.6], [0.6, 1.0]])
    p = D.MultivariateNormal(v(1, 2), scale_tril=np.linalg.cholesky(covariance))
    q = D.MultivariateNormal(v(0.0, 1), scale_tril=np.array([[1.0, 0], [0.5, 2]]))
    x = np.array([[0.3, 1.0], [2, 2]])
    away = x - [1, 2]
    expected = -0.5 * np.einsum("ni,ij,nj->n", away, np.linalg.inv(covariance), away) - 0.5 * np.log(
        np.linalg.det(2 * np.pi * covariance))
    np.testing.assert_allclose(p.log_prob(x).array, expected)
    np.testing.assert_allclose(p.covariance.array, covariance)
    np.random.seed(1)
    draws = p.sample_n(20000).array
    np.testing.assert_allclose(p.entropy.array, -p.log_prob(draws).array.mean(), atol=0.02)
    np.testing.assert_allclose(kusari.kl_divergence(p, q).array, (p.log_prob(draws) - q.log_prob(draws)).array.mean(),
                               atol=0.03)
    a, b = D.Dirichlet(v(1.5, 2, 3)), D.Dirichlet(v(2, 1.2, 1))
    draws = a.sample_n(20000).array
    np.testing.assert_allclose(a.entropy.array, -a.log_prob(draws).array.mean(), atol=0.02)
    np.testing.assert_allclose(kusari.kl_divergence(a, b).array, (a.log_prob(draws) - b.log_prob(draws)).array.mean(),
                               atol=0.03)
    np.testing.assert_allclose(a.variance.array, draws.var(0), rtol=0.05)
    row = np.array([[0.2, 0.3, 0.5]])
    one, two = D.Categorical(row), D.Categorical(logit=np.log(row[:, ::-1]))
    np.testing.assert_allclose(one.log_prob(np.array([[0], [2]])).array, np.log([[0.2], [0.5]]))
    np.testing.assert_allclose(one.entropy.array, -(row * np.log(row)).sum(1))
    np.testing.assert_allclose(kusari.kl_divergence(one, two).array, (row * np.log(row / row[:, ::-1])).sum(1))
    hot = D.OneHotCategorical(row)
    assert hot.sample_n(4).array.sum(-1).tolist() == [[1]] * 4 and hot.event_shape == (3,)
    np.testing.assert_allclose(hot.log_prob(np.array([[0, 1, 0]])).array, np.log([0.3]))
    normal = D.Normal(np.zeros((2, 3)), np.ones((2, 3)))
    together = D.Independent(normal)
    assert (together.batch_shape, together.event_shape) == ((2,), (3,))
    np.testing.assert_allclose(together.entropy.array, normal.entropy.array.sum(1))
    np.testing.assert_allclose(kusari.kl_divergence(together, together).array, 0)
    np.testing.assert_allclose(kusari.cross_entropy(normal, normal).array, normal.entropy.array)


def test_in_a_static_function() -> None:
    def loss(mu: Any, log_sigma: Any) -> Any:
        q = D.Normal(mu, log_scale=log_sigma)
        z = q.sample()
        prior = D.Normal(mu * 0, F.exp(log_sigma * 0))
        return F.sum(kusari.kl_divergence(q, prior)) - F.sum(D.Gamma(F.exp(mu), F.exp(z)).log_prob(F.exp(z)))

    static = kusari.static_graph(loss)
    for _ in range(3):
        found: list[Any] = []
        for f in (loss, static):
            np.random.seed(3)
            mu, log_sigma = kusari.Variable(v(0.3, -1).astype("f")), kusari.Variable(v(0.2, 0.1).astype("f"))
            y = f(mu, log_sigma)
            y.backward()
            found.append((y.array, mu.grad, log_sigma.grad))
        for a, b in zip(*found, strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-4)


def test_certain_results_have_no_nan() -> None:
    x = np.array([0, 1, 1, 0], "f")
    with np.errstate(divide="ignore"):
        certain = D.Bernoulli(v(0, 1, 0, 1))
        assert certain.log_prob(x).array.tolist() == [0, 0, -np.inf, -np.inf]
        assert certain.entropy.array.tolist() == [0] * 4 and certain.prob(x).array.tolist() == [1, 1, 0, 0]
    odds = kusari.Variable(np.array([-np.inf, np.inf, 0.5, -0.5], "f"))
    y = D.Bernoulli(logit=odds).log_prob(x)
    F.sum(y).backward()
    np.testing.assert_allclose(y.array, [0, 0, -0.474077, -0.474077], 1e-5)
    np.testing.assert_allclose(odds.grad, [0, 0, 0.377541, -0.377541], 1e-5)


def test_what_is_refused() -> None:
    for wrong in (lambda: D.Normal(v(1)), lambda: D.Bernoulli(v(0.5), v(0.1)), lambda: D.Uniform(low=v(1)),
                  lambda: D.Categorical(), lambda: D.MultivariateNormal(v(1)),
                  lambda: D.Independent(D.Normal(v(1), v(1)), 2)):
        with pytest.raises(ValueError, match="needs|at most"):
            wrong()
    with pytest.raises(KeyError, match="Normal from Laplace"):
        kusari.kl_divergence(D.Normal(v(1), v(1)), D.Laplace(v(1), v(1)))
    with pytest.raises(NotImplementedError, match="Geometric does not define entropy"):
        print(D.Geometric(v(0.5)).entropy)
    checked = D.Bernoulli(v(0.5), binary_check=True).log_prob(v(0.5)).array
    assert np.isneginf(checked).all() and D.Bernoulli(v(0.5)).support == "{0, 1}"
    with pytest.warns(RuntimeWarning, match="undefined"):
        assert np.isnan(D.Cauchy(v(1.0), v(1.0)).mean.array).all()


@pytest.mark.parametrize(("number", "shape"), [(2, (2, 3)), (np.int64(2), (2, 3)), ((), (3,)), ((2, 1), (2, 1, 3))])
def test_numbers_of_samples(number: Any, shape: tuple[int, ...]) -> None:
    assert D.Normal(np.zeros(3, "f"), scale=np.ones(3, "f")).sample(number).shape == shape
