"""Bessel functions of the first kind."""

from __future__ import annotations

import math

import numpy as np

from nnc.array.array import Array
from nnc.array.promote import astype, promote, weakness_of_result, with_weakness
from nnc.base import dtypes
from nnc.calls.spelling import spelled
from nnc.commands.elementwise import FLOAT
from nnc.commands.rules import check_dtype
from nnc.errors import ArgumentError, user_error
from nnc.graph import spec_of
from nnc.numpy import elementwise as el
from nnc.numpy.joining import concatenate, stack
from nnc.numpy.reductions import max as max_
from nnc.numpy.wide import keep
from nnc.scipy.special.operands import order_of
from nnc.trace.core.custom import elementwise_jvp
from nnc.trace.loops.control_flow import while_loop
from nnc.typing import ArrayLike

__all__ = ["bessel_jn"]

_FAR = 1000.0  # from here on, and from 2 v² on, Hankel's expansion has all digits
_HUGE = 1e150


def _backward(z: Array, v: int, steps: int | None) -> Array:
    """J0 … Jv of z >= 0 by recurrence from a high order, where any numbers lead to multiples of them (Miller's algorithm).

    Their sum J0 + 2 J2 + 2 J4 + … is 1.
    """
    top = max_(z)
    start = el.floor(el.maximum(top, float(v)) + 12 * el.cbrt(el.maximum(top, float(v))) + 40)
    count = start if steps is None else 0 * start + max(steps, v + 2)
    tiny = z < 1e-8
    inverse = 1 / el.where(tiny, 1.0, z)
    orders = np.arange(v + 1.0).reshape((-1,) + (1,) * z.ndim)
    factorials = np.asarray([float(math.factorial(k)) if k < 171 else math.inf for k in range(v + 1)]).reshape(
        orders.shape
    )
    nothing = 0.0 * z

    def step(carry: tuple[Array, ...]) -> tuple[Array, ...]:
        k, above, here, total, found = carry
        below = 2 * k * inverse * here - above
        even = el.equal(el.remainder(k - 1, 2), 0)
        total = total + el.where(even, el.where(k < 1.5, below, 2 * below), 0.0)
        found = found + el.where(el.equal(orders, k - 1), below, 0.0)
        scale = keep(abs(below) <= _HUGE, nothing + 1, 1 / _HUGE)
        return k - 1, here * scale, below * scale, total * scale, found * scale

    found = stack([nothing] * (v + 1))
    _, _, _, total, found = while_loop(
        lambda carry: carry[0] > 0.5, step, (count, nothing, nothing + 1e-300, nothing, found)
    )
    return el.where(tiny, el.power(0.5 * z, orders) / factorials, found / el.where(tiny, 1.0, total))


def _hankel(z: Array, v: int) -> Array:
    """J0 … Jv of large z (DLMF 10.17.3)."""
    sine, cosine = el.sin(z), el.cos(z)
    size = el.sqrt(1 / (math.pi * z))  # (cos z + sin z) / √2 is cos(z - π / 4)
    results = []
    for order in range(v + 1):
        terms = [0.0 * z + 1]
        for k in range(1, 20):
            terms.append(terms[-1] * ((4 * order * order - (2 * k - 1) ** 2) / (8 * k)) / z)
        even = sum((terms[k] * (-1) ** (k // 2) for k in range(2, 20, 2)), start=terms[0])
        odd = sum((terms[k] * (-1) ** (k // 2) for k in range(3, 20, 2)), start=terms[1])
        turned = (
            (cosine + sine, sine - cosine),
            (sine - cosine, -cosine - sine),
            (-cosine - sine, cosine - sine),
            (cosine - sine, cosine + sine),
        )[order % 4]
        results.append(size * (turned[0] * even - turned[1] * odd))
    return stack(results)


def _values(z: Array, v: int, steps: int | None) -> Array:
    size = abs(z)
    finite = size < math.inf
    far = el.logical_and(finite, size > max(_FAR, 2.0 * v * v))
    near = el.logical_and(finite, ~far)
    value = el.where(far, _hankel(keep(far, size, 2 * _FAR), v), _backward(keep(near, size, 0.0), v, steps))
    odd = (np.arange(v + 1) % 2 == 1).reshape((-1,) + (1,) * z.ndim)
    value = el.where(el.logical_and(odd, z < 0), -value, value)
    return el.where(finite, value, el.where(el.isnan(z), math.nan, 0.0))


def _bessel(v: int, steps: int | None, z: Array) -> Array:
    @elementwise_jvp
    def function(z: Array) -> Array:
        return _values(z, v, steps)

    def slope(t: Array, result: Array, z: Array) -> Array:
        """(J(n - 1) - J(n + 1)) / 2, and -J1 of order 0."""
        longer = _bessel(v + 1, steps, z)
        first = -longer[1:2]
        return t * (concatenate([first, 0.5 * (longer[:v] - longer[2:])]) if v else first)

    function.defjvps(slope)
    return function(z)


@spelled
def bessel_jn(z: ArrayLike, *, v: int, n_iter: int | None = None) -> Array:
    """Returns the Bessel functions of the first kind of the orders 0 to v.

    Errors are relative to the largest of them.

    Args:
        z: real, any shape; integers become float32.
        v: the highest order, a static integer of 0 or more.
        n_iter: the order from which the recurrence goes down, static; None begins as high as `z` needs.

    Returns:
        (v + 1, ...), the orders first.

    Raises:
        ArgumentError: v is negative, or n_iter below 1.

    Example:
        >>> bessel_jn(np.asarray([0.0, 1.0]), v=1)
        Array([[1.        , 0.76519769],
               [0.        , 0.44005059]], dtype=float64)
    """
    (x,) = promote(z, where="bessel_jn", to=dtypes.to_float)
    kind = spec_of(x).dtype
    check_dtype("bessel_jn", spec_of(x), *FLOAT, "z")
    steps = None if n_iter is None else order_of("bessel_jn", n_iter, "n_iter")
    if steps == 0:
        raise user_error(ArgumentError, "bessel_jn", "n_iter is 0.", fix="give 1 or more, or None.")
    result = astype(_bessel(order_of("bessel_jn", v, "v"), steps, astype(x, dtypes.float64)), kind)
    return with_weakness(result, weakness_of_result(kind, [z]))
