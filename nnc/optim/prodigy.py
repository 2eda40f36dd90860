"""Optimizers that estimate the learning rate by the distance to a solution: Prodigy and D-Adaptation."""

from __future__ import annotations

from typing import Any, NamedTuple

import nnc.numpy as nnp
from nnc.array.array import Array
from nnc.array.promote import as_operand, astype
from nnc.calls.spelling import spelled
from nnc.errors import ArgumentTypeError, user_error
from nnc.optim.arguments import Scalar, check_params, check_rate, check_scalar
from nnc.optim.base import GradientTransformation, map_trainable, number, stateful, widen
from nnc.optim.moments import average, bias_factor, check_decays, filled_squares, second_moment, zeros_state
from nnc.optim.schedules import Schedule
from nnc.optim.totals import copies, inner_product, magnitudes, rate_at, shared
from nnc.optim.transforms import zero_count

__all__ = ["DAdaptAdamWState", "ProdigyState", "dadapt_adamw", "prodigy"]

Decays = tuple[Scalar, Scalar]


def _check(where: str, learning_rate: Any, betas: Any, **numbers: Scalar) -> None:
    check_rate(where, learning_rate)
    if not isinstance(betas, (tuple, list)) or len(betas) != 2:
        problem = f"betas is {betas!r}, not a pair of numbers."
        raise user_error(ArgumentTypeError, where, problem, fix="write betas=(0.9, 0.999).")
    check_decays(where, **{"betas[0]": betas[0], "betas[1]": betas[1]})
    for name, value in numbers.items():
        check_scalar(where, name, value, positive=name == "estim_lr0")


def _warmed_up(estimate: Array, learning_rate: Scalar | Schedule, betas: Decays, count: Array) -> Array:
    """estimate · learning_rate · sqrt(1 − β2ᵗ) / (1 − β1ᵗ), where `count` is t − 1."""
    dtype = estimate.dtype
    b1, b2 = (bias_factor(beta, count + 1, dtype) for beta in betas)
    return estimate * rate_at(learning_rate, count, dtype) * nnp.sqrt(b2) / b1


def _higher(estimate: Array, numerator: Array, denominator: Array) -> Array:
    """Returns the greater of the estimate and of numerator / denominator, which nothing is learnt from where it has no
    denominator.
    """
    none = denominator == 0
    return nnp.maximum(estimate, nnp.where(none, 0, numerator / nnp.where(none, 1, denominator)))


# -- Prodigy -----------------------------------------------------------------------------------------------------------


class ProdigyState(NamedTuple):
    """Moments, first parameters and the estimate of the learning rate.

    Attributes:
        exp_avg: means of scaled gradients, a tree like the parameters.
        exp_avg_sq: means of their squares.
        grad_sum: decaying sums of scaled gradients.
        params0: the first parameters.
        estim_lr: estimate of the distance to a solution, a 0-d array.
        numerator_weighted: its numerator, a 0-d array.
        count: how many updates were made, a 0-d integer.

    Example:
        >>> state = nnc.optim.prodigy().init(nnp.ones(2))
        >>> state.estim_lr
        Array(1.e-06, dtype=float32)
    """

    exp_avg: Any
    exp_avg_sq: Any
    grad_sum: Any
    params0: Any
    estim_lr: Any
    numerator_weighted: Any
    count: Any


@spelled
def prodigy(
    learning_rate: Scalar | Schedule = 1.0, betas: Decays = (0.9, 0.999), beta3: Scalar | None = None,
    eps: Scalar = 1e-8, estim_lr0: Scalar = 1e-6, estim_lr_coef: Scalar = 1.0, weight_decay: Scalar = 0.0,
    safeguard_warmup: bool = False,
) -> GradientTransformation:  # fmt: skip
    """Prodigy, AdamW that finds its learning rate d (Mishchenko and Defazio, "Prodigy: an expeditiously adaptive parameter-free
    learner", 2024).

    γ = d · learning_rate · sqrt(1 − β2ᵗ) / (1 − β1ᵗ)
    m ← β1 · m + (1 − β1) · d · g,    v ← β2 · v + (1 − β2) · d² · |g|²
    s ← β3 · s + γ · d · g / d0,    r ← β3 · r + γ · d / d0 · ⟨g, p0 − p⟩
    d ← max(d, estim_lr_coef · r / ‖s‖₁),    p ← p − γ · (m / (sqrt(v) + d · eps) + weight_decay · p)

    Args:
        learning_rate: factor of the estimate: 1, or a schedule that falls from 1.
        betas: decays of the two moments, each in [0, 1).
        beta3: decay of the sums behind the estimate; None: sqrt(betas[1]).
        eps: added to the divisor, times d.
        estim_lr0: d0, the first estimate.
        estim_lr_coef: factor of the estimate.
        weight_decay: multiplied by the learning rate.
        safeguard_warmup: leave the learning rate out of s, where it warms up.

    Raises:
        ArgumentTypeError (from update): params were not given.

    Example:
        >>> optimizer = nnc.optim.prodigy(estim_lr0=0.1)
        >>> params = nnp.asarray([3.0, -4.0])
        >>> state = optimizer.init(params)
        >>> for _ in range(60):
        ...     updates, state = optimizer.update(2 * params, state, params)
        ...     params = nnc.optim.apply_updates(params, updates)
        >>> bool(nnp.all(nnp.abs(params) < 0.5))
        True
    """
    where = "prodigy"
    _check(
        where,
        learning_rate,
        betas,
        eps=eps,
        estim_lr0=estim_lr0,
        estim_lr_coef=estim_lr_coef,
        weight_decay=weight_decay,
    )
    if beta3 is not None:
        check_decays(where, beta3=beta3)
    beta1, beta2 = betas
    decay = beta2**0.5 if beta3 is None else beta3

    def init_fn(params: Any) -> ProdigyState:
        check_params(where, params)
        return ProdigyState(
            zeros_state(where, params), filled_squares(where, params, 0.0), zeros_state(where, params),
            copies(where, params), shared(estim_lr0, params), shared(0.0, params), zero_count(),
        )  # fmt: skip

    def update_fn(updates: Any, state: Any, params: Any = None) -> tuple[Any, Any]:
        d = state.estim_lr
        rate = _warmed_up(d, learning_rate, betas, state.count)
        beside = map_trainable(
            where, lambda g, p, p0: widen(p0) - widen(p), "updates", updates, p=params, p0=state.params0
        )
        start = number(estim_lr0, d.dtype)
        scaled = map_trainable(where, lambda g: widen(g) * number(d, widen(g).dtype), "updates", updates)
        factor = (d if safeguard_warmup else rate) / start

        def gather(s: Array, g: Array) -> Array:
            return s * number(decay, s.dtype) + astype(g, s.dtype) * number(factor, s.dtype)

        exp_avg = map_trainable(where, lambda m, g: average(beta1, g, m), "exp_avg", state.exp_avg, updates=scaled)
        exp_avg_sq = second_moment(where, beta2, scaled, state.exp_avg_sq)
        grad_sum = map_trainable(where, gather, "grad_sum", state.grad_sum, updates=scaled)
        numerator = state.numerator_weighted * number(decay, d.dtype)
        numerator = numerator + d / start * rate * astype(
            inner_product(where, "updates", updates, params=beside), d.dtype
        )
        bound = astype(magnitudes(where, grad_sum), d.dtype)
        estimate = _higher(d, numerator * number(estim_lr_coef, d.dtype), bound)

        def step(g: Array, m: Array, v: Array, p: Any) -> Array:
            divided = m / (nnp.sqrt(v) + number(estimate, v.dtype) * number(eps, v.dtype))
            decayed = astype(as_operand(p), m.dtype) * number(weight_decay, m.dtype)
            return astype(-(divided + decayed) * number(rate, m.dtype), g.dtype)

        u = map_trainable(where, step, "updates", updates, exp_avg=exp_avg, exp_avg_sq=exp_avg_sq, params=params)
        return u, ProdigyState(exp_avg, exp_avg_sq, grad_sum, state.params0, estimate, numerator, state.count + 1)

    return stateful(where, ProdigyState, init_fn, update_fn, reads_params=True)


# -- D-Adaptation ------------------------------------------------------------------------------------------------------


class DAdaptAdamWState(NamedTuple):
    """Moments and the estimate of the learning rate.

    Attributes:
        exp_avg: means of scaled gradients, a tree like the parameters.
        exp_avg_sq: means of squared gradients.
        grad_sum: decaying sums of scaled gradients.
        estim_lr: estimate of the distance to a solution, a 0-d array.
        numerator_weighted: its numerator, a 0-d array.
        count: how many updates were made, a 0-d integer.

    Example:
        >>> state = nnc.optim.dadapt_adamw().init(nnp.ones(2))
        >>> state.estim_lr
        Array(1.e-06, dtype=float32)
    """

    exp_avg: Any
    exp_avg_sq: Any
    grad_sum: Any
    estim_lr: Any
    numerator_weighted: Any
    count: Any


@spelled
def dadapt_adamw(
    learning_rate: Scalar | Schedule = 1.0, betas: Decays = (0.9, 0.999), eps: Scalar = 1e-8, estim_lr0: Scalar = 1e-6,
    weight_decay: Scalar = 0.0,
) -> GradientTransformation:  # fmt: skip
    """AdamW with D-Adaptation, which finds its learning rate d (Defazio and Mishchenko, "Learning-rate-free learning by
    D-Adaptation", 2023).

    γ = d · learning_rate · sqrt(1 − β2ᵗ) / (1 − β1ᵗ),    b = sqrt(β2)
    r ← b · r + (1 − b) · γ · ⟨g, s / (sqrt(v) + eps)⟩,    s ← b · s + (1 − b) · γ · g
    m ← β1 · m + (1 − β1) · γ · g,    v ← β2 · v + (1 − β2) · |g|²
    d ← max(d, r / ((1 − b) · ‖s‖₁)),    p ← p − m / (sqrt(v) + eps) − γ · weight_decay · p

    Args:
        learning_rate: factor of the estimate: 1, or a schedule that falls from 1.
        betas: decays of the two moments, each in [0, 1).
        eps: added to the divisor.
        estim_lr0: the first estimate.
        weight_decay: multiplied by the learning rate.

    Raises:
        ArgumentTypeError (from update): params were not given.

    Example:
        >>> optimizer = nnc.optim.dadapt_adamw(estim_lr0=0.1)
        >>> nnp.round(optimizer.update(nnp.asarray([3.0]), optimizer.init(nnp.ones(1)), nnp.ones(1))[0], 3)
        Array([-0.1], dtype=float32)
    """
    where = "dadapt_adamw"
    _check(where, learning_rate, betas, eps=eps, estim_lr0=estim_lr0, weight_decay=weight_decay)
    beta1, beta2 = betas

    def init_fn(params: Any) -> DAdaptAdamWState:
        return DAdaptAdamWState(
            zeros_state(where, params), filled_squares(where, params, 0.0), zeros_state(where, params),
            shared(estim_lr0, params), shared(0.0, params), zero_count(),
        )  # fmt: skip

    def update_fn(updates: Any, state: Any, params: Any = None) -> tuple[Any, Any]:
        d = state.estim_lr
        rate = _warmed_up(d, learning_rate, betas, state.count)
        decay = number(beta2**0.5, d.dtype)

        def divide(s: Array, v: Array) -> Array:
            return s / (nnp.sqrt(v) + number(eps, v.dtype))

        scaled = map_trainable(where, lambda g: widen(g) * number(rate, widen(g).dtype), "updates", updates)
        weighted = map_trainable(where, divide, "grad_sum", state.grad_sum, exp_avg_sq=state.exp_avg_sq)
        product = astype(inner_product(where, "updates", updates, grad_sum=weighted), d.dtype)
        exp_avg = map_trainable(where, lambda m, g: average(beta1, g, m), "exp_avg", state.exp_avg, updates=scaled)
        exp_avg_sq = second_moment(where, beta2, updates, state.exp_avg_sq)
        grad_sum = map_trainable(
            where, lambda s, g: average(beta2**0.5, g, s), "grad_sum", state.grad_sum, updates=scaled
        )
        numerator = decay * state.numerator_weighted + (1 - decay) * rate * product
        estimate = _higher(d, numerator, (1 - decay) * astype(magnitudes(where, grad_sum), d.dtype))

        def step(g: Array, m: Array, v: Array, p: Any) -> Array:
            decayed = astype(as_operand(p), m.dtype) * (number(weight_decay, m.dtype) * number(rate, m.dtype))
            return astype(-divide(m, v) - decayed, g.dtype)

        u = map_trainable(where, step, "updates", updates, exp_avg=exp_avg, exp_avg_sq=exp_avg_sq, params=params)
        return u, DAdaptAdamWState(exp_avg, exp_avg_sq, grad_sum, estimate, numerator, state.count + 1)

    return stateful(where, DAdaptAdamWState, init_fn, update_fn, reads_params=True)
