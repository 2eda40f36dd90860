"""Terms of entropies and divergences, Box and Cox's transformation, and shares that sum to 1."""

from __future__ import annotations

import math

from nnc.array.array import Array
from nnc.calls.spelling import spelled
from nnc.nn import activations
from nnc.numpy import elementwise as el
from nnc.numpy.operands import keeps_weakness
from nnc.numpy.special import xlogy
from nnc.numpy.wide import in_float64, keep
from nnc.scipy.special.pieces import log_gap
from nnc.trace.core.custom import custom_jvp
from nnc.typing import ArrayLike

__all__ = ["boxcox", "boxcox1p", "entr", "kl_div", "log_softmax", "rel_entr", "softmax"]


@custom_jvp
def _entr(x: Array) -> Array:
    return el.where(x < 0, -math.inf, 0 - xlogy(x, x))


_entr.defjvps(lambda t, result, x: t * el.where(x < 0, 0.0, -1 - el.log(keep(~(x < 0), x, 1.0))))


@spelled
def entr(x: ArrayLike, /) -> Array:
    """Returns -x log(x), the entropy's term of a probability: 0 at 0, -∞ below.

    Args:
        x: real, any shape; integers become float32.

    Example:
        >>> entr(np.asarray([0.0, 0.5, 1.0]))
        Array([0.        , 0.34657359, 0.        ], dtype=float64)
    """
    return in_float64("entr", _entr, x)


def _rel_entr(p: Array, q: Array) -> Array:
    inside = el.logical_and(p > 0, q > 0)
    empty = el.logical_and(el.equal(p, 0), q >= 0)
    unknown = el.logical_or(el.isnan(p), el.isnan(q))
    x, y = keep(inside, p, 1.0), keep(inside, q, 1.0)
    near = abs(x - y) < 0.5 * y
    change = el.where(near, (x - y) / y, 0.0)
    logarithm = el.where(near, el.log1p(change), el.log(x) - el.log(y))
    return el.where(inside, x * logarithm, el.where(unknown, math.nan, el.where(empty, 0.0, math.inf)))


@spelled
def rel_entr(p: ArrayLike, q: ArrayLike, /) -> Array:
    """Returns p log(p / q), the term of the relative entropy: 0 where p is 0, ∞ where p or q is negative or q alone is 0.

    Args:
        p: real, any shape; broadcasts with `q`. Integers become float32.
        q: real, any shape.

    Example:
        >>> rel_entr(np.float64(0.5), np.asarray([0.25, 0.5]))
        Array([0.34657359, 0.        ], dtype=float64)
    """
    return in_float64("rel_entr", _rel_entr, p, q)


def _kl_div(p: Array, q: Array) -> Array:
    """Near p = q as q g((p - q) / q) with g(μ) = (1 + μ) log(1 + μ) - μ, from which μ² is split off."""
    relative = _rel_entr(p, q)
    finite = el.logical_and(abs(relative) < math.inf, el.logical_and(p < math.inf, q < math.inf))
    near = el.logical_and(el.logical_and(finite, p > 0), abs(keep(finite, p, 0.0) - keep(finite, q, 1.0)) < 0.5 * q)
    y = keep(near, q, 1.0)
    mu = (keep(near, p, 1.0) - y) / y
    regular = el.logical_and(finite, ~near)
    total = keep(regular, relative, 0.0) - keep(regular, p, 0.0) + keep(regular, q, 0.0)
    return el.where(near, y * (mu * mu - (1 + mu) * log_gap(mu)), el.where(regular, total, relative))


@spelled
def kl_div(p: ArrayLike, q: ArrayLike, /) -> Array:
    """Returns p log(p / q) - p + q, a term of Kullback and Leibler's divergence that is never negative; exact near p = q.

    Args:
        p: real, any shape; broadcasts with `q`. Integers become float32.
        q: real, any shape.

    Example:
        >>> kl_div(np.float64(0.5), np.asarray([0.25, 0.5]))
        Array([0.09657359, 0.        ], dtype=float64)
    """
    return in_float64("kl_div", _kl_div, p, q)


def _power_less_one(logarithm: Array, power: Array) -> Array:
    """(e^(power · logarithm) - 1) / power, and the logarithm for power 0, whose derivatives by the power are those of a series."""
    straight = el.logical_and(el.equal(power, 0), ~(abs(logarithm) < math.inf))
    product = keep(~straight, power, 1.0) * keep(~straight, logarithm, 0.0)
    small = abs(product) < 0.01
    x = keep(small, product, 0.0)
    total = 0.0 * x + 1
    for k in range(8, 1, -1):
        total = 1 + x * total / k
    large = el.expm1(keep(~small, product, 1.0)) / keep(~small, power, 1.0)
    return el.where(straight, logarithm, el.where(small, keep(small & ~straight, logarithm, 1.0) * total, large))


@spelled
def boxcox(x: ArrayLike, lmbda: ArrayLike, /) -> Array:
    """Returns Box and Cox's transformation, (x^lmbda - 1) / lmbda, and log(x) for lmbda 0.

    Args:
        x: at least 0, any shape; broadcasts with `lmbda`. Integers become float32.
        lmbda: the power, any shape.

    Example:
        >>> boxcox(np.float64(4.0), np.asarray([0.0, 0.5]))
        Array([1.38629436, 2.        ], dtype=float64)
    """
    return in_float64("boxcox", lambda x, power: _power_less_one(el.log(x), power), x, lmbda)


@spelled
def boxcox1p(x: ArrayLike, lmbda: ArrayLike, /) -> Array:
    """Returns Box and Cox's transformation of 1 + x, exact for small x.

    Args:
        x: at least -1, any shape; broadcasts with `lmbda`. Integers become float32.
        lmbda: the power, any shape.

    Example:
        >>> boxcox1p(np.float64(1e-20), 0.5)
        Array(1.e-20, dtype=float64)
    """
    return in_float64("boxcox1p", lambda x, power: _power_less_one(el.log1p(x), power), x, lmbda)


@keeps_weakness
def softmax(x: ArrayLike, /, *, axis: int | tuple[int, ...] | None = None) -> Array:
    """Returns exp(x) divided by its sum over `axis`, without overflow; see `nnc.nn.softmax`.

    Args:
        x: real, any shape.
        axis: the axes that sum to 1; None all.

    Example:
        >>> softmax(np.zeros((2, 2)))
        Array([[0.25, 0.25],
               [0.25, 0.25]], dtype=float64)
    """
    return activations.softmax(x, axis)


@keeps_weakness
def log_softmax(x: ArrayLike, /, *, axis: int | tuple[int, ...] | None = None) -> Array:
    """Returns the logarithm of `softmax`, without overflow.

    Args:
        x: real, any shape.
        axis: the axes that sum to 1; None all.

    Example:
        >>> log_softmax(np.zeros(2))
        Array([-0.69314718, -0.69314718], dtype=float64)
    """
    return activations.log_softmax(x, axis)
