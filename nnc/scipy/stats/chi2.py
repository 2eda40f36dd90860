"""The χ² distribution, of sums of squares of normal numbers."""

from __future__ import annotations

import math

from nnc.array.array import Array
from nnc.numpy import elementwise as el
from nnc.scipy.special import gammainc, gammaincc
from nnc.scipy.stats import gamma
from nnc.scipy.stats.evaluate import HALF_LINE, Continuous, Operands, log_of
from nnc.typing import ArrayLike

__all__ = ["cdf", "logcdf", "logpdf", "logsf", "pdf", "sf"]


def _log_density(y: Array, df: Array) -> Array:
    return gamma.log_density(y / 2, df / 2) - math.log(2)


def _cdf(y: Array, df: Array) -> Array:
    return gammainc(df / 2, y / 2)


def _sf(y: Array, df: Array) -> Array:
    return gammaincc(df / 2, y / 2)


def _operands(x: ArrayLike, df: ArrayLike, loc: ArrayLike = 0, scale: ArrayLike = 1) -> Operands:
    """Returns the operands. The docstrings of the functions below are made of this one.

    Args:
        df: degrees of freedom, above 0.
        loc: the least number.
        scale: factor of its width, above 0.

    Example:
        np.asarray([-1.0, 2.0]), 3.0
    logpdf: (df / 2 − 1) log(y / 2) − y / 2 − log(2 Γ(df / 2) scale) for y ≥ 0, −∞ below
        [       -inf, -1.57236494]
    pdf: (y / 2)^(df / 2 − 1) exp(−y / 2) / (2 Γ(df / 2) scale) for y ≥ 0, 0 below
        [0.        , 0.20755375]
    logcdf:
        [       -inf, -0.84958278]
    cdf: the incomplete gamma function P(df / 2, y / 2) for y ≥ 0, 0 below
        [0.       , 0.4275933]
    logsf:
        [ 0.        , -0.55790552]
    sf: the incomplete gamma function Q(df / 2, y / 2) for y ≥ 0, 1 below
        [1.       , 0.5724067]
    """
    return x, df, loc, scale


_FAMILY = Continuous("chi2", _operands, support=HALF_LINE, wide=True)


logpdf = _FAMILY.make("logpdf", _log_density)
pdf = _FAMILY.make("pdf", lambda y, df: el.exp(_log_density(y, df)))
logcdf = _FAMILY.make("logcdf", lambda y, df: log_of(_cdf(y, df), _sf(y, df)))
cdf = _FAMILY.make("cdf", _cdf)
logsf = _FAMILY.make("logsf", lambda y, df: log_of(_sf(y, df), _cdf(y, df)))
sf = _FAMILY.make("sf", _sf)
