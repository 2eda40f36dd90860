"""Draws of numbers of events. They are steps, so derivatives take them as constant.

They are computed in float64 from uniform numbers of 52 bits, so that every number is drawn as often as it should be, also where
many are expected, and have the same bits however they run. They agree with jax.random for the same key, but where a comparison
of rounded numbers falls out otherwise.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from nnc.array.array import Array
from nnc.array.promote import apply, astype, broadcast_to_shape, promote, to_dtype
from nnc.base import dtypes
from nnc.calls.spelling import spelled
from nnc.commands import constants
from nnc.commands import elementwise as ew
from nnc.commands.draws import (
    binomial_log_mass,
    geometric_quantile,
    poisson_log_mass,
    portable_log,
    portable_log1p,
)
from nnc.commands.reduce import cumsum, reduce_or
from nnc.commands.shape import flip
from nnc.errors import DTypeError, ShapeError, user_error
from nnc.numpy import elementwise as el
from nnc.numpy.manipulation import moveaxis
from nnc.numpy.operands import to_shape, to_value
from nnc.random.continuous import uniform
from nnc.random.discrete import bernoulli
from nnc.random.exact import fine_unit, times
from nnc.random.keys import Shape, read_key, split
from nnc.random.parameters import float_dtype, integer_dtype, joint_shape, own_dtype, read_parameter, read_together
from nnc.random.reuse import note_use, unrecorded
from nnc.trace.loops.control_flow import scan, while_loop
from nnc.typing import ArrayLike, DTypeLike, ShapeLike

__all__ = ["binomial", "geometric", "multinomial", "poisson", "rademacher"]


@spelled
def rademacher(key: ArrayLike, shape: ShapeLike = (), dtype: DTypeLike = dtypes.int64) -> Array:
    """Signs, −1 and 1, equally likely.

    Args:
        key: a key that is used for nothing else.
        shape: shape of the draw.
        dtype: a signed integer, floating-point or complex dtype.

    Raises:
        DTypeError: dtype cannot hold −1.

    Example:
        >>> sorted(set(nnc.random.rademacher(nnc.random.key(0), (50,)).tolist()))
        [-1, 1]
    """
    where = "nnc.random.rademacher"
    dtype = to_dtype(dtype, where)
    if not (dtype in dtypes.SIGNED or dtypes.is_inexact(dtype)):
        problem = f"dtype is {dtype.name}."
        raise user_error(DTypeError, where, problem, fix="draw in a dtype that holds -1, such as 'int32'.")
    heads = bernoulli(key, np.float32(0.5), to_shape(shape, where))
    return el.where(heads, dtype.type(1), dtype.type(-1))


@spelled
def geometric(key: ArrayLike, p: ArrayLike, shape: ShapeLike | None = None, dtype: DTypeLike = dtypes.int64) -> Array:
    """Returns the number of trials up to the first success: k ≥ 1 with probability p (1 − p)^(k−1).

    Args:
        key: a key that is used for nothing else.
        p: in (0, 1), any shape.
        shape: by default the shape of `p`.
        dtype: an integer dtype.

    Returns:
        of `dtype`, an integer dtype; −1 where p is NaN or no probability. The dtype's largest number stands for larger ones, as
        where p is 0.

    Example:
        >>> bool((nnc.random.geometric(nnc.random.key(0), 0.3, (10,)) >= 1).all())
        True
    """
    where = "nnc.random.geometric"
    dtype = integer_dtype(dtype, where)
    own = own_dtype(p, where, "p")
    p = to_value(read_parameter(p, own, where, "p"), where)
    shape = joint_shape(shape, where, p=p)
    u = _unit(read_key(key, where), shape, own)
    rate = ew.abs_(portable_log1p(-astype(p, dtypes.float64)))
    number = apply(geometric_quantile, u, rate)
    return _as_count(el.where((p >= 0) & (p <= 1), number, -1), dtype)


def _as_count(x: Array, dtype: dtypes.DType) -> Array:
    """Whole numbers in an integer dtype, whose largest stands for those beyond it."""
    most = np.iinfo(dtype).max
    beyond = x >= float(most)
    return el.where(beyond, dtype.type(most), astype(el.where(beyond, 0, x), dtype))


def _unit(key: Array, shape: Shape, own: dtypes.DType) -> Array:
    """Uniform numbers of 52 bits in (0, 1) that agree with the draws of `uniform` in float64, else in float32."""
    if own != dtypes.float64:
        return fine_unit(key, shape)
    return el.maximum(uniform(key, shape, own), np.float64(2.0**-53))


# -- Poisson -----------------------------------------------------------------------------------------------------------


@spelled
def poisson(key: Any, lam: Any, shape: Any = None, dtype: Any = dtypes.int64) -> Array:
    """Returns the number of independent events where `lam` are expected: k with probability lam^k e^(−lam) / k!.

    Below 10 by the waiting times between events (Knuth), else by transformed rejection (Hörmann, 1993), with probabilities
    that are exact for any rate (Loader, 2000).

    Args:
        key: a key that is used for nothing else.
        lam: 0 or more, any shape.
        shape: by default the shape of `lam`.
        dtype: an integer dtype.

    Returns:
        of `dtype`, an integer dtype; −1 where lam is negative or NaN. The largest number of the dtype stands for larger ones, as
        where lam is infinite.

    Example:
        >>> nnc.random.poisson(nnc.random.key(0), 4.0, (3,)).shape
        (3,)
    """
    where = "nnc.random.poisson"
    dtype = integer_dtype(dtype, where)
    (lam,), shape, _ = read_together(where, dtypes.float64, shape, lam=lam)
    key, lam = read_key(key, where), ew.stop_gradient(lam)
    few = ~(lam >= 10)
    note_use(key)
    with unrecorded():  # both methods are computed, and one is taken
        small = _poisson_by_waiting(key, el.where(few, lam, 0), shape)
        countable = lam < 2.0**64  # no integer dtype holds more
        large = _poisson_by_rejection(key, el.where(few | ~countable, 1e5, lam), shape)
    count = ew.select(few, astype(small, dtypes.float64), el.where(countable, large, lam))
    count = el.where(ew.isnan(lam), -1, count)
    return _as_count(el.where(lam == 0, 0, count), dtype)


def _poisson_by_waiting(key: Array, lam: Array, shape: Shape) -> Array:
    def step(state: Any) -> Any:
        key, count, elapsed = state
        key, part = split(key)
        count = el.where(elapsed > -lam, count + 1, count)
        return key, count, elapsed + portable_log(fine_unit(part, shape))

    first = (key, constants.full(shape=shape, dtype=dtypes.int64, value=0), constants.full_like(lam, 0))
    return while_loop(lambda state: _some(state[2] > -lam), step, first)[1] - 1


def _poisson_by_rejection(key: Array, lam: Array, shape: Shape) -> Array:
    b = times(ew.sqrt(lam), 2.53) + 0.931
    a = times(b, 0.02483) - 0.059
    inverse, bound = 1.1239 + 1.1328 / (b - 3.4), 0.9277 - 3.6224 / (b - 2)

    def propose(u: Array, v: Array) -> tuple[Array, Array]:
        inside = 0.5 - ew.abs_(u)
        k = ew.floor(times(a * 2 / inside + b, u) + lam + 0.43)
        s = portable_log(times(v, inverse) / (a / times(inside, inside) + b))
        outside = (k < 0) | ((inside < 0.013) & (v > inside))
        return k, ((inside >= 0.07) & (v <= bound)) | (~outside & (s <= poisson_log_mass(k, lam)))

    return _reject(key, shape, dtypes.float32, propose)


def _reject(
    key: Array, shape: Shape, dtype: dtypes.DType, propose: Callable[[Array, Array], tuple[Array, Array]]
) -> Array:
    """Returns the last proposal for each element that was accepted, when there is one for all; u in (−1/2, 1/2), v in (0, 1).

    The numbers are float64; their upper digits are those that `uniform` draws in `dtype`.
    """

    def step(state: Any) -> Any:
        key, chosen, accepted = state
        key, first, second = split(key, 3)
        k, good = propose(_unit(first, shape, dtype) - 0.5, _unit(second, shape, dtype))
        return key, ew.select(good, k, chosen), accepted | good

    first = (
        key,
        constants.full(shape=shape, dtype=dtypes.float64, value=-1),
        constants.full(shape=shape, dtype=dtypes.bool_, value=False),
    )
    return while_loop(lambda state: _some(~state[2]), step, first)[1]


def _some(x: Array) -> Array:
    return reduce_or(x, axes=tuple(range(x.spec.ndim)))


# -- binomial ----------------------------------------------------------------------------------------------------------


@spelled
def binomial(key: Any, n: Any, p: Any, shape: Any = None, dtype: Any = dtypes.float32) -> Array:
    """Returns the number of successes in `n` independent trials, each of which succeeds with probability `p`.

    Where n · min(p, 1 − p) is at most 10 by the gaps between successes, else by transformed rejection (Hörmann, 1993).

    Args:
        key: a key that is used for nothing else.
        n: numbers of trials, 0 or more; parts behind the point are cut off.
        p: in [0, 1]; broadcasts with `n`.
        shape: by default the shape of `n` and `p` together.
        dtype: a floating-point dtype.

    Returns:
        of `dtype`, a floating-point dtype; NaN where n or p is NaN or negative, or p above 1; infinite where n is, and p above 0.

    Example:
        >>> nnc.random.binomial(nnc.random.key(0), 10, 0.3, (3,)).shape
        (3,)
    """
    where = "nnc.random.binomial"
    dtype = float_dtype(dtype, where)
    own = own_dtype(p, where, "p")
    (n, p), shape, _ = read_together(where, dtypes.float64, shape, n=n, p=p)
    key, n, p = read_key(key, where), ew.stop_gradient(n), ew.stop_gradient(p)
    rare = p < 0.5
    q = el.where(rare, p, 1 - p)
    possible = (n >= 0) & (q >= 0)
    endless = ew.isinf(n)
    q = el.where(q >= 0, q, 0.01)
    n = ew.floor(el.where(possible & ~endless, n, 0))
    few = times(n, q) <= 10
    note_use(key)
    with unrecorded():
        by_gaps = _binomial_by_gaps(key, el.where(few, n, 0), q, own, shape)
        by_rejection = _binomial_by_rejection(key, el.where(few, 1e4, n), el.where(few, 0.5, q), own, shape)
    count = ew.select(few, by_gaps, by_rejection)
    count = el.where(rare | endless, count, n - count)
    count = el.where(endless, el.where(p > 0, np.inf, 0), count)
    return astype(el.where(possible, count, np.nan), dtype)


def _binomial_by_gaps(key: Array, n: Array, p: Array, own: dtypes.DType, shape: Shape) -> Array:
    """Counts the geometric gaps that fit into n trials."""
    rate = ew.abs_(portable_log1p(-p))  # 0 where no trial succeeds: then gaps are infinite

    def step(state: Any) -> Any:
        key, count, total = state
        part, key = split(key)
        gap = ew.ceil(ew.abs_(portable_log(_unit(part, shape, own))) / rate)
        return key, el.where(total <= n, count + 1, count), total + gap

    first = (key, constants.full_like(p, 0), constants.full_like(p, 0))
    return while_loop(lambda state: _some(state[2] <= n), step, first)[1] - 1


def _binomial_by_rejection(key: Array, n: Array, p: Array, own: dtypes.DType, shape: Shape) -> Array:
    mean = times(n, p)
    deviation = ew.sqrt(times(mean, 1 - p))
    b = times(deviation, 2.53) + 1.15
    a = times(b, 0.0248) + times(p, 0.01) - 0.0873
    bound, alpha = 0.92 - 4.2 / b, times(5.1 / b + 2.83, deviation)
    at_mode = binomial_log_mass(ew.floor(times(n + 1, p)), n, p)

    def propose(u: Array, v: Array) -> tuple[Array, Array]:
        inside = 0.5 - ew.abs_(u)
        k = ew.floor(times(a * 2 / inside + b, u) + mean + 0.5)
        wanted = portable_log(times(v, alpha) / (a / times(inside, inside) + b)) <= binomial_log_mass(k, n, p) - at_mode
        outside = (k < 0) | (k > n)
        return k, ((inside >= 0.07) & (v <= bound)) | (~outside & wanted)

    return _reject(key, shape, own, propose)


@spelled
def multinomial(
    key: ArrayLike, n: ArrayLike, p: ArrayLike, *, shape: ShapeLike | None = None, dtype: DTypeLike | None = None
) -> Array:
    """Draws the counts of several outcomes in `n` independent trials.

    Args:
        key: a key that is used for nothing else.
        n: numbers of trials, which broadcast to the leading axes of `p`.
        p: (..., k), probabilities of sum 1.
        shape: the shape of the result, by default the shape of `p`; p broadcasts to it.
        dtype: by default the floating-point dtype of n and p together.

    Returns:
        of `dtype`, by default the floating-point dtype of n and p together.

    Raises:
        ShapeError: n or p does not broadcast.

    Example:
        >>> float(nnc.random.multinomial(nnc.random.key(0), 20, np.asarray([0.2, 0.3, 0.5])).sum())
        20.0
    """
    where = "nnc.random.multinomial"
    n, p = (to_value(x, where) for x in promote(n, p, where=where, to=dtypes.to_float))
    dtype = n.spec.dtype if dtype is None else to_dtype(dtype, where)
    if not p.spec.ndim:
        problem = "p has no axes."
        raise user_error(ShapeError, where, problem, operands={"p": p.spec}, fix="give one probability per outcome.")
    whole = joint_shape(shape, where, p=p)
    joint_shape(whole[:-1], where, n=n)
    own = p.spec.dtype
    p = moveaxis(broadcast_to_shape(astype(p, dtypes.float64), whole), -1, 0)
    left = flip(cumsum(flip(p, axes=(0,)), axis=0), axes=(0,))
    ratios = el.clip(p / el.where(left == 0, 1, left), 0, 1)

    def draw(rest: Array, of_outcome: Any) -> tuple[Array, Array]:
        ratio, part = of_outcome
        count = binomial(part, rest, astype(ratio, own), None, dtypes.float64)
        return rest - count, count

    keys = split(read_key(key, where), whole[-1])
    _, counts = scan(draw, to_value(broadcast_to_shape(astype(n, dtypes.float64), whole[:-1]), where), (ratios, keys))
    return astype(moveaxis(counts, 0, -1), dtype)
