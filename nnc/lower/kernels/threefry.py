"""Random bits in printed kernels: Threefry-2x32, the same bits as the reference's."""

from __future__ import annotations

from nnc.base import dtypes
from nnc.base.dtypes import DType
from nnc.commands.random import PARITY, ROTATIONS
from nnc.lower.kernels.builder import Code, Value


def random_word(code: Code, key: tuple[Value, Value], counter: Value, dtype: DType) -> Value:
    """Computes the random bits of uint64 counters under a key of two uint32.

    Args:
        dtype: the dtype of the result, an unsigned integer.
    """
    high = code.convert(code.shr(counter, code.like(counter, 32)), dtypes.uint32)
    x, y = _cipher(code, key, (high, code.convert(counter, dtypes.uint32)))
    if dtype.itemsize < 8:
        return code.convert(code.xor(x, y), dtype)
    x, y = (code.convert(word, dtypes.uint64) for word in (x, y))
    return code.or_(code.shl(x, code.like(x, 32)), y)


def _cipher(code: Code, key: tuple[Value, Value], counter: tuple[Value, Value]) -> tuple[Value, Value]:
    """Returns the two words of counters under a key (Salmon et al., 2011, 20 rounds); all are uint32."""
    schedule = (*key, code.xor(code.xor(key[0], key[1]), code.like(key[0], PARITY)))
    x, y = code.add(counter[0], schedule[0]), code.add(counter[1], schedule[1])
    for group in range(5):
        for turn in ROTATIONS[group % 2]:
            x = code.add(x, y)
            y = code.xor(code.intrinsic("fshl", y, y, code.like(y, turn)), x)
        x = code.add(x, schedule[(group + 1) % 3])
        y = code.add(y, code.add(schedule[(group + 2) % 3], code.like(schedule[0], group + 1)))
    return x, y
