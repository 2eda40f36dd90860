"""Random numbers from explicit keys; the bits are those of jax.random for the same key."""

from nnc.random.continuous import exponential, gamma, gumbel, laplace, normal, truncated_normal, uniform
from nnc.random.discrete import bernoulli, categorical, choice, permutation, randint
from nnc.random.keys import bits, fold_in, key, split

__all__ = [
    "bernoulli",
    "bits",
    "categorical",
    "choice",
    "exponential",
    "fold_in",
    "gamma",
    "gumbel",
    "key",
    "laplace",
    "normal",
    "permutation",
    "randint",
    "split",
    "truncated_normal",
    "uniform",
]
