"""Interpolation of values on a rectangular grid, which nnc.scipy.interpolate shows."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np

from nnc import tree
from nnc.array.array import Array
from nnc.array.promote import promote
from nnc.base import dtypes
from nnc.calls.spelling import spelled
from nnc.errors import ArgumentError, OutOfBoundsError, ShapeError, user_error
from nnc.errors.errors import check_choice
from nnc.numpy import elementwise as el
from nnc.numpy.joining import stack
from nnc.numpy.manipulation import broadcast_arrays, reshape
from nnc.numpy.operands import in_dtype, known, known_or_none, to_values
from nnc.numpy.reductions import any as any_
from nnc.numpy.searching import searchsorted, take
from nnc.trace.core.differentiate import stop_gradient
from nnc.typing import ArrayLike

_NAME = "RegularGridInterpolator"


class RegularGridInterpolator:
    """Interpolates values that are known on a rectangular grid, whose lines need not be evenly spaced. A pytree of its arrays.

    Args:
        points: a vector for each axis of the grid, strictly rising or falling, of 2 points or more.
        values: (m1, ..., mn, ...), the values on the grid; further axes are interpolated together. Integers become float32.
        method: "linear", or "nearest".
        bounds_error: raise where a point lies outside of the grid; points must then be known, so not inside compile or vmap.
        fill_value: the value outside of the grid; None extrapolates.

    Raises:
        ShapeError: points and values do not fit together.
        ArgumentError: there is no such method, or points are not in order.

    Example:
        >>> x, y = np.asarray([0.0, 1.0, 3.0]), np.asarray([0.0, 2.0])
        >>> f = RegularGridInterpolator((x, y), x[:, None] + 10 * y)
        >>> f(np.asarray([[2.0, 1.0], [0.5, 0.5]]))
        Array([12. ,  5.5], dtype=float64)
    """

    grid: tuple[Array, ...]
    values: Array
    method: str
    bounds_error: bool
    fill_value: Any

    @spelled
    def __init__(
        self, points: Sequence[ArrayLike], values: ArrayLike, method: str = "linear", bounds_error: bool = False,
        fill_value: ArrayLike | None = np.nan,
    ) -> None:  # fmt: skip
        _check_method(method)
        given = to_values(_NAME, values=values, **{f"points[{i}]": p for i, p in enumerate(points)})
        self.values, *lines = (promote(x, where=_NAME, to=dtypes.to_float)[0] for x in given)
        self.grid = tuple(lines)
        self.method, self.bounds_error, self.fill_value = method, bounds_error, fill_value
        if len(self.grid) > self.values.spec.ndim or not self.grid:
            problem = f"there are {len(self.grid)} vectors of points."
            fix = "pass one for each axis of values, or for the first ones."
            raise user_error(ShapeError, _NAME, problem, operands={"values": self.values.spec}, fix=fix)
        for i, (p, n) in enumerate(zip(self.grid, self.values.spec.shape, strict=False)):
            if p.spec.shape != (n,) or n < 2:
                problem = f"the points of axis {i} do not fit the values."
                operands = {f"points[{i}]": p.spec, "values": self.values.spec}
                fix = "pass a vector with a point for each element along the axis, 2 or more."
                raise user_error(ShapeError, _NAME, problem, operands=operands, fix=fix)
            found = known_or_none(p)
            if found is not None and not ((np.diff(found) > 0).all() or (np.diff(found) < 0).all()):
                problem = f"the points of axis {i} neither rise nor fall strictly."
                raise user_error(ArgumentError, _NAME, problem, fix="sort them.")

    @spelled
    def __call__(self, xi: Any, method: str | None = None) -> Array:
        """Returns the interpolated values.

        Args:
            xi: (..., n), points in the grid; or a tuple of n arrays of coordinates, which broadcast.
            method: overrides the interpolator's method.

        Raises:
            ShapeError: points have another number of coordinates.
            OutOfBoundsError: a point lies outside, and bounds_error is set.
        """
        chosen = self.method if method is None else method
        _check_method(chosen)
        points = self._points(xi)
        lead = points.spec.shape[:-1]
        coordinates = [reshape(points[..., i], (-1,)) for i in range(len(self.grid))]
        outside: Any = False
        axes = []
        for i, (p, x) in enumerate(zip(self.grid, coordinates, strict=True)):
            low, high = el.minimum(p[0], p[-1]), el.maximum(p[0], p[-1])
            out = (x < low) | (x > high)
            if self.bounds_error and known(any_(out), _NAME, "set bounds_error=False inside compile and vmap.").any():
                fix = "move it inside, or set bounds_error=False and a fill_value."
                raise user_error(OutOfBoundsError, _NAME, f"a point lies outside of the grid along axis {i}.", fix=fix)
            outside = outside | out
            axes.append(_nodes(p, x, chosen))
        rest = self.values.spec.ndim - len(self.grid)

        def column(x: Any) -> Any:
            return reshape(x, (*x.shape, *(1,) * rest))

        total: Any = 0
        for nodes in itertools.product(*axes):
            weight: Any = 1
            for _, w in nodes:
                weight = weight * w
            element = self.values[tuple(i for i, _ in nodes)]
            total = total + (element if isinstance(weight, int) else element * column(weight))
        if self.fill_value is not None and not self.bounds_error:
            fill = in_dtype(self.fill_value, total.spec.dtype, _NAME, "fill_value")
            total = el.where(column(outside), fill, total)
        lost: Any = False
        for x in coordinates:
            lost = lost | el.isnan(x)
        total = el.where(column(lost), np.nan, total)
        return reshape(total, (*lead, *self.values.spec.shape[len(self.grid) :]))

    def _points(self, xi: Any) -> Array:
        """Returns the points as one array, (..., n)."""
        n = len(self.grid)
        held = {"values": self.values, "points": self.grid[0]}
        if isinstance(xi, tuple):
            _, _, *xi = to_values(_NAME, **held, **{f"xi[{i}]": x for i, x in enumerate(xi)})
            parts = broadcast_arrays(*promote(*xi, where=_NAME, to=dtypes.to_float))
            points = stack(parts, axis=-1)
        else:
            (points,) = promote(to_values(_NAME, **held, xi=xi)[-1], where=_NAME, to=dtypes.to_float)
            if points.spec.ndim < 2 and points.spec.size % n == 0:  # as in SciPy
                points = reshape(points, (-1, n))
        if points.spec.shape[-1:] != (n,):
            problem = f"points need {n} coordinates along the last axis."
            fix = "pass an array of points, or a tuple of coordinates."
            raise user_error(ShapeError, _NAME, problem, operands={"xi": points.spec}, fix=fix)
        return points


def _check_method(method: Any) -> None:
    check_choice(_NAME, "method", method, ("linear", "nearest"))


def _nodes(points: Array, x: Array, method: str) -> list[tuple[Any, Any]]:
    """Returns the indices of the lines beside each coordinate, and their weights."""
    sign = el.where(stop_gradient(points[0]) < stop_gradient(points[-1]), 1, -1)  # of a rising axis
    still, rising = stop_gradient(x), stop_gradient(points) * sign
    i = el.clip(searchsorted(rising, still * sign) - 1, 0, points.spec.size - 2)
    share = (x - take(points, i)) / (take(points, i + 1) - take(points, i))
    if method == "linear":
        return [(i, 1 - share), (i + 1, share)]
    return [(el.where(stop_gradient(share) <= 0.5, i, i + 1), 1)]


def _flatten(f: RegularGridInterpolator) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
    return (f.grid, f.values, f.fill_value), (f.method, f.bounds_error)


def _unflatten(settings: tuple[Any, ...], parts: tuple[Any, ...]) -> RegularGridInterpolator:
    f = object.__new__(RegularGridInterpolator)
    f.grid, f.values, f.fill_value = parts
    f.method, f.bounds_error = settings
    return f


tree.register(RegularGridInterpolator, _flatten, _unflatten)
