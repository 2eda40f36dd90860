"""Draws of integers, of truth values, of positions and orders.

They agree with jax.random for the same key, but for integers of wide ranges, and for probabilities and logits in 16-bit floats,
whose noise is that of float32.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from nnc.array.array import Array
from nnc.array.indexing import getitem, take, take_along_axis
from nnc.array.promote import apply, as_operand, astype, broadcast_to_shape, dtype_of, to_dtype
from nnc.base import dtypes
from nnc.calls.spelling import spelled
from nnc.commands import constants
from nnc.commands import elementwise as ew
from nnc.commands.draws import portable_log
from nnc.commands.random import UNSIGNED_OF_WIDTH
from nnc.commands.reduce import argmax, cumsum
from nnc.commands.rules import check_axis
from nnc.commands.shape import reshape, slice_axis, transpose
from nnc.commands.sort import argsort, searchsorted, top_k
from nnc.errors import ArgumentError, DTypeError, ShapeError, user_error
from nnc.graph import spec_of
from nnc.numpy.operands import known_or_none, to_shape, to_value
from nnc.random.continuous import gumbel, uniform
from nnc.random.exact import times
from nnc.random.keys import Shape, draw_bits, read_key, split
from nnc.random.parameters import joint_shape
from nnc.typing import ArrayLike, ShapeLike

__all__ = ["bernoulli", "categorical", "choice", "permutation", "randint"]


@spelled
def bernoulli(key: Any, p: Any = 0.5, shape: Any = None) -> Array:
    """Truth values that are True with probability `p`.

    Args:
        key: a key that is used for nothing else.
        p: floating-point, any shape.
        shape: by default the shape of `p`.

    Returns:
        bool.

    Raises:
        DTypeError: p is not floating-point.
        ShapeError: p does not broadcast to `shape`.
        ArgumentError: p is a number below 0 or above 1.

    Example:
        >>> nnc.random.bernoulli(nnc.random.key(0), 0.9, (4,)).dtype.name
        'bool'
    """
    where = "nnc.random.bernoulli"
    if isinstance(p, (float, np.floating)) and not 0 <= float(p) <= 1:
        raise user_error(ArgumentError, where, f"p is {p}.", fix="give a probability, from 0 to 1.")
    key, p = read_key(key, where), as_operand(p, where, "p")
    dtype = dtype_of(p)
    if not dtypes.is_float(dtype):
        problem = f"p is of {dtype.name}."
        raise user_error(DTypeError, where, problem, fix="give the probability as a floating-point number.")
    shape, noise = joint_shape(shape, where, p=p), dtypes.accumulator(dtype)
    return apply(ew.less, uniform(key, shape, noise), astype(p, noise))


@spelled
def randint(
    key: Any, shape: Any, minval: Any, maxval: Any, dtype: Any = dtypes.int64, *, as_jax: bool = False
) -> Array:
    """Integers from `minval` to `maxval - 1`, all as likely.

    Two words of the dtype's width w (at least 32 bits) make a number of 2w bits. Each of n choices gets a range of these
    numbers; the chances of two choices differ by less than n parts in 2^(2w). Up to 2^(w/2) choices the numbers are those of
    jax.random; beyond, JAX uses w bits alone, so that some numbers are more likely, for n near 2^w twice as likely.

    Args:
        key: a key that is used for nothing else.
        shape: shape of the draw.
        minval: least integer; an integer or an integer array that broadcasts to `shape`.
        maxval: end, which is left out; an integer or an integer array that broadcasts to `shape`. Where traced bounds leave no
            number, minval is drawn.
        dtype: an integer dtype.
        as_jax: draw JAX's numbers beyond 2^(w/2) choices, too.

    Raises:
        ArgumentError: bounds that are known leave no number or do not fit the dtype.
        DTypeError: no integer dtype.

    Example:
        >>> nnc.random.randint(nnc.random.key(0), (3,), 0, 10).shape
        (3,)
    """
    where = "nnc.random.randint"
    key, dtype = read_key(key, where), to_dtype(dtype, where)
    low, high = as_operand(minval, where, "minval"), as_operand(maxval, where, "maxval")
    for name, given in (("dtype", dtype), ("minval", dtype_of(low)), ("maxval", dtype_of(high))):
        if not dtypes.is_integer(given):
            raise user_error(DTypeError, where, f"{name} is {given.name}.", fix="draw integers between integers.")
    shape = joint_shape(shape, where, minval=low, maxval=high)
    if isinstance(low, int) and isinstance(high, int):
        info = np.iinfo(dtype)
        if not info.min <= low < high <= info.max + 1:
            fix = "choose minval < maxval within the dtype, or a wider dtype."
            raise user_error(ArgumentError, where, f"there is no {dtype.name} from {low} to {high} - 1.", fix=fix)
    drawn = dtypes.int32 if dtype.itemsize < 4 else dtype
    return astype(_below(key, shape, low, high, drawn, where, as_jax), dtype, where)


def _below(key: Array, shape: Shape, low: Any, high: Any, dtype: dtypes.DType, where: str, as_jax: bool) -> Array:
    """Integers from `low` to `high - 1`, of two random words."""
    width = 8 * dtype.itemsize
    unsigned = UNSIGNED_OF_WIDTH[width]
    words = [draw_bits(part, shape, width) for part in split(key)]
    if isinstance(low, int) and isinstance(high, int):
        span = high - low
        if span == 1 << width:
            offset = words[1]
        elif as_jax or span <= 1 << width // 2:
            offset = _remainder(words, unsigned.type(span))
        else:
            offset = _share(words, constants.full_like(words[0], span))
        return ew.convert(offset, dtype=dtype) + dtype.type(low)
    low, high = to_value(astype(low, dtype, where), where), to_value(astype(high, dtype, where), where)
    span_of = ew.convert(apply(ew.sub, high, low), dtype=unsigned)
    span_of = ew.select(apply(ew.less_equal, high, low), constants.ones_like(span_of), span_of)
    offset = _remainder(words, span_of)
    if not as_jax:
        spread = broadcast_to_shape(span_of, shape)
        offset = ew.select(spread > unsigned.type(1 << width // 2), _share(words, spread), offset)
    return ew.convert(offset, dtype=dtype) + low


def _remainder(words: Sequence[Array], span: Any) -> Array:
    """Returns the remainder by `span` of the number that two words make, if no product overflows; as jax.random."""
    upper, lower = words
    half = upper.spec.dtype.type(1 << 4 * upper.spec.dtype.itemsize)
    remainder = half % span if isinstance(span, np.generic) else apply(ew.remainder, half, span)
    with np.errstate(over="ignore"):
        factor = remainder * remainder % span
    return (upper % span * factor + lower % span) % span


def _share(words: Sequence[Array], span: Array) -> Array:
    """Returns the number that two words make, times `span`, without the lower two words of the product (Lemire, "Fast random
    integer generation in an interval", 2019).
    """
    upper, lower = words
    (high, low), carried = _wide_product(upper, span), _wide_product(lower, span)[0]
    total = low + carried
    return high + ew.convert(total < low, dtype=total.spec.dtype)


def _wide_product(x: Array, y: Array) -> tuple[Array, Array]:
    """Returns the upper and the lower word of a product."""
    bits = 4 * x.spec.dtype.itemsize
    half, mask = x.spec.dtype.type(bits), x.spec.dtype.type((1 << bits) - 1)
    (a, b), (c, d) = ((v >> half, v & mask) for v in (x, y))
    middle = b * c + (b * d >> half)
    crossed = a * d + (middle & mask)
    return a * c + (middle >> half) + (crossed >> half), x * y


def _shuffle(key: Array, x: Array, axis: int) -> Array:
    """`x` in the order of random numbers, several times over, so that equal numbers leave no trace."""
    rounds = math.ceil(3 * math.log(max(1, x.spec.size)) / math.log(2**32 - 1))
    for _ in range(rounds):
        key, drawn = split(key)
        order = argsort(draw_bits(drawn, x.spec.shape, 32), axis=axis, descending=False, stable=True)
        x = take_along_axis(x, order, axis)
    return x


@spelled
def permutation(key: ArrayLike, x: ArrayLike, axis: int = 0, independent: bool = False) -> Array:
    """Returns the elements of `x` in random order along an axis, or the numbers below an integer `x`.

    Args:
        key: a key that is used for nothing else.
        x: an array, or an integer n for the numbers below n.
        axis: axis to permute.
        independent: whether every row along the axis has an order of its own.

    Raises:
        ShapeError: there is no such axis.
        DTypeError: a 0-d x is no integer.

    Example:
        >>> sorted(nnc.random.permutation(nnc.random.key(0), 5).tolist())
        [0, 1, 2, 3, 4]
    """
    where = "nnc.random.permutation"
    key, x = read_key(key, where), to_value(x, where)
    if not x.spec.ndim:
        return _shuffle(
            key, constants.iota(shape=(_count(x, where),), dtype=dtypes.int64, axis=0), check_axis(where, axis, 1)
        )
    axis = check_axis(where, axis, x.spec.ndim)
    if independent or x.spec.ndim == 1:
        return _shuffle(key, x, axis)
    order = _shuffle(key, constants.iota(shape=(x.spec.shape[axis],), dtype=dtypes.int64, axis=0), 0)
    return take(x, order, axis)


def _count(x: Array, where: str) -> int:
    if not dtypes.is_integer(x.spec.dtype) or int(x) < 0:
        fix = "give an array or an integer of 0 or more."
        raise user_error(DTypeError, where, f"{x} is no count.", operands={"x": x.spec}, fix=fix)
    return int(x)


@spelled
def choice(
    key: ArrayLike, a: ArrayLike, shape: ShapeLike = (), replace: bool = True, p: ArrayLike | None = None, axis: int = 0
) -> Array:
    """Elements of `a` along an axis, or numbers below an integer `a`, drawn with or without replacement.

    Args:
        key: a key that is used for nothing else.
        a: an array, or an integer n for the numbers below n.
        shape: the shape of the draws, which replaces the axis.
        replace: whether an element may be drawn again.
        p: a probability for each element; equal by default.
        axis: axis of the elements.

    Raises:
        ArgumentError: without replacement, more are wanted than there are, or than have a probability above 0 where p is known;
            or there are none; or an element of p is known to be negative or NaN.
        ShapeError: p has another size.

    Example:
        >>> nnc.random.choice(nnc.random.key(0), nnp.asarray([10, 20, 30]), (2, 2)).shape
        (2, 2)
    """
    where = "nnc.random.choice"
    key, a, shape = read_key(key, where), to_value(a, where, "a"), to_shape(shape, where)
    source = a if a.spec.ndim else None
    if source is not None:
        axis = check_axis(where, axis, source.spec.ndim)
    count = _count(a, where) if source is None else source.spec.shape[axis]
    draws = math.prod(shape)
    if draws and (not count or (not replace and draws > count)):
        fix = "draw fewer, or with replace=True from a non-empty array."
        raise user_error(ArgumentError, where, f"{draws} of {count} elements.", operands={"a": a.spec}, fix=fix)
    if not draws:
        index = constants.full(shape=shape, dtype=dtypes.int64, value=0)
    elif p is None:
        if replace:
            index = randint(key, shape, 0, count)
        else:
            order = permutation(key, count) if source is None else permutation(key, source, axis)
            return _place(slice_axis(order, axis if source is not None else 0, 0, draws), source, axis, shape)
    else:
        index = _weighted(key, _weights(p, count, 1 if replace else draws, where), shape, replace)
    if source is None:
        return index
    return take(source, index, axis)


def _place(drawn: Array, source: Array | None, axis: int, shape: Shape) -> Array:
    if source is None:
        return reshape(drawn, shape=shape)
    whole = source.spec.shape
    return reshape(drawn, shape=(*whole[:axis], *shape, *whole[axis + 1 :]))


def _weights(p: Any, count: int, least: int, where: str) -> Array:
    """Checks probabilities: where they are known, at least `least` must be above 0. Returns 16-bit floats in float32."""
    p = to_value(p, where, "p")
    if p.spec.shape != (count,):
        problem = f"p has shape {p.spec.shape}, there are {count} elements."
        fix = "give one probability for each element."
        raise user_error(ShapeError, where, problem, operands={"p": p.spec}, fix=fix)
    known = known_or_none(p)
    if known is not None and not (known >= 0).all():
        i = int(np.argmin(known >= 0))
        raise user_error(ArgumentError, where, f"p[{i}] is {known[i]}.", fix="give probabilities, none below 0.")
    if known is not None and np.count_nonzero(known) < least:
        problem = f"{least} of {np.count_nonzero(known)} elements that have a probability above 0."
        fix = "draw fewer, or with replace=True from elements of which one has a probability above 0."
        raise user_error(ArgumentError, where, problem, operands={"p": p.spec}, fix=fix)
    return astype(p, dtypes.accumulator(dtypes.to_float(p.spec.dtype)), where)


def _weighted(key: Array, p: Array, shape: Shape, replace: bool) -> Array:
    dtype = p.spec.dtype
    if replace:
        steps = cumsum(p, axis=0)
        total = getitem(steps, -1)
        return searchsorted(steps, times(1 - uniform(key, shape, dtype), total), side="left")
    order = top_k(gumbel(key, p.spec.shape, dtype) + portable_log(p), k=math.prod(shape))[1]
    return reshape(order, shape=shape)


@spelled
def categorical(
    key: ArrayLike, logits: ArrayLike, axis: int = -1, shape: ShapeLike | None = None, replace: bool = True
) -> Array:
    """Positions along an axis, drawn with probabilities softmax(logits).

    Args:
        key: a key that is used for nothing else.
        logits: floating-point, any shape.
        axis: the axis of one distribution.
        shape: ends with the shape of the other axes, which is the default.
        replace: False draws the positions in front of the last axes of `shape` without repetition.

    Returns:
        int64.

    Raises:
        ShapeError: the shape does not end so.
        DTypeError: the logits are not floating-point.
        ArgumentError: without replacement, more are wanted than there are, or than have logits above -inf where these are known.

    Example:
        >>> nnc.random.categorical(nnc.random.key(0), nnp.zeros((5, 3))).shape
        (5,)
    """
    where = "nnc.random.categorical"
    key, logits = read_key(key, where), to_value(logits, where, "logits")
    spec = spec_of(logits)
    if not dtypes.is_float(spec.dtype):
        fix = "give floating-point logits, such as logits.astype('float32')."
        raise user_error(DTypeError, where, f"the logits are of {spec.dtype.name}.", operands={"logits": spec}, fix=fix)
    logits = astype(logits, dtypes.accumulator(spec.dtype))
    axis = check_axis(where, axis, spec.ndim)
    batch = tuple(n for i, n in enumerate(spec.shape) if i != axis)
    wanted = batch if shape is None else to_shape(shape, where)
    split_at = len(wanted) - len(batch)
    if split_at < 0 or any(n not in (1, m) for n, m in zip(batch, wanted[split_at:], strict=True)):
        problem = f"shape {wanted} does not end with {batch}."
        fix = "end the shape with the logits' shape but for the axis."
        raise user_error(ShapeError, where, problem, operands={"logits": spec}, fix=fix)
    prefix = wanted[:split_at]
    if replace:
        rows = list(wanted[split_at:])
        rows.insert(axis, spec.shape[axis])
        noise = gumbel(key, (*prefix, *rows), logits.spec.dtype)
        return argmax(noise + broadcast_to_shape(logits, noise.spec.shape), axis=len(prefix) + axis)
    count = math.prod(prefix)
    if count > spec.shape[axis] or batch != wanted[split_at:]:
        problem = f"{count} of {spec.shape[axis]} categories without replacement."
        fix = "draw fewer, or with replace=True."
        raise user_error(ArgumentError, where, problem, operands={"logits": spec}, fix=fix)
    _check_possible(logits, axis, count, where)
    noisy = logits + gumbel(key, spec.shape, logits.spec.dtype)
    others = [i for i in range(spec.ndim) if i != axis]
    order = top_k(transpose(noisy, permutation=(*others, axis)), k=count)[1]
    front = transpose(order, permutation=(spec.ndim - 1, *range(spec.ndim - 1)))
    return reshape(front, shape=wanted)


def _check_possible(logits: Array, axis: int, count: int, where: str) -> None:
    """Raises where so many positions of a row are known not to be drawn that others are too few.

    Raises:
        ArgumentError: there are.
    """
    known = known_or_none(logits)
    possible = None if known is None else (known > -np.inf).sum(axis)
    if possible is not None and possible.size and possible.min() < count:
        problem = f"{count} of {possible.min()} categories that have a probability above 0."
        fix = "draw fewer, or with replace=True."
        raise user_error(ArgumentError, where, problem, operands={"logits": logits.spec}, fix=fix)
