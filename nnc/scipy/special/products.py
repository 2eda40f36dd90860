"""Factorials, binomial coefficients, rising powers, and the gamma function of several dimensions."""

from __future__ import annotations

import math

from nnc.array.array import Array
from nnc.calls.spelling import spelled
from nnc.errors import ArgumentError, UnsupportedError, user_error
from nnc.numpy import elementwise as el
from nnc.numpy.gammas import STIRLING_FROM, stirling
from nnc.numpy.operands import static_int
from nnc.numpy.special import gammaln
from nnc.numpy.wide import in_float64, keep
from nnc.scipy.special.gammas import beta, gamma, gammasgn
from nnc.scipy.special.pieces import log_gap
from nnc.typing import ArrayLike

__all__ = ["comb", "factorial", "loggamma", "multigammaln", "poch"]


@spelled
def loggamma(x: ArrayLike, /) -> Array:
    """Returns the logarithm of the gamma function; of real numbers below 0, where it is complex, NaN.

    Args:
        x: real, any shape; integers become float32.

    Raises:
        DTypeError: x is complex, which is not supported.

    Example:
        >>> loggamma(np.asarray([4.0, -0.5]))
        Array([1.79175947,        nan], dtype=float64)
    """
    return in_float64("loggamma", lambda x: el.where(x < 0, math.nan, gammaln(keep(~(x < 0), x, 1.0))), x)


@spelled
def factorial(n: ArrayLike, exact: bool = False) -> Array:
    """Returns n! = Γ(n + 1), 0 for negative n.

    Args:
        n: real, any shape; integers become float32.
        exact: must be False; whole numbers without bound have no dtype.

    Raises:
        UnsupportedError: exact is True.

    Example:
        >>> factorial(np.asarray([0.0, 3.0, -1.0]))
        Array([1., 6., 0.], dtype=float64)
    """
    if exact:
        problem = "exact=True asks for integers of any size, which no dtype holds."
        raise user_error(UnsupportedError, "factorial", problem, fix="leave exact=False, or use math.factorial.")
    return in_float64("factorial", lambda n: el.where(n < 0, 0.0, gamma(keep(~(n < 0), n, 0.0) + 1)), n)


def _poch(z: Array, m: Array) -> Array:
    """Γ(z + m) / Γ(z): a power by Stirling's series, a quotient of small numbers, else by logarithms."""
    total = z + m
    pole, total_pole = _is_pole(z), _is_pole(total)
    regular = ~el.logical_or(pole, total_pole)
    series = el.logical_and(el.logical_and(z >= STIRLING_FROM, total >= STIRLING_FROM), total < math.inf)
    w, k = keep(series, z, STIRLING_FROM), keep(series, m, 0.0)
    rest = stirling(w + k) - stirling(w) - w * log_gap(k / w) - 0.5 * el.log1p(k / w)
    half = el.power(w + k, 0.5 * k)
    large = half * el.exp(rest) * half
    plain = el.logical_and(el.logical_and(regular, ~series), el.logical_and(abs(z) < 150, abs(total) < 150))
    quotient = gamma(keep(plain, total, 1.0)) / gamma(keep(plain, z, 1.0))
    both = el.logical_and(pole, total_pole)  # Γ(z + m) / Γ(z) = (-1)^m Γ(1 - z) / Γ(1 - z - m)
    a, steps = keep(both, 1 - total, 1.0), keep(both, m, 0.0)
    mirrored = el.exp(gammaln(a + steps) - gammaln(a)) * el.where(el.equal(el.remainder(steps, 2), 0), 1.0, -1.0)
    far = el.logical_and(regular, ~el.logical_or(series, plain))
    w, k = keep(far, z, 1.0), keep(far, total, 1.0)
    logarithmic = gammasgn(k) * gammasgn(w) * el.exp(gammaln(k) - gammaln(w))
    value = el.where(series, large, el.where(plain, quotient, el.where(far, logarithmic, math.nan)))
    value = el.where(both, mirrored, el.where(pole, 0.0, el.where(total_pole, math.inf, value)))
    return el.where(el.equal(m, 0), 1.0 + 0 * z, value)


def _is_pole(x: Array) -> Array:
    return el.logical_and(x <= 0, el.equal(el.floor(x), x))


@spelled
def poch(z: ArrayLike, m: ArrayLike, /) -> Array:
    """Returns the rising factorial Γ(z + m) / Γ(z), for whole m the product z (z + 1) … (z + m - 1).

    Args:
        z: real, any shape; broadcasts with `m`. Integers become float32.
        m: real, any shape.

    Example:
        >>> poch(np.float64(2.0), np.asarray([0.0, 3.0]))
        Array([ 1., 24.], dtype=float64)
    """
    return in_float64("poch", _poch, z, m)


def _comb(n: Array, k: Array) -> Array:
    inside = el.logical_and(el.logical_and(k >= 0, n >= k), n < math.inf)
    a, b = keep(inside, n, 1.0), keep(inside, k, 0.0)
    known = ~el.logical_or(el.isnan(n), el.isnan(k))
    return el.where(inside, 1 / ((a + 1) * beta(a - b + 1, b + 1)), el.where(known, 0.0, math.nan))


@spelled
def comb(N: ArrayLike, k: ArrayLike, *, repetition: bool = False) -> Array:  # noqa: N803  (SciPy's name)
    """Returns the binomial coefficient, in how many ways k of N things are chosen.

    Args:
        N: at least 0, any shape; broadcasts with `k`. Integers become float32.
        k: any shape; the result is 0 for negative k and for k > N.
        repetition: True counts choices in which things may be taken again, which are as many as of N + k - 1 things.

    Example:
        >>> comb(np.float64(5), np.asarray([0.0, 2.0, 6.0]))
        Array([ 1., 10.,  0.], dtype=float64)
    """
    if repetition:
        return in_float64(
            "comb", lambda n, k: el.where(el.logical_and(el.equal(k, 0), n >= 0), 1.0, _comb(n + k - 1, k)), N, k
        )
    return in_float64("comb", _comb, N, k)


@spelled
def multigammaln(a: ArrayLike, d: int) -> Array:
    """Returns the logarithm of the gamma function of d dimensions, log Γ(a) + log Γ(a - ½) + … + d (d - 1) / 4 · log π.

    Args:
        a: above (d - 1) / 2, any shape; NaN elsewhere. Integers become float32.
        d: the dimensions, a static integer of 1 or more.

    Raises:
        ArgumentError: d is below 1.

    Example:
        >>> multigammaln(np.float64(3.0), 2)
        Array(1.55019499, dtype=float64)
    """
    dimensions = static_int(d, "multigammaln", "d")
    if dimensions < 1:
        problem = f"d is {dimensions}."
        raise user_error(ArgumentError, "multigammaln", problem, fix="give the number of dimensions, 1 or more.")

    def function(x: Array) -> Array:
        inside = x > 0.5 * (dimensions - 1)
        total = 0.25 * dimensions * (dimensions - 1) * math.log(math.pi)
        y = keep(inside, x, float(dimensions))
        return el.where(inside, sum((gammaln(y - 0.5 * j) for j in range(dimensions)), start=0 * y + total), math.nan)

    return in_float64("multigammaln", function, a)
