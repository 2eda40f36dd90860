"""The normal distribution's probabilities and quantiles, and the scaled complement of the error function."""

from __future__ import annotations

import math

from nnc.array.array import Array
from nnc.calls.spelling import spelled
from nnc.commands.portable import ERFC_CENTRE, ERFC_DOUBLE, ERFC_END, QUANTILE, QUANTILE_FAR, QUANTILE_NEAR
from nnc.commands.special import erf as erf_command
from nnc.commands.special import erfc as erfc_command
from nnc.numpy import elementwise as el
from nnc.numpy.wide import in_float64, keep, polynomial
from nnc.scipy.special.pieces import exp_sum, product
from nnc.trace.core.custom import elementwise_jvp
from nnc.typing import ArrayLike

__all__ = ["erfcx", "log_ndtr", "ndtr", "ndtri"]

_ROOT_HALF, _ROOT_PI = math.sqrt(0.5), math.sqrt(math.pi)
_NEAR = 0.5  # below which e^(x²) · erfc x is exact, and from which the polynomial is
# 1 - 1/(2x²) + 3/(4x⁴) - …: (-1)^k (2k - 1)!! / 2^k
_ASYMPTOTIC = tuple((-0.5) ** k * math.prod(range(1, 2 * k, 2)) for k in range(8))
_RATIO_FAR = -10.0
_RATIO = tuple((-0.5) ** k * math.prod(range(1, 2 * k, 2)) for k in range(26))  # of the same series, more terms
_BEYOND = 40.0  # where e^(-x²/2) is 0, and e^(x²) infinite


def exp_square(x: Array, factor: float) -> Array:
    """e^(factor · x²), a factor of ±1 or ±½, with the rounding error of x²; |x| above 40 counts as 40."""
    square, tail = product(*(el.clip(x, -_BEYOND, _BEYOND),) * 2)
    return exp_sum(square * factor, tail * factor)


def scaled_erfc(x: Array) -> Array:
    """e^(x²) · erfc x.

    From ½ to 28 it is h(t) / (x + c) with a polynomial h (Shepherd and Laframboise, "Chebyshev approximation of
    (1 + 2x) exp(x²) erfc x in 0 <= x < ∞", 1981), then the asymptotic series (DLMF 7.12.1).
    """
    low, far = x < _NEAR, x > ERFC_END
    small = keep(low, x, 0.0)
    near = exp_square(small, 1.0) * erfc_command(small)
    between = keep(el.logical_and(x >= _NEAR, ~far), x, 1.0)
    inverse = 1 / (between + ERFC_CENTRE)
    middle = polynomial((between - ERFC_CENTRE) * inverse, ERFC_DOUBLE) * inverse
    large = 1 / keep(far, x, ERFC_END)
    end = large * polynomial(large * large, _ASYMPTOTIC) / _ROOT_PI
    return el.where(low, near, el.where(far, end, el.where(el.isnan(x), x, middle)))


@spelled
def erfcx(x: ArrayLike, /) -> Array:
    """Returns exp(x²) · (1 - erf(x)), which neither underflows for large x nor loses digits; infinite below -26.7.

    Args:
        x: real, any shape; integers become float32.

    Example:
        >>> erfcx(np.float64(30.0))
        Array(0.01879589, dtype=float64)
    """
    return in_float64("erfcx", scaled_erfc, x)


@elementwise_jvp
def _ndtr(x: Array) -> Array:
    """For |x| < 1 by erf, beyond by the scaled complement, so that the rounding of x² does not grow with the tail."""
    near, size = abs(x) < 1, abs(x)
    tail = 0.5 * exp_square(size, -0.5) * scaled_erfc(size * _ROOT_HALF)
    centre = 0.5 + 0.5 * erf_command(keep(near, x, 0.0) * _ROOT_HALF)
    return el.where(near, centre, el.where(x < 0, tail, 1 - tail))


@elementwise_jvp
def _density(x: Array) -> Array:
    return exp_square(x, -0.5) / math.sqrt(2 * math.pi)


_ndtr.defjvps(lambda t, result, x: t * _density(x))
_density.defjvps(lambda t, result, x: -el.clip(x, -_BEYOND, _BEYOND) * result * t)  # 0 at infinity


@spelled
def ndtr(x: ArrayLike, /) -> Array:
    """Returns the probability that a standard normal number is below x, with all digits in the left tail.

    Args:
        x: real, any shape; integers become float32.

    Example:
        >>> ndtr(np.float64(0.0)), ndtr(np.float64(-30.0))
        (Array(0.5, dtype=float64), Array(4.90671393e-198, dtype=float64))
    """
    return in_float64("ndtr", _ndtr, x)


@elementwise_jvp
def _log_ndtr(x: Array) -> Array:
    low = x < -1
    left, right = keep(low, x, -1.0), keep(~low, x, 0.0)
    tail = el.log(0.5 * scaled_erfc(left * -_ROOT_HALF)) - 0.5 * left * left
    return el.where(low, tail, el.log1p(-_ndtr(-right)))


def _density_ratio(x: Array) -> Array:
    """Returns the density divided by the probability; in the left tail, where both underflow, by the scaled complement.

    From -10 on down by the asymptotic series, in whose derivatives nothing cancels.
    """
    low, far = x < -1, x < _RATIO_FAR
    left, right = keep(el.logical_and(low, ~far), x, -1.0), keep(~low, x, 0.0)
    size = -keep(far, x, _RATIO_FAR)
    inverse = 1 / size
    near = el.where(low, math.sqrt(2 / math.pi) / scaled_erfc(left * -_ROOT_HALF), _density(right) / _ndtr(right))
    return el.where(far, size / polynomial(2 * inverse * inverse, _RATIO), near)


_log_ndtr.defjvps(lambda t, result, x: t * _density_ratio(x))


@spelled
def log_ndtr(x: ArrayLike, /) -> Array:
    """Returns the logarithm of `ndtr`, in both tails with all digits; the derivatives are exact there, too.

    Args:
        x: real, any shape; integers become float32.

    Example:
        >>> log_ndtr(np.float64(-100.0)), log_ndtr(np.float64(10.0))
        (Array(-5005.52420869, dtype=float64), Array(-7.61985302e-24, dtype=float64))
    """
    return in_float64("log_ndtr", _log_ndtr, x)


@elementwise_jvp
def _ndtri(p: Array) -> Array:
    """Wichura, "Algorithm AS 241: the percentage points of the normal distribution" (1988): three ratios of polynomials."""
    q = p - 0.5
    central = abs(q) <= 0.425
    near = keep(central, q, 0.0)
    r = 0.180625 - near * near
    middle = near * polynomial(r, QUANTILE[0]) / polynomial(r, QUANTILE[1])
    size = el.where(q < 0, p, 1 - p)
    root = el.sqrt(-el.log(keep(el.logical_and(~central, size > 0), size, 0.05)))
    close = root <= 5
    inner, outer = keep(close, root, 5.0) - 1.6, keep(~close, root, 5.0) - 5
    tail = el.where(
        close,
        polynomial(inner, QUANTILE_NEAR[0]) / polynomial(inner, QUANTILE_NEAR[1]),
        polynomial(outer, QUANTILE_FAR[0]) / polynomial(outer, QUANTILE_FAR[1]),
    )
    tail = el.where(size > 0, tail, el.where(el.equal(size, 0), math.inf, math.nan))
    return el.where(central, middle, el.where(q < 0, -tail, tail))


@elementwise_jvp
def _reciprocal_density(p: Array) -> Array:
    """1 / φ(x) at the quantile x of p, by the scaled complement: exp(x² / 2) would lose digits in the tails."""
    x = _ndtri(p)
    size = el.where(p < 0.5, p, 1 - p)
    inside = size > 0
    tail = scaled_erfc(el.where(p < 0.5, -x, x) * _ROOT_HALF) / keep(inside, size, 1.0)
    return el.where(inside, math.sqrt(math.pi / 2) * tail, math.sqrt(2 * math.pi) * el.exp(0.5 * x * x))


_ndtri.defjvps(lambda t, result, p: t * _reciprocal_density(p))
_reciprocal_density.defjvps(lambda t, result, p: t * _ndtri(p) * result * result)


@spelled
def ndtri(p: ArrayLike, /) -> Array:
    """Returns the number that a standard normal one is below with probability p: the inverse of `ndtr`.

    Infinite at 0 and 1, NaN beyond.

    Args:
        p: in [0, 1], any shape; integers become float32.

    Example:
        >>> ndtri(np.float64(0.975))
        Array(1.95996398, dtype=float64)
    """
    return in_float64("ndtri", _ndtri, p)
