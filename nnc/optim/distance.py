"""Optimizers without a learning rate, whose steps grow with the distance from the start: DoG, DoWG and COCOB."""

from __future__ import annotations

from typing import Any, Literal, NamedTuple

import numpy as np

import nnc.numpy as nnp
from nnc.array.array import Array, asarray
from nnc.array.promote import as_operand, astype
from nnc.base import dtypes
from nnc.calls.spelling import spelled
from nnc.errors import ArgumentError, user_error
from nnc.optim.arguments import Mask, Scalar, check_params, check_scalar
from nnc.optim.base import GradientTransformation, identity, make_state, map_trainable, number, stateful, widen
from nnc.optim.clipping import global_norm, norm, squared_magnitude
from nnc.optim.schedules import Schedule
from nnc.optim.totals import broadcast_like, copies, shared, squared_norm
from nnc.optim.transforms import add_decayed_weights, scaled, stepping
from nnc.typing import DTypeLike

__all__ = [
    "DoGState",
    "DoWGState",
    "ScaleByDistanceOverGradientsState",
    "dog",
    "dowg",
    "scale_by_distance_over_gradients",
    "scale_by_dog",
    "scale_by_dowg",
]

InitStep = tuple[Literal["distance", "learning_rate", "heuristic"], Scalar]


def _apart(where: str, params: Any, start: Any) -> Any:
    """Returns the way from the start to the parameters."""

    def subtract(p0: Array, p: Any) -> Array:
        wide = widen(p0)
        return astype(as_operand(p), wide.dtype) - wide

    return map_trainable(where, subtract, "init_params", start, params=params)


# -- DoG ---------------------------------------------------------------------------------------------------------------


class DoGState(NamedTuple):
    """The first parameters, the greatest distance from them, and the sum of squared norms of gradients.

    Attributes:
        is_init_step: whether no update was made so far, a 0-d bool.
        init_params: the first parameters.
        max_dist: the greatest distance from them, a 0-d array.
        sum_sq_norm_grads: sum of squared norms of gradients, a 0-d array.

    Example:
        >>> state = nnc.optim.scale_by_dog(("distance", 0.1)).init(nnp.ones(2))
        >>> state.max_dist
        Array(0.1, dtype=float32)
    """

    is_init_step: Any
    init_params: Any
    max_dist: Any
    sum_sq_norm_grads: Any


@spelled
def scale_by_dog(init_step: InitStep, eps: Scalar = 1e-8) -> GradientTransformation:
    """Multiplies updates by the distance over gradients (Ivgi, Hinder and Carmon, "DoG is SGD's best friend", 2023).

    r ← max(r, ‖p − p0‖),    G ← G + ‖u‖²,    u' = r / sqrt(G + eps) · u

    Args:
        init_step: rule of the first step: ("distance", r), ("heuristic", a) for r = a · (1 + ‖p0‖), or
            ("learning_rate", the first factor).
        eps: added to the sum of squares.

    Raises:
        ArgumentError: init_step is no such pair.
        ArgumentTypeError (from update): params were not given.

    Example:
        >>> transformation = nnc.optim.scale_by_dog(("distance", 0.1))
        >>> params = nnp.asarray([3.0, 4.0])
        >>> updates, state = transformation.update(nnp.asarray([1.0, -2.0]), transformation.init(params), params)
        >>> nnp.round(updates, 3)
        Array([ 0.045, -0.089], dtype=float32)
    """
    where = "scale_by_dog"
    kinds = ("distance", "heuristic", "learning_rate")
    if not isinstance(init_step, tuple) or len(init_step) != 2 or init_step[0] not in kinds:
        problem = f"init_step is {init_step!r}; it must be a pair of one of {', '.join(kinds)}, and a number."
        raise user_error(ArgumentError, where, problem, fix='write init_step=("heuristic", 1e-6).')
    kind, first = init_step
    check_scalar(where, "init_step[1]", first, positive=True)
    check_scalar(where, "eps", eps)

    def init_fn(params: Any) -> DoGState:
        check_params(where, params)
        distance = shared(0.0 if kind == "learning_rate" else first, params)
        if kind == "heuristic":
            distance = distance * (1 + astype(global_norm(params), distance.dtype))
        return DoGState(asarray(np.array(True)), copies(where, params), distance, shared(0.0, params))

    def update_fn(updates: Any, state: Any, params: Any = None) -> tuple[Any, Any]:
        dtype = state.max_dist.dtype
        distance = nnp.maximum(state.max_dist, astype(global_norm(_apart(where, params, state.init_params)), dtype))
        total = state.sum_sq_norm_grads + astype(squared_norm(where, updates), dtype)
        rate = _divide(distance, nnp.sqrt(total + number(eps, dtype)))
        if kind == "learning_rate":
            rate = astype(nnp.where(state.is_init_step, number(first, dtype), rate), dtype)
        new_state = DoGState(asarray(np.array(False)), state.init_params, distance, total)
        return scaled(where, updates, rate), new_state

    return stateful(where, DoGState, init_fn, update_fn, reads_params=True)


def _divide(x: Array, y: Array) -> Array:
    """x / y, and 0 where y is 0."""
    return nnp.where(y == 0, 0, x / nnp.where(y == 0, 1, y))


@spelled
def dog(
    learning_rate: Scalar | Schedule = 1.0, init_step: InitStep = ("heuristic", 1e-6), eps: Scalar = 1e-8,
    weight_decay: Scalar | None = None, mask: Mask = None,
) -> GradientTransformation:  # fmt: skip
    """DoG, distance over gradients (Ivgi, Hinder and Carmon, "DoG is SGD's best friend: a parameter-free dynamic step size
    schedule", 2023).

    r ← max(r, ‖p − p0‖),    G ← G + ‖g‖²,    p ← p − learning_rate · r / sqrt(G + eps) · g

    Evaluate a mean of the iterates, such as of `ema`.

    Args:
        learning_rate: factor of the step size, 1 as a rule; or a schedule.
        init_step: the first distance, see `scale_by_dog`.
        eps: added to the sum of squares.
        weight_decay: factor of the parameters that are added to the gradient; None: none.
        mask: a tree of bools, or a function from parameters to one; only where it is True do weights decay.

    Raises:
        ArgumentTypeError (from update): params were not given.

    Example:
        >>> optimizer = nnc.optim.dog(init_step=("distance", 0.5))
        >>> nnp.round(optimizer.update(nnp.asarray([3.0, 4.0]), optimizer.init(nnp.ones(2)), nnp.ones(2))[0], 3)
        Array([-0.3, -0.4], dtype=float32)
    """
    decay = identity() if weight_decay is None else add_decayed_weights(weight_decay, mask)
    return stepping("dog", learning_rate, decay, scale_by_dog(init_step, eps))


# -- DoWG --------------------------------------------------------------------------------------------------------------


class DoWGState(NamedTuple):
    """The first parameters, the weighted sum of squared norms of gradients, and the greatest squared distance.

    Attributes:
        init_params: the first parameters.
        weighted_sq_norm_grads: weighted sum of squared norms of gradients, a 0-d array.
        estim_sq_dist: the greatest squared distance from the first parameters, a 0-d array.

    Example:
        >>> state = nnc.optim.scale_by_dowg().init(nnp.ones(2))
        >>> state.estim_sq_dist
        Array(0.0001, dtype=float32)
    """

    init_params: Any
    weighted_sq_norm_grads: Any
    estim_sq_dist: Any


@spelled
def scale_by_dowg(init_estim_sq_dist: Scalar | None = None, eps: Scalar = 1e-4) -> GradientTransformation:
    """Multiplies updates by the distance over weighted gradients (Khaled, Mishchenko and Jin, "DoWG unleashed", 2023).

    d ← max(d, ‖p − p0‖²),    G ← G + d · ‖u‖²,    u' = d / (sqrt(G) + eps) · u

    Args:
        init_estim_sq_dist: the first d; None: eps.
        eps: added to the divisor.

    Raises:
        ArgumentTypeError (from update): params were not given.

    Example:
        >>> transformation = nnc.optim.scale_by_dowg()
        >>> params = nnp.asarray([3.0, 4.0])
        >>> updates, state = transformation.update(nnp.asarray([1.0, -2.0]), transformation.init(params), params)
        >>> nnp.round(updates, 4)
        Array([ 0.0045, -0.0089], dtype=float32)
    """
    where = "scale_by_dowg"
    check_scalar(where, "eps", eps, positive=True)
    if init_estim_sq_dist is not None:
        check_scalar(where, "init_estim_sq_dist", init_estim_sq_dist, positive=True)

    def init_fn(params: Any) -> DoWGState:
        first = eps if init_estim_sq_dist is None else init_estim_sq_dist
        return DoWGState(copies(where, params), shared(0.0, params), shared(first, params))

    def update_fn(updates: Any, state: Any, params: Any = None) -> tuple[Any, Any]:
        dtype = state.estim_sq_dist.dtype
        away = astype(squared_norm(where, _apart(where, params, state.init_params)), dtype)
        distance = nnp.maximum(state.estim_sq_dist, away)
        total = state.weighted_sq_norm_grads + distance * astype(squared_norm(where, updates), dtype)
        rate = distance / (nnp.sqrt(total) + number(eps, dtype))
        return scaled(where, updates, rate), DoWGState(state.init_params, total, distance)

    return stateful(where, DoWGState, init_fn, update_fn, reads_params=True)


@spelled
def dowg(
    learning_rate: Scalar | Schedule = 1.0, init_estim_sq_dist: Scalar | None = None, eps: Scalar = 1e-4,
    weight_decay: Scalar | None = None, mask: Mask = None,
) -> GradientTransformation:  # fmt: skip
    """DoWG, distance over weighted gradients (Khaled, Mishchenko and Jin, "DoWG unleashed: an efficient universal parameter-free
    gradient descent method", 2023).

    d ← max(d, ‖p − p0‖²),    G ← G + d · ‖g‖²,    p ← p − learning_rate · d / (sqrt(G) + eps) · g

    Args:
        learning_rate: factor of the step size, 1 as a rule; or a schedule.
        init_estim_sq_dist: the first d; None: eps.
        eps: added to the divisor.
        weight_decay: factor of the parameters that are added to the gradient; None: none.
        mask: a tree of bools, or a function from parameters to one; only where it is True do weights decay.

    Raises:
        ArgumentTypeError (from update): params were not given.

    Example:
        >>> optimizer = nnc.optim.dowg(init_estim_sq_dist=0.25)
        >>> nnp.round(optimizer.update(nnp.asarray([3.0, 4.0]), optimizer.init(nnp.ones(2)), nnp.ones(2))[0], 3)
        Array([-0.3, -0.4], dtype=float32)
    """
    decay = identity() if weight_decay is None else add_decayed_weights(weight_decay, mask)
    return stepping("dowg", learning_rate, decay, scale_by_dowg(init_estim_sq_dist, eps))


# -- by arrays ---------------------------------------------------------------------------------------------------------


class ScaleByDistanceOverGradientsState(NamedTuple):
    """Distances and sums of squares, one of each for every array, and the first parameters.

    Attributes:
        max_dist: the greatest distance of each array from its start, 0-d arrays.
        grad_sum_of_squares: sums of squared gradients, 0-d arrays.
        init_params: the first parameters.

    Example:
        >>> state = nnc.optim.scale_by_distance_over_gradients().init(nnp.ones(2))
        >>> state.max_dist
        Array(2.4142137e-06, dtype=float32)
    """

    max_dist: Any
    grad_sum_of_squares: Any
    init_params: Any


@spelled
def scale_by_distance_over_gradients(
    reps_rel: Scalar = 1e-6, eps: Scalar = 1e-8, param_dtype: DTypeLike | None = None, global_scale: Scalar = 1.0
) -> GradientTransformation:
    """Multiplies each array's update by its own distance over gradients (Ivgi, Hinder and Carmon, "DoG is SGD's best friend",
    2023, layer-wise).

    r ← max(r, ‖p − p0‖),    G ← G + ‖u‖²,    u' = global_scale · r / sqrt(G + eps) · u

    Args:
        reps_rel: the first distance is this times 1 + ‖p0‖.
        eps: added to the sum of squares.
        param_dtype: dtype in which the first parameters are kept; default their own (Optax: float32).
        global_scale: factor of all updates.

    Raises:
        ArgumentTypeError (from update): params were not given.

    Example:
        >>> transformation = nnc.optim.scale_by_distance_over_gradients()
        >>> params = nnp.asarray([3.0, 4.0])
        >>> updates, state = transformation.update(nnp.asarray([1.0, -2.0]), transformation.init(params), params)
        >>> bool(updates[1] == -2 * updates[0])
        True
    """
    where = "scale_by_distance_over_gradients"
    for name, value in (("reps_rel", reps_rel), ("eps", eps), ("global_scale", global_scale)):
        check_scalar(where, name, value, positive=name == "eps")

    def init_fn(params: Any) -> ScaleByDistanceOverGradientsState:
        def first(p: Array) -> Array:
            size = norm(widen(p))
            return (size + 1) * number(reps_rel, size.dtype)

        def keep(p: Array) -> Array:
            return nnp.copy(p if param_dtype is None else astype(p, dtypes.as_dtype(param_dtype)))

        none = make_state(where, lambda p: asarray(np.zeros((), dtypes.real_dtype(widen(p).dtype))), params)
        return ScaleByDistanceOverGradientsState(
            make_state(where, first, params), none, make_state(where, keep, params)
        )

    def update_fn(updates: Any, state: Any, params: Any = None) -> tuple[Any, Any]:
        map_trainable(where, lambda u, p: u, "updates", updates, params=params)  # checks structure and shapes
        away = map_trainable(where, norm, "init_params", _apart(where, params, state.init_params))
        squares = map_trainable(where, lambda u: nnp.sum(squared_magnitude(widen(u))), "updates", updates)

        def farthest(r: Array, new: Array) -> Array:
            return nnp.maximum(r, astype(new, r.dtype))

        distances = map_trainable(where, farthest, "max_dist", state.max_dist, away=away)
        sums = map_trainable(
            where, lambda s, new: s + astype(new, s.dtype), "sums", state.grad_sum_of_squares, squares=squares
        )

        def step(u: Array, r: Array, total: Array) -> Array:
            wide = widen(u)
            factor = r / nnp.sqrt(total + number(eps, total.dtype)) * number(global_scale, r.dtype)
            return astype(wide * astype(factor, dtypes.real_dtype(wide.dtype)), u.dtype)

        u = map_trainable(
            where, step, "updates", updates, r=broadcast_like(updates, distances), total=broadcast_like(updates, sums)
        )
        return u, ScaleByDistanceOverGradientsState(distances, sums, state.init_params)

    return stateful(where, ScaleByDistanceOverGradientsState, init_fn, update_fn, reads_params=True)
