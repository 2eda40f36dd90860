"""The building blocks that optimizers are chained from: scaling, momentum, weight decay, trust ratios."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

import nnc.numpy as nnp
from nnc import tree
from nnc.array.array import Array, asarray
from nnc.array.promote import as_operand, astype
from nnc.base import dtypes
from nnc.calls.spelling import spelled
from nnc.errors import ArgumentTypeError, user_error
from nnc.optim.arguments import (
    Mask,
    Scalar,
    check_params,
    check_rate,
    check_scalar,
    check_scalars,
    check_state,
    mask_leaves,
)
from nnc.optim.base import (
    GradientTransformation,
    chain,
    leafwise,
    make_state,
    map_trainable,
    number,
    scalar,
    stateful,
    stateless,
    widen,
)
from nnc.optim.clipping import norm
from nnc.optim.schedules import Schedule
from nnc.typing import DTypeLike

__all__ = [
    "ScaleByScheduleState",
    "TraceState",
    "WeightDecaySchedule",
    "add_decayed_weights",
    "scale",
    "scale_by_learning_rate",
    "scale_by_schedule",
    "scale_by_trust_ratio",
    "trace",
]


def scaled(where: str, updates: Any, factor: Scalar) -> Any:
    """Every trainable leaf of `updates` times `factor`, in its own dtype."""

    def multiply(u: Array) -> Array:
        wide = widen(u)
        return astype(wide * number(factor, wide.dtype), u.dtype)

    return map_trainable(where, multiply, "updates", updates)


@spelled
def scale(step_size: Scalar) -> GradientTransformation:
    """Multiplies updates by a constant.

    u' = step_size · u

    Args:
        step_size: factor of each update.

    Example:
        >>> transformation = nnc.optim.scale(3.0)
        >>> transformation.update(nnp.asarray([1.0, 2.0]), transformation.init(nnp.zeros(2)))[0]
        Array([3., 6.], dtype=float32)
    """
    check_scalar("scale", "step_size", step_size, low=-np.inf)
    return stateless("scale", lambda updates, params: scaled("scale", updates, step_size))


class ScaleByScheduleState(NamedTuple):
    """The number of updates so far.

    Attributes:
        count: how many updates were made, a 0-d integer.

    Example:
        >>> state = nnc.optim.scale_by_schedule(lambda count: 0.5**count).init(nnp.ones(2))
        >>> state.count
        Array(0, dtype=int64)
    """

    count: Any


@spelled
def scale_by_schedule(step_size_fn: Schedule) -> GradientTransformation:
    """Multiplies updates by a function of how many updates were made before.

    u' = step_size_fn(t) · u,    t = 0, 1, …

    The count is an array in the state, so a compiled step is not traced again as it grows.

    Args:
        step_size_fn: the count of updates -> factor.

    Example:
        >>> transformation = nnc.optim.scale_by_schedule(lambda count: 0.5**count)
        >>> state = transformation.init(nnp.ones(1))
        >>> _, state = transformation.update(nnp.ones(1), state)
        >>> transformation.update(nnp.ones(1), state)[0]
        Array([0.5], dtype=float32)
    """
    if not callable(step_size_fn):
        problem = f"step_size_fn is {step_size_fn!r}, not a function of the count."
        fix = "use scale for constants, or one of the schedules, such as linear_schedule."
        raise user_error(ArgumentTypeError, "scale_by_schedule", problem, fix=fix)

    def init_fn(params: Any) -> ScaleByScheduleState:
        return ScaleByScheduleState(zero_count())

    def update_fn(updates: Any, state: Any, params: Any = None) -> tuple[Any, Any]:
        factor = step_size_fn(state.count)
        return scaled("scale_by_schedule", updates, factor), ScaleByScheduleState(state.count + 1)

    return stateful("scale_by_schedule", ScaleByScheduleState, init_fn, update_fn)


@spelled
def scale_by_learning_rate(learning_rate: Scalar | Schedule, *, flip_sign: bool = True) -> GradientTransformation:
    """Multiplies updates by minus the learning rate, the last link of every optimizer.

    u' = −η(t) · u

    Args:
        learning_rate: a number, a 0-d array, or a schedule: a function of the count of updates.
        flip_sign: False keeps the sign, for ascent.

    Example:
        >>> transformation = nnc.optim.scale_by_learning_rate(0.1)
        >>> transformation.update(nnp.asarray([1.0, -2.0]), transformation.init(nnp.zeros(2)))[0]
        Array([-0.1,  0.2], dtype=float32)
    """
    check_rate("scale_by_learning_rate", learning_rate)
    sign = -1 if flip_sign else 1
    if callable(learning_rate):
        return scale_by_schedule(lambda count: sign * scalar(learning_rate(count)))
    return scale(sign * learning_rate)


def stepping(
    where: str, learning_rate: Scalar | Schedule, *transformations: GradientTransformation
) -> GradientTransformation:
    """Returns the chain of transformations and steps of `learning_rate`, an argument of the optimizer `where`."""
    check_rate(where, learning_rate)
    return chain(*transformations, scale_by_learning_rate(learning_rate))


def zero_count() -> Array:
    """Returns a counter at zero."""
    return asarray(np.zeros((), np.int64))


class TraceState(NamedTuple):
    """The decaying sum of past updates, and where they are dampened how many there were.

    Attributes:
        trace: decaying sum of past updates, a tree like the parameters.
        count: how many updates there were, where they are dampened.

    Example:
        >>> state = nnc.optim.trace(0.9).init(nnp.ones(2))
        >>> state.trace
        Array([0., 0.], dtype=float32)
    """

    trace: Any
    count: Any = ()


@spelled
def trace(
    decay: Scalar, nesterov: bool = False, accumulator_dtype: DTypeLike | None = None, *, dampening: Scalar = 0.0
) -> GradientTransformation:
    """Adds momentum (Polyak 1964; Sutskever et al., "On the importance of initialization and momentum", 2013).

    m ← decay · m + (1 − dampening) · g,    u = m,  or with Nesterov's look-ahead  u = g + decay · m

    The first m is g itself, not dampened.

    Args:
        decay: in [0, 1).
        nesterov: look ahead.
        accumulator_dtype: dtype of m; default the parameter's, float32 for 16-bit floats.
        dampening: in [0, 1).

    Example:
        >>> transformation = nnc.optim.trace(0.9)
        >>> transformation.update(nnp.asarray([1.0, -2.0]), transformation.init(nnp.zeros(2)))[0]
        Array([ 1., -2.], dtype=float32)
    """
    check_scalar("trace", "decay", decay, below=1.0)
    check_scalar("trace", "dampening", dampening, below=1.0)

    dampened = not isinstance(dampening, (int, float)) or dampening != 0

    def init_fn(params: Any) -> TraceState:
        start = make_state("trace", lambda p: zeros_for(p, accumulator_dtype), params)
        return TraceState(start, zero_count()) if dampened else TraceState(start)

    def step(g: Array, m: Array) -> Array:
        wide = widen(m)
        ahead = astype(g, wide.dtype) + wide * number(decay, wide.dtype) if nesterov else wide
        return astype(ahead, g.dtype)

    def update_fn(updates: Any, state: Any, params: Any = None) -> tuple[Any, Any]:

        def accumulate(m: Array, g: Any) -> Array:
            wide = widen(m)
            g = astype(asarray(g), wide.dtype)
            if dampened:
                g = nnp.where(state.count == 0, g, g * (1 - number(dampening, wide.dtype)))
            return astype(wide * number(decay, wide.dtype) + g, m.dtype)

        moved = map_trainable("trace", accumulate, "trace", state.trace, updates=updates)
        count = state.count + 1 if dampened else ()
        return map_trainable("trace", step, "updates", updates, trace=moved), TraceState(moved, count)

    return stateful("trace", TraceState, init_fn, update_fn)


def zeros_for(p: Array, dtype: DTypeLike | None = None) -> Array:
    """Zeros that accumulate updates of the parameter `p`: written here, so that no step has to wait for their memory."""
    return asarray(np.full(p.shape, 0, dtypes.accumulator(p.dtype) if dtype is None else dtypes.as_dtype(dtype)))


class WeightDecaySchedule(NamedTuple):
    """The number of updates so far, where weights decay by a schedule.

    Attributes:
        count: how many updates were made, a 0-d integer.

    Example:
        >>> state = nnc.optim.add_decayed_weights(lambda count: 0.1).init(nnp.ones(2))
        >>> state.count
        Array(0, dtype=int64)
    """

    count: Any


@spelled
def add_decayed_weights(weight_decay: Scalar | Schedule = 0.0, mask: Mask = None) -> GradientTransformation:
    """Adds a multiple of the parameters to their updates.

    u' = u + weight_decay · p

    Before the gradient's moments this is L2 regularisation; after them it is decoupled weight decay (Loshchilov and Hutter,
    "Decoupled weight decay regularization", 2019).

    Args:
        weight_decay: factor of the parameters: a number, a 0-d array or a schedule.
        mask: a tree of bools like the parameters or a part of it from the root, or a function from parameters to one;
            only where it is True do weights decay.

    Raises:
        ArgumentTypeError (from update): params were not given.
        TreeError: the mask does not fit.

    Example:
        >>> decay = nnc.optim.add_decayed_weights(0.1, mask={"w": True, "b": False})
        >>> params = {"w": nnp.ones(1), "b": nnp.ones(1)}
        >>> decay.update({"w": nnp.zeros(1), "b": nnp.zeros(1)}, decay.init(params), params)[0]
        {'w': Array([0.1], dtype=float32), 'b': Array([0.], dtype=float32)}
    """
    if not callable(weight_decay):
        check_scalar("add_decayed_weights", "weight_decay", weight_decay)
    return decay_weights("add_decayed_weights", weight_decay, mask)


def decay_weights(where: str, weight_decay: Scalar | Schedule, mask: Mask) -> GradientTransformation:
    """Returns the transformation `add_decayed_weights`, for factors of either sign."""

    def decayed(updates: Any, params: Any, factor: Any) -> Any:
        check_params(where, params)

        def decay(u: Array, p: Any) -> Array:
            wide = widen(u)
            return astype(wide + astype(as_operand(p), wide.dtype) * number(factor, wide.dtype), u.dtype)

        all_decayed = map_trainable(where, decay, "updates", updates, params=params)
        if mask is None:
            return all_decayed
        chosen = mask_leaves(where, mask, params)
        before, after = tree.leaves(updates), tree.leaves(all_decayed)
        return tree.unflatten_like(updates, [a if on else b for on, a, b in zip(chosen, after, before, strict=True)])

    def update_fn(updates: Any, state: Any, params: Any = None) -> tuple[Any, Any]:
        check_state(where, state, WeightDecaySchedule)
        factor = scalar(weight_decay(state.count)) if callable(weight_decay) else weight_decay
        return decayed(updates, params, factor), WeightDecaySchedule(state.count + 1)

    if callable(weight_decay):
        return GradientTransformation(lambda params: WeightDecaySchedule(zero_count()), update_fn)
    return stateless(where, lambda updates, params: decayed(updates, params, weight_decay))


@spelled
def scale_by_trust_ratio(
    min_norm: Scalar = 0.0, trust_coefficient: Scalar = 1.0, eps: Scalar = 0.0
) -> GradientTransformation:
    """Gives each array an update in proportion to its own norm (You et al., "Large batch training", 2017; 2020).

    u' = trust_coefficient · ‖p‖ / (‖u‖ + eps) · u,  and u' = u where ‖p‖ or ‖u‖ is 0; norms count at least min_norm.

    Args:
        min_norm: least norm of parameters and updates that counts.
        trust_coefficient: factor of the ratio.
        eps: added to the norm of the updates.

    Raises:
        ArgumentTypeError (from update): params were not given.

    Example:
        >>> transformation = nnc.optim.scale_by_trust_ratio()
        >>> params = nnp.asarray([3.0, 4.0])
        >>> updates, state = transformation.update(nnp.asarray([1.0, -2.0]), transformation.init(params), params)
        >>> nnp.round(updates, 3)
        Array([ 2.236, -4.472], dtype=float32)
    """
    check_scalars("scale_by_trust_ratio", min_norm=min_norm, trust_coefficient=trust_coefficient, eps=eps)

    def rescale(u: Array, p: Any) -> Array:
        wide = widen(u)
        real = dtypes.real_dtype(wide.dtype)
        p_norm, u_norm = (
            nnp.maximum(norm(astype(as_operand(x), wide.dtype)), number(min_norm, real)) for x in (p, wide)
        )
        ratio = number(trust_coefficient, real) * p_norm / (u_norm + number(eps, real))
        either_zero = (p_norm == 0) | (u_norm == 0)
        return astype(wide * nnp.where(either_zero, astype(1.0, real), ratio), u.dtype)

    return leafwise("scale_by_trust_ratio", rescale, reads_params=True)
