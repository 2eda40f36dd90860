"""The multinomial distribution: how often each of some outcomes occurs among n trials."""

from __future__ import annotations

import math

from nnc.array.array import Array
from nnc.array.promote import broadcast
from nnc.calls.spelling import spelled
from nnc.errors import ShapeError, user_error
from nnc.numpy import elementwise as el
from nnc.numpy import reductions as red
from nnc.scipy.special import gammaln, xlogy
from nnc.scipy.stats.evaluate import every, read
from nnc.typing import ArrayLike

__all__ = ["logpmf", "pmf"]


@spelled
def logpmf(x: ArrayLike, n: ArrayLike, p: ArrayLike) -> Array:
    """Returns the logarithm of the probability of counts: log(n! / Πᵢ xᵢ!) + Σᵢ xᵢ log(pᵢ).

    It is −∞ where the counts are negative, not whole, or do not sum to n; NaN where n or p is invalid.

    Args:
        x: (..., k) counts, of any real dtype; leading axes broadcast with those of n and p.
        n: (...), trials, a whole number of 0 or more.
        p: (..., k), probabilities, whose sum is 1.

    Raises:
        ShapeError: x or p is a number, or the shapes do not broadcast.

    Example:
        >>> logpmf(np.asarray([1, 2]), 3, np.asarray([0.25, 0.75]))
        Array(-0.86304622, dtype=float64)
    """
    return _run("multinomial.logpmf", x, n, p, is_log=True)


@spelled
def pmf(x: ArrayLike, n: ArrayLike, p: ArrayLike) -> Array:
    """Returns the probability of counts: n! / Πᵢ xᵢ! · Πᵢ pᵢ^xᵢ.

    It is 0 where the counts are negative, not whole, or do not sum to n; NaN where n or p is invalid.

    Args:
        x: (..., k) counts, of any real dtype; leading axes broadcast with those of n and p.
        n: (...), trials, a whole number of 0 or more.
        p: (..., k), probabilities, whose sum is 1.

    Raises:
        ShapeError: x or p is a number, or the shapes do not broadcast.

    Example:
        >>> pmf(np.asarray([1, 2]), 3, np.asarray([0.25, 0.75]))
        Array(0.421875, dtype=float64)
    """
    return _run("multinomial.pmf", x, n, p, is_log=False)


def _run(where: str, x: ArrayLike, n: ArrayLike, p: ArrayLike, *, is_log: bool) -> Array:
    (x, n, p), finish = read(where, (x, n, p), wide=True, elementwise=False)
    if not x.spec.ndim or not p.spec.ndim:
        problem = "x and p have an axis of outcomes."
        raise user_error(ShapeError, where, problem, operands={"x": x.spec, "p": p.spec}, fix="pass vectors x and p.")
    x, p = broadcast(x, p, where=where)
    broadcast(x[..., 0], n, where=where)  # refuses shapes that do not fit
    wrong = red.any(el.logical_or(x < 0, el.floor(x) < x), axis=-1)
    outside = el.logical_or(wrong, ~el.equal(red.sum(x, axis=-1), n))
    counts = el.where(outside[..., None], 0, x)
    result = gammaln(n + 1) + red.sum(xlogy(counts, p) - gammaln(counts + 1), axis=-1)
    valid = every(n >= 0, el.equal(el.floor(n), n), red.all(el.logical_and(p >= 0, p <= 1), axis=-1))
    valid = el.logical_and(valid, ~red.any(el.isnan(x), axis=-1))
    result = el.where(valid, el.where(outside, -math.inf, result), math.nan)
    return finish(result if is_log else el.exp(result))
