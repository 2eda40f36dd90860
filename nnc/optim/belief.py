"""Relatives of Adam that measure the size of gradients otherwise: AdaBelief, Acprop and Yogi."""

from __future__ import annotations

from typing import Any, NamedTuple

import nnc.numpy as nnp
from nnc.array.array import Array, asarray
from nnc.array.promote import astype
from nnc.calls.spelling import spelled
from nnc.optim.arguments import Mask, Scalar, check_scalars
from nnc.optim.base import GradientTransformation, make_state, map_trainable, number, stateful, widen
from nnc.optim.clipping import squared_magnitude
from nnc.optim.moments import (
    Correction,
    ScaleByAdamState,
    average,
    check_decays,
    divide,
    filled_squares,
    first_moment,
    first_state,
    unbiased_moments,
)
from nnc.optim.schedules import Schedule
from nnc.optim.transforms import add_decayed_weights, stepping, zero_count, zeros_for

__all__ = ["ScaleByBeliefState", "acprop", "adabelief", "scale_by_acprop", "scale_by_belief", "scale_by_yogi", "yogi"]

# -- AdaBelief ---------------------------------------------------------------------------------------------------------


class ScaleByBeliefState(NamedTuple):
    """Count of updates, first moment and second central moment.

    Attributes:
        count: how many updates were made, a 0-d integer.
        mu: means of gradients, a tree like the parameters.
        nu: means of squared distances from the mean, a tree like the parameters.

    Example:
        >>> state = nnc.optim.scale_by_belief().init(nnp.ones(2))
        >>> state.mu
        Array([0., 0.], dtype=float32)
    """

    count: Any
    mu: Any
    nu: Any


def _spread(where: str, decay: Scalar, eps_root: Scalar, updates: Any, mu: Any, nu: Any) -> Any:
    """Returns the next mean of |g − m|², each time with eps_root added."""

    def move(v: Array, g: Any, m: Array) -> Array:
        wide = widen(asarray(g))
        error = wide - astype(m, wide.dtype)
        return average(decay, squared_magnitude(error), v) + number(eps_root, v.dtype)

    return map_trainable(where, move, "nu", nu, updates=updates, mu=mu)


@spelled
def scale_by_belief(
    b1: Scalar = 0.9, b2: Scalar = 0.999, eps: Scalar = 1e-16, eps_root: Scalar = 1e-16, *, nesterov: bool = False
) -> GradientTransformation:
    """Divides the mean of gradients by their spread around it (Zhuang et al., "AdaBelief optimizer", 2020).

    m ← b1 · m + (1 − b1) · g,    s ← b2 · s + (1 − b2) · |g − m|² + eps_root
    u = m̂ / (sqrt(ŝ) + eps),    m̂ = m / (1 − b1ᵗ),  ŝ = s / (1 − b2ᵗ)

    Args:
        b1: decay of the mean of gradients, in [0, 1).
        b2: decay of the mean of squared distances, in [0, 1).
        eps: added to the divisor.
        eps_root: added to s in each update.
        nesterov: look ahead, as in `scale_by_adam`.

    Example:
        >>> belief = nnc.optim.scale_by_belief(b1=0.5, b2=0.0)
        >>> belief.update(nnp.asarray([3.0]), belief.init(nnp.zeros(1)))[0]  # 3 / |3 - 1.5|
        Array([2.], dtype=float32)
    """
    where = "scale_by_belief"
    check_decays(where, b1=b1, b2=b2)
    check_scalars(where, eps=eps, eps_root=eps_root)

    def update_fn(updates: Any, state: Any, params: Any = None) -> tuple[Any, Any]:
        count = state.count + 1
        mu = first_moment(where, b1, updates, state.mu)
        nu = _spread(where, b2, eps_root, updates, mu, state.nu)
        mean, correct_nu = unbiased_moments(b1, b2, count, updates, mu, nu, nesterov)

        def step(g: Array, m: Array, v: Array) -> Array:
            return divide(mean(g, m), correct_nu(v), eps, 0.0, g.dtype)

        u = map_trainable(where, step, "updates", updates, mu=mu, nu=nu)
        return u, ScaleByBeliefState(count, mu, nu)

    return stateful(where, ScaleByBeliefState, first_state(where, ScaleByBeliefState), update_fn)


@spelled
def adabelief(
    learning_rate: Scalar | Schedule, b1: Scalar = 0.9, b2: Scalar = 0.999, eps: Scalar = 1e-16, eps_root: Scalar = 1e-16, *,
    nesterov: bool = False,
) -> GradientTransformation:  # fmt: skip
    """AdaBelief (Zhuang et al., "AdaBelief optimizer: adapting stepsizes by the belief in observed gradients", 2020).

    m ← b1 · m + (1 − b1) · g,    s ← b2 · s + (1 − b2) · |g − m|² + eps_root
    p ← p − learning_rate · m̂ / (sqrt(ŝ) + eps)

    Args:
        learning_rate: a number, a 0-d array or a schedule.
        b1: decay of the mean of gradients, in [0, 1).
        b2: decay of the mean of squared distances from it, in [0, 1).
        eps: added to the divisor.
        eps_root: added to s in each update.
        nesterov: look ahead, as in `scale_by_adam`.

    Example:
        >>> optimizer = nnc.optim.adabelief(0.1, b1=0.5)
        >>> nnp.round(optimizer.update(nnp.asarray([3.0]), optimizer.init(nnp.ones(1)))[0], 3)
        Array([-0.2], dtype=float32)
    """
    return stepping("adabelief", learning_rate, scale_by_belief(b1, b2, eps, eps_root, nesterov=nesterov))


# -- Acprop ------------------------------------------------------------------------------------------------------------


@spelled
def scale_by_acprop(
    b1: Scalar = 0.9, b2: Scalar = 0.999, eps: Scalar = 1e-16, eps_root: Scalar = 1e-16
) -> GradientTransformation:
    """Divides gradients by their spread before this update (Zhuang et al., "Momentum centering and asynchronous update", 2021).

    u = g / (sqrt(ŝ) + eps),    ŝ = s / (1 − b2ᵗ⁻¹), and 1 in the first update
    s ← b2 · s + (1 − b2) · |g − m|² + eps_root,    m ← b1 · m + (1 − b1) · g

    Args:
        b1: decay of the mean of gradients, in [0, 1).
        b2: decay of the mean of squared distances, in [0, 1).
        eps: added to the divisor.
        eps_root: added to s in each update.

    Example:
        >>> transformation = nnc.optim.scale_by_acprop()
        >>> params = nnp.asarray([3.0, 4.0])
        >>> transformation.update(nnp.asarray([1.0, -2.0]), transformation.init(params), params)[0]
        Array([ 1., -2.], dtype=float32)
    """
    where = "scale_by_acprop"
    check_decays(where, b1=b1, b2=b2)
    check_scalars(where, eps=eps, eps_root=eps_root)

    def update_fn(updates: Any, state: Any, params: Any = None) -> tuple[Any, Any]:
        first = state.count == 0
        mu = first_moment(where, b1, updates, state.mu)
        nu = _spread(where, b2, eps_root, updates, state.mu, state.nu)
        correct = Correction(b2, nnp.maximum(state.count, 1), state.nu)

        def step(g: Array, v: Array) -> Array:
            return divide(widen(g), nnp.where(first, 1, correct(v)), eps, 0.0, g.dtype)

        u = map_trainable(where, step, "updates", updates, nu=state.nu)
        return u, ScaleByBeliefState(state.count + 1, mu, nu)

    return stateful(where, ScaleByBeliefState, first_state(where, ScaleByBeliefState), update_fn)


@spelled
def acprop(
    learning_rate: Scalar | Schedule, b1: Scalar = 0.9, b2: Scalar = 0.999, eps: Scalar = 1e-16, eps_root: Scalar = 1e-16,
    weight_decay: Scalar = 0.0, mask: Mask = None,
) -> GradientTransformation:  # fmt: skip
    """Acprop, gradients over the spread of earlier ones (Zhuang et al., "Momentum centering and asynchronous update for adaptive
    gradient methods", 2021); see `scale_by_acprop`.

    Args:
        learning_rate: a number, a 0-d array or a schedule.
        b1: decay of the mean of gradients, in [0, 1).
        b2: decay of the mean of squared distances from it, in [0, 1).
        eps: added to the divisor.
        eps_root: added to the mean of squared distances in each update.
        weight_decay: multiplied by the learning rate.
        mask: a tree of bools, or a function from parameters to one; only where it is True do weights decay.

    Raises:
        ArgumentTypeError (from update): params were not given.

    Example:
        >>> optimizer = nnc.optim.acprop(0.1)
        >>> optimizer.update(nnp.asarray([3.0]), optimizer.init(nnp.ones(1)), nnp.ones(1))[0]
        Array([-0.3], dtype=float32)
    """
    moments = scale_by_acprop(b1, b2, eps, eps_root)
    return stepping("acprop", learning_rate, moments, add_decayed_weights(weight_decay, mask))


# -- Yogi --------------------------------------------------------------------------------------------------------------


@spelled
def scale_by_yogi(
    b1: Scalar = 0.9, b2: Scalar = 0.999, eps: Scalar = 1e-3, eps_root: Scalar = 0.0,
    initial_accumulator_value: Scalar = 1e-6,
) -> GradientTransformation:  # fmt: skip
    """Adam whose second moment moves by steps of |g|², not of its distance (Zaheer et al., "Adaptive methods for nonconvex
    optimization", 2018).

    m ← b1 · m + (1 − b1) · g,    v ← v − (1 − b2) · sign(v − |g|²) · |g|²
    u = m̂ / (sqrt(v̂ + eps_root) + eps),    m̂ = m / (1 − b1ᵗ),  v̂ = v / (1 − b2ᵗ)

    Args:
        b1: decay of the mean of gradients, in [0, 1).
        b2: decay of the second moment, in [0, 1).
        eps: added to the divisor, outside the root.
        eps_root: added inside the root.
        initial_accumulator_value: m and v before the first update.

    Example:
        >>> scaled = nnc.optim.scale_by_yogi(b2=0.0, eps=0.0, initial_accumulator_value=0.0)
        >>> scaled.update(nnp.asarray([3.0]), scaled.init(nnp.zeros(1)))[0]
        Array([1.], dtype=float32)
    """
    where = "scale_by_yogi"
    check_decays(where, b1=b1, b2=b2)
    check_scalars(where, eps=eps, eps_root=eps_root, initial_accumulator_value=initial_accumulator_value)

    def fill(x: Array) -> Array:
        return x + number(initial_accumulator_value, x.dtype)

    def init_fn(params: Any) -> ScaleByAdamState:
        mu = make_state(where, lambda p: fill(zeros_for(p)), params)
        nu = make_state(where, lambda v: fill(zeros_for(v)), filled_squares(where, params, 0.0))
        return ScaleByAdamState(zero_count(), mu, nu)

    def update_fn(updates: Any, state: Any, params: Any = None) -> tuple[Any, Any]:
        count = state.count + 1
        mu = first_moment(where, b1, updates, state.mu)

        def move(v: Array, g: Any) -> Array:
            square = astype(squared_magnitude(widen(asarray(g))), v.dtype)
            return v - (1 - number(b2, v.dtype)) * nnp.sign(v - square) * square

        nu = map_trainable(where, move, "nu", state.nu, updates=updates)
        correct_mu, correct_nu = Correction(b1, count, mu), Correction(b2, count, nu)

        def step(g: Array, m: Array, v: Array) -> Array:
            return divide(correct_mu(m), correct_nu(v), eps, eps_root, g.dtype)

        u = map_trainable(where, step, "updates", updates, mu=mu, nu=nu)
        return u, ScaleByAdamState(count, mu, nu)

    return stateful(where, ScaleByAdamState, init_fn, update_fn)


@spelled
def yogi(
    learning_rate: Scalar | Schedule, b1: Scalar = 0.9, b2: Scalar = 0.999, eps: Scalar = 1e-3
) -> GradientTransformation:
    """Yogi (Zaheer et al., "Adaptive methods for nonconvex optimization", 2018), whose divisor falls slowly.

    m ← b1 · m + (1 − b1) · g,    v ← v − (1 − b2) · sign(v − |g|²) · |g|²
    p ← p − learning_rate · m̂ / (sqrt(v̂) + eps)

    Args:
        learning_rate: a number, a 0-d array or a schedule.
        b1: decay of the mean of gradients, in [0, 1).
        b2: decay of the second moment, in [0, 1).
        eps: added to the divisor.

    Example:
        >>> optimizer = nnc.optim.yogi(0.1)
        >>> nnp.round(optimizer.update(nnp.asarray([3.0]), optimizer.init(nnp.ones(1)))[0], 3)
        Array([-0.1], dtype=float32)
    """
    return stepping("yogi", learning_rate, scale_by_yogi(b1, b2, eps))
