"""Optimizers as pairs of pure functions, `(init, update)`, that chain; with learning-rate schedules and clipping.

A training step makes updates of gradients and adds them to the parameters:

    optimizer = nnc.optim.adam(1e-3)
    state = optimizer.init(params)
    updates, state = optimizer.update(grads, state, params)
    params = nnc.optim.apply_updates(params, updates)

All of it is pure, so the whole step compiles.
"""

from nnc.optim.base import EmptyState, GradientTransformation, apply_updates, chain, identity
from nnc.optim.clipping import clip, clip_by_global_norm, global_norm
from nnc.optim.moments import (
    ScaleByAdamState,
    ScaleByAmsgradState,
    ScaleByRmsState,
    ScaleByStddevState,
    scale_by_adam,
    scale_by_amsgrad,
    scale_by_rms,
    scale_by_stddev,
)
from nnc.optim.optimizers import adam, adamw, lamb, rmsprop, sgd
from nnc.optim.schedules import (
    constant_schedule,
    cosine_decay_schedule,
    exponential_decay,
    join_schedules,
    linear_schedule,
    piecewise_constant_schedule,
    polynomial_schedule,
    warmup_constant_schedule,
    warmup_cosine_decay_schedule,
)
from nnc.optim.transforms import (
    ScaleByScheduleState,
    TraceState,
    add_decayed_weights,
    scale,
    scale_by_learning_rate,
    scale_by_schedule,
    scale_by_trust_ratio,
    trace,
)

__all__ = [
    "EmptyState",
    "GradientTransformation",
    "ScaleByAdamState",
    "ScaleByAmsgradState",
    "ScaleByRmsState",
    "ScaleByScheduleState",
    "ScaleByStddevState",
    "TraceState",
    "adam",
    "adamw",
    "add_decayed_weights",
    "apply_updates",
    "chain",
    "clip",
    "clip_by_global_norm",
    "constant_schedule",
    "cosine_decay_schedule",
    "exponential_decay",
    "global_norm",
    "identity",
    "join_schedules",
    "lamb",
    "linear_schedule",
    "piecewise_constant_schedule",
    "polynomial_schedule",
    "rmsprop",
    "scale",
    "scale_by_adam",
    "scale_by_amsgrad",
    "scale_by_learning_rate",
    "scale_by_rms",
    "scale_by_schedule",
    "scale_by_stddev",
    "scale_by_trust_ratio",
    "sgd",
    "trace",
    "warmup_constant_schedule",
    "warmup_cosine_decay_schedule",
]
