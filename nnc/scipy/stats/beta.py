"""The beta distribution, of numbers between 0 and 1."""

from __future__ import annotations

from nnc.array import Array
from nnc.numpy import elementwise as el
from nnc.scipy.special import betaln, xlog1py, xlogy
from nnc.scipy.stats.evaluate import UNIT, Continuous
from nnc.spelling import spelled
from nnc.typing import ArrayLike

__all__ = ["logpdf", "pdf"]


def _log_density(y: Array, a: Array, b: Array) -> Array:
    return xlogy(a - 1, y) + xlog1py(b - 1, -y) - betaln(a, b)


_FAMILY = Continuous("beta", UNIT, wide=True)


@spelled
def logpdf(x: ArrayLike, a: ArrayLike, b: ArrayLike, loc: ArrayLike = 0, scale: ArrayLike = 1) -> Array:
    """Returns the logarithm of the density: (a − 1) log(y) + (b − 1) log(1 − y) − log(B(a, b) scale) for 0 ≤ y ≤ 1, −∞ beyond.

    Here y = (x − loc) / scale.

    Args:
        x: real, any shape; broadcasts with the parameters.
        a: exponent of y, plus 1; above 0.
        b: exponent of 1 − y, plus 1; above 0.
        loc: the least number.
        scale: length of the interval, above 0.

    Example:
        >>> logpdf(np.asarray([0.25, 2.0]), 3.0, 2.0)
        Array([-0.57536414,        -inf], dtype=float64)
    """
    return _FAMILY.logpdf(_log_density, x, a, b, loc, scale)


@spelled
def pdf(x: ArrayLike, a: ArrayLike, b: ArrayLike, loc: ArrayLike = 0, scale: ArrayLike = 1) -> Array:
    """Returns the density: yᵃ⁻¹ (1 − y)ᵇ⁻¹ / (B(a, b) scale) for 0 ≤ y ≤ 1, 0 beyond.

    Here y = (x − loc) / scale.

    Args:
        x: real, any shape; broadcasts with the parameters.
        a: exponent of y, plus 1; above 0.
        b: exponent of 1 − y, plus 1; above 0.
        loc: the least number.
        scale: length of the interval, above 0.

    Example:
        >>> pdf(np.asarray([0.25, 2.0]), 3.0, 2.0)
        Array([0.5625, 0.    ], dtype=float64)
    """
    return _FAMILY.pdf(lambda y, a, b: el.exp(_log_density(y, a, b)), x, a, b, loc, scale)


def __dir__() -> list[str]:
    return sorted(__all__)
