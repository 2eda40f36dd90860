"""Transformations that act in some updates only, and rules by which gradients are skipped."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import nnc.numpy as nnp
from nnc import tree
from nnc.array.array import Array, asarray
from nnc.base import dtypes
from nnc.calls.spelling import spelled
from nnc.errors import ArgumentTypeError, user_error
from nnc.errors.errors import shorten
from nnc.optim.arguments import Scalar, check_scalar, check_state, is_trainable
from nnc.optim.base import (
    GradientTransformation,
    GradientTransformationExtraArgs,
    check_transformation,
    map_trainable,
    number,
    run_update,
)
from nnc.optim.precision import select_tree
from nnc.optim.totals import squared_norm
from nnc.optim.transforms import zero_count
from nnc.trace.loops.branches import cond
from nnc.typing import A

__all__ = [
    "ConditionallyMaskState",
    "ConditionallyTransformState",
    "conditionally_mask",
    "conditionally_transform",
    "periodic_update",
    "skip_large_updates",
    "skip_not_finite",
]


def run_if(pred: Any, on_true: Callable[[], Any], on_false: Callable[[], Any]) -> Any:
    """Runs one of two functions, and returns its tree; leaves that are not arrays must be equal in both trees."""
    rest: list[Any] = []

    def arrays(function: Callable[[], Any]) -> list[Any]:
        result = function()
        rest[:] = [result]
        return [asarray(x) for x in tree.leaves(result) if tree.is_array(x)]

    chosen = iter(cond(pred, lambda: arrays(on_true), lambda: arrays(on_false)))
    (result,) = rest
    return tree.map(lambda x: next(chosen) if tree.is_array(x) else x, result)


def _conditionally(
    where: str, kind: Any, inner: GradientTransformation, condition: Any, forward_extra_args: bool,
    otherwise: Callable[[Any], Any],
) -> GradientTransformationExtraArgs:  # fmt: skip
    """Returns the transformation that makes the updates of `inner` where the condition holds, else those of `otherwise`."""
    check_transformation(where, "inner", inner)
    if not callable(condition):
        problem = f"should_transform_fn is {shorten(condition)}, not a function of the step."
        fix = "write should_transform_fn=lambda step: step % 10 == 0."
        raise user_error(ArgumentTypeError, where, problem, fix=fix)

    def update_fn(updates: Any, state: Any, params: Any = None, **extra: Any) -> tuple[Any, Any]:
        check_state(where, state, kind)
        new, inner_state = run_if(
            condition(state.step, **(extra if forward_extra_args else {})),
            lambda: run_update(inner, updates, state.inner_state, params, extra),
            lambda: (otherwise(updates), state.inner_state),
        )
        return new, kind(inner_state=inner_state, step=state.step + 1)

    return GradientTransformationExtraArgs(
        lambda params: kind(inner_state=inner.init(params), step=zero_count()), update_fn
    )


class ConditionallyTransformState(NamedTuple):
    """The state of the inner transformation and the count of updates.

    Attributes:
        inner_state: state of the inner transformation.
        step: how many updates were made, a 0-d integer.

    Example:
        >>> state = nnc.optim.conditionally_transform(nnc.optim.scale(2.0), lambda step: step < 3).init(nnp.ones(2))
        >>> state.step
        Array(0, dtype=int64)
    """

    inner_state: Any
    step: Any


class ConditionallyMaskState(NamedTuple):
    """The count of updates and the state of the inner transformation.

    Attributes:
        step: how many updates were made, a 0-d integer.
        inner_state: state of the inner transformation.

    Example:
        >>> state = nnc.optim.conditionally_mask(nnc.optim.scale(2.0), lambda step: step < 3).init(nnp.ones(2))
        >>> state.step
        Array(0, dtype=int64)
    """

    step: Any
    inner_state: Any


@spelled
def conditionally_transform(
    inner: GradientTransformation, should_transform_fn: Callable[..., Any], forward_extra_args: bool = False
) -> GradientTransformationExtraArgs:
    """Applies a transformation where a condition holds; elsewhere updates pass unchanged and its state stays.

    Args:
        inner: a GradientTransformation.
        should_transform_fn: from how many updates were made before to a bool.
        forward_extra_args: hand the extra arguments of `update` to `should_transform_fn`, too.

    Raises:
        ArgumentTypeError: inner is no transformation, or the condition no function.

    Example:
        >>> twice = nnc.optim.conditionally_transform(nnc.optim.scale(2.0), lambda step: step % 2 == 1)
        >>> state = twice.init(nnp.ones(1))
        >>> for _ in range(3):
        ...     updates, state = twice.update(nnp.ones(1), state)
        ...     print(updates)
        [1.]
        [2.]
        [1.]
    """
    return _conditionally(
        "conditionally_transform", ConditionallyTransformState, inner, should_transform_fn, forward_extra_args,
        lambda updates: updates,
    )  # fmt: skip


@spelled
def conditionally_mask(
    inner: GradientTransformation, should_transform_fn: Callable[..., Any], forward_extra_args: bool = False
) -> GradientTransformationExtraArgs:
    """Applies a transformation where a condition holds; elsewhere updates are 0 and its state stays.

    Args:
        inner: a GradientTransformation.
        should_transform_fn: from how many updates were made before to a bool.
        forward_extra_args: hand the extra arguments of `update` to `should_transform_fn`, too.

    Raises:
        ArgumentTypeError: inner is no transformation, or the condition no function.

    Example:
        >>> rare = nnc.optim.conditionally_mask(nnc.optim.sgd(1.0), lambda step: step % 2 == 1)
        >>> state = rare.init(nnp.ones(1))
        >>> for _ in range(2):
        ...     updates, state = rare.update(nnp.ones(1), state)
        ...     print(updates)
        [0.]
        [-1.]
    """
    where = "conditionally_mask"
    return _conditionally(
        where, ConditionallyMaskState, inner, should_transform_fn, forward_extra_args,
        lambda updates: map_trainable(where, nnp.zeros_like, "updates", updates),
    )  # fmt: skip


# -- skipped gradients -------------------------------------------------------------------------------------------------


@spelled
def skip_not_finite(updates: Any, gradient_step: Any, params: Any = None) -> tuple[Array, dict[str, Array]]:
    """Tells `MultiSteps` to leave out gradients with an inf or a nan, as its `should_skip_update_fn`.

    Args:
        updates: gradients.
        gradient_step: how many steps were made; not read.
        params: the parameters; not read.

    Returns:
        Whether to skip, a 0-d bool, and {"should_skip": the same, "num_not_finite": how many elements are not finite}.

    Example:
        >>> nnc.optim.skip_not_finite(nnp.asarray([np.inf, 1.0]), 0)[1]["num_not_finite"]
        Array(1, dtype=int64)
    """
    count: Any = zero_count()
    for x in tree.leaves(updates):
        if is_trainable(x):
            count = count + nnp.sum(~nnp.isfinite(asarray(x)), dtype=dtypes.int64)
    return count > 0, {"should_skip": count > 0, "num_not_finite": count}


@spelled
def skip_large_updates(
    updates: Any, gradient_step: Any, params: Any = None, max_squared_norm: Scalar = 1.0
) -> tuple[Array, dict[str, Array]]:
    """Tells `MultiSteps` to leave out gradients whose squared norm is not below a limit.

    Its `should_skip_update_fn` is `functools.partial(nnc.optim.skip_large_updates, max_squared_norm=100.0)`.

    Args:
        updates: gradients.
        gradient_step: how many steps were made; not read.
        params: the parameters; not read.
        max_squared_norm: the limit.

    Returns:
        Whether to skip, a 0-d bool, and {"should_skip": the same, "norm_squared": squared norm of the gradients}.

    Example:
        >>> nnc.optim.skip_large_updates(nnp.asarray([3.0, 4.0]), 0, max_squared_norm=30.0)[0]
        Array(False, dtype=bool)
    """
    check_scalar("skip_large_updates", "max_squared_norm", max_squared_norm)
    size = squared_norm("skip_large_updates", updates)
    skip = ~(size < number(max_squared_norm, size.dtype))
    return skip, {"should_skip": skip, "norm_squared": size}


@spelled
def periodic_update(new_tensors: A, old_tensors: A, steps: Any, update_period: int) -> A:
    """Returns the new tree where `steps` is a multiple of `update_period`, else the old one, as target networks are renewed.

    Args:
        new_tensors: tree to copy.
        old_tensors: tree of the same structure.
        steps: how many updates were made.
        update_period: how many updates lie between two copies.

    Example:
        >>> nnc.optim.periodic_update(nnp.ones(1), nnp.zeros(1), steps=20, update_period=10)
        Array([1.], dtype=float32)
    """
    return select_tree(asarray(steps) % update_period == 0, new_tensors, old_tensors)
