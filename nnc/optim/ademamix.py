"""AdEMAMix: relatives of Adam whose steps mix a young and an old mean of gradients."""

from __future__ import annotations

from typing import Any, NamedTuple

from nnc.array.array import Array, asarray
from nnc.array.promote import astype
from nnc.calls.spelling import spelled
from nnc.optim.arguments import Mask, Scalar, check_scalar
from nnc.optim.base import GradientTransformation, map_trainable, number, scalar, stateful, widen
from nnc.optim.moments import (
    Correction,
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

__all__ = [
    "ScaleByAdemamixState",
    "ScaleBySimplifiedAdEMAMixState",
    "ademamix",
    "scale_by_ademamix",
    "scale_by_simplified_ademamix",
    "simplified_ademamix",
]


class ScaleByAdemamixState(NamedTuple):
    """Counts of updates, a young and an old mean of gradients, a mean of squares.

    Attributes:
        count: how many updates were made, a 0-d integer.
        count_m2: how many updates the old mean has seen.
        m1: the young means of gradients, a tree like the parameters.
        m2: the old means of gradients.
        nu: means of squares.

    Example:
        >>> state = nnc.optim.scale_by_ademamix().init(nnp.ones(2))
        >>> state.m1
        Array([0., 0.], dtype=float32)
    """

    count: Any
    count_m2: Any
    m1: Any
    m2: Any
    nu: Any


def _at(value: Scalar | Schedule, count: Any) -> Any:
    return scalar(value(count)) if callable(value) else value


@spelled
def scale_by_ademamix(
    b1: Scalar = 0.9, b2: Scalar = 0.999, b3: Scalar | Schedule = 0.9999, alpha: Scalar | Schedule = 6.0,
    eps: Scalar = 1e-8, eps_root: Scalar = 0.0, mu_dtype: DTypeLike | None = None,
) -> GradientTransformation:  # fmt: skip
    """Adam with a second, slower mean of gradients (Pagliardini, Ablin and Grangier, "The AdEMAMix optimizer", 2024).

    m ← b1 · m + (1 − b1) · g,    l ← b3 · l + (1 − b3) · g,    v ← b2 · v + (1 − b2) · |g|²
    u = (m̂ + alpha · l) / (sqrt(v̂ + eps_root) + eps)

    Args:
        b1: decay of the young mean, in [0, 1).
        b2: decay of the mean of squares, in [0, 1).
        b3: decay of the old mean, in [0, 1), or a schedule of it.
        alpha: factor of the old mean, or a schedule of it.
        eps: added to the divisor, outside the root.
        eps_root: added inside the root.
        mu_dtype: dtype of both means; default the parameter's, float32 for 16-bit floats.

    Example:
        >>> transformation = nnc.optim.scale_by_ademamix()
        >>> params = nnp.asarray([3.0, 4.0])
        >>> updates, state = transformation.update(nnp.asarray([1.0, -2.0]), transformation.init(params), params)
        >>> nnp.round(updates, 4)
        Array([ 1.0006, -1.0006], dtype=float32)
    """
    where = "scale_by_ademamix"
    check_decays(where, b1=b1, b2=b2, **({} if callable(b3) else {"b3": b3}))
    for name, value in (("alpha", alpha), ("eps", eps), ("eps_root", eps_root)):
        if not callable(value):
            check_scalar(where, name, value)

    def init_fn(params: Any) -> ScaleByAdemamixState:
        young, old = (zeros_state(where, params, mu_dtype) for _ in range(2))
        return ScaleByAdemamixState(zero_count(), zero_count(), young, old, filled_squares(where, params, 0.0))

    def update_fn(updates: Any, state: Any, params: Any = None) -> tuple[Any, Any]:
        count = state.count + 1
        slow, share = _at(b3, state.count_m2), _at(alpha, state.count_m2)
        m1, m2 = first_moment(where, b1, updates, state.m1), first_moment(where, slow, updates, state.m2)
        nu = second_moment(where, b2, updates, state.nu)
        correct_m, correct_nu = Correction(b1, count, m1), Correction(b2, count, nu)

        def step(g: Array, young: Array, old: Array, v: Array) -> Array:
            mean = correct_m(young)
            return divide(mean + widen(old) * number(share, mean.dtype), correct_nu(v), eps, eps_root, g.dtype)

        u = map_trainable(where, step, "updates", updates, m1=m1, m2=m2, nu=nu)
        return u, ScaleByAdemamixState(count, state.count_m2 + 1, m1, m2, nu)

    return stateful(where, ScaleByAdemamixState, init_fn, update_fn)


@spelled
def ademamix(
    learning_rate: Scalar | Schedule, b1: Scalar = 0.9, b2: Scalar = 0.999, b3: Scalar | Schedule = 0.9999,
    alpha: Scalar | Schedule = 5.0, eps: Scalar = 1e-8, eps_root: Scalar = 0.0, mu_dtype: DTypeLike | None = None,
    weight_decay: Scalar | Schedule = 0.0, mask: Mask = None,
) -> GradientTransformation:  # fmt: skip
    """AdEMAMix, which remembers gradients of thousands of steps ago (Pagliardini, Ablin and Grangier, "The AdEMAMix optimizer:
    better, faster, older", 2024).

    m ← b1 · m + (1 − b1) · g,    l ← b3 · l + (1 − b3) · g,    v ← b2 · v + (1 − b2) · |g|²
    p ← p − learning_rate · ((m̂ + alpha · l) / (sqrt(v̂ + eps_root) + eps) + weight_decay · p)

    Args:
        learning_rate: a number, a 0-d array or a schedule.
        b1: decay of the young mean, in [0, 1).
        b2: decay of the mean of squares, in [0, 1).
        b3: decay of the old mean, in [0, 1), or a schedule of it, which keeps the first steps small.
        alpha: factor of the old mean, or a schedule of it.
        eps: added to the divisor, outside the root.
        eps_root: added inside the root.
        mu_dtype: dtype of both means; default the parameter's, float32 for 16-bit floats.
        weight_decay: multiplied by the learning rate.
        mask: a tree of bools, or a function from parameters to one; only where it is True do weights decay.

    Raises:
        ArgumentTypeError (from update): params were not given.

    Example:
        >>> optimizer = nnc.optim.ademamix(0.1, b3=0.5, alpha=2.0)
        >>> nnp.round(optimizer.update(nnp.asarray([3.0]), optimizer.init(nnp.ones(1)), nnp.ones(1))[0], 3)
        Array([-0.2], dtype=float32)
    """
    moments = scale_by_ademamix(b1, b2, b3, alpha, eps, eps_root, mu_dtype)
    return stepping("ademamix", learning_rate, moments, add_decayed_weights(weight_decay, mask))


class ScaleBySimplifiedAdEMAMixState(NamedTuple):
    """Count of updates, decaying sum of gradients and mean of squares.

    Attributes:
        t: how many updates were made, a 0-d integer.
        m: decaying sums of gradients, a tree like the parameters.
        n: means of squares.

    Example:
        >>> state = nnc.optim.scale_by_simplified_ademamix().init(nnp.ones(2))
        >>> state.m
        Array([0., 0.], dtype=float32)
    """

    t: Any
    m: Any
    n: Any


@spelled
def scale_by_simplified_ademamix(
    b1: Scalar = 0.99, b2: Scalar = 0.95, alpha: Scalar | Schedule = 0.0, eps: Scalar = 1e-8, eps_root: Scalar = 0.0
) -> GradientTransformation:
    """AdEMAMix whose young mean is the gradient itself (Morwani et al., "Connections between schedule-free optimizers, AdEMAMix
    and accelerated SGD variants", 2025).

    m ← b1 · m + g,    n ← b2 · n + (1 − b2) · |g|²,    u = (m + alpha · g) / (sqrt(n̂ + eps_root) + eps)

    Args:
        b1: decay of the sum of gradients, in [0, 1).
        b2: decay of the mean of squares, in [0, 1).
        alpha: factor of the gradient, or a schedule of it.
        eps: added to the divisor, outside the root.
        eps_root: added inside the root.

    Example:
        >>> transformation = nnc.optim.scale_by_simplified_ademamix()
        >>> params = nnp.asarray([3.0, 4.0])
        >>> transformation.update(nnp.asarray([1.0, -2.0]), transformation.init(params), params)[0]
        Array([ 1., -1.], dtype=float32)
    """
    where = "scale_by_simplified_ademamix"
    check_decays(where, b1=b1, b2=b2)
    for name, value in (("alpha", alpha), ("eps", eps), ("eps_root", eps_root)):
        if not callable(value):
            check_scalar(where, name, value)

    def update_fn(updates: Any, state: Any, params: Any = None) -> tuple[Any, Any]:
        t, share = state.t + 1, _at(alpha, state.t)

        def add(m: Array, g: Any) -> Array:
            return m * number(b1, m.dtype) + astype(asarray(g), m.dtype)

        m = map_trainable(where, add, "m", state.m, updates=updates)
        n = second_moment(where, b2, updates, state.n)
        correct = Correction(b2, t, n)

        def step(g: Array, m: Array, v: Array) -> Array:
            return divide(m + astype(g, m.dtype) * number(share, m.dtype), correct(v), eps, eps_root, g.dtype)

        u = map_trainable(where, step, "updates", updates, m=m, n=n)
        return u, ScaleBySimplifiedAdEMAMixState(t, m, n)

    init = first_state(where, ScaleBySimplifiedAdEMAMixState)
    return stateful(where, ScaleBySimplifiedAdEMAMixState, init, update_fn)


@spelled
def simplified_ademamix(
    learning_rate: Scalar | Schedule, b1: Scalar = 0.99, b2: Scalar = 0.95, alpha: Scalar | Schedule = 0.0,
    eps: Scalar = 1e-8, eps_root: Scalar = 0.0, weight_decay: Scalar | Schedule = 0.0, mask: Mask = None,
) -> GradientTransformation:  # fmt: skip
    """Simplified AdEMAMix (Morwani et al., "Connections between schedule-free optimizers, AdEMAMix and accelerated SGD variants",
    2025).

    m ← b1 · m + g,    n ← b2 · n + (1 − b2) · |g|²
    p ← p − learning_rate · ((m + alpha · g) / (sqrt(n̂ + eps_root) + eps) + weight_decay · p)

    The sum m is about 1 / (1 − b1) gradients, so rates are smaller than for `adamw` by that factor.

    Args:
        learning_rate: a number, a 0-d array or a schedule.
        b1: decay of the sum of gradients, in [0, 1).
        b2: decay of the mean of squares, in [0, 1).
        alpha: factor of the gradient, or a schedule of it.
        eps: added to the divisor, outside the root.
        eps_root: added inside the root.
        weight_decay: multiplied by the learning rate.
        mask: a tree of bools, or a function from parameters to one; only where it is True do weights decay.

    Raises:
        ArgumentTypeError (from update): params were not given.

    Example:
        >>> optimizer = nnc.optim.simplified_ademamix(0.1, alpha=1.0)
        >>> nnp.round(optimizer.update(nnp.asarray([3.0]), optimizer.init(nnp.ones(1)), nnp.ones(1))[0], 3)
        Array([-0.2], dtype=float32)
    """
    moments = scale_by_simplified_ademamix(b1, b2, alpha, eps, eps_root)
    return stepping("simplified_ademamix", learning_rate, moments, add_decayed_weights(weight_decay, mask))
