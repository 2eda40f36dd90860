"""Fourier transforms of real numbers: two neighbours are one complex number where their number is even."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from nnc.backends.cpu.kernels.transforms.groups import Placing
from nnc.backends.cpu.kernels.transforms.passes import (
    Pair,
    Points,
    add,
    buffer_points,
    conj,
    entry,
    mul,
    roots,
    sub,
    table,
    times_i,
)
from nnc.backends.printer import in_blocks, load_parts, store_parts, times
from nnc.base.dtypes import DType
from nnc.lower.kernels.builder import Code, Value


@dataclass(frozen=True)
class Transform:
    """One of the transforms: n points along an axis, `sign` in the exponent; `real`: which side has real numbers."""

    n: int
    sign: int
    real: str = ""

    @property
    def packed(self) -> bool:
        """Whether two neighbouring real numbers are one complex number."""
        return bool(self.real) and self.n % 2 == 0

    @property
    def points(self) -> int:
        """Points of the complex transform."""
        return self.n // 2 if self.packed else self.n

    def side(self, name: str, step: int, lane: int, size: int) -> Placing:
        """The layout of the input's or the result's numbers, which are `step` apart."""
        if self.real != name:
            return Placing(step, lane, size)
        return Placing(2 * step, lane, step) if self.packed else Placing(step, lane, None)

    @property
    def held(self) -> int:
        """Points that a buffer must hold."""
        return max(buffer_points(self.points), self.points + self.packed)

    def moved(self, name: str) -> int:
        """Points that are read or written."""
        return self.n // 2 + 1 if self.real and self.real != name else self.points


def _unpack(code: Code, a: Pair, b: Pair, w: Pair) -> tuple[Pair, Pair]:
    """Bins k and n / 2 - k of 2 m real numbers, from the same bins of the m complex numbers that they are; w = exp(-2πi k / n)."""
    half = code.like(a.re, 0.5)
    even, odd = add(code, a, conj(code, b)), times_i(code, sub(code, a, conj(code, b)), -1)
    even, odd = (Pair(code.mul(x.re, half), code.mul(x.im, half)) for x in (even, odd))
    turned = mul(code, odd, w)
    return add(code, even, turned), conj(code, sub(code, even, turned))


def _pack(code: Code, a: Pair, b: Pair, w: Pair) -> tuple[Pair, Pair]:
    """The way back of `_unpack`, without its halves; w = exp(2πi k / n)."""
    even, odd = add(code, a, conj(code, b)), mul(code, sub(code, a, conj(code, b)), w)
    turned = times_i(code, odd, 1)
    return add(code, even, turned), conj(code, sub(code, even, turned))


def _ends(code: Code, kind: Transform, x: Pair, y: Pair) -> tuple[Pair, Pair]:
    """Bins 0 and n / 2, which are real: of a forward transform both come from bin 0 of `x`, else both become bin 0."""
    if kind.real == "in":
        zero = code.like(x.re, 0)
        return Pair(code.add(x.re, x.im), zero), Pair(code.sub(x.re, x.im), zero)
    return Pair(code.add(x.re, y.re), code.sub(x.re, y.re)), y


def _declare_roots(code: Code, kind: Transform, real: DType) -> str:
    return table(code, "halves", roots(kind.n, np.arange(kind.n // 4 + 1), kind.sign), real)


def convert_bins(code: Code, kind: Transform, buffer: Points) -> None:
    """Turns the bins of packed numbers into those of real numbers, or back."""
    h, change = kind.points, _unpack if kind.real == "in" else _pack
    halves = _declare_roots(code, kind, buffer.real)
    first = buffer.load(0)
    x, y = _ends(code, kind, first, buffer.load(h) if kind.real == "out" else first)
    buffer.store(0, x)
    buffer.store(h, y)
    with code.loop(1, h // 2 + 1) as k:
        mirror = code.sub(code.integer(h), k)
        x, y = change(code, buffer.load(k), buffer.load(mirror), entry(code, halves, k, buffer.real))
        buffer.store(mirror, y)
        buffer.store(k, x)


def mirror_bins(code: Code, n: int, buffer: Points) -> None:
    """Completes the bins of an odd number of real numbers."""
    first = buffer.load(0)
    buffer.store(0, Pair(first.re, code.like(first.re, 0)))
    with code.loop(1, n // 2 + 1) as k:
        buffer.store(code.sub(code.integer(n), k), conj(code, buffer.load(k)))


def convert_row(code: Code, kind: Transform, real: DType, source: str, target: str, most: int) -> None:
    """Does the same in memory, to neighbouring bins of one transform at once."""
    h = kind.points
    element, change = 2 * real.itemsize, _unpack if kind.real == "in" else _pack
    halves = _declare_roots(code, kind, real)
    first = Pair(*load_parts(code, source, real, 0))
    last = Pair(*load_parts(code, code.offset(source, h * element), real, 0)) if kind.real == "out" else first
    for place, x in zip((0, h) if kind.real == "in" else (0,), _ends(code, kind, first, last), strict=False):
        store_parts(code, code.offset(target, place * element), *x)

    def block(k: Value, lanes: int) -> None:
        near, far = times(code, k, element), times(code, code.sub(code.integer(h - max(lanes - 1, 0)), k), element)
        a, w = (Pair(*load_parts(code, code.offset(p, near), real, lanes)) for p in (source, halves))
        b = _reversed(code, Pair(*load_parts(code, code.offset(source, far), real, lanes)))
        x, y = change(code, a, b, w)
        store_parts(code, code.offset(target, far), *_reversed(code, y))
        store_parts(code, code.offset(target, near), *x)

    in_blocks(code, 1, h // 2 + 1, most, block)


def _reversed(code: Code, x: Pair) -> Pair:
    """The numbers in the opposite order of lanes."""
    lanes = x.re.lanes
    return Pair(*(code.shuffle(part, range(lanes - 1, -1, -1)) for part in x)) if lanes else x
