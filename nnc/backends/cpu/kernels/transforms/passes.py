"""Prints the complex Fourier transform of a few points for many lanes at once, in memory of the kernel's own.

Each lane of a vector belongs to another transform, so that all instructions are on full vectors, and lanes are never mixed.
Points are transformed by passes of radix 8, 4, 2 and odd primes between two buffers, which put the results in order (Stockham,
1966). If their number has a large prime factor, the transform is a convolution with a chirp, of a number of points that has none
(Bluestein, 1970).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from nnc.backends.printer import Bound, constant_bytes, times
from nnc.base.dtypes import DType
from nnc.lower.kernels.builder import Code, Value

NDArray = np.ndarray[Any, Any]

_LARGEST_PRIME = 13  # that a pass has as its radix


class Pair(NamedTuple):
    """A complex number, or one in each lane."""

    re: Value
    im: Value


@dataclass(frozen=True)
class Points:
    """Complex numbers in memory, for each point a vector of real parts and one of imaginary parts."""

    code: Code
    pointer: str
    real: DType
    lanes: int

    @property
    def step(self) -> int:
        """Bytes from one point to the next."""
        return 2 * self.lanes * self.real.itemsize

    def load(self, point: Bound) -> Pair:
        """Reads a point."""
        at = self.code.offset(self.pointer, times(self.code, point, self.step))
        half = self.step // 2
        return Pair(*(self.code.load(self.code.offset(at, k), self.real, self.lanes) for k in (0, half)))

    def store(self, point: Bound, x: Pair) -> None:
        """Writes a point."""
        at = self.code.offset(self.pointer, times(self.code, point, self.step))
        for k, part in zip((0, self.step // 2), x, strict=True):
            self.code.store(self.code.offset(at, k), part)


# -- complex numbers ---------------------------------------------------------------------------------------------------


def add(code: Code, x: Pair, y: Pair) -> Pair:
    """x + y."""
    return Pair(code.add(x.re, y.re), code.add(x.im, y.im))


def sub(code: Code, x: Pair, y: Pair) -> Pair:
    """x - y."""
    return Pair(code.sub(x.re, y.re), code.sub(x.im, y.im))


def mul(code: Code, x: Pair, w: Pair) -> Pair:
    """x · w."""
    re, im = Pair(*code.match(x.re, w.re)), Pair(*code.match(x.im, w.im))
    cross, direct = code.mul(im.re, im.im), code.mul(x.re, im.im)
    return Pair(code.fma(*re, code.neg(cross)), code.fma(x.im, re.im, direct))


def conj(code: Code, x: Pair) -> Pair:
    """The conjugate."""
    return Pair(x.re, code.neg(x.im))


def times_i(code: Code, x: Pair, sign: int) -> Pair:
    """x · i or x · -i."""
    return Pair(code.neg(x.im), x.re) if sign > 0 else Pair(x.im, code.neg(x.re))


def roots(n: int, powers: NDArray, sign: int) -> NDArray:
    """exp(sign · 2πi · powers / n), each rounded once: angles are brought into an eighth of the circle by integers."""
    eighths, rest = np.divmod(np.asarray(powers % n, np.int64) * 8, n)
    rest = np.where(eighths % 2, n - rest, rest) * (np.pi / 4 / n)
    cos, sin = np.cos(rest), np.sin(rest)
    swapped = (eighths + 1) // 2 % 2 == 1
    x, y = np.where(swapped, sin, cos), np.where(swapped, cos, sin)
    x = np.where((eighths + 2) // 4 % 2 == 1, -x, x)
    return np.asarray(x + 1j * sign * np.where(eighths >= 4, -y, y))


def table(code: Code, name: str, numbers: NDArray, real: DType, axis: int = -1) -> str:
    """Declares a constant of complex numbers, whose parts lie along a new axis, and returns its name."""
    parts = np.stack([numbers.real, numbers.imag], axis).astype(real)
    return constant_bytes(code, name, parts.tobytes())


def entry(code: Code, name: str, place: Bound, real: DType) -> Pair:
    """Reads a number of a table."""
    at = code.offset(name, times(code, place, 2 * real.itemsize))
    return Pair(*(code.load(code.offset(at, k), real) for k in (0, real.itemsize)))


# -- the transform -----------------------------------------------------------------------------------------------------


def radices(n: int) -> tuple[int, ...]:
    """The radices of the passes that transform n points; nothing where a prime factor is too large."""
    twos = (n & -n).bit_length() - 1
    fours = (0, min(2, twos // 2), 1)[twos % 3]
    left = twos - 2 * fours
    found, n = [*[8] * (left // 3), *[4] * fours, *[2] * (left % 3)], n >> twos
    for prime in range(3, _LARGEST_PRIME + 1, 2):
        while n % prime == 0:
            found.append(prime)
            n //= prime
    return tuple(found) if n == 1 else ()


def is_smooth(n: int) -> bool:
    """Whether passes transform n points."""
    return n == 1 or bool(radices(n))


def buffer_points(n: int) -> int:
    """Points of each buffer in which n points are transformed: n itself, or those of a convolution."""
    return n if is_smooth(n) else next(m for m in range(2 * n - 1, 4 * n) if radices(m) and max(radices(m)) <= 8)


def transform(code: Code, n: int, sign: int, buffers: tuple[Points, Points]) -> Points:
    """Transforms the first n points of the first buffer; returns the one that holds the results."""
    if is_smooth(n):
        return _passes(code, n, sign, buffers)
    m, real = buffer_points(n), buffers[0].real
    squares = roots(2 * n, np.arange(n) ** 2, sign)
    response = np.zeros(m, np.complex128)
    response[:n] = squares.conj()
    response[m - n + 1 :] = squares.conj()[:0:-1]
    chirp = table(code, f"chirp{n}", squares, real)
    shaped = table(code, f"response{n}", np.fft.fft(response) / m, real)
    source = buffers[0]
    with code.loop(0, n) as j:
        source.store(j, mul(code, source.load(j), entry(code, chirp, j, real)))
    zero = code.constant(0, real, source.lanes)
    with code.loop(n, m) as j:
        source.store(j, Pair(zero, zero))
    source = _passes(code, m, -1, buffers)
    with code.loop(0, m) as j:
        source.store(j, mul(code, source.load(j), entry(code, shaped, j, real)))
    other = buffers[source is buffers[0]]
    result = _passes(code, m, 1, (source, other))
    with code.loop(0, n) as j:
        result.store(j, mul(code, result.load(j), entry(code, chirp, j, real)))
    return result


def _passes(code: Code, n: int, sign: int, buffers: tuple[Points, Points]) -> Points:
    """With `done` points transformed already, a pass of radix r takes point q + done · (p + k · rest) to q + done · (r · p + j)."""
    source, target = buffers
    done, real = 1, source.real
    for radix in radices(n):
        left = n // done
        rest = left // radix
        powers = np.outer(np.arange(rest), np.arange(1, radix))
        name = (
            table(code, f"roots{n}_{left}{'fb'[sign > 0]}", roots(left, powers.ravel(), sign), real) if rest > 1 else ""
        )
        with code.loop(0, rest) as p:
            first = _of(code, p, radix - 1)
            twiddles = [entry(code, name, _plus(code, first, j), real) for j in range(radix - 1)] if name else []
            with code.loop(0, done) as q:
                first = code.add(q, _of(code, p, done))
                xs = [source.load(_plus(code, first, k * done * rest)) for k in range(radix)]
                ys = butterfly(code, xs, sign)
                if twiddles:
                    ys[1:] = [mul(code, y, w) for y, w in zip(ys[1:], twiddles, strict=True)]
                first = code.add(q, _of(code, p, radix * done))
                for j, y in enumerate(ys):
                    target.store(_plus(code, first, j * done), y)
        source, target = target, source
        done *= radix
    return source


def _of(code: Code, x: Value, factor: int) -> Value:
    return code.mul(x, code.integer(factor))


def _plus(code: Code, x: Value, term: int) -> Value:
    return code.add(x, code.integer(term))


def butterfly(code: Code, xs: Sequence[Pair], sign: int) -> list[Pair]:
    """The transform of a few points in registers."""
    n = len(xs)
    if n == 1:
        return list(xs)
    if n % 2:
        return _odd(code, xs, sign)
    even, odd = butterfly(code, xs[::2], sign), butterfly(code, xs[1::2], sign)
    turned = [_turned(code, x, k, n, sign) for k, x in enumerate(odd)]
    pairs = list(zip(even, turned, strict=True))
    return [add(code, x, y) for x, y in pairs] + [sub(code, x, y) for x, y in pairs]


def _turned(code: Code, x: Pair, k: int, n: int, sign: int) -> Pair:
    """x · exp(sign · 2πi · k / n), for the eighths of the circle up to a half."""
    if k == 0:
        return x
    if 4 * k == n:
        return times_i(code, x, sign)
    root = code.like(x.re, np.sqrt(0.5))
    y = times_i(code, x, sign)
    both = add(code, x, y) if 8 * k == n else sub(code, y, x)
    return Pair(code.mul(both.re, root), code.mul(both.im, root))


def _odd(code: Code, xs: Sequence[Pair], sign: int) -> list[Pair]:
    """An odd number of points: sums and differences of points that mirror each other have real factors."""
    n, half = len(xs), len(xs) // 2
    sums = [add(code, xs[k], xs[n - k]) for k in range(1, half + 1)]
    gaps = [times_i(code, sub(code, xs[k], xs[n - k]), sign) for k in range(1, half + 1)]
    total = xs[0]
    for x in sums:
        total = add(code, total, x)
    results = [total, *xs[1:]]
    for m in range(1, half + 1):
        w = roots(n, m * np.arange(1, half + 1), 1)
        even = _weighted(code, xs[0], sums, w.real)
        odd = _weighted(code, None, gaps, w.imag)
        results[m], results[n - m] = add(code, even, odd), sub(code, even, odd)
    return results


def _weighted(code: Code, start: Pair | None, xs: Sequence[Pair], factors: NDArray) -> Pair:
    """start + Σ factors · xs."""
    parts = []
    for part in (0, 1):
        total = start[part] if start is not None else None
        for x, factor in zip(xs, factors, strict=True):
            number = code.like(x[part], factor)
            total = code.mul(x[part], number) if total is None else code.fma(x[part], number, total)
        parts.append(total)
    return Pair(*parts)  # type: ignore[arg-type]
