"""Schedule-free optimizers: averages of the iterates in place of a schedule of the learning rate."""

from __future__ import annotations

from typing import Any, NamedTuple, TypeVar

import nnc.numpy as nnp
from nnc.array.array import Array, asarray
from nnc.array.promote import as_operand, astype
from nnc.base import dtypes
from nnc.calls.spelling import spelled
from nnc.optim.arguments import Scalar, check_params, check_rate, check_scalar, check_state
from nnc.optim.base import (
    GradientTransformation,
    chain,
    check_transformation,
    extended,
    make_state,
    map_trainable,
    number,
    run_update,
    widen,
)
from nnc.optim.moments import scale_by_rms
from nnc.optim.optimizers import sgd
from nnc.optim.schedules import Schedule, warmup_constant_schedule
from nnc.optim.totals import rate_at, shared
from nnc.optim.transforms import add_decayed_weights, scale_by_learning_rate, zero_count
from nnc.typing import DTypeLike

__all__ = [
    "ScheduleFreeState",
    "schedule_free",
    "schedule_free_adamw",
    "schedule_free_eval_params",
    "schedule_free_sgd",
]

P = TypeVar("P")


class ScheduleFreeState(NamedTuple):
    """The fast iterate, the weights of the average, the state of the base optimizer.

    Attributes:
        b1: weight of the average in the point where gradients are taken, a 0-d array.
        weight_sum: sum of the weights of all iterates so far, a 0-d array.
        step_count: number of the next update, from 1.
        max_lr: the greatest learning rate so far, a 0-d array.
        base_optimizer_state: state of the base optimizer.
        z: the fast iterate, a tree like the parameters.

    Example:
        >>> state = nnc.optim.schedule_free_sgd(0.1).init(nnp.ones(2))
        >>> state.z
        Array([1., 1.], dtype=float32)
    """

    b1: Any
    weight_sum: Any
    step_count: Any
    max_lr: Any
    base_optimizer_state: Any
    z: Any


@spelled
def schedule_free_eval_params(state: ScheduleFreeState, params: P) -> P:
    """Returns the average of the iterates, the parameters to evaluate and to keep: x = (y − (1 − b1) · z) / b1.

    Args:
        state: the state of `schedule_free`, or of one of the optimizers made of it.
        params: y, the parameters of training, at which gradients are taken.

    Example:
        >>> optimizer = nnc.optim.schedule_free_sgd(0.5)
        >>> params = nnp.ones(1)
        >>> state = optimizer.init(params)
        >>> for _ in range(2):
        ...     updates, state = optimizer.update(nnp.ones(1), state, params)
        ...     params = nnc.optim.apply_updates(params, updates)
        >>> nnc.optim.schedule_free_eval_params(state, params)  # the mean of 0.5 and 0
        Array([0.25], dtype=float32)
    """
    where = "schedule_free_eval_params"
    check_state(where, state, ScheduleFreeState)

    def average(y: Array, z: Any) -> Array:
        wide = widen(y)
        return astype(_average(wide, z, number(state.b1, wide.dtype)), y.dtype)

    return map_trainable(where, average, "params", params, z=state.z)


def _average(y: Array, z: Any, b1: Any) -> Array:
    """x of y = b1 · x + (1 − b1) · z."""
    return (y - astype(as_operand(z), y.dtype) * (1 - b1)) / b1


@spelled
def schedule_free(
    base_optimizer: GradientTransformation, learning_rate: Scalar | Schedule, b1: Scalar = 0.9,
    weight_lr_power: Scalar = 2.0, state_dtype: DTypeLike | None = None,
) -> GradientTransformation:  # fmt: skip
    """Trains without a schedule, by averaging iterates (Defazio et al., "The road less scheduled", 2024).

    z ← z + u(∇f(y)),    x ← (1 − c) · x + c · z,    y = b1 · x + (1 − b1) · z
    c = w / (sum of all w so far),    w = (the greatest learning rate so far) ^ weight_lr_power

    The parameters of training are y. Evaluate and keep x = `schedule_free_eval_params(state, params)`.

    Args:
        base_optimizer: gives u; it should have no momentum of its own, as b1 takes its place.
        learning_rate: the learning rate of the base optimizer, which has it already: here it weights the iterates. A schedule
            is called with the number of the update, from 1.
        b1: in (0, 1].
        weight_lr_power: power of the learning rate in the weights; 0 weights all iterates alike.
        state_dtype: dtype of z; default the parameter's, float32 for 16-bit floats.

    Raises:
        ArgumentTypeError (from update): params were not given.

    Example:
        >>> optimizer = nnc.optim.schedule_free(nnc.optim.sgd(0.5), learning_rate=0.5)
        >>> optimizer.update(nnp.ones(1), optimizer.init(nnp.ones(1)), nnp.ones(1))[0]
        Array([-0.5], dtype=float32)
    """
    where = "schedule_free"
    check_transformation(where, "base_optimizer", base_optimizer)
    check_rate(where, learning_rate)
    check_scalar(where, "b1", b1, positive=True)
    check_scalar(where, "weight_lr_power", weight_lr_power)

    def start(p: Array) -> Array:
        return nnp.copy(astype(p, dtypes.accumulator(p.dtype) if state_dtype is None else dtypes.as_dtype(state_dtype)))

    def init_fn(params: Any) -> ScheduleFreeState:
        return ScheduleFreeState(
            shared(b1, params), shared(0.0, params), zero_count() + 1, shared(0.0, params), base_optimizer.init(params),
            make_state(where, start, params),
        )  # fmt: skip

    def update_fn(updates: Any, state: Any, params: Any = None, **extra: Any) -> tuple[Any, Any]:
        check_state(where, state, ScheduleFreeState)
        check_params(where, params)
        dtype = state.max_lr.dtype
        rate = nnp.maximum(state.max_lr, rate_at(learning_rate, state.step_count, dtype))
        weight = rate ** number(weight_lr_power, dtype)
        weights = state.weight_sum + weight
        none = weights == 0
        share = nnp.where(none, 0, weight / nnp.where(none, 1, weights))
        steps, base_state = run_update(base_optimizer, updates, state.base_optimizer_state, params, extra)

        def move(z: Array, u: Any) -> Array:
            wide = widen(z)
            return astype(wide + astype(as_operand(u), wide.dtype), z.dtype)

        z = map_trainable(where, move, "z", state.z, updates=steps)

        def step(u: Array, y: Any, old: Array, new: Array) -> Array:
            wide = widen(asarray(y))
            weight, c = number(state.b1, wide.dtype), number(share, wide.dtype)
            new = astype(new, wide.dtype)
            x = _average(wide, old, weight) * (1 - c) + new * c
            return astype(x * weight + new * (1 - weight) - wide, u.dtype)

        u = map_trainable(where, step, "updates", steps, params=params, old=state.z, z=z)
        return u, ScheduleFreeState(state.b1, weights, state.step_count + 1, rate, base_state, z)

    return extended(init_fn, update_fn, base_optimizer)


def _warmed_up(where: str, learning_rate: Any, warmup_steps: int | None) -> Any:
    if warmup_steps is None:
        check_rate(where, learning_rate)
        return learning_rate
    check_scalar(where, "learning_rate", learning_rate)
    return warmup_constant_schedule(0.0, learning_rate, warmup_steps)


@spelled
def schedule_free_sgd(
    learning_rate: Scalar | Schedule = 1.0, warmup_steps: int | None = None, b1: Scalar = 0.9,
    weight_decay: Scalar | None = None, weight_lr_power: Scalar = 2.0, state_dtype: DTypeLike | None = None,
) -> GradientTransformation:  # fmt: skip
    """Schedule-free gradient descent (Defazio et al., "The road less scheduled", 2024); see `schedule_free`.

    z ← z − learning_rate · (g + weight_decay · y),    x ← (1 − c) · x + c · z,    y = b1 · x + (1 − b1) · z

    Args:
        learning_rate: a number, a 0-d array or a schedule.
        warmup_steps: for how many updates the rate rises from 0; None: none.
        b1: weight of the average x in y, in (0, 1].
        weight_decay: factor of the parameters; None: none.
        weight_lr_power: power of the learning rate in the weights of the average.
        state_dtype: dtype of z; default the parameter's, float32 for 16-bit floats.

    Raises:
        ArgumentTypeError (from update): params were not given.

    Example:
        >>> optimizer = nnc.optim.schedule_free_sgd(0.5)
        >>> optimizer.update(nnp.ones(1), optimizer.init(nnp.ones(1)), nnp.ones(1))[0]
        Array([-0.5], dtype=float32)
    """
    rate = _warmed_up("schedule_free_sgd", learning_rate, warmup_steps)
    optimizer = sgd(rate) if weight_decay is None else chain(add_decayed_weights(weight_decay), sgd(rate))
    return schedule_free(optimizer, rate, b1, weight_lr_power, state_dtype)


@spelled
def schedule_free_adamw(
    learning_rate: Scalar | Schedule = 0.0025, warmup_steps: int | None = None, b1: Scalar = 0.9, b2: Scalar = 0.999,
    eps: Scalar = 1e-8, weight_decay: Scalar = 0.0, weight_lr_power: Scalar = 2.0, state_dtype: DTypeLike | None = None,
) -> GradientTransformation:  # fmt: skip
    """Schedule-free AdamW (Defazio et al., "The road less scheduled", 2024); see `schedule_free`.

    v ← b2 · v + (1 − b2) · |g|²,    z ← z − learning_rate · (g / (sqrt(v̂) + eps) + weight_decay · y)
    x ← (1 − c) · x + c · z,    y = b1 · x + (1 − b1) · z

    Args:
        learning_rate: a number, a 0-d array or a schedule.
        warmup_steps: for how many updates the rate rises from 0; None: none.
        b1: weight of the average x in y, in (0, 1].
        b2: decay of the mean of squares, in [0, 1).
        eps: added to the divisor.
        weight_decay: multiplied by the learning rate.
        weight_lr_power: power of the learning rate in the weights of the average.
        state_dtype: dtype of z; default the parameter's, float32 for 16-bit floats.

    Raises:
        ArgumentTypeError (from update): params were not given.

    Example:
        >>> optimizer = nnc.optim.schedule_free_adamw(0.5)
        >>> optimizer.update(nnp.ones(1), optimizer.init(nnp.ones(1)), nnp.ones(1))[0]
        Array([-0.5], dtype=float32)
    """
    rate = _warmed_up("schedule_free_adamw", learning_rate, warmup_steps)
    optimizer = chain(
        scale_by_rms(b2, eps, eps_in_sqrt=False, bias_correction=True),
        add_decayed_weights(weight_decay),
        scale_by_learning_rate(rate),
    )
    return schedule_free(optimizer, rate, b1, weight_lr_power, state_dtype)
