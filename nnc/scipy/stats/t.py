"""Student's t distribution."""

from __future__ import annotations

import math

from nnc.array.array import Array
from nnc.numpy import elementwise as el
from nnc.scipy.special import betainc, betaincc, gammaln, ndtr
from nnc.scipy.stats.evaluate import Continuous, Operands, log1p_square, mirrored
from nnc.typing import ArrayLike

__all__ = ["cdf", "logcdf", "logpdf", "logsf", "pdf", "sf"]


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


def _tail(y: Array, df: Array) -> Array:
    """Returns the probability of numbers beyond y, on its side of 0."""
    is_normal = el.equal(df, math.inf)
    half = el.where(is_normal, 1, df) / 2
    z = y / el.sqrt(2 * half)
    z = el.where(el.equal(z, 0), z + 1e-150, z)  # √(z²) has no derivative at 0
    square = el.square(z)
    far = square > 1
    outer = betainc(half, 0.5, 1 / (1 + el.where(far, square, 1)))
    inner = betaincc(0.5, half, el.where(far, 1, square) / (1 + el.where(far, 1, square)))
    return el.where(is_normal, ndtr(mirrored(y)), el.where(far, outer, inner) / 2)


def _cdf(y: Array, df: Array) -> Array:
    tail = _tail(y, df)
    return el.where(y > 0, 1 - tail, tail)


def _log_cdf(y: Array, df: Array) -> Array:
    tail = _tail(y, df)
    return el.where(y > 0, el.log1p(-tail), el.log(tail))


def _operands(x: ArrayLike, df: ArrayLike, loc: ArrayLike = 0, scale: ArrayLike = 1) -> Operands:
    """Returns the operands. The docstrings of the functions below are made of this one.

    Args:
        df: degrees of freedom, above 0; ∞ is the normal distribution.
        loc: shift of the distribution.
        scale: factor of its width, above 0.

    Example:
        np.asarray([-1.0, 2.0]), 3.0
    logpdf: log(Γ((df + 1) / 2) / (Γ(df / 2) √(π df) scale)) − (df + 1) / 2 · log(1 + y² / df)
        [-1.57625299, -2.69548457]
    pdf: Γ((df + 1) / 2) / (Γ(df / 2) √(π df) scale) · (1 + y² / df)^(−(df + 1) / 2)
        [0.20674834, 0.06750966]
    logcdf:
        [-1.63218922, -0.07220838]
    cdf: I / 2 for y ≤ 0, 1 − I / 2 above; I is the incomplete beta function of df / 2, 1 / 2 and df / (df + y²)
        [0.19550111, 0.93033702]
    logsf:
        [-0.21753569, -2.66408617]
    sf: 1 − I / 2 for y ≤ 0, I / 2 above; I is the incomplete beta function of df / 2, 1 / 2 and df / (df + y²)
        [0.80449889, 0.06966298]
    """
    return x, df, loc, scale


_FAMILY = Continuous("t", _operands, wide=True)


logpdf = _FAMILY.make("logpdf", _log_density)
pdf = _FAMILY.make("pdf", lambda y, df: el.exp(_log_density(y, df)))
logcdf = _FAMILY.make("logcdf", _log_cdf)
cdf = _FAMILY.make("cdf", _cdf)
logsf = _FAMILY.make("logsf", lambda y, df: _log_cdf(-y, df))
sf = _FAMILY.make("sf", lambda y, df: _cdf(-y, df))
