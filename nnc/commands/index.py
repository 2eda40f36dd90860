"""Reading and writing at positions that are known only when the program runs: gather, scatter, dynamic slices.

`gather` and `scatter` take one integer array for each indexed axis. With `batch` = b the first b axes of every operand are
shared (B), the index arrays have shape B + I, and

    gather:   out[b, i, r] = x[b, index(b, i), r]             scatter:   x[b, index(b, i), r] op= updates[b, i, r]

where r runs over the axes of x that are neither shared nor indexed, in their order. Indices count from the front; negative
ones are out of range. `mode` sets the treatment of an index out of range: "error" raises, "clip" takes the nearest position,
"wrap" counts modulo the size, "drop" reads 0 and writes nothing, "fill" (gather only) reads NaN, in integers the least
signed or the greatest unsigned value, in bools True.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np

from nnc.base import dtypes
from nnc.commands.constants import full, iota
from nnc.commands.elementwise import add, convert, equal, in_dtype, maximum, minimum, mul, reciprocal, select
from nnc.commands.reduce import expand
from nnc.commands.rules import Gathered, check_axes, check_dtype, each, lead, lead_all, linear_in, linear_in_all, zeros
from nnc.commands.shape import broadcast_to, concatenate, permute, reshape, slice_axis, transpose
from nnc.errors import OutOfBoundsError, ShapeError, user_error
from nnc.errors.errors import check_choice
from nnc.graph import TensorSpec, check_same_dtype, register, spec_of
from nnc.graph import command as get_command
from nnc.graph.rules import Derivative, InPlace, Linear, Rules, Tangents, Value

# Modes of reading and writing at positions out of range, as the module's docstring has them.
GATHER_MODES = ("error", "clip", "wrap", "drop", "fill")
SCATTER_MODES = ("error", "clip", "wrap", "drop")
SLICE_MODES = ("error", "clip")


def is_strict(*specs: TensorSpec, mode: str, **params: Any) -> bool:
    """Whether a command of these parameters raises on a position that is out of range (column `refuses`)."""
    return mode == "error"


Shape = tuple[int, ...]
NDArray = np.ndarray[Any, Any]
_IndexRules = partial(Rules, refuses=is_strict, cost=lambda *specs, **params: 0)


def move_axis(x: Value, source: int, target: int) -> Value:
    """`x` with one axis moved to another place, the others in their order; itself where that changes nothing."""
    order = [axis for axis in range(len(np.shape(x))) if axis != source]
    order.insert(target, source)
    return permute(x, tuple(order))


def _rest(ndim: int, axes: Shape, batch: int) -> Shape:
    return tuple(axis for axis in range(batch, ndim) if axis not in axes)


def _check_indices(
    where: str, x: TensorSpec, indices: Sequence[TensorSpec], axes: Shape, batch: int, mode: str, modes: Sequence[str]
) -> Shape:
    """Checks the common operands of gather and scatter; returns B + I + rest, the shape of the elements that are read or
    written.
    """
    check_choice(where, "mode", mode, modes)
    check_axes(where, axes, x.ndim)
    if not indices or len(indices) != len(axes) or not 0 <= batch <= min((*axes, *(i.ndim for i in indices))):
        problem = f"{len(indices)} index arrays for axes {tuple(axes)} with {batch} shared axes."
        operands = {"x": x, **{f"index {k}": spec for k, spec in enumerate(indices)}}
        fix = "give one index array for each indexed axis; the shared axes come first and are not indexed."
        raise user_error(ShapeError, where, problem, operands=operands, fix=fix)
    for k, spec in enumerate(indices):
        check_dtype(where, spec, dtypes.is_integer, "of an integer type", f"index {k}")
        if spec.shape != indices[0].shape or spec.shape[:batch] != x.shape[:batch]:
            problem = f"index {k} has shape {spec.shape}, which does not fit the others or the {batch} shared axes."
            operands = {"x": x, **{f"index {n}": s for n, s in enumerate(indices)}}
            fix = "broadcast the index arrays to one shape that starts with the shared axes of x."
            raise user_error(ShapeError, where, problem, operands=operands, fix=fix)
    return (*indices[0].shape, *(x.shape[axis] for axis in _rest(x.ndim, axes, batch)))


# -- reference ---------------------------------------------------------------------------------------------------------


def _locate(
    where: str, shape: Shape, indices: Sequence[NDArray], axes: Shape, batch: int, mode: str
) -> tuple[NDArray, NDArray | None]:
    """For each index the flat position within the shared and indexed axes of x, and where it is in range (None: everywhere).

    Positions out of range are 0 in the modes "drop" and "fill".
    """
    place = np.zeros(indices[0].shape, np.int64)
    for axis in range(batch):
        place = place * shape[axis] + np.arange(shape[axis]).reshape(
            [-1 if a == axis else 1 for a in range(place.ndim)]
        )
    inside: NDArray | None = None
    for index, axis in zip(indices, axes, strict=True):
        size = shape[axis]
        index = index if index.dtype == np.uint64 else index.astype(np.int64, copy=False)
        ok = (index >= 0) & (index < size)
        if not ok.all():
            if mode == "error" or (mode in ("clip", "wrap") and size == 0):
                value = index[~ok].flat[0]
                before = f", {-value} before the first element," if value < 0 else ""
                from_end = f"; counted from the end it was {value - size}" if value < 0 else ""
                problem = f"index {value}{before} is out of range for axis {axis}, which has size {size}{from_end}."
                fix = (
                    f"index with 0 to {size - 1}, or pass mode= another than 'error' to accept such indices."
                    if size
                    else "an axis of size 0 has no element to index."
                )
                raise user_error(OutOfBoundsError, where, problem, fix=fix)
            if mode == "clip":
                index = np.clip(index, 0, size - 1)
            elif mode == "wrap":
                index = index % size
            else:
                inside = ok if inside is None else inside & ok
                index = np.where(ok, index, 0)
        place = place * size + index.astype(np.int64)
    return (place if inside is None else np.where(inside, place, 0)), inside


def _flat(x: NDArray, axes: Shape, batch: int) -> NDArray:
    """x as a matrix: a row for each position of the shared and indexed axes."""
    order = (*range(batch), *axes, *_rest(x.ndim, axes, batch))
    rows = math.prod(x.shape[axis] for axis in order[: batch + len(axes)])
    return x.transpose(order).reshape(rows, math.prod(x.shape[axis] for axis in order[batch + len(axes) :]))


def fill_value(dtype: dtypes.DType) -> Any:
    """Returns the value that mode "fill" reads out of range."""
    if dtypes.is_bool(dtype):
        return True
    if dtypes.is_integer(dtype):
        return np.iinfo(dtype).min if dtype in dtypes.SIGNED else np.iinfo(dtype).max
    return np.nan


def _gather_reference(x: NDArray, *indices: NDArray, axes: Shape, batch: int, mode: str) -> NDArray:
    shape = _check_indices("gather", spec_of(x), [spec_of(i) for i in indices], axes, batch, mode, GATHER_MODES)
    place, inside = _locate("gather", x.shape, indices, axes, batch, mode)
    rows = _flat(x, axes, batch)
    outside = np.asarray(fill_value(x.dtype) if mode == "fill" else 0).astype(x.dtype)
    if inside is None:
        return rows[place.ravel()].reshape(shape)
    out = np.full((place.size, rows.shape[1]), outside, x.dtype)
    out[inside.ravel()] = rows[place[inside]]
    return out.reshape(shape)


_UFUNCS = {"add": np.add, "mul": np.multiply, "min": np.minimum, "max": np.maximum}


def _scatter_reference(
    x: NDArray, updates: NDArray, *indices: NDArray, axes: Shape, batch: int, mode: str, op: str, unique: bool = False
) -> NDArray:
    place, inside = _locate("scatter", x.shape, indices, axes, batch, mode)
    wide = x.dtype if op == "set" else dtypes.accumulator(x.dtype)
    rows = np.array(_flat(x, axes, batch), wide, order="C")
    width = rows.shape[1]
    news = np.ascontiguousarray(updates.reshape(place.size, width), wide)
    at = place.ravel()
    if inside is not None:
        news, at = news[inside.ravel()], at[inside.ravel()]
    with np.errstate(all="ignore"):
        if op == "set":
            rows[at] = news  # in the order of the updates: the last one wins
        else:
            cells = (at[:, None] * width + np.arange(width)).ravel()
            _UFUNCS[op].at(rows.reshape(-1), cells, news.reshape(-1))
    order = (*range(batch), *axes, *_rest(x.ndim, axes, batch))
    moved = rows.reshape([x.shape[axis] for axis in order]).transpose(np.argsort(order))
    return moved.astype(x.dtype, copy=False)


# -- gather ------------------------------------------------------------------------------------------------------------


def _gather_infer(x: TensorSpec, *indices: TensorSpec, axes: Shape, batch: int, mode: str) -> TensorSpec:
    return x.update(shape=_check_indices("gather", x, indices, axes, batch, mode, GATHER_MODES))


def _gather_jvp(primals: tuple[Value, ...], tangents: Tangents, outputs: tuple[Value, ...], **params: Any) -> Tangents:
    """Reads the tangent in mode "drop" for mode "fill": values out of range are constant, so their tangent is 0."""
    return (gather(tangents[0], *primals[1:], **{**params, "mode": _linear_mode(params["mode"])}),)


def _linear_mode(mode: str) -> str:
    return "drop" if mode == "fill" else mode


def _gather_transpose(ct: Value, x: Linear, *indices: Value, axes: Shape, batch: int, mode: str) -> Value:
    return scatter(zeros(x.spec), ct, *indices, axes=axes, batch=batch, mode=_linear_mode(mode), op="add")


def _shift(axes: Shape) -> Shape:
    return tuple(axis + 1 for axis in axes)


def _gather_batch(
    size: int, operands: tuple[Value, ...], batched: tuple[bool, ...], *, axes: Shape, batch: int, mode: str
) -> Any:
    (x, *indices), (x_batched, *indices_batched) = operands, batched
    if not any(indices_batched):  # the new axis is read whole
        out = gather(move_axis(x, 0, batch), *indices, axes=_shift(axes), batch=batch, mode=mode)
        return (move_axis(out, indices[0].spec.ndim, 0),), (True,)
    indices = lead_all(size, indices, indices_batched)
    if x_batched:
        return (gather(x, *indices, axes=_shift(axes), batch=batch + 1, mode=mode),), (True,)
    moved = [move_axis(index, 0, batch) for index in indices]  # the new axis is one more of the index arrays' own
    return (move_axis(gather(x, *moved, axes=axes, batch=batch, mode=mode), batch, 0),), (True,)


gather = register(
    "gather",
    _IndexRules(
        infer=_gather_infer,
        reference=_gather_reference,
        derivative=Derivative(_gather_jvp, each({0: _gather_transpose})),
        batch=_gather_batch,
    ),
    arity=None,
    elements=Gathered(),
)

# -- scatter -----------------------------------------------------------------------------------------------------------


def _scatter_infer(
    x: TensorSpec,
    updates: TensorSpec,
    *indices: TensorSpec,
    axes: Shape,
    batch: int,
    mode: str,
    op: str,
    unique: bool = False,
) -> TensorSpec:
    check_choice("scatter", "op", op, ("set", *_UFUNCS))
    shape = _check_indices("scatter", x, indices, axes, batch, mode, SCATTER_MODES)
    check_same_dtype("scatter", (x, updates))
    if op in ("min", "max"):
        check_dtype("scatter", x, lambda dtype: not dtypes.is_complex(dtype), "real or bool")
    if updates.shape != shape:
        problem = f"the updates have shape {updates.shape}, the indexed part of x has {shape}."
        fix = "broadcast the updates to the shape of the indexed part."
        raise user_error(ShapeError, "scatter", problem, operands={"x": x, "updates": updates}, fix=fix)
    return x


def _scatter_jvp(
    primals: tuple[Value, ...],
    tangents: Tangents,
    outputs: tuple[Value, ...],
    *,
    op: str,
    unique: bool = False,
    **params: Any,
) -> Tangents:
    x, updates, *indices = primals
    t = tangents[0] if tangents[0] is not None else zeros(x.spec)
    t_updates = tangents[1] if tangents[1] is not None else zeros(updates.spec)
    if op in ("set", "add"):
        return (scatter(t, t_updates, *indices, op=op, unique=unique, **params),)
    if op == "mul":
        return (_scatter_mul_tangent(primals, t, t_updates, unique, params),)
    out = outputs[0]
    # min, max: the elements that equal the result share its tangent equally. 16-bit floats would not hold small shares
    own, wide = out.spec.dtype, dtypes.accumulator(out.spec.dtype)
    t, t_updates = in_dtype(t, wide), in_dtype(t_updates, wide)
    zero = zeros(out.spec.update(dtype=wide))
    add_up: dict[str, Any] = {"op": "add", "unique": unique, **params}
    kept = convert(equal(x, out), dtype=wide)
    won = convert(equal(updates, gather(out, *indices, **params)), dtype=wide)
    count = add(kept, scatter(zero, won, *indices, **add_up))
    total = mul(add(mul(kept, t), scatter(zero, mul(won, t_updates), *indices, **add_up)), reciprocal(count))
    return (in_dtype(total, own),)


def _scatter_mul_tangent(
    primals: tuple[Value, ...], t: Value, t_updates: Value, unique: bool, params: dict[str, Any]
) -> Value:
    """t · Π updates + x · d(Π updates); both are made without division, so zeros are no trouble."""
    x, updates, *indices = primals
    if _is_unique(x.spec, indices, unique, params):
        one = full(shape=x.spec.shape, dtype=x.spec.dtype, value=1)
        product = scatter(one, updates, *indices, op="set", unique=True, **params)
        change = scatter(zeros(x.spec), t_updates, *indices, op="set", unique=True, **params)
        return add(mul(t, product), mul(x, change))
    axes, batch = params["axes"], params["batch"]
    order = (*range(batch), *axes, *_rest(x.spec.ndim, axes, batch))
    places = _places(x.spec, indices, params)
    count = places.spec.size
    cells = math.prod(x.spec.shape[axis] for axis in order[: batch + len(axes)])
    width = x.spec.size // cells if cells else math.prod(x.spec.shape[axis] for axis in order[batch + len(axes) :])
    flat = reshape(places, shape=(count,))
    one_axis: dict[str, Any] = {"axes": (0,), "batch": 0, "mode": "error"}
    rank = get_command("argsort")(flat, axis=0, descending=False, stable=True)
    at = gather(flat, rank, **one_axis)
    p = gather(reshape(updates, shape=(count, width)), rank, **one_axis)
    s = gather(reshape(t_updates, shape=(count, width)), rank, **one_axis)
    step = 1
    while step < count:  # a scan by doubling over runs of one place: (p, s) is a product and its tangent
        same = equal(slice_axis(at, 0, 0, count - step), slice_axis(at, 0, step, count))
        left_p, left_s = slice_axis(p, 0, 0, count - step), slice_axis(s, 0, 0, count - step)
        right_p, right_s = slice_axis(p, 0, step, count), slice_axis(s, 0, step, count)
        same = broadcast_to(same, shape=right_p.spec.shape, axes=(0,))
        joined_p = select(same, mul(left_p, right_p), right_p)
        joined_s = select(same, add(mul(left_s, right_p), mul(left_p, right_s)), right_s)
        p = concatenate(slice_axis(p, 0, 0, step), joined_p, axis=0)
        s = concatenate(slice_axis(s, 0, 0, step), joined_s, axis=0)
        step *= 2

    def spread(value: int, run: Value) -> Value:
        """Takes the last of each run, which holds all of it, to its place; row 0 takes dropped ones."""
        start = full(shape=(cells + 1, width), dtype=x.spec.dtype, value=value)
        rows = slice_axis(scatter(start, run, at, op="set", **one_axis), 0, 1, cells + 1)
        inverse = tuple(int(i) for i in np.argsort(order))
        return transpose(reshape(rows, shape=tuple(x.spec.shape[axis] for axis in order)), permutation=inverse)

    return add(mul(t, spread(1, p)), mul(x, spread(0, s)))


def _is_unique(x: TensorSpec, indices: Sequence[Value], unique: bool, params: dict[str, Any]) -> bool:
    """Whether no two updates of one row of the shared axes meet at a place."""
    return unique or math.prod(indices[0].spec.shape[params["batch"] :]) <= 1


def _places(x: TensorSpec, indices: Sequence[Value], params: dict[str, Any]) -> Value:
    """B + I, int64: one plus the flat position that each index names, 0 for indices that are dropped."""
    axes, batch = params["axes"], params["batch"]
    shape = (*x.shape[:batch], *(x.shape[axis] for axis in axes))
    numbers = reshape(_count_from_one(math.prod(shape)), shape=shape)
    return gather(numbers, *indices, **{**params, "axes": tuple(range(batch, batch + len(axes)))})


def _count_from_one(n: int) -> Value:
    one = full(shape=(n,), dtype=dtypes.int64, value=1)
    return add(iota(shape=(n,), dtype=dtypes.int64, axis=0), one)


def _last_writer(x: TensorSpec, indices: Sequence[Value], params: dict[str, Any]) -> Value:
    """B + I, bool: which updates stay after op="set", where the last one at a place wins."""
    axes, batch = params["axes"], params["batch"]
    shape = (*x.shape[:batch], *(x.shape[axis] for axis in axes))
    inner = {**params, "axes": tuple(range(batch, batch + len(axes)))}
    number = reshape(_count_from_one(indices[0].spec.size), shape=indices[0].spec.shape)
    nobody = full(shape=shape, dtype=dtypes.int64, value=0)
    return equal(gather(scatter(nobody, number, *indices, op="set", **inner), *indices, **inner), number)


def _cotangent_of_scattered(
    ct: Value, x: Linear, updates: Value, *indices: Value, op: str, unique: bool = False, **params: Any
) -> Value:
    if op == "set":
        return scatter(ct, zeros(updates.spec), *indices, op="set", unique=unique, **params)
    if op == "mul":
        one = full(shape=x.spec.shape, dtype=x.spec.dtype, value=1)
        return mul(ct, scatter(one, updates, *indices, op="mul", unique=unique, **params))
    return ct


def _cotangent_of_updates(
    ct: Value, x: Value, updates: Linear, *indices: Value, op: str, unique: bool = False, **params: Any
) -> Value:
    found = gather(mul(ct, x) if op == "mul" else ct, *indices, **params)
    if op != "set" or _is_unique(x.spec, indices, unique, params):
        return found
    return select(expand_last(_last_writer(x.spec, indices, params), found.spec), found, zeros(found.spec))


def expand_last(x: Value, like: TensorSpec) -> Value:
    """`x` broadcast along the last axes of `like` that it lacks."""
    return expand(x, like, tuple(range(len(np.shape(x)), like.ndim)))


def _scatter_batch(
    size: int, operands: tuple[Value, ...], batched: tuple[bool, ...], *, axes: Shape, batch: int, **params: Any
) -> Any:
    x, updates, *indices = operands
    x, updates = lead_all(size, (x, updates), batched[:2])
    if any(batched[2:]):
        indices = lead_all(size, indices, batched[2:])
        return (scatter(x, updates, *indices, axes=_shift(axes), batch=batch + 1, **params),), (True,)
    updates = move_axis(updates, 0, indices[0].spec.ndim)  # the new axis is written whole
    out = scatter(move_axis(x, 0, batch), updates, *indices, axes=_shift(axes), batch=batch, **params)
    return (move_axis(out, batch, 0),), (True,)


scatter = register(
    "scatter",
    _IndexRules(
        infer=_scatter_infer,
        reference=_scatter_reference,
        derivative=Derivative(_scatter_jvp, each({0: _cotangent_of_scattered, 1: _cotangent_of_updates})),
        batch=_scatter_batch,
        inplace=InPlace(((0, 0),)),
        cost=lambda x, updates, *indices, **params: 0 if params["op"] == "set" else updates.size,
    ),
    arity=None,
)

# -- dynamic slices ----------------------------------------------------------------------------------------------------


def _check_starts(where: str, x: TensorSpec, starts: Sequence[TensorSpec], sizes: Shape, mode: str) -> None:
    check_choice(where, "mode", mode, SLICE_MODES)
    if len(starts) != x.ndim or len(sizes) != x.ndim or any(start.shape for start in starts):
        problem = f"{len(starts)} starts and {len(sizes)} sizes for {x.ndim} axes."
        operands = {"x": x, **{f"start {k}": spec for k, spec in enumerate(starts)}}
        fix = "give one 0-d integer start and one size for each axis."
        raise user_error(ShapeError, where, problem, operands=operands, fix=fix)
    for k, start in enumerate(starts):
        check_dtype(where, start, dtypes.is_integer, "of an integer type", f"start {k}")
    if any(not 0 <= n <= m for n, m in zip(sizes, x.shape, strict=True)):
        problem = f"a box of shape {tuple(sizes)} does not fit into {x.shape}."
        fix = "choose sizes from 0 to the size of each axis."
        raise user_error(ShapeError, where, problem, operands={"x": x}, fix=fix)


def _box(where: str, shape: Shape, starts: Sequence[NDArray], sizes: Shape, mode: str) -> tuple[slice, ...]:
    box = []
    for axis, (start, n, size) in enumerate(zip(starts, sizes, shape, strict=True)):
        first = int(start)
        if mode == "clip":
            first = min(max(first, 0), size - n)
        elif not 0 <= first <= size - n:
            problem = f"{first}:{first + n} is out of range for axis {axis}, which has size {size}."
            fix = f"start from 0 to {size - n}, or pass mode='clip' to move the box inside."
            raise user_error(OutOfBoundsError, where, problem, fix=fix)
        box.append(slice(first, first + n))
    return tuple(box)


def _dynamic_slice_infer(x: TensorSpec, *starts: TensorSpec, sizes: Shape, mode: str) -> TensorSpec:
    _check_starts("dynamic_slice", x, starts, sizes, mode)
    return x.update(shape=tuple(sizes))


def _dynamic_slice_transpose(ct: Value, x: Linear, *starts: Value, sizes: Shape, mode: str) -> Value:
    return dynamic_update_slice(zeros(x.spec), ct, *starts, mode=mode)


def _split_starts(starts: Sequence[Value], batched: Sequence[bool]) -> tuple[list[Value], Shape]:
    """Returns the starts for an array with a leading batch axis, 0 where the start differs from row to row; the axes where it
    does.
    """
    zero = full(shape=(), dtype=dtypes.int64, value=0)
    common = [zero, *(zero if is_batched else start for start, is_batched in zip(starts, batched, strict=True))]
    return common, tuple(axis + 1 for axis, is_batched in enumerate(batched) if is_batched)


def _row_indices(start: Value, n: int, size: int, mode: str) -> Value:
    """(rows, n): the positions that each row's slice reads on one axis."""
    rows = start.spec.shape[0]
    start = convert(start, dtype=dtypes.int64)
    if mode == "clip":
        start = maximum(minimum(start, full(shape=(rows,), dtype=dtypes.int64, value=size - n)), start * 0)
    steps = iota(shape=(rows, n), dtype=dtypes.int64, axis=1)
    return add(broadcast_to(start, shape=(rows, n), axes=(0,)), steps)


def _dynamic_slice_batch(
    size: int, operands: tuple[Value, ...], batched: tuple[bool, ...], *, sizes: Shape, mode: str
) -> Any:
    x, *starts = operands
    x = lead(size, x, batched[0])
    common, varying = _split_starts(starts, batched[1:])
    wanted = (size, *sizes)
    whole = tuple(m if axis in varying else n for axis, (n, m) in enumerate(zip(wanted, x.spec.shape, strict=True)))
    out = x if len(varying) == len(starts) else dynamic_slice(x, *common, sizes=whole, mode=mode)
    for axis in varying:
        index = _row_indices(starts[axis - 1], wanted[axis], out.spec.shape[axis], mode)
        out = move_axis(gather(out, index, axes=(axis,), batch=1, mode="error"), 1, axis)
    return (out,), (True,)


dynamic_slice = register(
    "dynamic_slice",
    _IndexRules(
        infer=_dynamic_slice_infer,
        reference=lambda x, *starts, sizes, mode: x[_box("dynamic_slice", x.shape, starts, sizes, mode)],
        derivative=linear_in("dynamic_slice", {0: _dynamic_slice_transpose}),
        batch=_dynamic_slice_batch,
    ),
    arity=None,
)


def _dynamic_update_infer(x: TensorSpec, update: TensorSpec, *starts: TensorSpec, mode: str) -> TensorSpec:
    check_same_dtype("dynamic_update_slice", (x, update))
    _check_starts("dynamic_update_slice", x, starts, update.shape, mode)
    return x


def _dynamic_update_reference(x: NDArray, update: NDArray, *starts: NDArray, mode: str) -> NDArray:
    out = np.array(x)
    out[_box("dynamic_update_slice", x.shape, starts, update.shape, mode)] = update
    return out


def _cotangent_of_base(ct: Value, x: Linear, update: Value, *starts: Value, mode: str) -> Value:
    return dynamic_update_slice(ct, zeros(update.spec), *starts, mode=mode)


def _cotangent_of_box(ct: Value, x: Value, update: Linear, *starts: Value, mode: str) -> Value:
    return dynamic_slice(ct, *starts, sizes=update.spec.shape, mode=mode)


def _dynamic_update_batch(size: int, operands: tuple[Value, ...], batched: tuple[bool, ...], *, mode: str) -> Any:
    """Axes whose start differs from row to row are written by a scatter into the region that the other axes select."""
    x, update, *starts = operands
    x, update = lead_all(size, (x, update), batched[:2])
    common, varying = _split_starts(starts, batched[2:])
    if not varying:
        return (dynamic_update_slice(x, update, *common, mode=mode),), (True,)
    fixed = tuple(axis for axis in range(1, x.spec.ndim) if axis not in varying)
    region = x
    if fixed:
        sizes = tuple(
            m if axis in varying else n for axis, (n, m) in enumerate(zip(update.spec.shape, x.spec.shape, strict=True))
        )
        region = dynamic_slice(x, *common, sizes=sizes, mode=mode)
    box = (size, *(update.spec.shape[axis] for axis in varying))
    indices = [
        broadcast_to(
            _row_indices(starts[axis - 1], update.spec.shape[axis], x.spec.shape[axis], mode),
            shape=box,
            axes=(0, k + 1),
        )
        for k, axis in enumerate(varying)
    ]
    news = transpose(update, permutation=(0, *varying, *fixed))
    region = scatter(region, news, *indices, axes=varying, batch=1, mode="error", op="set", unique=True)
    return (dynamic_update_slice(x, region, *common, mode=mode) if fixed else region,), (True,)


dynamic_update_slice = register(
    "dynamic_update_slice",
    _IndexRules(
        infer=_dynamic_update_infer,
        reference=_dynamic_update_reference,
        derivative=linear_in_all("dynamic_update_slice", each({0: _cotangent_of_base, 1: _cotangent_of_box})),
        batch=_dynamic_update_batch,
        inplace=InPlace(((0, 0),)),
    ),
    arity=None,
)
