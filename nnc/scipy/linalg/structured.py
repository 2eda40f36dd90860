"""Matrices that are made from few numbers, which nnc.scipy.linalg shows."""

from __future__ import annotations

import math

import numpy as np

from nnc import dtypes
from nnc.array import Array, asarray
from nnc.commands.promote import promote
from nnc.errors import ArgumentError, ShapeError, user_error
from nnc.numpy import elementwise as el
from nnc.numpy.creation import zeros, zeros_like
from nnc.numpy.joining import concatenate
from nnc.numpy.manipulation import flip
from nnc.numpy.operands import to_size, to_value
from nnc.spelling import spelled
from nnc.typing import ArrayLike

__all__ = ["block_diag", "circulant", "companion", "hankel", "hilbert", "pascal", "toeplitz"]


def _vector(where: str, x: ArrayLike, name: str) -> Array:
    """`x` with at least one axis.

    Raises:
        ShapeError: its last axis is empty.
    """
    value = to_value(x, where, name)
    value = value if value.spec.ndim else value[None]
    if not value.spec.shape[-1]:
        raise user_error(
            ShapeError, where, f"{name} is empty.", operands={name: value.spec}, fix="pass at least one element."
        )
    return value


def _ends(where: str, c: ArrayLike, r: ArrayLike) -> tuple[Array, Array]:
    """The first column and the row, of one dtype and with equal leading axes."""
    column, row = promote(c, r, where=where)
    column, row = _vector(where, column, "c"), _vector(where, row, "r")
    if column.spec.shape[:-1] != row.spec.shape[:-1]:
        raise user_error(
            ShapeError, where, "c and r differ in leading axes.", operands={"c": column.spec, "r": row.spec},
            fix="give both the same leading axes.",
        )  # fmt: skip
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
    (a,) = promote(a, where="companion", to=dtypes.to_float)
    numbers = _vector("companion", a, "a")
    n = numbers.spec.shape[-1]
    if n < 2:
        raise user_error(
            ShapeError, "companion", "there is one coefficient.", operands={"a": numbers.spec}, fix="pass two or more.",
        )  # fmt: skip
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
            raise user_error(
                ShapeError, "block_diag", f"array {i} has {x.spec.ndim} axes.", operands={f"array {i}": x.spec},
                fix="pass matrices; map the function over leading axes with nnc.vmap.",
            )  # fmt: skip
        blocks[i] = x.reshape((1,) * (2 - x.spec.ndim) + x.spec.shape)
    whole, at, rows = sum(x.spec.shape[1] for x in blocks), 0, []
    for x in blocks:
        m, n = x.spec.shape
        sides = zeros((m, at), x.spec.dtype), zeros((m, whole - at - n), x.spec.dtype)
        rows.append(concatenate([sides[0], x, sides[1]], axis=1))
        at += n
    return concatenate(rows, axis=0)


@spelled
def hilbert(n: int) -> Array:
    """Returns the matrix of 1 / (i + j + 1), a well-known ill-conditioned one, in float32.

    Args:
        n: number of rows, known while tracing.

    Raises:
        ArgumentError: n is negative.

    Example:
        >>> hilbert(2)
        Array([[1.        , 0.5       ],
               [0.5       , 0.33333334]], dtype=float32)
    """
    places = np.arange(to_size(n, "hilbert", "n"))
    return asarray((1 / (places[:, None] + places + 1)).astype(dtypes.DEFAULT_FLOAT))


@spelled
def pascal(n: int, kind: str = "symmetric") -> Array:
    """Returns Pascal's triangle of binomial coefficients as a matrix in float32.

    Args:
        n: number of rows, known while tracing.
        kind: "symmetric": the coefficient of i + j over i; "lower": of i over j; "upper": of j over i.

    Raises:
        ArgumentError: n is negative, or there is no such kind.

    Example:
        >>> pascal(3)
        Array([[1., 1., 1.],
               [1., 2., 3.],
               [1., 3., 6.]], dtype=float32)
    """
    coefficient = {
        "symmetric": lambda i, j: math.comb(i + j, i),
        "lower": lambda i, j: math.comb(i, j),
        "upper": lambda i, j: math.comb(j, i),
    }.get(kind)
    if coefficient is None:
        raise user_error(ArgumentError, "pascal", f"kind is {kind!r}.", fix='use "symmetric", "lower" or "upper".')
    size = to_size(n, "pascal", "n")
    rows = [[float(coefficient(i, j)) for j in range(size)] for i in range(size)]
    return asarray(np.array(rows, dtypes.DEFAULT_FLOAT).reshape(size, size))
