"""Integrals of samples, which nnc.scipy.integrate shows."""

from __future__ import annotations

from typing import Any

from nnc.array.array import Array
from nnc.array.promote import as_operand, result_dtype
from nnc.base import dtypes
from nnc.calls.spelling import spelled
from nnc.errors import ShapeError, user_error
from nnc.errors.errors import check_choice
from nnc.numpy import elementwise as el
from nnc.numpy.creation import zeros
from nnc.numpy.manipulation import moveaxis
from nnc.numpy.operands import in_dtype, to_axis
from nnc.numpy.reductions import cumulative_sum, diff
from nnc.numpy.reductions import sum as sum_
from nnc.typing import ArrayLike

__all__ = ["cumulative_trapezoid", "simpson", "trapezoid"]


def _samples(where: str, y: Any, x: Any, dx: Any, axis: int) -> tuple[Array, Any]:
    """Returns the samples with their axis last, as floats, and the distances of their places: a number, or one for each gap."""
    samples = as_operand(y, where, "y")
    places = None if x is None else as_operand(x, where, "x")
    gap = as_operand(dx, where, "dx")
    dtype = dtypes.to_float(result_dtype(samples, gap if places is None else places, where=where))
    y = in_dtype(samples, dtype, where, "y")
    axis = to_axis(where, axis, y.spec.ndim)
    y = moveaxis(y, axis, -1)
    if places is None:
        return y, in_dtype(gap, dtype, where, "dx")
    places = in_dtype(places, dtype, where, "x")
    if places.spec.ndim != 1:
        if places.spec.ndim != y.spec.ndim:
            problem = "x is neither a vector nor of the shape of y."
            fix = "pass the places along the axis."
            raise user_error(ShapeError, where, problem, operands={"y": y.spec, "x": places.spec}, fix=fix)
        places = moveaxis(places, axis, -1)
    if places.spec.shape[-1] != y.spec.shape[-1]:
        problem = "x and y have different lengths along the axis."
        fix = "pass one place for each sample."
        raise user_error(ShapeError, where, problem, operands={"y": y.spec, "x": places.spec}, fix=fix)
    return y, diff(places, axis=-1)


@spelled
def trapezoid(y: ArrayLike, x: ArrayLike | None = None, dx: ArrayLike = 1.0, axis: int = -1) -> Array:
    """Integrates samples along an axis by the trapezoidal rule.

    Args:
        y: samples; integers become float32.
        x: their places: a vector along the axis, or of the shape of y; by default they are `dx` apart.
        dx: distance of the samples, where x is not given.
        axis: the axis to integrate along, which the result does not have.

    Raises:
        ShapeError: x does not fit y.

    Example:
        >>> trapezoid(np.asarray([1.0, 2.0, 4.0]), dx=0.5)
        Array(2.25, dtype=float64)
    """
    y, gaps = _samples("trapezoid", y, x, dx, axis)
    return sum_(gaps * (y[..., 1:] + y[..., :-1]) * 0.5, axis=-1)


@spelled
def cumulative_trapezoid(
    y: ArrayLike, x: ArrayLike | None = None, dx: ArrayLike = 1.0, axis: int = -1, initial: float | None = None
) -> Array:
    """Integrates samples along an axis from the first to each of the others, by the trapezoidal rule.

    Args:
        y: samples; integers become float32.
        x: their places: a vector along the axis, or of the shape of y; by default they are `dx` apart.
        dx: distance of the samples, where x is not given.
        axis: the axis to integrate along; it has one element less in the result.
        initial: 0 puts a 0 before the others, so that the result has the shape of y.

    Raises:
        ShapeError: x does not fit y, or there is no sample.
        ArgumentError: `initial` is another number.

    Example:
        >>> cumulative_trapezoid(np.asarray([1.0, 2.0, 4.0]), initial=0)
        Array([0. , 1.5, 4.5], dtype=float64)
    """
    check_choice("cumulative_trapezoid", "initial", initial, (0, None))
    y, gaps = _samples("cumulative_trapezoid", y, x, dx, axis)
    if not y.spec.shape[-1]:
        problem = "there is no sample."
        raise user_error(ShapeError, "cumulative_trapezoid", problem, operands={"y": y.spec}, fix="pass one or more.")
    parts = gaps * (y[..., 1:] + y[..., :-1]) * 0.5
    return moveaxis(cumulative_sum(parts, axis=-1, include_initial=initial is not None), -1, axis)


@spelled
def simpson(y: ArrayLike, x: ArrayLike | None = None, *, dx: ArrayLike = 1.0, axis: int = -1) -> Array:
    """Integrates samples along an axis by Simpson's rule: parabolas through three samples each.

    For an even number of samples the last interval belongs to the parabola through the last three (Cartwright, 2017), as in SciPy.

    Args:
        y: samples; integers become float32.
        x: their places: a vector along the axis, or of the shape of y; by default they are `dx` apart.
        dx: distance of the samples, where x is not given.
        axis: the axis to integrate along, which the result does not have.

    Raises:
        ShapeError: x does not fit y, or there is no sample.

    Example:
        >>> simpson(np.asarray([0.0, 1.0, 4.0]))
        Array(2.66666667, dtype=float64)
    """
    y, gaps = _samples("simpson", y, x, dx, axis)
    n = y.spec.shape[-1]
    if not n:
        raise user_error(ShapeError, "simpson", "there is no sample.", operands={"y": y.spec}, fix="pass one or more.")
    if x is None:
        gaps = gaps + zeros(y[..., 1:].shape, y.dtype)
    if n == 2:
        return sum_(gaps * (y[..., 1:] + y[..., :-1]) * 0.5, axis=-1)
    end = n - 1 if n % 2 else n - 2  # where the last whole pair of gaps ends
    h0, h1 = gaps[..., 0:end:2], gaps[..., 1:end:2]
    total, product = h0 + h1, h0 * h1
    first, middle, last = y[..., 0:end:2], y[..., 1:end:2], y[..., 2 : end + 1 : 2]
    terms = (
        first * (2.0 - _quotient(h1, h0))
        + middle * total * _quotient(total, product)
        + last * (2.0 - _quotient(h0, h1))
    )
    result = sum_(total / 6.0 * terms, axis=-1)
    if n % 2:
        return result
    a, b = gaps[..., -2], gaps[..., -1]
    alpha = _quotient(2 * b * b + 3 * a * b, 6 * (a + b))
    beta = _quotient(b * b + 3 * a * b, 6 * a)
    eta = _quotient(b * b * b, 6 * a * (a + b))
    return result + alpha * y[..., -1] + beta * y[..., -2] - eta * y[..., -3]


def _quotient(x: Any, y: Any) -> Any:
    """x / y, and 0 where y is 0: for samples at one place."""
    return el.where(y != 0, x / el.where(y != 0, y, 1), 0)
