"""The beta distribution, of numbers between 0 and 1."""

from __future__ import annotations

from nnc.array.array import Array
from nnc.numpy import elementwise as el
from nnc.scipy.special import betainc, betaincc, betaln, xlog1py, xlogy
from nnc.scipy.stats.deviances import log_binomial
from nnc.scipy.stats.evaluate import UNIT, Continuous, Operands, every, log_of
from nnc.typing import ArrayLike

__all__ = ["cdf", "logcdf", "logpdf", "logsf", "pdf", "sf"]


def _log_density(y: Array, a: Array, b: Array) -> Array:
    large = every(a > 2, b > 2, y > 0, y < 1)
    return el.where(
        large,
        _of_large(*(el.where(large, x, z) for x, z in ((y, 0.5), (a, 3), (b, 3)))),
        _of_small(*(el.where(large, z, x) for x, z in ((y, 0.5), (a, 1), (b, 1)))),
    )


def _of_large(y: Array, a: Array, b: Array) -> Array:
    """Returns the probability of a successes among a + b trials, times a b / ((a + b) y (1 − y))."""
    return log_binomial(a, b, y) + el.log(a) - el.log1p(a / b) - el.log(y) - el.log1p(-y)


def _of_small(y: Array, a: Array, b: Array) -> Array:
    return xlogy(a - 1, y) + xlog1py(b - 1, -y) - betaln(a, b)


def _cdf(y: Array, a: Array, b: Array) -> Array:
    return betainc(a, b, y)


def _sf(y: Array, a: Array, b: Array) -> Array:
    return betaincc(a, b, y)


def _operands(x: ArrayLike, a: ArrayLike, b: ArrayLike, loc: ArrayLike = 0, scale: ArrayLike = 1) -> Operands:
    """Returns the operands. The docstrings of the functions below are made of this one.

    Args:
        a: exponent of y, plus 1; above 0.
        b: exponent of 1 − y, plus 1; above 0.
        loc: the least number.
        scale: length of the interval, above 0.

    Example:
        np.asarray([0.25, 2.0]), 3.0, 2.0
    logpdf: (a − 1) log(y) + (b − 1) log(1 − y) − log(B(a, b) scale) for 0 ≤ y ≤ 1, −∞ beyond
        [-0.57536414,        -inf]
    pdf: yᵃ⁻¹ (1 − y)ᵇ⁻¹ / (B(a, b) scale) for 0 ≤ y ≤ 1, 0 beyond
        [0.5625, 0.    ]
    logcdf:
        [-2.98022809,  0.        ]
    cdf: the incomplete beta function of a, b and y for 0 ≤ y ≤ 1
        [0.05078125, 1.        ]
    logsf:
        [-0.052116,      -inf]
    sf: 1 less the incomplete beta function of a, b and y for 0 ≤ y ≤ 1
        [0.94921875, 0.        ]
    """
    return x, a, b, loc, scale


_FAMILY = Continuous("beta", _operands, support=UNIT, wide=True)


logpdf = _FAMILY.make("logpdf", _log_density)
pdf = _FAMILY.make("pdf", lambda y, a, b: el.exp(_log_density(y, a, b)))
logcdf = _FAMILY.make("logcdf", lambda y, a, b: log_of(_cdf(y, a, b), _sf(y, a, b)))
cdf = _FAMILY.make("cdf", _cdf)
logsf = _FAMILY.make("logsf", lambda y, a, b: log_of(_sf(y, a, b), _cdf(y, a, b)))
sf = _FAMILY.make("sf", _sf)
