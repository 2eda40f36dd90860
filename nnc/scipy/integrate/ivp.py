"""`solve_ivp`, which nnc.scipy.integrate shows: how its arguments are read, and the loop of static shapes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from nnc.array.array import Array
from nnc.array.promote import as_operand, astype, result_dtype
from nnc.base import dtypes
from nnc.calls.spelling import spelled
from nnc.commands.replay import check_strategy
from nnc.compiled.decorator import compile as compile_
from nnc.errors import ArgumentError, ArgumentTypeError, ShapeError, UnsupportedError, user_error
from nnc.errors.errors import check_choice
from nnc.graph import TensorSpec
from nnc.numpy import elementwise as el
from nnc.numpy.creation import asarray
from nnc.numpy.manipulation import moveaxis
from nnc.numpy.operands import in_dtype, known_or_none, to_value
from nnc.scipy.integrate.adjoint import solve_by_adjoint
from nnc.scipy.integrate.bdf import BDF
from nnc.scipy.integrate.explicit import RungeKutta
from nnc.scipy.integrate.radau import Radau
from nnc.scipy.integrate.solution import OdeResult
from nnc.scipy.integrate.stepping import prepare_events, step_by_step
from nnc.scipy.integrate.steps import Method, Problem, State, start
from nnc.scipy.integrate.tableaus import DOP853, RK23, RK45
from nnc.scipy.integrate.timetable import reach
from nnc.trace.core.differentiate import stop_gradient
from nnc.trace.core.flat import call_function, check_callable
from nnc.trace.core.staging import stage

_LEAST_TOLERANCE = 50  # units in the last place: rounding errors of a step stay below, and float32 takes 1e-5

METHODS: dict[str, Method] = {
    "RK23": RungeKutta(RK23), "RK45": RungeKutta(RK45), "DOP853": RungeKutta(DOP853), "Radau": Radau(),
    "BDF": BDF(),
}  # fmt: skip


@spelled
def solve_ivp(
    fun: Callable[..., Any], t_span: Any, y0: Any, method: str = "RK45", t_eval: Any = None, dense_output: bool = False,
    events: Any = None, *, args: tuple[Any, ...] | None = None, rtol: Any = 1e-3, atol: Any = 1e-6, max_step: Any = np.inf,
    first_step: Any = None, adjoint: bool = False, checkpoint: str | int | None = None,
) -> OdeResult:  # fmt: skip
    """Solves an initial value problem, dy/dt = fun(t, y) with y(t0) = y0, by SciPy's methods and steps.

    With `t_eval`, and without events and dense output, it runs in a `while_loop`: compiled, mapped, differentiated. Without, the
    number of steps makes shapes; steps are then made from Python, and values must be known: not within compile or vmap.

    Derivatives with regard to y0, args, t_span, t_eval and all values that `fun` reads from outside are those of the steps, whose
    lengths count as constants. With `adjoint=True`, reverse mode solves the adjoint equation backwards instead: memory does not
    grow with the number of steps, and the result is exact up to the tolerances. Times have no derivative then.

    Args:
        fun: fun(t, y, *args) -> the derivative of y, (n,).
        t_span: the first and the last time.
        y0: (n,), y at the first time; integers become float32. "Radau" and "BDF" take real numbers only.
        method: "RK23", "RK45" or "DOP853", explicit Runge-Kutta methods of orders 3, 5 and 8; "Radau", an implicit one of order 5
            for stiff problems (Hairer and Wanner, "Solving ordinary differential equations II", section IV.8); "BDF",
            implicit formulas of orders 1 to 5 for these, which solve one system a step where "Radau" solves two, and keep its
            factors while they can (Shampine and Reichelt, "The MATLAB ODE Suite", 1997).
        t_eval: (m,), the times of the result, within t_span and in its direction; by default the ends of all steps.
        dense_output: whether the result has the solution as a function, `sol`.
        events: event(t, y, *args) -> a scalar, or a list of these: times at which it is 0 are found. Where its attribute `terminal`
            is True, the integration ends there, after n times where it is n; where `direction` is 1 or -1, only rising or falling
            passages count. Times of events have derivatives.
        args: further arguments of fun and of events, a tuple.
        rtol: relative tolerance of a step's error; 50 units in the last place (6e-6 in float32) or more.
        atol: absolute tolerance, a number or (n,).
        max_step: longest step.
        first_step: length of the first step; chosen by default.
        adjoint: derivatives by the adjoint equation; needs t_eval. Not for stiff problems, whose solution cannot be followed
            backwards: the integration may take very long.
        checkpoint: residuals that are kept for the reverse pass through the steps, as for `nnc.while_loop`.

    Returns:
        OdeResult: t, y (n, m), sol, t_events, y_events, nfev, njev, nlu, status, success and message. Where a step failed, y is NaN
        from there on.

    Raises:
        ArgumentError: there is no such method, or a time, tolerance or step is out of range.
        ShapeError: y0 is no vector, or fun returns another shape.
        TraceError: values are not known, and the shapes of the result depend on them.

    Example:
        >>> decay = lambda t, y, k: -k * y
        >>> solve_ivp(decay, (0, 2), np.asarray([1.0]), t_eval=np.asarray([1.0, 2.0]), args=(0.5,), rtol=1e-8).y.round(4)
        Array([[0.6065, 0.3679]], dtype=float64)
        >>> at_end = lambda k: solve_ivp(decay, (0, 2), np.asarray([1.0]), t_eval=[2.0], args=(k,), rtol=1e-8).y[0, -1]
        >>> nnc.grad(at_end)(0.5).round(4)
        Array(-0.7358, dtype=float32)
    """
    problem, chosen, t, y, times, first = _read(fun, t_span, y0, method, t_eval, args, rtol, atol, max_step, first_step)
    check_strategy("solve_ivp", checkpoint)
    static = times is not None and events is None and not dense_output
    if adjoint and not static:
        reason = "the adjoint equation needs known times, and neither events nor dense output."
        raise user_error(UnsupportedError, "solve_ivp", reason, fix="pass t_eval alone, or leave out adjoint=True.")
    if not static or times is None:
        extra = () if args is None else tuple(args)
        found = None if events is None else prepare_events(events, extra)
        return step_by_step(chosen, problem, t, y, first, times, dense_output, found)
    if adjoint:
        return _result(times, *solve_by_adjoint(chosen, problem, t, y, first, times))

    def integrate(t: Array, y: Array, times: Array) -> tuple[Array, State]:
        return reach(chosen, problem, start(chosen, problem, t, y, first), times, checkpoint)

    return _result(times, *compile_(integrate)(t, y, times))  # at once, a loop would run command by command


def _result(times: Array, ys: Array, last: State) -> OdeResult:
    status = astype(el.where(last.failed, -1, 0), dtypes.int32)
    nfev, njev, nlu = (stop_gradient(x) for x in (last.nfev, last.njev, last.nlu))
    return OdeResult(times, moveaxis(ys, 0, -1), None, None, None, nfev, njev, nlu, status, status >= 0)


# -- arguments ---------------------------------------------------------------------------------------------------------


def _read(
    fun: Any,
    t_span: Any,
    y0: Any,
    method: Any,
    t_eval: Any,
    args: Any,
    rtol: Any,
    atol: Any,
    max_step: Any,
    first_step: Any,
) -> tuple[Problem, Method, Array, Array, Array | None, Any]:
    """Returns the problem, the method, the beginning, the times of the result and the first step, all of one precision."""
    where = "solve_ivp"
    check_callable(fun, where)
    check_choice(where, "method", method, METHODS)
    if args is not None and not isinstance(args, (tuple, list)):
        raise user_error(ArgumentTypeError, where, f"args is {args!r}.", fix="pass a tuple: args=(k,).")
    if (not isinstance(t_span, (tuple, list, np.ndarray)) and not hasattr(t_span, "spec")) or len(t_span) != 2:
        raise user_error(ArgumentError, where, f"t_span is {t_span!r}.", fix="pass the first and the last time.")
    y = to_value(y0, where, "y0")
    if y.spec.ndim != 1 or not y.spec.size:
        reason = "y0 must be a vector."
        raise user_error(ShapeError, where, reason, operands={"y0": y.spec}, fix="flatten it, and reshape y in fun.")
    ends = [as_operand(t, where, "t_span") for t in t_span]  # numbers keep all their digits
    times = None if t_eval is None else as_operand(t_eval, where, "t_eval")
    dtype = result_dtype(y, *ends, *([] if times is None else [times]), where=where)
    dtype = dtypes.accumulator(dtypes.to_float(dtype))
    own = () if args is None else tuple(args)

    def call(t: Any, y: Any) -> Any:
        result = call_function(
            fun, (t, y, *own), where=where, fix="define it as fun(t, y, *args), and pass args as a tuple."
        )
        return to_value(asarray(result) if isinstance(result, (list, tuple)) else result, where, "the result of fun")

    probe = [TensorSpec((), dtypes.real_dtype(dtype)), TensorSpec(y.spec.shape, dtype)]
    (out,) = stage(lambda t, y: [call(t, y)], probe, name="fun").graph.output_specs
    if out.shape != y.spec.shape:
        reason = "fun must return the derivative of each number of y."
        fix = "return a vector of the shape of y."
        raise user_error(ShapeError, where, reason, operands={"y": y.spec, "the result of fun": out}, fix=fix)
    if dtypes.is_inexact(out.dtype):
        dtype = result_dtype(np.zeros((), dtype), np.zeros((), out.dtype), where=where)
    if method in ("Radau", "BDF") and dtypes.is_complex(dtype):
        reason = f"{method!r} takes real numbers only."
        raise user_error(UnsupportedError, where, reason, fix="stack real and imaginary parts in y.")
    real = dtypes.real_dtype(dtype)
    first, last = (in_dtype(t, real, where, "t_span") for t in ends)
    times = None if times is None else in_dtype(times, real, where, "t_eval")
    _check_times(where, first, last, times)
    _check_steps(where, rtol, max_step, first_step, first, last, float(np.finfo(real).eps))
    direction = stop_gradient(el.where(last >= first, 1, -1))
    settings = ((rtol, "rtol"), (atol, "atol"), (max_step, "max_step"))
    numbers = [stop_gradient(in_dtype(x, real, where, name)) for x, name in settings]
    problem = Problem(lambda t, y: astype(call(t, y), dtype), last, astype(direction, real), *numbers)
    size = None if first_step is None else in_dtype(first_step, real, where, "first_step")
    return problem, METHODS[method], first, astype(y, dtype), times, size


def _check_times(where: str, first: Array, last: Array, times: Array | None) -> None:
    """Raises where known times are out of order; those of a trace cannot be checked."""
    if times is None:
        return
    if times.spec.ndim != 1 or not times.spec.size:
        problem = "t_eval must be a vector."
        raise user_error(ShapeError, where, problem, operands={"t_eval": times.spec}, fix="pass a list of times.")
    values, ends = known_or_none(times), [known_or_none(t) for t in (first, last)]
    if values is None:
        return
    if ends[0] is not None and ends[1] is not None:
        low, high = sorted(map(float, ends))  # type: ignore[arg-type]
        if not (values.min() >= low and values.max() <= high):
            problem = f"times of t_eval from {values.min()} to {values.max()} lie outside of t_span."
            raise user_error(ArgumentError, where, problem, fix=f"use times from {low} to {high}.")
        steps = np.diff(values) * (1 if ends[1] >= ends[0] else -1)
        if not (steps > 0).all():
            problem = "the times of t_eval are not in the order of t_span, each once."
            raise user_error(ArgumentError, where, problem, fix="sort them.")


def _check_steps(where: str, rtol: Any, max_step: Any, first_step: Any, first: Array, last: Array, eps: float) -> None:
    """Raises where known tolerances or steps are out of range."""

    def number(x: Any) -> float | None:
        if isinstance(x, (int, float)):
            return float(x)  # as given: not rounded to the precision of y
        value = None if x is None else known_or_none(to_value(x, where))
        return None if value is None or value.ndim else float(value)

    tolerance, most, size = number(rtol), number(max_step), number(first_step)
    least = _LEAST_TOLERANCE * eps
    if tolerance is not None and tolerance < least:
        problem = f"rtol is {tolerance}, less than rounding errors allow."
        raise user_error(ArgumentError, where, problem, fix=f"use {least:.2g} or more.")
    if most is not None and not most > 0:
        raise user_error(ArgumentError, where, f"max_step is {most}.", fix="use a positive number.")
    ends = number(first), number(last)
    length = None if ends[0] is None or ends[1] is None else abs(ends[1] - ends[0])
    if size is not None and (not size > 0 or (length is not None and size > length)):
        problem = f"first_step is {size}."
        raise user_error(ArgumentError, where, problem, fix="use a positive number, not longer than the interval.")
