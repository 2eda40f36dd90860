"""Novograd: momentum of gradients that are divided by their norms, one for each array."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

import nnc.numpy as nnp
from nnc.array.array import Array, asarray
from nnc.array.promote import as_operand, astype
from nnc.base import dtypes
from nnc.calls.spelling import spelled
from nnc.optim.arguments import Scalar, check_scalars
from nnc.optim.base import GradientTransformation, make_state, map_trainable, number, stateful, widen
from nnc.optim.clipping import squared_magnitude
from nnc.optim.moments import average, check_decays, divide, zeros_state
from nnc.optim.schedules import Schedule
from nnc.optim.totals import broadcast_like
from nnc.optim.transforms import stepping, zero_count
from nnc.typing import DTypeLike

__all__ = ["ScaleByNovogradState", "novograd", "scale_by_novograd"]


class ScaleByNovogradState(NamedTuple):
    """Count of updates, momentum, and a number for each array.

    Attributes:
        count: how many updates were made, a 0-d integer.
        mu: momentum, a tree like the parameters.
        nu: means of squared norms, a 0-d array for each parameter.

    Example:
        >>> state = nnc.optim.scale_by_novograd().init(nnp.ones(2))
        >>> state.mu
        Array([0., 0.], dtype=float32)
    """

    count: Any
    mu: Any
    nu: Any


@spelled
def scale_by_novograd(
    b1: Scalar = 0.9, b2: Scalar = 0.25, eps: Scalar = 1e-8, eps_root: Scalar = 0.0, weight_decay: Scalar = 0.0,
    mu_dtype: DTypeLike | None = None,
) -> GradientTransformation:  # fmt: skip
    """Momentum of gradients divided by their norms, one for each array (Ginsburg et al., "Stochastic gradient methods with
    layer-wise adaptive moments", 2019).

    v ← b2 · v + (1 − b2) · ‖g‖²,    m ← b1 · m + g / (sqrt(v + eps_root) + eps) + weight_decay · p,    u = m
    In the first update v = ‖g‖².

    Args:
        b1: decay of the momentum, in [0, 1).
        b2: decay of the mean of squared norms, in [0, 1).
        eps: added to the divisor, outside the root.
        eps_root: added inside the root.
        weight_decay: factor of the parameters that join the momentum.
        mu_dtype: dtype of m; default the parameter's, float32 for 16-bit floats.

    Raises:
        ArgumentTypeError (from update): params were not given.

    Example:
        >>> scaled = nnc.optim.scale_by_novograd()
        >>> scaled.update(nnp.asarray([3.0, 4.0]), scaled.init(nnp.zeros(2)), nnp.zeros(2))[0]
        Array([0.6, 0.8], dtype=float32)
    """
    where = "scale_by_novograd"
    check_decays(where, b1=b1, b2=b2)
    check_scalars(where, eps=eps, eps_root=eps_root, weight_decay=weight_decay)

    def init_fn(params: Any) -> ScaleByNovogradState:
        def zero(p: Array) -> Array:
            return asarray(np.zeros((), dtypes.real_dtype(dtypes.accumulator(p.dtype))))

        return ScaleByNovogradState(zero_count(), zeros_state(where, params, mu_dtype), make_state(where, zero, params))

    def update_fn(updates: Any, state: Any, params: Any = None) -> tuple[Any, Any]:
        map_trainable(where, lambda m, g: m, "mu", state.mu, updates=updates)  # checks structure and shapes
        norms = map_trainable(where, lambda g: nnp.sum(squared_magnitude(widen(g))), "updates", updates)

        def mix(v: Array, square: Array) -> Array:
            square = astype(square, v.dtype)
            return nnp.where(state.count == 0, square, average(b2, square, v))

        def add(m: Array, g: Any, v: Array, p: Any) -> Array:
            wide = widen(m)
            step = divide(astype(asarray(g), wide.dtype), v, eps, eps_root, wide.dtype)
            step = step + astype(as_operand(p), wide.dtype) * number(weight_decay, wide.dtype)
            return astype(wide * number(b1, wide.dtype) + step, m.dtype)

        nu = map_trainable(where, mix, "nu", state.nu, norms=norms)
        mu = map_trainable(where, add, "mu", state.mu, updates=updates, nu=broadcast_like(updates, nu), params=params)
        u = map_trainable(where, lambda g, m: astype(m, g.dtype), "updates", updates, mu=mu)
        return u, ScaleByNovogradState(state.count + 1, mu, nu)

    return stateful(where, ScaleByNovogradState, init_fn, update_fn, reads_params=True)


@spelled
def novograd(
    learning_rate: Scalar | Schedule, b1: Scalar = 0.9, b2: Scalar = 0.25, eps: Scalar = 1e-6, eps_root: Scalar = 0.0,
    weight_decay: Scalar = 0.0,
) -> GradientTransformation:  # fmt: skip
    """Novograd, with one second moment for each array (Ginsburg et al., "Stochastic gradient methods with layer-wise adaptive
    moments for training of deep networks", 2019).

    v ← b2 · v + (1 − b2) · ‖g‖²,    m ← b1 · m + g / (sqrt(v + eps_root) + eps) + weight_decay · p
    p ← p − learning_rate · m

    Args:
        learning_rate: a number, a 0-d array or a schedule.
        b1: decay of the momentum, in [0, 1).
        b2: decay of the mean of squared norms, in [0, 1).
        eps: added to the divisor, outside the root.
        eps_root: added inside the root.
        weight_decay: factor of the parameters that join the momentum.

    Raises:
        ArgumentTypeError (from update): params were not given.

    Example:
        >>> optimizer = nnc.optim.novograd(0.1)
        >>> nnp.round(optimizer.update(nnp.asarray([3.0, 4.0]), optimizer.init(nnp.ones(2)), nnp.ones(2))[0], 3)
        Array([-0.06, -0.08], dtype=float32)
    """
    return stepping("novograd", learning_rate, scale_by_novograd(b1, b2, eps, eps_root, weight_decay))
