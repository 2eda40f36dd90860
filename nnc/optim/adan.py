"""Adan and ADOPT: relatives of Adam with a mean of changes of the gradient, or with the divisor of the step before."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import nnc.numpy as nnp
from nnc.array.array import Array, asarray
from nnc.array.promote import astype
from nnc.base import dtypes
from nnc.calls.spelling import spelled
from nnc.errors import ArgumentTypeError, user_error
from nnc.errors.errors import shorten
from nnc.optim.arguments import Mask, Scalar, check_scalar, check_scalars
from nnc.optim.base import GradientTransformation, map_trainable, number, scalar, stateful, widen
from nnc.optim.moments import (
    Correction,
    ScaleByAdamState,
    average,
    check_decays,
    divide,
    filled_squares,
    first_moment,
    first_state,
    second_moment,
    zeros_state,
)
from nnc.optim.schedules import Schedule
from nnc.optim.transforms import add_decayed_weights, stepping, zero_count
from nnc.typing import DTypeLike

__all__ = ["ScaleByAdanState", "adan", "adopt", "scale_by_adan", "scale_by_adopt"]

# -- Adan --------------------------------------------------------------------------------------------------------------


class ScaleByAdanState(NamedTuple):
    """Means of gradients, of their changes and of squares, the last gradient and the count of updates.

    Attributes:
        m: means of gradients, a tree like the parameters.
        v: means of changes of the gradient.
        n: means of squares.
        g: the last gradient.
        t: how many updates were made, a 0-d integer.

    Example:
        >>> state = nnc.optim.scale_by_adan().init(nnp.ones(2))
        >>> state.m
        Array([0., 0.], dtype=float32)
    """

    m: Any
    v: Any
    n: Any
    g: Any
    t: Any


@spelled
def scale_by_adan(
    b1: Scalar = 0.98, b2: Scalar = 0.92, b3: Scalar = 0.99, eps: Scalar = 1e-8, eps_root: Scalar = 0.0
) -> GradientTransformation:
    """Adam with Nesterov momentum by changes of the gradient (Xie et al., "Adan: adaptive Nesterov momentum algorithm", 2022).

    d = g − (the last g), 0 in the first update
    m ← b1 · m + (1 − b1) · g,    v ← b2 · v + (1 − b2) · d,    n ← b3 · n + (1 − b3) · |g + (1 − b2) · d|²
    u = (m̂ + (1 − b2) · v̂) / (sqrt(n̂ + eps_root) + eps)

    Args:
        b1: decay of the mean of gradients, in [0, 1).
        b2: decay of the mean of changes, in [0, 1).
        b3: decay of the mean of squares, in [0, 1).
        eps: added to the divisor, outside the root.
        eps_root: added inside the root.

    Example:
        >>> transformation = nnc.optim.scale_by_adan()
        >>> params = nnp.asarray([3.0, 4.0])
        >>> transformation.update(nnp.asarray([1.0, -2.0]), transformation.init(params), params)[0]
        Array([ 1., -1.], dtype=float32)
    """
    where = "scale_by_adan"
    check_decays(where, b1=b1, b2=b2, b3=b3)
    check_scalars(where, eps=eps, eps_root=eps_root)

    def init_fn(params: Any) -> ScaleByAdanState:
        m, v, g = (zeros_state(where, params) for _ in range(3))
        return ScaleByAdanState(m, v, filled_squares(where, params, 0.0), g, zero_count())

    def update_fn(updates: Any, state: Any, params: Any = None) -> tuple[Any, Any]:
        t = state.t + 1

        def change(last: Array, g: Any) -> Array:
            return nnp.where(state.t == 0, 0, astype(asarray(g), last.dtype) - last)

        def ahead(g: Array, d: Array) -> Array:
            wide = widen(g)
            return wide + astype(d, wide.dtype) * (1 - number(b2, wide.dtype))

        changes = map_trainable(where, change, "g", state.g, updates=updates)
        m, v = first_moment(where, b1, updates, state.m), first_moment(where, b2, changes, state.v)
        n = second_moment(where, b3, map_trainable(where, ahead, "updates", updates, changes=changes), state.n)
        correct_m, correct_v, correct_n = Correction(b1, t, m), Correction(b2, t, v), Correction(b3, t, n)

        def step(g: Array, m: Array, v: Array, n: Array) -> Array:
            mean = correct_m(m) + correct_v(v) * (1 - number(b2, v.dtype))
            return divide(mean, correct_n(n), eps, eps_root, g.dtype)

        last = map_trainable(where, lambda old, g: astype(asarray(g), old.dtype), "g", state.g, updates=updates)
        u = map_trainable(where, step, "updates", updates, m=m, v=v, n=n)
        return u, ScaleByAdanState(m, v, n, last, t)

    return stateful(where, ScaleByAdanState, init_fn, update_fn)


@spelled
def adan(
    learning_rate: Scalar | Schedule, b1: Scalar = 0.98, b2: Scalar = 0.92, b3: Scalar = 0.99, eps: Scalar = 1e-8,
    eps_root: Scalar = 1e-8, weight_decay: Scalar | Schedule = 0.0, mask: Mask = None,
) -> GradientTransformation:  # fmt: skip
    """Adan (Xie et al., "Adan: adaptive Nesterov momentum algorithm for faster optimizing deep models", 2022).

    d = g − (the last g);    m, v and n are running means of g, d and |g + (1 − b2) · d|²
    p ← p − learning_rate · ((m̂ + (1 − b2) · v̂) / (sqrt(n̂ + eps_root) + eps) + weight_decay · p)

    Args:
        learning_rate: a number, a 0-d array or a schedule.
        b1: decay of the mean of gradients, in [0, 1).
        b2: decay of the mean of changes, in [0, 1).
        b3: decay of the mean of squares, in [0, 1).
        eps: added to the divisor, outside the root.
        eps_root: added inside the root.
        weight_decay: multiplied by the learning rate.
        mask: a tree of bools, or a function from parameters to one; only where it is True do weights decay.

    Raises:
        ArgumentTypeError (from update): params were not given.

    Example:
        >>> optimizer = nnc.optim.adan(0.1)
        >>> nnp.round(optimizer.update(nnp.asarray([3.0]), optimizer.init(nnp.ones(1)), nnp.ones(1))[0], 3)
        Array([-0.1], dtype=float32)
    """
    moments = scale_by_adan(b1, b2, b3, eps, eps_root)
    return stepping("adan", learning_rate, moments, add_decayed_weights(weight_decay, mask))


# -- ADOPT -------------------------------------------------------------------------------------------------------------


def fourth_root(count: Any) -> Any:
    """Returns the limit of `adopt`: the fourth root of how many updates were made before."""
    return astype(asarray(count), dtypes.float64) ** 0.25


@spelled
def scale_by_adopt(
    b1: Scalar = 0.9, b2: Scalar = 0.9999, eps: Scalar = 1e-6, mu_dtype: DTypeLike | None = None, *,
    nesterov: bool = False, use_clipping: bool = True, clip_value_fn: Callable[[Any], Any] = fourth_root,
) -> GradientTransformation:  # fmt: skip
    """Adam that divides by the second moment before this gradient (Taniguchi et al., "ADOPT: modified Adam can converge with any
    β2", 2024).

    c = clip(g / max(sqrt(v), eps)),    v ← b2 · v + (1 − b2) · |g|²,    u = m ← b1 · m + (1 − b1) · c
    The first update only measures: v = |g|², u = 0.

    Args:
        b1: decay of the mean of divided gradients, in [0, 1).
        b2: decay of the mean of squares, in [0, 1).
        eps: least divisor.
        mu_dtype: dtype of m; default the parameter's, float32 for 16-bit floats.
        nesterov: look ahead, u = b1 · m + (1 − b1) · c.
        use_clipping: limit the size of the elements of g / max(sqrt(v), eps).
        clip_value_fn: the limit, a function of how many updates were made before.

    Raises:
        ArgumentTypeError: clip_value_fn is no function.

    Example:
        >>> transformation = nnc.optim.scale_by_adopt()
        >>> params = nnp.asarray([3.0, 4.0])
        >>> transformation.update(nnp.asarray([1.0, -2.0]), transformation.init(params), params)[0]
        Array([0., 0.], dtype=float32)
    """
    where = "scale_by_adopt"
    check_decays(where, b1=b1, b2=b2)
    check_scalar(where, "eps", eps, positive=True)
    if not callable(clip_value_fn):
        problem = f"clip_value_fn is {shorten(clip_value_fn)}, not a function of the count."
        raise user_error(ArgumentTypeError, where, problem, fix="write clip_value_fn=lambda count: count**0.25.")

    def update_fn(updates: Any, state: Any, params: Any = None) -> tuple[Any, Any]:
        first = state.count == 0
        limit = clip_value_fn(state.count) if use_clipping else None

        def scaled(v: Array, g: Any) -> Array:
            wide = widen(asarray(g))
            return clip_sizes(wide / nnp.maximum(nnp.sqrt(v), number(eps, v.dtype)), limit)

        def mix(m: Array, c: Array) -> Array:
            return nnp.where(first, m, average(b1, c, m))

        def square(v: Array, seen: Array) -> Array:
            return nnp.where(first, seen / (1 - number(b2, v.dtype)), seen)  # the first is the square itself

        parts = map_trainable(where, scaled, "nu", state.nu, updates=updates)
        mu = map_trainable(where, mix, "mu", state.mu, updates=parts)
        nu = map_trainable(where, square, "nu", state.nu, seen=second_moment(where, b2, updates, state.nu))
        shown = map_trainable(where, mix, "mu", mu, updates=parts) if nesterov else mu
        u = map_trainable(where, lambda g, m: astype(m, g.dtype), "updates", updates, mu=shown)
        return u, ScaleByAdamState(state.count + 1, mu, nu)

    return stateful(where, ScaleByAdamState, first_state(where, ScaleByAdamState, mu_dtype), update_fn)


def clip_sizes(x: Array, limit: Any) -> Array:
    """`x` with elements of at most this size; complex ones keep their direction."""
    if limit is None:
        return x
    bound = number(scalar(limit), x.dtype)
    if not dtypes.is_complex(x.dtype):
        return nnp.minimum(nnp.maximum(x, -bound), bound)
    size = nnp.abs(x)
    return x * nnp.where(size <= bound, 1, bound / nnp.where(size == 0, 1, size))


@spelled
def adopt(
    learning_rate: Scalar | Schedule, b1: Scalar = 0.9, b2: Scalar = 0.9999, eps: Scalar = 1e-6,
    mu_dtype: DTypeLike | None = None, *, nesterov: bool = False, use_clipping: bool = True,
    clip_value_fn: Callable[[Any], Any] = fourth_root,
) -> GradientTransformation:  # fmt: skip
    """ADOPT (Taniguchi et al., "ADOPT: modified Adam can converge with any β2 with the optimal rate", 2024).

    m ← b1 · m + (1 − b1) · clip(g / max(sqrt(v), eps)),    v ← b2 · v + (1 − b2) · |g|²,    p ← p − learning_rate · m
    The first update only measures v = |g|².

    Args:
        learning_rate: a number, a 0-d array or a schedule.
        b1: decay of the mean of divided gradients, in [0, 1).
        b2: decay of the mean of squares, in [0, 1).
        eps: least divisor.
        mu_dtype: dtype of m; default the parameter's, float32 for 16-bit floats.
        nesterov: look ahead.
        use_clipping: limit the size of divided gradients.
        clip_value_fn: the limit, a function of how many updates were made before.

    Example:
        >>> optimizer = nnc.optim.adopt(0.1, b1=0.5)
        >>> state = optimizer.init(nnp.ones(1))
        >>> for _ in range(2):
        ...     updates, state = optimizer.update(nnp.asarray([3.0]), state)
        >>> updates
        Array([-0.05], dtype=float32)
    """
    links = scale_by_adopt(
        b1, b2, eps, mu_dtype, nesterov=nesterov, use_clipping=use_clipping, clip_value_fn=clip_value_fn
    )
    return stepping("adopt", learning_rate, links)
