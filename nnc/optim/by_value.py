"""Optimizers that read the value of the loss: Polyak's step size and MoMo."""

from __future__ import annotations

from typing import Any, Literal, NamedTuple

import numpy as np

import nnc.numpy as nnp
from nnc.array.array import Array
from nnc.array.promote import as_operand, astype
from nnc.base import dtypes
from nnc.calls.spelling import spelled
from nnc.errors import ArgumentError, ArgumentTypeError, user_error
from nnc.errors.errors import check_choice
from nnc.optim.arguments import Scalar, check_params, check_rate, check_scalar, check_scalars, check_state
from nnc.optim.base import (
    EmptyState,
    GradientTransformation,
    GradientTransformationExtraArgs,
    chain,
    map_trainable,
    number,
    scalar,
    widen,
)
from nnc.optim.moments import (
    average,
    bias_factor,
    check_decays,
    filled_squares,
    first_moment,
    second_moment,
    zeros_state,
)
from nnc.optim.optimizers import sgd
from nnc.optim.schedules import Schedule
from nnc.optim.totals import inner_product, rate_at, shared, squared_norm
from nnc.optim.transforms import scaled, zero_count

__all__ = ["MomoAdamState", "MomoState", "momo", "momo_adam", "polyak_sgd", "scale_by_polyak"]

SMALLEST = float(np.finfo(np.float64).eps)  # squared norms up to here count as 0, as in Optax


def loss_value(where: str, value: Any, dtype: dtypes.DType) -> Array:
    """Returns the value of the loss, as a 0-d array.

    Raises:
        ArgumentTypeError: update was called without it.
        ArgumentError: it is no single number.
    """
    fix = "call value, grads = nnc.value_and_grad(loss)(params), then update(grads, state, params, value=value)."
    if value is None:
        problem = "its update reads the value of the loss, which was not given."
        raise user_error(ArgumentTypeError, where, problem, fix=fix)
    value = scalar(value)
    if value.shape != ():
        raise user_error(ArgumentError, where, f"value has shape {value.shape}, it must be one number.", fix=fix)
    return astype(value, dtype)


# -- Polyak ------------------------------------------------------------------------------------------------------------


@spelled
def scale_by_polyak(
    f_min: Scalar = 0.0, max_learning_rate: Scalar = 1.0, eps: Scalar = 0.0, variant: Literal["sps", "sps+"] = "sps"
) -> GradientTransformationExtraArgs:
    """Multiplies updates by Polyak's step size (Loizou et al., "Stochastic Polyak step-size for SGD", 2021).

    u' = min((value − f_min) / (‖u‖² + eps), max_learning_rate) · u,  and 0 where ‖u‖² + eps is 0

    Its `update` reads `value=`, the value of the loss at the parameters.

    Args:
        f_min: least value that the loss can have.
        max_learning_rate: largest factor.
        eps: added to the squared norm.
        variant: "sps+" counts values below f_min as f_min (Garrigos, Gower and Schaipp, 2023).

    Raises:
        ArgumentError: the variant is unknown.
        ArgumentTypeError (from update): value was not given.

    Example:
        >>> transformation = nnc.optim.scale_by_polyak(max_learning_rate=10.0)
        >>> grads = nnp.asarray([3.0, 4.0])
        >>> transformation.update(grads, transformation.init(grads), grads, value=50.0)[0]
        Array([6., 8.], dtype=float32)
    """
    where = "scale_by_polyak"
    check_scalar(where, "f_min", f_min, low=-np.inf)
    check_scalars(where, max_learning_rate=max_learning_rate, eps=eps)
    check_choice(where, "variant", variant, ("sps", "sps+"))

    def update_fn(updates: Any, state: Any, params: Any = None, *, value: Any = None, **extra: Any) -> tuple[Any, Any]:
        check_state(where, state, EmptyState)
        size = squared_norm(where, updates)
        gap = loss_value(where, value, size.dtype) - number(f_min, size.dtype)
        gap = nnp.maximum(gap, 0) if variant == "sps+" else gap
        divisor = size + number(eps, size.dtype)
        none = divisor <= SMALLEST
        step = nnp.minimum(gap / nnp.where(none, 1, divisor), number(max_learning_rate, size.dtype))
        return scaled(where, updates, nnp.where(none, 0, step)), state

    return GradientTransformationExtraArgs(lambda params: EmptyState(), update_fn)


@spelled
def polyak_sgd(
    max_learning_rate: Scalar = 1.0, scaling: Scalar | Schedule = 1.0, f_min: Scalar = 0.0, eps: Scalar = 0.0,
    variant: Literal["sps", "sps+"] = "sps",
) -> GradientTransformation:  # fmt: skip
    """Gradient descent with Polyak's step size (Loizou et al., "Stochastic Polyak step-size for SGD", 2021).

    u = scaling · g,    p ← p − min((value − f_min) / (‖u‖² + eps), max_learning_rate) · u

    Its `update` reads `value=`, the value of the loss at the parameters.

    Args:
        max_learning_rate: largest step size.
        scaling: factor of the gradient, or a schedule of it.
        f_min: least value that the loss can have.
        eps: added to the squared norm.
        variant: "sps+" counts values below f_min as f_min.

    Raises:
        ArgumentError: the variant is unknown.
        ArgumentTypeError (from update): value was not given.

    Example:
        >>> optimizer = nnc.optim.polyak_sgd()
        >>> params = nnp.asarray([3.0, 4.0])
        >>> loss = lambda p: nnp.sum(p**2)
        >>> value, grads = nnc.value_and_grad(loss)(params)
        >>> optimizer.update(grads, optimizer.init(params), params, value=value)[0]
        Array([-1.5, -2. ], dtype=float32)
    """
    check_rate("polyak_sgd", scaling)
    return chain(sgd(scaling), scale_by_polyak(f_min, max_learning_rate, eps, variant))


# -- MoMo --------------------------------------------------------------------------------------------------------------


class MomoState(NamedTuple):
    """Means of gradients and of the loss's linear model.

    Attributes:
        exp_avg: means of gradients, a tree like the parameters.
        barf: mean of the values of the loss, a 0-d array.
        gamma: mean of the inner products of gradients and parameters, a 0-d array.
        lb: lower bound of the loss, a 0-d array.
        count: how many updates were made, a 0-d integer.

    Example:
        >>> state = nnc.optim.momo().init(nnp.ones(2))
        >>> state.barf
        Array(0., dtype=float32)
    """

    exp_avg: Any
    barf: Any
    gamma: Any
    lb: Any
    count: Any


class MomoAdamState(NamedTuple):
    """Means of gradients, of squares and of the loss's linear model.

    Attributes:
        exp_avg: means of gradients, a tree like the parameters.
        exp_avg_sq: means of squares.
        barf: mean of the values of the loss, a 0-d array.
        gamma: mean of the inner products of gradients and parameters, a 0-d array.
        lb: lower bound of the loss, a 0-d array.
        count: how many updates were made, a 0-d integer.

    Example:
        >>> state = nnc.optim.momo_adam().init(nnp.ones(2))
        >>> state.barf
        Array(0., dtype=float32)
    """

    exp_avg: Any
    exp_avg_sq: Any
    barf: Any
    gamma: Any
    lb: Any
    count: Any


def _check_momo(where: str, learning_rate: Any, lower_bound: Scalar, weight_decay: Scalar) -> None:
    check_rate(where, learning_rate)
    check_scalar(where, "lower_bound", lower_bound, low=-np.inf)
    check_scalar(where, "weight_decay", weight_decay)


class _Model(NamedTuple):
    """The mean of the losses' linear models at the parameters: value = height + product, of squared slope `size`."""

    height: Array  # mean value − mean of ⟨gradient, parameters of that step⟩
    product: Array  # ⟨mean gradient, parameters⟩
    size: Array
    bias: Any  # by which all means are too small


def _momo_step(model: _Model, rate: Any, shrink: Any, bound: Array, floor: Any, adapt: bool) -> tuple[Array, Array]:
    """Returns the step size up to `rate`, and the next lower bound of the loss."""
    here = bound
    if adapt:
        cap = shrink * model.height + model.product
        lower = nnp.maximum(cap / (2 * model.bias * shrink), floor)
        here = nnp.where(cap < shrink * model.bias * bound, lower, bound)
    gap = nnp.maximum(shrink * (model.height - model.bias * here) + model.product, 0)
    none = model.size <= SMALLEST
    step = nnp.minimum(rate / model.bias, nnp.where(none, 0, gap / nnp.where(none, 1, model.size)))
    if adapt:
        bound = nnp.maximum((model.height + model.product - 0.5 * step * model.size) / model.bias, floor)
    return step, bound


def _moved(g: Array, direction: Array, p: Any, step: Array, decay: Any) -> Array:
    """−step · direction − decay / (1 + decay) · p."""
    shrink = number(decay / (1 + decay), direction.dtype)
    return astype(-direction * number(step, direction.dtype) - astype(as_operand(p), direction.dtype) * shrink, g.dtype)


@spelled
def momo(
    learning_rate: Scalar | Schedule = 1.0, beta: Scalar = 0.9, lower_bound: Scalar = 0.0, weight_decay: Scalar = 0.0,
    adapt_lower_bound: bool = False,
) -> GradientTransformationExtraArgs:  # fmt: skip
    """MoMo, momentum with a step size by a model of the loss (Schaipp et al., "MoMo: momentum models for adaptive learning rates",
    2024).

    m, f and γ are running means of g, value and ⟨g, p⟩;    w = 1 + learning_rate · weight_decay
    τ = min(learning_rate, max(w · (f − lower_bound − γ) + ⟨m, p⟩, 0) / ‖m‖²),    p ← p / w − τ · m

    Its `update` reads `value=`, the value of the loss at the parameters.

    Args:
        learning_rate: largest step size: a number, a 0-d array or a schedule.
        beta: decay of the means, in [0, 1).
        lower_bound: the lower bound of the loss.
        weight_decay: multiplied by the learning rate.
        adapt_lower_bound: raise the lower bound by the model, for losses whose minimum is unknown.

    Raises:
        ArgumentTypeError (from update): params or value were not given.

    Example:
        >>> optimizer = nnc.optim.momo()
        >>> params = nnp.asarray([3.0, 4.0])
        >>> value, grads = nnc.value_and_grad(lambda p: nnp.sum(p**2))(params)
        >>> optimizer.update(grads, optimizer.init(params), params, value=value)[0]
        Array([-1.5, -2. ], dtype=float32)
    """
    where = "momo"
    _check_momo(where, learning_rate, lower_bound, weight_decay)
    check_decays(where, beta=beta)

    def init_fn(params: Any) -> MomoState:
        zero = shared(0.0, params)
        return MomoState(zeros_state(where, params), zero, zero, shared(lower_bound, params), zero_count())

    def update_fn(updates: Any, state: Any, params: Any = None, *, value: Any = None, **extra: Any) -> tuple[Any, Any]:
        check_state(where, state, MomoState)
        check_params(where, params)
        dtype = state.barf.dtype
        decay = astype(state.count > 0, dtype) * number(beta, dtype)
        exp_avg = first_moment(where, decay, updates, state.exp_avg)
        barf = average(decay, loss_value(where, value, dtype), state.barf)
        gamma = average(decay, inner_product(where, "updates", updates, params=params), state.gamma)
        product = astype(inner_product(where, "exp_avg", exp_avg, params=params), dtype)
        rate = rate_at(learning_rate, state.count, dtype)
        decayed = rate * number(weight_decay, dtype)
        model = _Model(barf - gamma, product, astype(squared_norm(where, exp_avg), dtype), 1)
        floor = number(lower_bound, dtype)
        step, bound = _momo_step(model, rate, 1 + decayed, state.lb, floor, adapt_lower_bound)

        def move(g: Array, m: Array, p: Any) -> Array:
            return _moved(g, widen(m), p, step, decayed)

        u = map_trainable(where, move, "updates", updates, exp_avg=exp_avg, params=params)
        return u, MomoState(exp_avg, barf, gamma, bound, state.count + 1)

    return GradientTransformationExtraArgs(init_fn, update_fn)


@spelled
def momo_adam(
    learning_rate: Scalar | Schedule = 1e-2, b1: Scalar = 0.9, b2: Scalar = 0.999, eps: Scalar = 1e-8,
    lower_bound: Scalar = 0.0, weight_decay: Scalar = 0.0, adapt_lower_bound: bool = False,
) -> GradientTransformationExtraArgs:  # fmt: skip
    """MoMo-Adam, Adam with a step size by a model of the loss (Schaipp et al., "MoMo: momentum models for adaptive learning rates",
    2024).

    m, v, f and γ are running means of g, |g|², value and ⟨g, p⟩;    d = eps + sqrt(v̂),    w = 1 + learning_rate · weight_decay
    τ = min(learning_rate / (1 − b1ᵗ), max(w · (f − (1 − b1ᵗ) · lower_bound − γ) + ⟨m, p⟩, 0) / ⟨m, m / d⟩)
    p ← p / w − τ · m / d

    Its `update` reads `value=`, the value of the loss at the parameters.

    Args:
        learning_rate: largest step size: a number, a 0-d array or a schedule.
        b1: decay of the means but that of squares, in [0, 1).
        b2: decay of the mean of squares, in [0, 1).
        eps: added to the divisor.
        lower_bound: the lower bound of the loss.
        weight_decay: multiplied by the learning rate.
        adapt_lower_bound: raise the lower bound by the model, for losses whose minimum is unknown.

    Raises:
        ArgumentTypeError (from update): params or value were not given.

    Example:
        >>> optimizer = nnc.optim.momo_adam(0.1)
        >>> params = nnp.asarray([3.0, 4.0])
        >>> value, grads = nnc.value_and_grad(lambda p: nnp.sum(p**2))(params)
        >>> nnp.round(optimizer.update(grads, optimizer.init(params), params, value=value)[0], 3)
        Array([-0.1, -0.1], dtype=float32)
    """
    where = "momo_adam"
    _check_momo(where, learning_rate, lower_bound, weight_decay)
    check_decays(where, b1=b1, b2=b2)
    check_scalar(where, "eps", eps)

    def init_fn(params: Any) -> MomoAdamState:
        zero, squares = shared(0.0, params), filled_squares(where, params, 0.0)
        return MomoAdamState(zeros_state(where, params), squares, zero, zero, shared(lower_bound, params), zero_count())

    def update_fn(updates: Any, state: Any, params: Any = None, *, value: Any = None, **extra: Any) -> tuple[Any, Any]:
        check_state(where, state, MomoAdamState)
        check_params(where, params)
        dtype, count = state.barf.dtype, state.count + 1
        exp_avg = first_moment(where, b1, updates, state.exp_avg)
        exp_avg_sq = second_moment(where, b2, updates, state.exp_avg_sq)
        barf = average(b1, loss_value(where, value, dtype), state.barf)
        gamma = average(b1, inner_product(where, "updates", updates, params=params), state.gamma)
        bias, bias_sq = bias_factor(b1, count, dtype), bias_factor(b2, count, dtype)

        def divide(m: Array, v: Array) -> Array:
            return widen(m) / (nnp.sqrt(v / number(bias_sq, v.dtype)) + number(eps, v.dtype))

        divided = map_trainable(where, divide, "exp_avg", exp_avg, exp_avg_sq=exp_avg_sq)
        product = astype(inner_product(where, "exp_avg", exp_avg, params=params), dtype)
        size = astype(inner_product(where, "exp_avg", exp_avg, divided=divided), dtype)
        rate = rate_at(learning_rate, state.count, dtype)
        decayed = rate * number(weight_decay, dtype)
        model, floor = _Model(barf - gamma, product, size, bias), number(lower_bound, dtype)
        step, bound = _momo_step(model, rate, 1 + decayed, state.lb, floor, adapt_lower_bound)

        def move(g: Array, direction: Array, p: Any) -> Array:
            return _moved(g, direction, p, step, decayed)

        u = map_trainable(where, move, "updates", updates, divided=divided, params=params)
        return u, MomoAdamState(exp_avg, exp_avg_sq, barf, gamma, bound, count)

    return GradientTransformationExtraArgs(init_fn, update_fn)
