"""Matrices that are made from few numbers, which nnc.scipy.linalg shows."""

from __future__ import annotations

import numpy as np

from nnc.array.array import Array, asarray
from nnc.array.promote import promote
from nnc.base import dtypes
from nnc.calls.spelling import spelled
from nnc.errors import ArgumentError, ShapeError, user_error
from nnc.numpy import elementwise as el
from nnc.numpy.creation import ones_like, zeros, zeros_like
from nnc.numpy.joining import concatenate
from nnc.numpy.manipulation import flip
from nnc.numpy.operands import to_size, to_value
from nnc.typing import ArrayLike

__all__ = [
    "block_diag", "circulant", "companion", "convolution_matrix", "fiedler", "fiedler_companion", "hankel", "leslie", "toeplitz",
]  # fmt: skip


def _vector(where: str, x: ArrayLike, name: str) -> Array:
    """`x` with at least one axis.

    Raises:
        ShapeError: its last axis is empty.
    """
    value = to_value(x, where, name)
    value = value if value.spec.ndim else value[None]
    if not value.spec.shape[-1]:
        problem = f"{name} is empty."
        raise user_error(ShapeError, where, problem, operands={name: value.spec}, fix="pass at least one element.")
    return value


def _ends(where: str, c: ArrayLike, r: ArrayLike) -> tuple[Array, Array]:
    """Returns the first column and the row, of one dtype and with equal leading axes."""
    column, row = promote(c, r, where=where)
    column, row = _vector(where, column, "c"), _vector(where, row, "r")
    if column.spec.shape[:-1] != row.spec.shape[:-1]:
        problem = "c and r differ in leading axes."
        fix = "give both the same leading axes."
        raise user_error(ShapeError, where, problem, operands={"c": column.spec, "r": row.spec}, fix=fix)
    return column, row


@spelled
def toeplitz(c: ArrayLike, r: ArrayLike | None = None) -> Array:
    """Returns the matrices with constant diagonals: the element in row i and column j is c[i − j], or r[j − i] above the main one.

    Args:
        c: (..., m), the first column.
        r: (..., n), the first row, but for its first element, which is not read; None is the conjugate of c.

    Returns:
        (..., m, n).

    Raises:
        ShapeError: c or r is empty, or their leading axes differ.

    Example:
        >>> toeplitz(np.asarray([1, 2, 3]), np.asarray([1, 4]))
        Array([[1, 4],
               [2, 1],
               [3, 2]], dtype=int64)
    """
    column, row = _ends("toeplitz", c, el.conj(to_value(c, "toeplitz", "c")) if r is None else r)
    m, n = column.spec.shape[-1], row.spec.shape[-1]
    numbers = concatenate([flip(row[..., 1:], axis=-1), column], axis=-1)
    return numbers[..., np.arange(m)[:, None] - np.arange(n) + n - 1]


@spelled
def hankel(c: ArrayLike, r: ArrayLike | None = None) -> Array:
    """Returns the matrices with constant antidiagonals: the element in row i and column j is that of (c, r[1:]) at i + j.

    Args:
        c: (..., m), the first column.
        r: (..., n), the last row, but for its first element, which is not read; None is zeros.

    Returns:
        (..., m, n).

    Raises:
        ShapeError: c or r is empty, or their leading axes differ.

    Example:
        >>> hankel(np.asarray([1, 2, 3]), np.asarray([0, 4]))
        Array([[1, 2],
               [2, 3],
               [3, 4]], dtype=int64)
    """
    column, row = _ends("hankel", c, zeros_like(c) if r is None else r)
    numbers = concatenate([column, row[..., 1:]], axis=-1)
    return numbers[..., np.arange(column.spec.shape[-1])[:, None] + np.arange(row.spec.shape[-1])]


@spelled
def circulant(c: ArrayLike) -> Array:
    """Returns the matrices whose columns are rotations of the first one.

    Args:
        c: (..., n), the first column.

    Raises:
        ShapeError: c is empty.

    Example:
        >>> circulant(np.asarray([1, 2, 3]))
        Array([[1, 3, 2],
               [2, 1, 3],
               [3, 2, 1]], dtype=int64)
    """
    column = _vector("circulant", c, "c")
    places = np.arange(column.spec.shape[-1])
    return column[..., (places[:, None] - places) % len(places)]


def _coefficients(where: str, a: ArrayLike) -> Array:
    """Returns the coefficients of polynomials, as floats.

    Raises:
        ShapeError: there are fewer than two.
    """
    (a,) = promote(a, where=where, to=dtypes.to_float)
    numbers = _vector(where, a, "a")
    if numbers.spec.shape[-1] < 2:
        problem = "there is one coefficient."
        raise user_error(ShapeError, where, problem, operands={"a": numbers.spec}, fix="pass two or more.")
    return numbers


@spelled
def companion(a: ArrayLike) -> Array:
    """Returns the matrix whose characteristic polynomial has the coefficients `a`, divided by the first.

    Args:
        a: (..., n), n ≥ 2, from the highest power on; the first is not 0.

    Returns:
        (..., n - 1, n - 1).

    Raises:
        ShapeError: there are fewer than two coefficients.

    Example:
        >>> companion(np.asarray([1.0, -3.0, 2.0]))
        Array([[ 3., -2.],
               [ 1.,  0.]], dtype=float64)
    """
    numbers = _coefficients("companion", a)
    n = numbers.spec.shape[-1]
    first = (-numbers[..., 1:] / numbers[..., :1])[..., None, :]
    below = np.broadcast_to(np.eye(n - 2, n - 1, dtype=numbers.spec.dtype), (*numbers.spec.shape[:-1], n - 2, n - 1))
    return concatenate([first, asarray(below.copy())], axis=-2)


@spelled
def block_diag(*arrs: ArrayLike) -> Array:
    """Returns the matrix with the given ones along its diagonal, and zeros elsewhere.

    Args:
        arrs: matrices, or vectors, which are rows, or numbers. Without any, the result is (1, 0), as SciPy's.

    Raises:
        ShapeError: one has more than two axes.

    Example:
        >>> block_diag(np.ones((1, 2)), 3.0)
        Array([[1., 1., 0.],
               [0., 0., 3.]], dtype=float64)
    """
    blocks = [to_value(x, "block_diag") for x in promote(*arrs, where="block_diag")] if arrs else [zeros((1, 0))]
    for i, x in enumerate(blocks):
        if x.spec.ndim > 2:
            problem = f"array {i} has {x.spec.ndim} axes."
            fix = "pass matrices; map the function over leading axes with nnc.vmap."
            raise user_error(ShapeError, "block_diag", problem, operands={f"array {i}": x.spec}, fix=fix)
        blocks[i] = x.reshape((1,) * (2 - x.spec.ndim) + x.spec.shape)
    whole, at, rows = sum(x.spec.shape[1] for x in blocks), 0, []
    for x in blocks:
        m, n = x.spec.shape
        sides = zeros((m, at), x.spec.dtype), zeros((m, whole - at - n), x.spec.dtype)
        rows.append(concatenate([sides[0], x, sides[1]], axis=1))
        at += n
    return concatenate(rows, axis=0)


@spelled
def fiedler(a: ArrayLike) -> Array:
    """Returns the symmetric matrices of the distances between numbers: |a[i] − a[j]|.

    Args:
        a: (..., n).

    Raises:
        ShapeError: a is empty.

    Example:
        >>> fiedler(np.asarray([1, 4, 9]))
        Array([[0, 3, 8],
               [3, 0, 5],
               [8, 5, 0]], dtype=int64)
    """
    numbers = _vector("fiedler", a, "a")
    return el.abs(numbers[..., :, None] - numbers[..., None, :])


@spelled
def fiedler_companion(a: ArrayLike) -> Array:
    """Returns the matrix of five diagonals whose characteristic polynomial has the coefficients `a`, divided by the first.

    Args:
        a: (..., n), n ≥ 2, from the highest power on; the first is not 0.

    Returns:
        (..., n - 1, n - 1).

    Raises:
        ShapeError: there are fewer than two coefficients.

    Example:
        >>> fiedler_companion(np.asarray([1.0, -6.0, 11.0, -6.0]))
        Array([[  6., -11.,   1.],
               [  1.,   0.,   0.],
               [  0.,   6.,   0.]], dtype=float64)
    """
    numbers = _coefficients("fiedler_companion", a)
    n = numbers.spec.shape[-1] - 1
    places = np.zeros((n, n), np.int64)  # in 0, 1, and the coefficients but for the first
    places[0, 0], places[1:2, 0] = 2, 1
    places[np.arange(3, n, 2), np.arange(1, n - 2, 2)] = places[np.arange(0, n - 2, 2), np.arange(2, n, 2)] = 1
    places[np.arange(2, n, 2), np.arange(1, n - 1, 2)] = np.arange(4, n + 2, 2)
    places[np.arange(0, n - 1, 2), np.arange(1, n, 2)] = np.arange(3, n + 2, 2)
    first = numbers[..., :1]
    return concatenate([zeros_like(first), ones_like(first), -numbers[..., 1:] / first], axis=-1)[..., places]


@spelled
def convolution_matrix(a: ArrayLike, n: int, mode: str = "full") -> Array:
    """Returns the matrices by which vectors of `n` elements are multiplied to be convolved with `a`.

    Args:
        a: (..., m).
        n: size of the vectors, known while tracing.
        mode: "full", "same" or "valid", as of `nnp.convolve`.

    Returns:
        (..., m + n - 1, n), or fewer rows: max(m, n) for "same", |m - n| + 1 for "valid".

    Raises:
        ShapeError: a is empty.
        ArgumentError: n is below 1, or there is no such mode.

    Example:
        >>> convolution_matrix(np.asarray([1, 2, 3]), 2)
        Array([[1, 0],
               [2, 1],
               [3, 2],
               [0, 3]], dtype=int64)
    """
    numbers, columns = _vector("convolution_matrix", a, "a"), to_size(n, "convolution_matrix", "n")
    if not columns:
        problem = "n is 0."
        raise user_error(ArgumentError, "convolution_matrix", problem, fix="pass the size of the vectors, at least 1.")
    m = numbers.spec.shape[-1]
    less = min(m, columns) - 1
    cut = {"full": (0, 0), "same": (less // 2, less - less // 2), "valid": (less, less)}.get(mode)
    if cut is None:
        problem = f"mode is {mode!r}."
        raise user_error(ArgumentError, "convolution_matrix", problem, fix='use "full", "same" or "valid".')
    places = np.arange(cut[0], m + columns - 1 - cut[1])[:, None] - np.arange(columns)
    padded = concatenate([numbers, zeros_like(numbers[..., :1])], axis=-1)
    return padded[..., np.where((places >= 0) & (places < m), places, m)]


@spelled
def leslie(f: ArrayLike, s: ArrayLike) -> Array:
    """Returns Leslie's matrices, by which a population by age becomes that of the next year.

    Args:
        f: (..., n), n ≥ 2, how many descendants one of each age has: the first row.
        s: (..., n - 1), which share of each age survives: the diagonal below the main one.

    Raises:
        ShapeError: f or s is empty, the sizes do not fit, or the leading axes differ.

    Example:
        >>> leslie(np.asarray([0.0, 2.0, 1.0]), np.asarray([0.5, 0.25]))
        Array([[0.  , 2.  , 1.  ],
               [0.5 , 0.  , 0.  ],
               [0.  , 0.25, 0.  ]], dtype=float64)
    """
    rates, survival = promote(f, s, where="leslie")
    rates, survival = _vector("leslie", rates, "f"), _vector("leslie", survival, "s")
    n = rates.spec.shape[-1]
    if survival.spec.shape != (*rates.spec.shape[:-1], n - 1):
        problem = "s must have one element less than f, and the same leading axes."
        fix = "leave the share of the highest age out."
        raise user_error(ShapeError, "leslie", problem, operands={"f": rates.spec, "s": survival.spec}, fix=fix)
    places = np.full((n, n), 2 * n - 1)
    places[0], places[np.arange(1, n), np.arange(n - 1)] = np.arange(n), np.arange(n, 2 * n - 1)
    return concatenate([rates, survival, zeros_like(rates[..., :1])], axis=-1)[..., places]
