"""COCOB: steps by betting on coins, without a learning rate."""

from __future__ import annotations

from typing import Any, NamedTuple

import nnc.numpy as nnp
from nnc.array.array import Array, asarray
from nnc.array.promote import as_operand, astype
from nnc.base import dtypes
from nnc.calls.spelling import spelled
from nnc.optim.arguments import Mask, Scalar, check_rate, check_scalar
from nnc.optim.base import GradientTransformation, chain, make_state, map_trainable, number, stateful, widen
from nnc.optim.moments import filled_squares, zeros_state
from nnc.optim.schedules import Schedule
from nnc.optim.totals import copies
from nnc.optim.transforms import add_decayed_weights, scale_by_learning_rate

__all__ = ["COCOBState", "cocob", "scale_by_cocob"]


class COCOBState(NamedTuple):
    """The first parameters, and of each element sums of gradients and of rewards.

    Attributes:
        init_particles: the first parameters.
        cumulative_gradients: minus the sums of gradients.
        scale: the greatest gradients so far.
        subgradients: sums of absolute gradients.
        reward: gains of all bets, at least 0.

    Example:
        >>> state = nnc.optim.scale_by_cocob().init(nnp.ones(2))
        >>> state.init_particles
        Array([1., 1.], dtype=float32)
    """

    init_particles: Any
    cumulative_gradients: Any
    scale: Any
    subgradients: Any
    reward: Any


@spelled
def scale_by_cocob(alpha: Scalar = 100.0, eps: Scalar = 1e-8) -> GradientTransformation:
    """Bets on the sign of each element's gradient (Orabona and Tommasi, "Training deep networks without learning rates through
    coin betting", 2017). Updates are steps already, of the sign in which they are added.

    L ← max(L, |g|),    G ← G + |g|,    R ← max(R − g · (p − p0), 0),    C ← C − g
    u = p0 + C / (L · max(G + L, alpha · L)) · (L + R) − p

    Args:
        alpha: limits the first bets to about 1 / alpha.
        eps: L before the first update.

    Raises:
        ArgumentTypeError (from update): params were not given.

    Example:
        >>> transformation = nnc.optim.scale_by_cocob()
        >>> params = nnp.asarray([3.0, 4.0])
        >>> transformation.update(nnp.asarray([1.0, -2.0]), transformation.init(params), params)[0]
        Array([-0.01,  0.01], dtype=float32)
    """
    where = "scale_by_cocob"
    check_scalar(where, "alpha", alpha)
    check_scalar(where, "eps", eps, positive=True)

    def init_fn(params: Any) -> COCOBState:
        first = make_state(where, lambda x: x + number(eps, x.dtype), filled_squares(where, params, 0.0))
        none, sums = (filled_squares(where, params, 0.0) for _ in range(2))
        return COCOBState(copies(where, params), zeros_state(where, params), first, none, sums)

    def update_fn(updates: Any, state: Any, params: Any = None) -> tuple[Any, Any]:

        def away(p0: Array, p: Any) -> Array:
            wide = widen(p0)
            return astype(as_operand(p), wide.dtype) - wide

        def win(r: Array, g: Any, way: Array) -> Array:
            product = nnp.conj(way) * astype(asarray(g), way.dtype)
            return nnp.maximum(r - (product.real if dtypes.is_complex(product.dtype) else product), 0)

        def size(g: Any, kept: Array) -> Array:
            return astype(nnp.abs(widen(asarray(g))), kept.dtype)

        ways = map_trainable(where, away, "init_particles", state.init_particles, params=params)
        scale = map_trainable(where, lambda s, g: nnp.maximum(s, size(g, s)), "scale", state.scale, updates=updates)
        totals = map_trainable(where, lambda s, g: s + size(g, s), "subgradients", state.subgradients, updates=updates)
        reward = map_trainable(where, win, "reward", state.reward, updates=updates, ways=ways)
        sums = map_trainable(
            where, lambda c, g: c - astype(asarray(g), c.dtype), "sums", state.cumulative_gradients, updates=updates
        )

        def bet(u: Array, way: Array, c: Array, s: Array, g: Array, r: Array) -> Array:
            share = (s + r) / (s * nnp.maximum(g + s, s * number(alpha, s.dtype)))
            return astype(c * share - way, u.dtype)

        u = map_trainable(
            where, bet, "updates", updates, ways=ways, sums=sums, scale=scale, totals=totals, reward=reward
        )
        return u, COCOBState(state.init_particles, sums, scale, totals, reward)

    return stateful(where, COCOBState, init_fn, update_fn, reads_params=True)


@spelled
def cocob(
    learning_rate: Scalar | Schedule = 1.0, alpha: Scalar = 100.0, eps: Scalar = 1e-8,
    weight_decay: Scalar | Schedule = 0.0, mask: Mask = None,
) -> GradientTransformation:  # fmt: skip
    """COCOB, continuous coin betting (Orabona and Tommasi, "Training deep networks without learning rates through coin betting",
    2017); see `scale_by_cocob`.

    Args:
        learning_rate: factor of the gradients, on which steps depend little; or a schedule.
        alpha: limits the first bets to about 1 / alpha.
        eps: the least size of gradients that counts.
        weight_decay: factor of the parameters that are added to the gradient.
        mask: a tree of bools, or a function from parameters to one; only where it is True do weights decay.

    Raises:
        ArgumentTypeError (from update): params were not given.

    Example:
        >>> optimizer = nnc.optim.cocob(alpha=10.0)
        >>> nnp.round(optimizer.update(nnp.asarray([3.0]), optimizer.init(nnp.ones(1)), nnp.ones(1))[0], 3)
        Array([-0.1], dtype=float32)
    """
    check_rate("cocob", learning_rate)
    return chain(
        add_decayed_weights(weight_decay, mask),
        scale_by_learning_rate(learning_rate, flip_sign=False),
        scale_by_cocob(alpha, eps),
    )
