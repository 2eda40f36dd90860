"""Conjugate gradients, BiCGSTAB and GMRES, which nnc.scipy.sparse.linalg shows."""

from __future__ import annotations

from typing import Any

import numpy as np

from nnc.array.array import Array, asarray
from nnc.calls.spelling import spelled
from nnc.errors import ArgumentError, user_error
from nnc.errors.errors import check_choice
from nnc.numpy import elementwise as el
from nnc.numpy.operands import to_size
from nnc.scipy.sparse.linalg.krylov import restarted
from nnc.scipy.sparse.linalg.systems import (
    Vector,
    axpy,
    check_tolerances,
    dot,
    in_range,
    info_of,
    is_solved,
    read_system,
    scaled,
    squares,
    to_maxiter,
)
from nnc.trace.core.implicit import LinearMap
from nnc.trace.loops.control_flow import while_loop

__all__ = ["bicgstab", "cg", "gmres"]


def _count(value: int) -> Array:
    return asarray(np.asarray(value, np.int32))


def _in_range(solve: Any) -> Any:
    """Lets a solver work on a system scaled by powers of two, and tells it the factor of the vectors, by which `atol` grows."""

    def run(matvec: LinearMap, precondition: LinearMap | None, b: Vector, x: Vector) -> tuple[Vector, Vector]:
        linear, of_map, of_vectors = in_range(matvec, b)
        ratio = of_vectors / of_map
        x, rest = solve(linear, precondition, scaled(of_vectors, b), scaled(ratio, x), of_vectors)
        return scaled(of_map / of_vectors, x), rest

    return run


def _limit(tol: Any, atol: Any, b: Vector) -> Any:
    """Returns the square of the norm that the residual must not exceed: that of max(tol · ‖b‖, atol)."""
    return el.square(el.maximum(el.multiply(tol, el.sqrt(squares(b))), atol))


@spelled
def cg(
    A: Any, b: Any, x0: Any = None, *, tol: Any = 1e-5, atol: Any = 0.0, maxiter: int | None = None, M: Any = None,  # noqa: N803
) -> tuple[Any, Array]:  # fmt: skip
    """Solves A x = b by conjugate gradients, for a Hermitian positive definite A.

    The derivative is that of the solution: it solves systems with A, or its transpose, by the same algorithm and tolerance, and
    keeps no iteration.

    Args:
        A: (n, n) matrix, or a linear function of pytrees like b.
        b: the right-hand side, a pytree of arrays; integers become float32.
        x0: the first guess, like b; zeros by default. It has no derivative.
        tol: relative tolerance: the norm of the residual is at most max(tol · ‖b‖, atol) in the end.
        atol: absolute tolerance.
        maxiter: largest number of iterations, by default 10 times the number of unknowns.
        M: an approximate inverse of A, Hermitian positive definite: a matrix or a function.

    Returns:
        x, like b; and `info`, an int32: 0 where the residual is within the tolerance, else the number of iterations.

    Raises:
        ShapeError, TreeError: A, b, x0 and M do not fit together.
        ArgumentError: a tolerance or maxiter is negative.

    Example:
        >>> a = np.asarray([[4.0, 1.0], [1.0, 3.0]])
        >>> x, info = cg(a, np.asarray([1.0, 2.0]))
        >>> x.round(4), info
        (Array([0.0909, 0.6364], dtype=float64), Array(0, dtype=int32))
    """
    system = read_system("cg", A, b, x0, M)
    check_tolerances("cg", tol=tol, atol=atol)
    most = to_maxiter("cg", maxiter, system)

    def solve(
        matvec: LinearMap, precondition: LinearMap | None, b: Vector, x: Vector, factor: Any
    ) -> tuple[Vector, Vector]:
        limit = _limit(tol, el.multiply(atol, factor), b)
        r = axpy(-1, matvec(x), b)
        z = precondition(r) if precondition else r
        first = (x, r, z, dot(r, z), squares(r), _count(0))

        def step(carry: Any) -> Any:
            x, r, p, gamma, _, k = carry
            q = matvec(p)
            alpha = gamma / dot(p, q)
            x, r = axpy(alpha, p, x), axpy(-alpha, q, r)
            z = precondition(r) if precondition else r
            following = dot(r, z)
            return x, r, axpy(following / gamma, p, z), following, squares(r), k + 1

        last = while_loop(lambda c: (c[4] > limit) & (c[5] < most), step, first)
        return last[0], [info_of(is_solved(last[4], limit), last[5])]

    return system.solve(_in_range(solve))


def _ratio(x: Any, y: Any) -> Any:
    """x / y, and 0 where y is 0."""
    return el.where(y == 0, 0, x / el.where(y == 0, 1, y))


@spelled
def bicgstab(
    A: Any, b: Any, x0: Any = None, *, tol: Any = 1e-5, atol: Any = 0.0, maxiter: int | None = None, M: Any = None,  # noqa: N803
) -> tuple[Any, Array]:  # fmt: skip
    """Solves A x = b by the stabilised biconjugate gradient method, for any square A (van der Vorst, 1992).

    The derivative is that of the solution: see `cg`.

    Args:
        A: (n, n) matrix, or a linear function of pytrees like b.
        b: the right-hand side, a pytree of arrays; integers become float32.
        x0: the first guess, like b; zeros by default. It has no derivative.
        tol: relative tolerance: the norm of the residual is at most max(tol · ‖b‖, atol) in the end.
        atol: absolute tolerance.
        maxiter: largest number of iterations, by default 10 times the number of unknowns.
        M: an approximate inverse of A, a matrix or a function.

    Returns:
        x, like b; and `info`, an int32: 0 where the residual is within the tolerance, else the number of iterations, or -10 or -11
        where the method broke down.

    Raises:
        ShapeError, TreeError: A, b, x0 and M do not fit together.
        ArgumentError: a tolerance or maxiter is negative.

    Example:
        >>> x, info = bicgstab(np.asarray([[1.0, 2.0], [0.0, 4.0]]), np.asarray([5.0, 8.0]))
        >>> x.round(4)
        Array([1., 2.], dtype=float64)
    """
    system = read_system("bicgstab", A, b, x0, M)
    check_tolerances("bicgstab", tol=tol, atol=atol)
    most = to_maxiter("bicgstab", maxiter, system)

    def solve(
        matvec: LinearMap, precondition: LinearMap | None, b: Vector, x: Vector, factor: Any
    ) -> tuple[Vector, Vector]:
        limit = _limit(tol, el.multiply(atol, factor), b)
        start = axpy(-1, matvec(x), b)
        one = dot(start, start) * 0 + 1  # of the dtype of an inner product
        first = (x, start, one, one, one, start, start, squares(start), _count(0))

        def inverse(xs: Vector) -> Vector:
            return precondition(xs) if precondition else xs

        def step(carry: Any) -> Any:
            x, r, alpha, omega, rho, p, q, _, k = carry
            following = dot(start, r)
            beta = el.where(k == 0, 0, following / rho * alpha / omega)
            p = axpy(beta, axpy(-omega, q, p), r)
            direction = inverse(p)
            q = matvec(direction)
            alpha = _ratio(following, dot(start, q))  # 0 leaves x as it is
            s = axpy(-alpha, q, r)
            half = squares(s) <= limit
            second = inverse(s)
            t = matvec(second)
            omega = el.where(half | (alpha == 0), 0, _ratio(dot(t, s), dot(t, t)))
            x, r = axpy(omega, second, axpy(alpha, direction, x)), axpy(-omega, t, s)
            broken = (alpha == 0) | (~half & (omega == 0))
            k = el.where(following == 0, -10, el.where(broken, -11, k + 1))
            return x, r, alpha, omega, following, p, q, squares(r), k

        last = while_loop(lambda c: (c[7] > limit) & (c[8] < most) & (c[8] >= 0), step, first)
        size, k = last[7], last[8]
        return last[0], [el.where(k < 0, k, info_of(is_solved(size, limit), k))]

    return system.solve(_in_range(solve))


@spelled
def gmres(
    A: Any, b: Any, x0: Any = None, *, tol: Any = 1e-5, atol: Any = 0.0, restart: int = 20, maxiter: int | None = None,  # noqa: N803
    M: Any = None, solve_method: str = "batched",  # noqa: N803
) -> tuple[Any, Array]:  # fmt: skip
    """Solves A x = b by the generalised minimal residual method, for any square A (Saad and Schultz, 1986).

    The basis is made orthogonal twice (Arnoldi with classical Gram and Schmidt), and the small system is solved by rotations. The
    derivative is that of the solution: see `cg`.

    Args:
        A: (n, n) matrix, or a linear function of pytrees like b.
        b: the right-hand side, a pytree of arrays; integers become float32.
        x0: the first guess, like b; zeros by default. It has no derivative.
        tol: relative tolerance: the norm of the residual is at most max(tol · ‖b‖, atol) in the end; with M, that of M times the
            residual, relative to ‖M b‖.
        atol: absolute tolerance.
        restart: size of the basis, after which it is begun anew; memory is restart + 1 vectors.
        maxiter: largest number of bases, by default 10 times the number of unknowns.
        M: an approximate inverse of A, a matrix or a function.
        solve_method: "batched" makes each basis whole; "incremental" ends it where the residual is within the tolerance.

    Returns:
        x, like b; and `info`, an int32: 0 where the residual is within the tolerance, else the number of bases.

    Raises:
        ShapeError, TreeError: A, b, x0 and M do not fit together.
        ArgumentError: a tolerance, maxiter or restart is negative or 0, or there is no such solve_method.

    Example:
        >>> x, info = gmres(np.asarray([[1.0, 2.0], [0.0, 4.0]]), np.asarray([5.0, 8.0]))
        >>> x.round(4)
        Array([1., 2.], dtype=float64)
    """
    system = read_system("gmres", A, b, x0, M)
    check_tolerances("gmres", tol=tol, atol=atol)
    most = to_maxiter("gmres", maxiter, system)
    size = min(to_size(restart, "gmres", "restart"), system.size)
    if restart < 1:
        raise user_error(ArgumentError, "gmres", "restart is 0.", fix="give the size of the basis, 1 or more.")
    check_choice("gmres", "solve_method", solve_method, ("batched", "incremental"))

    def solve(
        matvec: LinearMap, precondition: LinearMap | None, b: Vector, x: Vector, factor: Any
    ) -> tuple[Vector, Vector]:
        return gmres_on(
            matvec, precondition, b, x, tol, el.multiply(atol, factor), size, most, whole=solve_method == "batched"
        )

    return system.solve(_in_range(solve))


def gmres_on(
    matvec: LinearMap, precondition: LinearMap | None, b: Vector, x: Vector, tol: Any, atol: Any = 0.0, size: int = 20,
    most: int = 1000, whole: bool = False,
) -> tuple[Vector, Vector]:  # fmt: skip
    """Returns the solution by GMRES and `info`, of flat values; see `gmres`. `whole` makes each basis of `size` vectors whole."""

    def inverse(xs: Vector) -> Vector:
        return precondition(xs) if precondition else xs

    norm, wanted = el.sqrt(squares(b)), el.sqrt(squares(inverse(b)))
    allowed = el.maximum(el.multiply(tol, norm), atol)
    limit = el.where(norm > 0, wanted * el.minimum(1, allowed / el.where(norm > 0, norm, 1)), 0)

    def residual(x: Vector) -> Vector:
        return inverse(axpy(-1, matvec(x), b))

    def step(carry: Any) -> Any:
        x, r, _, k = carry
        x = restarted(lambda v: inverse(matvec(v)), x, r, size, None if whole else limit)
        r = residual(x)
        return x, r, squares(r), k + 1

    r, square = residual(x), limit * limit
    last = while_loop(lambda c: (c[2] > square) & (c[3] < most), step, (x, r, squares(r), _count(0)))
    return last[0], [info_of(is_solved(last[2], square), last[3])]
