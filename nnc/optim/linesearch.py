"""A line search for the strong Wolfe conditions, as a link that scales updates (Nocedal and Wright, "Numerical optimization", 2006,
algorithms 3.5 and 3.6).

An iteration evaluates the function once: while no interval is known the step grows, then the interval shrinks around a minimum.
Decisions and defaults follow optax.scale_by_zoom_linesearch, so both make the same steps.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal, NamedTuple

import numpy as np

import nnc.numpy as nnp
from nnc import tree
from nnc.array.array import Array, asarray
from nnc.array.promote import as_operand, astype, result_dtype, with_weakness
from nnc.base import dtypes
from nnc.calls.spelling import spelled
from nnc.errors import ArgumentError, TreeError, user_error
from nnc.optim.arguments import Scalar, check_function, check_params, check_scalars, check_state, is_trainable
from nnc.optim.backtracking import ScaleByBacktrackingLinesearchState
from nnc.optim.base import GradientTransformationExtraArgs, make_state, map_trainable, scalar
from nnc.optim.precision import select_tree
from nnc.optim.transforms import scaled, zero_count
from nnc.trace.core.differentiate import value_and_grad
from nnc.trace.loops.branches import cond
from nnc.trace.loops.control_flow import while_loop

__all__ = ["ScaleByZoomLinesearchState", "ZoomLinesearchInfo", "scale_by_zoom_linesearch", "value_and_grad_from_state"]

_value_and_grad: Callable[..., Callable[..., tuple[Any, Any]]] = value_and_grad  # of functions without types

# -- trees as vectors --------------------------------------------------------------------------------------------------


def ravel(values: Any) -> Array:
    """Returns all trainable leaves as one vector, in the dtype they promote to; float32 for 16-bit floats."""
    leaves = [nnp.ravel(asarray(x)) for x in tree.leaves(values) if is_trainable(x)]
    if not leaves:
        return asarray(np.zeros(0, np.float32))
    dtype = dtypes.accumulator(result_dtype(*leaves, where="ravel"))
    return nnp.concatenate([astype(x, dtype) for x in leaves])


def unravel(like: Any, vector: Array) -> Any:
    """Returns the tree `like` with the parts of a vector as its trainable leaves, each in its own dtype."""
    start, leaves = 0, []
    for leaf in tree.leaves(like):
        if is_trainable(leaf):
            x = asarray(leaf)
            part = nnp.reshape(vector[start : start + x.size], x.shape)
            start += x.size
            leaf = astype(
                part if dtypes.is_complex(x.dtype) or not dtypes.is_complex(part.dtype) else part.real, x.dtype
            )
        leaves.append(leaf)
    return tree.unflatten_like(like, leaves)


def inner(x: Array, y: Array) -> Array:
    """Returns the real part of the inner product of two vectors."""
    product = nnp.sum(nnp.conj(x) * y)
    return product.real if dtypes.is_complex(product.dtype) else product


# -- the search --------------------------------------------------------------------------------------------------------


class LinePoint(NamedTuple):
    """A step along the line, the value there and its derivative along the line."""

    step: Any
    value: Any
    slope: Any


class _Safe(NamedTuple):
    """The best step so far that decreases the value enough."""

    step: Any
    value: Any
    grad: Any


class Search(NamedTuple):
    """The state that an iteration of the search hands to the next."""

    count: Any
    point: LinePoint  # the last step tried
    grad: Any
    low: LinePoint
    high: LinePoint
    reference: LinePoint  # the third point of the cubic
    safe: _Safe
    decrease_error: Any
    curvature_error: Any
    found: Any  # whether low and high enclose a good step
    done: Any
    failed: Any


class SearchRules(NamedTuple):
    """The conditions of a good step, and the limits of the search for one."""

    max_steps: int
    max_step: float | None
    tol: Scalar
    increase: Scalar
    slope_rtol: Scalar
    curv_rtol: Scalar
    approx_dec_rtol: Scalar | None
    precision: Scalar


def _errors(rules: SearchRules, start: LinePoint, point: LinePoint) -> tuple[Array, Array]:
    """Returns the violation of sufficient decrease and of small curvature by a step; 0 where it fulfils them."""
    decrease = point.value - start.value - rules.slope_rtol * point.step * start.slope
    if rules.approx_dec_rtol is not None:  # Hager and Zhang's condition, for values that differ in their last bits only
        by_slope = point.slope - (2 * rules.slope_rtol - 1.0) * start.slope
        by_value = point.value - start.value - rules.approx_dec_rtol * nnp.abs(start.value)
        decrease = nnp.minimum(nnp.maximum(by_slope, by_value), decrease)
    curvature = nnp.abs(point.slope) - rules.curv_rtol * nnp.abs(start.slope)
    positive = [nnp.where(nnp.isnan(e), np.inf, nnp.maximum(e, 0.0)) for e in (decrease, curvature)]
    return positive[0], positive[1]


def _within(low: LinePoint, high: LinePoint, reference: LinePoint) -> Array:
    """Returns a step between low and high: the minimum of a cubic, else of a parabola, else the middle."""
    left, right = nnp.minimum(low.step, high.step), nnp.maximum(low.step, high.step)
    width = right - left
    cubic, parabola = _cubic_minimum(low, high, reference), _parabola_minimum(low, high)
    cubic_fits = (cubic > left + 0.2 * width) & (cubic < right - 0.2 * width)
    parabola_fits = (parabola > left + 0.1 * width) & (parabola < right - 0.1 * width)
    middle = (low.step + high.step) / 2.0
    return nnp.where(cubic_fits, cubic, nnp.where(parabola_fits, parabola, middle))


def _cubic_minimum(a: LinePoint, b: LinePoint, c: LinePoint) -> Array:
    """Returns the minimum of the cubic through a with its slope, b and c."""
    db, dc = b.step - a.step, c.step - a.step
    scale = (db * dc) ** 2 * (db - dc)
    rest_b, rest_c = b.value - a.value - a.slope * db, c.value - a.value - a.slope * dc
    third = (dc**2 * rest_b - db**2 * rest_c) / scale
    second = (db**3 * rest_c - dc**3 * rest_b) / scale
    return a.step + (-second + nnp.sqrt(second * second - 3.0 * third * a.slope)) / (3.0 * third)


def _parabola_minimum(a: LinePoint, b: LinePoint) -> Array:
    """Returns the minimum of the parabola through a with its slope, and b."""
    db = b.step - a.step
    return a.step - a.slope / (2.0 * ((b.value - a.value - a.slope * db) / db**2))


def _grow(rules: SearchRules, s: Search, new: LinePoint, error: Array, decrease: Array, reached: Array) -> Search:
    """Returns the state after a step while no interval is known."""
    is_high = (decrease > 0.0) | ((new.value >= s.point.value) & (s.count > 0))
    is_low = (new.slope >= 0.0) & ~is_high
    low, high = select_tree(is_low, (new, s.point), (s.point, new))
    found = is_high | is_low | (error <= rules.tol)
    done = (error <= rules.tol) | (reached & ~found)
    return s._replace(low=low, high=high, reference=low, found=found, done=done, failed=_out_of_steps(rules, s) & ~done)


def _shrink(rules: SearchRules, s: Search, new: LinePoint, error: Array, decrease: Array, safe_step: Array) -> Search:
    """Returns the state after a step within the interval."""
    to_high = (decrease > 0.0) | (new.value >= s.low.value)
    flip = (new.slope * (s.high.step - s.low.step) >= 0.0) & ~to_high
    done = error <= rules.tol
    stuck = (nnp.abs(s.high.step - s.low.step) <= rules.precision) & (safe_step > 0.0)
    return s._replace(
        low=select_tree(to_high, s.low, new),
        high=select_tree(to_high, new, select_tree(flip, s.low, s.high)),
        reference=select_tree(to_high | flip, s.high, s.low),
        done=done, failed=(_out_of_steps(rules, s) | stuck) & ~done,
    )  # fmt: skip


def _out_of_steps(rules: SearchRules, s: Search) -> Array:
    return s.count + 1 >= rules.max_steps


def _round(rules: SearchRules, s: Search, start: LinePoint, guess: Array, evaluate: Callable[[Array], Any]) -> Search:
    """Tries one step."""
    larger = nnp.where(s.count == 0, guess, rules.increase * s.point.step)
    reached = asarray(False) if rules.max_step is None else larger >= rules.max_step
    if rules.max_step is not None:
        larger = nnp.minimum(larger, rules.max_step)
    step = nnp.where(s.found, _within(s.low, s.high, s.reference), larger)
    value, slope, grad = evaluate(step)
    new = LinePoint(step, value, slope)
    decrease, curvature = _errors(rules, start, new)
    error = nnp.maximum(decrease, curvature)
    better = (decrease <= rules.tol) & (~s.found | (value < s.safe.value))
    safe = select_tree(better, _Safe(step, value, grad), s.safe)
    grown = _grow(rules, s, new, error, decrease, reached)
    shrunk = _shrink(rules, s, new, error, decrease, safe.step)
    following: Search = select_tree(s.found, shrunk, grown)
    return following._replace(
        count=s.count + 1, point=new, grad=grad, safe=safe, decrease_error=decrease, curvature_error=curvature
    )


def search_step(
    rules: SearchRules, start: LinePoint, grad: Array, guess: Array, evaluate: Callable[[Array], Any]
) -> Search:
    """Returns the whole search; where it failed, the last safe step."""
    dtype = start.value.dtype
    zero, inf, no = (astype(asarray(x), dtype) for x in (0.0, np.inf, False))
    origin, no = start._replace(step=zero), asarray(False)
    first = Search(
        zero_count(), origin, grad, origin, origin, origin, _Safe(zero, start.value, grad), inf, inf, no, no, no
    )
    last: Search = while_loop(
        lambda s: ~(s.done | s.failed), lambda s: _round(rules, s, start, guess, evaluate), first
    )  # fmt: skip
    fall_back = last.failed & ((last.safe.step > 0.0) | nnp.isinf(last.decrease_error))
    here = _Safe(last.point.step, last.point.value, last.grad)
    chosen = select_tree(fall_back, last.safe, here)
    return last._replace(point=LinePoint(chosen.step, chosen.value, last.point.slope), grad=chosen.grad)


# -- the link ----------------------------------------------------------------------------------------------------------


class ZoomLinesearchInfo(NamedTuple):
    """The number of steps that were tried, and the violation of the two conditions by the last.

    Attributes:
        num_linesearch_steps: how many steps were tried.
        decrease_error: by how much the last misses the condition of decrease.
        curvature_error: by how much it misses the condition of curvature.

    Example:
        >>> state = nnc.optim.scale_by_zoom_linesearch(20).init(nnp.ones(2))
        >>> state.info.num_linesearch_steps
        Array(0, dtype=int64)
    """

    num_linesearch_steps: Any
    decrease_error: Any
    curvature_error: Any


class ScaleByZoomLinesearchState(NamedTuple):
    """The last step size; value and gradient of the function at the parameters that it leads to.

    Attributes:
        learning_rate: the last step size.
        value: the function at the parameters that it leads to.
        grad: its gradient there.
        info: how the search went.

    Example:
        >>> state = nnc.optim.scale_by_zoom_linesearch(20).init(nnp.ones(2))
        >>> state.learning_rate
        Array(1., dtype=float32)
    """

    learning_rate: Any
    value: Any
    grad: Any
    info: ZoomLinesearchInfo


@spelled
def scale_by_zoom_linesearch(
    max_linesearch_steps: int, max_learning_rate: float | None = None, tol: Scalar = 0.0, increase_factor: Scalar = 2.0,
    slope_rtol: Scalar = 1e-4, curv_rtol: Scalar = 0.9, approx_dec_rtol: Scalar | None = 1e-6,
    stepsize_precision: Scalar = 1e-5, initial_guess_strategy: Literal["one", "keep"] = "keep",
) -> GradientTransformationExtraArgs:  # fmt: skip
    """Scales updates by a step size s that meets the strong Wolfe conditions.

    f(p + s u) ≤ f(p) + slope_rtol · s · ⟨∇f(p), u⟩,    |⟨∇f(p + s u), u⟩| ≤ curv_rtol · |⟨∇f(p), u⟩|

    Its `update` takes `value=`, `grad=` and `value_fn=`: the function that is minimised, its value and gradient at `params`. Other
    keyword arguments are handed to value_fn.

    Args:
        max_linesearch_steps: most evaluations of value_fn.
        max_learning_rate: largest step size.
        tol: by how much the conditions may be missed.
        increase_factor: by which the step grows until an interval is found.
        slope_rtol: share of the slope that the decrease must reach.
        curv_rtol: share of the slope that may be left at the end.
        approx_dec_rtol: the relative tolerance of the approximate condition for tiny decreases; None: without it.
        stepsize_precision: shortest interval.
        initial_guess_strategy: begin with step size "one", or "keep" the last.

    Raises:
        ArgumentError: another initial_guess_strategy, or no steps.

    Example:
        >>> loss = lambda p: nnp.sum(p**2)
        >>> transformation = nnc.optim.scale_by_zoom_linesearch(20)
        >>> params = nnp.asarray([3.0, 4.0])
        >>> value, grad = nnc.value_and_grad(loss)(params)
        >>> extra = {"value": value, "grad": grad, "value_fn": loss}
        >>> transformation.update(-grad / 2, transformation.init(params), params, **extra)[0]
        Array([-3., -4.], dtype=float32)
    """
    where = "scale_by_zoom_linesearch"
    if initial_guess_strategy not in ("one", "keep") or max_linesearch_steps < 1:
        problem = f"initial_guess_strategy is {initial_guess_strategy!r}, max_linesearch_steps {max_linesearch_steps}."
        raise user_error(ArgumentError, where, problem, fix='choose "one" or "keep", and at least one step.')
    check_scalars(where, tol=tol, slope_rtol=slope_rtol, curv_rtol=curv_rtol)
    rules = SearchRules(
        max_linesearch_steps, max_learning_rate, tol, increase_factor, slope_rtol, curv_rtol, approx_dec_rtol,
        stepsize_precision,
    )  # fmt: skip

    def init_fn(params: Any) -> ScaleByZoomLinesearchState:
        inf = asarray(np.array(np.inf, _real(ravel(params).dtype)))
        one = astype(asarray(1.0), inf.dtype)
        zeros = make_state(where, nnp.zeros_like, params)
        return ScaleByZoomLinesearchState(one, inf, zeros, ZoomLinesearchInfo(zero_count(), inf, inf))

    def update_fn(
        updates: Any, state: Any, params: Any = None, *, value: Any = None, grad: Any = None, value_fn: Any = None,
        **arguments: Any,
    ) -> tuple[Any, Any]:  # fmt: skip
        check_state(where, state, ScaleByZoomLinesearchState)
        check_params(where, params)
        check_function(where, value, grad, value_fn)
        map_trainable(where, lambda u, p, g: u, "updates", updates, params=params, grad=grad)  # checks the shapes
        along, at, gradient = ravel(updates), ravel(params), ravel(grad)
        dtype = _real(at.dtype)
        along, gradient = astype(along, at.dtype), astype(gradient, at.dtype)

        def evaluate(step: Array) -> tuple[Array, Array, Array]:
            there = unravel(params, at + astype(step, at.dtype) * along)
            new_value, new_grad = _value_and_grad(lambda p: value_fn(p, **arguments))(there)
            flat = astype(ravel(new_grad), at.dtype)
            return astype(as_operand(new_value), dtype), astype(inner(nnp.conj(flat), along), dtype), flat

        start = LinePoint(
            astype(asarray(0.0), dtype),
            with_weakness(astype(scalar(value), dtype), False),
            astype(inner(along, gradient), dtype),
        )
        guess = state.learning_rate if initial_guess_strategy == "keep" else astype(asarray(1.0), dtype)
        last = search_step(rules, start, nnp.conj(gradient), guess, evaluate)
        info = ZoomLinesearchInfo(last.count, last.decrease_error, last.curvature_error)
        new_state = ScaleByZoomLinesearchState(last.point.step, last.point.value, unravel(state.grad, last.grad), info)
        return scaled(where, updates, last.point.step), new_state

    return GradientTransformationExtraArgs(init_fn, update_fn)


def _real(dtype: dtypes.DType) -> dtypes.DType:
    return dtypes.real_dtype(dtypes.accumulator(dtype))


@spelled
def value_and_grad_from_state(value_fn: Callable[..., Any]) -> Callable[..., tuple[Any, Any]]:
    """Like `nnc.value_and_grad`, but reads value and gradient from the state of a line search, which has them already.

    Args:
        value_fn: function of the parameters, whose value is a scalar.

    Returns:
        `f(params, *args, state, **kwargs) -> (value, grad)`; it evaluates value_fn only before the first update.

    Raises:
        TreeError (when called): the state holds no line search.

    Example:
        >>> loss = lambda p: nnp.sum((p - 3) ** 2)
        >>> optimizer = nnc.optim.lbfgs()
        >>> params = nnp.zeros(2)
        >>> state = optimizer.init(params)
        >>> for _ in range(2):
        ...     value, grad = nnc.optim.value_and_grad_from_state(loss)(params, state=state)
        ...     updates, state = optimizer.update(grad, state, params, value=value, grad=grad, value_fn=loss)
        ...     params = nnc.optim.apply_updates(params, updates)
        >>> params
        Array([3., 3.], dtype=float32)
    """

    def from_state(params: Any, *args: Any, state: Any, **kwargs: Any) -> tuple[Any, Any]:
        found = _find(state)
        if found is None:
            fix = (
                "give the state of nnc.optim.lbfgs(), or of a chain with scale_by_zoom_linesearch, or with "
                "scale_by_backtracking_linesearch(..., store_grad=True)."
            )
            raise user_error(TreeError, "value_and_grad_from_state", "the state holds no line search.", fix=fix)

        def fresh() -> tuple[Any, Any]:
            value, grad = _value_and_grad(value_fn)(params, *args, **kwargs)
            return astype(as_operand(value), found.value.dtype), grad

        stored: tuple[Any, Any] = cond(nnp.isfinite(found.value), lambda: (found.value, found.grad), fresh)
        return stored

    return from_state


def _find(state: Any) -> Any:
    """Returns the state of the first line search that keeps a gradient, in a nest of tuples and dicts."""
    if isinstance(state, (ScaleByZoomLinesearchState, ScaleByBacktrackingLinesearchState)) and state.grad is not None:
        return state
    parts = state.values() if isinstance(state, dict) else state if isinstance(state, tuple) else ()
    return next((found for found in map(_find, parts) if found is not None), None)
