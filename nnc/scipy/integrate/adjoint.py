"""Derivatives of initial value problems by the adjoint equation (Pontryagin, 1962; Chen et al., "Neural ordinary differential
equations", 2018): an integration backwards in time, which keeps no step of the one forwards.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from nnc.array.array import Array
from nnc.array.promote import astype
from nnc.base import dtypes
from nnc.commands.rules import is_differentiable
from nnc.errors import UnsupportedError, user_error
from nnc.graph import spec_of
from nnc.numpy import elementwise as el
from nnc.numpy.creation import zeros
from nnc.numpy.joining import concatenate
from nnc.numpy.manipulation import reshape
from nnc.scipy.integrate.steps import Method, Problem, State, start
from nnc.scipy.integrate.timetable import advance, reach
from nnc.trace.core.custom import custom_vjp
from nnc.trace.core.differentiate import stop_gradient, vjp
from nnc.trace.core.staging import stage
from nnc.trace.loops.control_flow import scan


def solve_by_adjoint(
    method: Method, problem: Problem, t: Array, y: Array, first_step: Any, times: Array
) -> tuple[Array, State]:
    """Returns the solution at times, (m, n), and the state at the end, whose counts have no derivative.

    Raises:
        UnsupportedError: y is complex.
    """
    if dtypes.is_complex(y.dtype):
        reason = "the adjoint equation is solved for real numbers only."
        fix = "stack real and imaginary parts in y, or leave out adjoint=True."
        raise user_error(UnsupportedError, "solve_ivp", reason, fix=fix)
    staged = stage(lambda t, y: [problem.fun(t, y)], [spec_of(t), spec_of(y)], name="fun")
    settings = [problem.end, problem.direction, problem.rtol, problem.atol, problem.max_step]
    fixed = [stop_gradient(x) for x in (t, times, *settings, *([] if first_step is None else [first_step]))]

    def with_values(values: Sequence[Any], settings: Sequence[Any]) -> Problem:
        return Problem(lambda t, y: staged.graph.evaluate([t, y, *values])[0], *settings)

    @custom_vjp
    def solve(y: Any, values: list[Any], fixed: list[Any]) -> tuple[Any, State]:
        t, times, *rest = fixed
        given = with_values(values, rest[:5])
        return reach(method, given, start(method, given, t, y, rest[5] if len(rest) > 5 else None), times)

    def forward(y: Any, values: list[Any], fixed: list[Any]) -> Any:
        ys, last = solve(y, values, fixed)
        return (ys, last), (ys, values, fixed)

    def backward(residuals: Any, cotangents: Any) -> tuple[Any, Any, Any]:
        ys, values, fixed = residuals
        found = _pull(
            method, with_values(values, fixed[2:7]), staged.graph, values, fixed[0], fixed[1], ys, cotangents[0]
        )
        return (*found, None)

    solve.defvjp(forward, backward)
    return solve(y, list(staged.captured), fixed)


def _pull(
    method: Method, problem: Problem, graph: Any, values: Sequence[Any], t: Any, times: Any, ys: Any, cts: Any
) -> tuple[Any, list[Any]]:
    """Returns the cotangents of y at the first time, and of the values that the function reads."""
    n, dtype = ys.shape[1], ys.dtype
    moving = [i for i, v in enumerate(values) if is_differentiable(spec_of(v))]
    sizes = [spec_of(values[i]).size for i in moving]
    places = [2 * n, *(2 * n + int(k) for k in np.cumsum(sizes))]

    def augmented(t: Any, z: Any) -> Any:
        def fun(y: Any, *some: Any) -> Any:
            all_values = list(values)
            for i, v in zip(moving, some, strict=True):
                all_values[i] = v
            return graph.evaluate([t, y, *all_values])[0]

        f, pull = vjp(fun, z[:n], *(values[i] for i in moving))
        found = [astype(reshape(ct, (-1,)), dtype) for ct in pull(z[n : 2 * n])]
        return concatenate([f, *(-ct for ct in found)])

    back = replace(problem, fun=augmented, direction=-problem.direction)
    if problem.atol.ndim:  # a tolerance for each number of y, which its cotangents share
        rest = zeros((sum(sizes),), dtype) + problem.atol.min()
        back = replace(back, atol=concatenate([problem.atol, problem.atol, rest]))

    def interval(carry: Any, row: Any) -> tuple[Any, None]:
        end, begin, y, ct = row
        z = concatenate([y, carry[:n] + ct, carry[n:]])
        own = replace(back, end=begin)
        last = advance(method, own, start(method, own, end, z, None), begin)
        return el.where(last.failed, np.nan, last.y[n:]), None

    before = concatenate([reshape(t, (1,)), times[:-1]])
    last, _ = scan(interval, zeros((n + sum(sizes),), dtype), (times, before, ys, cts), reverse=True)
    found: list[Any] = [zeros(spec_of(v).shape, spec_of(v).dtype) for v in values]
    for i, begin, end in zip(moving, places[:-1], places[1:], strict=True):
        found[i] = astype(reshape(last[begin - n : end - n], spec_of(values[i]).shape), spec_of(values[i]).dtype)
    return last[:n], found
