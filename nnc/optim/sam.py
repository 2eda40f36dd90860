"""Sharpness-aware minimisation: the gradient of a step is taken where the loss around the parameters is high."""

from __future__ import annotations

from typing import Any, NamedTuple

import nnc.numpy as nnp
from nnc.array.array import Array, asarray
from nnc.array.promote import as_operand, astype
from nnc.calls.spelling import spelled
from nnc.errors import ArgumentTypeError, user_error
from nnc.errors.errors import check_count
from nnc.optim.arguments import check_params, check_state
from nnc.optim.base import (
    GradientTransformation,
    GradientTransformationExtraArgs,
    apply_updates,
    check_transformation,
    map_trainable,
    number,
    run_update,
    stateless,
    widen,
)
from nnc.optim.clipping import global_norm
from nnc.optim.precision import select_tree
from nnc.optim.totals import copies
from nnc.optim.transforms import zero_count
from nnc.trace.core.collectives import pmean

__all__ = ["SAMState", "normalize", "sam"]


@spelled
def normalize() -> GradientTransformation:
    """Divides all updates by their norm together: u' = u / ‖u‖; zeros stay.

    Example:
        >>> nnc.optim.normalize().update(nnp.asarray([3.0, 4.0]), nnc.optim.normalize().init(nnp.zeros(2)))[0]
        Array([0.6, 0.8], dtype=float32)
    """

    def update(updates: Any, params: Any) -> Any:
        size = global_norm(updates)
        size = nnp.where(size == 0, 1, size)

        def divide(u: Array) -> Array:
            wide = widen(u)
            return astype(wide / number(size, wide.dtype), u.dtype)

        return map_trainable("normalize", divide, "updates", updates)

    return stateless("normalize", update)


class SAMState(NamedTuple):
    """The states of both optimizers and the parameters between two steps.

    Attributes:
        steps_since_sync: updates since the last step of the optimizer.
        opt_state: state of the optimizer.
        adv_state: state of the adversarial optimizer.
        cache: parameters before the adversarial steps; None in opaque mode.

    Example:
        >>> state = nnc.optim.sam(nnc.optim.sgd(0.1), nnc.optim.sgd(0.05)).init(nnp.ones(2))
        >>> state.steps_since_sync
        Array(0, dtype=int64)
    """

    steps_since_sync: Any
    opt_state: Any
    adv_state: Any
    cache: Any


@spelled
def sam(
    optimizer: GradientTransformation, adv_optimizer: GradientTransformation, sync_period: int = 2,
    reset_state: bool = True, opaque_mode: bool = False, batch_axis_name: str | None = None,
) -> GradientTransformationExtraArgs:  # fmt: skip
    """Sharpness-aware minimisation (Foret et al., "Sharpness-aware minimization for efficiently improving generalization", 2021).

    q = p;    sync_period − 1 times  q ← q − adv_optimizer's update of ∇f(q);    p ← p + optimizer's update of ∇f(q)

    By default each update makes one of these moves, so that every `sync_period`-th brings the parameters back and makes the
    step of `optimizer`. In opaque mode an update makes all of them, and reads `grad_fn=`, a function from parameters and the number
    of the adversarial step to a gradient.

    The original is `sam(sgd(rate), chain(normalize(), sgd(rho)))`.

    Args:
        optimizer: makes the steps.
        adv_optimizer: makes the adversarial steps, which go against its updates, so upwards.
        sync_period: how many gradients a step takes.
        reset_state: start the adversarial optimizer anew after each step.
        opaque_mode: make all moves of a step in one update.
        batch_axis_name: name of the axis of a map over which the gradients of `grad_fn` are averaged; None: of no axis.

    Raises:
        ArgumentError: sync_period is no positive int.
        ArgumentTypeError (from update): params, or in opaque mode `grad_fn`, were not given.

    Example:
        >>> optimizer = nnc.optim.sam(nnc.optim.sgd(0.5), nnc.optim.chain(nnc.optim.normalize(), nnc.optim.sgd(0.1)))
        >>> params = nnp.asarray([1.0])
        >>> state = optimizer.init(params)
        >>> for _ in range(2):  # up to 1.1, then from 1 by half of the gradient at 1.1
        ...     updates, state = optimizer.update(params, state, params)
        ...     params = nnc.optim.apply_updates(params, updates)
        ...     print(params)
        [1.1]
        [0.45]
    """
    where = "sam"
    check_transformation(where, "optimizer", optimizer)
    check_transformation(where, "adv_optimizer", adv_optimizer)
    check_count(where, "sync_period", sync_period, "choose 2.")

    def init_fn(params: Any) -> SAMState:
        cache = None if opaque_mode else copies(where, params)
        return SAMState(zero_count(), optimizer.init(params), adv_optimizer.init(params), cache)

    def against(updates: Any) -> Any:
        return map_trainable(where, lambda u: -u, "updates", updates)

    def transparent(updates: Any, state: Any, params: Any = None, **extra: Any) -> tuple[Any, Any]:
        check_state(where, state, SAMState)
        check_params(where, params)
        last = state.steps_since_sync == sync_period - 1
        cache = select_tree(state.steps_since_sync == 0, params, state.cache)
        up, adv_state = run_update(adv_optimizer, updates, state.adv_state, params, extra)
        down, opt_state = run_update(optimizer, updates, state.opt_state, cache, extra)

        def back(u: Array, start: Any, p: Any) -> Array:
            wide = widen(u)
            return astype(astype(as_operand(start), wide.dtype) - astype(as_operand(p), wide.dtype) + wide, u.dtype)

        down = map_trainable(where, back, "updates", down, cache=cache, params=params)
        kept = adv_optimizer.init(params) if reset_state else state.adv_state
        return select_tree(last, down, against(up)), SAMState(
            (state.steps_since_sync + 1) % sync_period, select_tree(last, opt_state, state.opt_state),
            select_tree(last, kept, adv_state), cache,
        )  # fmt: skip

    def opaque(updates: Any, state: Any, params: Any = None, *, grad_fn: Any = None, **extra: Any) -> tuple[Any, Any]:
        check_state(where, state, SAMState)
        check_params(where, params)
        if not callable(grad_fn):
            problem = f"grad_fn is {grad_fn!r}; in opaque mode it must be a function of parameters."
            fix = "call update(grads, state, params, grad_fn=lambda params, i: nnc.grad(loss)(params))."
            raise user_error(ArgumentTypeError, where, problem, fix=fix)
        at, adv_state = params, state.adv_state
        for i in range(sync_period - 1):
            up, adv_state = run_update(adv_optimizer, updates, adv_state, at, extra)
            at = apply_updates(at, against(up))
            updates = grad_fn(at, i)
            if batch_axis_name is not None:
                updates = map_trainable(where, lambda g: pmean(g, batch_axis_name), "updates", updates)
        if reset_state:
            adv_state = adv_optimizer.init(params)
        updates, opt_state = run_update(optimizer, updates, state.opt_state, params, extra)
        return updates, SAMState(asarray(state.steps_since_sync), opt_state, adv_state, None)

    return GradientTransformationExtraArgs(init_fn, opaque if opaque_mode else transparent)
