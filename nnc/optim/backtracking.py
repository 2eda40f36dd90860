"""A line search that shrinks the step until the value falls enough (Armijo, 1966)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

import nnc.numpy as nnp
from nnc.array.array import Array, asarray
from nnc.array.promote import as_operand, astype, with_weakness
from nnc.calls.spelling import spelled
from nnc.errors.errors import check_count
from nnc.optim.arguments import Scalar, check_function, check_params, check_scalar, check_scalars, check_state
from nnc.optim.base import GradientTransformationExtraArgs, make_state, map_trainable, scalar
from nnc.optim.base import number as as_number
from nnc.optim.totals import inner_product, shared
from nnc.optim.transforms import scaled, zero_count
from nnc.trace.core.differentiate import value_and_grad
from nnc.trace.loops.control_flow import while_loop

__all__ = ["BacktrackingLinesearchInfo", "ScaleByBacktrackingLinesearchState", "scale_by_backtracking_linesearch"]

_value_and_grad: Callable[..., Callable[..., tuple[Any, Any]]] = value_and_grad  # of functions without types


class BacktrackingLinesearchInfo(NamedTuple):
    """End of a search.

    Attributes:
        num_linesearch_steps: how many step sizes were tried.
        decrease_error: by how much the last one missed the decrease; 0 where it met it.

    Example:
        >>> state = nnc.optim.scale_by_backtracking_linesearch(10).init(nnp.ones(2))
        >>> state.info.num_linesearch_steps
        Array(0, dtype=int64)
    """

    num_linesearch_steps: Any
    decrease_error: Any


class ScaleByBacktrackingLinesearchState(NamedTuple):
    """The last step size, and value and gradient after it.

    Attributes:
        learning_rate: the last step size, a 0-d array.
        value: value of the function after the step.
        grad: its gradient there; None where it is not stored.
        info: how the search ended.

    Example:
        >>> state = nnc.optim.scale_by_backtracking_linesearch(10).init(nnp.ones(2))
        >>> state.learning_rate
        Array(1., dtype=float32)
    """

    learning_rate: Any
    value: Any
    grad: Any
    info: Any


@spelled
def scale_by_backtracking_linesearch(
    max_backtracking_steps: int, slope_rtol: Scalar = 1e-4, decrease_factor: Scalar = 0.8, increase_factor: Scalar = 1.5,
    max_learning_rate: Scalar = 1.0, atol: Scalar = 0.0, rtol: Scalar = 0.0, store_grad: bool = False,
) -> GradientTransformationExtraArgs:  # fmt: skip
    """Scales updates by the first step size s that meets Armijo's condition (Armijo, "Minimization of functions having Lipschitz
    continuous first partial derivatives", 1966).

    f(p + s · u) ≤ (1 + rtol) · f(p) + slope_rtol · s · ⟨u, ∇f(p)⟩ + atol
    s begins at min(increase_factor · the last s, max_learning_rate) and is multiplied by decrease_factor until it holds.

    The last link of a chain. Its `update` reads `value=`, `grad=` and `value_fn=`: the function that is minimised, its value and
    gradient at the parameters. Other keyword arguments are handed to value_fn. A step that would end at inf or nan is not made, and
    the next search begins at max_learning_rate.

    Args:
        max_backtracking_steps: how often the step size shrinks at most.
        slope_rtol: share of the slope that the decrease must reach.
        decrease_factor: by which the step size shrinks, in (0, 1).
        increase_factor: by which the last step size grows, at least 1; `np.inf` begins at max_learning_rate each time.
        max_learning_rate: largest step size.
        atol: by how much the condition may be missed.
        rtol: share of the value by which it may be missed.
        store_grad: keep the gradient after the step, for `value_and_grad_from_state`; costs a gradient in each update.

    Raises:
        ArgumentError: an argument lies outside its range.
        ArgumentTypeError (from update): params, value, grad or value_fn were not given.

    Example:
        >>> loss = lambda p: nnp.sum(p**2)
        >>> optimizer = nnc.optim.chain(nnc.optim.sgd(1.0), nnc.optim.scale_by_backtracking_linesearch(15))
        >>> params = nnp.asarray([3.0, 4.0])
        >>> value, grad = nnc.value_and_grad(loss)(params)
        >>> state = optimizer.init(params)
        >>> updates, state = optimizer.update(grad, state, params, value=value, grad=grad, value_fn=loss)
        >>> round(float(state[-1].learning_rate), 3)
        0.8
    """
    where = "scale_by_backtracking_linesearch"
    check_count(where, "max_backtracking_steps", max_backtracking_steps, "choose 15.")
    check_scalar(where, "decrease_factor", decrease_factor, positive=True, below=1.0)
    check_scalar(where, "increase_factor", increase_factor, low=1.0, infinite=True)
    check_scalar(where, "max_learning_rate", max_learning_rate, positive=True)
    check_scalars(where, slope_rtol=slope_rtol, atol=atol, rtol=rtol)

    def init_fn(params: Any) -> ScaleByBacktrackingLinesearchState:
        grad = make_state(where, nnp.zeros_like, params) if store_grad else None
        inf = shared(np.inf, params)
        info = BacktrackingLinesearchInfo(zero_count(), inf)
        return ScaleByBacktrackingLinesearchState(shared(1.0, params), inf, grad, info)

    def update_fn(
        updates: Any, state: Any, params: Any = None, *, value: Any = None, grad: Any = None, value_fn: Any = None,
        **arguments: Any,
    ) -> tuple[Any, Any]:  # fmt: skip
        check_state(where, state, ScaleByBacktrackingLinesearchState)
        check_params(where, params)
        check_function(where, value, grad, value_fn)
        dtype = state.learning_rate.dtype
        slope = astype(inner_product(where, "updates", updates, grad=grad), dtype)
        height = with_weakness(astype(scalar(value), dtype), False)

        def at(step: Array) -> Any:
            move = scaled(where, updates, step)
            return map_trainable(where, lambda p, u: p + astype(u, p.dtype), "params", params, updates=move)

        def error_of(step: Array, new: Array) -> Array:
            enough = (1 + as_number(rtol, dtype)) * height + step * as_number(slope_rtol, dtype) * slope
            error = new - enough
            return nnp.maximum(nnp.where(nnp.isnan(error), np.inf, error), 0)

        def searching(search: tuple[Any, ...]) -> Any:
            _, _, error, count = search
            return ~(error <= as_number(atol, dtype)) & (count <= max_backtracking_steps)

        def shrink(search: tuple[Any, ...]) -> tuple[Any, ...]:
            step, _, _, count = search
            step = nnp.where(count > 0, step * as_number(decrease_factor, dtype), step)
            new = astype(as_operand(value_fn(at(step), **arguments)), dtype)
            return step, new, error_of(step, new), count + 1

        most, last = as_number(max_learning_rate, dtype), state.learning_rate
        longer = nnp.where(last > 0, last, 1) * as_number(increase_factor, dtype)
        first = nnp.where(last > 0, nnp.minimum(longer, most), most)
        inf = nnp.zeros_like(height) + np.inf
        step, new, error, count = while_loop(searching, shrink, (first, height, inf, zero_count()))
        step = nnp.where(nnp.isinf(error), 0, step)
        if store_grad:
            new, after = _value_and_grad(lambda p: value_fn(p, **arguments))(at(step))
            new = astype(as_operand(new), dtype)
            after = map_trainable(where, lambda old, g: astype(asarray(g), old.dtype), "grad", state.grad, new=after)
        else:
            after = None
        info = BacktrackingLinesearchInfo(count, error)
        return scaled(where, updates, step), ScaleByBacktrackingLinesearchState(step, new, after, info)

    return GradientTransformationExtraArgs(init_fn, update_fn)
