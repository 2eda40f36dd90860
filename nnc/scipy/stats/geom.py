"""The geometric distribution, of the number of trials up to the first success."""

from __future__ import annotations

from nnc.array.array import Array
from nnc.numpy import elementwise as el
from nnc.scipy.special import xlog1py
from nnc.scipy.stats.evaluate import Counts, Operands, every, log1mexp
from nnc.typing import ArrayLike

__all__ = ["cdf", "logcdf", "logpmf", "logsf", "pmf", "ppf", "sf"]


def _log_mass(k: Array, p: Array) -> Array:
    return xlog1py(k - 1, -p) + el.log(p)


def _ppf(q: Array, p: Array) -> Array:
    """Returns the least count whose cdf is q, 0 for 0; the one before where the quotient was rounded up."""
    k = el.maximum(el.ceil(el.log1p(-q) / el.log1p(-p)), 1)
    before = -el.expm1((k - 1) * el.log1p(-p))
    return el.where(el.logical_or(q <= 0, el.logical_and(k > 1, before >= q)), k - 1, k)


def _operands(k: ArrayLike, p: ArrayLike, loc: ArrayLike = 0) -> Operands:
    """Returns the operands. The docstrings of the functions below are made of this one.

    Args:
        p: probability of a success, above 0 and up to 1.
        loc: shift of the counts.

    Example:
        np.asarray([0, 1, 2]), 0.25
    logpmf: (k − 1) log(1 − p) + log(p) for k ≥ 1, −∞ below
        [      -inf, -1.3862944, -1.6739764]
    pmf: (1 − p)ᵏ⁻¹ p for k ≥ 1, 0 below
        [0.    , 0.25  , 0.1875]
    logcdf:
        [      -inf, -1.3862944, -0.8266786]
    cdf: 1 − (1 − p)ᵏ
        [0.    , 0.25  , 0.4375]
    logsf:
        [ 0.       , -0.2876821, -0.5753642]
    sf: (1 − p)ᵏ
        [1.    , 0.75  , 0.5625]
    ppf: ⌈log(1 − q) / log(1 − p)⌉
        [3., 8.]
    """
    return k, p, loc


def _quantile_operands(q: ArrayLike, p: ArrayLike, loc: ArrayLike = 0) -> Operands:
    return q, p, loc


_FAMILY = Counts("geom", _operands, valid=lambda p: every(p > 0, p <= 1), lower=1)


logpmf = _FAMILY.make("logpmf", _log_mass)
pmf = _FAMILY.make("pmf", lambda k, p: el.exp(_log_mass(k, p)))
logcdf = _FAMILY.make("logcdf", lambda k, p: log1mexp(-k * el.log1p(-p)))
cdf = _FAMILY.make("cdf", lambda k, p: -el.expm1(k * el.log1p(-p)))
logsf = _FAMILY.make("logsf", lambda k, p: k * el.log1p(-p))
sf = _FAMILY.make("sf", lambda k, p: el.exp(k * el.log1p(-p)))
ppf = _FAMILY.make_quantile("ppf", _quantile_operands, _ppf)
