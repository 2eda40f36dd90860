"""Collectives for users: they join the values that the rows of a named axis hold (`nnc.vmap(f, axis_name=)`).

Values are the same at all places along an axis, or vary over it. Over axes over which an operand does not vary, nothing is
communicated.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from math import prod
from typing import Any, TypeVar

import numpy as np

from nnc.array.array import Array, as_value
from nnc.array.promote import as_operand, is_weak, with_weakness
from nnc.base import dtypes
from nnc.calls.spelling import spelled
from nnc.commands import collective
from nnc.commands.elementwise import convert, mul, select
from nnc.commands.index import gather, move_axis
from nnc.commands.rules import check_axis, zeros
from nnc.commands.shape import broadcast_to, reshape
from nnc.errors import ArgumentError, ShapeError, user_error
from nnc.graph import Command
from nnc.graph.rules import Value
from nnc.trace.core.axes import NamedAxis, vary, varying_over
from nnc.trace.core.flat import FlatTree
from nnc.trace.core.named import find_axes

__all__ = [
    "all_gather",
    "all_to_all",
    "axis_index",
    "axis_size",
    "pmax",
    "pmean",
    "pmin",
    "ppermute",
    "psum",
    "psum_scatter",
    "pvary",
]

T = TypeVar("T")
Names = str | Sequence[str]


def _each(where: str, x: Any, fun: Callable[[Value], Any]) -> Any:
    """Applies `fun` to each array of a tree."""
    flat = FlatTree(x)
    return flat.build([fun(as_value(as_operand(leaf, where, "x"))) for leaf in flat.dynamic])


def _call(command: Command, x: Value, axis: NamedAxis, **params: Any) -> Value:
    return command(x, axis.index, **axis.params, **params)


def _varies(x: Value, axis: NamedAxis) -> bool:
    found = varying_over(x)
    return found is None or axis in found


# -- sums and extrema --------------------------------------------------------------------------------------------------


@spelled
def psum(x: T, axis_name: Names) -> T:
    """Returns the sum of the values at all places along a named axis, which is the same at all of them.

    Args:
        x: numbers, a pytree; bools are counted.
        axis_name: the axis, or a tuple of axes.

    Returns:
        the sums, a pytree like `x`. Of a Python number it is the number times the number of places.

    Raises:
        UnboundAxisError: there is no such axis.

    Example:
        >>> nnc.vmap(lambda x: x / nnc.psum(x, "i"), axis_name="i")(nnp.asarray([1.0, 3.0]))
        Array([0.25, 0.75], dtype=float32)
    """
    axes = find_axes("nnc.psum", axis_name)
    if dtypes.is_scalar(x):
        number: Any = x
        return number * prod(axis.size for axis in axes)
    return _each("nnc.psum", x, lambda leaf: _sum(leaf, axes))


def _sum(x: Value, axes: Sequence[NamedAxis]) -> Value:
    if dtypes.is_bool(x.spec.dtype):
        x = convert(x, dtype=dtypes.int32)
    for axis in axes:
        if _varies(x, axis):
            x = _call(collective.psum, x, axis)
        else:
            count = with_weakness(as_value(np.asarray(axis.size, x.spec.dtype)), is_weak(x))
            x = mul(x, broadcast_to(count, shape=x.spec.shape))
    return x


@spelled
def pmean(x: T, axis_name: Names) -> T:
    """Returns the mean of the values at all places along a named axis.

    Args:
        x: numbers, a pytree.
        axis_name: the axis, or a tuple of axes.

    Returns:
        the means, a pytree like `x`.

    Raises:
        UnboundAxisError: there is no such axis.

    Example:
        >>> nnc.vmap(lambda x: x - nnc.pmean(x, "i"), axis_name="i")(nnp.asarray([1.0, 3.0]))
        Array([-1.,  1.], dtype=float32)
    """
    axes = find_axes("nnc.pmean", axis_name)
    return _each("nnc.pmean", x, lambda leaf: mean_over(leaf, axes))


def mean_over(x: Value, axes: Sequence[NamedAxis]) -> Value:
    """Returns the mean over these axes; over the axes along which `x` does not vary nothing is summed."""
    x = x if dtypes.is_inexact(x.spec.dtype) else x * 1.0  # a sum of integers might wrap around
    axes = [axis for axis in axes if _varies(x, axis)]
    return _sum(x, axes) / prod(axis.size for axis in axes) if axes else x


def _extremum(where: str, command: Command, x: Any, axis_name: Names) -> Any:
    def reduce(leaf: Value) -> Value:
        for axis in axes:
            leaf = _call(command, leaf, axis) if _varies(leaf, axis) else leaf
        return leaf

    axes = find_axes(where, axis_name)
    return _each(where, x, reduce)


@spelled
def pmax(x: T, axis_name: Names) -> T:
    """Returns the largest of the values at all places along a named axis, element by element.

    Args:
        x: real numbers or bools, a pytree.
        axis_name: the axis, or a tuple of axes.

    Returns:
        a pytree like `x`, the same at all places. Its derivative is that of the place with the largest value; places
        with equal ones share it.

    Raises:
        UnboundAxisError: there is no such axis.

    Example:
        >>> nnc.vmap(lambda x: nnc.pmax(x, "i"), axis_name="i")(nnp.asarray([1.0, 3.0]))
        Array([3., 3.], dtype=float32)
    """
    return _extremum("nnc.pmax", collective.pmax, x, axis_name)


@spelled
def pmin(x: T, axis_name: Names) -> T:
    """Returns the smallest of the values at all places along a named axis, element by element; see `pmax`.

    Args:
        x: real numbers or bools, a pytree.
        axis_name: the axis, or a tuple of axes.

    Returns:
        a pytree like `x`, the same at all places.

    Example:
        >>> nnc.vmap(lambda x: nnc.pmin(x, "i"), axis_name="i")(nnp.asarray([1.0, 3.0]))
        Array([1., 1.], dtype=float32)
    """
    return _extremum("nnc.pmin", collective.pmin, x, axis_name)


# -- parts -------------------------------------------------------------------------------------------------------------


@spelled
def all_gather(x: T, axis_name: Names, *, axis: int = 0, tiled: bool = False) -> T:
    """Returns the values of all places along a named axis, put together.

    Args:
        x: arrays, a pytree.
        axis_name: the axis, or a tuple of axes, the first of which counts slowest.
        axis: where the places stand in the result.
        tiled: they are concatenated along that axis of `x` instead of stacked along a new one.

    Returns:
        a pytree like `x`. Its values count as varying over the axis, though they are equal.

    Raises:
        UnboundAxisError: there is no such named axis.
        AxisError: `axis` is out of range.

    Example:
        >>> nnc.vmap(lambda x: nnc.all_gather(x, "i"), axis_name="i")(nnp.asarray([1.0, 3.0]))
        Array([[1., 3.],
               [1., 3.]], dtype=float32)
    """
    axes = find_axes("nnc.all_gather", axis_name)

    def gathered(leaf: Value) -> Value:
        at = check_axis("nnc.all_gather", axis, leaf.spec.ndim + (not tiled))
        return _join(_gather(leaf, axes), at, tiled)

    return _each("nnc.all_gather", x, gathered)


def _gather(x: Value, axes: Sequence[NamedAxis]) -> Value:
    """Returns the values of all places along a new first axis."""
    shape = x.spec.shape
    for axis in reversed(axes):
        x = _call(collective.all_gather, x, axis)
    return reshape(x, shape=(prod(axis.size for axis in axes), *shape)) if len(axes) > 1 else x


def _join(x: Value, axis: int, tiled: bool) -> Value:
    """Returns the first axis moved to `axis`, and there joined with the next one where `tiled`."""
    x = move_axis(x, 0, axis)
    if not tiled:
        return x
    shape = x.spec.shape
    return reshape(x, shape=(*shape[:axis], shape[axis] * shape[axis + 1], *shape[axis + 2 :]))


def _split(where: str, name: str, x: Value, axis: int, tiled: bool, axes: Sequence[NamedAxis]) -> Value:
    """`x` with a part for each place along a new first axis."""
    axis, size = check_axis(where, axis, x.spec.ndim), prod(place.size for place in axes)
    count = x.spec.shape[axis]
    if count % size if tiled else count != size:
        wanted = f"a multiple of {size}" if tiled else f"{size}"
        problem = f"axis {axis} has {count} elements; with {size} places it must have {wanted}."
        fix = f"pad it, or choose another {name}." if tiled else f"choose another {name}, or tiled=True."
        raise user_error(ShapeError, where, problem, operands={"x": x.spec}, fix=fix)
    if tiled:
        shape = x.spec.shape
        x = reshape(x, shape=(*shape[:axis], size, count // size, *shape[axis + 1 :]))
    return move_axis(x, axis, 0)


@spelled
def psum_scatter(x: T, axis_name: Names, *, scatter_dimension: int = 0, tiled: bool = False) -> T:
    """Sums over all places along a named axis; each place gets a part of the sum (reduce-scatter).

    Args:
        x: arrays, a pytree.
        axis_name: the axis, or a tuple of axes, the first of which counts slowest.
        scatter_dimension: the axis of `x` that is split.
        tiled: the axis keeps its place, and each place gets a block of it; else it has one element for each place, and goes.

    Returns:
        a pytree like `x`, of parts.

    Raises:
        UnboundAxisError: there is no such named axis.
        ShapeError: the axis cannot be split evenly.

    Example:
        >>> nnc.vmap(lambda x: nnc.psum_scatter(x, "i"), axis_name="i")(nnp.asarray([[1.0, 2.0], [3.0, 4.0]]))
        Array([4., 6.], dtype=float32)
    """
    axes = find_axes("nnc.psum_scatter", axis_name)

    def scattered(leaf: Value) -> Value:
        parts = _split("nnc.psum_scatter", "scatter_dimension", leaf, scatter_dimension, tiled, axes)
        rest = parts.spec.shape[1:]
        for i, axis in enumerate(axes):
            parts = _call(collective.psum_scatter, reshape(parts, shape=(*(a.size for a in axes[i:]), *rest)), axis)
        return parts

    return _each("nnc.psum_scatter", x, scattered)


@spelled
def all_to_all(x: T, axis_name: Names, split_axis: int, concat_axis: int, *, tiled: bool = False) -> T:
    """Splits each place's value along one axis, gives every place its part, and joins the parts that each place gets.

    Args:
        x: arrays, a pytree.
        axis_name: the named axis, or a tuple of axes, the first of which counts slowest.
        split_axis: the axis of `x` that is split into a part for each place.
        concat_axis: the axis of the result along which the parts stand, in the order of the places that sent them.
        tiled: parts are blocks of `split_axis` and are concatenated; else `split_axis` has one element for each place and goes, and
            `concat_axis` is new.

    Returns:
        a pytree like `x`.

    Raises:
        UnboundAxisError: there is no such named axis.
        ShapeError: the axis cannot be split evenly.

    Example:
        >>> nnc.vmap(lambda x: nnc.all_to_all(x, "i", 0, 0), axis_name="i")(nnp.asarray([[1.0, 2.0], [3.0, 4.0]]))
        Array([[1., 3.],
               [2., 4.]], dtype=float32)
    """
    axes = find_axes("nnc.all_to_all", axis_name)

    def exchanged(leaf: Value) -> Value:
        at = check_axis("nnc.all_to_all", concat_axis, leaf.spec.ndim)
        parts = _split("nnc.all_to_all", "split_axis", leaf, split_axis, tiled, axes)
        shape, rest = parts.spec.shape, parts.spec.shape[1:]
        sizes = tuple(axis.size for axis in axes)
        parts = reshape(parts, shape=(*sizes, *rest)) if len(axes) > 1 else parts
        for i, axis in enumerate(axes):
            parts = move_axis(_call(collective.all_to_all, move_axis(parts, i, 0), axis), 0, i)
        return _join(reshape(parts, shape=shape) if len(axes) > 1 else parts, at, tiled)

    return _each("nnc.all_to_all", x, exchanged)


@spelled
def ppermute(x: T, axis_name: Names, perm: Sequence[tuple[int, int]]) -> T:
    """Sends the value of each place along a named axis to another one.

    Args:
        x: arrays, a pytree.
        axis_name: the named axis, or a tuple of axes, the first of which counts slowest.
        perm: pairs (source, target). A place that is no target gets zeros.

    Returns:
        a pytree like `x`.

    Raises:
        UnboundAxisError: there is no such named axis.
        ArgumentError: a place stands twice among sources or targets, or does not exist.

    Example:
        >>> shift = lambda x: nnc.ppermute(x, "i", [(0, 1), (1, 2)])
        >>> nnc.vmap(shift, axis_name="i")(nnp.asarray([1.0, 2.0, 3.0]))
        Array([0., 1., 2.], dtype=float32)
    """
    axes = find_axes("nnc.ppermute", axis_name)
    pairs = _checked_pairs(perm, prod(axis.size for axis in axes))
    if len(axes) == 1:
        return _each("nnc.ppermute", x, lambda leaf: _call(collective.ppermute, leaf, axes[0], perm=pairs))
    size, sources = prod(axis.size for axis in axes), {target: source for source, target in pairs}
    place = _index(axes)

    def taken(leaf: Value) -> Value:
        table = as_value(np.asarray([sources.get(k, 0) for k in range(size)]))
        source = gather(table, place, axes=(0,), batch=0, mode="clip")
        row = gather(_gather(leaf, axes), source, axes=(0,), batch=0, mode="clip")
        got = gather(as_value(np.asarray([k in sources for k in range(size)])), place, axes=(0,), batch=0, mode="clip")
        return select(broadcast_to(got, shape=row.spec.shape), row, zeros(row.spec))

    return _each("nnc.ppermute", x, taken)


def _checked_pairs(perm: Any, size: int) -> tuple[tuple[int, int], ...]:
    try:
        pairs = tuple((operator.index(source), operator.index(target)) for source, target in perm)
    except (TypeError, ValueError):
        problem = f"perm must be a list of pairs of ints, it is {perm!r}."
        raise user_error(ArgumentError, "nnc.ppermute", problem, fix="give pairs (source, target).") from None
    sources, targets = [a for a, _ in pairs], [b for _, b in pairs]
    if any(not 0 <= k < size for k in (*sources, *targets)):
        problem = f"perm {list(pairs)} names a place that is not among the {size} of the axis."
        raise user_error(ArgumentError, "nnc.ppermute", problem, fix=f"use numbers from 0 to {size - 1}.")
    if len(set(sources)) < len(sources) or len(set(targets)) < len(targets):
        problem = f"perm {list(pairs)} names a place twice as source, or twice as target."
        fix = "let each place send to one place and receive from one."
        raise user_error(ArgumentError, "nnc.ppermute", problem, fix=fix)
    return pairs


# -- places ------------------------------------------------------------------------------------------------------------


@spelled
def axis_index(axis_name: Names) -> Array:
    """Returns the number of the place along a named axis at which the function runs.

    Args:
        axis_name: the axis, or a tuple of axes, the first of which counts slowest.

    Returns:
        an int32 scalar, from 0 to `axis_size(axis_name)` - 1.

    Raises:
        UnboundAxisError: there is no such axis.

    Example:
        >>> nnc.vmap(lambda x: x * nnc.axis_index("i"), axis_name="i")(nnp.asarray([1.0, 3.0, 5.0]))
        Array([ 0.,  3., 10.], dtype=float32)
    """
    return _index(find_axes("nnc.axis_index", axis_name))


def _index(axes: Sequence[NamedAxis]) -> Any:
    index = axes[0].index
    for axis in axes[1:]:
        index = index * axis.size + axis.index
    return index


@spelled
def axis_size(axis_name: Names) -> int:
    """Returns the number of places along a named axis.

    Args:
        axis_name: the axis, or a tuple of axes.

    Returns:
        an int, known when the function is traced.

    Raises:
        UnboundAxisError: there is no such axis.

    Example:
        >>> nnc.vmap(lambda x: x * nnc.axis_size("i"), axis_name="i")(nnp.asarray([1.0, 3.0]))
        Array([2., 6.], dtype=float32)
    """
    return prod(axis.size for axis in find_axes("nnc.axis_size", axis_name))


@spelled
def pvary(x: T, axis_name: Names) -> T:
    """Returns the same values, which count as varying over a named axis from here on.

    A gradient with regard to the result is each place's own; one with regard to `x` is their sum.

    Args:
        x: arrays, a pytree.
        axis_name: the axis, or a tuple of axes.

    Returns:
        a pytree like `x`.

    Raises:
        UnboundAxisError: there is no such axis.

    Example:
        >>> def gradients(x, w=nnp.asarray(2.0)):
        ...     loss = lambda w: w * x
        ...     return nnc.grad(loss)(w), nnc.grad(loss)(nnc.pvary(w, "i"))
        >>> nnc.vmap(gradients, axis_name="i")(nnp.asarray([1.0, 3.0]))
        (Array([4., 4.], dtype=float32), Array([1., 3.], dtype=float32))
    """
    axes = frozenset(find_axes("nnc.pvary", axis_name))
    return _each("nnc.pvary", x, lambda leaf: vary(leaf, axes))
