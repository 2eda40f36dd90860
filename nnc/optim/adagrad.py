"""Adagrad and Adadelta: steps divided by all gradients so far, or by a running mean of them that carries its own unit."""

from __future__ import annotations

from typing import Any, NamedTuple

import nnc.numpy as nnp
from nnc.array.array import Array
from nnc.array.promote import astype
from nnc.calls.spelling import spelled
from nnc.optim.arguments import Mask, Scalar, check_rate, check_scalar, check_scalars
from nnc.optim.base import GradientTransformation, chain, map_trainable, number, stateful, widen
from nnc.optim.clipping import squared_magnitude
from nnc.optim.moments import check_decays, filled_squares, second_moment
from nnc.optim.schedules import Schedule
from nnc.optim.transforms import add_decayed_weights, scale_by_learning_rate, stepping

__all__ = ["ScaleByAdaDeltaState", "ScaleByRssState", "adadelta", "adagrad", "scale_by_adadelta", "scale_by_rss"]


class ScaleByRssState(NamedTuple):
    """The sum of squares.

    Attributes:
        sum_of_squares: a tree like the parameters.

    Example:
        >>> state = nnc.optim.scale_by_rss().init(nnp.ones(2))
        >>> state.sum_of_squares
        Array([0.1, 0.1], dtype=float32)
    """

    sum_of_squares: Any


@spelled
def scale_by_rss(
    initial_accumulator_value: float = 0.1, eps: Scalar = 1e-7, *, eps_in_sqrt: bool = True
) -> GradientTransformation:
    """Divides by the root of the sum of all squares (Duchi, Hazan and Singer, "Adaptive subgradient methods", 2011).

    s ← s + |g|²,    u = g / sqrt(s + eps),  or  g / (sqrt(s) + eps) where eps_in_sqrt is False;  0 where s is 0

    Args:
        initial_accumulator_value: sum before the first step.
        eps: added to the sum.
        eps_in_sqrt: False adds eps to the root instead.

    Example:
        >>> transformation = nnc.optim.scale_by_rss()
        >>> params = nnp.asarray([3.0, 4.0])
        >>> updates, state = transformation.update(nnp.asarray([1.0, -2.0]), transformation.init(params), params)
        >>> nnp.round(updates, 2)
        Array([ 0.95, -0.99], dtype=float32)
    """
    where = "scale_by_rss"
    check_scalars(where, initial_accumulator_value=initial_accumulator_value, eps=eps)

    def init_fn(params: Any) -> ScaleByRssState:
        return ScaleByRssState(filled_squares(where, params, initial_accumulator_value))

    def update_fn(updates: Any, state: Any, params: Any = None) -> tuple[Any, Any]:

        def add(s: Array, g: Any) -> Array:
            return s + astype(squared_magnitude(widen(g)), s.dtype)

        total = map_trainable(where, add, "sum_of_squares", state.sum_of_squares, updates=updates)

        def step(g: Array, s: Array) -> Array:
            e, some = number(eps, s.dtype), s > 0
            kept = nnp.where(some, s, 1)
            root = nnp.sqrt(kept + e) if eps_in_sqrt else nnp.sqrt(kept) + e
            return astype(widen(g) * nnp.where(some, 1 / root, 0), g.dtype)

        return map_trainable(where, step, "updates", updates, sum_of_squares=total), ScaleByRssState(total)

    return stateful(where, ScaleByRssState, init_fn, update_fn)


@spelled
def adagrad(
    learning_rate: Scalar | Schedule, initial_accumulator_value: float = 0.1, eps: Scalar = 1e-7, *,
    eps_in_sqrt: bool = True,
) -> GradientTransformation:  # fmt: skip
    """Adagrad (Duchi, Hazan and Singer, "Adaptive subgradient methods for online learning", 2011).

    s ← s + |g|²,    p ← p − learning_rate · g / sqrt(s + eps)

    Args:
        learning_rate: a number, a 0-d array or a schedule; torch's lr_decay is the schedule `lambda t: lr / (1 + t *
            lr_decay)`.
        initial_accumulator_value: s before the first step.
        eps: added to the sum, where the root is taken of both.
        eps_in_sqrt: False divides by sqrt(s) + eps; with initial_accumulator_value=0 and eps=1e-10 that is
            torch.optim.Adagrad.

    Example:
        >>> optimizer = nnc.optim.adagrad(0.1, initial_accumulator_value=0.0)
        >>> optimizer.update(nnp.asarray([3.0]), optimizer.init(nnp.ones(1)))[0]
        Array([-0.1], dtype=float32)
    """
    return stepping("adagrad", learning_rate, scale_by_rss(initial_accumulator_value, eps, eps_in_sqrt=eps_in_sqrt))


class ScaleByAdaDeltaState(NamedTuple):
    """Running means of the squares of gradients and of steps.

    Attributes:
        e_g: running means of the squares of gradients.
        e_x: running means of the squares of steps.

    Example:
        >>> state = nnc.optim.scale_by_adadelta().init(nnp.ones(2))
        >>> state.e_g
        Array([0., 0.], dtype=float32)
    """

    e_g: Any
    e_x: Any


@spelled
def scale_by_adadelta(rho: Scalar = 0.9, eps: Scalar = 1e-6) -> GradientTransformation:
    """Scales gradients to the size of past steps (Zeiler, "ADADELTA: an adaptive learning rate method", 2012).

    v ← rho · v + (1 − rho) · |g|²,    u = sqrt(w + eps) / sqrt(v + eps) · g,    w ← rho · w + (1 − rho) · |u|²

    Args:
        rho: decay of both means, in [0, 1).
        eps: added to both means.

    Example:
        >>> transformation = nnc.optim.scale_by_adadelta()
        >>> params = nnp.asarray([3.0, 4.0])
        >>> updates, state = transformation.update(nnp.asarray([1.0, -2.0]), transformation.init(params), params)
        >>> nnp.round(updates, 5)
        Array([ 0.00316, -0.00316], dtype=float32)
    """
    where = "scale_by_adadelta"
    check_decays(where, rho=rho)
    check_scalar(where, "eps", eps)

    def init_fn(params: Any) -> ScaleByAdaDeltaState:
        return ScaleByAdaDeltaState(filled_squares(where, params, 0.0), filled_squares(where, params, 0.0))

    def update_fn(updates: Any, state: Any, params: Any = None) -> tuple[Any, Any]:
        e_g = second_moment(where, rho, updates, state.e_g)

        def step(g: Array, v: Array, w: Array) -> Array:
            e = number(eps, v.dtype)
            return widen(g) * (nnp.sqrt(w + e) / nnp.sqrt(v + e))

        wide = map_trainable(where, step, "updates", updates, e_g=e_g, e_x=state.e_x)
        e_x = second_moment(where, rho, wide, state.e_x)
        narrow = map_trainable(where, lambda g, u: astype(u, g.dtype), "updates", updates, steps=wide)
        return narrow, ScaleByAdaDeltaState(e_g, e_x)

    return stateful(where, ScaleByAdaDeltaState, init_fn, update_fn)


@spelled
def adadelta(
    learning_rate: Scalar | Schedule | None = None, rho: Scalar = 0.9, eps: Scalar = 1e-6, weight_decay: Scalar = 0.0,
    weight_decay_mask: Mask = None,
) -> GradientTransformation:  # fmt: skip
    """Adadelta (Zeiler, "ADADELTA: an adaptive learning rate method", 2012), as in Optax and torch.

    v ← rho · v + (1 − rho) · |g|²,    u = sqrt(w + eps) / sqrt(v + eps) · g,    w ← rho · w + (1 − rho) · |u|²
    p ← p − learning_rate · u

    Args:
        learning_rate: a number, a 0-d array or a schedule; None is 1, as in the paper.
        rho: decay of both means, in [0, 1).
        eps: added to both means.
        weight_decay: L2 regularisation; `update` then needs the parameters.
        weight_decay_mask: where, as for `adamw`.

    Example:
        >>> optimizer = nnc.optim.adadelta(1.0, eps=0.25, rho=0.5)
        >>> optimizer.update(nnp.asarray([1.0]), optimizer.init(nnp.ones(1)))[0]
        Array([-0.57735026], dtype=float32)
    """
    rate = 1.0 if learning_rate is None else learning_rate
    check_rate("adadelta", rate)
    links = [scale_by_adadelta(rho, eps), scale_by_learning_rate(rate)]
    if not isinstance(weight_decay, (int, float)) or weight_decay:
        links.insert(0, add_decayed_weights(weight_decay, weight_decay_mask))
    return chain(*links)
