"""Gamma draws and draws that are made of them. They move with their parameters; see nnc.commands.implicit.

They have the same bits however they run. Values agree with jax.random for the same key up to rounding.
"""

from __future__ import annotations

from typing import Any

from nnc.array.array import Array
from nnc.array.promote import astype
from nnc.base import dtypes
from nnc.commands import constants
from nnc.commands import elementwise as ew
from nnc.commands.draws import portable_exp, portable_log, portable_log1p
from nnc.commands.implicit import gamma_draw, log_gamma_draw
from nnc.commands.shape import reshape
from nnc.errors import ShapeError, user_error
from nnc.numpy import reductions as re
from nnc.numpy.operands import to_shape, to_value
from nnc.random.continuous import exponential, normal, uniform
from nnc.random.exact import power, sum_last, times
from nnc.random.keys import read_key, split
from nnc.random.parameters import float_dtype, in_single, read_parameter, read_together
from nnc.trace.core.vectorize import vmap
from nnc.trace.loops.control_flow import while_loop
from nnc.typing import ArrayLike, DTypeLike, ShapeLike

__all__ = ["beta", "chisquare", "dirichlet", "f", "gamma", "loggamma", "t"]

# -- one number --------------------------------------------------------------------------------------------------------


def _draw_one(key: Array, a: Array, dtype: dtypes.DType, logarithm: bool) -> Array:
    """Marsaglia and Tsang, "A simple method for generating gamma variables" (2000), in the order of jax.random.

    Below a = 1 the draw for a + 1 is multiplied by u^(1/a). Normal and uniform numbers are drawn in `dtype`; all else is float64,
    with a test whose terms do not cancel: d (1 − v + log v) + x²/2 = 3d (log(1 + y) − y + y²/2 − y³/3) for v = (1 + y)³.
    """
    wide, number = dtypes.float64, dtypes.float64.type
    large = a >= 1
    d = ew.select(large, a, a + 1) - number(1 / 3)
    c = number(1 / 3) / ew.sqrt(d)

    def refused(state: Any) -> Array:
        _, x, y, u = state
        square = times(x, x)
        excess = portable_log1p(y) - y + times(times(y, y), 0.5 - y * number(1 / 3))
        return (u >= 1 - times(times(square, square), 0.0331)) & (portable_log(u) >= times(d * 3, excess))

    def step(state: Any) -> Any:
        key, x_key, u_key = split(state[0], 3)
        _, x, y = while_loop(
            lambda s: s[2] <= -1, next_above, (x_key, constants.full_like(a, 0), constants.full_like(a, -1))
        )
        return key, x, y, astype(uniform(u_key, (), dtype), wide)

    def next_above(state: Any) -> Any:
        key, part = split(state[0])
        x = astype(normal(part, (), dtype), wide)
        return key, x, times(x, c)

    rest, boost_key = split(key)
    zero = constants.full_like(a, 0)
    y = while_loop(refused, step, (rest, zero, zero, constants.full_like(a, 2)))[2]  # 2 is refused
    if logarithm:
        boost = -astype(exponential(boost_key, (), dtype), wide) / a
        return portable_log(d) + times(portable_log1p(y), 3) + ew.select(large, zero, boost)
    v, boost = 1 + y, power(astype(1 - uniform(boost_key, (), dtype), wide), 1 / a)
    drawn = times(d, times(v, times(v, v)))
    return ew.select(large, drawn, times(drawn, boost))


def _draw(key: Array, a: Array, dtype: dtypes.DType, logarithm: bool) -> Array:
    """One number for each element of `a`, each from a key of its own, with the digits of `dtype`; it moves with `a`, and has its
    dtype.
    """
    keys = split(key, a.spec.size)
    constant = astype(ew.stop_gradient(reshape(a, shape=(a.spec.size,))), dtypes.float64)
    drawn = astype(vmap(lambda key, a: _draw_one(key, a, dtype, logarithm))(keys, constant), a.spec.dtype)
    return (log_gamma_draw if logarithm else gamma_draw)(reshape(drawn, shape=a.spec.shape), a)


# -- distributions -----------------------------------------------------------------------------------------------------


@in_single
def gamma(key: ArrayLike, a: ArrayLike, shape: ShapeLike | None = None, dtype: DTypeLike = dtypes.float32) -> Array:
    """Numbers of the gamma distribution with shape parameter `a` and scale 1; differentiable in `a`.

    Args:
        key: a key that is used for nothing else.
        a: positive, any shape.
        shape: by default the shape of `a`.
        dtype: a floating-point dtype.

    Raises:
        DTypeError: dtype is not floating-point.
        ShapeError: `a` does not broadcast to `shape`.

    Example:
        >>> nnc.random.gamma(nnc.random.key(0), 3.0, (2,)).shape
        (2,)
    """
    where = "nnc.random.gamma"
    (alpha,), _, dtype = read_together(where, dtype, shape, a=a)
    return _draw(read_key(key, where), alpha, dtype, False)


@in_single
def loggamma(key: ArrayLike, a: ArrayLike, shape: ShapeLike | None = None, dtype: DTypeLike = dtypes.float32) -> Array:
    """Logarithms of numbers of the gamma distribution, which are exact also where the numbers for small `a` would be 0.

    Args:
        key: a key that is used for nothing else.
        a: positive, any shape.
        shape: by default the shape of `a`.
        dtype: a floating-point dtype.

    Example:
        >>> float(nnc.random.loggamma(nnc.random.key(0), 1e-3)) < -100
        True
    """
    where = "nnc.random.loggamma"
    (alpha,), _, dtype = read_together(where, dtype, shape, a=a)
    return _draw(read_key(key, where), alpha, dtype, True)


@in_single
def beta(
    key: ArrayLike, a: ArrayLike, b: ArrayLike, shape: ShapeLike | None = None, dtype: DTypeLike = dtypes.float32
) -> Array:
    """Numbers of the beta distribution, in (0, 1), with density ∝ x^(a−1) (1 − x)^(b−1); differentiable in `a` and `b`.

    Args:
        key: a key that is used for nothing else.
        a: positive; broadcasts with `b`.
        b: positive.
        shape: by default the shape of `a` and `b` together.
        dtype: a floating-point dtype.

    Raises:
        ShapeError: the parameters do not broadcast to `shape`.

    Example:
        >>> nnc.random.beta(nnc.random.key(0), 2.0, np.ones(3)).shape
        (3,)
    """
    where = "nnc.random.beta"
    parameters, shape, dtype = read_together(where, dtype, shape, a=a, b=b)
    first, second = (
        _draw(part, astype(x, dtypes.float64), dtype, True)
        for part, x in zip(split(read_key(key, where)), parameters, strict=True)
    )
    largest = ew.stop_gradient(ew.maximum(first, second))
    first, second = portable_exp(first - largest), portable_exp(second - largest)
    return astype(first / (first + second), dtype)


@in_single
def dirichlet(
    key: ArrayLike, alpha: ArrayLike, shape: ShapeLike | None = None, dtype: DTypeLike = dtypes.float32
) -> Array:
    """Vectors of positive numbers of sum 1, with density ∝ ∏ x_i^(alpha_i − 1); differentiable in `alpha`.

    Args:
        key: a key that is used for nothing else.
        alpha: (..., n), positive.
        shape: the shape of the draw without its last axis; by default the shape of `alpha` without it.
        dtype: a floating-point dtype.

    Returns:
        (*shape, n).

    Raises:
        ShapeError: alpha has no axis, or does not broadcast.

    Example:
        >>> round(float(nnc.random.dirichlet(nnc.random.key(0), np.ones(4)).sum()), 5)
        1.0
    """
    where = "nnc.random.dirichlet"
    dtype = float_dtype(dtype, where)
    alpha = to_value(read_parameter(alpha, dtype, where, "alpha"), where, "alpha")
    if not alpha.spec.ndim:
        problem = "alpha has no axes."
        raise user_error(ShapeError, where, problem, operands={"alpha": alpha.spec}, fix="give a vector of parameters.")
    whole = None if shape is None else (*to_shape(shape, where), alpha.spec.shape[-1])
    (alpha,), _, _ = read_together(where, dtypes.float64, whole, alpha=alpha)
    if not alpha.spec.size:
        return astype(alpha, dtype)
    drawn = _draw(read_key(key, where), alpha, dtype, True)
    shares = portable_exp(drawn - ew.stop_gradient(re.max(drawn, axis=-1, keepdims=True)))
    return astype(shares / sum_last(shares)[..., None], dtype)


@in_single
def chisquare(
    key: ArrayLike, df: ArrayLike, shape: ShapeLike | None = None, dtype: DTypeLike = dtypes.float32
) -> Array:
    """Numbers of the chi-square distribution with `df` degrees of freedom; differentiable in `df`.

    Args:
        key: a key that is used for nothing else.
        df: positive, any shape.
        shape: by default the shape of `df`.
        dtype: a floating-point dtype.

    Example:
        >>> nnc.random.chisquare(nnc.random.key(0), 3.0, (2,)).shape
        (2,)
    """
    where = "nnc.random.chisquare"
    (df,), shape, dtype = read_together(where, dtype, shape, df=df)
    return times(gamma(key, df * 0.5, shape, dtype), 2)


@in_single
def f(
    key: ArrayLike,
    dfnum: ArrayLike,
    dfden: ArrayLike,
    shape: ShapeLike | None = None,
    dtype: DTypeLike = dtypes.float32,
) -> Array:
    """Numbers of the F distribution: the ratio of two chi-square numbers, each divided by its degrees of freedom.

    Args:
        key: a key that is used for nothing else.
        dfnum: degrees of freedom above, positive; broadcasts with `dfden`.
        dfden: degrees of freedom below, positive.
        shape: by default the shape of both together.
        dtype: a floating-point dtype.

    Example:
        >>> nnc.random.f(nnc.random.key(0), 3.0, 4.0, (2,)).shape
        (2,)
    """
    where = "nnc.random.f"
    (dfnum, dfden), shape, dtype = read_together(where, dtype, shape, dfnum=dfnum, dfden=dfden)
    below, above = split(read_key(key, where))
    return (chisquare(above, dfnum, shape, dtype) / dfnum) / (chisquare(below, dfden, shape, dtype) / dfden)


@in_single
def t(key: ArrayLike, df: ArrayLike, shape: ShapeLike | None = None, dtype: DTypeLike = dtypes.float32) -> Array:
    """Numbers of Student's t distribution with `df` degrees of freedom; differentiable in `df`.

    Args:
        key: a key that is used for nothing else.
        df: positive, any shape.
        shape: by default the shape of `df`.
        dtype: a floating-point dtype.

    Example:
        >>> nnc.random.t(nnc.random.key(0), 3.0, (2,)).shape
        (2,)
    """
    where = "nnc.random.t"
    (df,), shape, dtype = read_together(where, dtype, shape, df=df)
    normal_key, gamma_key = split(read_key(key, where))
    half = df * 0.5
    return times(normal(normal_key, shape, dtype), ew.sqrt(half / gamma(gamma_key, half, shape, dtype)))
