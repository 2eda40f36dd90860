"""Draws of vectors and matrices. They move with their parameters."""

from __future__ import annotations

from nnc.array.array import Array
from nnc.array.matmul import matmul
from nnc.array.promote import broadcast_to_shape, promote
from nnc.base import dtypes
from nnc.calls.spelling import spelled
from nnc.commands import elementwise as ew
from nnc.commands import factor
from nnc.commands.linalg import matrix_transpose
from nnc.errors import ShapeError, user_error
from nnc.errors.errors import check_choice
from nnc.numpy import elementwise as el
from nnc.numpy.manipulation import diagonal
from nnc.numpy.operands import static_int, to_shape, to_value
from nnc.random.continuous import exponential, normal
from nnc.random.counts import rademacher
from nnc.random.exact import power, sum_last
from nnc.random.gamma import gamma
from nnc.random.keys import read_key, split
from nnc.random.parameters import float_dtype, in_single, inexact_dtype, joint_shape, read_parameter, read_together
from nnc.typing import ArrayLike, DTypeLike, ShapeLike

__all__ = ["ball", "generalized_normal", "multivariate_normal", "orthogonal"]


@spelled
def multivariate_normal(
    key: ArrayLike,
    mean: ArrayLike,
    cov: ArrayLike,
    shape: ShapeLike | None = None,
    dtype: DTypeLike | None = None,
    method: str = "cholesky",
) -> Array:
    """Normal vectors with a mean and a covariance: mean + A z, with A Aᵀ = cov and z standard normal.

    Args:
        key: a key that is used for nothing else.
        mean: (..., n).
        cov: (..., n, n).
        shape: the shape of the draw without its last axis; by default the shape of the leading axes together.
        dtype: by default the dtype of mean and cov.
        method: how A is found: "cholesky", or "eigh" or "svd", which take singular covariances, too.

    Returns:
        (*shape, n).

    Raises:
        ShapeError: mean and cov do not fit.
        ArgumentError: no such method.
        LinAlgError: cov is not positive definite ("cholesky").

    Example:
        >>> nnc.random.multivariate_normal(nnc.random.key(0), np.zeros(2), np.eye(2), (5,)).shape
        (5, 2)
    """
    where = "nnc.random.multivariate_normal"
    check_choice(where, "method", method, ("cholesky", "eigh", "svd"))
    mean, cov = (to_value(x, where) for x in promote(mean, cov, where=where, to=dtypes.to_float))
    dtype = float_dtype(mean.spec.dtype if dtype is None else dtype, where)
    if not mean.spec.ndim or cov.spec.ndim < 2 or cov.spec.shape[-2:] != (mean.spec.shape[-1],) * 2:
        problem = f"mean of shape {mean.spec.shape} and cov of shape {cov.spec.shape} do not fit."
        fix = "give mean (..., n) and cov (..., n, n)."
        raise user_error(ShapeError, where, problem, operands={"mean": mean.spec, "cov": cov.spec}, fix=fix)
    mean, cov = (to_value(read_parameter(x, dtype, where, "mean"), where) for x in (mean, cov))
    shape = joint_shape(shape, where, mean=mean[..., 0], cov=cov[..., 0, 0])
    z = normal(key, (*shape, mean.spec.shape[-1]), dtype)
    return mean + matmul(_root(cov, method), z[..., None])[..., 0]


def _root(cov: Array, method: str) -> Array:
    """Returns a with A Aᵀ = cov."""
    if method == "cholesky":
        return factor.cholesky(cov)
    if method == "eigh":
        values, vectors = factor.eigh(cov)
    else:
        vectors, values, _ = factor.svd(cov, full_matrices=False)
    inside = values > 0  # rounding may put a value that is 0 below it
    return vectors * el.where(inside, ew.sqrt(el.where(inside, values, 1)), 0)[..., None, :]


@in_single
def orthogonal(
    key: ArrayLike, n: int, shape: ShapeLike = (), dtype: DTypeLike = dtypes.float32, m: int | None = None
) -> Array:
    """Orthogonal matrices (complex: unitary ones), every one as likely (Mezzadri, 2007).

    Args:
        key: a key that is used for nothing else.
        n: rows.
        shape: leading axes.
        dtype: a floating-point or complex dtype.
        m: columns, by default as many; where they differ, the fewer of rows and columns are orthonormal.

    Returns:
        (*shape, n, m).

    Raises:
        ArgumentError: a size is negative.
        DTypeError: dtype is not floating-point or complex.

    Example:
        >>> q = nnc.random.orthogonal(nnc.random.key(0), 3)
        >>> bool(abs(q @ q.T - np.eye(3)).max() < 1e-5)
        True
    """
    where = "nnc.random.orthogonal"
    n = static_int(n, where, "n")
    m = n if m is None else static_int(m, where, "m")
    q, r = factor.qr(
        normal(key, to_shape((*to_shape(shape, where), max(n, m), min(n, m)), where), inexact_dtype(dtype, where))
    )
    q = q * ew.sign(diagonal(r, 0, -2, -1))[..., None, :]
    return matrix_transpose(q) if n < m else q


@in_single
def generalized_normal(key: ArrayLike, p: ArrayLike, shape: ShapeLike = (), dtype: DTypeLike = dtypes.float32) -> Array:
    """Numbers with density ∝ exp(−|x|ᵖ).

    Args:
        key: a key that is used for nothing else.
        p: positive; broadcasts to `shape`.
        shape: shape of the draw.
        dtype: a floating-point dtype.

    Example:
        >>> nnc.random.generalized_normal(nnc.random.key(0), 1.5, (4,)).shape
        (4,)
    """
    where = "nnc.random.generalized_normal"
    (p,), shape, dtype = read_together(where, dtype, shape, p=p)
    gamma_key, sign_key = split(read_key(key, where))
    inverse = 1 / p
    return rademacher(sign_key, shape, dtype) * power(gamma(gamma_key, inverse, shape, dtype), inverse)


@in_single
def ball(key: ArrayLike, d: int, p: ArrayLike = 2, shape: ShapeLike = (), dtype: DTypeLike = dtypes.float32) -> Array:
    """Vectors of `d` elements, uniform in the ball where the sum of |x_i|ᵖ is at most 1 (Barthe et al., 2005).

    Args:
        key: a key that is used for nothing else.
        d: number of elements.
        p: a number of 1 or more.
        shape: leading axes.
        dtype: a floating-point dtype.

    Returns:
        (*shape, d).

    Example:
        >>> x = nnc.random.ball(nnc.random.key(0), 3, shape=(10,))
        >>> bool(((x * x).sum(-1) <= 1).all())
        True
    """
    where = "nnc.random.ball"
    d, shape, dtype = static_int(d, where, "d"), to_shape(shape, where), float_dtype(dtype, where)
    (exponent,), _, _ = read_together(where, dtype, (), p=p)
    first, second = split(read_key(key, where))
    g = generalized_normal(first, exponent, (*shape, d), dtype)
    sizes = exponential(second, shape, dtype)
    if d:
        sizes = sum_last(power(ew.abs_(g), broadcast_to_shape(exponent, g.spec.shape))) + sizes
    return g / power(sizes, broadcast_to_shape(1 / exponent, shape))[..., None]
