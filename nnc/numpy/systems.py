"""Linear systems and inverses, which nnc.numpy.linalg shows: exact ones, least squares, and systems of more axes."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

from nnc import tree
from nnc.array.array import Array
from nnc.array.matmul import matmul
from nnc.array.promote import astype, broadcast, broadcast_shapes, broadcast_to_shape, promote
from nnc.base import dtypes
from nnc.calls.spelling import spelled
from nnc.commands import constants, factor
from nnc.commands import linalg as commands
from nnc.commands.linalg import adjoint, check_matrix, identity_like
from nnc.commands.reduce import reduce_sum
from nnc.commands.shape import reshape, transpose
from nnc.errors import ArgumentError, ArgumentTypeError, DTypeError, ShapeError, TraceError, user_error
from nnc.numpy import elementwise as el
from nnc.numpy import reductions as re
from nnc.numpy.operands import Axis, keeps_weakness, static_int, to_axes, to_value, to_values
from nnc.numpy.scaling import squared_sizes
from nnc.numpy.types import finfo
from nnc.trace.core.custom import custom_jvp
from nnc.typing import ArrayLike


def to_matrix(where: str, x: ArrayLike, *, square: bool = True, name: str = "x") -> Array:
    """`x` as inexact matrices; integers become float32.

    Raises:
        ShapeError: it is no matrix, or not a square one.
    """
    (x,) = promote(x, where=where, to=dtypes.to_float)
    x = to_value(x, where, name)
    check_matrix(where, x.spec, square=square, name=name)
    return x


def _solve(where: str, run: Callable[[Array, Array], Array], a: Any, b: Any) -> Array:
    """Promotes, broadcasts the batches, and treats a vector as a column."""
    a, b = (to_value(x, where) for x in promote(a, b, where=where, to=dtypes.to_float))
    check_matrix(where, a.spec, name="a")
    n, vector = a.spec.shape[-1], b.spec.ndim == 1
    if b.spec.ndim == 0 or b.spec.shape[0 if vector else -2] != n:
        problem = f"a has {n} rows, b of shape {b.spec.shape} has not."
        fix = f"pass b of shape ({n},) or (..., {n}, k)."
        raise user_error(ShapeError, where, problem, operands={"a": a.spec, "b": b.spec}, fix=fix)
    columns = reshape(b, shape=(n, 1)) if vector else b
    try:
        batch = broadcast_shapes(a.spec.shape[:-2], columns.spec.shape[:-2])
    except ValueError:
        problem = "the leading axes do not broadcast."
        fix = "make sizes equal or 1, counted from the last of them."
        raise user_error(ShapeError, where, problem, operands={"a": a.spec, "b": b.spec}, fix=fix) from None
    result = run(broadcast_to_shape(a, (*batch, n, n)), broadcast_to_shape(columns, (*batch, *columns.spec.shape[-2:])))
    return reshape(result, shape=result.spec.shape[:-1]) if vector else result


@spelled
def solve(a: ArrayLike, b: ArrayLike, /) -> Array:
    """Returns the solution x of a x = b.

    Args:
        a: (..., n, n).
        b: (n,), or (..., n, k) where each column is a right-hand side; leading axes broadcast.

    Raises:
        LinAlgError: a matrix is singular.
        ShapeError: the shapes do not fit.

    Example:
        >>> solve(np.asarray([[2.0, 0.0], [1.0, 1.0]]), np.asarray([4.0, 5.0]))
        Array([2., 3.], dtype=float64)
    """
    return _solve("solve", commands.solve, a, b)


_TRANSPOSES: dict[Any, int] = {0: 0, 1: 1, 2: 2, "N": 0, "T": 1, "C": 2}


@spelled
def solve_triangular(
    a: ArrayLike, b: ArrayLike, /, trans: int | str = 0, lower: bool = False, unit_diagonal: bool = False
) -> Array:
    """Returns the solution x of a x = b, where only one triangle of `a` is read.

    Args:
        a: (..., n, n); only one triangle is read.
        b: (n,), or (..., n, k).
        trans: 0 or "N" solves a x = b, 1 or "T" aᵀ x = b, 2 or "C" aᴴ x = b.
        lower: whether the lower triangle of `a` is read, instead of the upper one.
        unit_diagonal: take the diagonal of `a` as ones.

    Raises:
        LinAlgError: an element of the diagonal is 0.
        ShapeError: the shapes do not fit.
        ArgumentError: no such `trans`.

    Example:
        >>> solve_triangular(np.asarray([[2.0, 9.0], [1.0, 1.0]]), np.asarray([4.0, 5.0]), lower=True)
        Array([2., 3.], dtype=float64)
    """
    if isinstance(trans, (bool, list)) or trans not in _TRANSPOSES:
        fix = 'use 0 or "N" for a, 1 or "T" for its transpose, 2 or "C" for the conjugate of that; name lower=... in full.'
        raise user_error(ArgumentError, "solve_triangular", f"trans is {trans!r}.", fix=fix)
    turn = _TRANSPOSES[trans]

    def run(a: Array, b: Array) -> Array:
        a = el.conj(a) if turn == 2 else a
        return commands.triangular_solve(
            a, b, lower=bool(lower), transpose_a=turn > 0, unit_diagonal=bool(unit_diagonal)
        )

    return _solve("solve_triangular", run, a, b)


@spelled
def cho_solve(c_and_lower: tuple[Any, bool], b: ArrayLike, /) -> Array:
    """Returns the solution x of a x = b from the Cholesky factor of `a`.

    Args:
        c_and_lower: the factor, and whether its lower triangle is read, instead of the upper one.
        b: as in `solve`.

    Raises:
        LinAlgError: an element of the diagonal is 0.
        ShapeError: the shapes do not fit.

    Example:
        >>> cho_solve((np.asarray([[2.0, 0.0], [1.0, 1.0]]), True), np.asarray([4.0, 3.0]))
        Array([0.5, 1. ], dtype=float64)
    """
    c, lower = c_and_lower
    first = solve_triangular(c, b, trans=0 if lower else 2, lower=lower)
    return solve_triangular(c, first, trans=2 if lower else 0, lower=lower)


@keeps_weakness
def inv(x: ArrayLike, /) -> Array:
    """Returns the inverse matrix; `solve` is faster and more exact where it is multiplied by something.

    Args:
        x: (..., n, n).

    Raises:
        LinAlgError: a matrix is singular.
        ShapeError: x is not square.

    Example:
        >>> inv(np.asarray([[2.0, 0.0], [0.0, 4.0]]))
        Array([[0.5 , 0.  ],
               [0.  , 0.25]], dtype=float64)
    """
    x = to_matrix("inv", x)
    return commands.solve(x, identity_like(x.spec))


# -- least squares -----------------------------------------------------------------------------------------------------


def relative_tolerance(x: Array, rtol: Any, where: str, name: str = "rtol") -> float:
    """Returns the share of the largest singular value below which one counts as 0."""
    if rtol is None:
        return float(max(x.spec.shape[-2:])) * float(finfo(x.spec.dtype).eps)
    try:
        return float(rtol)
    except TypeError:
        problem = f"{name} is {rtol!r}, not a number."
        raise user_error(ArgumentTypeError, where, problem, fix=f"pass a Python float for {name}.") from None


def relative_tolerances(x: Array, rtol: Any, where: str) -> Any:
    """Returns the same as a number, or one for each matrix: an array of real numbers that broadcasts with the leading axes of
    `x`.

    Raises:
        DTypeError: rtol is complex.
        ShapeError: it does not broadcast.
    """
    if rtol is None or not tree.is_array(rtol) or dtypes.is_scalar(rtol):
        return relative_tolerance(x, rtol, where)
    values, lead = to_value(rtol, where, "rtol"), x.spec.shape[:-2]
    if dtypes.is_complex(values.spec.dtype):
        problem = "rtol is complex."
        raise user_error(DTypeError, where, problem, operands={"rtol": values.spec}, fix="pass real numbers.")
    if not values.spec.ndim and isinstance(values, Array):
        return relative_tolerance(x, rtol, where)
    _, spread = broadcast(constants.full(shape=lead, dtype=dtypes.bool_, value=False), values, where=where)
    if spread.spec.shape != lead:
        problem = "rtol has more axes than there are matrices."
        fix = "pass one number for each matrix of x."
        raise user_error(ShapeError, where, problem, operands={"x": x.spec, "rtol": values.spec}, fix=fix)
    return astype(spread, dtypes.real_dtype(x.spec.dtype))


@spelled
def pinv(x: ArrayLike, /, rtol: ArrayLike | None = None, hermitian: bool = False) -> Array:
    """Returns the Moore-Penrose pseudo-inverse.

    Its derivative takes the rank as constant.

    Args:
        x: (..., m, n).
        rtol: singular values at most rtol times the largest count as 0; a number, or an array with one for each matrix. Default
            max(m, n) · eps.
        hermitian: x is Hermitian; its Hermitian part (x + xᴴ) / 2 is used.

    Returns:
        (..., n, m).

    Raises:
        DTypeError: rtol is complex.
        ShapeError: it does not broadcast with the leading axes of x.

    Example:
        >>> pinv(np.asarray([[2.0], [0.0]]))
        Array([[0.5, 0. ]], dtype=float64)
    """
    x = to_matrix("pinv", x, square=hermitian)
    x = (x + adjoint(x)) * 0.5 if hermitian else x
    tolerance = relative_tolerances(x, rtol, "pinv")
    return factor.pinv(x, rtol=tolerance) if isinstance(tolerance, float) else _pinv_by_svd(x, tolerance)


@custom_jvp
def _pinv_by_svd(x: Array, rtol: Array) -> Array:
    """Returns the pseudo-inverse of matrices, each with a tolerance of its own."""
    u, s, vh = factor.svd(x, full_matrices=False)
    if s.spec.shape[-1] == 0:
        shape = (*x.spec.shape[:-2], x.spec.shape[-1], x.spec.shape[-2])
        return constants.full(shape=shape, dtype=x.spec.dtype, value=0)
    counts = s > re.max(s, axis=-1, keepdims=True) * rtol[..., None]
    inverse = el.where(counts, 1 / el.where(counts, s, 1), 0)
    return matmul(adjoint(vh) * inverse[..., None, :], adjoint(u))


@_pinv_by_svd.defjvp
def _push_pinv(primals: tuple[Array, Array], tangents: tuple[Array, Array]) -> tuple[Array, Array]:
    """Returns the rank is constant, so the tolerance has no part."""
    p = _pinv_by_svd(*primals)
    return p, factor.pinv_tangent(primals[0], tangents[0], p)


class LstsqResult(NamedTuple):
    """The result of `lstsq`.

    Attributes:
        x: (n,) or (n, k), the solution of least norm.
        residuals: (k,), squared distances, as NumPy gives them.
        rank: number of singular values that do not count as 0.
        s: (min(m, n),), singular values in falling order.

    Example:
        >>> nnp.linalg.lstsq(nnp.asarray([[1.0], [1.0]]), nnp.asarray([1.0, 3.0])).rank
        Array(1, dtype=int64)
    """

    x: Array
    residuals: Array
    rank: Array
    s: Array


@spelled
def lstsq(a: ArrayLike, b: ArrayLike, rcond: ArrayLike | None = None, *, numpy_resid: bool = False) -> LstsqResult:
    """Returns the shortest x that minimises |a x − b|², with how well it does.

    x = a⁺ b. Its derivative takes the rank as constant, and holds also where singular values are equal.

    Args:
        a: (..., m, n).
        b: (m,) or (..., m, k), each column a right-hand side.
        rcond: singular values at most rcond times the largest count as 0; default max(m, n) · eps, negative: eps.
        numpy_resid: give no residuals, as NumPy does, where the rank is below n or m ≤ n; that depends on values, so
            not inside nnc.compile.

    Returns:
        x: (n,) or (..., n, k); residuals: (..., k), the sums of squares |b − a x|²; rank; s: the singular values of a.

    Raises:
        ShapeError: the shapes do not fit.

    Example:
        >>> x, residuals, rank, s = lstsq(np.asarray([[1.0, 0.0], [1.0, 1.0], [1.0, 2.0]]), np.asarray([1.0, 3.0, 5.0]))
        >>> x.round(6)
        Array([1., 2.], dtype=float64)
    """
    a, b = (to_value(x, "lstsq") for x in promote(a, b, where="lstsq", to=dtypes.to_float))
    check_matrix("lstsq", a.spec, square=False, name="a")
    (m, n), vector = a.spec.shape[-2:], b.spec.ndim == 1
    if b.spec.ndim == 0 or b.spec.shape[0 if vector else -2] != m:
        problem = f"a has {m} rows, b of shape {b.spec.shape} has not."
        fix = f"pass b of shape ({m},) or (..., {m}, k)."
        raise user_error(ShapeError, "lstsq", problem, operands={"a": a.spec, "b": b.spec}, fix=fix)
    columns = reshape(b, shape=(m, 1)) if vector else b
    tolerance = relative_tolerance(a, rcond, "lstsq", "rcond")
    tolerance = float(finfo(a.spec.dtype).eps) if tolerance < 0 else tolerance
    x = matmul(factor.pinv(a, rtol=tolerance), columns)
    s = factor.svd(a, full_matrices=False)[1]
    rank = count_above(s, tolerance)
    missed = columns - matmul(a, x)
    residuals = reduce_sum(squared_sizes(missed), axes=(missed.spec.ndim - 2,))
    if numpy_resid and (m <= n or _to_int(rank) < n):
        residuals = constants.full(shape=(0,), dtype=residuals.spec.dtype, value=0)
    return LstsqResult(reshape(x, shape=(*x.spec.shape[:-2], n)) if vector else x, residuals, rank, s)


def _to_int(rank: Array) -> int:
    try:
        return int(rank)
    except TraceError:
        problem = "with numpy_resid=True the number of residuals depends on the rank, a traced value."
        fix = "leave numpy_resid=False, which always gives the residuals."
        raise user_error(TraceError, "lstsq", problem, fix=fix) from None


def count_above(s: Array, tolerance: Any) -> Array:
    """Returns the number of singular values, in falling order along the last axis, above `tolerance` times the largest.

    Args:
        s: the singular values.
        tolerance: a number, or an array with one for each row of `s`.
    """
    if s.spec.shape[-1] == 0:
        return constants.full(shape=s.spec.shape[:-1], dtype=dtypes.int64, value=0)
    each = tolerance if isinstance(tolerance, float) else tolerance[..., None]
    return re.count_nonzero(s > re.max(s, axis=-1, keepdims=True) * each, axis=-1)


# -- tensors as matrices -----------------------------------------------------------------------------------------------


@keeps_weakness
def tensorinv(a: ArrayLike, ind: int = 2) -> Array:
    """Returns the inverse of `a` as a map from its last axes to its first `ind` ones.

    tensordot(tensorinv(a), a, ind) is the identity.

    Args:
        a: the product of its first `ind` sizes equals the product of the others.
        ind: how many of the first axes of `a` the map leads to.

    Raises:
        LinAlgError: the map is singular.
        ShapeError: the sizes do not fit.
        ArgumentError: ind is not positive.

    Example:
        >>> tensorinv(np.eye(24).reshape(4, 6, 8, 3), ind=2).shape
        (8, 3, 4, 6)
    """
    ind = static_int(ind, "tensorinv", "ind")
    a = to_value(a, "tensorinv", "a")
    if ind <= 0:
        raise user_error(ArgumentError, "tensorinv", f"ind is {ind}.", fix="count at least one axis as a row axis.")
    rows, columns = a.spec.shape[:ind], a.spec.shape[ind:]
    if math.prod(rows) != math.prod(columns):
        problem = f"the axes {rows} and {columns} have not the same number of elements."
        fix = "choose ind so that both parts of the shape have equal products."
        raise user_error(ShapeError, "tensorinv", problem, operands={"a": a.spec}, fix=fix)
    return reshape(inv(reshape(a, shape=(math.prod(rows), math.prod(columns)))), shape=(*columns, *rows))


@spelled
def tensorsolve(a: ArrayLike, b: ArrayLike, axes: Axis = None) -> Array:
    """Returns the solution x of tensordot(a, x, x.ndim) = b.

    Args:
        a: (*b.shape, *x.shape), as many elements in either part.
        b: right side, any shape.
        axes: axes of `a` to move to the end first.

    Raises:
        LinAlgError: the map is singular.
        ShapeError: the sizes do not fit.

    Example:
        >>> tensorsolve(np.eye(24).reshape(6, 4, 2, 3, 4), np.ones((6, 4))).shape
        (2, 3, 4)
    """
    m, y = to_values("tensorsolve", a=a, b=b)
    if axes is not None:
        last = to_axes("tensorsolve", axes, m.spec.ndim)
        m = transpose(m, permutation=(*(i for i in range(m.spec.ndim) if i not in last), *last))
    rows, shape = m.spec.shape[: y.spec.ndim], m.spec.shape[y.spec.ndim :]
    if rows != y.spec.shape or math.prod(rows) != math.prod(shape):
        problem = f"a of shape {m.spec.shape} is no square map to shape {y.spec.shape}."
        fix = "give a the axes of b first, then axes with as many elements in all."
        raise user_error(ShapeError, "tensorsolve", problem, operands={"a": m.spec, "b": y.spec}, fix=fix)
    n = math.prod(rows)
    return reshape(solve(reshape(m, shape=(n, n)), reshape(y, shape=(n,))), shape=shape)
