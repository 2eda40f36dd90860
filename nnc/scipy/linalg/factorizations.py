"""Triangular factors of matrices and systems solved by them, which nnc.scipy.linalg shows."""

from __future__ import annotations

from typing import Any

from nnc.array.array import Array
from nnc.array.promote import astype, broadcast_shapes, promote
from nnc.base import dtypes
from nnc.calls.spelling import spelled
from nnc.commands import elementwise as ew
from nnc.commands.linalg import adjoint
from nnc.commands.lu import lu as lu_command
from nnc.commands.lu import unpack
from nnc.errors import ShapeError, user_error
from nnc.errors.errors import check_choice
from nnc.numpy import elementwise as el
from nnc.numpy import linalg as la
from nnc.numpy.creation import arange
from nnc.numpy.manipulation import broadcast_to
from nnc.numpy.operands import to_value, to_values
from nnc.numpy.reductions import argmax
from nnc.numpy.searching import take, take_along_axis
from nnc.numpy.systems import to_matrix
from nnc.trace.loops.control_flow import fori_loop
from nnc.typing import ArrayLike

__all__ = ["cho_factor", "cho_solve", "cholesky", "lu", "lu_factor", "lu_solve", "qr", "qr_multiply", "solve"]

cho_factor = la.cho_factor
cho_solve = la.cho_solve


@spelled
def cholesky(a: ArrayLike, lower: bool = False) -> Array:
    """Returns the upper triangle U with Uᴴ U = a of a Hermitian positive definite matrix, or the lower one L with L Lᴴ = a.

    Args:
        a: (..., n, n), Hermitian positive definite; of other matrices (a + aᴴ) / 2 is taken.
        lower: return L.

    Raises:
        LinAlgError: a matrix is not positive definite.
        ShapeError: a is not square.

    Example:
        >>> cholesky(np.asarray([[4.0, 2.0], [2.0, 5.0]]))
        Array([[2., 1.],
               [0., 2.]], dtype=float64)
    """
    return la.cholesky(a, upper=not lower)


# -- LU ----------------------------------------------------------------------------------------------------------------


@spelled
def lu_factor(a: ArrayLike) -> tuple[Array, Array]:
    """Returns the factors of P L U = a, packed into one matrix without the ones on the diagonal of L, for `lu_solve`.

    Args:
        a: (..., m, n).

    Returns:
        The packed factors (..., m, n), and (..., min(m, n)) int32, the row with which each row was exchanged, in turn.

    Raises:
        ShapeError: a is no matrix.

    Example:
        >>> packed, pivots = lu_factor(np.asarray([[2.0, 4.0], [4.0, 2.0]]))
        >>> packed, pivots
        (Array([[4. , 2. ],
                [0.5, 3. ]], dtype=float64),
         Array([1, 1], dtype=int32))
    """
    packed, pivots, _ = lu_command(to_matrix("lu_factor", a, square=False, name="a"))
    return packed, pivots


@spelled
def lu(a: ArrayLike, permute_l: bool = False) -> tuple[Array, ...]:
    """Returns P, L and U with P L U = a: a permutation, a lower triangle with ones on its diagonal, an upper triangle.

    Args:
        a: (..., m, n).
        permute_l: return P L, and U.

    Returns:
        (..., m, m), (..., m, k), (..., k, n), with k = min(m, n).

    Raises:
        ShapeError: a is no matrix.

    Example:
        >>> p, l, u = lu(np.asarray([[2.0, 4.0], [4.0, 2.0]]))
        >>> l, u
        (Array([[1. , 0. ],
                [0.5, 1. ]], dtype=float64),
         Array([[4., 2.],
                [0., 3.]], dtype=float64))
    """
    packed, _, rows = lu_command(to_matrix("lu", a, square=False, name="a"))
    lower, upper = unpack(packed)
    m = packed.spec.shape[-2]
    permutation = astype(el.equal(rows[..., None, :], arange(m, dtype=dtypes.int32)[:, None]), packed.spec.dtype)
    return (la.matmul(permutation, lower), upper) if permute_l else (permutation, lower, upper)


@spelled
def lu_solve(lu_and_piv: tuple[ArrayLike, ArrayLike], b: ArrayLike, trans: int = 0) -> Array:
    """Returns the solution x of a x = b from the result of `lu_factor(a)`.

    Args:
        lu_and_piv: packed factors (..., n, n), and the exchanges of rows.
        b: (n,), or (..., n, k).
        trans: 0 solves a x = b, 1 aᵀ x = b, 2 aᴴ x = b.

    Raises:
        LinAlgError: the matrix is singular.
        ShapeError: the shapes do not fit.
        ArgumentError: there is no such `trans`.

    Example:
        >>> lu_solve(lu_factor(np.asarray([[2.0, 4.0], [4.0, 2.0]])), np.asarray([10.0, 8.0]))
        Array([1., 2.], dtype=float64)
    """
    check_choice("lu_solve", "trans", trans, (0, 1, 2))
    packed = to_matrix("lu_solve", lu_and_piv[0], name="lu")
    rows = _rows_of(packed, to_value(lu_and_piv[1], "lu_solve", "piv"))
    _, right = to_values("lu_solve", lu=packed, b=b)
    n, vector = packed.spec.shape[-1], right.spec.ndim == 1
    if not right.spec.ndim or right.spec.shape[0 if vector else -2] != n:
        problem = f"the matrix has {n} rows, b of shape {right.spec.shape} has not."
        fix = f"pass b of shape ({n},) or (..., {n}, k)."
        raise user_error(ShapeError, "lu_solve", problem, operands={"lu": packed.spec, "b": right.spec}, fix=fix)
    right = right[:, None] if vector else right

    def triangle(x: Array, *, lower: bool) -> Array:
        return la.solve_triangular(packed, x, trans=trans, lower=lower, unit_diagonal=lower)

    if trans == 0:
        x = triangle(triangle(_in_order(right, rows), lower=True), lower=False)
    else:
        places = el.equal(rows[..., None, :], arange(n, dtype=dtypes.int32)[:, None])
        x = triangle(triangle(right, lower=False), lower=True)
        x = _in_order(x, argmax(places, axis=-1))
    return x[..., 0] if vector else x


def _rows_of(packed: Array, pivots: Array) -> Array:
    """Returns the permutation that exchanges of rows, made one after the other, come to.

    Raises:
        ShapeError: there are not as many exchanges as rows.
    """
    n = packed.spec.shape[-1]
    if pivots.spec.shape != packed.spec.shape[:-1]:
        problem = "there must be one pivot for each row."
        fix = "pass the result of lu_factor as it is."
        raise user_error(ShapeError, "lu_solve", problem, operands={"lu": packed.spec, "piv": pivots.spec}, fix=fix)
    places = arange(n, dtype=dtypes.int32)

    def exchange(i: Array, rows: Array) -> Array:
        other = take(pivots, i, axis=-1)[..., None]
        here, there = take(rows, i, axis=-1)[..., None], take_along_axis(rows, other, axis=-1)
        return el.where(el.equal(places, i), there, el.where(el.equal(places, other), here, rows))

    start = broadcast_to(places, pivots.spec.shape)
    return fori_loop(0, n, exchange, start) if n else start


def _in_order(x: Array, rows: Array) -> Array:
    """Returns the rows of `x` in another order; leading axes broadcast."""
    lead = broadcast_shapes(x.spec.shape[:-2], rows.spec.shape[:-1])
    shape = (*lead, *x.spec.shape[-2:])
    return take_along_axis(broadcast_to(x, shape), broadcast_to(rows[..., None], shape), axis=-2)


# -- systems -----------------------------------------------------------------------------------------------------------


@spelled
def solve(a: ArrayLike, b: ArrayLike, lower: bool = False, *, assume_a: str = "gen") -> Array:
    """Returns the solution x of a x = b.

    Args:
        a: (..., n, n).
        b: (n,), or (..., n, k) where each column is a right-hand side.
        lower: for `assume_a="pos"`, solve by the lower triangle rather than by the upper one.
        assume_a: "gen"; or "pos" for a Hermitian positive definite matrix, which is faster. "sym" and "her" are as "gen".

    Raises:
        LinAlgError: a matrix is singular, or not positive definite.
        ShapeError: the shapes do not fit.
        ArgumentError: there is no such `assume_a`.

    Example:
        >>> solve(np.asarray([[4.0, 2.0], [2.0, 5.0]]), np.asarray([8.0, 12.0]), assume_a="pos")
        Array([1., 2.], dtype=float64)
    """
    check_choice("solve", "assume_a", assume_a, ("gen", "sym", "her", "pos"))
    return cho_solve(cho_factor(a, lower=lower), b) if assume_a == "pos" else la.solve(a, b)


@spelled
def qr(a: ArrayLike, *, mode: str = "full", pivoting: bool = False) -> Any:
    """Returns Q with orthonormal columns and the upper triangle R, with Q R = a.

    Args:
        a: (..., m, n).
        mode: "full": Q is m by m and R m by n, without a derivative where m > n; "economic": Q is m by k and R k by n,
            k = min(m, n); "r": a tuple of R, m by n, alone.
        pivoting: order the columns of `a` so that the diagonal of R falls in size, and return their numbers p, int32, as well:
            Q R = a[:, p].

    Raises:
        ArgumentError: there is no such mode.

    Example:
        >>> q, r = qr(np.ones((3, 2)), mode="economic")
        >>> q.shape, r.shape
        ((3, 2), (2, 2))
        >>> qr(np.asarray([[1.0, 4.0, 2.0]]), mode="r", pivoting=True)
        (Array([[4., 1., 2.]], dtype=float64), Array([1, 0, 2], dtype=int32))
    """
    check_choice("qr", "mode", mode, ("full", "economic", "r"))
    x = to_matrix("qr", a, square=False, name="a")
    order = [_pivots(x)] if pivoting else []
    for p in order:
        x = take_along_axis(x, p[..., None, :], axis=-1)
    q, r = la.qr(x, mode="reduced" if mode == "economic" else "complete")
    return (r, *order) if mode == "r" else (q, r, *order)


def _pivots(x: Array) -> Array:
    """Returns the order of columns in which each has the longest part outside the span of those before it (Businger and Golub,
    1965).
    """
    m, n = x.spec.shape[-2:]
    places = arange(n, dtype=dtypes.int32)

    def choose(k: Array, carry: tuple[Array, Array]) -> tuple[Array, Array]:
        rest, order = carry
        sizes = el.where(el.less(places, k), -1, la.vector_norm(rest, axis=-2))
        j = astype(argmax(sizes, axis=-1, keepdims=True), dtypes.int32)
        exchange = el.where(el.equal(places, k), j, el.where(el.equal(places, j), astype(k, dtypes.int32), places))
        rest, order = take_along_axis(rest, exchange[..., None, :], axis=-1), take_along_axis(order, exchange, axis=-1)
        column = take(rest, k, axis=-1)[..., None]
        size = la.vector_norm(column, axis=-2, keepdims=True)
        unit = column / el.where(el.equal(size, 0), 1, size)
        return rest - la.matmul(unit, la.matmul(adjoint(unit), rest)), order

    start = ew.stop_gradient(x), broadcast_to(places, (*x.spec.shape[:-2], n))
    return fori_loop(0, min(m, n), choose, start)[1]


@spelled
def qr_multiply(
    a: ArrayLike, c: ArrayLike, mode: str = "right", pivoting: bool = False, conjugate: bool = False
) -> tuple[Array, ...]:
    """Returns the product of `c` and the factor Q of `qr(a, mode="economic")`, and R.

    Args:
        a: (..., m, n).
        c: (..., k, p) for "left", where k = min(m, n), or (..., p, m) for "right"; a vector is a column or a row, and so is the
            result.
        mode: "right" for c Q, "left" for Q c.
        pivoting: as of `qr`: return the order of columns as well.
        conjugate: multiply with the complex conjugate of Q.

    Raises:
        ArgumentError: there is no such mode.
        ShapeError: the shapes do not fit.

    Example:
        >>> a, b = np.asarray([[1.0, 1.0], [1.0, 2.0], [1.0, 3.0]]), np.asarray([3.0, 5.0, 7.0])
        >>> projected, r = qr_multiply(a, b)
        >>> nnp.linalg.solve_triangular(r, projected).round(6)  # the line through the points
        Array([1., 2.], dtype=float64)
    """
    check_choice("qr_multiply", "mode", mode, ("right", "left"))
    a, c = promote(a, c, where="qr_multiply", to=dtypes.to_float)
    q, *rest = qr(a, mode="economic", pivoting=pivoting)
    q, c = el.conj(q) if conjugate else q, to_value(c, "qr_multiply", "c")
    size, axis = (q.spec.shape[-1], max(c.spec.ndim - 2, 0)) if mode == "left" else (q.spec.shape[-2], c.spec.ndim - 1)
    if not c.spec.ndim or c.spec.shape[axis] != size:
        problem = f"c must have {size} {'rows' if mode == 'left' else 'columns'}."
        fix = "transpose c, or use the other mode."
        raise user_error(ShapeError, "qr_multiply", problem, operands={"Q": q.spec, "c": c.spec}, fix=fix)
    return (la.matmul(q, c) if mode == "left" else la.matmul(c, q), *rest)
