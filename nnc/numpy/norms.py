"""Norms of vectors and matrices, which nnc.numpy.linalg shows. They have a derivative at 0, which is 0."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from nnc.array.array import Array, specialised_of_small
from nnc.array.promote import astype, broadcast_to_shape, promote
from nnc.base import dtypes
from nnc.commands import constants
from nnc.commands import elementwise as ew
from nnc.commands.factor import svd
from nnc.commands.linalg import check_matrix
from nnc.commands.parts import ldexp
from nnc.commands.reduce import reduce_max, reduce_min, reduce_sum
from nnc.commands.shape import reshape
from nnc.errors import ArgumentError, user_error
from nnc.numpy import manipulation
from nnc.numpy import reductions as re
from nnc.numpy.operands import Axis, Shape, keep, keeps_weakness, to_axes, to_value
from nnc.numpy.scaling import binary_exponent, largest_part, may_be_differentiated, scaled_sum_of_squares, squared_sizes
from nnc.typing import ArrayLike


def _for_norm(where: str, x: Any) -> tuple[Array, Callable[[Array], Array]]:
    """Returns the operand in the dtype to accumulate in, and the function that converts the norm to the operand's (real) dtype."""
    (x,) = promote(x, where=where, to=dtypes.to_float)
    x = to_value(x, where)
    own = dtypes.real_dtype(x.spec.dtype)
    return to_value(astype(x, dtypes.accumulator(x.spec.dtype)), where), lambda y: astype(y, own)


def _root(total: Array, function: Callable[[Array], Array]) -> Array:
    """`function(total)`, and 0 with derivative 0 where the total is 0."""
    zero = constants.full_like(total, 0)
    nothing = ew.equal(total, zero)
    return ew.select(nothing, zero, function(ew.select(nothing, constants.full_like(total, 1), total)))


def _largest(sizes: Array, axes: Shape) -> Array:
    """Returns the largest of sizes, which is 0 where there are none."""
    empty = 0 in [sizes.spec.shape[axis] for axis in axes]
    return reduce_sum(sizes, axes=axes) if empty else reduce_max(sizes, axes=axes)


def _vector_norm(where: str, x: Array, axes: Shape, order: Any) -> Array:
    order = order.item() if isinstance(order, np.generic) else order
    if isinstance(order, str) or not dtypes.is_scalar(order):
        problem = f"vectors have no norm of order {order!r}."
        raise user_error(ArgumentError, where, problem, fix="use a number, or inf or -inf.")
    if order == 2:
        return euclidean(x, axes)
    sizes = ew.abs_(x)
    if order == math.inf:
        return _largest(sizes, axes)
    if order == -math.inf:
        return re.min(sizes, axis=axes)
    if order == 0:
        return reduce_sum(
            ew.convert(ew.not_equal(sizes, constants.full_like(sizes, 0)), dtype=sizes.spec.dtype), axes=axes
        )
    if order == 1:
        return reduce_sum(sizes, axes=axes)
    chosen = largest_part(sizes, axes) if order > 0 else _least(sizes, axes)
    n = binary_exponent(chosen)
    sizes = ldexp(sizes, broadcast_to_shape(ew.neg(n), sizes.spec.shape))
    n = reshape(n, shape=_without(sizes.spec.shape, axes))
    if order < 0:
        return ldexp(reduce_sum(sizes**order, axes=axes) ** (1 / order), n)
    terms = _root(sizes, lambda y: y**order)
    return ldexp(_root(reduce_sum(terms, axes=axes), lambda y: y ** (1 / order)), n)


def _least(sizes: Array, axes: Shape) -> Array:
    """Returns the least of sizes, without a derivative; 0 where there are none."""
    x = ew.stop_gradient(sizes)
    if 0 in [x.spec.shape[axis] for axis in axes]:
        return largest_part(x, axes)
    return keep(reduce_min(x, axes=axes), x.spec, axes, True)


def _without(shape: Shape, axes: Shape) -> Shape:
    return tuple(n for i, n in enumerate(shape) if i not in axes)


def euclidean(x: Array, axes: Shape) -> Array:
    """Returns the root of the sum of squares, also where squares overflow or underflow."""
    if not may_be_differentiated(x):
        total, factor = scaled_sum_of_squares(x, axes)
        return ew.length(total) / factor
    total, factor = scaled_sum_of_squares(ew.stop_gradient(x), axes)
    spread = broadcast_to_shape(keep(factor, x.spec, axes, True), x.spec.shape)
    total = ew.with_slope(total, reduce_sum(squared_sizes(x * spread), axes=axes))
    square = reduce_sum(squared_sizes(x), axes=axes)  # by which the norm knows itself in a product
    return ew.with_square(ew.length(total) / factor, square)


def wide_euclidean(x: Array, axes: Shape) -> Array:
    """Returns the root of the sum of squares, in float64, which holds it also where float32 does not."""
    total, factor = scaled_sum_of_squares(x, axes)
    return astype(ew.length(total), dtypes.float64) / astype(factor, dtypes.float64)


def _matrix_norm(where: str, x: Array, rows: int, columns: int, order: Any) -> Array:
    if order in ("fro", None):
        return _vector_norm(where, x, (rows, columns), 2)
    if order in (1, -1, math.inf, -math.inf):
        along, across = (rows, columns) if order in (1, -1) else (columns, rows)
        sums = reduce_sum(ew.abs_(x), axes=(along,))
        axis = across - (along < across)
        return _largest(sums, (axis,)) if order > 0 else re.min(sums, axis=axis)
    if order not in (2, -2, "nuc"):
        fix = "use 'fro', 'nuc', 1, 2, inf, or a negative of these numbers."
        raise user_error(ArgumentError, where, f"matrices have no norm of order {order!r}.", fix=fix)
    s = svd(manipulation.moveaxis(x, (rows, columns), (-2, -1)), full_matrices=False)[1]
    if order == "nuc":
        return re.sum(s, axis=-1)
    return _largest(s, (s.spec.ndim - 1,)) if order > 0 else re.min(s, axis=-1)


@specialised_of_small
@keeps_weakness
def vector_norm(x: ArrayLike, /, *, axis: Axis = None, keepdims: bool = False, ord: ArrayLike = 2) -> Array:
    """Returns the norm of vectors, (sum of |x|ᵖ)^(1/p) with p = `ord`; its derivative at 0 is 0.

    Args:
        x: any shape.
        axis: axis or axes that the vectors lie in; None all.
        keepdims: keep the axes with size 1.
        ord: a number, inf (the largest) or -inf (the smallest); 0 counts the elements that are not 0.

    Raises:
        ArgumentError: there is no such norm.

    Example:
        >>> vector_norm(np.asarray([3.0, 4.0]))
        Array(5., dtype=float64)
    """
    x, back = _for_norm("vector_norm", x)
    axes = to_axes("vector_norm", axis, x.spec.ndim)
    return back(keep(_vector_norm("vector_norm", x, axes, ord), x.spec, axes, keepdims))


@specialised_of_small
@keeps_weakness
def matrix_norm(x: ArrayLike, /, *, keepdims: bool = False, ord: float | str | None = "fro") -> Array:
    """Returns the norm of the matrices in the last two axes; `ord` as in `norm`.

    Args:
        x: (..., m, n).
        keepdims: keep the axes with size 1.
        ord: as for `norm` of matrices.

    Raises:
        ArgumentError: there is no such norm.
        ShapeError: x has fewer than two axes.

    Example:
        >>> matrix_norm(np.asarray([[1.0, -7.0], [2.0, 3.0]]), ord=1)
        Array(10., dtype=float64)
    """
    x, back = _for_norm("matrix_norm", x)
    check_matrix("matrix_norm", x.spec, square=False)
    axes = (x.spec.ndim - 2, x.spec.ndim - 1)
    return back(keep(_matrix_norm("matrix_norm", x, *axes, ord), x.spec, axes, keepdims))


@specialised_of_small
@keeps_weakness
def norm(x: ArrayLike, /, ord: ArrayLike | None = None, axis: Axis = None, keepdims: bool = False) -> Array:
    """Returns the norm of vectors or matrices; the derivative at 0 is 0.

    Args:
        x: any shape.
        ord: None is 2 for vectors and "fro" for matrices. For vectors any number; for matrices "fro", "nuc" (the sum of
            the singular values), 2 and -2 (the largest, the smallest), 1 and -1 (sums of columns), inf and -inf (of
            rows).
        axis: one axis for vectors, two for matrices; None takes all of an array of one or two axes, and without `ord`
            all of any array as one vector.
        keepdims: keep the axes with size 1.

    Raises:
        ArgumentError: there is no such norm.
        ShapeError: an axis does not exist.

    Example:
        >>> norm(np.asarray([[3.0, 4.0], [0.0, 0.0]]), axis=1)
        Array([5., 0.], dtype=float64)
    """
    x, back = _for_norm("norm", x)
    axes = to_axes("norm", axis, x.spec.ndim)
    if axis is None and ord is None:
        result = _vector_norm("norm", x, axes, 2)
    elif len(axes) == 1:
        result = _vector_norm("norm", x, axes, 2 if ord is None else ord)
    elif len(axes) == 2:
        result = _matrix_norm("norm", x, *axes, ord)
    else:
        problem = f"{len(axes)} axes are neither vectors nor matrices."
        fix = "name one or two axes, or use vector_norm."
        raise user_error(ArgumentError, "norm", problem, operands={"x": x.spec}, fix=fix)
    return back(keep(result, x.spec, axes, keepdims))
