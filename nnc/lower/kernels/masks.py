"""Masks of the first lanes of a vector: which elements of the last, shorter vector of a row are read and written.

LLVM 22 miscompiles a masked store whose mask it finds to be constant with a single lane, where the value is an integer that was
truncated: the scalar store that it makes of it has the width from before the truncation, and so overwrites the elements behind. A
known mask is therefore written out, so that `Code.store` sees it; the mask of a count that is known only when the kernel runs is
hidden from the optimizer, which could otherwise find the count by unrolling or inlining a loop.
"""

from __future__ import annotations

from nnc.base import dtypes
from nnc.lower.kernels.builder import Code, Value, known_integer


def known_lanes(count: int, lanes: int) -> Value:
    """Returns the constant mask of the first `count` of `lanes` lanes."""
    bits = ", ".join(f"i1 {'true' if lane < count else 'false'}" for lane in range(lanes))
    return Value(f"<{bits}>", dtypes.bool_, lanes)


def first_lanes(code: Code, count: Value, lanes: int) -> Value:
    """Returns the mask of the first `count` of `lanes` lanes; `count` is an int64 of any sign."""
    known = known_integer(count)
    if known is not None:
        return known_lanes(known, lanes)
    inside = code.intrinsic("smin", count, code.integer(lanes))
    inside = code.convert(code.intrinsic("smax", inside, code.integer(0)), dtypes.int32)
    hidden = code.share(f'call i32 asm "", "=r,0"({inside.typed}) nounwind willreturn memory(none)')
    ramp = Value(f"<{', '.join(f'i32 {lane}' for lane in range(lanes))}>", dtypes.int32, lanes)
    return code.compare("lt", ramp, Value(hidden, dtypes.int32))
