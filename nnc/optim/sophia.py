"""Sophia: steps along the diagonal of the Hessian, which is estimated every few updates."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import nnc.numpy as nnp
from nnc import random
from nnc.array.array import Array
from nnc.array.promote import astype
from nnc.calls.spelling import spelled
from nnc.errors import ArgumentTypeError, user_error
from nnc.errors.errors import check_count, shorten
from nnc.optim.adan import clip_sizes
from nnc.optim.arguments import Mask, Scalar, check_params, check_scalar, check_state
from nnc.optim.base import (
    GradientTransformation,
    GradientTransformationExtraArgs,
    check_transformation,
    map_trainable,
    number,
    run_update,
)
from nnc.optim.conditions import run_if
from nnc.optim.linesearch import ravel, unravel
from nnc.optim.moments import Correction, check_decays, first_moment, zeros_state
from nnc.optim.noise import Key, as_key, place_key
from nnc.optim.schedules import Schedule
from nnc.optim.transforms import add_decayed_weights, stepping, zero_count
from nnc.trace.core.differentiate import grad, jvp
from nnc.typing import DTypeLike

__all__ = ["HutchinsonState", "SophiaState", "hutchinson_estimator_diag_hessian", "scale_by_sophia", "sophia"]

_grad: Callable[..., Callable[..., Any]] = grad  # of functions without types


class HutchinsonState(NamedTuple):
    """The key of the next draw.

    Attributes:
        key: key of the next draw.

    Example:
        >>> state = nnc.optim.hutchinson_estimator_diag_hessian().init(nnp.ones(2))
        >>> state.key
        Array([0, 0], dtype=uint32)
    """

    key: Any


@spelled
def hutchinson_estimator_diag_hessian(random_seed: Key = 0) -> GradientTransformationExtraArgs:
    """Estimates the diagonal of the Hessian by a product with random signs (Hutchinson, "A stochastic estimator of the trace of the
    influence matrix", 1990).

    u = r · (∇²f(p) r),    r of -1 and 1;  its mean over r is the diagonal

    Its `update` reads `obj_fn=`, the function of the parameters that is minimised. It costs a gradient and its derivative.

    Args:
        random_seed: an int, or a key of `nnc.random`.

    Raises:
        ArgumentTypeError (from update): params or obj_fn were not given.

    Example:
        >>> estimator = nnc.optim.hutchinson_estimator_diag_hessian()
        >>> params = nnp.asarray([1.0, 2.0])
        >>> loss = lambda p: nnp.sum(nnp.asarray([1.0, 3.0]) * p**2)
        >>> estimator.update(params, estimator.init(params), params, obj_fn=loss)[0]
        Array([2., 6.], dtype=float32)
    """
    where = "hutchinson_estimator_diag_hessian"
    first = as_key(where, random_seed)

    def update_fn(updates: Any, state: Any, params: Any = None, *, obj_fn: Any = None, **extra: Any) -> tuple[Any, Any]:
        check_state(where, state, HutchinsonState)
        check_params(where, params)
        if not callable(obj_fn):
            problem = f"obj_fn is {shorten(obj_fn)}, not the function that is minimised."
            raise user_error(ArgumentTypeError, where, problem, fix="call update(grads, state, params, obj_fn=loss).")
        keys = random.split(state.key)
        at = ravel(params)
        signs = astype(random.rademacher(keys[1], at.shape), at.dtype)
        slope = _grad(lambda flat: obj_fn(unravel(params, flat)))
        _, product = jvp(slope, (at,), (signs,))
        return unravel(updates, astype(product, at.dtype) * signs), HutchinsonState(keys[0])

    return GradientTransformationExtraArgs(lambda params: HutchinsonState(place_key(first)), update_fn)


class SophiaState(NamedTuple):
    """Count of updates, means of gradients and of the Hessian's diagonal, and the state of its estimator.

    Attributes:
        count: how many updates were made, a 0-d integer.
        mu: means of gradients, a tree like the parameters.
        nu: means of the diagonal of the Hessian.
        hessian_fn_state: state of the estimator.

    Example:
        >>> state = nnc.optim.scale_by_sophia().init(nnp.ones(2))
        >>> state.mu
        Array([0., 0.], dtype=float32)
    """

    count: Any
    mu: Any
    nu: Any
    hessian_fn_state: Any


@spelled
def scale_by_sophia(
    b1: Scalar = 0.965, b2: Scalar = 0.99, eps: Scalar = 1e-8, gamma: Scalar = 0.01, clip_threshold: Scalar | None = 1.0,
    update_interval: int = 10, hessian_diagonal_fn: GradientTransformation | None = None,
    mu_dtype: DTypeLike | None = None,
) -> GradientTransformationExtraArgs:  # fmt: skip
    """Divides means of gradients by the diagonal of the Hessian (Liu et al., "Sophia: a scalable stochastic second-order optimizer
    for language model pre-training", 2024).

    u = clip(m̂ / max(gamma · h, eps)),    m ← b1 · m + (1 − b1) · g
    h ← b2 · h + (1 − b2) · (estimate of the diagonal), every `update_interval` updates, after the step

    Its `update` hands extra arguments to the estimator: by default `obj_fn=`, the function of the parameters that is minimised.

    Args:
        b1: decay of the mean of gradients, in [0, 1).
        b2: decay of the mean of the diagonal, in [0, 1).
        eps: least divisor.
        gamma: factor of the diagonal; with larger ones fewer elements are clipped.
        clip_threshold: largest size of an element of the updates; None: no clipping.
        update_interval: how many updates an estimate serves.
        hessian_diagonal_fn: a transformation whose updates are estimates; None: `hutchinson_estimator_diag_hessian()`.
        mu_dtype: dtype of m; default the parameter's, float32 for 16-bit floats.

    Raises:
        ArgumentError: update_interval is no positive int.
        ArgumentTypeError: hessian_diagonal_fn is no transformation, or (from update) params or obj_fn were not given.

    Example:
        >>> transformation = nnc.optim.scale_by_sophia(gamma=1.0)
        >>> params = nnp.asarray([3.0, 4.0])
        >>> loss = lambda p: nnp.sum(nnp.asarray([1.0, 3.0]) * p**2)
        >>> transformation.update(nnc.grad(loss)(params), transformation.init(params), params, obj_fn=loss)[0]
        Array([1., 1.], dtype=float32)
    """
    where = "scale_by_sophia"
    check_decays(where, b1=b1, b2=b2)
    check_scalar(where, "eps", eps, positive=True)
    check_scalar(where, "gamma", gamma, positive=True)
    if clip_threshold is not None:
        check_scalar(where, "clip_threshold", clip_threshold, positive=True)
    check_count(where, "update_interval", update_interval, "choose 10.")
    estimator = hutchinson_estimator_diag_hessian() if hessian_diagonal_fn is None else hessian_diagonal_fn
    check_transformation(where, "hessian_diagonal_fn", estimator)

    def init_fn(params: Any) -> SophiaState:
        means = zeros_state(where, params, mu_dtype)
        return SophiaState(zero_count(), means, zeros_state(where, params), estimator.init(params))

    def update_fn(updates: Any, state: Any, params: Any = None, **extra: Any) -> tuple[Any, Any]:
        check_state(where, state, SophiaState)
        check_params(where, params)
        mu = first_moment(where, b1, updates, state.mu)
        correct = Correction(b1, state.count + 1, mu)

        def step(g: Array, m: Array, h: Array) -> Array:
            mean = correct(m)
            curved = astype(h.real, mean.real.dtype) * number(gamma, mean.real.dtype)
            return astype(clip_sizes(mean / nnp.maximum(curved, number(eps, curved.dtype)), clip_threshold), g.dtype)

        def estimated() -> tuple[Any, Any]:
            diagonal, inner = run_update(estimator, updates, state.hessian_fn_state, params, extra)
            return inner, first_moment(where, b2, diagonal, state.nu)

        u = map_trainable(where, step, "updates", updates, mu=mu, nu=state.nu)
        inner, nu = run_if(state.count % update_interval == 0, estimated, lambda: (state.hessian_fn_state, state.nu))
        return u, SophiaState(state.count + 1, mu, nu, inner)

    return GradientTransformationExtraArgs(init_fn, update_fn)


@spelled
def sophia(
    learning_rate: Scalar | Schedule, b1: Scalar = 0.965, b2: Scalar = 0.99, eps: Scalar = 1e-8,
    weight_decay: Scalar | Schedule = 1e-4, weight_decay_mask: Mask = None, gamma: Scalar = 0.01,
    clip_threshold: Scalar | None = 1.0, update_interval: int = 10,
    hessian_diagonal_fn: GradientTransformation | None = None, mu_dtype: DTypeLike | None = None,
) -> GradientTransformation:  # fmt: skip
    """Sophia (Liu et al., "Sophia: a scalable stochastic second-order optimizer for language model pre-training", 2024).

    p ← p − learning_rate · (clip(m̂ / max(gamma · h, eps)) + weight_decay · p); see `scale_by_sophia` for h

    Its `update` reads `obj_fn=`, the function of the parameters that is minimised.

    Args:
        learning_rate: a number, a 0-d array or a schedule.
        b1: decay of the mean of gradients, in [0, 1).
        b2: decay of the mean of the Hessian's diagonal, in [0, 1).
        eps: least divisor.
        weight_decay: multiplied by the learning rate.
        weight_decay_mask: a tree of bools, or a function from parameters to one; only where it is True do weights decay.
        gamma: factor of the diagonal; with larger ones fewer elements are clipped.
        clip_threshold: largest size of an element of the updates; None: no clipping.
        update_interval: how many updates an estimate of the diagonal serves.
        hessian_diagonal_fn: a transformation whose updates are estimates; None: `hutchinson_estimator_diag_hessian()`.
        mu_dtype: dtype of m; default the parameter's, float32 for 16-bit floats.

    Raises:
        ArgumentError: update_interval is no positive int.
        ArgumentTypeError (from update): params or obj_fn were not given.

    Example:
        >>> loss = lambda p: nnp.sum(nnp.asarray([1.0, 30.0]) * p**2)
        >>> optimizer = nnc.optim.sophia(0.2, gamma=1.0, update_interval=1)
        >>> params = nnp.asarray([3.0, 3.0])
        >>> state = optimizer.init(params)
        >>> for _ in range(100):
        ...     updates, state = optimizer.update(nnc.grad(loss)(params), state, params, obj_fn=loss)
        ...     params = nnc.optim.apply_updates(params, updates)
        >>> bool(nnp.all(nnp.abs(params) < 0.5))
        True
    """
    moments = scale_by_sophia(b1, b2, eps, gamma, clip_threshold, update_interval, hessian_diagonal_fn, mu_dtype)
    return stepping("sophia", learning_rate, moments, add_decayed_weights(weight_decay, weight_decay_mask))
