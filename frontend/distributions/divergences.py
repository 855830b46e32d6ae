"""Kullback and Leibler's divergence between distributions of one class."""

from __future__ import annotations

import math
from typing import Any

from .. import functions as F
from ..distribution import kl_divergence, register_kl
from ..elementwise import elementwise
from .discrete import Bernoulli, Categorical, Geometric, OneHotCategorical, Poisson
from .multivariate import Dirichlet, Independent, MultivariateNormal, inverse, log_diagonal
from .positive import Beta, Exponential, Gamma, LogNormal, Pareto, lbeta
from .real import EULER, Gumbel, Laplace, Normal, Uniform


@elementwise("Covered")
def _covered(xp: Any, y: Any, low: Any, other_low: Any, high: Any, other_high: Any) -> Any:
    return xp.where(xp.logical_and(other_low <= low, high <= other_high), y, math.inf)


@register_kl(Normal, Normal)
def _(p: Any, q: Any) -> Any:
    return q.log_scale - p.log_scale + 0.5 * (F.square(p.scale) + F.square(p.loc - q.loc)) / F.square(q.scale) - 0.5


@register_kl(LogNormal, LogNormal)
def _(p: Any, q: Any) -> Any:
    return kl_divergence(Normal(p.mu, p.sigma), Normal(q.mu, q.sigma))


@register_kl(Laplace, Laplace)
def _(p: Any, q: Any) -> Any:
    ratio, away = p.scale / q.scale, abs(p.loc - q.loc)
    return ratio * F.exp(-away / p.scale) + away / q.scale - F.log(ratio) - 1


@register_kl(Gumbel, Gumbel)
def _(p: Any, q: Any) -> Any:
    ratio = p.scale / q.scale
    shift = (q.loc - p.loc) / q.scale
    return EULER * (ratio - 1) - F.log(ratio) - shift + F.exp(shift + F.lgamma(1 + ratio)) - 1


@register_kl(Uniform, Uniform)
def _(p: Any, q: Any) -> Any:
    return _covered(F.log(q.high - q.low) - F.log(p.high - p.low), p.low, q.low, p.high, q.high)


@register_kl(Exponential, Exponential)
def _(p: Any, q: Any) -> Any:
    return F.log(p.lam) - F.log(q.lam) + q.lam / p.lam - 1


@register_kl(Gamma, Gamma)
def _(p: Any, q: Any) -> Any:
    return ((p.k - q.k) * F.digamma(p.k) - F.lgamma(p.k) + F.lgamma(q.k) + q.k * (F.log(q.theta) - F.log(p.theta))
            + p.k * (p.theta / q.theta - 1))


@register_kl(Beta, Beta)
def _(p: Any, q: Any) -> Any:
    return (lbeta(q.a, q.b) - lbeta(p.a, p.b) + (p.a - q.a) * F.digamma(p.a) + (p.b - q.b) * F.digamma(p.b)
            + (q.a - p.a + q.b - p.b) * F.digamma(p.a + p.b))


@register_kl(Pareto, Pareto)
def _(p: Any, q: Any) -> Any:
    y = q.alpha * (F.log(p.scale) - F.log(q.scale)) - F.log(q.alpha / p.alpha) + (q.alpha - p.alpha) / p.alpha
    return _covered(y, p.scale, q.scale, p.scale, math.inf)


@register_kl(Bernoulli, Bernoulli)
def _(p: Any, q: Any) -> Any:
    return (p.logit - q.logit) * p.p - F.softplus(p.logit) + F.softplus(q.logit)


@register_kl(Categorical, Categorical)
@register_kl(OneHotCategorical, OneHotCategorical)
def _(p: Any, q: Any) -> Any:
    return F.sum(p.p * (p.log_p - q.log_p), axis=-1)


@register_kl(Geometric, Geometric)
def _(p: Any, q: Any) -> Any:
    return (1 / p.p - 1) * (F.log1p(-p.p) - F.log1p(-q.p)) + F.log(p.p) - F.log(q.p)


@register_kl(Poisson, Poisson)
def _(p: Any, q: Any) -> Any:
    return p.lam * (F.log(p.lam) - F.log(q.lam)) - p.lam + q.lam


@register_kl(Dirichlet, Dirichlet)
def _(p: Any, q: Any) -> Any:
    steep = F.digamma(p.alpha) - F.broadcast_to(F.expand_dims(F.digamma(p.alpha0), -1), p.alpha.shape)
    return q.log_beta() - p.log_beta() + F.sum((p.alpha - q.alpha) * steep, axis=-1)


@register_kl(MultivariateNormal, MultivariateNormal)
def _(p: Any, q: Any) -> Any:
    back = inverse(q.scale_tril)
    spread = F.sum(F.square(F.matmul(back, p.scale_tril)), axis=(-2, -1))
    away = F.sum(F.square(F.matmul(back, F.expand_dims(q.loc - p.loc, -1))), axis=(-2, -1))
    return log_diagonal(q.scale_tril) - log_diagonal(p.scale_tril) + 0.5 * (spread + away - p.d)


@register_kl(Independent, Independent)
def _(p: Any, q: Any) -> Any:
    if p.reinterpreted_batch_ndims != q.reinterpreted_batch_ndims:
        raise NotImplementedError("the two distributions take different numbers of axes for those of an event")
    return p.summed(kl_divergence(p.distribution, q.distribution))
