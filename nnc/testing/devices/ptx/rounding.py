"""Arithmetic that is rounded once: fused multiply-add, sums and products of every format, in every direction of rounding.

Narrow formats are computed in float64 *rounded to odd*: where a result is not exact, its last bit is 1. A second rounding to a
format with at least two bits less is then as if it were the only one (Boldo and Melquiond, "Emulation of FMA and correctly rounded
sums", IEEE Transactions on Computers 57, 2008).
"""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np

from nnc.testing.devices.ptx.values import Array, Type

_SPLIT = 134217729.0  # 2**27 + 1: splits a float64 into halves of 26 bits (Dekker 1971)
# products between them have exact halves; larger and smaller ones are computed as fractions
_LARGE, _SMALL = 2.0**900, 2.0**-900
_WELL_ABOVE = 2.0**-700  # half a unit in the last place of such a number is more than _SMALL
_HALVED = 2.0**-512  # the product of two numbers that are scaled by it does not overflow
_NEAR_DENORMAL = 2.0**-125
_EXPONENT = {"f16": 0x7C00, "bf16": 0x7F80, "f32": 0x7F800000, "f64": 0x7FF0000000000000}
_SIGN = {16: 0x8000, 32: 0x80000000, 64: 0x8000000000000000}
NAN = {"f16": 0x7FFF, "bf16": 0x7FFF, "f32": 0x7FFFFFFF, "f64": 0x7FF8000000000000}  # that instructions make


def exact_sum(x: Array, y: Array) -> tuple[Array, Array]:
    """Returns the rounded sum of float64 arrays and its error (Knuth's TwoSum)."""
    total = x + y
    other = total - x
    return total, (x - (total - other)) + (y - other)


def exact_product(x: Array, y: Array) -> tuple[Array, Array]:
    """Returns the rounded product of float64 arrays and its error (Dekker's), where neither overflows nor underflows."""
    product = x * y
    x_high, y_high = _SPLIT * x, _SPLIT * y
    x_high, y_high = x_high - (x_high - x), y_high - (y_high - y)
    x_low, y_low = x - x_high, y - y_high
    return product, x_low * y_low - (((product - x_high * y_high) - x_low * y_high) - x_high * y_low)


def to_odd(total: Array, error: Array) -> Array:
    """Rounds `total + error` to odd.

    Args:
        total: the sum rounded to nearest, in float32 or float64.
        error: the error of the sum, or a number of the same sign.
    """
    bits: Array = total.view(np.int64 if total.dtype == np.float64 else np.int32)
    moves = np.isfinite(total) & (error != 0) & ((bits & 1) == 0)
    step = np.where((error > 0) == (total > 0), 1, -1).astype(bits.dtype)
    return np.where(moves, bits + step, bits).view(total.dtype)


def fma_odd(x: Array, y: Array, z: Array) -> Array:
    """Returns `x * y + z` in float64, rounded to odd; x and y have at most 26 significant bits, so that the product is exact."""
    return to_odd(*exact_sum(x * y, z))


def fma_single(x: Array, y: Array, z: Array) -> Array:
    """Returns `x * y + z` of float32 arrays, rounded once."""
    product, added = x.astype(np.float64) * y.astype(np.float64), z.astype(np.float64)
    total: Array = product + added
    result = total.astype(np.float32)
    # Rounding twice goes wrong only where the first result lies halfway between two numbers, or is close to the denormal ones.
    unsure = ((total.view(np.int64) & 0x1FFFFFFF) == 0x10000000) | (np.abs(total) < _NEAR_DENORMAL)
    if unsure.any():
        product, added = (np.broadcast_to(each, total.shape)[unsure] for each in (product, added))
        result[unsure] = to_odd(*exact_sum(product, added)).astype(np.float32)
    return result


def fma_double(x: Array, y: Array, z: Array) -> Array:
    """Returns `x * y + z` of float64 arrays, rounded once."""
    x, y, z = np.broadcast_arrays(x, y, z)
    product, error = exact_product(x, y)
    high, low = exact_sum(z, error)
    high, rest = exact_sum(product, high)
    result = high + to_odd(*exact_sum(low, rest))
    size = np.abs(product)
    is_plain = (size < _LARGE) & (size > _SMALL) & (np.abs(x) < _LARGE) & (np.abs(y) < _LARGE) & (np.abs(z) < _LARGE)
    if is_plain.all():
        return result
    # Where one of the two summands decides alone, no fraction is needed.
    rough = x * y
    is_number = np.isfinite(x) & np.isfinite(y) & np.isfinite(z) & (x != 0) & (y != 0)
    vanishes = (size <= _SMALL) & (np.abs(z) > _WELL_ABOVE)
    overflows = (np.abs(x * _HALVED) * np.abs(y * _HALVED) >= 2.0) & (np.abs(z) < _LARGE)
    alone = np.where(vanishes, z, np.where((z == 0) | overflows, rough, rough + z))
    result = np.where(is_plain, result, np.where(is_number, alone, rough + z))
    for i in np.flatnonzero(is_number & ~is_plain & ~vanishes & ~overflows & (z != 0)):
        result[i] = _nearest(Fraction(float(x[i])) * Fraction(float(y[i])) + Fraction(float(z[i])))
    return result


def _nearest(value: Fraction) -> float:
    """Returns the float64 nearest to a fraction."""
    sign = -1.0 if value < 0 else 1.0
    try:
        return math.copysign(float(value), sign)
    except OverflowError:
        return math.copysign(math.inf, sign)


def widen(values: Array, kind: Type) -> Array:
    """Returns numbers of a format of at most 64 bits as float64, which holds them exactly."""
    if kind.name == "bf16":
        return (values.astype(np.uint32) << np.uint32(16)).view(np.float32).astype(np.float64)
    return values.astype(np.float64)


def narrow(values: Array, kind: Type, mode: str = "rn") -> Array:
    """Rounds numbers to a format.

    Args:
        values: float64, rounded to odd where they are not exact.
        mode: `rn` to nearest even, `rz` towards 0, `rm` down, `rp` up.
    """
    if kind.name == "f64":
        return values
    bits = _nearest_even(values, kind)
    if mode != "rn":
        bits = _directed(values, bits, kind, mode)
    if kind.bits == 16:
        bits = np.where(np.isnan(values), np.uint16(0x7FFF), bits)
    return bits.view(kind.dtype)


def _nearest_even(values: Array, kind: Type) -> Array:
    if kind.name != "bf16":
        return values.astype(kind.dtype).view(kind.unsigned)
    single = values.astype(np.float32)
    bits = to_odd(single, values - single).view(np.uint32)
    return ((bits + np.uint32(0x7FFF) + ((bits >> np.uint32(16)) & np.uint32(1))) >> np.uint32(16)).astype(np.uint16)


def _directed(values: Array, bits: Array, kind: Type, mode: str) -> Array:
    """Steps from the nearest number to the one in the direction of rounding."""
    back = widen(bits.view(kind.dtype), kind)
    one, is_negative = kind.unsigned.type(1), np.signbit(values)
    inward, outward = np.abs(back) > np.abs(values), np.abs(back) < np.abs(values)
    if mode == "rz":
        outward = np.zeros_like(outward)
    elif mode == "rm":
        inward, outward = inward & ~is_negative, outward & is_negative
    else:
        inward, outward = inward & is_negative, outward & ~is_negative
    return np.where(inward, bits - one, np.where(outward, bits + one, bits))


def flush(values: Array, kind: Type) -> Array:
    """Replaces denormal numbers by 0 of the same sign."""
    bits = values.view(kind.unsigned)
    exponent, sign = kind.unsigned.type(_EXPONENT[kind.name]), kind.unsigned.type(_SIGN[kind.bits])
    return np.where((bits & exponent) == 0, bits & sign, bits).view(kind.dtype)


def saturate(values: Array, kind: Type) -> Array:
    """Limits numbers to 0 and 1; NaN becomes 0."""
    wide = widen(values, kind)
    return narrow(np.where(wide > 0, np.minimum(wide, 1.0), 0.0), kind)


def nan_of(kind: Type) -> Array:
    """Returns the NaN that instructions make in a format."""
    return np.array([NAN[kind.name]], kind.unsigned).view(kind.dtype)
