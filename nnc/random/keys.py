"""Keys: arrays that stand for the state of a generator, and are passed on explicitly.

A key is an array of two uint32 words. A function that draws takes a key and gives the same numbers for the same key; for
other numbers, `split` the key or `fold_in` a number. The bits agree with jax.random for the same key.
"""

from __future__ import annotations

import operator
from typing import Any

import numpy as np

from nnc.array.array import Array, asarray
from nnc.array.promote import as_operand, astype, dtype_of, to_dtype
from nnc.base import dtypes
from nnc.calls.spelling import spelled
from nnc.commands.elementwise import convert
from nnc.commands.random import UNSIGNED_OF_WIDTH, random_bits
from nnc.commands.shape import concatenate, reshape
from nnc.errors import ArgumentError, DTypeError, ShapeError, user_error
from nnc.graph import spec_of
from nnc.numpy.operands import to_shape
from nnc.random.reuse import note_use
from nnc.typing import ArrayLike, DTypeLike, ShapeLike

__all__ = ["bits", "fold_in", "key", "split"]

Shape = tuple[int, ...]


@spelled
def key(seed: ArrayLike) -> Array:
    """Returns the key of a seed: its upper and its lower 32 bits.

    Args:
        seed: an integer from -2**63 to 2**64 - 1, or a 0-d integer array, which may be traced.

    Returns:
        (2,), uint32.

    Raises:
        ArgumentError: the seed is too large.
        DTypeError: it is no integer.
        ShapeError: it has axes.

    Example:
        >>> nnc.random.key(2**32 + 7)
        Array([1, 7], dtype=uint32)
    """
    where = "nnc.random.key"
    seed = as_operand(seed, where, "seed")
    if not dtypes.is_integer(dtype_of(seed)):
        fix = "seed with an integer, such as nnc.random.key(0)."
        raise user_error(DTypeError, where, f"the seed is of {dtype_of(seed).name}.", fix=fix)
    if isinstance(seed, int):
        if not -(2**63) <= seed < 2**64:
            problem = f"the seed {seed} needs more than 64 bits."
            raise user_error(ArgumentError, where, problem, fix="use a smaller seed.")
        return asarray(np.asarray([seed >> 32 & 0xFFFFFFFF, seed & 0xFFFFFFFF], np.uint32))
    spec = spec_of(seed)
    if spec.shape:
        fix = "use nnc.vmap(nnc.random.key)(seeds) for one key for each seed."
        raise user_error(ShapeError, where, f"a seed of shape {spec.shape}.", operands={"seed": spec}, fix=fix)
    bits = convert(seed, dtype=UNSIGNED_OF_WIDTH[8 * spec.dtype.itemsize])  # of a negative number, also a weak one
    return _words(convert(bits, dtype=dtypes.uint64))


def _words(bits: Array) -> Array:
    """uint64 of any shape as uint32 with a last axis of 2: the upper and the lower half."""
    halves = [convert(bits >> np.uint64(32), dtype=dtypes.uint32), convert(bits, dtype=dtypes.uint32)]
    shape = (*bits.spec.shape, 1)
    return concatenate(*(reshape(half, shape=shape) for half in halves), axis=len(shape) - 1)


def read_key(key: Any, where: str) -> Array:
    """`key` as an array.

    Raises:
        DTypeError, ShapeError: it is no key.
    """
    key = as_operand(key, where, "key")
    spec = spec_of(key)
    if spec.dtype != dtypes.uint32:
        problem = f"the key is of {spec.dtype.name}, keys are uint32."
        fix = "make a key with nnc.random.key(seed)."
        raise user_error(DTypeError, where, problem, operands={"key": spec}, fix=fix)
    if spec.shape != (2,):
        problem = f"the key has shape {spec.shape}, one key has shape (2,)."
        fix = "pass one key, such as keys[0]; draw for several keys with nnc.vmap."
        raise user_error(ShapeError, where, problem, operands={"key": spec}, fix=fix)
    return key


def draw_bits(key: Array, shape: Shape, width: int) -> Array:
    """Random words of `width` bits from a key that was read."""
    note_use(key)
    return random_bits(key, np.asarray(0, np.uint64), shape=shape, width=width)


@spelled
def split(key: ArrayLike, num: ShapeLike = 2) -> Array:
    """New keys, whose draws are independent of each other and of the draws of `key`.

    Args:
        key: a key that is used for nothing else.
        num: how many, or a shape of keys.

    Returns:
        (num, 2), uint32.

    Example:
        >>> weights_key, bias_key = nnc.random.split(nnc.random.key(0))
        >>> weights_key
        Array([1797259609, 2579123966], dtype=uint32)
    """
    where = "nnc.random.split"
    return _words(draw_bits(read_key(key, where), to_shape(num, where), 64))


@spelled
def fold_in(key: Any, data: Any) -> Array:
    """Returns the new key that `key` gives for a number, such as the count of training steps.

    Args:
        key: a key.
        data: an integer from 0 to 2**32 - 1, or a 0-d integer array, which may be traced (its low 32 bits count).

    Returns:
        (2,), uint32.

    Raises:
        ArgumentError: the number is out of range.
        DTypeError: it is no integer.
        ShapeError: it has axes.

    Example:
        >>> nnc.random.fold_in(nnc.random.key(0), 3).shape
        (2,)
    """
    where = "nnc.random.fold_in"
    key = read_key(key, where)
    data = as_operand(data, where, "data")
    if not dtypes.is_integer(dtype_of(data)) or np.shape(data):
        problem = f"data is {dtype_of(data).name} of shape {np.shape(data)}."
        raise user_error(DTypeError if not np.shape(data) else ShapeError, where, problem, fix="fold in one integer.")
    if isinstance(data, int):
        if not 0 <= data < 2**32:
            raise user_error(ArgumentError, where, f"data is {data}.", fix="fold in an integer from 0 to 2**32 - 1.")
        start: Any = np.asarray(operator.index(data), np.uint64)
    else:
        start = astype(astype(data, dtypes.uint32), dtypes.uint64)
    note_use(key, start)
    return _words(random_bits(key, start, shape=(), width=64))


@spelled
def bits(key: ArrayLike, shape: ShapeLike = (), dtype: DTypeLike = dtypes.uint32) -> Array:
    """Uniform random bits as unsigned integers.

    Args:
        key: a key that is used for nothing else.
        shape: shape of the draw.
        dtype: uint8, uint16, uint32 or uint64.

    Raises:
        DTypeError: dtype is no unsigned integer type.

    Example:
        >>> nnc.random.bits(nnc.random.key(0), (2,), "uint8").dtype.name
        'uint8'
    """
    where = "nnc.random.bits"
    wanted = to_dtype(dtype, where)
    if wanted not in dtypes.UNSIGNED:
        problem = f"dtype is {wanted.name}."
        raise user_error(DTypeError, where, problem, fix="draw unsigned integers; for others use nnc.random.randint.")
    return draw_bits(read_key(key, where), to_shape(shape, where), 8 * wanted.itemsize)
