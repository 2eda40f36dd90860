"""Optimizers that read no more of a gradient than its signs: sign descent, Signum and Rprop."""

from __future__ import annotations

from typing import Any, NamedTuple

import nnc.numpy as nnp
from nnc.array.array import Array, asarray
from nnc.array.promote import astype
from nnc.base import dtypes
from nnc.calls.spelling import spelled
from nnc.errors import ArgumentError, user_error
from nnc.optim.accumulate import ema
from nnc.optim.arguments import Scalar, check_scalar
from nnc.optim.base import GradientTransformation, chain, leafwise, make_state, map_trainable, number, stateful, widen
from nnc.optim.moments import filled_squares, zeros_state
from nnc.optim.schedules import Schedule
from nnc.optim.transforms import scale, stepping
from nnc.typing import DTypeLike

__all__ = ["ScaleByRpropState", "rprop", "scale_by_rprop", "scale_by_sign", "sign_sgd", "signum"]


@spelled
def scale_by_sign() -> GradientTransformation:
    """Replaces updates by their signs; x / |x| of complex numbers, 0 of 0.

    Example:
        >>> nnc.optim.scale_by_sign().update(nnp.asarray([3.0, 0.0, -0.5]), nnc.optim.EmptyState())[0]
        Array([ 1.,  0., -1.], dtype=float32)
    """
    return leafwise("scale_by_sign", nnp.sign)


@spelled
def sign_sgd(learning_rate: Scalar | Schedule) -> GradientTransformation:
    """Gradient descent by signs (Bernstein et al., "signSGD: compressed optimisation for non-convex problems", 2018).

    p ← p − learning_rate · sign(g)

    Args:
        learning_rate: a number, a 0-d array or a schedule.

    Example:
        >>> optimizer = nnc.optim.sign_sgd(0.1)
        >>> optimizer.update(nnp.asarray([3.0, -0.2]), optimizer.init(nnp.ones(2)))[0]
        Array([-0.1,  0.1], dtype=float32)
    """
    return stepping("sign_sgd", learning_rate, scale_by_sign())


@spelled
def signum(
    learning_rate: Scalar | Schedule, beta: Scalar = 0.9, accumulator_dtype: DTypeLike | None = None
) -> GradientTransformation:
    """Signs of a running mean of gradients (Bernstein et al., "signSGD: compressed optimisation for non-convex problems", 2018).

    m ← beta · m + (1 − beta) · g,    p ← p − learning_rate · sign(m)

    Args:
        learning_rate: a number, a 0-d array or a schedule.
        beta: decay of the mean, in [0, 1).
        accumulator_dtype: dtype of m; default the parameter's, float32 for 16-bit floats.

    Example:
        >>> optimizer = nnc.optim.signum(0.1)
        >>> optimizer.update(nnp.asarray([3.0, -0.2]), optimizer.init(nnp.ones(2)))[0]
        Array([-0.1,  0.1], dtype=float32)
    """
    return stepping("signum", learning_rate, ema(beta, False, accumulator_dtype), scale_by_sign())


# -- Rprop -------------------------------------------------------------------------------------------------------------


class ScaleByRpropState(NamedTuple):
    """Step sizes and the last updates.

    Attributes:
        step_sizes: sizes of the steps of all elements, a tree like the parameters.
        prev_updates: the last updates, 0 where the gradient changed its sign.

    Example:
        >>> state = nnc.optim.scale_by_rprop(0.1).init(nnp.ones(2))
        >>> state.step_sizes
        Array([0.1, 0.1], dtype=float32)
    """

    step_sizes: Any
    prev_updates: Any


@spelled
def scale_by_rprop(
    learning_rate: Scalar, eta_minus: Scalar = 0.5, eta_plus: Scalar = 1.2, min_step_size: Scalar = 1e-6,
    max_step_size: Scalar = 50.0,
) -> GradientTransformation:  # fmt: skip
    """Gives each element a step size that grows while the sign of its gradient stays (Riedmiller and Braun, "A direct adaptive
    method for faster backpropagation learning: the RPROP algorithm", 1993; without steps back, Igel and Hüsken, 2000).

    s ← s · eta_plus where the sign stays, s · eta_minus where it changes,    u = s · sign(g), and 0 where it changes

    Optax 0.2.8 gives each of these updates one call later; torch.optim.Rprop as here.

    Args:
        learning_rate: the first step size.
        eta_minus: factor of step sizes where the sign changes, below 1.
        eta_plus: factor of step sizes where the sign stays, above 1.
        min_step_size: step sizes do not fall below.
        max_step_size: step sizes do not rise above.

    Raises:
        ArgumentError: the factors or the limits are out of order.

    Example:
        >>> transformation = nnc.optim.scale_by_rprop(0.1)
        >>> params = nnp.asarray([3.0, 4.0])
        >>> transformation.update(nnp.asarray([1.0, -2.0]), transformation.init(params), params)[0]
        Array([ 0.1, -0.1], dtype=float32)
    """
    where = "scale_by_rprop"
    numbers = {"learning_rate": learning_rate, "eta_minus": eta_minus, "eta_plus": eta_plus}
    for name, value in (*numbers.items(), ("min_step_size", min_step_size), ("max_step_size", max_step_size)):
        check_scalar(where, name, value)
    _check_order(where, eta_minus=eta_minus, eta_plus=eta_plus)
    _check_order(where, min_step_size=min_step_size, max_step_size=max_step_size)

    def init_fn(params: Any) -> ScaleByRpropState:
        sizes = make_state(where, lambda s: s + number(learning_rate, s.dtype), filled_squares(where, params, 0.0))
        return ScaleByRpropState(sizes, zeros_state(where, params))

    def update_fn(updates: Any, state: Any, params: Any = None) -> tuple[Any, Any]:

        def agreement(last: Array, g: Any) -> Array:
            product = nnp.conj(last) * astype(asarray(g), last.dtype)
            return product.real if dtypes.is_complex(product.dtype) else product

        def resize(s: Array, same: Array) -> Array:
            low, high = number(min_step_size, s.dtype), number(max_step_size, s.dtype)
            resized = nnp.where(same > 0, s * number(eta_plus, s.dtype), s * number(eta_minus, s.dtype))
            return nnp.where(same == 0, s, nnp.minimum(nnp.maximum(resized, low), high))

        def move(g: Array, same: Array, s: Array) -> Array:
            wide = widen(g)
            return nnp.where(same < 0, 0, nnp.sign(wide) * astype(s, wide.dtype))

        same = map_trainable(where, agreement, "prev_updates", state.prev_updates, updates=updates)
        sizes = map_trainable(where, resize, "step_sizes", state.step_sizes, same=same)
        moves = map_trainable(where, move, "updates", updates, same=same, sizes=sizes)
        kept = map_trainable(
            where, lambda old, u: astype(u, old.dtype), "prev_updates", state.prev_updates, updates=moves
        )
        u = map_trainable(where, lambda g, u: astype(u, g.dtype), "updates", updates, moves=moves)
        return u, ScaleByRpropState(sizes, kept)

    return stateful(where, ScaleByRpropState, init_fn, update_fn)


def _check_order(where: str, **limits: Scalar) -> None:
    (low_name, low), (high_name, high) = limits.items()
    if isinstance(low, (int, float)) and isinstance(high, (int, float)) and low > high:
        raise user_error(ArgumentError, where, f"{low_name} is {low}, above {high_name}, {high}.", fix="exchange them.")


@spelled
def rprop(
    learning_rate: Scalar, eta_minus: Scalar = 0.5, eta_plus: Scalar = 1.2, min_step_size: Scalar = 1e-6,
    max_step_size: Scalar = 50.0,
) -> GradientTransformation:  # fmt: skip
    """Rprop, for gradients of the whole data (Riedmiller and Braun, "A direct adaptive method for faster backpropagation
    learning: the RPROP algorithm", 1993); see `scale_by_rprop`.

    s ← s · eta_plus where the sign of g stays, s · eta_minus where it changes
    p ← p − s · sign(g), but where it changes

    Args:
        learning_rate: the first step size.
        eta_minus: factor of step sizes where the sign changes, below 1.
        eta_plus: factor of step sizes where the sign stays, above 1.
        min_step_size: step sizes do not fall below.
        max_step_size: step sizes do not rise above.

    Raises:
        ArgumentError: the factors or the limits are out of order.

    Example:
        >>> optimizer = nnc.optim.rprop(0.1)
        >>> state = optimizer.init(nnp.ones(1))
        >>> for g in (1.0, 1.0, -1.0):
        ...     updates, state = optimizer.update(nnp.asarray([g]), state)
        ...     print(updates)
        [-0.1]
        [-0.12]
        [-0.]
    """
    return chain(scale_by_rprop(learning_rate, eta_minus, eta_plus, min_step_size, max_step_size), scale(-1.0))
