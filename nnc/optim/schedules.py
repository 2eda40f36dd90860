"""Learning rates as functions of the count of updates: `schedule(count) -> rate`.

Counts may be Python numbers, arrays or tracers. Rates are weak 0-d arrays: they show float32, and have 64 bits where they meet
float64 (constants are given back as they are).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import nnc.numpy as nnp
from nnc.array.array import Array, as_value, asarray
from nnc.array.promote import as_operand, astype, with_weakness
from nnc.base import dtypes
from nnc.calls.spelling import spelled
from nnc.errors import ArgumentError, ArgumentTypeError, user_error
from nnc.optim.arguments import Scalar, check_scalar

__all__ = [
    "constant_schedule",
    "cosine_decay_schedule",
    "exponential_decay",
    "join_schedules",
    "linear_schedule",
    "piecewise_constant_schedule",
    "polynomial_schedule",
    "warmup_constant_schedule",
    "warmup_cosine_decay_schedule",
]

Schedule = Callable[[Any], Any]


def as_rate(value: Any) -> Array:
    """Returns a rate or a count as a weak float, which keeps its digits."""
    exact: Array = with_weakness(astype(as_value(as_operand(value)), dtypes.float64), dtypes.NUMBER)
    return exact


def _fraction(count: Any, begin: int, steps: int) -> Array:
    """Returns the share of `steps` after `begin` that is done, from 0 to 1."""
    return nnp.minimum(nnp.maximum((as_rate(count) - begin) / steps, 0.0), 1.0)


def check_steps(where: str, name: str, value: Any, low: int = 1) -> None:
    """Raises ArgumentError unless `value` is an int of at least `low`."""
    if isinstance(value, bool) or not isinstance(value, int) or value < low:
        fix = "count updates, not epochs: steps = epochs * batches_per_epoch."
        raise user_error(ArgumentError, where, f"{name} is {value!r}; it must be an int of at least {low}.", fix=fix)


@spelled
def constant_schedule(value: Scalar) -> Schedule:
    """Returns the same rate at every step.

    Args:
        value: the rate.

    Example:
        >>> nnc.optim.constant_schedule(0.1)(1000)
        0.1
    """
    check_scalar("constant_schedule", "value", value, low=-math.inf)
    return lambda count: value


@spelled
def polynomial_schedule(
    init_value: Scalar, end_value: Scalar, power: Scalar, transition_steps: int, transition_begin: int = 0
) -> Schedule:
    """From one rate to another as a power of the remaining fraction.

    rate(t) = end + (init − end) · (1 − s)^power,    s = clip((t − transition_begin) / transition_steps, 0, 1)

    Args:
        init_value: rate at the start.
        end_value: rate at the end.
        power: exponent of the remaining fraction.
        transition_steps: how many updates the change takes.
        transition_begin: for how many updates the rate stays at `init_value` first.

    Example:
        >>> nnc.optim.polynomial_schedule(1.0, 0.0, 2, transition_steps=10)(5)
        Array(0.25, dtype=float32)
    """
    check_scalar("polynomial_schedule", "init_value", init_value, low=-math.inf)
    check_scalar("polynomial_schedule", "end_value", end_value, low=-math.inf)
    check_steps("polynomial_schedule", "transition_steps", transition_steps)

    def schedule(count: Any) -> Array:
        left = 1 - _fraction(count, transition_begin, transition_steps)
        return end_value + (init_value - end_value) * (left if power == 1 else left**power)

    return schedule


@spelled
def linear_schedule(
    init_value: Scalar, end_value: Scalar, transition_steps: int, transition_begin: int = 0
) -> Schedule:
    """From one rate to another in a straight line, then constant.

    Args:
        init_value: rate at the start.
        end_value: rate at the end.
        transition_steps: how many updates the change takes.
        transition_begin: for how many updates the rate stays at `init_value` first.

    Example:
        >>> nnc.optim.linear_schedule(0.0, 1.0, transition_steps=4)(1)
        Array(0.25, dtype=float32)
    """
    check_steps("linear_schedule", "transition_steps", transition_steps)
    return polynomial_schedule(init_value, end_value, 1, transition_steps, transition_begin)


@spelled
def exponential_decay(
    init_value: Scalar, transition_steps: int, decay_rate: float, transition_begin: int = 0, staircase: bool = False,
    end_value: Scalar | None = None,
) -> Schedule:  # fmt: skip
    """Multiplies the rate by `decay_rate` every `transition_steps` updates.

    rate(t) = init_value · decay_rate^s,    s = max(t − transition_begin, 0) / transition_steps

    Args:
        init_value: rate at the start.
        transition_steps: after how many updates the rate is multiplied.
        decay_rate: above 0.
        transition_begin: for how many updates the rate stays at `init_value` first.
        staircase: s is rounded down.
        end_value: a bound that the rate does not pass.

    Example:
        >>> nnc.optim.exponential_decay(1.0, transition_steps=10, decay_rate=0.5)(20)
        Array(0.25, dtype=float32)
    """
    check_scalar("exponential_decay", "init_value", init_value, low=-math.inf)
    check_scalar("exponential_decay", "decay_rate", decay_rate, positive=True)
    check_steps("exponential_decay", "transition_steps", transition_steps)

    def schedule(count: Any) -> Array:
        s = nnp.maximum(as_rate(count) - transition_begin, 0.0) / transition_steps
        rate = init_value * decay_rate ** (nnp.floor(s) if staircase else s)
        if end_value is None:
            return rate
        return (nnp.maximum if decay_rate < 1 else nnp.minimum)(rate, end_value)

    return schedule


@spelled
def cosine_decay_schedule(init_value: Scalar, decay_steps: int, alpha: float = 0.0, exponent: float = 1.0) -> Schedule:
    """Half a cosine wave from `init_value` to `alpha · init_value` (Loshchilov and Hutter, "SGDR", 2017).

    rate(t) = init_value · ((1 − alpha) · (½ (1 + cos(π · s)))^exponent + alpha),    s = min(t / decay_steps, 1)

    Args:
        init_value: rate at the start.
        decay_steps: how many updates the fall takes.
        alpha: share of `init_value` at the end.
        exponent: power that the wave is raised to.

    Example:
        >>> nnc.optim.cosine_decay_schedule(1.0, decay_steps=10)(10)
        Array(0., dtype=float32)
    """
    check_scalar("cosine_decay_schedule", "init_value", init_value, low=-math.inf)
    check_scalar("cosine_decay_schedule", "alpha", alpha, low=-math.inf)
    check_steps("cosine_decay_schedule", "decay_steps", decay_steps)

    def schedule(count: Any) -> Array:
        wave = 0.5 * (1 + nnp.cos(math.pi * _fraction(count, 0, decay_steps)))
        return init_value * ((1 - alpha) * (wave if exponent == 1 else wave**exponent) + alpha)

    return schedule


@spelled
def warmup_constant_schedule(init_value: Scalar, peak_value: Scalar, warmup_steps: int) -> Schedule:
    """Rises in a straight line during `warmup_steps`, then stays.

    Args:
        init_value: rate at the start.
        peak_value: the highest rate.
        warmup_steps: how long the rate rises.

    Example:
        >>> nnc.optim.warmup_constant_schedule(0.0, 1.0, warmup_steps=4)(3)
        Array(0.75, dtype=float32)
    """
    check_steps("warmup_constant_schedule", "warmup_steps", warmup_steps)
    return linear_schedule(init_value, peak_value, warmup_steps)


@spelled
def warmup_cosine_decay_schedule(
    init_value: Scalar, peak_value: float, warmup_steps: int, decay_steps: int, end_value: float = 0.0,
    exponent: float = 1.0,
) -> Schedule:  # fmt: skip
    """Rises in a straight line to `peak_value`, then falls by half a cosine wave to `end_value`.

    Args:
        init_value: rate at the start.
        peak_value: the highest rate.
        warmup_steps: how long it rises.
        decay_steps: the total length, warm-up included.
        end_value: rate at the end.
        exponent: power that the wave is raised to.

    Raises:
        ArgumentError: decay_steps is not above warmup_steps.

    Example:
        >>> schedule = nnc.optim.warmup_cosine_decay_schedule(0.0, 1.0, warmup_steps=2, decay_steps=4)
        >>> [round(float(schedule(t)), 3) for t in range(5)]
        [0.0, 0.5, 1.0, 0.5, 0.0]
    """
    where = "warmup_cosine_decay_schedule"
    check_scalar(where, "peak_value", peak_value, positive=True)
    check_steps(where, "warmup_steps", warmup_steps, low=0)
    check_steps(where, "decay_steps", decay_steps)
    if decay_steps <= warmup_steps:
        problem = f"decay_steps ({decay_steps}) counts the warm-up ({warmup_steps}) and must be more."
        raise user_error(ArgumentError, where, problem, fix="pass the total number of updates as decay_steps.")
    decay = cosine_decay_schedule(peak_value, decay_steps - warmup_steps, end_value / peak_value, exponent)
    if not warmup_steps:
        return decay
    return join_schedules([linear_schedule(init_value, peak_value, warmup_steps), decay], [warmup_steps])


@spelled
def piecewise_constant_schedule(
    init_value: Scalar, boundaries_and_scales: Mapping[int, float] | None = None
) -> Schedule:
    """Returns a rate that is multiplied by a factor at each boundary.

    Args:
        init_value: rate at the start.
        boundaries_and_scales: {count: factor}; the factor holds from that count on.

    Example:
        >>> schedule = nnc.optim.piecewise_constant_schedule(1.0, {2: 0.5, 4: 0.5})
        >>> [float(schedule(t)) for t in range(5)]
        [1.0, 1.0, 0.5, 0.5, 0.25]
    """
    check_scalar("piecewise_constant_schedule", "init_value", init_value, low=-math.inf)
    for boundary, factor in (boundaries_and_scales or {}).items():
        check_steps("piecewise_constant_schedule", "a boundary", boundary, low=0)
        check_scalar("piecewise_constant_schedule", "a scale", factor)

    def schedule(count: Any) -> Array:
        t, rate = asarray(count), as_rate(init_value)
        for boundary, factor in (boundaries_and_scales or {}).items():
            rate = nnp.where(t >= boundary, rate * factor, rate)
        return rate

    return schedule


@spelled
def join_schedules(schedules: Sequence[Schedule], boundaries: Sequence[int]) -> Schedule:
    """One schedule after the other; each starts counting at 0 at its boundary.

    Args:
        schedules: functions of the count of updates.
        boundaries: the counts at which the second, third … schedule begins, rising; one less than schedules.

    Raises:
        ArgumentError: the numbers do not fit.
        ArgumentTypeError: a schedule is no function.

    Example:
        >>> joined = nnc.optim.join_schedules([lambda t: 1.0, lambda t: 0.1 * t], [10])
        >>> float(joined(9)), float(joined(12))  # doctest: +ELLIPSIS
        (1.0, 0.2...)
    """
    if len(boundaries) != len(schedules) - 1 or list(boundaries) != sorted(boundaries):
        problem = f"{len(schedules)} schedules with boundaries {list(boundaries)}."
        fix = "give one boundary less than schedules, in rising order."
        raise user_error(ArgumentError, "join_schedules", problem, fix=fix)
    for schedule in schedules:
        if not callable(schedule):
            problem = f"{schedule!r} is not a function of the count."
            raise user_error(ArgumentTypeError, "join_schedules", problem, fix="wrap numbers: constant_schedule(0.1).")

    def joined(count: Any) -> Array:
        t = asarray(count)
        rate = as_rate(schedules[0](t))
        for schedule, boundary in zip(schedules[1:], boundaries, strict=True):
            rate = nnp.where(t >= boundary, as_rate(schedule(t - boundary)), rate)
        return rate

    return joined
