"""Functions of matrices: exponential, square root, logarithm, which nnc.scipy.linalg shows."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from nnc.array.array import Array
from nnc.array.promote import astype, promote
from nnc.base import dtypes
from nnc.calls.spelling import spelled
from nnc.commands import schur as commands
from nnc.commands.linalg import adjoint, identity_like
from nnc.errors import ShapeError, user_error
from nnc.numpy import elementwise as el
from nnc.numpy import linalg as la
from nnc.numpy.creation import ones
from nnc.numpy.joining import stack
from nnc.numpy.operands import to_value
from nnc.numpy.reductions import any as any_
from nnc.numpy.reductions import sum as sum_
from nnc.numpy.systems import to_matrix
from nnc.trace.core.custom import custom_jvp
from nnc.trace.core.differentiate import jvp
from nnc.trace.loops.branches import cond
from nnc.trace.loops.control_flow import fori_loop, scan
from nnc.typing import ArrayLike

__all__ = ["expm", "expm_frechet", "funm", "logm", "sqrtm"]


@spelled
def expm(A: ArrayLike, *, max_squarings: int = 16) -> Array:  # noqa: N803  (SciPy's name)
    """Returns the exponential of a matrix, the sum of Aᵏ / k!; see `nnp.linalg.expm`.

    Args:
        A: (..., n, n).
        max_squarings: how many squarings the graph holds; norms up to about 2 to this power are handled, of others the result is
            NaN.

    Raises:
        ShapeError: A is not square.

    Example:
        >>> expm(np.zeros((2, 2)))
        Array([[1., 0.],
               [0., 1.]], dtype=float64)
    """
    return la.expm(A, max_squarings=max_squarings)


@spelled
def expm_frechet(A: ArrayLike, E: ArrayLike, *, compute_expm: bool = True) -> Any:  # noqa: N803
    """Returns the exponential of A and its derivative along E.

    Args:
        A: (..., n, n).
        E: the shape of A.
        compute_expm: False returns the derivative alone.

    Raises:
        ShapeError: A is not square, or E has another shape.

    Example:
        >>> expm_frechet(np.zeros((2, 2)), np.ones((2, 2)), compute_expm=False)
        Array([[1., 1.],
               [1., 1.]], dtype=float64)
    """
    a, e = promote(A, E, where="expm_frechet", to=dtypes.to_float)
    a, e = to_matrix("expm_frechet", a, name="A"), to_matrix("expm_frechet", e, name="E")
    if a.spec.shape != e.spec.shape:
        problem = "A and E differ in shape."
        fix = "pass a direction with an element for each of A."
        raise user_error(ShapeError, "expm_frechet", problem, operands={"A": a.spec, "E": e.spec}, fix=fix)
    both = jvp(la.expm, (a,), (e,))
    return both if compute_expm else both[1]


@custom_jvp
def _root(x: Array) -> Array:
    t, z = commands.schur(x)
    return la.matmul(la.matmul(z, commands.triangular_root(t)), adjoint(z))


@_root.defjvp
def _push_root(primals: tuple[Array], tangents: tuple[Array]) -> tuple[Array, Array]:
    """X² = A, so X dX + dX X = dA. The solver refuses NaN, so roots that do not exist are replaced."""
    root = _root(*primals)
    lost = any_(el.isnan(root), axis=(-2, -1), keepdims=True)
    safe = el.where(lost, identity_like(root.spec), root)
    return root, commands.sylvester(safe, safe, tangents[0]) * el.where(lost, math.nan, 1)


@spelled
def sqrtm(A: ArrayLike) -> Array:  # noqa: N803
    """Returns the principal square root of a matrix: its eigenvalues have positive real parts, or are 0.

    By its Schur decomposition (Björck and Hammarling, 1983). The root of a real matrix is real, and NaN where the principal one
    is complex: where an eigenvalue is negative. Pass a complex matrix for the complex root. Derivatives exist at non-singular
    matrices; they are NaN at others.

    Args:
        A: (..., n, n).

    Returns:
        (..., n, n), dtype of A.

    Raises:
        LinAlgError: an element is NaN or infinite.
        ShapeError: A is not square.

    Example:
        >>> sqrtm(np.asarray([[4.0, 1.0], [0.0, 9.0]]))
        Array([[2. , 0.2],
               [0. , 3. ]], dtype=float64)
    """
    return _root(to_matrix("sqrtm", A, name="A"))


_ROOTS = 30  # of logm; a logarithm of norm 2000 needs 12, one whose part above the diagonal is large some more
_NEAR = 0.7  # norm of A − 1, within which the quadrature is exact in float64
_NODES, _WEIGHTS = (x.tolist() for x in np.polynomial.legendre.leggauss(16))  # for −1 to 1


@spelled
def logm(A: ArrayLike) -> Array:  # noqa: N803
    """Returns the principal logarithm of a matrix: its eigenvalues have imaginary parts between −π and π.

    Square roots are taken until the matrix is near the identity, where the logarithm is a quadrature of rational functions
    (Higham, Functions of Matrices, 2008, chapter 11). Each root doubles the rounding errors: results were within 100 units in
    the last place of SciPy's, relative to the largest element. The logarithm of a real matrix is real, and NaN where the
    principal one is complex or does not exist: where an eigenvalue is negative or 0. Pass a complex matrix for the complex one.

    Args:
        A: (..., n, n).

    Returns:
        (..., n, n), dtype of A.

    Raises:
        LinAlgError: an element is NaN or infinite.
        ShapeError: A is not square.

    Example:
        >>> logm(np.asarray([[1.0, 2.0], [0.0, 1.0]]))
        Array([[0., 2.],
               [0., 0.]], dtype=float64)
    """
    x = to_matrix("logm", A, name="A")
    own = x.spec.dtype
    x = astype(x, dtypes.accumulator(own))
    one = identity_like(x.spec)

    def far(x: Array) -> Array:
        """Compares roots of the norms of powers, which bound the quadrature's error more closely than the norm does where x is far
        from normal (Al-Mohy and Higham, 2012).
        """
        apart = x - one
        square = la.matmul(apart, apart)
        cube = la.matmul(square, apart)
        second, third = (la.matrix_norm(power, ord=1, keepdims=True) for power in (square, cube))
        return el.maximum(el.sqrt(second), el.cbrt(third)) > _NEAR

    def halve(carry: tuple[Array, Array], _: Any) -> tuple[tuple[Array, Array], None]:
        x, factor = carry
        wanted = far(x)
        # A NaN is not far, so that nothing is left for the decomposition to refuse.
        x = cond(any_(wanted), lambda: el.where(wanted, _root(el.where(wanted, x, one)), x), lambda: x)
        return (x, el.where(wanted, factor * 2, factor)), None

    factor = ones((*x.spec.shape[:-2], 1, 1), dtypes.real_dtype(x.spec.dtype))
    (x, factor), _ = scan(halve, (x, factor), None, length=_ROOTS)
    lost = far(x)  # a singular matrix, whose roots stay singular
    step = x - one
    terms = [
        la.solve(one + step * ((1 + node) / 2), step) * (weight / 2)
        for node, weight in zip(_NODES, _WEIGHTS, strict=True)
    ]
    return astype(sum_(stack(terms), axis=0) * el.where(lost, math.nan, factor), own)


@spelled
def funm(A: ArrayLike, func: Callable[[Array], ArrayLike]) -> Array:  # noqa: N803
    """Returns a function of a matrix: with eigenvalues w and vectors v, v diag(func(w)) v⁻¹.

    By its Schur decomposition and Parlett's recurrence (Golub and Van Loan, Matrix Computations, 2013, algorithm 9.1.1), which is
    exact in no digit where eigenvalues are equal or nearly so: use `expm`, `logm` and `sqrtm` where these are wanted. Time is
    O(n⁴). There is no derivative, since the Schur decomposition has none.

    Args:
        A: (..., n, n).
        func: a function of complex arrays, element by element.

    Returns:
        (..., n, n), complex; `nnp.real` is the result where that is known to be real.

    Raises:
        LinAlgError: an element is NaN or infinite.
        ShapeError: A is not square.

    Example:
        >>> funm(np.asarray([[2.0, 1.0], [0.0, 3.0]]), lambda x: x**2).real
        Array([[4., 5.],
               [0., 9.]], dtype=float64)
    """
    x = to_matrix("funm", A, name="A")
    t, z = commands.schur(astype(x, dtypes.complex_dtype(x.spec.dtype)))
    n = x.spec.shape[-1]
    values = la.diagonal(t)
    start = el.where(np.eye(n, dtype=bool), to_value(func(values), "funm")[..., None], 0)
    gaps = values[..., None, :] - values[..., :, None]
    safe = el.where(el.equal(gaps, 0), 1, gaps)
    offsets = np.arange(n) - np.arange(n)[:, None]

    def fill(offset: Array, f: Array) -> Array:
        """Fills one diagonal, since f t = t f."""
        return el.where(el.equal(offsets, offset), (la.matmul(t, f) - la.matmul(f, t)) / safe, f)

    f = fori_loop(1, n, fill, astype(start, t.spec.dtype))
    return la.matmul(la.matmul(z, f), adjoint(z))
