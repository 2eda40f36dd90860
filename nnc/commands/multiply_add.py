"""x · y + z, rounded once: so comes the rounding error of a product. Lowering writes it where `nnc.compile` may contract products
with sums.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from nnc.commands.constants import ones_like
from nnc.commands.elementwise import FLOAT, elementwise
from nnc.graph import Command


def _two_sum(x: Any, y: Any) -> tuple[Any, Any]:
    """x + y and its rounding error (Knuth)."""
    total = x + y
    part = total - x
    return total, (x - (total - part)) + (y - part)


def _two_product(x: Any, y: Any) -> tuple[Any, Any]:
    """x · y and its rounding error, from halves of the digits (Dekker)."""
    halves = []
    for number in (x, y):
        scaled = number * (2.0**27 + 1)
        high = scaled - (scaled - number)
        halves.append((high, number - high))
    (a, b), (c, d) = halves
    product = x * y
    return product, ((a * c - product) + a * d + b * c) + b * d


def _sum_to_odd(x: Any, y: Any) -> Any:
    """x + y in float64, cut off to a number with an odd last bit where it is inexact: a second rounding is then as if the first."""
    total, error = _two_sum(x, y)
    is_even = np.asarray(total).view(np.int64) % 2 == 0
    moves = (error != 0) & is_even & np.isfinite(error)
    return np.where(moves, np.nextafter(total, np.copysign(np.inf, error)), total)


def _multiply_add(x: Any, y: Any, z: Any) -> Any:
    """Rounds once, after Boldo and Melquiond, "Emulation of FMA and correctly rounded sums" (2008); of float32 products are exact
    in float64. Float64 whose errors overflow or underflow are rounded twice.
    """
    if x.dtype == np.float32:
        return _sum_to_odd(x.astype(np.float64) * y.astype(np.float64), z.astype(np.float64)).astype(np.float32)
    high, low = _two_product(x, y)
    rest, lost = _two_sum(z, low)
    total, more = _two_sum(high, rest)
    out = total + _sum_to_odd(lost, more)
    return np.where(np.isfinite(out), out, x * y + z)


multiply_add: Command = elementwise(
    "multiply_add", _multiply_add, "fma(x, y, z)", arity=3, accepts=FLOAT, flops=2,
    partials=(lambda x, y, z, out: y, lambda x, y, z, out: x, lambda x, y, z, out: ones_like(z)),
)  # fmt: skip
