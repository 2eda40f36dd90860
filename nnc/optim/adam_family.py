"""Relatives of Adam: NAdam, RAdam, AdaMax and Lion, each beside the scaling that it is made of."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

import nnc.numpy as nnp
from nnc.array.array import Array, asarray
from nnc.array.promote import astype
from nnc.base import dtypes
from nnc.calls.spelling import spelled
from nnc.optim.arguments import Mask, Scalar, check_scalar, check_scalars
from nnc.optim.base import GradientTransformation, map_trainable, number, stateful, widen
from nnc.optim.moments import (
    Correction,
    ScaleByAdamState,
    average,
    check_decays,
    divide,
    filled_squares,
    first_moment,
    first_state,
    scale_by_adam,
    second_moment,
    unbiased_moments,
    zeros_state,
)
from nnc.optim.schedules import Schedule
from nnc.optim.transforms import add_decayed_weights, stepping, zero_count
from nnc.typing import DTypeLike

__all__ = [
    "ScaleByLionState",
    "ScaleByNadamState",
    "adamax",
    "lion",
    "nadam",
    "radam",
    "scale_by_adamax",
    "scale_by_lion",
    "scale_by_nadam",
    "scale_by_radam",
]

# -- NAdam -------------------------------------------------------------------------------------------------------------


class ScaleByNadamState(NamedTuple):
    """Count of updates, the product of all momenta so far, first and second moment.

    Attributes:
        count: how many updates were made, a 0-d integer.
        mu_product: product of all momenta so far.
        mu: first moments, a tree like the parameters.
        nu: second moments, a tree like the parameters.

    Example:
        >>> state = nnc.optim.scale_by_nadam().init(nnp.ones(2))
        >>> state.mu
        Array([0., 0.], dtype=float32)
    """

    count: Any
    mu_product: Any
    mu: Any
    nu: Any


@spelled
def scale_by_nadam(
    b1: Scalar = 0.9,
    b2: Scalar = 0.999,
    eps: Scalar = 1e-8,
    momentum_decay: Scalar = 4e-3,
    mu_dtype: DTypeLike | None = None,
) -> GradientTransformation:
    """Adam with Nesterov momentum that warms up (Dozat, "Incorporating Nesterov momentum into Adam", 2016).

    c(t) = b1 · (1 − ½ · 0.96^(t · momentum_decay)),    C = c(1) · … · c(t)
    u = (c(t+1) · m / (1 − C · c(t+1)) + (1 − c(t)) · g / (1 − C)) / (sqrt(v̂) + eps)

    Args:
        b1: in [0, 1).
        b2: in [0, 1).
        eps: added to the divisor, outside the root.
        momentum_decay: how fast the momentum rises to b1.
        mu_dtype: dtype of m.

    Example:
        >>> transformation = nnc.optim.scale_by_nadam()
        >>> params = nnp.asarray([3.0, 4.0])
        >>> updates, state = transformation.update(nnp.asarray([1.0, -2.0]), transformation.init(params), params)
        >>> nnp.round(updates, 3)
        Array([ 1.056, -1.056], dtype=float32)
    """
    where = "scale_by_nadam"
    check_decays(where, b1=b1, b2=b2)
    check_scalars(where, eps=eps, momentum_decay=momentum_decay)

    def init_fn(params: Any) -> ScaleByNadamState:
        one = asarray(np.ones((), np.float64))
        return ScaleByNadamState(
            zero_count(), one, zeros_state(where, params, mu_dtype), filled_squares(where, params, 0.0)
        )

    def update_fn(updates: Any, state: Any, params: Any = None) -> tuple[Any, Any]:
        count = state.count + 1
        mu, nu = first_moment(where, b1, updates, state.mu), second_moment(where, b2, updates, state.nu)

        def momentum(t: Array) -> Array:
            decays = 0.96 ** (astype(t, dtypes.float64) * number(momentum_decay, dtypes.float64))
            return number(b1, dtypes.float64) * (1 - 0.5 * decays)

        now, ahead = momentum(count), momentum(count + 1)
        product = state.mu_product * now
        correct_nu = Correction(b2, count, nu)

        def step(g: Array, m: Array, v: Array) -> Array:
            wide = widen(g)
            keep, fresh = (
                number(ahead / (1 - product * ahead), wide.dtype),
                number((1 - now) / (1 - product), wide.dtype),
            )
            return divide(astype(m, wide.dtype) * keep + wide * fresh, correct_nu(v), eps, 0.0, g.dtype)

        u = map_trainable(where, step, "updates", updates, mu=mu, nu=nu)
        return u, ScaleByNadamState(count, product, mu, nu)

    return stateful(where, ScaleByNadamState, init_fn, update_fn)


@spelled
def nadam(
    learning_rate: Scalar | Schedule, b1: Scalar = 0.9, b2: Scalar = 0.999, eps: Scalar = 1e-8, eps_root: Scalar = 0.0,
    mu_dtype: DTypeLike | None = None, *, nesterov: bool = True, momentum_decay: Scalar | None = None,
) -> GradientTransformation:  # fmt: skip
    """NAdam, Adam with Nesterov momentum (Dozat, 2016). As in Optax: `adam(..., nesterov=True)`.

    Args:
        learning_rate: a number, a 0-d array or a schedule.
        b1: decay of the mean of gradients, in [0, 1).
        b2: decay of the mean of squares, in [0, 1).
        eps: added to the divisor, outside the root.
        eps_root: added inside the root, where the step itself is differentiated.
        mu_dtype: dtype of m; default the parameter's, float32 for 16-bit floats.
        nesterov: False makes it Adam.
        momentum_decay: a number (4e-3 in torch.optim.NAdam) lets the momentum warm up as that does; see
            `scale_by_nadam`.

    Example:
        >>> optimizer = nnc.optim.nadam(0.1)
        >>> optimizer.update(nnp.ones(1), optimizer.init(nnp.ones(1)))[0]
        Array([-0.14736842], dtype=float32)
    """
    if momentum_decay is None:
        moments = scale_by_adam(b1, b2, eps, eps_root, mu_dtype, nesterov=nesterov)
    else:
        moments = scale_by_nadam(b1, b2, eps, momentum_decay, mu_dtype)
    return stepping("nadam", learning_rate, moments)


# -- RAdam -------------------------------------------------------------------------------------------------------------


@spelled
def scale_by_radam(
    b1: Scalar = 0.9, b2: Scalar = 0.999, eps: Scalar = 1e-8, eps_root: Scalar = 0.0, threshold: Scalar = 5.0, *,
    nesterov: bool = False,
) -> GradientTransformation:  # fmt: skip
    """Adam that does not divide before its divisor is known well (Liu et al., "On the variance of the adaptive learning rate
    and beyond", 2020).

    ρ∞ = 2 / (1 − b2) − 1,    ρ = ρ∞ − 2 t b2ᵗ / (1 − b2ᵗ),    r = sqrt((ρ−4) (ρ−2) ρ∞ / ((ρ∞−4) (ρ∞−2) ρ))
    u = r · m̂ / (sqrt(v̂ + eps_root) + eps) where ρ ≥ threshold,  else m̂

    Args:
        b1: decay of the mean of gradients, in [0, 1).
        b2: decay of the mean of squares, in [0, 1).
        eps: added to the divisor, outside the root.
        eps_root: added inside the root, where the step itself is differentiated.
        threshold: how many samples' worth of v is enough.
        nesterov: look ahead, as in `scale_by_adam`.

    Example:
        >>> transformation = nnc.optim.scale_by_radam()
        >>> params = nnp.asarray([3.0, 4.0])
        >>> transformation.update(nnp.asarray([1.0, -2.0]), transformation.init(params), params)[0]
        Array([ 1., -2.], dtype=float32)
    """
    where = "scale_by_radam"
    check_decays(where, b1=b1, b2=b2)
    check_scalars(where, eps=eps, eps_root=eps_root, threshold=threshold)

    def update_fn(updates: Any, state: Any, params: Any = None) -> tuple[Any, Any]:
        count = state.count + 1
        mu, nu = first_moment(where, b1, updates, state.mu), second_moment(where, b2, updates, state.nu)
        mean, correct_nu = unbiased_moments(b1, b2, count, updates, mu, nu, nesterov)
        decay, t = number(b2, dtypes.float64), astype(count, dtypes.float64)
        limit, weight = 2 / (1 - decay) - 1, decay**t
        known = limit - 2 * t * weight / (1 - weight)
        enough = known >= number(threshold, dtypes.float64)
        safe = nnp.where(enough, known, limit)  # no root of a negative number where it is not used
        ratio = nnp.sqrt((safe - 4) * (safe - 2) * limit / ((limit - 4) * (limit - 2) * safe))

        def step(g: Array, m: Array, v: Array) -> Array:
            m_hat = mean(g, m)
            divided = divide(m_hat, correct_nu(v), eps, eps_root, m_hat.dtype) * number(ratio, m_hat.dtype)
            return astype(nnp.where(enough, divided, m_hat), g.dtype)

        u = map_trainable(where, step, "updates", updates, mu=mu, nu=nu)
        return u, ScaleByAdamState(count, mu, nu)

    return stateful(where, ScaleByAdamState, first_state(where, ScaleByAdamState), update_fn)


@spelled
def radam(
    learning_rate: Scalar | Schedule, b1: Scalar = 0.9, b2: Scalar = 0.999, eps: Scalar = 1e-8, eps_root: Scalar = 0.0,
    threshold: Scalar = 5.0, *, nesterov: bool = False,
) -> GradientTransformation:  # fmt: skip
    """Rectified Adam (Liu et al., "On the variance of the adaptive learning rate and beyond", 2020); see `scale_by_radam`.

    torch.optim.RAdam adds eps before it corrects the divisor, which differs by less than eps.

    Args:
        learning_rate: a number, a 0-d array or a schedule.
        b1: decay of the mean of gradients, in [0, 1).
        b2: decay of the mean of squares, in [0, 1).
        eps: added to the divisor, outside the root.
        eps_root: added inside the root, where the step itself is differentiated.
        threshold: how many samples' worth of the second moment is enough to divide by it.
        nesterov: look ahead, as in `scale_by_adam`.

    Example:
        >>> optimizer = nnc.optim.radam(0.1)
        >>> optimizer.update(nnp.asarray([3.0]), optimizer.init(nnp.ones(1)))[0]  # not yet divided
        Array([-0.3], dtype=float32)
    """
    return stepping("radam", learning_rate, scale_by_radam(b1, b2, eps, eps_root, threshold, nesterov=nesterov))


# -- AdaMax ------------------------------------------------------------------------------------------------------------


@spelled
def scale_by_adamax(b1: Scalar = 0.9, b2: Scalar = 0.999, eps: Scalar = 1e-8) -> GradientTransformation:
    """Divides the mean of past gradients by their decaying maximum (Kingma and Ba, "Adam", 2015, section 7).

    m ← b1 · m + (1 − b1) · g,    v ← max(b2 · v, |g| + eps),    u = m̂ / v

    Args:
        b1: decay of the mean of gradients, in [0, 1).
        b2: decay of the maximum, in [0, 1).
        eps: added to |g|.

    Example:
        >>> transformation = nnc.optim.scale_by_adamax()
        >>> params = nnp.asarray([3.0, 4.0])
        >>> transformation.update(nnp.asarray([1.0, -2.0]), transformation.init(params), params)[0]
        Array([ 1., -1.], dtype=float32)
    """
    where = "scale_by_adamax"
    check_decays(where, b1=b1, b2=b2)
    check_scalar(where, "eps", eps)

    def update_fn(updates: Any, state: Any, params: Any = None) -> tuple[Any, Any]:
        count = state.count + 1
        mu = first_moment(where, b1, updates, state.mu)

        def largest(v: Array, g: Any) -> Array:
            size = astype(nnp.abs(widen(g)), v.dtype)
            return nnp.maximum(v * number(b2, v.dtype), size + number(eps, v.dtype))

        nu = map_trainable(where, largest, "nu", state.nu, updates=updates)
        correct = Correction(b1, count, mu)

        def step(g: Array, m: Array, v: Array) -> Array:
            return astype(correct(m) / v, g.dtype)

        return map_trainable(where, step, "updates", updates, mu=mu, nu=nu), ScaleByAdamState(count, mu, nu)

    return stateful(where, ScaleByAdamState, first_state(where, ScaleByAdamState), update_fn)


@spelled
def adamax(
    learning_rate: Scalar | Schedule, b1: Scalar = 0.9, b2: Scalar = 0.999, eps: Scalar = 1e-8
) -> GradientTransformation:
    """AdaMax, Adam by the infinity norm (Kingma and Ba, "Adam", 2015, section 7).

    m ← b1 · m + (1 − b1) · g,    v ← max(b2 · v, |g| + eps),    p ← p − learning_rate · m̂ / v

    Args:
        learning_rate: a number, a 0-d array or a schedule.
        b1: decay of the mean of gradients, in [0, 1).
        b2: decay of the maximum, in [0, 1).
        eps: added to |g|.

    Example:
        >>> optimizer = nnc.optim.adamax(0.1)
        >>> optimizer.update(nnp.asarray([3.0]), optimizer.init(nnp.ones(1)))[0]
        Array([-0.1], dtype=float32)
    """
    return stepping("adamax", learning_rate, scale_by_adamax(b1, b2, eps))


# -- Lion --------------------------------------------------------------------------------------------------------------


class ScaleByLionState(NamedTuple):
    """Count of updates and first moment.

    Attributes:
        count: how many updates were made, a 0-d integer.
        mu: first moments, a tree like the parameters.

    Example:
        >>> state = nnc.optim.scale_by_lion().init(nnp.ones(2))
        >>> state.mu
        Array([0., 0.], dtype=float32)
    """

    count: Any
    mu: Any


@spelled
def scale_by_lion(b1: Scalar = 0.9, b2: Scalar = 0.99, mu_dtype: DTypeLike | None = None) -> GradientTransformation:
    """Signs of a mean of gradients (Chen et al., "Symbolic discovery of optimization algorithms", 2023).

    u = sign(b1 · m + (1 − b1) · g),    m ← b2 · m + (1 − b2) · g

    The sign of a complex number is x / |x|.

    Args:
        b1: share of the mean in the sign, in [0, 1).
        b2: decay of the mean of gradients, in [0, 1).
        mu_dtype: dtype of m; default the parameter's, float32 for 16-bit floats.

    Example:
        >>> transformation = nnc.optim.scale_by_lion()
        >>> params = nnp.asarray([3.0, 4.0])
        >>> transformation.update(nnp.asarray([1.0, -2.0]), transformation.init(params), params)[0]
        Array([ 1., -1.], dtype=float32)
    """
    where = "scale_by_lion"
    check_decays(where, b1=b1, b2=b2)

    def init_fn(params: Any) -> ScaleByLionState:
        return ScaleByLionState(zero_count(), zeros_state(where, params, mu_dtype))

    def update_fn(updates: Any, state: Any, params: Any = None) -> tuple[Any, Any]:

        def step(g: Array, m: Array) -> Array:
            wide = widen(g)
            return astype(nnp.sign(average(b1, wide, astype(m, wide.dtype))), g.dtype)

        u = map_trainable(where, step, "updates", updates, mu=state.mu)
        return u, ScaleByLionState(state.count + 1, first_moment(where, b2, updates, state.mu))

    return stateful(where, ScaleByLionState, init_fn, update_fn)


@spelled
def lion(
    learning_rate: Scalar | Schedule, b1: Scalar = 0.9, b2: Scalar = 0.99, mu_dtype: DTypeLike | None = None,
    weight_decay: Scalar | Schedule = 1e-3, mask: Mask = None,
) -> GradientTransformation:  # fmt: skip
    """Lion (Chen et al., "Symbolic discovery of optimization algorithms", 2023): every step has the size of the rate.

    p ← p − learning_rate · (sign(b1 · m + (1 − b1) · g) + weight_decay · p),    m ← b2 · m + (1 − b2) · g

    Args:
        learning_rate: three to ten times smaller than for `adamw`.
        b1: share of the mean in the sign, in [0, 1).
        b2: decay of the mean of gradients, in [0, 1).
        mu_dtype: dtype of m; default the parameter's, float32 for 16-bit floats.
        weight_decay: multiplied by the learning rate.
        mask: a tree of bools, or a function from parameters to one; only where it is True do weights decay.

    Raises:
        ArgumentTypeError (from update): params were not given.

    Example:
        >>> optimizer = nnc.optim.lion(0.1, weight_decay=0.0)
        >>> optimizer.update(nnp.asarray([3.0, -0.2]), optimizer.init(nnp.ones(2)), nnp.ones(2))[0]
        Array([-0.1,  0.1], dtype=float32)
    """
    return stepping("lion", learning_rate, scale_by_lion(b1, b2, mu_dtype), add_decayed_weights(weight_decay, mask))
