"""Matrices of which only the size is chosen, which nnc.scipy.linalg shows."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from nnc.array.array import Array, asarray
from nnc.array.promote import to_dtype
from nnc.base import dtypes
from nnc.calls.spelling import spelled
from nnc.errors import ArgumentError, user_error
from nnc.errors.errors import check_choice
from nnc.numpy.operands import to_size
from nnc.typing import DTypeLike

__all__ = ["dft", "hadamard", "helmert", "hilbert", "invhilbert", "invpascal", "pascal"]


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
def invhilbert(n: int) -> Array:
    """Returns the inverse of `hilbert(n)`, whose elements are integers, in float32.

    Args:
        n: number of rows, known while tracing.

    Raises:
        ArgumentError: n is negative.

    Example:
        >>> invhilbert(2)
        Array([[ 4., -6.],
               [-6., 12.]], dtype=float32)
    """
    size = to_size(n, "invhilbert", "n")

    def element(i: int, j: int) -> int:
        others = math.comb(size + i, size - j - 1) * math.comb(size + j, size - i - 1) * math.comb(i + j, i) ** 2
        return (-1) ** (i + j) * (i + j + 1) * others

    return _square(size, element)


def _square(size: int, element: Callable[[int, int], int]) -> Array:
    """Returns the matrix of these elements, each an exact integer before it is rounded."""
    rows = [[float(element(i, j)) for j in range(size)] for i in range(size)]
    return asarray(np.array(rows, dtypes.DEFAULT_FLOAT).reshape(size, size))


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
    size = to_size(n, "pascal", "n")
    _check_kind("pascal", kind)
    if kind == "symmetric":
        return _square(size, lambda i, j: math.comb(i + j, i))
    return _square(size, math.comb if kind == "lower" else lambda i, j: math.comb(j, i))


def _check_kind(where: str, kind: str) -> None:
    """Raises ArgumentError where there is no such kind of Pascal's triangle."""
    check_choice(where, "kind", kind, ("symmetric", "lower", "upper"))


@spelled
def invpascal(n: int, kind: str = "symmetric") -> Array:
    """Returns the inverse of `pascal(n, kind)`, whose elements are integers, in float32.

    Args:
        n: number of rows, known while tracing.
        kind: as of `pascal`.

    Raises:
        ArgumentError: n is negative, or there is no such kind.

    Example:
        >>> invpascal(3)
        Array([[ 3., -3.,  1.],
               [-3.,  5., -2.],
               [ 1., -2.,  1.]], dtype=float32)
    """
    size = to_size(n, "invpascal", "n")
    _check_kind("invpascal", kind)

    def lower(i: int, j: int) -> int:
        return (-1) ** (i + j) * math.comb(i, j)

    if kind == "symmetric":  # the inverse of the upper triangle, times that of the lower one
        return _square(size, lambda i, j: sum(lower(k, i) * lower(k, j) for k in range(max(i, j), size)))
    return _square(size, lower if kind == "lower" else lambda i, j: lower(j, i))


@spelled
def hadamard(n: int, dtype: DTypeLike = int) -> Array:
    """Returns Sylvester's matrix of 1 and −1 whose rows are orthogonal.

    Args:
        n: number of rows, a power of 2, known while tracing.
        dtype: the dtype of the result.

    Raises:
        ArgumentError: n is no power of 2.

    Example:
        >>> hadamard(2)
        Array([[ 1,  1],
               [ 1, -1]], dtype=int64)
    """
    size = to_size(n, "hadamard", "n")
    if size < 1 or size & (size - 1):
        raise user_error(ArgumentError, "hadamard", f"n is {size}, which is no power of 2.", fix="use 1, 2, 4, 8 ….")
    matrix = np.ones((1, 1), to_dtype(dtype, "hadamard"))
    while len(matrix) < size:
        matrix = np.block([[matrix, matrix], [matrix, -matrix]])
    return asarray(matrix)


@spelled
def helmert(n: int, full: bool = False) -> Array:
    """Returns Helmert's matrix, whose rows are orthonormal, in float32: row i compares element i with the mean of those before it.

    Args:
        n: number of columns, known while tracing.
        full: return the first row as well, whose elements are all equal.

    Returns:
        (n - 1, n), or (n, n) with `full`.

    Raises:
        ArgumentError: n is below 1.

    Example:
        >>> helmert(3)
        Array([[ 0.70710677, -0.70710677,  0.        ],
               [ 0.4082483 ,  0.4082483 , -0.8164966 ]], dtype=float32)
    """
    size = to_size(n, "helmert", "n")
    if not size:
        raise user_error(ArgumentError, "helmert", "n is 0.", fix="pass at least 1.")
    places = np.arange(size)
    rows = np.tril(np.ones((size, size)), -1) - np.diag(places)
    rows[0] = 1
    rows /= np.sqrt(np.where(places == 0, size, places * (places + 1)))[:, None]
    return asarray(rows[0 if full else 1 :].astype(dtypes.DEFAULT_FLOAT))


@spelled
def dft(n: int, scale: str | None = None, *, dtype: DTypeLike = dtypes.complex64) -> Array:
    """Returns the matrix by which vectors are multiplied for their discrete Fourier transform.

    Args:
        n: number of rows, known while tracing.
        scale: None; "sqrtn" divides by the square root of n, so that the matrix is unitary; "n" divides by n.
        dtype: the dtype of the result, complex.

    Raises:
        ArgumentError: n is negative, or there is no such scale.

    Example:
        >>> dft(2).real
        Array([[ 1.,  1.],
               [ 1., -1.]], dtype=float32)
    """
    size = to_size(n, "dft", "n")
    factor = {None: 1.0, "sqrtn": math.sqrt(size), "n": size}.get(scale)
    if factor is None:
        raise user_error(ArgumentError, "dft", f"scale is {scale!r}.", fix='use None, "sqrtn" or "n".')
    places = np.arange(size)
    turns = np.outer(places, places) % max(size, 1)  # whole turns, left out, would cost digits
    return asarray((np.exp(-2j * np.pi * turns / max(size, 1)) / (factor or 1.0)).astype(to_dtype(dtype, "dft")))
