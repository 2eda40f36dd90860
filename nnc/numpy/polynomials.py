"""Polynomials as vectors of coefficients, the highest power first, as in NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np

from nnc.array.array import Array
from nnc.array.promote import promote
from nnc.base import dtypes
from nnc.calls.spelling import spelled
from nnc.commands import constants
from nnc.errors import ArgumentError, ShapeError, user_error
from nnc.numpy import elementwise as el
from nnc.numpy import linalg
from nnc.numpy.joining import concatenate
from nnc.numpy.manipulation import matrix_transpose
from nnc.numpy.matrices import vander
from nnc.numpy.operands import in_dtype, keeps_weakness, known, static_int, to_value, to_values
from nnc.numpy.repetition import pad
from nnc.numpy.signals import convolve
from nnc.typing import ArrayLike

__all__ = ["poly", "polyadd", "polyder", "polydiv", "polyfit", "polyint", "polymul", "polysub", "polyval", "roots"]


def _coefficients(p: Any, where: str, name: str = "p") -> Array:
    p = to_value(p, where, name)
    if p.spec.ndim != 1:
        problem = f"{name} must be a vector."
        raise user_error(ShapeError, where, problem, operands={name: p.spec}, fix="pass one number for each power.")
    return p


@keeps_weakness
def polyval(p: ArrayLike, x: ArrayLike) -> Array:
    """Returns the value at `x` of the polynomial with coefficients `p`, the highest power first (Horner's scheme).

    Args:
        p: (n,), coefficients, the highest power first.
        x: any shape.

    Example:
        >>> polyval(np.asarray([1, 0, 2]), 3)
        Array(11, dtype=int64)
    """
    p, x = to_values("polyval", p=p, x=x)
    p = _coefficients(p, "polyval")
    total: Array = constants.full_like(x, 0)
    for i in range(p.spec.shape[0]):
        total = total * x + p[i]
    return total


def _both(where: str, **operands: Any) -> list[Array]:
    """Returns the coefficients of two polynomials."""
    values = to_values(where, **operands)
    return [_coefficients(p, where, name) for name, p in zip(operands, values, strict=True)]


def _same_length(where: str, p: Any, q: Any) -> list[Array]:
    p, q = promote(*_both(where, a1=p, a2=q), where=where)
    n = max(p.spec.size, q.spec.size)
    return [pad(v, (n - v.spec.size, 0)) for v in (p, q)]


@keeps_weakness
def polyadd(a1: ArrayLike, a2: ArrayLike) -> Array:
    """Returns the sum of two polynomials.

    Args:
        a1: (n,), coefficients, the highest power first.
        a2: (m,), coefficients, the highest power first.

    Example:
        >>> polyadd([1, 0, 2], [3, 4])
        Array([1, 3, 6], dtype=int64)
    """
    p, q = _same_length("polyadd", a1, a2)
    return el.add(p, q)


@keeps_weakness
def polysub(a1: ArrayLike, a2: ArrayLike) -> Array:
    """Returns the difference of two polynomials.

    Args:
        a1: (n,), coefficients, the highest power first.
        a2: (m,), coefficients, the highest power first.

    Example:
        >>> nnp.polysub(nnp.asarray([1.0, 2.0]), nnp.asarray([1.0]))
        Array([1., 1.], dtype=float32)
    """
    p, q = _same_length("polysub", a1, a2)
    return el.subtract(p, q)


@spelled
def polymul(a1: ArrayLike, a2: ArrayLike, *, strip_zeros: bool = True) -> Array:
    """Returns the product of two polynomials.

    Args:
        a1: (n,), coefficients, the highest power first.
        a2: (m,), coefficients, the highest power first.
        strip_zeros: the values are known, and leading zeros of `a1` and `a2` are left out, as in NumPy. With False
            values may be traced, and the result has the length of both less one.

    Example:
        >>> polymul([0, 1, 1], [1, -1])
        Array([ 1,  0, -1], dtype=int64)
    """
    p, q = _both("polymul", a1=a1, a2=a2)
    if strip_zeros:
        p, q = _without_leading_zeros(p), _without_leading_zeros(q)
    return convolve(p, q)


def _without_leading_zeros(p: Array) -> Array:
    """Returns the coefficients from the first that is not 0; one where all are 0."""
    places = _nonzero_places(p, "polymul")
    return p[int(places[0]) :] if places.size else p[:1]


def _nonzero_places(p: Array, where: str) -> np.ndarray[Any, Any]:
    """Raises:   TraceError: the coefficients are not known."""
    fix = "pass strip_zeros=False, which keeps zeros at the ends, so that the shape is known."
    return np.flatnonzero(known(p, where, fix))


@keeps_weakness
def polydiv(u: ArrayLike, v: ArrayLike) -> tuple[Array, Array]:
    """Returns quotient and remainder of two polynomials; the remainder keeps the length of `u`, its first powers being 0.

    Args:
        u: (n,), dividend, the highest power first.
        v: (m,), divisor; its first coefficient is not 0.

    Example:
        >>> polydiv([1.0, 0.0, -1.0], [1.0, 1.0])
        (Array([ 1., -1.], dtype=float32), Array([0., 0., 0.], dtype=float32))
    """
    u, v = promote(*_both("polydiv", u=u, v=v), where="polydiv", to=dtypes.to_float)
    rest, n = u, v.spec.size
    if u.spec.size < n:
        return constants.full(shape=(1,), dtype=u.spec.dtype, value=0), u
    quotients = []
    for i in range(u.spec.size - n + 1):
        factor = rest[i] / v[0]
        rest = rest.at[i : i + n].subtract(factor * v).at[i].set(0)
        quotients.append(factor[None])
    return concatenate(quotients), rest


@keeps_weakness
def polyder(p: ArrayLike, m: int = 1) -> Array:
    """Returns the derivative of order `m` of a polynomial.

    Args:
        p: (n,), coefficients, the highest power first.
        m: the order, 0 or more.

    Example:
        >>> polyder([1, 2, 3])
        Array([2, 2], dtype=int64)
    """
    p, times = _coefficients(p, "polyder"), _order(m, "polyder")
    for _ in range(times):
        p = p[:-1] * np.arange(p.spec.size - 1, 0, -1, dtype=np.int64) if p.spec.size > 1 else p[:0]
    return p


@keeps_weakness
def polyint(p: ArrayLike, m: int = 1, k: ArrayLike = 0) -> Array:
    """Returns the antiderivative of order `m` of a polynomial.

    Args:
        p: (n,), coefficients, the highest power first.
        m: the order, 0 or more.
        k: the constants: a number for all, or one for each order.

    Example:
        >>> polyint([2.0, 2.0], k=3)
        Array([1., 2., 3.], dtype=float32)
    """
    (p,) = promote(_coefficients(p, "polyint"), where="polyint", to=dtypes.to_float)
    times = _order(m, "polyint")
    constants = in_dtype(k, p.spec.dtype, "polyint", "k")
    for i in range(times):
        constant = constants[i] if constants.spec.ndim and constants.spec.size > 1 else constants.reshape(())
        divisors = np.arange(p.spec.size, 0, -1).astype(dtypes.real_dtype(p.spec.dtype))
        p = concatenate([p / divisors, constant[None]])
    return p


def _order(m: int, where: str) -> int:
    times = static_int(m, where, "m")
    if times < 0:
        raise user_error(ArgumentError, where, f"m is {times}.", fix="give an order of 0 or more.")
    return times


@keeps_weakness
def poly(seq_of_zeros: ArrayLike) -> Array:
    """Returns the polynomial that has these roots and the leading coefficient 1.

    Args:
        seq_of_zeros: (n,), the roots.

    Example:
        >>> poly([1.0, -1.0])
        Array([ 1.,  0., -1.], dtype=float32)
    """
    (zeros,) = promote(seq_of_zeros, where="poly", to=dtypes.to_float)
    zeros = _coefficients(zeros, "poly", "seq_of_zeros")
    one = constants.full(shape=(1,), dtype=zeros.spec.dtype, value=1)
    result = one
    for i in range(zeros.spec.size):
        result = convolve(result, concatenate([one, -zeros[i : i + 1]]))
    return result


@keeps_weakness
def roots(p: ArrayLike, *, strip_zeros: bool = True) -> Array:
    """Returns the roots of a polynomial, complex and in no particular order: eigenvalues of its companion matrix.

    Args:
        p: (n,), coefficients, the highest power first.
        strip_zeros: the values are known, and zeros at the ends of `p` are left out, as in NumPy. With False values may
            be traced; the first coefficient must not be 0.

    Example:
        >>> nnp.sort(roots(np.asarray([1.0, -3.0, 2.0])).real)
        Array([1., 2.], dtype=float64)
    """
    (p,) = promote(_coefficients(p, "roots"), where="roots", to=dtypes.to_float)
    at_zero = 0
    if strip_zeros:
        places = _nonzero_places(p, "roots")
        if not places.size:
            p = p[:1]
        else:
            at_zero = p.spec.size - 1 - int(places[-1])
            p = p[int(places[0]) : int(places[-1]) + 1]
    n = p.spec.size - 1
    zeros = constants.full(shape=(at_zero,), dtype=dtypes.complex_dtype(p.spec.dtype), value=0)
    if n < 1:
        return zeros
    below = np.eye(n, k=-1).astype(p.spec.dtype)
    companion = concatenate([(-p[1:] / p[0])[None], below[1:]])
    return concatenate([linalg.eigvals(companion), zeros])


@keeps_weakness
def polyfit(x: ArrayLike, y: ArrayLike, deg: int, *, w: ArrayLike | None = None) -> Array:
    """Returns the polynomial of degree `deg` with the least squared distance from the points (x, y), by a QR decomposition.

    Args:
        x: (points,).
        y: (points,), or (points, k) with a column for each fit.
        deg: degree of the polynomial.
        w: (points,), factors of the distances.

    Raises:
        ShapeError: there are fewer points than coefficients, or x and y do not fit together.

    Example:
        >>> nnp.round(polyfit(np.asarray([0.0, 1.0, 2.0]), np.asarray([1.0, 3.0, 5.0]), 1), 6)
        Array([2., 1.], dtype=float64)
    """
    x, y = (to_value(v, "polyfit") for v in promote(x, y, where="polyfit", to=dtypes.to_float))
    n = static_int(deg, "polyfit", "deg") + 1
    if x.spec.ndim != 1 or y.spec.ndim not in (1, 2) or y.spec.shape[0] != x.spec.size or not 1 <= n <= x.spec.size:
        problem = f"{n} coefficients are fitted to these points."
        fix = "pass vectors of one length, of at least deg + 1 points."
        raise user_error(ShapeError, "polyfit", problem, operands={"x": x.spec, "y": y.spec}, fix=fix)
    rows = vander(x, n)
    targets = y if y.spec.ndim == 2 else y[:, None]
    if w is not None:
        weights = in_dtype(w, x.spec.dtype, "polyfit", "w")[:, None]
        rows, targets = rows * weights, targets * weights
    scale = el.sqrt(el.square(abs(rows)).sum(0))
    q, r = linalg.qr(rows / scale)
    found = linalg.solve_triangular(r, matrix_transpose(el.conj(q)) @ targets) / scale[:, None]
    return found if y.spec.ndim == 2 else found[:, 0]
