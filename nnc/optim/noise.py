"""Noise that is added to gradients, for exploration and for privacy."""

from __future__ import annotations

from typing import Any, NamedTuple, TypeVar

import nnc.numpy as nnp
from nnc import random, tree
from nnc.array.array import Array, asarray
from nnc.array.promote import astype
from nnc.base import dtypes
from nnc.calls.spelling import spelled
from nnc.errors import ArgumentTypeError, ShapeError, user_error
from nnc.errors.errors import shorten
from nnc.optim.arguments import Scalar, check_scalar, check_scalars, is_trainable
from nnc.optim.base import GradientTransformation, identity, map_trainable, number, stateful, widen
from nnc.optim.clipping import squared_magnitude
from nnc.optim.schedules import Schedule
from nnc.optim.transforms import stepping, trace, zero_count
from nnc.trace.core.on_device import device_put

__all__ = [
    "AddNoiseState",
    "DifferentiallyPrivateAggregateState",
    "add_noise",
    "differentially_private_aggregate",
    "dpsgd",
    "noisy_sgd",
    "per_example_global_norm_clip",
    "per_example_layer_norm_clip",
]

T = TypeVar("T")
Key = Any  # a key of nnc.random, or the int that it is made of


def as_key(where: str, key: Key) -> Array:
    """Returns a key of nnc.random, from an int, too.

    Raises:
        ArgumentTypeError: there is none.
    """
    if isinstance(key, int) and not isinstance(key, bool):
        return random.key(key)
    if key is None or not tree.is_array(key):
        fix = "pass key=nnc.random.key(0), or an int as its seed."
        raise user_error(ArgumentTypeError, where, f"key is {shorten(key)}, it draws random numbers.", fix=fix)
    return asarray(key)


def place_key(key: Array) -> Array:
    """Returns a copy of a key beside the parameters, whose device is the present one.

    Args:
        key: on any device.
    """
    placed: Array = device_put(key)
    return nnp.copy(placed)


def normal_like(key: Array, values: Any) -> Any:
    """Independent normal numbers for each trainable leaf, in the dtype in which its arithmetic is done."""
    leaves = tree.leaves(values)
    keys = random.split(key, max(len(leaves), 1))
    return tree.unflatten_like(
        values, [_normal(keys[i], widen(asarray(x))) if is_trainable(x) else x for i, x in enumerate(leaves)]
    )


def _normal(key: Array, x: Array) -> Array:
    if not dtypes.is_complex(x.dtype):
        return random.normal(key, x.shape, x.dtype)
    parts = [random.normal(k, x.shape, dtypes.real_dtype(x.dtype)) for k in random.split(key)]
    return (parts[0] + parts[1] * 1j) / 2**0.5


class AddNoiseState(NamedTuple):
    """Count of updates and the key of the next draw.

    Attributes:
        count: how many updates were made, a 0-d integer.
        rng_key: key of the next draw.

    Example:
        >>> state = nnc.optim.add_noise(0.1, 0.55, nnc.random.key(0)).init(nnp.ones(2))
        >>> state.count
        Array(0, dtype=int64)
    """

    count: Any
    rng_key: Any


@spelled
def add_noise(eta: Scalar, gamma: Scalar, key: Key) -> GradientTransformation:
    """Adds normal noise that fades (Neelakantan et al., "Adding gradient noise improves learning for very deep networks", 2015).

    u' = u + sqrt(eta / tᵍᵃᵐᵐᵃ) · n,    n normal with mean 0 and variance 1

    Args:
        eta: variance of the noise in the first update.
        gamma: exponent by which the variance falls.
        key: a key of `nnc.random`, or an int as its seed. Updates draw from keys that are split off it.

    Raises:
        ArgumentTypeError: key is none.

    Example:
        >>> noisy = nnc.optim.add_noise(eta=0.01, gamma=0.55, key=nnc.random.key(0))
        >>> updates, state = noisy.update(nnp.zeros(3), noisy.init(nnp.zeros(3)))
        >>> bool(nnp.all((updates != 0) & (nnp.abs(updates) < 0.5)))
        True
    """
    where = "add_noise"
    check_scalars(where, eta=eta, gamma=gamma)
    first = as_key(where, key)

    def init_fn(params: Any) -> AddNoiseState:
        return AddNoiseState(zero_count(), place_key(first))

    def update_fn(updates: Any, state: Any, params: Any = None) -> tuple[Any, Any]:
        count = state.count + 1
        keys = random.split(state.rng_key)
        t = astype(count, dtypes.float64)
        spread = nnp.sqrt(number(eta, dtypes.float64) / t ** number(gamma, dtypes.float64))

        def add(u: Array, n: Array) -> Array:
            wide = widen(u)
            return astype(wide + n * number(spread, wide.dtype), u.dtype)

        noise = normal_like(keys[1], updates)
        return map_trainable(where, add, "updates", updates, noise=noise), AddNoiseState(count, keys[0])

    return stateful(where, AddNoiseState, init_fn, update_fn)


@spelled
def noisy_sgd(
    learning_rate: Scalar | Schedule, eta: Scalar = 0.01, gamma: Scalar = 0.55, key: Key = None
) -> GradientTransformation:
    """Gradient descent with noise that fades (Neelakantan et al., "Adding gradient noise improves learning for very deep
    networks", 2015).

    p ← p − learning_rate · (g + sqrt(eta / tᵍᵃᵐᵐᵃ) · n),    n normal with mean 0 and variance 1

    Args:
        learning_rate: a number, a 0-d array or a schedule.
        eta: variance of the noise in the first update.
        gamma: exponent by which the variance falls.
        key: a key of `nnc.random`, or an int as its seed; it must be given.

    Raises:
        ArgumentTypeError: key is none.

    Example:
        >>> optimizer = nnc.optim.noisy_sgd(0.1, eta=0.0, key=nnc.random.key(0))
        >>> optimizer.update(nnp.asarray([3.0]), optimizer.init(nnp.ones(1)))[0]
        Array([-0.3], dtype=float32)
    """
    return stepping("noisy_sgd", learning_rate, add_noise(eta, gamma, as_key("noisy_sgd", key)))


# -- privacy -----------------------------------------------------------------------------------------------------------


def _examples(where: str, grads: Any) -> int:
    """Returns the number of examples that there are gradients of.

    Raises:
        ShapeError: the leaves do not agree on it.
    """
    leaves = [asarray(x) for x in tree.leaves(grads) if is_trainable(x)]
    sizes = {x.shape[0] if x.ndim else None for x in leaves}
    if len(sizes) > 1 or None in sizes:
        problem = f"axis 0 of its leaves must count the examples, but they have {sizes} of them."
        fix = "give gradients of each example, such as nnc.vmap(nnc.grad(loss), in_axes=(None, 0))(params, batch)."
        raise user_error(ShapeError, where, problem, operands={"gradients": [x.shape for x in leaves]}, fix=fix)
    return next(iter(sizes)) or 0 if sizes else 0


def _clipped_sum(x: Array, shares: Array) -> Array:
    wide = widen(x)
    return nnp.tensordot(astype(shares, wide.dtype), wide, axes=1)


@spelled
def per_example_global_norm_clip(grads: T, l2_norm_clip: Scalar) -> tuple[T, Array]:
    """Shrinks each example's gradient to a norm of at most `l2_norm_clip`, and adds all up.

    Args:
        grads: a pytree whose leaves have an example in each entry of axis 0.
        l2_norm_clip: largest norm of one example's gradient, over all leaves.

    Returns:
        The sum over the examples, and how many were shrunk, a 0-d integer.

    Raises:
        ShapeError: leaves have different numbers of examples.

    Example:
        >>> nnc.optim.per_example_global_norm_clip(nnp.asarray([[3.0, 4.0], [0.0, 0.5]]), 1.0)
        (Array([0.6, 1.3], dtype=float32), Array(1, dtype=int64))
    """
    where = "per_example_global_norm_clip"
    check_scalar(where, "l2_norm_clip", l2_norm_clip, positive=True)
    count = _examples(where, grads)
    size: Any = asarray(0.0)
    for i, x in enumerate([asarray(leaf) for leaf in tree.leaves(grads) if is_trainable(leaf)]):
        part = nnp.sum(nnp.reshape(squared_magnitude(widen(x)), (count, -1)), axis=1)
        size = part if i == 0 else size + part
    size = nnp.sqrt(size)
    bound = number(l2_norm_clip, size.dtype)
    within = size <= bound
    shares = nnp.where(within, 1, bound / nnp.where(within, 1, size))
    total = map_trainable(where, lambda x: astype(_clipped_sum(x, shares), x.dtype), "grads", grads)
    return total, nnp.sum(~within)


@spelled
def per_example_layer_norm_clip(grads: T, global_l2_norm_clip: Scalar, uniform: bool = True) -> tuple[T, object]:
    """Shrinks each example's gradient array by array, and adds all up (McMahan et al., "Learning differentially private recurrent
    language models", 2018).

    Args:
        grads: a pytree whose leaves have an example in each entry of axis 0.
        global_l2_norm_clip: largest norm of one example's gradient, over all leaves.
        uniform: give all arrays the same part of it, sqrt(1 / how many there are); False: by their numbers of elements.

    Returns:
        The sum over the examples, and for each array how many were shrunk.

    Raises:
        ShapeError: leaves have different numbers of examples.

    Example:
        >>> nnc.optim.per_example_layer_norm_clip([nnp.asarray([[3.0, 4.0], [0.0, 0.5]])], 1.0)
        ([Array([0.6, 1.3], dtype=float32)], [Array(1, dtype=int64)])
    """
    where = "per_example_layer_norm_clip"
    check_scalar(where, "global_l2_norm_clip", global_l2_norm_clip, positive=True)
    count = _examples(where, grads)
    leaves = tree.leaves(grads)
    sizes = [asarray(x).size // max(count, 1) for x in leaves if is_trainable(x)]
    sums, counts = [], []
    for leaf in leaves:
        if not is_trainable(leaf):
            sums.append(leaf)
            counts.append(leaf)
            continue
        share = 1 / len(sizes) if uniform else asarray(leaf).size / max(count, 1) / max(sum(sizes), 1)
        total, shrunk = per_example_global_norm_clip(leaf, global_l2_norm_clip * share**0.5)
        sums.append(total)
        counts.append(shrunk)
    return tree.unflatten_like(grads, sums), tree.unflatten_like(grads, counts)


class DifferentiallyPrivateAggregateState(NamedTuple):
    """The key of the next draw.

    Attributes:
        rng_key: key of the next draw.

    Example:
        >>> state = nnc.optim.differentially_private_aggregate(1.0, 0.5, nnc.random.key(0)).init(nnp.ones(2))
        >>> state.rng_key
        Array([0, 0], dtype=uint32)
    """

    rng_key: Any


@spelled
def differentially_private_aggregate(
    l2_norm_clip: Scalar, noise_multiplier: Scalar, key: Key
) -> GradientTransformation:
    """Turns gradients of examples into a private mean (Abadi et al., "Deep learning with differential privacy", 2016).

    u = (Σ over examples of g · min(1, l2_norm_clip / ‖g‖) + l2_norm_clip · noise_multiplier · n) / number of examples

    The first link of a chain: its updates have an example in each entry of axis 0, unlike the parameters.

    Args:
        l2_norm_clip: largest norm of one example's gradient.
        noise_multiplier: standard deviation of the noise over that norm.
        key: a key of `nnc.random`, or an int as its seed.

    Raises:
        ArgumentTypeError: key is none.
        ShapeError (from update): leaves have different numbers of examples.

    Example:
        >>> transformation = nnc.optim.differentially_private_aggregate(1.0, 0.0, nnc.random.key(0))
        >>> params = nnp.zeros(2)
        >>> transformation.update(nnp.asarray([[3.0, 4.0], [0.0, 0.0]]), transformation.init(params), params)[0]
        Array([0.3, 0.4], dtype=float32)
    """
    where = "differentially_private_aggregate"
    check_scalar(where, "l2_norm_clip", l2_norm_clip, positive=True)
    check_scalar(where, "noise_multiplier", noise_multiplier)
    first = as_key(where, key)

    def init_fn(params: Any) -> DifferentiallyPrivateAggregateState:
        return DifferentiallyPrivateAggregateState(place_key(first))

    def update_fn(updates: Any, state: Any, params: Any = None) -> tuple[Any, Any]:
        count = _examples(where, updates)
        total, _ = per_example_global_norm_clip(updates, l2_norm_clip)
        leaves = tree.leaves(total)
        keys = random.split(state.rng_key, len(leaves) + 1)
        moves: list[Any] = []
        for i, leaf in enumerate(leaves):
            if is_trainable(leaf):
                wide = widen(leaf)
                spread = number(l2_norm_clip, wide.dtype) * number(noise_multiplier, wide.dtype)
                leaf = astype((wide + _normal(keys[i + 1], wide) * spread) / max(count, 1), leaf.dtype)
            moves.append(leaf)
        return tree.unflatten_like(total, moves), DifferentiallyPrivateAggregateState(keys[0])

    return stateful(where, DifferentiallyPrivateAggregateState, init_fn, update_fn)


@spelled
def dpsgd(
    learning_rate: Scalar | Schedule, l2_norm_clip: Scalar, noise_multiplier: Scalar, seed: Key,
    momentum: Scalar | None = None, nesterov: bool = False,
) -> GradientTransformation:  # fmt: skip
    """Private gradient descent (Abadi et al., "Deep learning with differential privacy", 2016), of gradients of each example; see
    `differentially_private_aggregate`.

    Args:
        learning_rate: a number, a 0-d array or a schedule.
        l2_norm_clip: largest norm of one example's gradient.
        noise_multiplier: standard deviation of the noise over that norm.
        seed: an int, or a key of `nnc.random`.
        momentum: in [0, 1); None keeps none.
        nesterov: look ahead.

    Raises:
        ArgumentTypeError: seed is none.
        ShapeError (from update): leaves have different numbers of examples.

    Example:
        >>> optimizer = nnc.optim.dpsgd(0.5, l2_norm_clip=1.0, noise_multiplier=0.0, seed=0)
        >>> grads = nnp.asarray([[3.0, 4.0], [0.6, 0.0]])  # of two examples
        >>> optimizer.update(grads, optimizer.init(nnp.ones(2)))[0]
        Array([-0.3, -0.2], dtype=float32)
    """
    noisy = differentially_private_aggregate(l2_norm_clip, noise_multiplier, as_key("dpsgd", seed))
    return stepping("dpsgd", learning_rate, noisy, identity() if momentum is None else trace(momentum, nesterov))
