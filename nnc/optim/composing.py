"""Ways to make and to combine transformations: named chains, functions without state, one vector of all parameters."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import nnc.numpy as nnp
from nnc import tree
from nnc.array.array import Array, asarray
from nnc.array.promote import astype
from nnc.calls.spelling import spelled
from nnc.errors import ArgumentError, ArgumentTypeError, user_error
from nnc.errors.errors import check_count, shorten
from nnc.optim import base
from nnc.optim.arguments import Mask, check_state, mask_leaves
from nnc.optim.base import (
    GradientTransformation,
    GradientTransformationExtraArgs,
    check_transformation,
    extended,
    map_trainable,
    run_update,
    stateful,
    widen,
)
from nnc.optim.linesearch import ravel, unravel
from nnc.optim.moments import zeros_state
from nnc.optim.partition import multi_transform, set_to_zero
from nnc.optim.transforms import zero_count

__all__ = [
    "ApplyEvery",
    "apply_every",
    "flatten",
    "named_chain",
    "selective_transform",
    "stateless",
    "stateless_with_tree_map",
    "with_extra_args_support",
]


@spelled
def named_chain(*args: tuple[str, GradientTransformation]) -> GradientTransformation:
    """Applies transformations one after the other; the state is a dict of their states by name.

    Args:
        args: pairs of a name and a transformation.

    Raises:
        ArgumentError: two have the same name.
        ArgumentTypeError: one is no such pair.

    Example:
        >>> optimizer = nnc.optim.named_chain(("clip", nnc.optim.clip(1.0)), ("step", nnc.optim.sgd(0.5)))
        >>> updates, state = optimizer.update(nnp.asarray([3.0]), optimizer.init(nnp.ones(1)))
        >>> updates, sorted(state)
        (Array([-0.5], dtype=float32), ['clip', 'step'])
    """
    where = "named_chain"
    for i, pair in enumerate(args):
        if not (isinstance(pair, tuple) and len(pair) == 2 and isinstance(pair[0], str)):
            problem = f"argument {i} is {shorten(pair)}, not a pair of a name and a transformation."
            fix = 'write named_chain(("clip", nnc.optim.clip(1.0)), ("step", nnc.optim.sgd(0.1))).'
            raise user_error(ArgumentTypeError, where, problem, fix=fix)
        check_transformation(where, f"the transformation of {pair[0]!r}", pair[1])
    parts = dict(args)
    if len(parts) < len(args):
        names = [name for name, _ in args]
        raise user_error(ArgumentError, where, f"names come twice in {names}.", fix="give each its own name.")

    def update_fn(updates: Any, state: Any, params: Any = None, **extra: Any) -> tuple[Any, Any]:
        check_state(where, state, dict)
        states = {}
        for name, part in parts.items():
            updates, states[name] = run_update(part, updates, state[name], params, extra)
        return updates, states

    return extended(
        lambda params: {name: part.init(params) for name, part in parts.items()}, update_fn, *parts.values()
    )


@spelled
def with_extra_args_support(tx: GradientTransformation) -> GradientTransformationExtraArgs:
    """Returns the transformation as one that takes extra arguments, as every `update` of nnc does; for code that is written for
    Optax.

    Args:
        tx: a GradientTransformation.

    Example:
        >>> optimizer = nnc.optim.with_extra_args_support(nnc.optim.sgd(0.5))
        >>> optimizer.update(nnp.ones(1), optimizer.init(nnp.ones(1)), value=3.0)[0]
        Array([-0.5], dtype=float32)
    """
    check_transformation("with_extra_args_support", "tx", tx)
    if isinstance(tx, GradientTransformationExtraArgs):
        return tx

    def update_fn(updates: Any, state: Any, params: Any = None, **extra: Any) -> tuple[Any, Any]:
        return run_update(tx, updates, state, params, {})

    return GradientTransformationExtraArgs(tx.init, update_fn)


@spelled
def stateless(f: Callable[[Any, Any], Any]) -> GradientTransformation:
    """Returns the transformation without state that applies a function to the updates.

    Args:
        f: (updates, params) -> updates, on whole trees.

    Raises:
        ArgumentTypeError: f is no function.

    Example:
        >>> halved = nnc.optim.stateless(lambda updates, params: nnc.tree.map(lambda u: u / 2, updates))
        >>> halved.update(nnp.ones(1), halved.init(nnp.ones(1)))[0]
        Array([0.5], dtype=float32)
    """
    _check_function("stateless", f)

    return base.stateless("stateless", f)


@spelled
def stateless_with_tree_map(f: Callable[[Any, Any], Any]) -> GradientTransformation:
    """Returns the transformation without state that applies a function to each floating-point array of the updates.

    Args:
        f: (update, parameter) -> update, on arrays; the parameter is None where `update` was called without parameters.

    Raises:
        ArgumentTypeError: f is no function.

    Example:
        >>> halved = nnc.optim.stateless_with_tree_map(lambda u, p: u / 2)
        >>> halved.update({"w": nnp.ones(1)}, halved.init(None))[0]
        {'w': Array([0.5], dtype=float32)}
    """
    where = "stateless_with_tree_map"
    _check_function(where, f)

    def update(updates: Any, params: Any) -> Any:
        if params is None:
            return map_trainable(where, lambda u: f(u, None), "updates", updates)
        return map_trainable(where, f, "updates", updates, params=params)

    return base.stateless(where, update)


def _check_function(where: str, f: Any) -> None:
    if not callable(f):
        problem = f"f is {shorten(f)}, not a function."
        raise user_error(ArgumentTypeError, where, problem, fix="pass f(updates, params).")


@spelled
def flatten(inner: GradientTransformation) -> GradientTransformation:
    """Hands all floating-point parameters to a transformation as one vector, so that it makes few large steps and not many small
    ones, and norms of arrays become norms of all.

    Args:
        inner: a GradientTransformation. Its state is that of a vector.

    Raises:
        ArgumentTypeError: inner is no transformation.

    Example:
        >>> clipped = nnc.optim.flatten(nnc.optim.clip_by_norm(1.0))
        >>> clipped.update([nnp.asarray([3.0]), nnp.asarray([4.0])], clipped.init([nnp.zeros(1), nnp.zeros(1)]))[0]
        [Array([0.6], dtype=float32), Array([0.8], dtype=float32)]
    """
    check_transformation("flatten", "inner", inner)

    def update_fn(updates: Any, state: Any, params: Any = None, **extra: Any) -> tuple[Any, Any]:
        flat = None if params is None else ravel(params)
        if params is not None:
            map_trainable("flatten", lambda u, p: u, "updates", updates, params=params)  # checks structure and shapes
        new, state = run_update(inner, ravel(updates), state, flat, extra)
        return unravel(updates, new), state

    return extended(lambda params: inner.init(ravel(params)), update_fn, inner)


class ApplyEvery(NamedTuple):
    """A sum of updates, and the number of its terms.

    Attributes:
        count: how many updates the sum has, a 0-d integer.
        grad_acc: the sum, a tree like the parameters.

    Example:
        >>> state = nnc.optim.apply_every(4).init(nnp.ones(2))
        >>> state.count
        Array(0, dtype=int64)
    """

    count: Any
    grad_acc: Any


@spelled
def apply_every(k: int = 1) -> GradientTransformation:
    """Adds updates up, and gives the sum in every k-th call, 0 in the others; links before it see each gradient.

    `MultiSteps` averages gradients before the optimizer sees them, as large batches do.

    Args:
        k: how many updates make a sum.

    Raises:
        ArgumentError: k is no positive int.

    Example:
        >>> summed = nnc.optim.apply_every(2)
        >>> state = summed.init(nnp.zeros(1))
        >>> for u in (1.0, 3.0):
        ...     updates, state = summed.update(nnp.asarray([u]), state)
        ...     print(updates)
        [0.]
        [4.]
    """
    where = "apply_every"
    check_count(where, "k", k, "choose 4.")

    def update_fn(updates: Any, state: Any, params: Any = None) -> tuple[Any, Any]:
        begins, ends = state.count == 0, state.count == k - 1

        def add(total: Array, u: Any) -> Array:
            return nnp.where(begins, 0, total) + astype(asarray(u), total.dtype)

        total = map_trainable(where, add, "grad_acc", state.grad_acc, updates=updates)

        def give(u: Array, whole: Array) -> Array:
            return astype(nnp.where(ends, astype(whole, widen(u).dtype), 0), u.dtype)

        u = map_trainable(where, give, "updates", updates, grad_acc=total)
        return u, ApplyEvery((state.count + 1) % k, total)

    return stateful(where, ApplyEvery, lambda params: ApplyEvery(zero_count(), zeros_state(where, params)), update_fn)


@spelled
def selective_transform(optimizer: GradientTransformation, *, freeze_mask: Mask) -> GradientTransformation:
    """Gives an optimizer the parameters that are not frozen; it keeps no state of the others, whose updates are 0.

    Args:
        optimizer: a GradientTransformation.
        freeze_mask: a tree of bools, or a function from parameters to one; True freezes.

    Raises:
        TreeError: the mask does not fit.

    Example:
        >>> optimizer = nnc.optim.selective_transform(nnc.optim.sgd(1.0), freeze_mask={"w": True, "b": False})
        >>> params = {"w": nnp.ones(1), "b": nnp.ones(1)}
        >>> optimizer.update(params, optimizer.init(params))[0]
        {'w': Array([0.], dtype=float32), 'b': Array([-1.], dtype=float32)}
    """
    check_transformation("selective_transform", "optimizer", optimizer)

    def labels(params: Any) -> Any:
        chosen = mask_leaves("selective_transform", freeze_mask, params)
        return tree.unflatten_like(params, ["freeze" if frozen else "train" for frozen in chosen])

    return multi_transform({"train": optimizer, "freeze": set_to_zero()}, labels)
