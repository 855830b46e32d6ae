"""Probability distributions: `log_prob`, `sample`, `entropy` and their relatives, on Variables."""

from . import divergences as divergences
from .discrete import Bernoulli as Bernoulli
from .discrete import Categorical as Categorical
from .discrete import Geometric as Geometric
from .discrete import OneHotCategorical as OneHotCategorical
from .discrete import Poisson as Poisson
from .multivariate import Dirichlet as Dirichlet
from .multivariate import Independent as Independent
from .multivariate import MultivariateNormal as MultivariateNormal
from .positive import Beta as Beta
from .positive import Chisquare as Chisquare
from .positive import Exponential as Exponential
from .positive import Gamma as Gamma
from .positive import LogNormal as LogNormal
from .positive import Pareto as Pareto
from .real import Cauchy as Cauchy
from .real import Gumbel as Gumbel
from .real import Laplace as Laplace
from .real import Normal as Normal
from .real import Uniform as Uniform

__all__ = [
    "Bernoulli", "Beta", "Categorical", "Cauchy", "Chisquare", "Dirichlet", "Exponential", "Gamma", "Geometric",
    "Gumbel", "Independent", "Laplace", "LogNormal", "MultivariateNormal", "Normal", "OneHotCategorical", "Pareto",
    "Poisson", "Uniform",
]  # fmt: skip
