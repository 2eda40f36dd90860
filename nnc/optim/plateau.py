"""A scale of updates that falls where the loss does not."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

import nnc.numpy as nnp
from nnc.array.array import Array
from nnc.array.promote import astype
from nnc.calls.spelling import spelled
from nnc.errors import ArgumentError, user_error
from nnc.errors.errors import check_count
from nnc.optim.arguments import Scalar, check_scalar, check_scalars, check_state
from nnc.optim.base import GradientTransformationExtraArgs, number
from nnc.optim.by_value import loss_value
from nnc.optim.precision import select_tree
from nnc.optim.totals import shared
from nnc.optim.transforms import scaled, zero_count

__all__ = ["ReduceLROnPlateauState", "reduce_on_plateau"]


class ReduceLROnPlateauState(NamedTuple):
    """The scale, the best value of the loss, and counts.

    Attributes:
        scale: factor of updates, a 0-d array.
        best_value: least mean value so far.
        plateau_count: means since then.
        cooldown_count: means for which the scale still stays.
        count: values in the mean.
        avg_value: mean of the values since the last comparison.

    Example:
        >>> state = nnc.optim.reduce_on_plateau().init(nnp.ones(2))
        >>> state.scale
        Array(1., dtype=float32)
    """

    scale: Any
    best_value: Any
    plateau_count: Any
    cooldown_count: Any
    count: Any
    avg_value: Any


@spelled
def reduce_on_plateau(
    factor: float = 0.1, patience: int = 10, rtol: float = 1e-4, atol: float = 0.0, cooldown: int = 0,
    accumulation_size: int = 1, min_scale: Scalar = 0.0,
) -> GradientTransformationExtraArgs:  # fmt: skip
    """Multiplies updates by a scale that falls by `factor` once `patience` values of the loss in a row bring no improvement.

    A value v is an improvement where v < (1 − rtol) · best − atol. The last link of a chain; its `update` reads `value=`.
    It is PyTorch's ReduceLROnPlateau, within the compiled step. PyTorch lowers the rate at the value after `patience` ones without
    improvement, so its `patience=n` is `patience=n + 1` here, as in Optax.

    Args:
        factor: the factor of the scale on a plateau, in (0, 1).
        patience: how many values without improvement make a plateau.
        rtol: share of the best value by which an improvement is lower.
        atol: amount by which an improvement is lower.
        cooldown: for how many values after a reduction the scale stays.
        accumulation_size: how many values are averaged to one.
        min_scale: least scale.

    Raises:
        ArgumentError: an argument lies outside its range, or rtol and atol are both 0.
        ArgumentTypeError (from update): value was not given.

    Example:
        >>> optimizer = nnc.optim.chain(nnc.optim.sgd(1.0), nnc.optim.reduce_on_plateau(0.5, patience=2))
        >>> state = optimizer.init(nnp.ones(1))
        >>> for value in (3.0, 3.0, 3.0, 2.0):
        ...     updates, state = optimizer.update(nnp.ones(1), state, value=value)
        ...     print(updates)
        [-1.]
        [-1.]
        [-0.5]
        [-0.5]
    """
    where = "reduce_on_plateau"
    check_scalar(where, "factor", factor, positive=True, below=1.0)
    check_scalar(where, "rtol", rtol, below=1.0 + 1e-12)
    check_scalars(where, atol=atol, min_scale=min_scale)
    fix = "give {} as a number of values of the loss{}."
    check_count(where, "patience", patience, fix.format("patience", "; PyTorch's patience=n is patience=n + 1 here"), 1)
    check_count(where, "cooldown", cooldown, fix.format("cooldown", ""), 0)
    check_count(where, "accumulation_size", accumulation_size, fix.format("accumulation_size", ""), 1)
    if all(isinstance(x, (int, float)) and x == 0 for x in (rtol, atol)):
        raise user_error(ArgumentError, where, "rtol and atol are both 0.", fix="make one of them positive.")

    def init_fn(params: Any) -> ReduceLROnPlateauState:
        return ReduceLROnPlateauState(
            shared(1.0, params), shared(np.inf, params), zero_count(), zero_count(), zero_count(), shared(0.0, params)
        )

    def compared(state: ReduceLROnPlateauState) -> ReduceLROnPlateauState:
        """Returns the state after a whole mean."""
        better = state.avg_value < (1 - rtol) * state.best_value - atol
        since = nnp.where(better, 0, state.plateau_count + 1)
        cooling, due = state.cooldown_count > 0, since == patience
        lower = nnp.maximum(nnp.where(due, state.scale * factor, state.scale), number(min_scale, state.scale.dtype))
        return ReduceLROnPlateauState(
            nnp.where(cooling, state.scale, lower), nnp.where(better, state.avg_value, state.best_value),
            nnp.where(cooling | due, 0, since),
            nnp.where(cooling, state.cooldown_count - 1, nnp.where(due, cooldown, 0)), zero_count(),
            nnp.zeros_like(state.avg_value),
        )  # fmt: skip

    def update_fn(updates: Any, state: Any, params: Any = None, *, value: Any = None, **extra: Any) -> tuple[Any, Any]:
        check_state(where, state, ReduceLROnPlateauState)
        dtype = state.avg_value.dtype
        n = astype(state.count, dtype)
        mean: Array = (n * state.avg_value + loss_value(where, value, dtype)) / (n + 1)
        seen = state._replace(avg_value=mean, count=state.count + 1)
        after = select_tree(seen.count == accumulation_size, compared(seen), seen)
        return scaled(where, updates, after.scale), after

    return GradientTransformationExtraArgs(init_fn, update_fn)
