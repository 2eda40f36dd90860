"""Rounding of fractions to the formats of a GPU, written anew for the tests: digits of an integer are cut off."""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np


@dataclass(frozen=True)
class Format:
    """A format: the bits of its significand, its exponents, and the dtype of arrays that hold it."""

    name: str
    precision: int
    lowest: int  # exponent of the smallest normal number
    highest: int  # exponent of the largest number
    dtype: Any

    def values(self, array: Any) -> list[float]:
        """Returns the numbers of an array."""
        if self.name == "bf16":
            array = (array.astype(np.uint32) << 16).view(np.float32)
        return [float(x) for x in array]

    def random(self, generator: np.random.Generator, count: int) -> Any:
        """Returns numbers of like size, of any size, denormal ones, zeros, infinities and NaN."""
        bits = np.dtype(self.dtype).itemsize * 8
        raw = generator.integers(0, 2**bits, count, dtype=np.uint64)
        mantissa = self.precision - 1
        near = ((2 ** (bits - mantissa - 2) - 1 + generator.integers(-4, 5, count)).astype(np.uint64)) << np.uint64(
            mantissa
        )
        sign = generator.integers(0, 2, count, dtype=np.uint64) << np.uint64(bits - 1)
        digits = raw & np.uint64(2**mantissa - 1)
        short = digits & ~np.uint64(2 ** max(mantissa - 3, 1) - 1)
        infinity = np.uint64((2 ** (bits - mantissa - 1) - 1) << mantissa)
        kinds = generator.integers(0, 12, count)
        chosen = np.select(
            [kinds < 5, kinds < 7, kinds < 9, kinds == 9, kinds == 10],
            [near | digits | sign, near | short | sign, raw, digits | sign, sign],
            np.where(raw % 3 == 0, infinity | sign, infinity | np.uint64(1)),
        )
        return chosen.astype(f"u{bits // 8}").view(self.dtype)


FORMATS = {
    "f16": Format("f16", 11, -14, 15, np.float16),
    "bf16": Format("bf16", 8, -126, 127, np.uint16),
    "f32": Format("f32", 24, -126, 127, np.float32),
    "f64": Format("f64", 53, -1022, 1023, np.float64),
}


def rounded(value: Fraction, to: Format, mode: str = "rn") -> float:
    """Returns a fraction other than 0 rounded to a format."""
    sign, size = (-1 if value < 0 else 1), abs(value)
    exponent = size.numerator.bit_length() - size.denominator.bit_length()
    exponent -= size < Fraction(2) ** exponent
    step = Fraction(2) ** (max(exponent, to.lowest) - to.precision + 1)
    whole, rest = divmod(size, step)
    up = {
        "rn": rest * 2 > step or (rest * 2 == step and whole % 2 == 1),
        "rz": False,
        "rm": sign < 0 and rest > 0,
        "rp": sign > 0 and rest > 0,
    }[mode]
    result = (whole + up) * step
    largest = (2 - Fraction(2) ** (1 - to.precision)) * Fraction(2) ** to.highest
    if result > largest:
        stays = mode == "rz" or mode == ("rm" if sign > 0 else "rp")
        return sign * (float(largest) if stays else math.inf)
    return math.copysign(float(result), sign)


def same(results: list[float], expected: list[float], *context: Any) -> None:
    """Compares numbers with the signs of zeros; all NaN are alike."""
    for i, (result, each) in enumerate(zip(results, expected, strict=True)):
        equal = result == each and math.copysign(1, result) == math.copysign(1, each)
        assert equal or (math.isnan(result) and math.isnan(each)), (result, each, [values[i] for values in context])
