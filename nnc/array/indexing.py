"""Indexing by users: `x[index]`, `x.at[index].set(...)`, take, dynamic slices, in terms of commands."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from nnc.array.index_plan import (
    Picked,
    Plan,
    bad_type,
    from_front,
    make_plan,
    read_entry,
)
from nnc.array.promote import (
    Operand,
    as_operand,
    as_operands,
    astype,
    broadcast_shapes,
    broadcast_to_shape,
    dtype_of,
    is_weak,
    with_weakness,
)
from nnc.base import dtypes
from nnc.base.traced_size import as_index
from nnc.calls.spelling import spelled
from nnc.commands.elementwise import add, copy, maximum, minimum, mul, select
from nnc.commands.index import GATHER_MODES, SCATTER_MODES, SLICE_MODES, expand_last, gather, move_axis, scatter
from nnc.commands.index import dynamic_slice as dynamic_slice_command
from nnc.commands.index import dynamic_update_slice as dynamic_update_slice_command
from nnc.commands.rules import check_axis
from nnc.commands.shape import flip, permute, reshape, slice_
from nnc.errors import ArgumentTypeError, DTypeError, IndexingError, OutOfBoundsError, ShapeError, user_error
from nnc.errors.errors import check_choice
from nnc.errors.tracebacks import api_boundary
from nnc.graph import TensorSpec, spec_of
from nnc.graph.rules import Value

if TYPE_CHECKING:
    from nnc.array.array import Array
    from nnc.array.likes import ArrayLike

Shape = tuple[int, ...]


# -- x[index] ----------------------------------------------------------------------------------------------------------


def getitem(x: Value, index: Any, mode: str = "error") -> Value:
    """Returns `x[index]` with NumPy's meaning.

    Args:
        index: integers, slices, None, `...`, integer arrays, boolean masks whose values are known, or a tuple of them.
        mode: the treatment of an index out of range: "error", "clip", "wrap", "drop" (reads 0), "fill" (reads NaN, or the least
            signed, the greatest unsigned integer).

    Returns:
        the selected elements; an index without arrays gives a view, at no cost once compiled.

    Raises:
        OutOfBoundsError: an index out of range, with mode "error"; at once where it is known, else when it runs.
        IndexingError: too many indices, floats, a mask of another size.
        TraceError: a mask or slice bound is traced.
    """
    check_choice("getitem", "mode", mode, GATHER_MODES)
    plan = make_plan(spec_of(x), index, mode, "getitem")
    view = _read_view(x, plan)
    if not plan.arrays:
        return view
    out = gather(view, *plan.arrays, axes=plan.axes, batch=0, mode=mode)
    n = len(plan.picked)
    others = range(n, n + len(plan.rest))
    return permute(out, (*others[: plan.at], *range(n), *others[plan.at :]))


def _read_view(x: Value, plan: Plan) -> Value:
    x = _slice(x, plan.start, plan.limit, plan.stride)
    if plan.flips:
        x = flip(x, axes=plan.flips)
    return x if spec_of(x).shape == plan.shape else reshape(x, shape=plan.shape)


def _slice(x: Value, start: Shape, limit: Shape, stride: Shape) -> Value:
    whole = spec_of(x).shape
    if start == (0,) * len(whole) and limit == whole and stride == (1,) * len(whole):
        return x
    return slice_(x, start=start, limit=limit, stride=stride)


def _write_view(x: Value, view: Value, plan: Plan) -> Value:
    """`x` with the elements that `_read_view` reads replaced by `view`."""
    view = view if spec_of(view).shape == plan.box else reshape(view, shape=plan.box)
    if plan.flips:
        view = flip(view, axes=plan.flips)
    return _write_box(x, view, plan.start, plan.limit, plan.stride)


def _write_box(x: Value, part: Value, start: Shape, limit: Shape, stride: Shape) -> Value:
    """Axes with a stride are written one at a time, so that no index array is larger than one axis."""
    whole = spec_of(x).shape
    for axis, step in enumerate(stride):
        if step > 1:
            one_axis = (
                _put((0,) * len(whole), axis, start[axis]), _put(whole, axis, limit[axis]), _put((1,) * len(whole), axis, step)
            )  # fmt: skip
            inner = _write_box(
                slice_(x, start=one_axis[0], limit=one_axis[1], stride=one_axis[2]),
                part,
                _put(start, axis, 0),
                _put(limit, axis, spec_of(part).shape[axis]),
                _put(stride, axis, 1),
            )
            rows = np.arange(start[axis], limit[axis], step)
            return scatter(
                x, move_axis(inner, axis, 0), rows, axes=(axis,), batch=0, mode="error", op="set", unique=True
            )
    if np.shape(part) == whole:
        part = part if hasattr(part, "spec") else copy(part)
        return part if is_weak(x) else with_weakness(part, False)
    return dynamic_update_slice_command(x, part, *(np.asarray(a) for a in start), mode="error")


def _put(sizes: Shape, axis: int, value: int) -> Shape:
    return (*sizes[:axis], value, *sizes[axis + 1 :])


# -- x.at[index] -------------------------------------------------------------------------------------------------------

_COMBINE: dict[str, Callable[[Value, Value], Value]] = {
    "set": lambda old, new: new,
    "add": add,
    "mul": mul,
    "min": minimum,
    "max": maximum,
}


@api_boundary
def set_at(
    x: Value, index: Any, values: Any, op: str = "set", mode: str = "error", unique_indices: bool = False
) -> Value:
    """Returns `x` after `x[index] = values`, or after combining the elements there with the values by `op`.

    If an index repeats, op "set" keeps the last value; the other ops combine all of them.

    Args:
        values: they broadcast to the shape of `x[index]`, and must promote to the dtype of x.
        op: "set", "add", "mul", "min" or "max".
        mode: "error", "clip", "wrap" or "drop" (which writes nothing out of range).
        unique_indices: the caller's promise that no element is indexed twice.

    Raises:
        DTypeError: the dtype of x cannot hold the values. Other errors are those of `getitem`.
    """
    where = f"x.at[...].{_METHODS.get(op, op)}"
    check_choice(where, "op", op, _COMBINE)
    check_choice(where, "mode", mode, SCATTER_MODES)
    news = fit_values(x, values, where)
    masked = _masked(x, index, news)
    if masked is not None:
        rows = broadcast_to_shape(news, x.spec.shape)
        return select(expand_last(masked, x.spec), _COMBINE[op](x, rows), x)
    plan = make_plan(spec_of(x), index, mode, where)
    news = _broadcast_values(news, plan.result, where)
    if not plan.arrays:
        return _write_view(x, news if op == "set" else _COMBINE[op](_read_view(x, plan), news), plan)
    n = len(plan.picked)
    total = range(n + len(plan.rest))
    news = permute(news, (*total[plan.at : plan.at + n], *total[: plan.at], *total[plan.at + n :]))
    view = scatter(
        _read_view(x, plan), news, *plan.arrays, axes=plan.axes, batch=0, mode=mode, op=op, unique=unique_indices
    )
    return _write_view(x, view, plan)


_METHODS = {"mul": "multiply"}


def fit_values(x: Value, values: Any, where: str) -> Value:
    """Converts `values` to the dtype of `x`; they are weak where both are.

    Raises:
        DTypeError: the dtype of x cannot hold the update.
    """
    _, news = as_operands((x, values), where, ("x", "values"))
    dtype, given = spec_of(x).dtype, dtype_of(news)
    try:
        joined = dtypes.raise_kind(dtype, given) if is_weak(news) else dtypes.promote_types(dtype, given)
    except TypeError:
        joined = None
    if joined != dtype:
        wider = (joined or dtypes.float64).name
        problem = f"values of {given.name} do not fit into an array of {dtype.name}."
        operands = {"x": spec_of(x), "values": given.name if is_weak(news) else spec_of(news)}
        fix = f"widen the array with x.astype('{wider}'), or convert the values with values.astype('{dtype.name}')."
        raise user_error(DTypeError, where, problem, operands=operands, fix=fix)
    weak = dtypes.joint_weakness([(dtype, is_weak(x)), (given, is_weak(news))])
    return with_weakness(astype(news, dtype, where), weak)


def _masked(x: Value, index: Any, news: Value) -> Value | None:
    """Returns the mask, where the index is one that covers leading axes and the values do not depend on how many it selects."""
    spec = getattr(index, "spec", None) or (spec_of(index) if isinstance(index, np.ndarray) else None)
    if spec is None or spec.dtype != dtypes.bool_ or not spec.ndim or spec.shape != x.spec.shape[: spec.ndim]:
        return None
    shape = np.shape(news)
    rest = x.spec.shape[spec.ndim :]
    fits = len(shape) <= len(rest) and all(n in (1, m) for n, m in zip(shape[::-1], rest[::-1], strict=False))
    return index if fits else None


def _broadcast_values(news: Value, shape: Shape, where: str) -> Value:
    given = np.shape(news)
    extra = max(0, len(given) - len(shape))
    inner = given[extra:]
    if any(n != 1 for n in given[:extra]) or any(
        n not in (1, m) for n, m in zip(inner[::-1], shape[::-1], strict=False)
    ):
        problem = f"values of shape {given} do not broadcast to the indexed part, which has shape {shape}."
        fix = "give values of that shape, or with sizes of 1."
        raise user_error(ShapeError, where, problem, operands={"values": spec_of(news)}, fix=fix)
    return broadcast_to_shape(reshape(news, shape=inner) if extra else news, shape)


# -- take --------------------------------------------------------------------------------------------------------------


def integer_indices(indices: Any, where: str) -> Operand:
    """Indices as an array or a tracer of integers; an empty list is one, too."""
    indices = as_operand(indices, where, "indices")
    if isinstance(indices, np.ndarray) and not indices.size:
        indices = indices.astype(np.int64)
    if not dtypes.is_integer(dtype_of(indices)):
        fix = "pass integers; convert with indices.astype(int)."
        raise user_error(IndexingError, where, f"indices of {dtype_of(indices).name} are no positions.", fix=fix)
    return np.asarray(indices) if isinstance(indices, (int, np.generic)) else indices


def take(x: Any, indices: Any, axis: int | None = None, mode: str = "error") -> Value:
    """Returns the elements of `x` at `indices` along `axis`; of the flattened `x` where it is None."""
    x = _array(x, "take")
    if axis is None:
        x, axis = reshape(x, shape=(spec_of(x).size,)), 0
    axis = check_axis("take", axis, spec_of(x).ndim)
    index = integer_indices(indices, "take")
    check_choice("take", "mode", mode, GATHER_MODES)
    return getitem(x, (slice(None),) * axis + (index,), mode)


def _array(x: Any, where: str) -> Value:
    x = as_operand(x, where)
    return np.asarray(x, dtype_of(x)) if not hasattr(x, "spec") else x


def _along_axis(x: Value, indices: Any, axis: int, mode: str, where: str) -> tuple[Value, int]:
    """Returns the index array with the outer axes of x joined in, counted from the front; the axis from the front."""
    spec = spec_of(x)
    index = integer_indices(indices, where)
    axis = check_axis(where, axis, spec.ndim)
    if len(np.shape(index)) != spec.ndim:
        problem = f"the indices have {len(np.shape(index))} axes, x has {spec.ndim}."
        fix = "give indices with as many axes as x."
        raise user_error(ShapeError, where, problem, operands={"x": spec, "indices": spec_of(index)}, fix=fix)
    return from_front(index, spec.shape[axis], axis, mode, where), axis


def _outer_shape(where: str, axis: int, **operands: Value) -> Shape:
    """Returns the sizes but for `axis`, to which the operands broadcast."""
    shapes = [_put(np.shape(x), axis, 1) for x in operands.values()]
    try:
        return broadcast_shapes(*shapes)
    except ValueError:
        problem = f"shapes {' and '.join(map(str, map(np.shape, operands.values())))} differ but for axis {axis}."
        shown = {name: spec_of(x) for name, x in operands.items()}
        fix = "make the sizes of all other axes equal or 1."
        raise user_error(ShapeError, where, problem, operands=shown, fix=fix) from None


def take_along_axis(x: Any, indices: Any, axis: int | None = -1, mode: str = "error") -> Value:
    """out[..., i, ...] = x[..., indices[..., i, ...], ...], where the other axes of both run together (and broadcast)."""
    x = _array(x, "take_along_axis")
    if axis is None:
        x, axis = reshape(x, shape=(spec_of(x).size,)), 0
    check_choice("take_along_axis", "mode", mode, GATHER_MODES)
    index, axis = _along_axis(x, indices, axis, mode, "take_along_axis")
    outer = _outer_shape("take_along_axis", axis, x=x, indices=index)
    last = len(outer) - 1
    x = move_axis(broadcast_to_shape(x, _put(outer, axis, np.shape(x)[axis])), axis, last)
    index = move_axis(broadcast_to_shape(index, _put(outer, axis, np.shape(index)[axis])), axis, last)
    return move_axis(gather(x, index, axes=(last,), batch=last, mode=mode), last, axis)


def put_along_axis(
    x: Any, indices: Any, values: Any, axis: int | None = -1, mode: str = "error", op: str = "set"
) -> Value:
    """`x` with x[..., indices[..., i, ...], ...] = values[..., i, ...]: the counterpart of `take_along_axis`."""
    where = "put_along_axis"
    x = _array(x, where)
    shape = spec_of(x).shape
    if axis is None:
        return reshape(put_along_axis(reshape(x, shape=(spec_of(x).size,)), indices, values, 0, mode, op), shape=shape)
    check_choice(where, "mode", mode, SCATTER_MODES)
    index, axis = _along_axis(x, indices, axis, mode, where)
    outer = _put(shape, axis, 1)
    if _outer_shape(where, axis, x=x, indices=index) != outer:
        problem = f"indices of shape {np.shape(index)} name more rows than x of shape {shape} has."
        fix = "make the other sizes equal to those of x, or 1."
        raise user_error(ShapeError, where, problem, operands={"x": spec_of(x), "indices": spec_of(index)}, fix=fix)
    full_shape = _put(shape, axis, np.shape(index)[axis])
    news = _broadcast_values(fit_values(x, values, where), full_shape, where)
    last = len(shape) - 1
    rows, news, index = (move_axis(y, axis, last) for y in (x, news, broadcast_to_shape(index, full_shape)))
    out = scatter(rows, news, index, axes=(last,), batch=last, mode=mode, op=op)
    return move_axis(out, last, axis)


# -- dynamic slices ----------------------------------------------------------------------------------------------------


@spelled
def dynamic_slice(x: ArrayLike, starts: ArrayLike, sizes: Sequence[int], *, mode: str = "error") -> Array:
    """Returns the box of `sizes` that begins at `starts`, which may be traced.

    Args:
        x: any shape.
        starts: one integer for each axis, or a 1-d array of them; negative ones count from the end.
        sizes: size of the box along each axis.
        mode: "error" raises where the box is not inside x, "clip" moves it inside.

    Raises:
        OutOfBoundsError: the box is not inside x.
        ShapeError: sizes do not fit.

    Example:
        >>> nnc.dynamic_slice(nnp.arange(6), [nnp.asarray(2)], [3])
        Array([2, 3, 4], dtype=int64)
    """
    where = "dynamic_slice"
    x = _array(x, where)
    check_choice(where, "mode", mode, SLICE_MODES)
    box = _box_sizes(sizes, spec_of(x), where)
    return dynamic_slice_command(x, *_read_starts(starts, spec_of(x), box, mode, where), sizes=box, mode=mode)


@spelled
def dynamic_update_slice(x: ArrayLike, update: ArrayLike, starts: ArrayLike, *, mode: str = "error") -> Array:
    """`x` with the box that begins at `starts` replaced by `update`.

    Args:
        x: any shape.
        update: as many axes as x; must promote to the dtype of x.
        starts: one integer for each axis, or a 1-d array of them; negative ones count from the end.
        mode: "error" raises where the box is not inside x, "clip" moves it inside.

    Raises:
        OutOfBoundsError: the box is not inside x.
        DTypeError: the update does not fit into the dtype of x.

    Example:
        >>> nnc.dynamic_update_slice(nnp.zeros(4), nnp.ones(2), [1])
        Array([0., 1., 1., 0.], dtype=float32)
    """
    where = "dynamic_update_slice"
    x = _array(x, where)
    check_choice(where, "mode", mode, SLICE_MODES)
    news = _array(fit_values(x, update, where), where)
    box = _box_sizes(np.shape(news), spec_of(x), where)
    return dynamic_update_slice_command(x, news, *_read_starts(starts, spec_of(x), box, mode, where), mode=mode)


def _box_sizes(sizes: Sequence[int], spec: TensorSpec, where: str) -> Shape:
    try:
        box = tuple(as_index(n) for n in sizes)
    except TypeError as error:
        raise user_error(
            ArgumentTypeError, where, f"sizes {sizes!r} are no integers.", fix="give one static integer for each axis."
        ) from error
    if len(box) != spec.ndim or any(not 0 <= n <= m for n, m in zip(box, spec.shape, strict=True)):
        problem = f"a box of shape {box} does not fit into an array of shape {spec.shape}."
        fix = "give for each axis a size from 0 to the size of x."
        raise user_error(ShapeError, where, problem, operands={"x": spec}, fix=fix)
    return box


def _read_starts(starts: Any, spec: TensorSpec, box: Shape, mode: str, where: str) -> list[Value]:
    if hasattr(starts, "spec") or isinstance(starts, np.ndarray):
        starts = (
            [getitem(starts, i) if hasattr(starts, "spec") else starts[i] for i in range(np.shape(starts)[0])]
            if np.ndim(starts)
            else [starts]
        )
    if len(starts) != spec.ndim:
        problem = f"{len(starts)} starts for an array of {spec.ndim} axes."
        raise user_error(ShapeError, where, problem, operands={"x": spec}, fix="give one start for each axis.")
    return [_read_start(start, spec.shape[axis], box[axis], axis, mode, where) for axis, start in enumerate(starts)]


def _read_start(start: Any, size: int, length: int, axis: int, mode: str, where: str) -> Value:
    entry = read_entry(start, where)
    if isinstance(entry, Picked) and np.shape(entry.values) == ():
        return from_front(entry.values, size, axis, "clip", where)
    if not isinstance(entry, int):
        raise bad_type(where, f"start {axis}")
    first = entry + size if entry < 0 else entry
    if mode == "error" and not 0 <= first <= size - length:
        problem = f"{first}:{first + length} is out of range for axis {axis}, which has size {size}."
        fix = f"start from 0 to {size - length}, or pass mode='clip' to move the box inside."
        raise user_error(OutOfBoundsError, where, problem, fix=fix)
    return np.asarray(first)
