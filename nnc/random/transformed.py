"""Draws that are a formula of uniform, normal or exponential ones; differentiable in their parameters.

They have the same bits however they run. Values agree with jax.random for the same key up to rounding.
"""

from __future__ import annotations

from nnc.array.array import Array
from nnc.base import dtypes
from nnc.commands import elementwise as ew
from nnc.commands.draws import portable_exp, portable_log, tan_of_turns
from nnc.numpy import elementwise as el
from nnc.numpy.operands import to_shape
from nnc.random.continuous import exponential, normal, uniform
from nnc.random.exact import finfo, power, sum_last, times
from nnc.random.keys import read_key, split
from nnc.random.parameters import float_dtype, in_single, read_together
from nnc.typing import ArrayLike, DTypeLike, ShapeLike

__all__ = ["cauchy", "logistic", "lognormal", "maxwell", "pareto", "rayleigh", "triangular", "wald", "weibull_min"]


@in_single
def cauchy(key: ArrayLike, shape: ShapeLike = (), dtype: DTypeLike = dtypes.float32) -> Array:
    """Numbers of the standard Cauchy distribution: tan(π (u − 1/2)).

    Args:
        key: a key that is used for nothing else.
        shape: shape of the draw.
        dtype: a floating-point dtype.

    Example:
        >>> nnc.random.cauchy(nnc.random.key(0), (3,)).shape
        (3,)
    """
    dtype = float_dtype(dtype, "nnc.random.cauchy")
    u = uniform(key, shape, dtype, float(finfo(dtype).eps), 1.0)
    return tan_of_turns(u - 0.5)


@in_single
def logistic(key: ArrayLike, shape: ShapeLike = (), dtype: DTypeLike = dtypes.float32) -> Array:
    """Numbers of the standard logistic distribution: log(u / (1 − u)).

    Args:
        key: a key that is used for nothing else.
        shape: shape of the draw.
        dtype: a floating-point dtype.

    Example:
        >>> nnc.random.logistic(nnc.random.key(0), (3,)).shape
        (3,)
    """
    dtype = float_dtype(dtype, "nnc.random.logistic")
    u = uniform(key, shape, dtype, dtype.type(finfo(dtype).tiny), 1.0)
    return portable_log(u) - portable_log(1 - u)


@in_single
def lognormal(
    key: ArrayLike, sigma: ArrayLike = 1.0, shape: ShapeLike | None = None, dtype: DTypeLike = dtypes.float32
) -> Array:
    """Numbers whose logarithm is normal with mean 0 and standard deviation `sigma`.

    Args:
        key: a key that is used for nothing else.
        sigma: any shape.
        shape: by default the shape of `sigma`.
        dtype: a floating-point dtype.

    Example:
        >>> bool((nnc.random.lognormal(nnc.random.key(0), 0.5, (10,)) > 0).all())
        True
    """
    where = "nnc.random.lognormal"
    (sigma,), shape, dtype = read_together(where, dtype, shape, sigma=sigma)
    return portable_exp(times(normal(key, shape, dtype), sigma))


@in_single
def pareto(key: ArrayLike, b: ArrayLike, shape: ShapeLike | None = None, dtype: DTypeLike = dtypes.float32) -> Array:
    """Numbers of the Pareto distribution, from 1 on, with density b x^(−b−1).

    Args:
        key: a key that is used for nothing else.
        b: positive, any shape.
        shape: by default the shape of `b`.
        dtype: a floating-point dtype.

    Example:
        >>> bool((nnc.random.pareto(nnc.random.key(0), 2.0, (10,)) >= 1).all())
        True
    """
    where = "nnc.random.pareto"
    (b,), shape, dtype = read_together(where, dtype, shape, b=b)
    return portable_exp(exponential(key, shape, dtype) / b)


@in_single
def rayleigh(
    key: ArrayLike, scale: ArrayLike, shape: ShapeLike | None = None, dtype: DTypeLike = dtypes.float32
) -> Array:
    """Numbers of the Rayleigh distribution, the length of a normal vector of two elements: scale · √(−2 log u).

    Args:
        key: a key that is used for nothing else.
        scale: any shape.
        shape: by default the shape of `scale`.
        dtype: a floating-point dtype.

    Example:
        >>> nnc.random.rayleigh(nnc.random.key(0), 2.0, (3,)).shape
        (3,)
    """
    where = "nnc.random.rayleigh"
    (scale,), shape, dtype = read_together(where, dtype, shape, scale=scale)
    u = el.maximum(uniform(key, shape, dtype), dtype.type(finfo(dtype).tiny))  # 0 would give infinity
    return times(scale, ew.sqrt(portable_log(u) * -2))


@in_single
def weibull_min(
    key: ArrayLike, scale: ArrayLike, concentration: ArrayLike, shape: ShapeLike = (), dtype: DTypeLike = dtypes.float32
) -> Array:
    """Numbers of the Weibull distribution: scale · (−log(1 − u))^(1 / concentration).

    Args:
        key: a key that is used for nothing else.
        scale: positive; broadcasts to `shape`.
        concentration: positive; broadcasts to `shape`.
        shape: shape of the draw.
        dtype: a floating-point dtype.

    Raises:
        ShapeError: they do not broadcast to `shape`.

    Example:
        >>> nnc.random.weibull_min(nnc.random.key(0), 2.0, 1.5, (3,)).shape
        (3,)
    """
    where = "nnc.random.weibull_min"
    (scale, concentration), shape, dtype = read_together(where, dtype, shape, scale=scale, concentration=concentration)
    return times(power(exponential(key, shape, dtype), 1 / concentration), scale)


@in_single
def triangular(
    key: ArrayLike,
    left: ArrayLike,
    mode: ArrayLike,
    right: ArrayLike,
    shape: ShapeLike | None = None,
    dtype: DTypeLike = dtypes.float32,
) -> Array:
    """Numbers from `left` to `right` whose density rises to `mode` and falls from there, along straight lines.

    Args:
        key: a key that is used for nothing else.
        left: lower end; broadcasts with `mode` and `right`.
        mode: where the density is greatest.
        right: upper end.
        shape: by default the shape of the three together.
        dtype: a floating-point dtype.

    Example:
        >>> nnc.random.triangular(nnc.random.key(0), 0.0, 1.0, 3.0, (3,)).shape
        (3,)
    """
    where = "nnc.random.triangular"
    (left, mode, right), shape, dtype = read_together(where, dtype, shape, left=left, mode=mode, right=right)
    u, width = uniform(key, shape, dtype), right - left
    rising = left + ew.sqrt(u * width * (mode - left))
    falling = right - ew.sqrt((1 - u) * width * (right - mode))
    return el.where(u < (mode - left) / width, rising, falling)


@in_single
def maxwell(key: ArrayLike, shape: ShapeLike = (), dtype: DTypeLike = dtypes.float32) -> Array:
    """Numbers of the Maxwell distribution, the length of a normal vector of three elements.

    Args:
        key: a key that is used for nothing else.
        shape: shape of the draw.
        dtype: a floating-point dtype.

    Example:
        >>> nnc.random.maxwell(nnc.random.key(0), (3,)).shape
        (3,)
    """
    where = "nnc.random.maxwell"
    x = normal(key, (*to_shape(shape, where), 3), float_dtype(dtype, where))
    return ew.sqrt(sum_last(times(x, x)))


@in_single
def wald(key: ArrayLike, mean: ArrayLike, shape: ShapeLike | None = None, dtype: DTypeLike = dtypes.float32) -> Array:
    """Numbers of the Wald (inverse Gaussian) distribution with scale 1 (Michael, Schucany and Haas, 1976).

    Args:
        key: a key that is used for nothing else.
        mean: positive, any shape.
        shape: by default the shape of `mean`.
        dtype: a floating-point dtype.

    Example:
        >>> bool((nnc.random.wald(nnc.random.key(0), 2.0, (10,)) > 0).all())
        True
    """
    where = "nnc.random.wald"
    (mean,), shape, dtype = read_together(where, dtype, shape, mean=mean)
    normal_key, uniform_key = split(read_key(key, where))
    x, inverse = normal(normal_key, shape, dtype), 1 / mean
    half = times(x, x) * 0.5
    # 1 / x of the smaller root: nothing cancels
    total = inverse + half + times(ew.abs_(x), ew.sqrt(inverse + half * 0.5))
    ratio = times(mean, total)  # of the larger root to the mean, and of the mean to the smaller one
    return el.where(uniform(uniform_key, shape, dtype) <= ratio / (ratio + 1), 1 / total, times(mean, ratio))
