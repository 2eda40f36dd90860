"""Convolution: three bilinear commands; the transposes of each are the other two.

conv:             out[n, o, p] = sum over c, k of x[n, c, stride · p + dilation · k - low] · w[o, c, k]
conv_input_grad:  the same sum collected in x[n, c, …], from the output's cotangent and w
conv_weight_grad: the same sum collected in w[o, c, k], from x and the output's cotangent

x is (N, C, *spatial), w is (O, C / groups, *kernel), any number of spatial axes; group g connects the g-th share of the
channels C with the g-th share of O. Places of the padding are no terms of the sums: they add nothing, even where the other
factor is an infinity or NaN. With `channels_last` x, the output and its cotangent are (N, *spatial, C), which is how libraries
like them best; `packed` names the blocked layout of a weight that lies in one. The references gather the windows into columns,
so that BLAS does the work (Chellapilla et al., "High performance convolutional neural networks for document processing", 2006).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np

from nnc.base import dtypes
from nnc.commands.conv_formulas import (
    MOST_PLACES,
    as_asked,
    channels_first,
    conv_formula,
    input_grad_formula,
    weight_grad_formula,
)
from nnc.commands.elementwise import NUMERIC
from nnc.commands.pack import Blocks, packed_shape
from nnc.commands.rules import check_dtype, linear_in
from nnc.commands.shape import reshape, transpose
from nnc.commands.windows import Padding, Shape, crop_spatial, offsets, pad_spatial, sliding, window_shape
from nnc.errors import ArgumentError, ShapeError, user_error
from nnc.graph import STRIDED, Command, TensorSpec, check_same_dtype, register
from nnc.graph import command as get_command
from nnc.graph.rules import BatchRule, Infer, Reference, Rules, Value

COLUMN_ELEMENTS = 1 << 23  # gathered at a time: bounds the references' scratch memory

# -- shapes ------------------------------------------------------------------------------------------------------------


def _out_shape(where: str, x: Shape, w: Shape, operands: dict[str, Any], *, groups: int, **windows: Any) -> Shape:
    """(N, O, *out) of a convolution of `x` with `w`."""
    if len(x) < 3 or len(x) != len(w):
        problem = f"the input has {len(x)} axes and the weight {len(w)}; both need two axes and the spatial ones."
        fix = "pass an input (N, C, *spatial) and a weight (O, C / groups, *kernel)."
        raise user_error(ShapeError, where, problem, operands=operands, fix=fix)
    if groups < 1 or x[1] % groups or w[0] % groups:
        problem = f"groups={groups} does not divide the {x[1]} input and {w[0]} output channels."
        fix = "use a number of groups that divides both numbers of channels."
        raise user_error(ArgumentError, where, problem, operands=operands, fix=fix)
    if x[1] != w[1] * groups:
        share = f" of groups={groups}" if groups > 1 else ""
        problem = f"channels differ: input axis 1 is {x[1]}, weight axis 1 is {w[1]}{share}."
        fix = f"pass a weight of shape (O, {x[1] // groups}, *kernel), or set groups."
        raise user_error(ShapeError, where, problem, operands=operands, fix=fix)
    return (x[0], w[0], *window_shape(where, x[2:], w[2:], operands=operands, **windows))


def _check(where: str, **operands: TensorSpec) -> None:
    specs = tuple(operands.values())
    check_same_dtype(where, specs)
    check_dtype(where, specs[0], *NUMERIC, next(iter(operands)))


def _check_cotangent(where: str, ct: TensorSpec, expected: Shape, operands: dict[str, TensorSpec]) -> None:
    if ct.shape != expected:
        problem = f"the cotangent has shape {ct.shape}, the convolution's output has shape {expected}."
        raise user_error(ShapeError, where, problem, operands=operands, fix="pass a cotangent of the output's shape.")


def _channels_first(shape: Shape, channels_last: bool) -> Shape:
    """Returns a shape as (N, C, *spatial)."""
    return (shape[0], shape[-1], *shape[1:-1]) if channels_last and len(shape) > 1 else shape


def _as_asked(shape: Shape, channels_last: bool) -> Shape:
    """Undoes `_channels_first`."""
    return (shape[0], *shape[2:], shape[1]) if channels_last else shape


def strided_weight(w: TensorSpec, packed: str | None, ndim: int) -> TensorSpec:
    """Returns the spec of a weight of `ndim` axes before it was packed; the spec of an unpacked one stays.

    Raises:
        ShapeError: it does not lie as `packed` says.
    """
    if packed is not None and w.layout in (packed, STRIDED) and w.shape == Blocks.of(packed).row:
        return w.update(shape=packed_shape(packed, ndim), layout=STRIDED)  # an array's spec names no layout
    if packed is not None or w.layout != STRIDED:
        problem = f"the weight lies otherwise than packed={packed!r} says."
        raise user_error(ShapeError, "conv", problem, operands={"w": w}, fix="name the weight's layout.")
    return w


def _conv_infer(
    x: TensorSpec, w: TensorSpec, *, channels_last: bool = False, packed: str | None = None, **params: Any
) -> TensorSpec:
    _check("conv", x=x, w=w)
    w = strided_weight(w, packed, x.ndim)
    shape, operands = _channels_first(x.shape, channels_last), {"x": x, "w": w}
    out = _out_shape("conv", shape, w.shape, operands, **params)
    return x.update(shape=_as_asked(out, channels_last))


def _input_grad_infer(
    ct: TensorSpec, w: TensorSpec, *, spatial: Shape, groups: int, channels_last: bool = False, packed: str | None = None,
    **params: Any,
) -> TensorSpec:  # fmt: skip
    _check("conv_input_grad", ct=ct, w=w)
    w = strided_weight(w, packed, ct.ndim)
    operands = {"ct": ct, "w": w}
    shape = (ct.shape[0] if ct.ndim else 0, w.shape[1] * groups if w.ndim > 1 else 0, *spatial)
    expected = _out_shape("conv_input_grad", shape, w.shape, operands, groups=groups, **params)
    _check_cotangent("conv_input_grad", ct, _as_asked(expected, channels_last), operands)
    return ct.update(shape=_as_asked(shape, channels_last))


def _weight_grad_infer(
    x: TensorSpec, ct: TensorSpec, *, kernel: Shape, groups: int, channels_last: bool = False, **params: Any
) -> TensorSpec:
    _check("conv_weight_grad", x=x, ct=ct)
    operands = {"x": x, "ct": ct}
    into, out_of = (_channels_first(spec.shape, channels_last)[1:2] for spec in (x, ct))
    shape = (*(out_of or (0,)), into[0] // max(1, groups) if into else 0, *kernel)
    x_shape = _channels_first(x.shape, channels_last)
    expected = _out_shape("conv_weight_grad", x_shape, shape, operands, groups=groups, **params)
    _check_cotangent("conv_weight_grad", ct, _as_asked(expected, channels_last), operands)
    return x.update(shape=shape)


# -- references --------------------------------------------------------------------------------------------------------


def _rows(n: int, elements: int) -> Iterator[slice]:
    """Cuts the batch into parts that each gather about COLUMN_ELEMENTS; `elements` is the number that one row gathers."""
    step = max(1, COLUMN_ELEMENTS // max(1, elements))
    return (slice(i, i + step) for i in range(0, n, step))


def _by_group(x: Any, groups: int) -> Any:
    """(N, G · c, *rest) -> (G, c, N · rest)."""
    n, channels = x.shape[:2]
    places = math.prod(x.shape[2:])
    split = x.reshape((n, groups, channels // groups, places))
    return split.transpose((1, 2, 0, 3)).reshape((groups, channels // groups, n * places))


def _columns(x: Any, kernel: Shape, stride: Shape, dilation: Shape, out: Shape, groups: int) -> Any:
    """Returns the windows of a padded input (N, C, *padded) as columns: (G, C / G · kernel, N · out)."""
    n, channels = x.shape[:2]
    depth = channels // groups * math.prod(kernel)
    view = sliding(x, kernel, stride, dilation, out)
    order = (1, *range(2, 2 + len(kernel)), 0, *range(2 + len(kernel), view.ndim))
    columns = view.transpose(order).reshape((groups, depth, n * math.prod(out)))
    return columns.astype(x.dtype, order="C", copy=False)  # products of views add up in another order


def _reaches_padding(other: Any, padding: Padding) -> bool:
    """Whether zeros in the place of padding would be multiplied by infinities or NaNs of the other operand."""
    return any(map(any, padding)) and not np.isfinite(other).all()


def _places(
    x: Any, kernel: Shape, stride: Shape, padding: Padding, dilation: Shape, out: Shape
) -> Iterator[tuple[Shape, Any, Any]]:
    """For each place in the windows, the elements (N, C, *out) that windows have there, and which of these are no padding."""
    padded, inside = pad_spatial(x, padding), pad_spatial(np.ones_like(x, np.bool_, shape=x.shape[2:]), padding)
    for place, index in offsets(kernel, stride, dilation, out):
        yield place, padded[index], inside[index]


def _conv_by_place(x: Any, w: Any, *, stride: Shape, padding: Padding, dilation: Shape, groups: int, out: Shape) -> Any:
    """(N, O, *out), summed over one place of the windows after the other."""
    weight = w.reshape((groups, w.shape[0] // groups, *w.shape[1:]))
    total = np.zeros_like(x, order="C", shape=(*weight.shape[:2], x.shape[0] * math.prod(out)))
    with np.errstate(all="ignore"):
        for place, elements, inside in _places(x, w.shape[2:], stride, padding, dilation, out):
            product = np.matmul(weight[(..., *place)], _by_group(elements, groups))
            total += np.where(np.tile(inside.reshape(-1), x.shape[0]), product, 0)
    return total.reshape((w.shape[0], x.shape[0], *out)).swapaxes(0, 1)


def _weight_grad_by_place(
    x: Any, ct: Any, *, kernel: Shape, stride: Shape, padding: Padding, dilation: Shape, groups: int
) -> Any:
    """(O, C / groups, *kernel), summed one place after the other."""
    total = np.zeros_like(x, order="C", shape=(groups, ct.shape[1] // groups, x.shape[1] // groups, *kernel))
    with np.errstate(all="ignore"):
        for place, elements, inside in _places(x, kernel, stride, padding, dilation, ct.shape[2:]):
            columns = _by_group(elements, groups).swapaxes(1, 2)
            index: tuple[Any, ...] = (..., *place)
            total[index] = np.matmul(_by_group(np.where(inside, ct, 0), groups), columns)
    return total.reshape((ct.shape[1], x.shape[1] // groups, *kernel))


def _conv_reference(x: Any, w: Any, *, stride: Shape, padding: Padding, dilation: Shape, groups: int) -> Any:
    kernel = w.shape[2:]
    out_shape = _out_shape(
        "conv", x.shape, w.shape, {}, stride=stride, padding=padding, dilation=dilation, groups=groups
    )
    wide = dtypes.accumulator(x.dtype)
    if _reaches_padding(w, padding):
        windows: dict[str, Any] = {"stride": stride, "padding": padding, "dilation": dilation, "out": out_shape[2:]}
        found = _conv_by_place(x.astype(wide), w.astype(wide), groups=groups, **windows)
        return found.astype(x.dtype, order="C", copy=False)
    padded = pad_spatial(x.astype(wide, copy=False), padding)
    weight = w.astype(wide, copy=False).reshape((groups, w.shape[0] // groups, w.shape[1] * math.prod(kernel)))
    out = np.empty_like(x, order="C", shape=out_shape)
    with np.errstate(all="ignore"):
        for rows in _rows(x.shape[0], x.shape[1] * math.prod(kernel) * math.prod(out_shape[2:])):
            part = out[rows]
            product = np.matmul(weight, _columns(padded[rows], kernel, stride, dilation, out_shape[2:], groups))
            part[...] = product.reshape((w.shape[0], part.shape[0], *out_shape[2:])).swapaxes(0, 1)
    return out


def _input_grad_reference(
    ct: Any, w: Any, *, spatial: Shape, stride: Shape, padding: Padding, dilation: Shape, groups: int
) -> Any:
    """Adds the columns' cotangents where the columns were gathered, one kernel element at a time."""
    kernel, out = w.shape[2:], ct.shape[2:]
    channels = w.shape[1] * groups
    wide = dtypes.accumulator(ct.dtype)
    weight = (
        w.astype(wide, copy=False)
        .reshape((groups, w.shape[0] // groups, w.shape[1] * math.prod(kernel)))
        .swapaxes(1, 2)
    )
    padded = tuple(low + n + high for n, (low, high) in zip(spatial, padding, strict=True))
    total = np.zeros_like(ct, wide, order="C", shape=(channels, ct.shape[0], *padded))
    with np.errstate(all="ignore"):
        for rows in _rows(ct.shape[0], channels * math.prod(kernel) * math.prod(out)):
            part = total[:, rows]
            product = np.matmul(weight, _by_group(ct[rows].astype(wide, copy=False), groups))
            columns = product.reshape((channels, *kernel, part.shape[1], *out))
            for place, index in offsets(kernel, stride, dilation, out):
                part[index] += columns[(slice(None), *place)]
        return crop_spatial(total, padding).swapaxes(0, 1).astype(ct.dtype, order="C", copy=False)


def _weight_grad_reference(
    x: Any, ct: Any, *, kernel: Shape, stride: Shape, padding: Padding, dilation: Shape, groups: int
) -> Any:
    out = ct.shape[2:]
    wide = dtypes.accumulator(x.dtype)
    if _reaches_padding(ct, padding):
        windows: dict[str, Any] = {"stride": stride, "padding": padding, "dilation": dilation}
        found = _weight_grad_by_place(x.astype(wide), ct.astype(wide), kernel=kernel, groups=groups, **windows)
        return found.astype(x.dtype, copy=False)
    padded = pad_spatial(x.astype(wide, copy=False), padding)
    depth = x.shape[1] // groups * math.prod(kernel)
    total = np.zeros_like(x, wide, order="C", shape=(groups, ct.shape[1] // groups, depth))
    with np.errstate(all="ignore"):
        for rows in _rows(x.shape[0], x.shape[1] * math.prod(kernel) * math.prod(out)):
            columns = _columns(padded[rows], kernel, stride, dilation, out, groups)
            total += np.matmul(_by_group(ct[rows].astype(wide, copy=False), groups), columns.swapaxes(1, 2))
        return total.reshape((ct.shape[1], x.shape[1] // groups, *kernel)).astype(x.dtype, copy=False)


def _in_any_order(reference: Callable[..., Any], activations: tuple[bool, bool, bool]) -> Callable[..., Any]:
    """Returns a reference with the parameters `channels_last` and `packed`. `activations`: which of the operands and the output
    have such an order.
    """

    def run(*operands: Any, channels_last: bool = False, packed: str | None = None, **params: Any) -> Any:
        if packed is not None:
            x, row = operands
            operands = x, Blocks.of(packed).unpack(row).reshape(packed_shape(packed, x.ndim))
        if not channels_last:
            return reference(*operands, **params)
        moved = [np.moveaxis(x, -1, 1) if moves else x for x, moves in zip(operands, activations, strict=False)]
        out = reference(*moved, **params)
        return np.moveaxis(out, 1, -1) if activations[-1] else out

    return run


# -- batching ----------------------------------------------------------------------------------------------------------


def _fold(x: Value, axis: int, groups: int) -> Value:
    """Folds the leading batch axis into `axis` (counted without it), inside each of `groups` shares of that axis."""
    size, *shape = x.spec.shape
    split = reshape(x, shape=(size, *shape[:axis], groups, shape[axis] // groups, *shape[axis + 1 :]))
    moved = transpose(split, permutation=(*range(1, axis + 2), 0, *range(axis + 2, split.spec.ndim)))
    return reshape(moved, shape=(*shape[:axis], size * shape[axis], *shape[axis + 1 :]))


def _unfold(x: Value, size: int, axis: int, groups: int) -> Value:
    """Undoes `_fold`."""
    shape = x.spec.shape
    share = shape[axis] // (size * groups)
    split = reshape(x, shape=(*shape[:axis], groups, size, share, *shape[axis + 1 :]))
    others = [i for i in range(split.spec.ndim) if i != axis + 1]
    moved = transpose(split, permutation=(axis + 1, *others))
    return reshape(moved, shape=(size, *shape[:axis], groups * share, *shape[axis + 1 :]))


Fold = tuple[int, bool]  # an axis, and whether the batch goes inside each group's share of it
Folds = tuple[tuple[Fold, Fold], tuple[Fold, Fold], tuple[int, int, int]]


def _batch_by_folding(
    name: str, activations: tuple[bool, bool, bool], first: tuple[Fold, Fold], second: tuple[Fold, Fold],
    both: tuple[int, int, int],
) -> BatchRule:  # fmt: skip
    """Batches a convolution by folding the batch axis into another axis.

    Args:
        activations: whether each operand and the output has its channels last where the parameters say so.
        first: the axis of the first operand and of the output to fold into, where only that operand is batched.
        second: the same axes where only the second operand is batched.
        both: the axes of the operands and of the output where both are batched; each row of the batch is then a group.
    """

    def rule(size: int, operands: tuple[Value, ...], batched: tuple[bool, ...], *, groups: int, **params: Any) -> Any:
        x, y = operands
        command = get_command(name)
        channels = len(params["stride"]) + 1 if params.get("channels_last") else 1

        def place(position: int, axis: int) -> int:
            return channels if activations[position] and axis == 1 else axis

        if all(batched):
            folds = [_fold(value, place(i, both[i]), 1) for i, value in enumerate(operands)]
            out = command(*folds, groups=size * groups, **params)
            return (_unfold(out, size, place(2, both[2]), 1),), (True,)
        moved = 0 if batched[0] else 1
        (axis, in_group), (out_axis, out_in_group) = second if moved else first
        folded = _fold(operands[moved], place(moved, axis), groups if in_group else 1)
        out = command(*((x, folded) if moved else (folded, y)), groups=groups, **params)
        return (_unfold(out, size, place(2, out_axis), groups if out_in_group else 1),), (True,)

    return rule


# -- by other commands -------------------------------------------------------------------------------------------------


def _decomposed(
    formula: Callable[..., Value], activations: tuple[bool, bool, bool]
) -> Callable[..., list[Value] | None]:
    """Returns the decomposition of a command by a formula for channels first. Packed weights and large windows have none."""

    def decompose(x: Value, y: Value, *, channels_last: bool = False, packed: str | None = None, **params: Any) -> Any:
        kernel = params["kernel"] if "kernel" in params else y.spec.shape[2:]
        if packed is not None or math.prod(kernel) > MOST_PLACES:
            return None
        first = [channels_first(z, channels_last and moves) for z, moves in zip((x, y), activations, strict=False)]
        return [as_asked(formula(*first, **params), channels_last and activations[-1])]

    return decompose


def _conv_formula(x: Value, w: Value, **params: Any) -> Value:
    out = _out_shape("conv", x.spec.shape, w.spec.shape, {}, **params)
    return conv_formula(x, w, out=out[2:], **params)


# -- the commands ------------------------------------------------------------------------------------------------------


# which of the operands and the output are activations: of a convolution and its input's gradient; of the weight's
_CONV, _WEIGHT_GRAD = (True, False, True), (True, True, False)


def _spatial(x: Value, params: Mapping[str, Any]) -> Shape:
    """Returns the spatial sizes of an activation."""
    return _channels_first(x.spec.shape, params.get("channels_last", False))[2:]


def _work(x: TensorSpec, w_shape: Shape, out: TensorSpec, channels_last: bool = False, **params: Any) -> int:
    return 2 * x.shape[0] * math.prod(_channels_first(out.shape, channels_last)[2:]) * math.prod(w_shape)


def _weight_shape(w: TensorSpec, x: TensorSpec, params: Mapping[str, Any]) -> Shape:
    return strided_weight(w, params.get("packed"), x.ndim).shape


def _convolution(
    name: str, infer: Infer, reference: Reference, formula: Callable[..., Value], transposes: Mapping[int, Any], *,
    activations: tuple[bool, bool, bool], folds: Folds, cost: Callable[..., int],
) -> Command:  # fmt: skip
    rules = Rules(
        infer=infer,
        any_arrays=True,
        reference=_in_any_order(reference, activations),
        derivative=linear_in(name, transposes),
        batch=_batch_by_folding(name, activations, *folds),
        cost=cost,
    )
    return register(name, rules, arity=2, decomposition=_decomposed(formula, activations))


conv: Command = _convolution(
    "conv", _conv_infer, _conv_reference, _conv_formula,
    {
        0: lambda ct, x, w, **params: conv_input_grad(ct, w, spatial=_spatial(x, params), **params),
        1: lambda ct, x, w, **params: conv_weight_grad(x, ct, kernel=w.spec.shape[2:], **params),
    },
    activations=_CONV, folds=(((0, False), (0, False)), ((0, True), (1, True)), (1, 0, 1)),
    cost=lambda x, w, **params: _work(x, _weight_shape(w, x, params), _conv_infer(x, w, **params), **params),
)  # fmt: skip

conv_input_grad: Command = _convolution(
    "conv_input_grad", _input_grad_infer, _input_grad_reference, input_grad_formula,
    {
        0: lambda g, ct, w, spatial, **params: conv(g, w, **params),
        1: lambda g, ct, w, spatial, **params: conv_weight_grad(g, ct, kernel=w.spec.shape[2:], **params),
    },
    activations=_CONV, folds=(((0, False), (0, False)), ((1, False), (1, True)), (1, 0, 1)),
    cost=lambda ct, w, **params: _work(ct, _weight_shape(w, ct, params), ct, **params),
)  # fmt: skip

conv_weight_grad: Command = _convolution(
    "conv_weight_grad", _weight_grad_infer, _weight_grad_reference, weight_grad_formula,
    {
        0: lambda g, x, ct, kernel, **params: conv_input_grad(ct, g, spatial=_spatial(x, params), **params),
        1: lambda g, x, ct, kernel, **params: conv(x, g, **params),
    },
    activations=_WEIGHT_GRAD, folds=(((1, True), (1, False)), ((1, True), (0, True)), (1, 1, 0)),
    cost=lambda x, ct, **params: _work(x, _weight_grad_infer(x, ct, **params).shape, ct, **params),
)  # fmt: skip
