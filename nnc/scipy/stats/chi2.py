"""The χ² distribution, of sums of squares of normal numbers."""

from __future__ import annotations

import math

from nnc.array import Array
from nnc.numpy import elementwise as el
from nnc.scipy.special import gammaln, xlogy
from nnc.scipy.stats.evaluate import HALF_LINE, Continuous
from nnc.spelling import spelled
from nnc.typing import ArrayLike

__all__ = ["logpdf", "pdf"]


def _log_density(y: Array, df: Array) -> Array:
    return xlogy(df / 2 - 1, y / 2) - y / 2 - gammaln(df / 2) - math.log(2)


_FAMILY = Continuous("chi2", HALF_LINE, wide=True)


@spelled
def logpdf(x: ArrayLike, df: ArrayLike, loc: ArrayLike = 0, scale: ArrayLike = 1) -> Array:
    """Returns the logarithm of the density: (df / 2 − 1) log(y / 2) − y / 2 − log(2 Γ(df / 2) scale) for y ≥ 0, −∞ below.

    Here y = (x − loc) / scale.

    Args:
        x: real, any shape; broadcasts with the parameters.
        df: degrees of freedom, above 0.
        loc: the least number.
        scale: factor of its width, above 0.

    Example:
        >>> logpdf(np.asarray([-1.0, 2.0]), 3.0)
        Array([       -inf, -1.57236494], dtype=float64)
    """
    return _FAMILY.logpdf(_log_density, x, df, loc, scale)


@spelled
def pdf(x: ArrayLike, df: ArrayLike, loc: ArrayLike = 0, scale: ArrayLike = 1) -> Array:
    """Returns the density: (y / 2)^(df / 2 − 1) exp(−y / 2) / (2 Γ(df / 2) scale) for y ≥ 0, 0 below.

    Here y = (x − loc) / scale.

    Args:
        x: real, any shape; broadcasts with the parameters.
        df: degrees of freedom, above 0.
        loc: the least number.
        scale: factor of its width, above 0.

    Example:
        >>> pdf(np.asarray([-1.0, 2.0]), 3.0)
        Array([0.        , 0.20755375], dtype=float64)
    """
    return _FAMILY.pdf(lambda y, df: el.exp(_log_density(y, df)), x, df, loc, scale)


def __dir__() -> list[str]:
    return sorted(__all__)
