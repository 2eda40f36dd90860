"""Mechanic: a learning rate for any optimizer, learnt while it trains."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

import nnc.numpy as nnp
from nnc.array.array import Array, asarray
from nnc.array.promote import as_operand, astype
from nnc.calls.spelling import spelled
from nnc.errors.errors import check_count
from nnc.optim.arguments import Scalar, check_params, check_scalar, check_state
from nnc.optim.base import (
    GradientTransformation,
    check_transformation,
    extended,
    map_trainable,
    number,
    run_update,
    widen,
)
from nnc.optim.clipping import global_norm
from nnc.optim.totals import copies, inner_product, joint_dtype
from nnc.optim.transforms import zero_count

__all__ = ["MechanicState", "mechanize"]


class MechanicState(NamedTuple):
    """The state of the base optimizer, and the bets on its scale, one for each decay.

    Attributes:
        base_optimizer_state: state of the base optimizer.
        count: how many updates were made, a 0-d integer.
        r: rewards.
        m: the greatest gains so far.
        v: sums of squared gains.
        s: scales.
        x0: the first parameters.

    Example:
        >>> state = nnc.optim.mechanize(nnc.optim.sgd(0.1)).init(nnp.ones(2))
        >>> state.s
        Array([1.e-06, 1.e-06, 1.e-06, 1.e-06, 1.e-06, 1.e-06], dtype=float32)
    """

    base_optimizer_state: Any
    count: Any
    r: Any
    m: Any
    v: Any
    s: Any
    x0: Any


@spelled
def mechanize(
    base_optimizer: GradientTransformation, weight_decay: Scalar = 1e-2, eps: Scalar = 1e-8, s_init: Scalar = 1e-6,
    num_betas: int = 6,
) -> GradientTransformation:  # fmt: skip
    """Mechanic, which tunes the scale of an optimizer's updates (Cutkosky, Defazio and Mehta, "Mechanic: a learning rate tuner",
    2023).

    p = p0 − Σs · Δ,    Δ ← Δ − u,    h = ⟨g + weight_decay · Σs · ‖g‖ / ‖p‖ · p, Δ⟩
    For each β of 0.9, 0.99, …:  m ← max(β m, |h| + eps),  v ← β² v + h²,  r ← β r + s · clip(h, −m, m)
    s = (s_init · m / num_betas + max(r, 0)) / (sqrt(v) + eps)

    Args:
        base_optimizer: gives u; its learning rate is a factor of little influence, or a schedule.
        weight_decay: pulls parameters to 0, by the norm of the gradient.
        eps: added to divisors.
        s_init: the first scale.
        num_betas: how many decays there are, each with a scale of its own.

    Raises:
        ArgumentTypeError: base_optimizer is no transformation, or (from update) params were not given.
        ArgumentError: num_betas is no positive int.

    Example:
        >>> optimizer = nnc.optim.mechanize(nnc.optim.sgd(1.0), s_init=0.01)
        >>> params = nnp.asarray([3.0, -4.0])
        >>> state = optimizer.init(params)
        >>> for _ in range(100):
        ...     updates, state = optimizer.update(2 * params, state, params)
        ...     params = nnc.optim.apply_updates(params, updates)
        >>> bool(nnp.all(nnp.abs(params) < 1.0))
        True
    """
    where = "mechanize"
    check_transformation(where, "base_optimizer", base_optimizer)
    for name, value in (("weight_decay", weight_decay), ("eps", eps), ("s_init", s_init)):
        check_scalar(where, name, value, positive=name != "weight_decay")
    check_count(where, "num_betas", num_betas, "choose 6.")

    def init_fn(params: Any) -> MechanicState:
        check_params(where, params)
        dtype = joint_dtype(params)
        r, m, v = (asarray(np.zeros(num_betas, dtype)) for _ in range(3))
        s = asarray(np.ones(num_betas, dtype)) * number(s_init, dtype)
        return MechanicState(base_optimizer.init(params), zero_count(), r, m, v, s, copies(where, params))

    def update_fn(updates: Any, state: Any, params: Any = None, **extra: Any) -> tuple[Any, Any]:
        check_state(where, state, MechanicState)
        check_params(where, params)
        dtype = state.s.dtype
        moves, base_state = run_update(base_optimizer, updates, state.base_optimizer_state, params, extra)
        total, tiny = nnp.sum(state.s), number(eps, dtype)
        g_norm, p_norm = (astype(global_norm(x), dtype) for x in (updates, params))
        pull = total * g_norm / (p_norm + tiny) * number(weight_decay, dtype)

        def decayed(g: Array, p: Any) -> Array:
            wide = widen(g)
            return wide + astype(as_operand(p), wide.dtype) * number(pull, wide.dtype)

        def way(p0: Array, p: Any) -> Array:
            wide = widen(p0)
            return (wide - astype(as_operand(p), wide.dtype)) / number(total + tiny, wide.dtype)

        before = map_trainable(where, way, "x0", state.x0, params=params)
        gradients = map_trainable(where, decayed, "updates", updates, params=params)
        gain = astype(inner_product(where, "updates", gradients, before=before), dtype)
        betas = nnp.stack([nnp.full((), 1 - 0.1**i, dtype) for i in range(1, num_betas + 1)])
        clipped = nnp.minimum(nnp.maximum(gain, -state.m), state.m)
        m = nnp.maximum(betas * state.m, nnp.abs(gain) + tiny)
        v = betas * betas * state.v + gain * gain
        r = betas * state.r + clipped * state.s
        wealth = m * (number(s_init, dtype) / num_betas) + nnp.maximum(r, 0)
        s = wealth / (nnp.sqrt(v) + tiny)
        scale = nnp.sum(s)

        def step(u: Array, delta: Array, p0: Any, p: Any) -> Array:
            delta = delta - astype(u, delta.dtype)
            start, now = (astype(as_operand(x), delta.dtype) for x in (p0, p))
            return astype(start - delta * number(scale, delta.dtype) - now, u.dtype)

        u = map_trainable(where, step, "updates", moves, before=before, x0=state.x0, params=params)
        return u, MechanicState(base_state, state.count + 1, r, m, v, s, state.x0)

    return extended(init_fn, update_fn, base_optimizer)
