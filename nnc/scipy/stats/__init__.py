"""Probability distributions under the names of jax.scipy.stats: each is a module with functions such as `norm.logpdf`.

Functions take real operands of any shapes, which broadcast; integers become float32, 16-bit floats are computed in float32. Results
are NaN where a parameter is invalid, and derivatives outside the support are 0.
"""

from functools import partial
from types import ModuleType

from nnc.scipy.stats import (
    bernoulli,
    beta,
    betabinom,
    binom,
    cauchy,
    chi2,
    dirichlet,
    expon,
    gamma,
    gennorm,
    geom,
    gumbel_l,
    gumbel_r,
    laplace,
    logistic,
    multinomial,
    multivariate_normal,
    nbinom,
    norm,
    pareto,
    poisson,
    t,
    truncnorm,
    uniform,
    vonmises,
    wrapcauchy,
)
from nnc.scipy.stats.kde import gaussian_kde
from nnc.scipy.stats.summaries import ModeResult, mode, rankdata, sem

__all__ = [
    "ModeResult",
    "bernoulli",
    "beta",
    "betabinom",
    "binom",
    "cauchy",
    "chi2",
    "dirichlet",
    "expon",
    "gamma",
    "gaussian_kde",
    "gennorm",
    "geom",
    "gumbel_l",
    "gumbel_r",
    "laplace",
    "logistic",
    "mode",
    "multinomial",
    "multivariate_normal",
    "nbinom",
    "norm",
    "pareto",
    "poisson",
    "rankdata",
    "sem",
    "t",
    "truncnorm",
    "uniform",
    "vonmises",
    "wrapcauchy",
]


def __dir__() -> list[str]:
    return sorted(__all__)


for _module in [globals()[name] for name in __all__]:
    if isinstance(_module, ModuleType):
        vars(_module)["__dir__"] = partial(sorted, vars(_module)["__all__"])
