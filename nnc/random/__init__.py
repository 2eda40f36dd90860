"""Random numbers from explicit keys; the bits agree with jax.random for the same key.

A draw depends on its key, its parameters and its dtype alone: it has the same bits in an eager call, compiled with any options,
batched and without a compiler, since its functions round each operation as IEEE 754 says, in one order.
"""

from typing import TYPE_CHECKING

from nnc.errors.names import module_getattr
from nnc.random.continuous import exponential, gumbel, laplace, normal, truncated_normal, uniform
from nnc.random.counts import binomial, geometric, multinomial, poisson, rademacher
from nnc.random.discrete import bernoulli, categorical, choice, permutation, randint
from nnc.random.gamma import beta, chisquare, dirichlet, f, gamma, loggamma, t
from nnc.random.keys import bits, fold_in, key, split
from nnc.random.reuse import KeyReuseWarning
from nnc.random.transformed import (
    cauchy,
    logistic,
    lognormal,
    maxwell,
    pareto,
    rayleigh,
    triangular,
    wald,
    weibull_min,
)
from nnc.random.vectors import ball, generalized_normal, multivariate_normal, orthogonal

__all__ = [
    "KeyReuseWarning",
    "ball",
    "bernoulli",
    "beta",
    "binomial",
    "bits",
    "categorical",
    "cauchy",
    "chisquare",
    "choice",
    "dirichlet",
    "exponential",
    "f",
    "fold_in",
    "gamma",
    "generalized_normal",
    "geometric",
    "gumbel",
    "key",
    "laplace",
    "loggamma",
    "logistic",
    "lognormal",
    "maxwell",
    "multinomial",
    "multivariate_normal",
    "normal",
    "orthogonal",
    "pareto",
    "permutation",
    "poisson",
    "rademacher",
    "randint",
    "rayleigh",
    "split",
    "t",
    "triangular",
    "truncated_normal",
    "uniform",
    "wald",
    "weibull_min",
]


def __dir__() -> list[str]:
    return sorted(__all__)


if not TYPE_CHECKING:  # to which a name that is not there would be one of type NoReturn
    __getattr__ = module_getattr("nnc.random")
