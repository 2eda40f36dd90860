"""The normal distribution of vectors."""

from __future__ import annotations

import math

from nnc.array.array import Array
from nnc.array.promote import broadcast
from nnc.calls.spelling import spelled
from nnc.errors import ShapeError, user_error
from nnc.numpy import elementwise as el
from nnc.numpy import linalg as la
from nnc.numpy import reductions as red
from nnc.numpy.manipulation import broadcast_to, diagonal, moveaxis
from nnc.numpy.types import finfo
from nnc.scipy.stats.evaluate import read
from nnc.typing import ArrayLike

__all__ = ["logpdf", "pdf"]

_LOG_2PI = math.log(2 * math.pi)


@spelled
def logpdf(x: ArrayLike, mean: ArrayLike, cov: ArrayLike, allow_singular: bool | None = None) -> Array:
    """Returns the logarithm of the density: −dᵀ cov⁻¹ d / 2 − log(det(2π cov)) / 2, where d = x − mean.

    Args:
        x: (..., n); leading axes broadcast with those of mean and cov.
        mean: (..., n); a number for numbers x.
        cov: (..., n, n), symmetric and positive definite; or a number, the variance of independent elements.
        allow_singular: takes positive semidefinite covariances, too, by their eigenvalues: the density is that of the subspace
            in which vectors vary, and −∞ outside. The default decomposes cov by Cholesky.

    Returns:
        (...), the dtype of x, mean and cov together.

    Raises:
        LinAlgError: cov is not positive definite, and `allow_singular` is not set.
        ShapeError: x, mean and cov do not fit.

    Example:
        >>> logpdf(np.asarray([1.0, 2.0]), np.zeros(2), np.eye(2))
        Array(-4.33787707, dtype=float64)
    """
    return _run("multivariate_normal.logpdf", x, mean, cov, allow_singular, is_log=True)


@spelled
def pdf(x: ArrayLike, mean: ArrayLike, cov: ArrayLike, allow_singular: bool | None = None) -> Array:
    """Returns the density: exp(−dᵀ cov⁻¹ d / 2) / √det(2π cov), where d = x − mean.

    Args:
        x: (..., n); leading axes broadcast with those of mean and cov.
        mean: (..., n); a number for numbers x.
        cov: (..., n, n), symmetric and positive definite; or a number, the variance of independent elements.
        allow_singular: takes positive semidefinite covariances, too; see `logpdf`.

    Returns:
        (...), the dtype of x, mean and cov together.

    Raises:
        LinAlgError: cov is not positive definite, and `allow_singular` is not set.
        ShapeError: x, mean and cov do not fit.

    Example:
        >>> pdf(np.asarray([1.0, 2.0]), np.zeros(2), np.eye(2))
        Array(0.01306423, dtype=float64)
    """
    return _run("multivariate_normal.pdf", x, mean, cov, allow_singular, is_log=False)


def _run(
    where: str, x: ArrayLike, mean: ArrayLike, cov: ArrayLike, allow_singular: bool | None, *, is_log: bool
) -> Array:
    (x, mean, cov), finish = read(where, (x, mean, cov), elementwise=False)
    n = mean.spec.shape[-1] if mean.spec.ndim else None
    fits = n is None or not cov.spec.ndim or cov.spec.shape[-2:] == (n, n)
    if not fits or (n is not None and x.spec.shape[-1:] not in ((), (n,))):
        problem = f"mean of shape {mean.spec.shape} and cov of shape {cov.spec.shape} do not fit x of {x.spec.shape}."
        operands = {"x": x.spec, "mean": mean.spec, "cov": cov.spec}
        fix = "give x and mean (..., n) and cov (..., n, n), or numbers x, mean and cov."
        raise user_error(ShapeError, where, problem, operands=operands, fix=fix)
    x, mean = broadcast(x, mean, where=where)
    if n is None:
        square, log_det, n = el.square(x - mean) / cov, el.log(cov), 1
    elif not cov.spec.ndim:
        square, log_det = red.sum(el.square(x - mean), axis=-1) / cov, n * el.log(cov)
    elif allow_singular:
        return finish(_of_subspace(x - mean, cov, is_log=is_log))
    else:
        factor = la.cholesky(cov)
        square = red.sum(el.square(_solve(where, factor, x - mean)), axis=-1)
        log_det = 2 * red.sum(el.log(diagonal(factor, axis1=-2, axis2=-1)), axis=-1)
    result = -(square + log_det + n * _LOG_2PI) / 2
    return finish(result if is_log else el.exp(result))


def _solve(where: str, factor: Array, d: Array) -> Array:
    """factor⁻¹ d for each vector d: one matrix has all vectors as right-hand sides."""
    n = d.spec.shape[-1]
    if factor.spec.ndim == 2:
        return la.solve_triangular(factor, d.reshape(-1, n).T, lower=True).T.reshape(d.spec.shape)
    lead = broadcast(factor[..., 0, 0], d[..., 0], where=where)[0].spec.shape
    factor, d = broadcast_to(factor, (*lead, n, n)), broadcast_to(d, (*lead, n))
    return la.solve_triangular(factor, d[..., None], lower=True)[..., 0]


def _of_subspace(d: Array, cov: Array, *, is_log: bool) -> Array:
    """Returns the density by eigenvalues; those that are 0 but for rounding are left out, by SciPy's bounds."""
    values, vectors = la.eigh(cov)
    info = finfo(cov.spec.dtype)
    least = (1e6 if info.bits == 64 else 1e3) * float(info.eps) * red.max(el.abs(values), axis=-1, keepdims=True)
    varies = values > least
    safe = el.where(varies, values, 1)
    parts = la.matmul(moveaxis(vectors, -1, -2), d[..., None])[..., 0]
    square = red.sum(el.where(varies, el.square(parts) / safe, 0), axis=-1)
    beside = red.sum(el.where(varies, 0, el.square(parts)), axis=-1) > el.square(1e3 * least[..., 0])
    rank = red.sum(varies, axis=-1).astype(cov.spec.dtype)
    result = -(square + red.sum(el.log(safe), axis=-1) + rank * _LOG_2PI) / 2
    result = el.where(beside, -math.inf, result)
    result = el.where(red.any(values < -least, axis=-1), math.nan, result)
    return result if is_log else el.exp(result)
