"""MADGRAD: momentumised, adaptive dual averaging."""

from __future__ import annotations

from typing import Any, NamedTuple

import nnc.numpy as nnp
from nnc.array.array import Array, asarray
from nnc.array.promote import as_operand, astype
from nnc.calls.spelling import spelled
from nnc.optim.arguments import Scalar, check_rate, check_scalar
from nnc.optim.base import GradientTransformation, chain, map_trainable, number, stateful, widen
from nnc.optim.clipping import squared_magnitude
from nnc.optim.moments import check_decays, filled_squares, zeros_state
from nnc.optim.schedules import Schedule
from nnc.optim.totals import copies, joint_dtype, rate_at
from nnc.optim.transforms import add_decayed_weights, zero_count

__all__ = ["MadgradState", "madgrad", "scale_by_madgrad"]


class MadgradState(NamedTuple):
    """Count of updates, weighted sums of gradients and of their squares, and the first parameters.

    Attributes:
        count: how many updates were made, a 0-d integer.
        grad_sum_sq: weighted sums of squares, a tree like the parameters.
        s: weighted sums of gradients.
        x0: the first parameters.

    Example:
        >>> state = nnc.optim.scale_by_madgrad(0.1).init(nnp.ones(2))
        >>> state.count
        Array(0, dtype=int64)
    """

    count: Any
    grad_sum_sq: Any
    s: Any
    x0: Any


@spelled
def scale_by_madgrad(
    learning_rate: Scalar | Schedule, momentum: Scalar = 0.9, eps: Scalar = 1e-6
) -> GradientTransformation:
    """Dual averaging by the cube root of squares (Defazio and Jelassi, "Adaptivity without compromise", 2022). Updates are steps
    already, of the sign in which they are added.

    λ = (learning_rate + eps) · sqrt(t),    v ← v + λ · |g|²,    s ← s + λ · g
    z = p0 − s / (cbrt(v) + eps),    u = (1 − momentum) · (z − p)

    Args:
        learning_rate: a number, a 0-d array or a schedule.
        momentum: in [0, 1).
        eps: added to the learning rate and to the divisor.

    Raises:
        ArgumentTypeError (from update): params were not given.

    Example:
        >>> transformation = nnc.optim.scale_by_madgrad(0.1)
        >>> params = nnp.asarray([3.0, 4.0])
        >>> updates, state = transformation.update(nnp.asarray([1.0, -2.0]), transformation.init(params), params)
        >>> nnp.round(updates, 3)
        Array([-0.022,  0.027], dtype=float32)
    """
    where = "scale_by_madgrad"
    check_rate(where, learning_rate)
    check_decays(where, momentum=momentum)
    check_scalar(where, "eps", eps, positive=True)

    def init_fn(params: Any) -> MadgradState:
        squares, sums = filled_squares(where, params, 0.0), zeros_state(where, params)
        return MadgradState(zero_count(), squares, sums, copies(where, params))

    def update_fn(updates: Any, state: Any, params: Any = None) -> tuple[Any, Any]:
        dtype = joint_dtype(state.s)
        rate = rate_at(learning_rate, state.count, dtype) + number(eps, dtype)
        weight = nnp.sqrt(astype(state.count + 1, dtype)) * rate

        def add_square(v: Array, g: Any) -> Array:
            return v + astype(squared_magnitude(widen(asarray(g))), v.dtype) * number(weight, v.dtype)

        def add(s: Array, g: Any) -> Array:
            return s + astype(asarray(g), s.dtype) * number(weight, s.dtype)

        def step(u: Array, s: Array, v: Array, p0: Any, p: Any) -> Array:
            start, now = (astype(as_operand(x), s.dtype) for x in (p0, p))
            z = start - s / (nnp.cbrt(v) + number(eps, v.dtype))
            return astype((z - now) * (1 - number(momentum, s.dtype)), u.dtype)

        squares = map_trainable(where, add_square, "grad_sum_sq", state.grad_sum_sq, updates=updates)
        sums = map_trainable(where, add, "s", state.s, updates=updates)
        u = map_trainable(where, step, "updates", updates, s=sums, v=squares, x0=state.x0, params=params)
        return u, MadgradState(state.count + 1, squares, sums, state.x0)

    return stateful(where, MadgradState, init_fn, update_fn, reads_params=True)


@spelled
def madgrad(
    learning_rate: Scalar | Schedule, momentum: Scalar = 0.9, weight_decay: Scalar | Schedule = 0.0, eps: Scalar = 1e-6
) -> GradientTransformation:
    """MADGRAD (Defazio and Jelassi, "Adaptivity without compromise: a momentumized, adaptive, dual averaged gradient method for
    stochastic optimization", 2022).

    λ = (learning_rate + eps) · sqrt(t),    v ← v + λ · |g|²,    s ← s + λ · g
    p ← momentum · p + (1 − momentum) · (p0 − s / (cbrt(v) + eps))

    Args:
        learning_rate: a number, a 0-d array or a schedule.
        momentum: in [0, 1).
        weight_decay: factor of the parameters that are added to the gradient; less than for other optimizers.
        eps: added to the learning rate and to the divisor.

    Raises:
        ArgumentTypeError (from update): params were not given.

    Example:
        >>> optimizer = nnc.optim.madgrad(0.1, momentum=0.0)
        >>> nnp.round(optimizer.update(nnp.asarray([8.0]), optimizer.init(nnp.ones(1)), nnp.ones(1))[0], 3)
        Array([-0.431], dtype=float32)
    """
    return chain(add_decayed_weights(weight_decay), scale_by_madgrad(learning_rate, momentum, eps))
