"""Minimisation by BFGS and L-BFGS, which nnc.scipy.optimize shows."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from nnc.array.array import Array
from nnc.array.promote import astype
from nnc.base import dtypes
from nnc.calls.spelling import spelled
from nnc.errors import ArgumentError, user_error
from nnc.numpy import elementwise as el
from nnc.numpy import linalg as la
from nnc.numpy.creation import zeros
from nnc.numpy.matrices import eye
from nnc.numpy.operands import to_size
from nnc.numpy.reductions import all as all_
from nnc.optim.lbfgs import push_row, reciprocal, times_inverse_hessian
from nnc.optim.linesearch import LinePoint, SearchRules, inner, search_step
from nnc.scipy.optimize.problems import SOLVER, OptimizeResults, integer, read_options, read_problem
from nnc.trace.core.differentiate import grad, value_and_grad
from nnc.trace.core.implicit import root as implicit_root
from nnc.trace.loops.control_flow import while_loop

_OPTIONS: dict[str, dict[str, Any]] = {
    "bfgs": {"gtol": 1e-5, "norm": math.inf, "maxiter": None, "line_search_maxiter": 20},
    "l-bfgs": {
        "gtol": 1e-5, "ftol": 2.220446049250313e-09, "norm": math.inf, "maxiter": 15000, "maxcor": 10,
        "line_search_maxiter": 20,
    },
}  # fmt: skip


class _State(NamedTuple):
    """The point of an iteration, and the curvature that the steps to it have shown."""

    x: Any
    value: Any
    slope: Any  # the gradient
    before: Any  # the value of the iteration before
    curvature: Any
    nit: Any
    nfev: Any
    status: Any  # SciPy's; -1 while the search goes on


class _Method(NamedTuple):
    """A quasi-Newton method: its curvature at first, the product of the inverse Hessian with a vector, and the update."""

    first: Callable[[Array], Any]
    direction: Callable[[Any, Array], Array]
    # (curvature, step, change of the gradient, number of the iteration)
    update: Callable[[Any, Array, Array, Array], Any]


@spelled
def minimize(
    fun: Callable[..., Any], x0: Any, args: Any = (), *, method: str = "BFGS", tol: float | None = None,
    options: Mapping[str, Any] | None = None,
) -> OptimizeResults:  # fmt: skip
    """Finds a local minimum of a function by a quasi-Newton method, with a line search for the strong Wolfe conditions.

    x and fun have derivatives with regard to `args` and all values that `fun` reads from outside: dx = −H⁻¹ d(∇fun), with the
    Hessian H at x. They are exact as far as the gradient at x is 0. The first guess has none.

    Args:
        fun: fun(x, *args) -> a real scalar.
        x0: the first guess, a pytree of arrays; integers become float32.
        args: further arguments of fun, a tuple.
        method: "BFGS" keeps an (n, n) matrix (Nocedal and Wright, "Numerical optimization", 2006, algorithm 6.1); "L-BFGS" keeps
            the last steps (algorithm 7.4).
        tol: the tolerance for the gradient, which sets the option gtol; for L-BFGS also ftol.
        options: gtol (1e-5): largest norm of the gradient at the minimum; norm (infinity): the order of that norm; maxiter: largest
            number of iterations (BFGS: 200 n, L-BFGS: 15000); line_search_maxiter (20): most evaluations for one step; of L-BFGS,
            maxcor (10): how many steps are kept, and ftol (2.2e-9): smallest decrease, relative to max(|f|, 1).

    Returns:
        OptimizeResults. Its status is 0 where a tolerance is met, 1 after maxiter iterations, 2 where no step decreases the
        function any more, 3 where it is NaN.

    Raises:
        ArgumentError: there is no such method or option.
        ShapeError: fun returns no scalar.

    Example:
        >>> rosenbrock = lambda x, a: (a - x[0]) ** 2 + 100 * (x[1] - x[0] ** 2) ** 2
        >>> result = minimize(rosenbrock, np.zeros(2), (1.0,))
        >>> result.x.round(4), bool(result.success)
        (Array([1., 1.], dtype=float64), True)
        >>> nnc.jacfwd(lambda a: minimize(rosenbrock, np.zeros(2), (a,), tol=1e-9).x)(1.0).round(4)
        Array([1., 2.], dtype=float64)
    """
    kind = method.lower() if isinstance(method, str) else method
    if kind not in _OPTIONS:
        fix = 'use "L-BFGS", which takes no bounds.' if kind == "l-bfgs-b" else 'use "BFGS" or "L-BFGS".'
        raise user_error(ArgumentError, "minimize", f"method is {method!r}.", fix=fix)
    given = read_options("minimize", options, _OPTIONS[kind])
    if tol is not None:
        given.update((name, tol) for name in ("gtol", "ftol") if name in given and name not in (options or {}))
    problem, start = read_problem("minimize", fun, x0, args)
    n = start.spec.size
    most = 200 * n if given["maxiter"] is None else to_size(given["maxiter"], "minimize", "maxiter")
    search = to_size(given["line_search_maxiter"], "minimize", "line_search_maxiter")
    if search < 1:
        raise user_error(ArgumentError, "minimize", "line_search_maxiter is 0.", fix="give 1 or more.")
    chosen = _bfgs(n) if kind == "bfgs" else _lbfgs(to_size(given["maxcor"], "minimize", "maxcor"), n)

    def find(x: Array) -> list[Any]:
        last = _descend(problem.scalar, x, chosen, given, most, search)
        rest = [last.curvature] if kind == "bfgs" else []
        return [last.x, last.slope, last.status, last.nfev, last.nit, *rest]

    (x,), (slope, status, nfev, nit, *rest) = implicit_root(
        lambda v: [grad(problem.scalar)(v)], find, SOLVER, [start]
    )  # fmt: skip
    value = problem.scalar(x)  # once more, for its derivative
    return OptimizeResults(
        problem.build(x), status == 0, status, value, problem.build(slope), rest[0] if rest else None, nfev, nfev, nit
    )


def _descend(
    fun: Callable[[Array], Any], x: Array, method: _Method, options: Mapping[str, Any], most: int, search: int
) -> _State:
    """Steps along quasi-Newton directions until a tolerance is met, or no step helps."""
    evaluate: Callable[[Array], tuple[Array, Array]] = value_and_grad(fun)
    rules = SearchRules(search, None, 0.0, 2.0, 1e-4, 0.9, 1e-6, 1e-10)

    def met(slope: Array) -> Array:
        return la.vector_norm(slope, ord=options["norm"]) <= options["gtol"]

    def step(s: _State) -> _State:
        along = -method.direction(s.curvature, s.slope)
        descent = inner(along, s.slope)

        def at(size: Array) -> tuple[Array, Array, Array]:
            value, slope = evaluate(s.x + size * along)
            return value, inner(slope, along), slope

        # SciPy's first step: the decrease is expected to be that of the iteration before.
        guess = el.minimum(1.0, 1.01 * 2 * (s.value - s.before) / descent)
        guess = el.where((guess > 0) & (descent < 0), guess, 1.0)
        found = search_step(rules, LinePoint(s.value * 0, s.value, descent), s.slope, guess, at)
        moved = found.point.step * along
        value, slope = found.point.value, found.grad
        lost = el.isnan(value) | ~all_(el.isfinite(slope))
        stuck = ~(descent < 0) | (found.failed & ~(value < s.value))
        curvature = method.update(s.curvature, moved, slope - s.slope, s.nit)
        status = el.where(lost, 3, el.where(met(slope), 0, el.where(stuck, 2, el.where(s.nit + 1 >= most, 1, -1))))
        if "ftol" in options:
            scale = el.maximum(el.maximum(el.abs(s.value), el.abs(value)), 1)
            small = ~lost & ~stuck & (s.value - value <= options["ftol"] * scale)
            status = el.where(small, 0, status)
        kept = stuck & ~lost  # the last point stays
        return _State(
            el.where(kept, s.x, s.x + moved), el.where(kept, s.value, value), el.where(kept, s.slope, slope), s.value,
            curvature, s.nit + 1, s.nfev + astype(found.count, dtypes.int32), astype(status, dtypes.int32),
        )  # fmt: skip

    value, slope = evaluate(x)
    lost = el.isnan(value) | ~all_(el.isfinite(slope))
    status = el.where(lost, 3, el.where(met(slope), 0, -1 if most else 1))
    first = _State(
        x,
        value,
        slope,
        value + la.vector_norm(slope) / 2,
        method.first(x),
        integer(0),
        integer(1),
        astype(status, dtypes.int32),
    )
    last: _State = while_loop(lambda s: s.status < 0, step, first)
    return last


def _bfgs(n: int) -> _Method:
    def update(h: Array, s: Array, y: Array, _: Array) -> Array:
        """(1 − ρ s yᵀ) H (1 − ρ y sᵀ) + ρ s sᵀ, where the curvature is positive."""
        product = inner(y, s)
        rho, hy = reciprocal(product), la.matmul(h, y)
        new = h + (rho * rho * (product + inner(y, hy))) * la.outer(s, s) - rho * (la.outer(hy, s) + la.outer(s, hy))
        return el.where(product > 0, new, h)

    return _Method(lambda x: eye(n, dtype=x.dtype), la.matmul, update)


def _lbfgs(memory: int, n: int) -> _Method:
    """Returns the last steps and changes of the gradient, oldest first, 1 / ⟨step, change⟩ of each, and the size of the last."""
    if not memory:
        raise user_error(ArgumentError, "minimize", "maxcor is 0.", fix="keep one step or more; 10 is usual.")

    def first(x: Array) -> Any:
        rows = zeros((memory, n), x.dtype)
        return rows, rows, zeros(memory, x.dtype), x[0] * 0 + 1

    def update(kept: Any, s: Array, y: Array, _: Array) -> Any:
        steps, changes, weights, size = kept
        product, squares = inner(y, s), inner(y, y)
        new = (
            push_row(steps, s),
            push_row(changes, y),
            push_row(weights, reciprocal(product)),
            product * reciprocal(squares),
        )
        counts = (product > 0) & (squares > 0)
        return tuple(el.where(counts, a, b) for a, b in zip(new, (steps, changes, weights, size), strict=True))

    return _Method(first, lambda kept, g: times_inverse_hessian(g, *kept), update)
