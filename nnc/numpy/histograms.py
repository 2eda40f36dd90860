"""Histograms: how many elements lie in each bin, along one axis or several."""

from __future__ import annotations

import math
from builtins import range as builtin_range
from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np

from nnc.array.array import Array
from nnc.array.promote import astype, promote
from nnc.base import dtypes
from nnc.errors import ArgumentError, ShapeError, user_error
from nnc.graph import spec_of
from nnc.numpy import elementwise as el
from nnc.numpy import reductions as red
from nnc.numpy.creation import linspace
from nnc.numpy.joining import stack
from nnc.numpy.manipulation import ravel, reshape
from nnc.numpy.operands import keeps_weakness, known_or_none, static_int, to_value, to_values
from nnc.numpy.searching import bincount, is_rising, ravel_multi_index, searchsorted
from nnc.typing import ArrayLike

__all__ = ["histogram", "histogram2d", "histogram_bin_edges", "histogramdd"]


@partial(keeps_weakness, counts=True)
def histogram_bin_edges(x: ArrayLike, bins: ArrayLike | str = 10, range: ArrayLike | None = None) -> Array:
    """Returns the edges of `bins` equal bins from the least to the greatest element, or over `range`; or `bins` itself.

    Args:
        x: any shape, flattened.
        bins: how many equal bins, or their edges.
        range: (least, greatest) edge; by default the least and greatest element.

    Example:
        >>> histogram_bin_edges(nnp.asarray([0.0, 1.0, 4.0]), bins=4)
        Array([0., 1., 2., 3., 4.], dtype=float32)
    """
    x = to_value(x, "histogram")
    return _returned(_edges(x, bins, range), x, bins)


def _returned(edges: Array, x: Array, bins: Any) -> Array:
    """Returns edges as the user gets them: for integers in the default float."""
    return edges if np.ndim(bins) or dtypes.is_inexact(x.spec.dtype) else astype(edges, dtypes.DEFAULT_FLOAT)


def _edges(x: Array, bins: Any, range: Any) -> Array:
    """Returns the edges by which elements are counted: for integers in float64, which holds them.

    Raises:
        ArgumentError: bins or edges are known not to rise, or the range is not finite.
    """
    if np.ndim(bins):
        _, edges = to_values("histogram", x=x, bins=bins)
        values = known_or_none(edges)
        if values is not None and not is_rising(values):
            raise user_error(ArgumentError, "histogram", "the edges of the bins do not rise.", fix="sort the bins.")
        return edges
    count = static_int(bins, "histogram", "bins")
    if count < 1:
        raise user_error(ArgumentError, "histogram", f"bins is {count}.", fix="ask for at least one bin.")
    low, high = (red.min(x), red.max(x)) if range is None and x.spec.size else (0.0, 1.0) if range is None else range
    _check_range(low, high)
    natural = dtypes.promote_types(*(spec_of(v).dtype for v in promote(x, low, high, to=dtypes.to_float)[1:]))
    if not dtypes.is_inexact(x.spec.dtype):
        natural = dtypes.promote_types(natural, dtypes.float64)
    if dtypes.is_scalar(low) and dtypes.is_scalar(high):
        low, high = (low - 0.5, high + 0.5) if low == high else (low, high)
    else:
        low, high = (astype(to_value(v, "histogram", "range"), natural) for v in (low, high))
        flat = el.equal(low, high)
        low, high = el.where(flat, low - 0.5, low), el.where(flat, high + 0.5, high)
    return linspace(low, high, count + 1, dtype=natural)


def _check_range(low: Any, high: Any) -> None:
    """Raises ArgumentError for a range that is known not to be finite, or to fall."""
    first, last = (known_or_none(to_value(v, "histogram", "range")) for v in (low, high))
    if first is None or last is None:
        return
    if not (np.isfinite(first) and np.isfinite(last) and first <= last):
        fix = "pass range=(least, greatest), two finite numbers, or leave out infinities and NaNs."
        raise user_error(ArgumentError, "histogram", f"the range of the bins is from {first} to {last}.", fix=fix)


def _bin_of(x: Array, edges: Array) -> Array:
    """Returns the number of each element's bin, from 1; elements outside are in bin 0 or behind the last. The last edge is
    inside.
    """
    place = searchsorted(edges, x, side="right")
    return el.where(el.equal(x, edges[-1]), edges.spec.size - 1, place)


@partial(keeps_weakness, counts=True)
def histogram(
    x: ArrayLike,
    bins: ArrayLike | str = 10,
    range: ArrayLike | None = None,
    density: bool = False,
    weights: ArrayLike | None = None,
) -> tuple[Array, Array]:
    """Returns how many elements lie in each bin, and the bins' edges.

    Args:
        x: any shape, flattened.
        bins: how many equal bins, or their edges.
        range: (least, greatest) edge.
        density: divide by number and width.
        weights: count elements so often.

    Example:
        >>> histogram(np.asarray([1.0, 2.0, 2.0]), bins=[0, 2, 3])[0]
        Array([1, 2], dtype=int64)
    """
    given: Any = bins
    x, listed, weights = to_values("histogram", x=x, bins=given if np.ndim(given) else None, weights=weights)
    x, bins = ravel(x), given if listed is None else listed
    edges = _edges(x, bins, range)
    n = edges.spec.size - 1
    counts = bincount(_bin_of(x, edges), None if weights is None else ravel(weights), length=n + 2)[1 : n + 1]
    edges = _returned(edges, x, bins)
    if density:
        counts = astype(counts, dtypes.to_float(edges.spec.dtype))
        counts = counts / red.sum(counts) / red.diff(edges)
    return counts, edges


@partial(keeps_weakness, counts=True)
def histogramdd(
    sample: ArrayLike,
    bins: ArrayLike | str = 10,
    range: ArrayLike | None = None,
    density: bool = False,
    weights: ArrayLike | None = None,
) -> tuple[Array, list[Array]]:
    """Returns how many points lie in each box of a grid, and the edges of the boxes along each axis.

    Args:
        sample: (points, axes), or a list of one vector for each axis.
        bins: a number of bins or edges, or one for each axis.
        range: None, or for each axis None or (least, greatest) edge.
        density: divide by number and volume.
        weights: (points,), counts each point so often.

    Raises:
        ShapeError: the sample is no matrix.
        ArgumentError: bins or range do not fit the axes.

    Example:
        >>> histogramdd(np.asarray([[0.1, 0.1], [0.9, 0.2]]), bins=2, range=((0, 1), (0, 1)))[0]
        Array([[1, 0],
               [1, 0]], dtype=int64)
    """
    points = stack(sample, 1) if isinstance(sample, (list, tuple)) else to_value(sample, "histogramdd", "sample")
    if points.spec.ndim != 2:
        problem = "the sample must have a row for each point."
        fix = "pass a matrix (points, axes)."
        raise user_error(ShapeError, "histogramdd", problem, operands={"sample": points.spec}, fix=fix)
    _, weights = to_values("histogramdd", sample=points, weights=weights)
    ndim = points.spec.shape[1]
    each = _for_each_axis("bins", bins, ndim, isinstance(bins, (list, tuple)))
    ranges = _for_each_axis("range", range, ndim, range is not None)
    edges = [_edges(points[:, i], each[i], ranges[i]) for i in builtin_range(ndim)]
    sizes = [e.spec.size + 1 for e in edges]
    cells = ravel_multi_index([_bin_of(points[:, i], e) for i, e in enumerate(edges)], tuple(sizes))
    counts = reshape(bincount(cells, weights, length=math.prod(sizes)), tuple(sizes))[(slice(1, -1),) * ndim]
    edges = [_returned(e, points, b) for e, b in zip(edges, each, strict=True)]
    if density:
        counts = astype(counts, dtypes.to_float(edges[0].spec.dtype))
        counts = counts / red.sum(counts)
        for i, e in enumerate(edges):
            counts = counts / reshape(red.diff(e), tuple(-1 if j == i else 1 for j in builtin_range(ndim)))
    return counts, edges


def _for_each_axis(name: str, value: Any, ndim: int, several: bool) -> Sequence[Any]:
    if not several:
        return [value] * ndim
    if len(value) != ndim:
        problem = f"{name} has {len(value)} entries for {ndim} axes."
        raise user_error(ArgumentError, "histogramdd", problem, fix="give one for each axis.")
    return list(value)


@partial(keeps_weakness, counts=True)
def histogram2d(
    x: ArrayLike,
    y: ArrayLike,
    bins: ArrayLike | str = 10,
    range: ArrayLike | None = None,
    density: bool = False,
    weights: ArrayLike | None = None,
) -> tuple[Array, Array, Array]:
    """Returns how many of the points (x, y) lie in each box of a grid, and the edges along both axes; see `histogramdd`.

    Args:
        x: (points,).
        y: (points,).
        bins: a number or edges for both axes, or a pair of them.
        range: None, or for each axis None or (least, greatest) edge.
        density: divide by number and area.
        weights: (points,), counts each point so often.

    Example:
        >>> x = nnp.asarray([0.0, 1.0, 1.0])
        >>> histogram2d(x, x, bins=2)[0]
        Array([[1, 0],
               [0, 2]], dtype=int64)
    """
    both: Any = bins if isinstance(bins, (list, tuple)) and len(bins) == 2 else [bins, bins]
    points = [ravel(v) for v in to_values("histogram2d", x=x, y=y)]
    counts, (x_edges, y_edges) = histogramdd(points, both, range, density, weights)
    return counts, x_edges, y_edges
