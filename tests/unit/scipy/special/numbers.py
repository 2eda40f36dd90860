"""Values and derivatives of special functions to 17 digits, in numbers.json.

python -m tests.unit.scipy.special.numbers [name ...]        renews the rows of these functions, or all; needs mpmath
"""

from __future__ import annotations

import itertools
import json
import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

mp: Any = pytest.importorskip("mpmath")  # the tests need the stored numbers alone
TEXT = Path(__file__).with_suffix(".json")
Points = list[tuple[float, ...]]


@dataclass(frozen=True)
class Row:
    """A function of mpmath, points at which its values are stored, and orders of the derivatives that are stored, too."""

    function: Callable[..., Any]
    points: Points
    derivatives: tuple[tuple[int, ...], ...] = ()
    derived: Points | None = None  # points of the derivatives, where they are fewer
    digits: int = 60  # with which mpmath computes; differences lose as many as a derivative is smaller than the value


def grid(*axes: Iterable[float]) -> Points:
    """All combinations of numbers of the axes."""
    return list(itertools.product(*axes))


def betainc(a: Any, b: Any, x: Any) -> Any:
    """The incomplete beta function by Didonato and Morris's continued fraction, which is fast for large parameters."""
    if x * (a + b + 2) > a + 1:
        return 1 - betainc(b, a, 1 - x)
    gap, count = a - (a + b) * x, 400 if a + b < 1000 else 1500

    def term(n: int) -> Any:
        first = n + n * (b - n) * x / (a + 2 * n - 1) if n else 0
        return first + (a + n) / (a + 2 * n + 1) * (gap + 1 + n * (2 - x))

    total = term(count)
    for n in range(count, 0, -1):
        total = term(n - 1) + (a + n - 1) * (a + b + n - 1) * n * (b - n) * (x / (a + 2 * n - 1)) ** 2 / total
    return x**a * (1 - x) ** b / mp.beta(a, b) / total


def rows() -> dict[str, Row]:
    """The functions that are stored."""
    tails = [-37.6, -31.92, -20.3, -8.1, -3.0, -1.01, -0.99, -1e-9, 0.0, 1e-20, 0.4, 1.3, 5.7, 9.0, 36.0]
    half = mp.mpf(1) / 2

    def ndtr(x: Any) -> Any:
        return mp.erfc(-x / mp.sqrt(2)) / 2

    def log_ndtr(x: Any) -> Any:
        return mp.log(ndtr(x)) if x < 0 else mp.log1p(-ndtr(-x))

    def ndtri(p: Any) -> Any:
        guess = (
            mp.sqrt(-2 * mp.log(min(p, 1 - p))) * (1 if p > half else -1) if abs(p - half) > 0.4 else (p - half) * 2.5
        )
        if p < half:
            return mp.findroot(lambda x: mp.log(ndtr(x) / p), guess)
        return mp.findroot(lambda x: mp.log(ndtr(-x) / (1 - p)), guess)

    def lower(a: Any, x: Any) -> Any:
        return mp.gammainc(a, 0, x, regularized=True)

    def upper(a: Any, x: Any) -> Any:
        return mp.gammainc(a, x, mp.inf, regularized=True)

    gammas = [
        *grid([1e-8, 0.003, 0.4, 1.0, 2.5, 11.0, 39.0], [1e-5, 0.02, 0.7, 1.4, 1.6, 5.0, 30.0]),
        (39.0, 45.0), (41.0, 31.0), (41.0, 44.0), (60.0, 110.0), (150.0, 20.0), (150.0, 70.0), (150.0, 149.0), (150.0, 300.0),
        (2000.0, 1900.0), (2000.0, 2050.0), (5000.0, 2000.0),
    ]  # fmt: skip
    plane = [
        *grid([0.0, 1e-9, 0.02, 0.8, 2.5, -4.1, 5.9], [0.0, 1e-30, 1e-6, 0.03, 0.9, 3.9, 4.1, 20.0, -1e-6, -0.9, -4.1, -20.0]),
        *grid([6.1, -7.9, 8.1, 12.0], [0.0, 1e-30, 2e-10, 0.09, 0.11, 3.9, 20.0, -1e-30, -0.2, -6.0]),
        *grid([27.9, 28.1, -300.0], [0.0, 9e-11, 0.2, 300.0, -9e-11, -0.2]),
    ]  # fmt: skip

    def wofz(x: Any, y: Any) -> Any:
        z = mp.mpc(x, y)
        return mp.exp(-z * z) * mp.erfc(-1j * z)

    both = [
        (0.3, 0.2),
        (0.3, 1.2),
        (0.3, 4.0),
        (2.5, 0.4),
        (2.5, 2.7),
        (2.5, 9.0),
        (30.0, 22.0),
        (30.0, 41.0),
        (45.0, 47.0),
    ]
    second = ((1, 0), (0, 1), (2, 0), (1, 1), (0, 2))
    sizes = [1e-9, 0.003, 0.4, 1.0, 3.3, 7.9, 8.1, 40.0, 3000.0, 1e9]
    return {
        "gamma": Row(mp.gamma, grid([1e-200, 1e-9, 0.3, 1.0, 1.4616, 2.0, 4.7, 11.9, 12.1, 33.4, 100.5, 171.6, -1e-9, -0.4, -3.7,
                                     -20.2, -100.3, -170.6]), ((1,), (2,)), grid([0.3, 1.3, 2.0, 4.7, 11.9, 33.4, -0.4, -3.7])),
        "digamma": Row(
            mp.digamma,
            grid([1e-200, 1e-9, 0.3, 0.9999, 1.0, 1.2, 1.4616, 1.46163214, 1.47, 1.99, 2.0, 2.08, 3.7, 11.9, 12.1, 33.4, 1e8, -1e-9,
                  -0.4, -0.999999, -3.998996782, -20.2, -100.3]), ((1,), (2,)), grid([0.3, 1.3, 2.0, 4.7, 11.9, 33.4, -0.4, -3.7]),
        ),
        "betaln": Row(
            lambda a, b: mp.loggamma(a) + mp.loggamma(b) - mp.loggamma(a + b),
            [*grid(sizes, sizes), (-0.5, 2.2)], second, grid(sizes, [0.003, 1.0, 7.9, 40.0]),
        ),
        "beta": Row(mp.beta, grid([1e-9, 0.4, 3.3, 8.1, 40.0, 160.0], [1e-9, 0.4, 3.3, 40.0, 200.0, -2.3]), second,
                    grid([0.4, 3.3, 40.0], [0.4, 3.3, 40.0, -2.3])),
        "betainc": Row(
            betainc,
            [*grid([0.003, 0.4, 1.0, 3.0, 9.0, 70.0], [0.4, 1.0, 3.3, 8.5, 90.0], [1e-6, 0.2, 0.49, 0.73, 0.98]),
             (2900.0, 3100.0, 0.47), (2900.0, 3100.0, 0.6), (3100.0, 4e4, 0.07), (4e4, 3100.0, 0.93), (4e4, 4e4, 0.5),
             (1e5, 2e5, 0.3342), (1e5, 30.0, 0.9996), (20.0, 1e7, 3e-6), (1e7, 0.5, 1 - 2.0**-24)],
            ((1, 0, 0), (0, 1, 0), (0, 0, 1), (2, 0, 0), (1, 1, 0), (0, 1, 1), (0, 0, 2)),
            [(0.4, 0.3, 0.2), (2.5, 0.6, 0.7), (2.5, 0.6, 0.99), (3.0, 4.0, 0.45), (9.0, 20.0, 0.1), (30.0, 50.0, 0.4),
             (0.3, 12.0, 0.01), (12.0, 0.3, 0.9), (1e4, 2e4, 0.335), (0.001, 2.0, 0.5)],
        ),
        "gammainc": Row(lower, gammas, second, both),
        "gammaincc": Row(upper, gammas, second, both),
        "hyp1f1": Row(
            mp.hyp1f1, grid([0.4, 2.5, -0.5, -3.0], [0.7, 3.5], [-900.0, -30.0, -2.0, 0.3, 5.0, 60.0])[:42],
            ((1, 0, 0), (0, 1, 0), (0, 0, 1), (2, 0, 0)),
            [(0.4, 1.3, 2.0), (2.5, 3.5, -4.0), (1.0, 2.0, 30.0), (3.0, 2.5, -1.0), (-0.5, 1.5, 0.7), (-2.0, 1.5, 0.7)],
        ),
        "hyp2f1": Row(
            mp.hyp2f1, grid([0.4, 2.5, -1.3], [0.7, 3.0], [0.6, 2.0, 4.4], [-1e6, -3.0, -0.2, 0.4, 0.74, 0.76, 0.98, 1 - 2.0**-30]),
            ((1, 0, 0, 0), (0, 1, 0, 0), (0, 0, 1, 0), (0, 0, 0, 1)),
            [(0.4, 1.3, 2.0, 0.6), (2.5, 3.5, 4.0, -4.0), (1.0, 2.0, 3.0, 0.97), (3.0, 2.5, 1.0, -1.0), (-2.0, 1.5, 0.7, 0.4)],
        ),
        "zeta": Row(
            lambda s, q: mp.zeta(s, q), grid([1.000001, 1.7, 2.0, 5.5, 30.0], [0.004, 0.7, 1.0, 3.3, 60.0, 4000.0]),
            ((1, 0), (0, 1), (2, 0)),
            grid([1.7, 5.5], [0.4, 3.3, 60.0]), digits=120,
        ),
        "riemann": Row(
            mp.zeta, grid([-60.3, -21.5, -7.7, -2.0, -0.5, 0.0, 0.5, 0.999, 1.001, 2.0, 7.7, 40.0]), ((1,), (2,)),
            grid([-3.5, -0.4, 0.5, 2.0, 7.7]),
        ),
        "expi": Row(
            mp.ei, grid([-600.0, -30.0, -1.6, -1.4, -0.1, 1e-30, 0.1, 0.37, 0.3725, 0.3726, 0.5, 1.7, 9.0, 39.0, 41.0, 700.0]),
            ((1,), (2,)), grid([-3.0, -0.2, 0.4, 5.0, 50.0]),
        ),
        "exp1": Row(mp.e1, grid([1e-30, 0.01, 0.6, 1.49, 1.51, 9.0, 700.0])),
        "spence": Row(
            lambda x: mp.polylog(2, 1 - x), grid([1e-9, 0.2, 0.49, 0.51, 0.9999, 1.3, 1.99, 2.01, 30.0, 1e9]), ((1,), (2,)),
            grid([0.2, 0.6, 0.9999, 1.3, 30.0]),
        ),
        "ndtr": Row(ndtr, grid(tails), ((1,), (2,)), digits=640),
        "log_ndtr": Row(log_ndtr, grid([-1e4, -300.0, *tails]), ((1,), (2,)), digits=640),
        "ndtri": Row(
            ndtri, grid([1e-300, 1e-40, 1e-9, 0.02, 0.075, 0.3, 0.5000001, 0.7, 0.93, 0.999999]), ((1,), (2,)),
            digits=640,
        ),
        "erfcx": Row(
            lambda x: mp.exp(x * x) * mp.erfc(x), grid([-26.0, -5.5, -0.3, 0.0, 0.49, 0.51, 3.0, 11.0, 27.9, 28.1, 300.0]),
            ((1,), (2,)),
        ),
        "wofz_real": Row(lambda x, y: mp.re(wofz(x, y)), plane, digits=300),
        "wofz_imag": Row(lambda x, y: mp.im(wofz(x, y)), plane, digits=300),
    }  # fmt: skip


def digits(row: Row) -> dict[str, Any]:
    """The values of a row."""

    def value(point: tuple[float, ...], order: tuple[int, ...]) -> float:
        exact = [mp.mpf(x) for x in point]
        f = row.function(*exact) if not any(order) else mp.diff(row.function, tuple(exact), order)
        return float(mp.chop(mp.re(f), mp.mpf(10) ** -320))

    mp.mp.dps = row.digits
    zero = (0,) * len(row.points[0])
    points = {zero: row.points, **dict.fromkeys(row.derivatives, row.derived or row.points)}
    return {",".join(map(str, order)): [[*point, value(point, order)] for point in at] for order, at in points.items()}


def main(names: list[str]) -> None:
    """Renews rows."""
    table = rows()
    stored = json.loads(TEXT.read_text()) if TEXT.exists() else {}
    for name in names or table:
        stored[name] = digits(table[name])
    lines = [
        f'"{name}": {{\n'
        + ",\n".join(f' "{order}": {json.dumps(values)}' for order, values in stored[name].items())
        + "\n}"
        for name in sorted(stored)
    ]
    TEXT.write_text("{\n" + ",\n".join(lines) + "\n}\n")


if __name__ == "__main__":
    main(sys.argv[1:])
