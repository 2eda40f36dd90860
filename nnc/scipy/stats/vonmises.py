"""Von Mises' distribution of angles, of period 2π."""

from __future__ import annotations

import math

from nnc.array.array import Array
from nnc.numpy import elementwise as el
from nnc.scipy.special import i0e
from nnc.scipy.stats.evaluate import Continuous, Operands
from nnc.typing import ArrayLike

__all__ = ["logpdf", "pdf"]


def _log_density(y: Array, kappa: Array) -> Array:
    """I₀(κ) grows as exp(κ), and cos(y) − 1 = −2 sin²(y / 2) is exact for small angles."""
    return -2 * kappa * el.square(el.sin(y / 2)) - el.log(2 * math.pi * i0e(kappa))


def _operands(x: ArrayLike, kappa: ArrayLike, loc: ArrayLike = 0, scale: ArrayLike = 1) -> Operands:
    """Returns the operands. The docstrings of the functions below are made of this one.

    Args:
        kappa: concentration, 0 (the uniform distribution) or above.
        loc: shift of the distribution.
        scale: factor of its width, above 0.

    Example:
        np.asarray([-1.0, 2.0]), 1.5
    logpdf: κ cos(y) − log(2π I₀(κ) scale)
        [-1.52621098, -2.96088469]
    pdf: exp(κ cos(y)) / (2π I₀(κ) scale)
        [0.21735768, 0.05177309]
    """
    return x, kappa, loc, scale


_FAMILY = Continuous("vonmises", _operands, valid=lambda kappa: kappa >= 0)


logpdf = _FAMILY.make("logpdf", _log_density)
pdf = _FAMILY.make("pdf", lambda y, kappa: el.exp(_log_density(y, kappa)))
