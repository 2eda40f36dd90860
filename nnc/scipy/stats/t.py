"""Student's t distribution."""

from __future__ import annotations

import math

from nnc.array import Array
from nnc.numpy import elementwise as el
from nnc.scipy.special import gammaln
from nnc.scipy.stats.evaluate import Continuous, log1p_square
from nnc.spelling import spelled
from nnc.typing import ArrayLike

__all__ = ["logpdf", "pdf"]


def _log_ratio(h: Array) -> Array:
    """log(Γ(h + 1/2) / (Γ(h) √h)), by Stirling's series for large h, where logarithms would cancel."""
    far = h > 10
    u = 1 / el.where(far, h, 10)
    v = el.square(u)
    series = 0 * v
    for coefficient in (-5461 / 425984, 691 / 180224, -31 / 18432, 17 / 14336, -1 / 640, 1 / 192, -1 / 8):
        series = series * v + coefficient
    series = series * u
    near = el.where(far, 1, h)
    return el.where(far, series, gammaln(near + 0.5) - gammaln(near) - el.log(near) / 2)


def _log_density(y: Array, df: Array) -> Array:
    is_normal = el.equal(df, math.inf)
    finite = el.where(is_normal, 1, df)
    power = (finite + 1) / 2 * log1p_square(y / el.sqrt(finite)) - _log_ratio(finite / 2)
    return -el.where(is_normal, el.square(y) / 2, power) - math.log(2 * math.pi) / 2


_FAMILY = Continuous("t", wide=True)


@spelled
def logpdf(x: ArrayLike, df: ArrayLike, loc: ArrayLike = 0, scale: ArrayLike = 1) -> Array:
    """Returns the logarithm of the density: log(Γ((df + 1) / 2) / (Γ(df / 2) √(π df) scale)) − (df + 1) / 2 · log(1 + y² / df).

    Here y = (x − loc) / scale.

    Args:
        x: real, any shape; broadcasts with the parameters.
        df: degrees of freedom, above 0; ∞ is the normal distribution.
        loc: shift of the distribution.
        scale: factor of its width, above 0.

    Example:
        >>> logpdf(np.asarray([-1.0, 2.0]), 3.0)
        Array([-1.57625299, -2.69548457], dtype=float64)
    """
    return _FAMILY.logpdf(_log_density, x, df, loc, scale)


@spelled
def pdf(x: ArrayLike, df: ArrayLike, loc: ArrayLike = 0, scale: ArrayLike = 1) -> Array:
    """Returns the density: Γ((df + 1) / 2) / (Γ(df / 2) √(π df) scale) · (1 + y² / df)^(−(df + 1) / 2).

    Here y = (x − loc) / scale.

    Args:
        x: real, any shape; broadcasts with the parameters.
        df: degrees of freedom, above 0; ∞ is the normal distribution.
        loc: shift of the distribution.
        scale: factor of its width, above 0.

    Example:
        >>> pdf(np.asarray([-1.0, 2.0]), 3.0)
        Array([0.20674834, 0.06750966], dtype=float64)
    """
    return _FAMILY.pdf(lambda y, df: el.exp(_log_density(y, df)), x, df, loc, scale)


def __dir__() -> list[str]:
    return sorted(__all__)
