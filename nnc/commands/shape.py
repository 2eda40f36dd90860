"""Commands that move elements without computing: views (column `alias`), joins and padding.

All are linear; a view's transpose scatters into zeros, a broadcast's sums.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from itertools import accumulate
from operator import itemgetter, methodcaller
from typing import Any

import numpy as np

from nnc.base import dtypes
from nnc.commands.constants import full
from nnc.commands.elementwise import add, select
from nnc.commands.rules import (
    batch_leading,
    check_axes,
    check_axis,
    lead,
    lead_all,
    linear_in,
    linear_in_all,
    register_linear,
    zeros,
)
from nnc.errors import ArgumentError, GraphError, ShapeError, user_error
from nnc.graph import Box, Command, TensorSpec, check_same_dtype, first_overlap, register
from nnc.graph import command as get_command
from nnc.graph.rules import AsView, Cotangents, Linear, Rules, Tangents, Value

Shape = tuple[int, ...]


def _check_sizes(where: str, shape: Sequence[int]) -> None:
    if any(n < 0 for n in shape):
        raise user_error(
            ShapeError, where, f"shape {tuple(shape)} has a negative size.", fix="give sizes of 0 or more."
        )


_no_cost: Callable[..., int] = lambda *specs, **params: 0
_MovingRules = partial(Rules, cost=_no_cost)


# -- broadcast ---------------------------------------------------------------------------------------------------------


def _broadcast_infer(x: TensorSpec, *, shape: Shape, axes: Shape | None = None) -> TensorSpec:
    _check_sizes("broadcast_to", shape)
    where = broadcast_axes(x.ndim, shape, axes)
    rising = list(where) == sorted(set(where)) and all(0 <= axis < len(shape) for axis in where)
    if (
        len(where) != x.ndim
        or not rising
        or any(n not in (1, shape[axis]) for n, axis in zip(x.shape, where, strict=True))
    ):
        problem = f"shape {x.shape} does not broadcast to {tuple(shape)}."
        fix = "every axis of x must have the target's size or size 1, aligned at the last axis."
        raise user_error(ShapeError, "broadcast_to", problem, operands={"x": x}, fix=fix)
    return x.update(shape=tuple(shape))


def broadcast_axes(ndim: int, shape: Shape, axes: Shape | None) -> Shape:
    """Returns the output axis of each input axis: `axes`, or the last ones."""
    return axes if axes is not None else tuple(range(len(shape) - ndim, len(shape)))


def _broadcast_reference(x: Any, *, shape: Shape, axes: Shape | None = None) -> Any:
    where = broadcast_axes(x.ndim, shape, axes)
    if len(where) != x.ndim:
        return np.broadcast_to(x, shape)
    full_shape = [1] * len(shape)
    for n, axis in zip(x.shape, where, strict=True):
        full_shape[axis] = n
    return np.broadcast_to(x.reshape(full_shape), shape)


def _broadcast_transpose(ct: Value, x: Linear, *, shape: Shape, axes: Shape | None = None) -> Value:
    where = broadcast_axes(x.spec.ndim, shape, axes)
    kept = {axis for axis, n in zip(where, x.spec.shape, strict=True) if n == shape[axis]}
    summed = tuple(axis for axis in range(len(shape)) if axis not in kept)
    if summed:
        ct = get_command("reduce_sum")(ct, axes=summed)
    return reshape(ct, shape=x.spec.shape) if ct.spec.shape != x.spec.shape else ct


def _broadcast_shift(size: int, operands: tuple[Value, ...], batched: tuple[bool, ...], **params: Any) -> Any:
    shape, axes = params["shape"], params.get("axes")
    where = broadcast_axes(operands[0].spec.ndim - 1, shape, axes)
    return (broadcast_to(operands[0], shape=(size, *shape), axes=(0, *(axis + 1 for axis in where))),), (True,)


broadcast_to: Command = register(
    "broadcast_to",
    _MovingRules(
        infer=_broadcast_infer,
        reference=_broadcast_reference,
        numpy_call=lambda x, **params: partial(_broadcast_reference, **params),
        derivative=linear_in("broadcast_to", {0: _broadcast_transpose}),
        batch=_broadcast_shift,
        alias=AsView(lambda x, out, *, shape, axes=None: list(enumerate(broadcast_axes(x.ndim, shape, axes)))),
    ),
)

# -- reshape, transpose ------------------------------------------------------------------------------------------------


def _reshape_infer(x: TensorSpec, *, shape: Shape) -> TensorSpec:
    _check_sizes("reshape", shape)
    if math.prod(shape) != x.size:
        problem = f"{x.size} elements do not fit into shape {tuple(shape)} of {math.prod(shape)}."
        fix = "give a shape with as many elements; one size may be -1 in nnp.reshape."
        raise user_error(ShapeError, "reshape", problem, operands={"x": x}, fix=fix)
    return x.update(shape=tuple(shape))


def _reshaped_axes(x: TensorSpec, out: TensorSpec, *, shape: Shape) -> list[tuple[int, int]] | None:
    mine, yours = ([axis for axis, n in enumerate(spec.shape) if n != 1] for spec in (x, out))
    if [x.shape[i] for i in mine] != [out.shape[j] for j in yours]:
        return None
    return list(zip(mine, yours, strict=True))


def _reshape_into(x: Any, out: Any) -> None:
    if out.flags.c_contiguous:
        np.copyto(out.reshape(x.shape), x)
    else:  # a part of a larger tensor
        np.copyto(out, x.reshape(out.shape))


reshape: Command = register(
    "reshape",
    _MovingRules(
        infer=_reshape_infer,
        reference=lambda x, *, shape: x.reshape(shape),
        numpy_call=lambda x, *, shape: methodcaller("reshape", shape),
        derivative=linear_in("reshape", {0: lambda ct, x, shape: reshape(ct, shape=x.spec.shape)}),
        batch=lambda size, operands, batched, shape: ((reshape(operands[0], shape=(size, *shape)),), (True,)),
        alias=AsView(_reshaped_axes),
    ),
    numpy_into=lambda x, *, shape: _reshape_into,
)


def _transpose_infer(x: TensorSpec, *, permutation: Shape) -> TensorSpec:
    if sorted(permutation) != list(range(x.ndim)):
        problem = f"{tuple(permutation)} is no permutation of the {x.ndim} axes."
        fix = f"name each of the axes 0 to {x.ndim - 1} once."
        raise user_error(ShapeError, "transpose", problem, operands={"x": x}, fix=fix)
    return x.update(shape=tuple(x.shape[axis] for axis in permutation))


def invert_permutation(permutation: Sequence[int]) -> Shape:
    """Returns the permutation that undoes `permutation`."""
    inverse = [0] * len(permutation)
    for i, axis in enumerate(permutation):
        inverse[axis] = i
    return tuple(inverse)


def _permuted(name: str, **rules: Any) -> Command:
    return register(
        name,
        _MovingRules(
            infer=_transpose_infer,
            derivative=linear_in(
                name, {0: lambda ct, x, permutation: transpose(ct, permutation=invert_permutation(permutation))}
            ),
            batch=batch_leading(name, lambda p: {"permutation": (0, *(axis + 1 for axis in p["permutation"]))}),
            **rules,
        ),
    )


transpose: Command = _permuted(
    "transpose",
    reference=lambda x, *, permutation: x.transpose(permutation),
    numpy_call=lambda x, *, permutation: methodcaller("transpose", permutation),
    alias=AsView(lambda x, out, *, permutation: [(axis, i) for i, axis in enumerate(permutation)]),
)


def permute(x: Value, permutation: Shape) -> Value:
    """`x` with its axes in another order; itself where that is theirs."""
    return x if permutation == tuple(range(len(permutation))) else transpose(x, permutation=permutation)


# The same elements as `transpose` shows, written anew in their new order: lowering inserts it where kernels read them often.
reorder: Command = _permuted(
    "reorder", reference=lambda x, *, permutation: np.ascontiguousarray(x.transpose(permutation))
)

# -- slice, flip -------------------------------------------------------------------------------------------------------


def _slice_infer(x: TensorSpec, *, start: Shape, limit: Shape, stride: Shape) -> TensorSpec:
    if not len(start) == len(limit) == len(stride) == x.ndim:
        problem = f"start {start}, limit {limit} and stride {stride} must have one entry for each of {x.ndim} axes."
        fix = "give one start, limit and stride for each axis."
        raise user_error(ShapeError, "slice", problem, operands={"x": x}, fix=fix)
    for axis, (a, b, s, n) in enumerate(zip(start, limit, stride, x.shape, strict=True)):
        if not (0 <= a <= b <= n and s >= 1):
            problem = f"{a}:{b}:{s} does not lie within axis {axis}, which has size {n}."
            fix = "choose 0 <= start <= limit <= size and a stride of at least 1."
            raise user_error(ShapeError, "slice", problem, operands={"x": x}, fix=fix)
    return x.update(shape=tuple(-(-(b - a) // s) for a, b, s in zip(start, limit, stride, strict=True)))


def _slice_transpose(ct: Value, x: Linear, *, start: Shape, limit: Shape, stride: Shape) -> Value:
    """Writes the cotangent into zeros: the untouched part of `x` has gradient 0."""
    if all(s == 1 for s in stride):
        return assemble(ct, shape=x.spec.shape, dtype=ct.spec.dtype, starts=(start,))
    interior = tuple(s - 1 if n else 0 for s, n in zip(stride, ct.spec.shape, strict=True))
    covered = [n + max(0, n - 1) * gap for n, gap in zip(ct.spec.shape, interior, strict=True)]
    high = tuple(n - a - c for n, a, c in zip(x.spec.shape, start, covered, strict=True))
    nothing = full(shape=(), dtype=ct.spec.dtype, value=0)
    return pad(ct, nothing, low=start, high=high, interior=interior)


def _slice_batch(size: int, operands: tuple[Value, ...], batched: tuple[bool, ...], **params: Any) -> Any:
    moved = {"start": (0, *params["start"]), "limit": (size, *params["limit"]), "stride": (1, *params["stride"])}
    return (slice_(operands[0], **moved),), (True,)


slice_: Command = register(
    "slice",
    _MovingRules(
        infer=_slice_infer,
        reference=lambda x, *, start, limit, stride: x[tuple(map(slice, start, limit, stride))],
        numpy_call=lambda x, *, start, limit, stride: itemgetter(tuple(map(slice, start, limit, stride))),
        derivative=linear_in("slice", {0: _slice_transpose}),
        batch=_slice_batch,
        alias=AsView(),
    ),
)


def slice_axis(x: Value, axis: int, start: int, limit: int) -> Value:
    """`x[..., start:limit, ...]` on one axis."""
    shape = x.spec.shape
    axis %= len(shape)
    return slice_(
        x,
        start=tuple(start if i == axis else 0 for i in range(len(shape))),
        limit=tuple(limit if i == axis else n for i, n in enumerate(shape)),
        stride=(1,) * len(shape),
    )


def _flip_infer(x: TensorSpec, *, axes: Shape) -> TensorSpec:
    check_axes("flip", axes, x.ndim)
    return x


flip: Command = register_linear(
    "flip",
    _flip_infer,
    lambda x, *, axes: np.flip(x, axes),
    lambda ct, x, axes: flip(ct, axes=axes),
    numpy_call=lambda x, *, axes: partial(np.flip, axis=axes),
    alias=AsView(),
    cost=_no_cost,
)

# -- joins -------------------------------------------------------------------------------------------------------------


def _concatenate_infer(*specs: TensorSpec, axis: int) -> TensorSpec:
    if not specs:
        raise user_error(ArgumentError, "concatenate", "there is nothing to join.", fix="pass at least one array.")
    check_same_dtype("concatenate", specs)
    axis = check_axis("concatenate", axis, specs[0].ndim)
    for i, spec in enumerate(specs):
        if spec.ndim != specs[0].ndim or any(
            a != b for k, (a, b) in enumerate(zip(spec.shape, specs[0].shape, strict=True)) if k != axis
        ):
            problem = f"array {i} differs from array 0 on another axis than {axis}."
            operands = {"array 0": specs[0], f"array {i}": spec}
            fix = "give all arrays the same shape but for the axis to join."
            raise user_error(ShapeError, "concatenate", problem, operands=operands, fix=fix)
    shape = list(specs[0].shape)
    shape[axis] = sum(spec.shape[axis] for spec in specs)
    return specs[0].update(shape=tuple(shape))


def _concatenate_transpose(cotangents: Cotangents, operands: tuple[Value | Linear, ...], *, axis: int) -> Tangents:
    ct = cotangents[0]
    axis = axis % ct.spec.ndim
    parts, at = [], 0
    for operand in operands:
        n = operand.spec.shape[axis]
        parts.append(slice_axis(ct, axis, at, at + n) if isinstance(operand, Linear) else None)
        at += n
    return tuple(parts)


def _starts_along(*specs: TensorSpec, axis: int) -> list[Shape]:
    ndim = specs[0].ndim
    ends = accumulate((spec.shape[axis] for spec in specs), initial=0)
    return [tuple(at if i == axis % ndim else 0 for i in range(ndim)) for at, _ in zip(ends, specs, strict=False)]


concatenate: Command = register(
    "concatenate",
    _MovingRules(
        infer=_concatenate_infer,
        reference=lambda *xs, axis: np.concatenate(xs, axis),
        numpy_call=lambda *specs, axis: lambda *xs: np.concatenate(xs, axis),
        derivative=linear_in_all("concatenate", _concatenate_transpose),
        batch=batch_leading("concatenate"),
        joined=_starts_along,
    ),
    arity=None,
    numpy_into=lambda *specs, axis: lambda *xs, out: np.concatenate(xs, axis, out=out),
)


def _assemble_infer(*parts: TensorSpec, shape: Shape, dtype: Any, starts: tuple[Shape, ...]) -> TensorSpec:
    if parts:
        check_same_dtype("assemble", (TensorSpec((), dtype), *parts))
    boxes = [Box.within(shape, start, part.shape) for start, part in zip(starts, parts, strict=True)]
    clash = first_overlap(boxes)
    if clash is not None:
        i, j = clash
        problem = f"parts {i} and {j} overlap: {boxes[i]} and {boxes[j]} of a tensor of shape {tuple(shape)}."
        fix = "write aliases that do not overlap, or add the two values first."
        raise user_error(GraphError, "assemble", problem, fix=fix)
    return TensorSpec(tuple(shape), dtypes.as_dtype(dtype))


def _assemble_reference(*parts: Any, shape: Shape, dtype: Any, starts: tuple[Shape, ...]) -> Any:
    out = np.zeros(shape, dtype)
    for part, start in zip(parts, starts, strict=True):
        out[tuple(slice(a, a + n) for a, n in zip(start, part.shape, strict=True))] = part
    return out


def _assemble_transpose(
    cotangents: Cotangents, operands: tuple[Value | Linear, ...], *, shape: Shape, dtype: Any, starts: tuple[Shape, ...]
) -> Tangents:
    def part(start: Shape, operand: Linear) -> Value:
        limit = tuple(a + n for a, n in zip(start, operand.spec.shape, strict=True))
        return slice_(cotangents[0], start=start, limit=limit, stride=(1,) * len(limit))

    return tuple(
        part(start, operand) if isinstance(operand, Linear) else None
        for start, operand in zip(starts, operands, strict=True)
    )


def _assemble_batch(size: int, operands: tuple[Value, ...], batched: tuple[bool, ...], **params: Any) -> Any:
    moved = {**params, "shape": (size, *params["shape"]), "starts": tuple((0, *start) for start in params["starts"])}
    return (assemble(*lead_all(size, operands, batched), **moved),), (True,)


assemble: Command = register(
    "assemble",
    _MovingRules(
        infer=_assemble_infer,
        reference=_assemble_reference,
        derivative=linear_in_all("assemble", _assemble_transpose),
        batch=_assemble_batch,
        joined=lambda *specs, shape, dtype, starts: starts,
    ),
    arity=None,
)

# -- pad ---------------------------------------------------------------------------------------------------------------


def _pad_infer(x: TensorSpec, value: TensorSpec, *, low: Shape, high: Shape, interior: Shape) -> TensorSpec:
    check_same_dtype("pad", (x, value))
    if value.shape != () or not len(low) == len(high) == len(interior) == x.ndim:
        problem = (
            f"low {low}, high {high} and interior {interior} must have one entry for each of {x.ndim} axes, "
            "and the value must be 0-d."
        )
        fix = "give one amount for each axis."
        raise user_error(ShapeError, "pad", problem, operands={"x": x, "value": value}, fix=fix)
    if min((*low, *high, *interior), default=0) < 0:
        problem = f"negative padding: low {low}, high {high}, interior {interior}."
        raise user_error(ShapeError, "pad", problem, operands={"x": x}, fix="slice the array to make it smaller.")
    return x.update(
        shape=tuple(a + n + max(0, n - 1) * i + b for n, a, b, i in zip(x.shape, low, high, interior, strict=True))
    )


def _pad_reference(x: Any, value: Any, *, low: Shape, high: Shape, interior: Shape) -> Any:
    shape = [a + n + max(0, n - 1) * i + b for n, a, b, i in zip(x.shape, low, high, interior, strict=True)]
    out = np.full(shape, value, x.dtype)
    if x.size:
        out[_pad_window(x.shape, low, interior)] = x
    return out


def _pad_window(shape: Shape, low: Shape, interior: Shape) -> tuple[slice, ...]:
    return tuple(slice(a, a + (n - 1) * (i + 1) + 1, i + 1) for n, a, i in zip(shape, low, interior, strict=True))


def _pad_transpose(
    cotangents: Cotangents, operands: tuple[Value | Linear, ...], *, low: Shape, high: Shape, interior: Shape
) -> Tangents:
    ct = cotangents[0]
    x, value = operands
    shape = x.spec.shape
    if 0 in shape:
        inner = zeros(x.spec)
    else:
        window = _pad_window(shape, low, interior)
        inner = slice_(
            ct,
            start=tuple(w.start for w in window),
            limit=tuple(w.stop for w in window),
            stride=tuple(w.step for w in window),
        )
    ct_value = None
    if isinstance(value, Linear):
        axes = tuple(range(ct.spec.ndim))
        total = get_command("reduce_sum")
        ct_value = add(total(ct, axes=axes), -total(inner, axes=axes))
    return inner if isinstance(x, Linear) else None, ct_value


def _pad_batch(
    size: int, operands: tuple[Value, ...], batched: tuple[bool, ...], *, low: Shape, high: Shape, interior: Shape
) -> Any:
    x, value = operands
    if batched[1]:  # pads with zeros, then puts each row's value where nothing of x is
        ones = full(shape=x.spec.shape[1:] if batched[0] else x.spec.shape, dtype=dtypes.bool_, value=True)
        false = full(shape=(), dtype=dtypes.bool_, value=False)
        inside = pad(ones, false, low=low, high=high, interior=interior)
        nothing = full(shape=(), dtype=x.spec.dtype, value=0)
        rows = lead(size, x, batched[0])
        padded = pad(rows, nothing, low=(0, *low), high=(0, *high), interior=(0, *interior))
        fill = broadcast_to(value, shape=padded.spec.shape, axes=(0,))
        return (select(lead(size, inside, False), padded, fill),), (True,)
    return (pad(x, value, low=(0, *low), high=(0, *high), interior=(0, *interior)),), (True,)


pad: Command = register(
    "pad",
    _MovingRules(
        infer=_pad_infer,
        reference=_pad_reference,
        derivative=linear_in_all("pad", _pad_transpose),
        refuses=False,
        batch=_pad_batch,
    ),
    arity=2,
)
