"""Matrices by their diagonals: with ones there, of some elements there, and Vandermonde's."""

from __future__ import annotations

from typing import Any

from nnc.array.array import Array
from nnc.array.promote import astype as convert_to
from nnc.array.promote import to_dtype
from nnc.base import dtypes
from nnc.calls.spelling import spelled
from nnc.commands import constants
from nnc.commands import elementwise as ew
from nnc.commands.shape import broadcast_to, pad, reshape
from nnc.errors import ArgumentError, user_error
from nnc.numpy.elementwise import where
from nnc.numpy.joining import stack
from nnc.numpy.operands import keeps_weakness, static_int, to_shape, to_size, to_value
from nnc.typing import ArrayLike, DTypeLike

__all__ = ["diag", "diagflat", "eye", "identity", "tri", "tril", "triu", "vander"]


def _band(shape: tuple[int, int], command: Any, k: int) -> Array:
    """command(row + k, column) for each element of a matrix: less means above the diagonal k."""
    rows = constants.iota(shape=shape, dtype=dtypes.int64, axis=0)
    columns = constants.iota(shape=shape, dtype=dtypes.int64, axis=1)
    return command(rows + k, columns)


@spelled
def eye(
    n_rows: int, n_cols: int | None = None, /, k: int = 0, dtype: DTypeLike | None = None, *, device: str | None = None
) -> Array:
    """Returns a matrix with ones on the diagonal `k` (above the main one where positive), else zeros.

    Args:
        n_rows: number of rows.
        n_cols: number of columns; `n_rows` by default.
        k: number of the diagonal; 0 is the main one, positive ones lie above it.
        dtype: float32 by default.
        device: where the array is made, as `nnc.devices` lists it; by default the one of `nnc.default_device`.

    Example:
        >>> eye(2, dtype=int)
        Array([[1, 0],
               [0, 1]], dtype=int64)
    """
    (n,) = to_shape(n_rows, "eye")
    m = n if n_cols is None else to_shape(n_cols, "eye")[0]
    wanted = dtypes.DEFAULT_FLOAT if dtype is None else to_dtype(dtype, "eye")
    return convert_to(_band((n, m), ew.equal, static_int(k, "eye", "k")), wanted)


@spelled
def identity(n: int, dtype: DTypeLike | None = None) -> Array:
    """Returns the n by n identity matrix.

    Args:
        n: number of rows and columns.
        dtype: float32 by default.

    Example:
        >>> nnp.identity(2)
        Array([[1., 0.],
               [0., 1.]], dtype=float32)
    """
    return eye(n, dtype=dtype)


@spelled
def tri(N: int, M: int | None = None, k: int = 0, dtype: DTypeLike | None = None) -> Array:  # noqa: N803  (NumPy's names)
    """Returns a matrix with ones on and below the diagonal `k`, else zeros.

    Args:
        N: number of rows.
        M: number of columns; `N` by default.
        k: number of the diagonal; 0 is the main one, positive ones lie above it.
        dtype: float32 by default.

    Example:
        >>> nnp.tri(3)
        Array([[1., 0., 0.],
               [1., 1., 0.],
               [1., 1., 1.]], dtype=float32)
    """
    shape = (*to_shape(N, "tri"), *to_shape(N if M is None else M, "tri"))
    wanted = dtypes.DEFAULT_FLOAT if dtype is None else to_dtype(dtype, "tri")
    return convert_to(_band((shape[0], shape[1]), ew.greater_equal, static_int(k, "tri", "k")), wanted)


def _triangle(name: str, x: Any, k: int, lower: bool) -> Array:
    x = to_value(x, name)
    if x.spec.ndim < 2:
        problem = "a triangle needs a matrix."
        raise user_error(ArgumentError, name, problem, operands={"x": x.spec}, fix="pass at least two axes.")
    k = static_int(k, name, "k")
    inside = _band(x.spec.shape[-2:], ew.greater_equal if lower else ew.less_equal, k)
    return where(inside, x, constants.full(shape=(), dtype=x.spec.dtype, value=0))


@keeps_weakness
def tril(x: ArrayLike, /, k: int = 0) -> Array:
    """Returns the matrices in the last two axes with zeros above the diagonal `k`.

    Args:
        x: (..., m, n).
        k: number of the diagonal; 0 is the main one, positive ones lie above it.

    Example:
        >>> tril(nnp.ones((2, 2)))
        Array([[1., 0.],
               [1., 1.]], dtype=float32)
    """
    return _triangle("tril", x, k, lower=True)


@keeps_weakness
def triu(x: ArrayLike, /, k: int = 0) -> Array:
    """Returns the matrices in the last two axes with zeros below the diagonal `k`.

    Args:
        x: (..., m, n).
        k: number of the diagonal; 0 is the main one, positive ones lie above it.

    Example:
        >>> nnp.triu(nnp.ones((2, 2)))
        Array([[1., 1.],
               [0., 1.]], dtype=float32)
    """
    return _triangle("triu", x, k, lower=False)


@keeps_weakness
def diag(v: ArrayLike, k: int = 0) -> Array:
    """Returns the matrix with the vector `v` on its diagonal `k`, or the diagonal `k` of the matrix `v`.

    Args:
        v: a vector or a matrix.
        k: number of the diagonal; 0 is the main one, positive ones lie above it.

    Raises:
        ArgumentError: v has neither one nor two axes.

    Example:
        >>> diag(diag(np.asarray([1, 2])))
        Array([1, 2], dtype=int64)
    """
    x, k = to_value(v, "diag", "v"), static_int(k, "diag", "k")
    if x.spec.ndim == 2:
        return x.diagonal(k)
    if x.spec.ndim != 1:
        problem = f"v has {x.spec.ndim} axes."
        raise user_error(ArgumentError, "diag", problem, operands={"v": x.spec}, fix="pass a vector or a matrix.")
    size = x.spec.shape[0] + abs(k)
    zero = constants.full(shape=(), dtype=x.spec.dtype, value=0)
    row = pad(x, zero, low=(max(k, 0),), high=(max(-k, 0),), interior=(0,))  # column j of the matrix holds row[j]
    return where(_band((size, size), ew.equal, k), broadcast_to(row, shape=(size, size), axes=(1,)), zero)


@keeps_weakness
def diagflat(v: ArrayLike, k: int = 0) -> Array:
    """Returns the matrix with the elements of `v`, flattened, on its diagonal `k`.

    Args:
        v: any shape, flattened.
        k: number of the diagonal; 0 is the main one, positive ones lie above it.

    Example:
        >>> nnp.diagflat([1.0, 2.0])
        Array([[1., 0.],
               [0., 2.]], dtype=float32)
    """
    x = to_value(v, "diagflat", "v")
    return diag(reshape(x, shape=(x.spec.size,)), k)


@spelled
def vander(x: ArrayLike, N: int | None = None, increasing: bool = False) -> Array:  # noqa: N803  (NumPy's name)
    """Returns the matrix of powers of `x`, one row for each element; the highest power first unless `increasing`.

    Args:
        x: (m,).
        N: number of columns; m by default.
        increasing: lowest power first.

    Example:
        >>> nnp.vander(nnp.asarray([2.0, 3.0]), 3)
        Array([[4., 2., 1.],
               [9., 3., 1.]], dtype=float32)
    """
    x = to_value(x, "vander")
    if x.spec.ndim != 1:
        raise user_error(ArgumentError, "vander", "x is no vector.", operands={"x": x.spec}, fix="flatten it first.")
    n = x.spec.shape[0] if N is None else to_size(N, "vander", "N")
    powers = [x**k for k in (range(n) if increasing else reversed(range(n)))]
    return stack(powers, axis=1) if powers else constants.full(shape=(x.spec.shape[0], 0), dtype=x.spec.dtype, value=0)
