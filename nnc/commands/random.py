"""Random bits: one pure command, the counter-based generator Threefry-2x32 (Salmon et al., 2011, 20 rounds).

A key is two 32-bit words. It stands for an endless stream of 64-bit words: word n is the cipher of the counter n under the
key. Draws of any width, split and fold_in all read that stream, in the layout of jax.random (`jax_threefry_partitionable`).
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from nnc.base import dtypes
from nnc.commands.rules import batch_leading
from nnc.errors import ArgumentError, DTypeError, ShapeError, user_error
from nnc.graph import TensorSpec, register
from nnc.graph.rules import Rules

Shape = tuple[int, ...]
NDArray = np.ndarray[Any, Any]

ROTATIONS = ((13, 15, 26, 6), (17, 29, 16, 24))
PARITY = 0x1BD11BDA
_BLOCK = 1 << 15  # counters at a time, so that the state stays in the cache
UNSIGNED_OF_WIDTH = {8 * dtype.itemsize: dtype for dtype in dtypes.UNSIGNED}


def threefry2x32(key: tuple[NDArray, NDArray], counter: tuple[NDArray, NDArray]) -> tuple[NDArray, NDArray]:
    """Returns the cipher of two 32-bit words under a key of two; all are uint32 and broadcast.

    Example:
        >>> word = lambda x: np.asarray(x, np.uint32)
        >>> [hex(int(x)) for x in threefry2x32((word(0), word(0)), (word(0), word(0)))]
        ['0x6b200159', '0x99ba4efe']
    """
    schedule = (key[0], key[1], key[0] ^ key[1] ^ np.uint32(PARITY))
    with np.errstate(over="ignore"):
        x, y = counter[0] + schedule[0], counter[1] + schedule[1]
        for group in range(5):
            for turn in ROTATIONS[group % 2]:
                x = x + y
                y = ((y << np.uint32(turn)) | (y >> np.uint32(32 - turn))) ^ x
            x = x + schedule[(group + 1) % 3]
            y = y + (schedule[(group + 2) % 3] + np.uint32(group + 1))
    return x, y


def _infer(key: TensorSpec, start: TensorSpec, *, shape: Shape, width: int) -> TensorSpec:
    if key.dtype != dtypes.uint32 or start.dtype != dtypes.uint64:
        problem = f"the key is {key.dtype.name} and the start {start.dtype.name}."
        fix = "pass a uint32 key, made by nnc.random.key, and a uint64 start."
        raise user_error(DTypeError, "random_bits", problem, operands={"key": key, "start": start}, fix=fix)
    if not key.ndim or key.shape[-1] != 2 or start.shape != key.shape[:-1]:
        problem = f"keys of shape {key.shape} do not fit starts of shape {start.shape}."
        fix = "pass keys of shape (..., 2) and one start for each."
        raise user_error(ShapeError, "random_bits", problem, operands={"key": key, "start": start}, fix=fix)
    if width not in UNSIGNED_OF_WIDTH or any(n < 0 for n in shape):
        problem = f"there are no draws of shape {tuple(shape)} and {width} bits."
        fix = "choose sizes of 0 or more and 8, 16, 32 or 64 bits."
        raise user_error(ArgumentError, "random_bits", problem, fix=fix)
    return TensorSpec((*start.shape, *shape), UNSIGNED_OF_WIDTH[width])


def _reference(key: NDArray, start: NDArray, *, shape: Shape, width: int) -> NDArray:
    count, keys = math.prod(shape), key.reshape(-1, 2)
    out = np.empty((len(keys), count), UNSIGNED_OF_WIDTH[width])
    words = (keys[:, :1], keys[:, 1:])
    first = start.reshape(-1, 1)
    step = max(1, _BLOCK // max(1, len(keys)))
    for at in range(0, count, step):
        counter = first + np.arange(at, min(at + step, count), dtype=np.uint64)
        low = counter.astype(np.uint32)
        high = (counter >> np.uint64(32)).astype(np.uint32)
        x, y = threefry2x32(words, (high, low))
        block = out[:, at : at + step]
        if width == 64:
            block[:] = x
            block <<= np.uint64(32)
            block |= y
        else:
            block[:] = x ^ y  # narrower widths keep the low bits
    return out.reshape((*start.shape, *shape))


random_bits = register(
    "random_bits",
    Rules(
        infer=_infer,
        reference=_reference,
        batch=batch_leading("random_bits"),
        cost=lambda key, start, shape, width: 100 * start.size * math.prod(shape),
        effect="random",
    ),
    arity=2,
)
