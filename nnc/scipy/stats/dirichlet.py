"""Dirichlet's distribution, of vectors of probabilities."""

from __future__ import annotations

import math

from nnc.array.array import Array
from nnc.calls.spelling import spelled
from nnc.errors import ShapeError, user_error
from nnc.numpy import elementwise as el
from nnc.numpy import reductions as red
from nnc.numpy.joining import concatenate
from nnc.numpy.types import finfo
from nnc.scipy.special import gammaln, xlogy
from nnc.scipy.stats.evaluate import read
from nnc.typing import ArrayLike

__all__ = ["logpdf", "pdf"]


@spelled
def logpdf(x: ArrayLike, alpha: ArrayLike) -> Array:
    """Returns the logarithm of the density: Σᵢ (αᵢ − 1) log(xᵢ) + log(Γ(Σᵢ αᵢ) / Πᵢ Γ(αᵢ)).

    It is −∞ where an xᵢ is negative, or the sum differs from 1 by more than rounding: 1e-6, or n units in the last place.

    Args:
        x: (n, ...), numbers from 0 to 1 whose sum over the first axis is 1; or (n − 1, ...) without the last of them.
        alpha: (n,), concentrations above 0.

    Returns:
        (...), the dtype of x and alpha together.

    Raises:
        ShapeError: alpha is no vector, or x does not fit.

    Example:
        >>> logpdf(np.asarray([0.25, 0.75]), np.asarray([2.0, 3.0]))
        Array(0.52324814, dtype=float64)
    """
    return _run("dirichlet.logpdf", x, alpha, is_log=True)


@spelled
def pdf(x: ArrayLike, alpha: ArrayLike) -> Array:
    """Returns the density: Πᵢ xᵢ^(αᵢ − 1) · Γ(Σᵢ αᵢ) / Πᵢ Γ(αᵢ), and 0 where x is no vector of probabilities.

    Args:
        x: (n, ...), numbers from 0 to 1 whose sum over the first axis is 1; or (n − 1, ...) without the last of them.
        alpha: (n,), concentrations above 0.

    Returns:
        (...), the dtype of x and alpha together.

    Raises:
        ShapeError: alpha is no vector, or x does not fit.

    Example:
        >>> pdf(np.asarray([0.25, 0.75]), np.asarray([2.0, 3.0]))
        Array(1.6875, dtype=float64)
    """
    return _run("dirichlet.pdf", x, alpha, is_log=False)


def _run(where: str, x: ArrayLike, alpha: ArrayLike, *, is_log: bool) -> Array:
    (x, alpha), finish = read(where, (x, alpha), wide=True, elementwise=False)
    n = alpha.spec.shape[0] if alpha.spec.ndim == 1 else -1
    if not x.spec.ndim or n < 1 or x.spec.shape[0] not in (n, n - 1):
        problem = f"x of shape {x.spec.shape} does not fit alpha of shape {alpha.spec.shape}."
        fix = "give alpha (n,), and x (n, ...) or (n - 1, ...)."
        raise user_error(ShapeError, where, problem, operands={"x": x.spec, "alpha": alpha.spec}, fix=fix)
    if x.spec.shape[0] == n - 1:
        x = concatenate([x, 1 - red.sum(x, axis=0, keepdims=True)], axis=0)
    rounding = max(1e-6, n * float(finfo(finish(x).spec.dtype).eps))
    outside = el.logical_or(red.any(x < 0, axis=0), el.abs(red.sum(x, axis=0) - 1) > rounding)
    powers = alpha.reshape((n,) + (1,) * (x.spec.ndim - 1)) - 1
    result = red.sum(xlogy(powers, el.where(outside, 1 / n, x)), axis=0)
    result = result + gammaln(red.sum(alpha)) - red.sum(gammaln(alpha))
    result = el.where(red.all(alpha > 0), el.where(outside, -math.inf, result), math.nan)
    return finish(result if is_log else el.exp(result))
