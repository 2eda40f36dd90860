"""Long sums, piece by piece: a sum that grows for long loses digits of each further term.

The terms of a piece are summed in registers as those of a short sum are; sums of pieces are added to totals, in float64 where they
are float32. So the error of a sum does not grow with its length (Blanchard, Higham and Mary, "A class of fast and accurate
summation algorithms", 2020, call this a blocked sum), for a few instructions a piece.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import NamedTuple

from nnc.base import dtypes
from nnc.base.dtypes import DType
from nnc.lower.kernels.builder import Carried, Code, Value

Bound = Value | int


class Cut(NamedTuple):
    """The loop of several, by its position, that goes piece by piece, and the iterations of a piece."""

    loop: int
    piece: int


def cut_of(counts: Sequence[Bound], most: int, short: int) -> Cut | None:
    """Returns the cut of sums over nested loops; None where they are short, or of no known length.

    Args:
        counts: the number of terms that each loop adds to a sum, from the outermost loop in.
        most: the most terms of a piece.
        short: the number of terms up to which a sum is not cut.

    Example:
        >>> cut_of([3, 1000, 4], most=128, short=512)
        Cut(loop=1, piece=32)
    """
    known = [count for count in counts if not isinstance(count, Value)]
    if len(known) < len(counts) or math.prod(known) <= short:
        return None
    terms = 1
    for loop in reversed(range(len(known))):
        if terms * known[loop] > most:
            return Cut(loop, max(1, most // int(terms)))
        terms *= known[loop]
    return None


def total_dtype(dtype: DType) -> DType:
    """Returns the dtype of a total of pieces whose sums are of this dtype."""
    return dtypes.float64 if dtype == dtypes.float32 else dtype


@contextmanager
def pieces(
    code: Code, first: Bound, end: Bound, length: int, carried: Sequence[Carried] = ()
) -> Iterator[tuple[Value, Value]]:
    """Prints a loop around the block over pieces of a range; yields where each begins and ends. `carried` as for `Code.loop`."""
    with code.loop(first, end, length, carried) as begin:
        yield begin, code.intrinsic("smin", code.add(begin, code.integer(length)), code.integer(end))
