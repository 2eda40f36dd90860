"""Decompositions by eigenvalues and singular values, and Sylvester's equation, which nnc.scipy.linalg shows."""

from __future__ import annotations

from collections.abc import Callable
from numbers import Integral
from typing import Any

import numpy as np

from nnc.array.array import Array
from nnc.array.promote import astype, broadcast_shapes, promote
from nnc.base import dtypes
from nnc.calls.spelling import spelled
from nnc.commands import elementwise as ew
from nnc.commands.linalg import adjoint, keep
from nnc.commands.schur import schur as schur_command
from nnc.commands.schur import sylvester
from nnc.errors import ArgumentError, ShapeError, user_error
from nnc.errors.errors import check_choice
from nnc.numpy import elementwise as el
from nnc.numpy import linalg as la
from nnc.numpy.creation import zeros
from nnc.numpy.joining import concatenate
from nnc.numpy.manipulation import broadcast_to
from nnc.numpy.matrices import eye, triu
from nnc.numpy.operands import to_value
from nnc.numpy.reductions import max as max_
from nnc.numpy.reductions import sum as sum_
from nnc.numpy.searching import take
from nnc.numpy.systems import to_matrix
from nnc.trace.loops.control_flow import fori_loop
from nnc.typing import ArrayLike

__all__ = ["eigh", "eigh_tridiagonal", "hessenberg", "polar", "rsf2csf", "schur", "solve_sylvester", "svd"]


@spelled
def svd(a: ArrayLike, full_matrices: bool = True, compute_uv: bool = True) -> Any:
    """Returns U, the singular values s in falling order, and Vh, with U diag(s) Vh = a; see `nnp.linalg.svd`.

    Args:
        a: (..., m, n).
        full_matrices: complete U and Vh to square matrices; these have no derivative where m and n differ.
        compute_uv: False returns s alone.

    Raises:
        LinAlgError: an element is NaN or infinite.

    Example:
        >>> svd(np.asarray([[3.0, 0.0], [0.0, -4.0]]), compute_uv=False)
        Array([4., 3.], dtype=float64)
    """
    return tuple(la.svd(a, full_matrices=full_matrices)) if compute_uv else la.svdvals(a)


@spelled
def eigh(a: ArrayLike, b: ArrayLike | None = None, lower: bool = True, eigvals_only: bool = False) -> Any:
    """Returns the eigenvalues w, in rising order, and vectors v of a v = w b v, for Hermitian (real: symmetric) matrices.

    The notes of `nnp.linalg.eigh` on derivatives hold. Vectors are scaled so that vᴴ b v = 1.

    Args:
        a: (..., n, n), Hermitian; one triangle is read.
        b: (..., n, n), Hermitian positive definite; None is the identity.
        lower: whether the lower triangle of `a` is read, instead of the upper one.
        eigvals_only: return the eigenvalues alone.

    Raises:
        LinAlgError: an element is NaN or infinite, or b is not positive definite.
        ShapeError: a or b is not square.

    Example:
        >>> w, v = eigh(np.asarray([[2.0, 0.0], [0.0, 9.0]]), np.asarray([[1.0, 0.0], [0.0, 3.0]]))
        >>> w
        Array([2., 3.], dtype=float64)
    """
    side = "L" if lower else "U"
    if b is None:
        values, vectors = la.eigh(a, UPLO=side, symmetrize_input=False)
        return values if eigvals_only else (values, vectors)
    a, b = promote(a, b, where="eigh", to=dtypes.to_float)
    root = la.cholesky(b)
    half = la.solve_triangular(root, _hermitian(to_matrix("eigh", a, name="a"), lower), lower=True)
    values, vectors = la.eigh(la.solve_triangular(root, adjoint(half), lower=True))
    return values if eigvals_only else (values, la.solve_triangular(root, vectors, trans="C", lower=True))


def _hermitian(x: Array, lower: bool) -> Array:
    """Completes the Hermitian matrix of which `x` has one triangle."""
    half = keep(x, ew.greater if lower else ew.less)
    whole: Array = half + adjoint(half) + keep(x, ew.equal)
    return whole


@spelled
def eigh_tridiagonal(
    d: ArrayLike, e: ArrayLike, *, eigvals_only: bool = False, select: str = "a",
    select_range: tuple[float, float] | None = None,
) -> Any:  # fmt: skip
    """Returns the eigenvalues, in rising order, and vectors of a real symmetric matrix with three diagonals.

    The matrix is made whole and given to `eigh`, so time is O(n³) and memory O(n²).

    Args:
        d: (..., n), the main diagonal.
        e: (..., n - 1), the diagonals beside it.
        eigvals_only: return the eigenvalues alone.
        select: "a" returns all of them, "i" the ones from the first to the last number of `select_range`, "v" the ones between its
            values. How many these are must be known, so "v" takes one matrix alone, and none that is being traced.
        select_range: for "i" numbers from 0 to n - 1, both included; for "v" two values; the upper one is included.

    Raises:
        LinAlgError: an element is NaN or infinite.
        ShapeError: the sizes do not fit.
        ArgumentError: there is no such choice, or the range lies outside of 0 to n - 1.
        TraceError: the number of eigenvalues between two values is asked for while it is not known.

    Example:
        >>> eigh_tridiagonal(np.asarray([2.0, 2.0]), np.asarray([1.0]), eigvals_only=True)
        Array([1., 3.], dtype=float64)
    """
    d, e = (to_value(x, "eigh_tridiagonal") for x in promote(d, e, where="eigh_tridiagonal", to=dtypes.to_float))
    if not d.spec.ndim or not e.spec.ndim or e.spec.shape[-1] != max(d.spec.shape[-1] - 1, 0):
        problem = "e must have one element less than d."
        fix = "pass the main diagonal, then the one beside it."
        raise user_error(ShapeError, "eigh_tridiagonal", problem, operands={"d": d.spec, "e": e.spec}, fix=fix)
    n = d.spec.shape[-1]
    below = concatenate([zeros((*e.spec.shape[:-1], min(n, 1)), d.spec.dtype), e], axis=-1)
    matrix = d[..., None] * eye(n, dtype=d.spec.dtype) + below[..., None] * eye(n, k=-1, dtype=d.spec.dtype)
    selected = _selection(select, select_range, d.spec.shape)
    values, vectors = eigh(matrix)
    wanted = selected(values)
    values, vectors = values[..., wanted], vectors[..., wanted]
    return values if eigvals_only else (values, vectors)


def _selection(
    select: str, select_range: tuple[float, float] | None, shape: tuple[int, ...]
) -> Callable[[Array], slice | Array]:
    """Returns the function from all eigenvalues to the index of those that are wanted.

    Raises:
        ArgumentError: there is no such choice.
        ShapeError: a number of eigenvalues that depends on values is asked for of many matrices.
    """
    if select == "a" and select_range is None:
        return lambda values: slice(None)
    if select not in ("i", "v") or select_range is None:
        problem = f"select is {select!r} and select_range {select_range!r}."
        fix = 'use "a" for all, "i" with two numbers, or "v" with two values.'
        raise user_error(ArgumentError, "eigh_tridiagonal", problem, fix=fix)
    low, high = select_range
    if select == "v":
        if len(shape) > 1:
            problem = 'select="v" takes one matrix: in each, another number of values may be wanted.'
            fix = 'take one row of d and e, or use select="a" and nnp.where.'
            raise user_error(ShapeError, "eigh_tridiagonal", problem, operands={"d": shape}, fix=fix)
        return lambda values: el.logical_and(el.greater(values, low), el.less_equal(values, high))
    if not (isinstance(low, Integral) and isinstance(high, Integral) and 0 <= low <= high < shape[-1]):
        fix = f"pass two numbers from 0 to {shape[-1] - 1}, the smaller one first."
        raise user_error(ArgumentError, "eigh_tridiagonal", f"select_range is {select_range!r}.", fix=fix)
    return lambda values: slice(int(low), int(high) + 1)


@spelled
def schur(a: ArrayLike, output: str = "real") -> tuple[Array, Array]:
    """Returns T and Z with Z T Zᴴ = a, Z with orthonormal columns.

    T is an upper triangle; of a real matrix, blocks of two rows on its diagonal have the complex pairs of eigenvalues. The factors
    have no derivative.

    Args:
        a: (..., n, n).
        output: "complex" makes complex factors of a real matrix, too, so that T is a triangle.

    Raises:
        LinAlgError: an element is NaN or infinite.
        ShapeError: a is not square.
        ArgumentError: there is no such output.

    Example:
        >>> t, z = schur(np.asarray([[2.0, 1.0], [0.0, 3.0]]))
        >>> t
        Array([[2., 1.],
               [0., 3.]], dtype=float64)
    """
    check_choice("schur", "output", output, ("real", "complex"))
    x = to_matrix("schur", a, name="a")
    t, z = schur_command(astype(x, dtypes.complex_dtype(x.spec.dtype)) if output == "complex" else x)
    return t, z


@spelled
def rsf2csf(T: ArrayLike, Z: ArrayLike) -> tuple[Array, Array]:  # noqa: N803  (SciPy's names)
    """Returns the complex Schur factors that real ones, of `schur(a)`, come to: T becomes a triangle.

    Args:
        T: (..., n, n), with blocks of two rows on its diagonal.
        Z: (..., n, n), with orthonormal columns.

    Raises:
        ShapeError: T or Z is not square.

    Example:
        >>> t, z = rsf2csf(*schur(np.asarray([[0.0, 1.0], [-1.0, 0.0]])))
        >>> nnp.sort(nnp.linalg.diagonal(t).imag).round(6)
        Array([-1.,  1.], dtype=float64)
    """
    t, z = promote(T, Z, where="rsf2csf", to=dtypes.to_float)
    triangle, inner = schur(to_matrix("rsf2csf", t, name="T"), output="complex")
    return triangle, la.matmul(to_matrix("rsf2csf", z, name="Z"), inner)


@spelled
def hessenberg(a: ArrayLike, *, calc_q: bool = False) -> Any:
    """Returns H with zeros below the diagonal beside the main one, and Q with orthonormal columns, where Q H Qᴴ = a.

    By Householder's reflections (Golub and Van Loan, Matrix Computations, 2013, algorithm 7.4.2), with LAPACK's signs.

    Args:
        a: (..., n, n).
        calc_q: return H and Q, rather than H alone.

    Raises:
        ShapeError: a is not square.

    Example:
        >>> h, q = hessenberg(np.asarray([[1.0, 2.0, 3.0], [3.0, 4.0, 5.0], [4.0, 6.0, 8.0]]), calc_q=True)
        >>> h[2, 0], (q @ h @ q.T).round(6)[0]
        (Array(0., dtype=float64), Array([1., 2., 3.], dtype=float64))
    """
    x = to_matrix("hessenberg", a, name="a")
    n = x.spec.shape[-1]
    rows = np.arange(n)
    largest = ew.stop_gradient(max_(el.abs(x), axis=(-2, -1), keepdims=True, initial=0))
    scale = el.where(el.equal(largest, 0), 1, largest)  # squares neither overflow nor vanish

    def reflect(j: Array, carry: tuple[Array, Array]) -> tuple[Array, Array]:
        h, q = carry
        column = take(h, j, axis=-1)[..., None]
        first, rest = (el.where(mask[:, None], column, 0) for mask in (el.equal(rows, j + 1), el.greater(rows, j + 1)))
        alpha, tail = (sum_(y, axis=-2, keepdims=True) for y in (first, el.abs(rest) ** 2))
        done = el.logical_and(el.equal(tail, 0), el.equal(el.imag(alpha), 0))
        size = el.sqrt(el.where(done, 1, tail + el.abs(alpha) ** 2))
        beta = el.where(el.less(el.real(alpha), 0), size, -size)
        v = rest / el.where(done, 1, alpha - beta) + astype(el.equal(rows, j + 1), h.spec.dtype)[:, None]
        tau = el.where(done, 0, (beta - alpha) / beta)
        h = h - el.conj(tau) * la.matmul(v, la.matmul(adjoint(v), h))
        return h - tau * la.matmul(la.matmul(h, v), adjoint(v)), q - tau * la.matmul(la.matmul(q, v), adjoint(v))

    start = x / scale, broadcast_to(eye(n, dtype=x.spec.dtype), x.spec.shape)
    columns = n - 1 if dtypes.is_complex(x.spec.dtype) else n - 2  # the last element beside the diagonal is made real
    h, q = fori_loop(0, max(columns, 0), reflect, start)
    h = triu(h, -1) * scale
    return (h, q) if calc_q else h


@spelled
def polar(a: ArrayLike, side: str = "right") -> tuple[Array, Array]:
    """Returns U with orthonormal columns (of a wide matrix: rows) and a positive semidefinite P with a = U P.

    Args:
        a: (..., m, n).
        side: "right" for a = U P, "left" for a = P U.

    Raises:
        ArgumentError: there is no such side.
        LinAlgError: an element is NaN or infinite.

    Example:
        >>> u, p = polar(np.asarray([[0.0, -2.0], [3.0, 0.0]]))
        >>> u.round(6), p.round(6)
        (Array([[ 0., -1.],
                [ 1.,  0.]], dtype=float64),
         Array([[3., 0.],
                [0., 2.]], dtype=float64))
    """
    check_choice("polar", "side", side, ("right", "left"))
    x = to_matrix("polar", a, square=False, name="a")
    left, _, right = la.svd(x, full_matrices=False)
    u = la.matmul(left, right)  # whose derivative holds at equal singular values, too
    p = la.matmul(adjoint(u), x) if side == "right" else la.matmul(x, adjoint(u))
    return u, (p + adjoint(p)) * 0.5


@spelled
def solve_sylvester(A: ArrayLike, B: ArrayLike, C: ArrayLike) -> Array:  # noqa: N803  (SciPy's names)
    """Returns the solution X of A X + X B = C, by Bartels and Stewart's algorithm.

    It is NaN where A and −B have a common eigenvalue.

    Args:
        A: (..., m, m).
        B: (..., n, n).
        C: (..., m, n).

    Raises:
        LinAlgError: an element of A or B is NaN or infinite.
        ShapeError: the shapes do not fit.

    Example:
        >>> solve_sylvester(np.asarray([[1.0]]), np.asarray([[3.0]]), np.asarray([[8.0]]))
        Array([[2.]], dtype=float64)
    """
    where = "solve_sylvester"
    a, b, c = promote(A, B, C, where=where, to=dtypes.to_float)
    a, b, c = to_matrix(where, a, name="A"), to_matrix(where, b, name="B"), to_matrix(where, c, square=False, name="C")
    shape = (a.spec.shape[-1], b.spec.shape[-1])
    if c.spec.shape[-2:] != shape:
        problem = f"C must be {shape[0]} by {shape[1]}."
        fix = "give C the rows of A and the columns of B."
        raise user_error(ShapeError, where, problem, operands={"A": a.spec, "B": b.spec, "C": c.spec}, fix=fix)
    try:
        lead = broadcast_shapes(*(x.spec.shape[:-2] for x in (a, b, c)))
    except ValueError:
        problem = "the leading axes do not broadcast."
        operands = {"A": a.spec, "B": b.spec, "C": c.spec}
        fix = "make sizes equal or 1, counted from the last of them."
        raise user_error(ShapeError, where, problem, operands=operands, fix=fix) from None
    solution: Array = sylvester(*(broadcast_to(x, (*lead, *x.spec.shape[-2:])) for x in (a, b, c)))
    return solution
