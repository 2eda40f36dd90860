"""One basis of GMRES: Arnoldi's method, with rotations that keep the small system triangular."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from nnc.array.array import Array, asarray
from nnc.array.promote import astype
from nnc.base import dtypes
from nnc.numpy import elementwise as el
from nnc.numpy import linalg as la
from nnc.numpy.contractions import tensordot
from nnc.numpy.creation import arange, zeros
from nnc.numpy.manipulation import reshape
from nnc.numpy.matrices import eye
from nnc.scipy.sparse.linalg.systems import Vector, axpy, squares
from nnc.trace.loops.control_flow import while_loop


def restarted(linear: Callable[[Vector], Vector], x: Vector, r: Vector, size: int, limit: Any) -> Vector:
    """Returns x plus the combination of r, linear(r), … that makes the residual smallest.

    Args:
        linear: the map whose system is solved, a preconditioner included.
        x: the guess.
        r: its residual.
        size: how many vectors are combined.
        limit: the norm of the residual at which the basis ends; None makes it whole.
    """
    dtype = np.result_type(*(y.spec.dtype for y in r))
    beta = el.sqrt(squares(r))
    basis = [_placed(y / el.where(beta > 0, beta, 1), size + 1) for y in r]
    rows = arange(size + 1, dtype=dtypes.int32)
    upper, turns = zeros((size + 1, size), dtype), eye(size + 1, dtype=dtype)
    right = astype(el.where(rows == 0, beta, 0), dtype)
    last = limit if limit is not None else -1

    def step(carry: Any) -> Any:
        basis, upper, turns, right, _, j = carry
        w, h, size_of_next = _orthogonal(basis, linear([v[j] for v in basis]))
        column = el.where(rows == j + 1, size_of_next, h)
        column = la.matmul(turns, astype(column, dtype))
        # The rotation that makes the element below the diagonal 0; it is real before.
        a, b = column[j], el.real(column[j + 1])
        length = el.sqrt(el.real(a * el.conj(a)) + b * b)
        safe = el.where(length > 0, length, 1)
        c, s = el.where(length > 0, el.conj(a) / safe, 1), el.where(length > 0, b / safe, 0)

        def turn(xs: Array) -> Array:
            top, below = xs[j], xs[j + 1]
            return xs.at[j].set(c * top + s * below).at[j + 1].set(el.conj(c) * below - s * top)

        column, turns, right = turn(column), turn(turns), turn(right)
        basis = [v.at[j + 1].set(y) for v, y in zip(basis, w, strict=True)]
        upper = upper.at[:, j].set(column)
        return basis, upper, turns, right, el.abs(right[j + 1]), j + 1

    start = (basis, upper, turns, right, beta, asarray(np.asarray(0, np.int32)))
    basis, upper, _, right, _, count = while_loop(lambda c: (c[5] < size) & (c[4] > last), step, start)
    weights = _weights(upper[:size], right[:size], count)
    return [axpy(1, [tensordot(weights, v[:size], 1)], [y])[0] for v, y in zip(basis, x, strict=True)]


def _placed(first: Array, rows: int) -> Array:
    """Returns an array of `rows` rows, zeros but for the first."""
    return zeros((rows, *first.spec.shape), first.spec.dtype).at[0].set(first)


def _orthogonal(basis: Vector, w: Vector) -> tuple[Vector, Any, Any]:
    """Returns the part of w that is orthogonal to the basis, of norm 1 or 0; its components along the basis; and its norm."""
    before = squares(w)
    flat = [reshape(v, (v.shape[0], -1)) for v in basis]
    total: Any = 0
    for _ in range(2):  # once is not enough where w lies almost in the span
        h: Any = 0
        for v, y in zip(flat, w, strict=True):
            h = h + la.matmul(el.conj(v), y.reshape(-1))
        w = [y - astype(la.matmul(h, v), y.dtype).reshape(y.shape) for v, y in zip(flat, w, strict=True)]
        total = total + h
    after = el.sqrt(squares(w))
    eps = float(np.finfo(after.dtype).eps)
    size = el.where(after > eps * el.sqrt(before), after, 0)  # the span is invariant where nothing but rounding is left
    inverse = el.where(size > 0, 1 / el.where(size > 0, size, 1), 0)
    return [astype(y * inverse, y.dtype) for y in w], total, size


def _weights(upper: Array, right: Array, count: Any) -> Array:
    """Returns the solution of the triangular system; unknowns without a column, and of a pivot of 0, are 0."""
    n = right.shape[0]
    places = arange(n, dtype=dtypes.int32)
    diagonal = upper[places, places]
    known = (places < count) & (diagonal != 0)
    matrix = el.where(known[:, None] & known[None, :], upper, eye(n, dtype=upper.dtype))
    return la.solve_triangular(matrix, el.where(known, right, 0), lower=False)
