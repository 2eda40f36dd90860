"""Optimistic optimizers, for games: steps extrapolate the change of the last gradient."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

import nnc.numpy as nnp
from nnc.array.array import Array, asarray
from nnc.array.promote import astype
from nnc.calls.spelling import spelled
from nnc.optim.arguments import Scalar, check_scalar, check_scalars
from nnc.optim.base import GradientTransformation, chain, map_trainable, number, stateful, widen
from nnc.optim.moments import scale_by_adam, zeros_state
from nnc.optim.schedules import Schedule
from nnc.optim.transforms import scale, stepping
from nnc.typing import DTypeLike

__all__ = [
    "ScaleByOptimisticGradientState",
    "optimistic_adam",
    "optimistic_adam_v2",
    "optimistic_gradient_descent",
    "scale_by_optimistic_gradient",
]


class ScaleByOptimisticGradientState(NamedTuple):
    """Whether no update was made so far, and the last gradient.

    Attributes:
        is_initial_step: whether no update was made so far, a 0-d bool.
        previous_gradient: the last gradient, a tree like the parameters.

    Example:
        >>> state = nnc.optim.scale_by_optimistic_gradient().init(nnp.ones(2))
        >>> state.previous_gradient
        Array([0., 0.], dtype=float32)
    """

    is_initial_step: Any
    previous_gradient: Any


@spelled
def scale_by_optimistic_gradient(alpha: Scalar = 1.0, beta: Scalar = 1.0) -> GradientTransformation:
    """Adds the change of the gradient (Mokhtari, Ozdaglar and Pattathil, "A unified analysis of extra-gradient and optimistic
    gradient methods for saddle point problems", 2020).

    u = (alpha + beta) · g − beta · (the last g), and alpha · g in the first update

    Args:
        alpha: factor of the gradient.
        beta: factor of its change.

    Example:
        >>> optimistic = nnc.optim.scale_by_optimistic_gradient()
        >>> state = optimistic.init(nnp.zeros(1))
        >>> for g in (1.0, 3.0):
        ...     updates, state = optimistic.update(nnp.asarray([g]), state)
        ...     print(updates)
        [1.]
        [5.]
    """
    where = "scale_by_optimistic_gradient"
    check_scalars(where, alpha=alpha, beta=beta)

    def init_fn(params: Any) -> ScaleByOptimisticGradientState:
        return ScaleByOptimisticGradientState(asarray(np.array(True)), zeros_state(where, params))

    def update_fn(updates: Any, state: Any, params: Any = None) -> tuple[Any, Any]:

        def step(g: Array, last: Array) -> Array:
            wide = widen(g)
            last = nnp.where(state.is_initial_step, wide, astype(last, wide.dtype))
            a, b = number(alpha, wide.dtype), number(beta, wide.dtype)
            return astype(wide * (a + b) - last * b, g.dtype)

        def keep(last: Array, g: Any) -> Array:
            return astype(asarray(g), last.dtype)

        kept = map_trainable(where, keep, "previous_gradient", state.previous_gradient, updates=updates)
        u = map_trainable(where, step, "updates", updates, previous_gradient=state.previous_gradient)
        return u, ScaleByOptimisticGradientState(asarray(np.array(False)), kept)

    return stateful(where, ScaleByOptimisticGradientState, init_fn, update_fn)


@spelled
def optimistic_gradient_descent(
    learning_rate: Scalar | Schedule, alpha: Scalar = 1.0, beta: Scalar = 1.0
) -> GradientTransformation:
    """Optimistic gradient descent (Rakhlin and Sridharan, "Optimization, learning, and games with predictable sequences", 2013).

    p ← p − learning_rate · (alpha · g + beta · (g − the last g))

    Args:
        learning_rate: a number, a 0-d array or a schedule.
        alpha: factor of the gradient.
        beta: factor of its change.

    Example:
        >>> optimizer = nnc.optim.optimistic_gradient_descent(0.1)
        >>> state = optimizer.init(nnp.ones(1))
        >>> for g in (1.0, 3.0):
        ...     updates, state = optimizer.update(nnp.asarray([g]), state)
        >>> updates
        Array([-0.5], dtype=float32)
    """
    return stepping("optimistic_gradient_descent", learning_rate, scale_by_optimistic_gradient(alpha, beta))


@spelled
def optimistic_adam(
    learning_rate: Scalar, optimism: Scalar | None = None, b1: Scalar = 0.9, b2: Scalar = 0.999, eps: Scalar = 1e-8,
    eps_root: Scalar = 0.0, mu_dtype: DTypeLike | None = None, *, nesterov: bool = True,
) -> GradientTransformation:  # fmt: skip
    """Optimistic Adam (Daskalakis et al., "Training GANs with optimism", 2018), for a constant rate.

    u = m̂ / (sqrt(v̂ + eps_root) + eps),    p ← p − (learning_rate · u + optimism · (u − the last u))

    Args:
        learning_rate: a number or a 0-d array; `optimistic_adam_v2` takes schedules.
        optimism: factor of the change; None: the learning rate.
        b1: decay of the mean of gradients, in [0, 1).
        b2: decay of the mean of squares, in [0, 1).
        eps: added to the divisor, outside the root.
        eps_root: added inside the root.
        mu_dtype: dtype of m; default the parameter's, float32 for 16-bit floats.
        nesterov: look ahead, as in `scale_by_adam`.

    Example:
        >>> optimizer = nnc.optim.optimistic_adam(0.1, nesterov=False)
        >>> nnp.round(optimizer.update(nnp.asarray([3.0]), optimizer.init(nnp.ones(1)))[0], 3)
        Array([-0.1], dtype=float32)
    """
    check_scalar("optimistic_adam", "learning_rate", learning_rate)
    return chain(
        scale_by_adam(b1, b2, eps, eps_root, mu_dtype, nesterov=nesterov),
        scale_by_optimistic_gradient(learning_rate, learning_rate if optimism is None else optimism),
        scale(-1.0),
    )


@spelled
def optimistic_adam_v2(
    learning_rate: Scalar | Schedule, *, alpha: Scalar = 1.0, beta: Scalar = 1.0, b1: Scalar = 0.9, b2: Scalar = 0.999,
    eps: Scalar = 1e-8, eps_root: Scalar = 0.0, mu_dtype: DTypeLike | None = None, nesterov: bool = True,
) -> GradientTransformation:  # fmt: skip
    """Optimistic Adam (Daskalakis et al., "Training GANs with optimism", 2018), for schedules, too.

    u = m̂ / (sqrt(v̂ + eps_root) + eps),    p ← p − learning_rate · (alpha · u + beta · (u − the last u))

    Args:
        learning_rate: a number, a 0-d array or a schedule.
        alpha: factor of Adam's update.
        beta: factor of its change.
        b1: decay of the mean of gradients, in [0, 1).
        b2: decay of the mean of squares, in [0, 1).
        eps: added to the divisor, outside the root.
        eps_root: added inside the root.
        mu_dtype: dtype of m; default the parameter's, float32 for 16-bit floats.
        nesterov: look ahead, as in `scale_by_adam`.

    Example:
        >>> optimizer = nnc.optim.optimistic_adam_v2(0.1, nesterov=False)
        >>> nnp.round(optimizer.update(nnp.asarray([3.0]), optimizer.init(nnp.ones(1)))[0], 3)
        Array([-0.1], dtype=float32)
    """
    moments = scale_by_adam(b1, b2, eps, eps_root, mu_dtype, nesterov=nesterov)
    return stepping("optimistic_adam_v2", learning_rate, moments, scale_by_optimistic_gradient(alpha, beta))
