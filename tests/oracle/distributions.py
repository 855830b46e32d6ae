"""Distributions on random arguments."""
from __future__ import annotations

import types
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from .programs import arguments, outputs

DISTRIBUTIONS = {
    "Bernoulli": "p=p", "Beta": "a=p + 1, b=p + 2", "Cauchy": "loc=x, scale=p", "Exponential": "lam=p",
    "Gamma": "k=p + 1, theta=p", "Geometric": "p=p", "Gumbel": "loc=x, scale=p", "Laplace": "loc=x, scale=p",
    "LogNormal": "mu=x, sigma=p", "Normal": "loc=x, scale=p", "Pareto": "scale=p, alpha=p + 3",
    "Poisson": "lam=p", "Uniform": "low=x, high=x + p", "Chisquare": "k=p + 2",
    "Categorical": "p=simplex", "Dirichlet": "alpha=F.cast(simplex, 'f') + 1", "OneHotCategorical": "p=simplex",
    "Independent": "d.Normal(loc=b, scale=abs(b) + 1), 1", "Bernoulli ": "logit=x, binary_check=True",
    "Categorical ": "logit=b", "Normal ": "loc=x, log_scale=x", "Uniform ": "loc=x, scale=p",
    "MultivariateNormal": "loc=b, scale_tril=np.tile(np.eye(4, dtype=b.dtype) * 2, (len(b), 1, 1))",
}
MEMBERS = ("batch_shape event_shape mean variance stddev entropy mode covariance support params "
           "log_prob(at) prob(at) cdf(at) icdf(p) survival_function(at) log_cdf(at) perplexity "
           "sample() sample((2,)) sample(3) sample_n(2) log_survival_function(at)").split()
# Where they are asked, if not at `p`.
AT = {"Categorical": "t", "OneHotCategorical": "np.eye(4, dtype='i')[t]", "MultivariateNormal": "b",
      "Dirichlet": "simplex", "Geometric": "np.round(p + 1)", "Poisson": "np.round(p + 1)", "Bernoulli": "np.round(p)",
      "Pareto": "p + 1", "Independent": "b", "Chisquare": "p + 1"}


def distributions(lib: types.SimpleNamespace) -> Iterator[tuple[str, Callable[[], Any]]]:
    """Members of distributions with the gradients of their parameters, samples, and divergences."""
    for name, text in DISTRIBUTIONS.items():
        for seed in range(3):
            def run(member: str, name: str = name, text: str = text, seed: int = seed) -> Any:
                return distribution(lib, name.strip(), text, member, arguments(seed * 5 + 1))
            for member in MEMBERS:
                yield f"{name}.{member} {seed}", lambda run=run, member=member: run(f"d.{member}")
            yield f"kl_divergence {name} {seed}", lambda run=run: run("kl(d, type(d)(**other))")


def distribution(lib: types.SimpleNamespace, name: str, text: str, member: str, drawn: dict[str, Any]) -> Any:
    """A member of a distribution, and the gradients of its parameters."""
    drawn = {**drawn, **{key: drawn[key].astype("f") for key in "xp"}}
    drawn["at"] = eval(AT.get(name, "p"), drawn)
    kept = {key: lib.chainer.Variable(drawn[key]) for key in ("x", "p", "b", "simplex")}
    d = eval(f"d.{name}({text})", {**drawn, **kept, "d": lib.distributions, "F": lib.F})
    other = {key: value * 0.9 for key, value in d.params.items()} if "other" in member else {}
    y = eval(member, {**drawn, "d": d, "kl": lib.chainer.kl_divergence, "other": other})
    for v in outputs(y):
        v.grad = np.cos(np.arange(v.size)).reshape(v.shape).astype(v.dtype)
        v.backward()
    return [y, {key: v.grad for key, v in kept.items()}]
