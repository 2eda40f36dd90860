"""Von Mises' distribution of angles, of period 2π."""

from __future__ import annotations

import math

from nnc.array.array import Array
from nnc.calls.spelling import spelled
from nnc.numpy import elementwise as el
from nnc.scipy.special import i0e
from nnc.scipy.stats.evaluate import Continuous
from nnc.typing import ArrayLike

__all__ = ["logpdf", "pdf"]


def _valid(kappa: Array) -> Array:
    return kappa >= 0


def _log_density(y: Array, kappa: Array) -> Array:
    """I₀(κ) grows as exp(κ), and cos(y) − 1 = −2 sin²(y / 2) is exact for small angles."""
    return -2 * kappa * el.square(el.sin(y / 2)) - el.log(2 * math.pi * i0e(kappa))


_FAMILY = Continuous("vonmises", valid=_valid)


@spelled
def logpdf(x: ArrayLike, kappa: ArrayLike, loc: ArrayLike = 0, scale: ArrayLike = 1) -> Array:
    """Returns the logarithm of the density: κ cos(y) − log(2π I₀(κ) scale).

    Here y = (x − loc) / scale.

    Args:
        x: real, any shape; broadcasts with the parameters.
        kappa: concentration, 0 (the uniform distribution) or above.
        loc: shift of the distribution.
        scale: factor of its width, above 0.

    Example:
        >>> logpdf(np.asarray([-1.0, 2.0]), 1.5)
        Array([-1.52621098, -2.96088469], dtype=float64)
    """
    return _FAMILY.logpdf(_log_density, x, kappa, loc, scale)


@spelled
def pdf(x: ArrayLike, kappa: ArrayLike, loc: ArrayLike = 0, scale: ArrayLike = 1) -> Array:
    """Returns the density: exp(κ cos(y)) / (2π I₀(κ) scale).

    Here y = (x − loc) / scale.

    Args:
        x: real, any shape; broadcasts with the parameters.
        kappa: concentration, 0 (the uniform distribution) or above.
        loc: shift of the distribution.
        scale: factor of its width, above 0.

    Example:
        >>> pdf(np.asarray([-1.0, 2.0]), 1.5)
        Array([0.21735768, 0.05177309], dtype=float64)
    """
    return _FAMILY.pdf(lambda y, kappa: el.exp(_log_density(y, kappa)), x, kappa, loc, scale)


def __dir__() -> list[str]:
    return sorted(__all__)
