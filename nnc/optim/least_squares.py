"""Least squares with numbers that are not negative, in compiled code; the name is Optax's."""

from __future__ import annotations

from typing import Any

import nnc.numpy as nnp
from nnc.array.array import Array
from nnc.array.promote import promote
from nnc.base import dtypes
from nnc.calls.spelling import spelled
from nnc.commands.elementwise import FLOAT
from nnc.commands.rules import check_dtype
from nnc.errors import ShapeError, user_error
from nnc.errors.errors import check_count
from nnc.numpy.operands import to_value
from nnc.optim.arguments import Scalar, check_scalar
from nnc.trace.loops.control_flow import fori_loop
from nnc.typing import ArrayLike

__all__ = ["nnls"]


@spelled
def nnls(
    A: ArrayLike, b: ArrayLike, iters: int, unroll: int | bool = 1, L: ArrayLike | None = None  # noqa: N803
) -> Array:  # fmt: skip
    """Finds x >= 0 with the least ‖A x − b‖², by projected gradients with Nesterov's momentum.

    The distance of the square from the least one falls as 1 / iters² (Polyak, Projected gradient method for non-negative least
    squares, 2015; Beck and Teboulle, 2009), and faster where A has full rank. Within a compiled function it is a loop of two
    kernels; called by itself, it takes some 0.2 ms for each iteration.

    Args:
        A: (m, n), real; integers become float32.
        b: (m,), or (m, k) for k problems at once.
        iters: how many iterations to do.
        unroll: how many of them to trace together; True for all.
        L: a number that is no smaller than the largest eigenvalue of Aᵀ A; that itself by default.

    Returns:
        (n,), or (n, k).

    Raises:
        ShapeError: the shapes do not fit.
        DTypeError: A or b is complex.
        ArgumentError: `iters` is no int of at least 0, or `L` is not positive.

    Example:
        >>> nnc.optim.nnls(nnp.asarray([[1.0, 0.0], [0.0, 1.0]]), nnp.asarray([5.0, -6.0]), 100)
        Array([5., 0.], dtype=float32)
    """
    where = "nnls"
    check_count(where, "iters", iters, "write iters=1000.", 0)
    matrix, target = (to_value(x, where) for x in promote(A, b, where=where, to=dtypes.to_float))
    check_dtype(where, matrix.spec, *FLOAT, "A")
    if matrix.ndim != 2 or target.ndim not in (1, 2) or matrix.shape[0] != target.shape[0]:
        problem = "A must be a matrix, and b have as many rows."
        fix = "pass (m, n) and (m,) or (m, k); nnc.vmap takes more axes."
        raise user_error(ShapeError, where, problem, operands={"A": matrix.spec, "b": target.spec}, fix=fix)
    if L is not None:
        check_scalar(where, "L", L, positive=True)
    product, goal = matrix.T @ matrix, matrix.T @ target
    bound: Scalar = nnp.linalg.eigvalsh(product)[-1] if L is None else L
    step = nnp.where(bound > 0, 1 / nnp.where(bound > 0, bound, 1), 0).astype(matrix.dtype)

    def iterate(i: Array, carry: tuple[Array, Array, Array]) -> tuple[Array, Array, Array]:
        x, ahead, momentum = carry
        following = nnp.maximum(ahead - step * (product @ ahead - goal), 0)
        later = (1 + nnp.sqrt(1 + 4 * momentum**2)) / 2
        return following, following + (momentum - 1) / later * (following - x), later

    start: Any = nnp.zeros_like(goal)
    solution, _, _ = fori_loop(0, iters, iterate, (start, start, nnp.ones((), goal.dtype)), unroll=unroll)
    return solution
