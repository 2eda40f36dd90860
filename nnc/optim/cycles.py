"""Schedules made of pieces: interpolation between milestones, one cycle up and down, warm restarts."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, Literal

import nnc.numpy as nnp
from nnc.array.array import Array
from nnc.calls.spelling import spelled
from nnc.errors.errors import check_choice
from nnc.optim.arguments import Scalar, check_scalar
from nnc.optim.schedules import (
    Schedule,
    as_rate,
    check_steps,
    exponential_decay,
    join_schedules,
    linear_schedule,
    warmup_cosine_decay_schedule,
)

__all__ = [
    "cosine_onecycle_schedule",
    "linear_onecycle_schedule",
    "piecewise_interpolate_schedule",
    "sgdr_schedule",
    "warmup_exponential_decay_schedule",
]


@spelled
def piecewise_interpolate_schedule(
    interpolate_type: Literal["linear", "cosine"], init_value: Scalar,
    boundaries_and_scales: Mapping[int, float] | None = None,
) -> Schedule:  # fmt: skip
    """From milestone to milestone, in straight lines or half cosine waves, then constant.

    Args:
        interpolate_type: "linear" or "cosine".
        init_value: rate at the start.
        boundaries_and_scales: {count: factor}; at that count the rate is the one at the milestone before, times the
            factor.

    Raises:
        ArgumentError: another interpolate_type, or a factor below 0.

    Example:
        >>> schedule = nnc.optim.piecewise_interpolate_schedule("linear", 1.0, {2: 2.0, 4: 0.5})
        >>> [float(schedule(t)) for t in range(6)]
        [1.0, 1.5, 2.0, 1.5, 1.0, 1.0]
    """
    where = "piecewise_interpolate_schedule"
    check_choice(where, "interpolate_type", interpolate_type, ("linear", "cosine"))
    check_scalar(where, "init_value", init_value, low=-math.inf)
    for boundary, factor in (boundaries_and_scales or {}).items():
        check_steps(where, "a boundary", boundary, low=0)
        check_scalar(where, "a scale", factor)
    milestones = sorted((boundaries_and_scales or {}).items())

    def schedule(count: Any) -> Array:
        t, begin = as_rate(count), 0
        level = rate = as_rate(init_value)
        for end, factor in milestones:
            share = (t - begin) / max(end - begin, 1)
            if interpolate_type == "cosine":
                share = 0.5 * (1 - nnp.cos(math.pi * share))
            rate = nnp.where((t >= begin) & (t < end), level + (level * factor - level) * share, rate)
            begin, level = end, level * factor
        return nnp.where(t >= begin, level, rate)

    return schedule


@spelled
def linear_onecycle_schedule(
    transition_steps: int, peak_value: Scalar, pct_start: float = 0.3, pct_final: float = 0.85, div_factor: float = 25.0,
    final_div_factor: float = 1e4,
) -> Schedule:  # fmt: skip
    """Up to `peak_value` and down in straight lines (Smith and Topin, "Super-convergence", 2019).

    Args:
        transition_steps: the number of steps of the whole cycle.
        peak_value: the highest rate.
        pct_start: share of it after which the peak is reached.
        pct_final: share after which the rate is back at its start.
        div_factor: peak over start.
        final_div_factor: start over end.

    Example:
        >>> schedule = nnc.optim.linear_onecycle_schedule(10, 1.0, pct_start=0.5, pct_final=0.9, div_factor=2.0)
        >>> [float(schedule(t)) for t in (0, 5, 9)]
        [0.5, 1.0, 0.5]
    """
    check_steps("linear_onecycle_schedule", "transition_steps", transition_steps)
    milestones = {
        int(pct_start * transition_steps): div_factor,
        int(pct_final * transition_steps): 1 / div_factor,
        transition_steps: 1 / final_div_factor,
    }
    return piecewise_interpolate_schedule("linear", peak_value / div_factor, milestones)


@spelled
def cosine_onecycle_schedule(
    transition_steps: int, peak_value: Scalar, pct_start: float = 0.3, div_factor: float = 25.0,
    final_div_factor: float = 1e4,
) -> Schedule:  # fmt: skip
    """Up to `peak_value` and down in half cosine waves (Smith and Topin, "Super-convergence", 2019).

    Args:
        transition_steps: length of the whole cycle.
        peak_value: the highest rate.
        pct_start: share of it after which the peak is reached.
        div_factor: peak over start.
        final_div_factor: start over end; from the peak the rate falls there in one wave.

    Example:
        >>> schedule = nnc.optim.cosine_onecycle_schedule(10, 1.0, pct_start=0.5, div_factor=2.0)
        >>> [round(float(schedule(t)), 3) for t in (0, 5, 10)]
        [0.5, 1.0, 0.0]
    """
    check_steps("cosine_onecycle_schedule", "transition_steps", transition_steps)
    milestones = {int(pct_start * transition_steps): div_factor, transition_steps: 1 / (div_factor * final_div_factor)}
    return piecewise_interpolate_schedule("cosine", peak_value / div_factor, milestones)


@spelled
def warmup_exponential_decay_schedule(
    init_value: Scalar, peak_value: Scalar, warmup_steps: int, transition_steps: int, decay_rate: float,
    transition_begin: int = 0, staircase: bool = False, end_value: Scalar | None = None,
) -> Schedule:  # fmt: skip
    """Rises in a straight line to `peak_value`, then is multiplied by `decay_rate` every `transition_steps` updates.

    Args:
        init_value: rate at the start.
        peak_value: the highest rate.
        warmup_steps: how long the rate rises.
        transition_steps: after how many updates it is multiplied.
        decay_rate: the factor, above 0.
        transition_begin: how many updates the peak is kept before it decays.
        staircase: multiply at once instead of little by little.
        end_value: a bound that the rate does not pass.

    Example:
        >>> schedule = nnc.optim.warmup_exponential_decay_schedule(0.0, 1.0, 2, 1, 0.5)
        >>> [float(schedule(t)) for t in range(5)]
        [0.0, 0.5, 1.0, 0.5, 0.25]
    """
    decay = exponential_decay(peak_value, transition_steps, decay_rate, transition_begin, staircase, end_value)
    return join_schedules([linear_schedule(init_value, peak_value, warmup_steps), decay], [warmup_steps])


@spelled
def sgdr_schedule(cosine_kwargs: Sequence[Mapping[str, Any]]) -> Schedule:
    """Cosine waves one after the other, with warm restarts (Loshchilov and Hutter, "SGDR", 2017).

    Args:
        cosine_kwargs: the arguments of `warmup_cosine_decay_schedule` for each wave.

    Example:
        >>> wave = dict(init_value=0.0, peak_value=1.0, warmup_steps=1, decay_steps=3)
        >>> [round(float(nnc.optim.sgdr_schedule([wave, wave])(t)), 2) for t in range(6)]
        [0.0, 1.0, 0.5, 0.0, 1.0, 0.5]
    """
    schedules, ends = [], [0]
    for arguments in cosine_kwargs:
        schedules.append(warmup_cosine_decay_schedule(**arguments))
        ends.append(ends[-1] + arguments["decay_steps"])
    return join_schedules(schedules, ends[1:-1])
