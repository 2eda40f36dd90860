"""Spherical harmonics."""

from __future__ import annotations

import math
from typing import Any

from nnc.array.array import Array
from nnc.array.promote import astype, broadcast, promote, weakness_of_result, with_weakness
from nnc.base import dtypes
from nnc.calls.spelling import spelled
from nnc.commands import elementwise as ew
from nnc.commands.elementwise import FLOAT
from nnc.commands.rules import check_dtype
from nnc.errors import UnsupportedError, user_error
from nnc.graph import spec_of
from nnc.numpy import elementwise as el
from nnc.numpy.operands import to_value
from nnc.numpy.reductions import max as max_
from nnc.numpy.wide import keep
from nnc.scipy.special.operands import order_of
from nnc.trace.loops.control_flow import while_loop
from nnc.typing import ArrayLike

__all__ = ["sph_harm_y"]


def _legendre(n: Array, m: Array, cosine: Array, sine: Array, count: Array) -> Array:
    """Legendre's functions, normalised so that their squares over the sphere sum to 1, for 0 <= m <= n (DLMF 14.10.3).

    Along the diagonal up to order m, then upwards in the degree to n.
    """

    def step(carry: tuple[Array, Array, Array]) -> tuple[Array, Array, Array]:
        k, below, here = carry
        degree = k + 1
        diagonal = -el.sqrt((2 * degree + 1) / (2 * degree)) * sine * here
        up = degree > m
        gap = keep(up, degree * degree - m * m, 1.0)
        last = keep(up, (degree - 1) * (degree - 1) - m * m, 0.0)
        factor = el.sqrt((2 * degree + 1) / gap)
        previous = keep(degree > 1.5, 2 * degree - 3, 1.0)
        raised = factor * (el.sqrt(2 * degree - 1) * cosine * here - el.sqrt(el.maximum(last, 0.0) / previous) * below)
        following = el.where(up, raised, diagonal)
        taken = degree <= n
        return degree, el.where(taken, el.where(up, here, 0.0), below), el.where(taken, following, here)

    start = 0 * cosine + math.sqrt(0.25 / math.pi)
    _, _, value = while_loop(lambda carry: carry[0] < count - 0.5, step, (0 * count, 0 * start, start))
    return value


@spelled
def sph_harm_y(
    n: ArrayLike, m: ArrayLike, theta: ArrayLike, phi: ArrayLike, diff_n: int | None = None, n_max: int | None = None
) -> Array:
    """Returns the spherical harmonic of degree n and order m, with the sign (-1)^m of Condon and Shortley.

    Y = √((2n + 1) / 4π · (n - m)! / (n + m)!) · P(n, m, cos θ) · e^(i m φ)

    Args:
        n: the degrees, integers of 0 or more, any shape; all operands broadcast.
        m: the orders, integers; the result is 0 for |m| > n.
        theta: polar angles, from 0 to π, real; integers become float32.
        phi: azimuthal angles.
        diff_n: must be None; take derivatives by transforms.
        n_max: the largest degree, static; None asks `n`. Results of higher degrees are NaN.

    Returns:
        the common shape, complex64 or, of float64 angles, complex128.

    Raises:
        DTypeError: n or m holds no integers.
        UnsupportedError: diff_n is given.

    Example:
        >>> sph_harm_y(1, 0, np.float64(0.0), np.float64(0.0))
        Array(0.48860251+0.j, dtype=complex128)
    """
    where = "sph_harm_y"
    if diff_n is not None:
        raise user_error(UnsupportedError, where, "diff_n is given.", fix="take nnc.grad or nnc.jvp of the function.")
    orders = [to_value(n, where, "n"), to_value(m, where, "m")]
    for value, name in zip(orders, ("n", "m"), strict=True):
        check_dtype(where, value.spec, dtypes.is_integer, "integers", name)
    angles = promote(theta, phi, where=where, to=dtypes.to_float)
    check_dtype(where, spec_of(angles[0]), *FLOAT, "angles")
    part = dtypes.float64 if spec_of(angles[0]).dtype == dtypes.float64 else dtypes.float32
    degree, order, polar, azimuth = broadcast(*(astype(x, dtypes.float64) for x in (*orders, *angles)), where=where)
    size = abs(order)
    inside = el.logical_and(degree >= 0, size <= degree)
    count = (
        max_(keep(inside, degree, 0.0))
        if n_max is None
        else el.add(0 * max_(degree), float(order_of(where, n_max, "n_max")))
    )
    value = _legendre(keep(inside, degree, 0.0), keep(inside, size, 0.0), el.cos(polar), el.sin(polar), count)
    value = el.where(inside, el.where(degree <= count, value, math.nan), el.where(degree < 0, math.nan, 0.0))
    flipped = el.logical_and(order < 0, el.equal(el.remainder(size, 2), 1))
    value = el.where(flipped, -value, value)
    turn = order * azimuth
    parts: list[Any] = [astype(value * el.cos(turn), part), astype(value * el.sin(turn), part)]
    result = ew.complex_(*parts)
    return with_weakness(result, weakness_of_result(result.spec.dtype, [theta, phi]))
