"""The gamma distribution."""

from __future__ import annotations

from nnc.array import Array
from nnc.numpy import elementwise as el
from nnc.scipy.special import gammaln, xlogy
from nnc.scipy.stats.evaluate import HALF_LINE, Continuous
from nnc.spelling import spelled
from nnc.typing import ArrayLike

__all__ = ["logpdf", "pdf"]


def _log_density(y: Array, a: Array) -> Array:
    return xlogy(a - 1, y) - y - gammaln(a)


_FAMILY = Continuous("gamma", HALF_LINE, wide=True)


@spelled
def logpdf(x: ArrayLike, a: ArrayLike, loc: ArrayLike = 0, scale: ArrayLike = 1) -> Array:
    """Returns the logarithm of the density: (a − 1) log(y) − y − log(Γ(a) scale) for y ≥ 0, −∞ below.

    Here y = (x − loc) / scale.

    Args:
        x: real, any shape; broadcasts with the parameters.
        a: shape, above 0.
        loc: the least number.
        scale: factor of its width, above 0; the mean is loc + a · scale.

    Example:
        >>> logpdf(np.asarray([-1.0, 2.0]), 3.0)
        Array([       -inf, -1.30685282], dtype=float64)
    """
    return _FAMILY.logpdf(_log_density, x, a, loc, scale)


@spelled
def pdf(x: ArrayLike, a: ArrayLike, loc: ArrayLike = 0, scale: ArrayLike = 1) -> Array:
    """Returns the density: yᵃ⁻¹ exp(−y) / (Γ(a) scale) for y ≥ 0, 0 below.

    Here y = (x − loc) / scale.

    Args:
        x: real, any shape; broadcasts with the parameters.
        a: shape, above 0.
        loc: the least number.
        scale: factor of its width, above 0; the mean is loc + a · scale.

    Example:
        >>> pdf(np.asarray([-1.0, 2.0]), 3.0)
        Array([0.        , 0.27067057], dtype=float64)
    """
    return _FAMILY.pdf(lambda y, a: el.exp(_log_density(y, a)), x, a, loc, scale)


def __dir__() -> list[str]:
    return sorted(__all__)
