"""Roots by Powell's hybrid method and fixed points, which nnc.scipy.optimize shows."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np

from nnc.array.array import Array
from nnc.array.promote import astype
from nnc.base import dtypes
from nnc.calls.spelling import spelled
from nnc.commands.lu import lu, unpack
from nnc.errors import ArgumentError, user_error
from nnc.errors.errors import check_choice
from nnc.numpy import elementwise as el
from nnc.numpy import linalg as la
from nnc.numpy.creation import arange
from nnc.numpy.operands import to_size
from nnc.numpy.reductions import all as all_
from nnc.numpy.reductions import max as max_
from nnc.numpy.searching import take
from nnc.scipy.optimize.problems import SOLVER, OptimizeResults, integer, read_options, read_problem
from nnc.trace.core.implicit import root as implicit_root
from nnc.trace.core.jacobian import jacfwd
from nnc.trace.loops.branches import cond
from nnc.trace.loops.control_flow import while_loop

_OPTIONS: dict[str, Any] = {"xtol": 1.49012e-8, "maxfev": None, "factor": 100.0}


class _State(NamedTuple):
    """A point of the hybrid method, its Jacobian, the radius that the model is trusted in, and MINPACK's counters."""

    x: Any
    f: Any
    jac: Any
    scale: Any  # largest norm of each column of a Jacobian so far
    radius: Any
    good: Any  # steps in succession that the model foresaw
    slow: Any  # steps in succession that decreased ‖f‖ by less than a thousandth
    nfev: Any
    njev: Any
    nit: Any
    status: Any


@spelled
def root(
    fun: Callable[..., Any], x0: Any, args: Any = (), *, method: str = "hybr", tol: float | None = None,
    options: Mapping[str, Any] | None = None,
) -> OptimizeResults:  # fmt: skip
    """Finds a root of a function: x with fun(x, *args) = 0.

    Powell's hybrid method steps towards Newton's point, and less far or down the gradient of ‖fun‖² where the linear model
    cannot be trusted (Moré, Garbow and Hillstrom, "User guide for MINPACK-1", 1980). The Jacobian is made anew at each point, by
    forward mode.

    x has derivatives with regard to `args` and all values that `fun` reads from outside: dx = −J⁻¹ d(fun), with the Jacobian J
    at x. The first guess has none.

    Args:
        fun: fun(x, *args) -> a pytree like x.
        x0: the first guess, a pytree of arrays; integers become float32.
        args: further arguments of fun, a tuple.
        method: "hybr".
        tol: relative error of x at which the search ends, for the option xtol.
        options: xtol (1.49e-8); maxfev: most evaluations of fun, by default 200 (n + 1); factor (100): of the first step's length.

    Returns:
        OptimizeResults. Its status is 1 for a root, 2 after maxfev evaluations, 3 where xtol is too small, 5 where ten steps led
        no further, 6 where fun is NaN or infinite.

    Raises:
        ArgumentError: there is no such method or option.
        ShapeError, TreeError: fun returns another shape than that of x.

    Example:
        >>> result = root(lambda x, a: x * x - a, np.asarray([1.0, 2.0]), (np.asarray([2.0, 9.0]),))
        >>> result.x.round(6)
        Array([1.414214, 3.      ], dtype=float64)
        >>> nnc.grad(lambda a: root(lambda x: x * x - a, np.asarray(1.0)).x)(np.asarray(4.0))
        Array(0.25, dtype=float64)
    """
    if method != "hybr":
        raise user_error(ArgumentError, "root", f"method is {method!r}.", fix='use "hybr".')
    given = read_options("root", options, _OPTIONS)
    if tol is not None and "xtol" not in (options or {}):
        given["xtol"] = tol
    problem, start = read_problem("root", fun, x0, args)
    most = 200 * (start.spec.size + 1) if given["maxfev"] is None else to_size(given["maxfev"], "root", "maxfev")

    def find(x: Array) -> list[Any]:
        last = _hybrid(problem.vector, x, given["xtol"], most, given["factor"])
        return [last.x, last.f, last.jac, last.status, last.nfev, last.njev, last.nit]

    (x,), (f, jac, status, nfev, njev, nit) = implicit_root(lambda v: [problem.vector(v)], find, SOLVER, [start])
    return OptimizeResults(problem.build(x), status == 1, status, problem.build(f), jac, None, nfev, njev, nit)


def _hybrid(fun: Callable[[Array], Array], x: Array, xtol: Any, most: int, factor: Any) -> _State:
    """MINPACK's hybrj with a Jacobian at each point that is accepted."""
    jacobian: Callable[[Array], Array] = jacfwd(fun)
    f, jac = fun(x), jacobian(x)
    scale = _norms(jac)
    scale = el.where(scale > 0, scale, 1)
    size = la.vector_norm(scale * x)
    radius = factor * el.where(size > 0, size, 1)
    eps = float(np.finfo(x.dtype).eps)

    def step(s: _State) -> _State:
        move = _dogleg(s.jac, s.f, s.scale, s.radius)
        length = la.vector_norm(s.scale * move)
        radius = el.where(s.nit == 0, el.minimum(s.radius, length), s.radius)
        x = s.x + move
        f = fun(x)
        old, new = la.vector_norm(s.f), la.vector_norm(f)
        actual = el.where(new < old, 1 - el.square(new / old), -1)
        left = la.vector_norm(s.f + la.matmul(s.jac, move))
        foreseen = el.where(left < old, 1 - el.square(left / old), 0)
        ratio = el.where(foreseen > 0, actual / el.where(foreseen > 0, foreseen, 1), 0)
        bad = ~(ratio >= 0.1)
        good = el.where(bad, 0, s.good + 1)
        longer = el.where((ratio >= 0.5) | (good > 1), el.maximum(radius, length / 0.5), radius)
        longer = el.where(el.abs(ratio - 1) <= 0.1, length / 0.5, longer)
        radius = el.where(bad, 0.5 * radius, longer)
        accepted = (ratio >= 1e-4) & all_(el.isfinite(f))
        slow = el.where(actual >= 1e-3, 0, s.slow + 1)
        x, f, residual = el.where(accepted, x, s.x), el.where(accepted, f, s.f), el.where(accepted, new, old)
        size = la.vector_norm(s.scale * x)
        nfev = s.nfev + 1
        status = el.where(slow >= 10, 5, 0)
        status = el.where(0.1 * el.maximum(0.1 * radius, length) <= eps * size, 3, status)
        status = el.where(nfev >= most, 2, status)
        status = el.where((radius <= xtol * size) | (residual == 0), 1, status)
        jac = cond(accepted & (status == 0), lambda: jacobian(x), lambda: s.jac)
        njev = s.njev + (accepted & (status == 0))
        broken = ~all_(el.isfinite(jac))
        return _State(
            x, f, el.where(broken, s.jac, jac), el.maximum(s.scale, _norms(jac)), radius, good, slow, nfev, njev,
            s.nit + 1, astype(el.where(broken, 6, status), dtypes.int32),
        )  # fmt: skip

    lost = ~(all_(el.isfinite(f)) & all_(el.isfinite(jac)))
    status = el.where(lost, 6, el.where(la.vector_norm(f) == 0, 1, 0))
    none = integer(0)
    first = _State(x, f, jac, scale, radius, none, none, integer(1), integer(1), none, astype(status, dtypes.int32))
    last: _State = while_loop(lambda s: s.status == 0, step, first)
    return last


def _norms(jac: Array) -> Array:
    return la.vector_norm(jac, axis=0)


def _dogleg(jac: Array, f: Array, scale: Array, radius: Array) -> Array:
    """Returns the step of scaled length `radius` or less that goes down the gradient and then towards Newton's point."""
    scaled = jac / scale
    newton = -solve_factored(factorise(scaled), f)
    slope = -la.matmul(f, scaled)
    steepness = la.vector_norm(slope)
    curvature = la.vector_norm(la.matmul(scaled, slope))
    safe = el.where(curvature > 0, curvature, 1)
    cauchy = (
        el.where(curvature > 0, el.square(steepness / safe), radius / el.where(steepness > 0, steepness, 1)) * slope
    )
    reach = la.vector_norm(cauchy)
    way = newton - cauchy
    a, b, c = (way * way).sum(), (cauchy * way).sum(), el.square(radius) - el.square(reach)
    root = el.sqrt(el.maximum(el.square(b) + a * c, 0))
    share = el.where(b > 0, c / el.where(b + root > 0, b + root, 1), (root - b) / el.where(a > 0, a, 1))
    between = cauchy + el.clip(share, 0, 1) * way
    short = cauchy * (radius / el.where(reach > 0, reach, 1))
    whole = la.vector_norm(newton) <= radius
    return el.where(whole, newton, el.where(reach < radius, between, short)) / scale


def factorise(x: Array) -> tuple[Array, Array, Array]:
    """Two triangles, and the order of the rows, of a matrix. Pivots of 0 become small numbers, so that no system is refused."""
    packed, _, rows = lu(x)
    lower, upper = unpack(packed)
    places = arange(x.spec.shape[0])
    diagonal = upper[places, places]
    largest = max_(el.abs(upper))
    least = float(np.finfo(x.dtype).eps) * el.where(largest > 0, largest, 1)
    return lower, upper.at[places, places].set(el.where(el.abs(diagonal) > least, diagonal, least)), rows


def solve_factored(factors: tuple[Array, Array, Array], b: Array) -> Array:
    """Returns the solution of the system of a factorised matrix: long where it is singular."""
    lower, upper, rows = factors
    y = la.solve_triangular(lower, take(b, rows), lower=True, unit_diagonal=True)
    return la.solve_triangular(upper, y, lower=False)


@spelled
def fixed_point(
    func: Callable[..., Any], x0: Any, args: Any = (), xtol: float = 1e-8, maxiter: int = 500, method: str = "del2"
) -> Any:
    """Finds a fixed point of a function: x with func(x, *args) = x.

    x has derivatives with regard to `args` and all values that `func` reads from outside: dx = (1 − J)⁻¹ d(func), with the
    Jacobian J at x. The first guess has none.

    Args:
        func: func(x, *args) -> a pytree like x.
        x0: the first guess, a pytree of arrays; integers become float32.
        args: further arguments of func, a tuple.
        xtol: largest relative change of a number in the last iteration.
        maxiter: largest number of iterations.
        method: "del2" accelerates each number by Aitken's Δ² (Steffensen's method, two evaluations an iteration); "iteration" only
            repeats func.

    Returns:
        x, like x0.

    Raises:
        ArgumentError: there is no such method; or the change is still larger than xtol after maxiter iterations.
        ShapeError, TreeError: func returns another shape than that of x.

    Example:
        >>> fixed_point(lambda x: nnp.cos(x), np.asarray(1.0)).round(6)
        Array(0.739085, dtype=float64)
    """
    check_choice("fixed_point", "method", method, ("del2", "iteration"))
    problem, start = read_problem("fixed_point", func, x0, args)
    most = to_size(maxiter, "fixed_point", "maxiter")

    def step(carry: Any) -> Any:
        x, _ = carry
        new = one = problem.vector(x)
        if method == "del2":
            two = problem.vector(one)
            bend = two - 2 * one + x
            new = el.where(bend != 0, x - el.square(one - x) / el.where(bend != 0, bend, 1), two)
        change = el.where(x != 0, (new - x) / el.where(x != 0, x, 1), new)
        return new, max_(el.abs(change))

    def find(x: Array) -> list[Any]:
        far = x[0] * 0 + np.inf
        return [while_loop(lambda c: ~(c[1] < xtol), step, (x, far), max_steps=most)[0]]

    (x,), _ = implicit_root(lambda v: [problem.vector(v) - v], find, SOLVER, [start])
    return problem.build(x)
