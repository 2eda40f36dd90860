"""Pooling over windows of the last axes; all other axes are batches, so batching adds one more. With `channels_last` the windows
move on the axes before the last one.

max_pool, sum_pool:  the greatest element, or the sum, of each window
max_pool_places:     the place of the greatest element in its window, counted in row-major order: one byte for windows up to 256
max_pool_both:       both, of which lowering makes one command where both are wanted
pick_pool:           of each window the element at a given place
…_input_grad:        the transposes of the linear ones

The maximum's tangent is the tangent of the element that wins (the first of equal ones, a NaN before all); padding never wins.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from nnc.base import dtypes
from nnc.commands.elementwise import NUMERIC, REAL
from nnc.commands.rules import batch_leading, check_dtype, linear_in, of_tangent, register_linear, together
from nnc.commands.windows import (
    Padding,
    Shape,
    crop_spatial,
    offsets,
    pad_spatial,
    spatial_axes,
    window_shape,
    with_channels,
)
from nnc.errors import ArgumentError, ShapeError, user_error
from nnc.graph import Command, TensorSpec, register
from nnc.graph.rules import Derivative, Infer, Linear, Reference, Rules, Value


def _exchanged(x: TensorSpec, sizes: Shape, channels_last: bool) -> TensorSpec:
    """`x` with other spatial sizes."""
    axes = spatial_axes(x.ndim, len(sizes), channels_last)
    return x.update(shape=(*x.shape[: axes.start], *sizes, *x.shape[axes.stop :]))


def _pooled(where: str, x: TensorSpec, window: Shape, channels_last: bool = False, **params: Any) -> TensorSpec:
    rank = len(window)
    if x.ndim < rank + channels_last:
        problem = f"window {window} has {rank} axes, the input has {x.ndim}."
        fix = "pass an input with a spatial axis for each entry of the window."
        raise user_error(ShapeError, where, problem, operands={"x": x}, fix=fix)
    spatial = x.shape[spatial_axes(x.ndim, rank, channels_last)]
    return _exchanged(x, window_shape(where, spatial, window, operands={"x": x}, **params), channels_last)


def _check_windows_meet(
    where: str,
    x: TensorSpec,
    window: Shape,
    stride: Shape,
    padding: Padding,
    dilation: Shape,
    channels_last: bool = False,
) -> None:
    """A maximum over padding alone would have no value."""
    spatial = x.shape[spatial_axes(x.ndim, len(window), channels_last)]
    counts = window_shape(where, spatial, window, stride, padding, dilation)
    for axis, (n, k, s, (low, high), d, count) in enumerate(
        zip(spatial, window, stride, padding, dilation, counts, strict=True)
    ):
        places = np.arange(count)[:, None] * s + np.arange(k) * d - low
        if not ((places >= 0) & (places < n)).any(axis=1).all():
            problem = f"spatial axis {axis}: a window lies in the padding {(low, high)} alone."
            fix = "use less padding: at most half of the window."
            raise user_error(ArgumentError, where, problem, operands={"x": x}, fix=fix)


def _max_pool_infer(x: TensorSpec, **params: Any) -> TensorSpec:
    check_dtype("max_pool", x, *REAL)
    spec = _pooled("max_pool", x, **params)
    if any(itertools.chain(*params["padding"])):
        _check_windows_meet("max_pool", x, **params)
    return spec


def place_dtype(window: Shape) -> Any:
    """Returns the dtype of places in a window."""
    return dtypes.uint8 if math.prod(window) <= 256 else dtypes.int32


def _places_infer(x: TensorSpec, *, window: Shape, **params: Any) -> TensorSpec:
    return _max_pool_infer(x, window=window, **params).update(dtype=place_dtype(window))


def _lowest(dtype: Any) -> Any:
    return np.iinfo(dtype).min if dtypes.is_integer(dtype) else -np.inf


def _elements(
    x: Any, fill: Any, window: Shape, stride: Shape, padding: Padding, dilation: Shape
) -> Iterator[tuple[tuple[Any, ...], Any]]:
    """For each place in the window the index of the elements that all windows have there, and these, in the dtype of sums."""
    out = window_shape("pool", x.shape[x.ndim - len(window) :], window, stride, padding, dilation)
    padded = pad_spatial(x.astype(dtypes.accumulator(x.dtype), copy=False), padding, fill)
    return ((index, padded[index]) for _, index in offsets(window, stride, dilation, out))


def _max_pool_reference(x: Any, **params: Any) -> Any:
    best: Any = None
    for _, value in _elements(x, _lowest(x.dtype), **params):
        best = value.copy() if best is None else np.maximum(best, value, out=best)
    return best.astype(x.dtype, copy=False)


def _places_reference(x: Any, *, window: Shape, padding: Padding, **params: Any) -> Any:
    inside = pad_spatial(np.ones(x.shape[x.ndim - len(window) :], bool), padding, False)
    for number, (index, value) in enumerate(_elements(x, _lowest(x.dtype), window=window, padding=padding, **params)):
        if not number:
            best = np.zeros_like(value)
            places, found = np.zeros(value.shape, place_dtype(window)), np.zeros(value.shape, bool)
        wins = inside[index] & (~found | (value > best) | ((value != value) & (best == best)))
        np.copyto(best, value, where=wins)
        np.copyto(places, number, where=wins)
        found |= wins
    return places


def _tangent_of_max_pool(t: Value, x: Value, out: Value, **params: Any) -> Value:
    """Takes the tangents at the winners."""
    return pick_pool(t, max_pool_places(x, **params), **params)


def _spatial(x: Value, window: Shape, channels_last: bool = False, **_: Any) -> Shape:
    shape: Shape = x.spec.shape
    return shape[spatial_axes(len(shape), len(window), channels_last)]


def _cost(x: TensorSpec, *_: TensorSpec, **params: Any) -> int:
    return int(_pooled("pool", x, **params).size * math.prod(params["window"]))


def _register(
    name: str, infer: Infer, function: Reference, derivative: Derivative | None = None, arity: int = 1,
    cost: Callable[..., int] = _cost,
) -> Command:  # fmt: skip
    reference, batch = with_channels(function), batch_leading(name)
    return register(name, Rules(infer=infer, reference=reference, derivative=derivative, batch=batch, cost=cost), arity)


max_pool = _register("max_pool", _max_pool_infer, _max_pool_reference, of_tangent(_tangent_of_max_pool))

max_pool_places = _register("max_pool_places", _places_infer, _places_reference)

_max_pool_parts = (with_channels(_max_pool_reference), with_channels(_places_reference))

max_pool_both = register(
    "max_pool_both",
    Rules(
        infer=lambda x, **params: (_max_pool_infer(x, **params), _places_infer(x, **params)),
        reference=lambda x, **params: tuple(part(x, **params) for part in _max_pool_parts),
        batch=batch_leading("max_pool_both"),
        cost=_cost,
    ),
    outputs=2,
)
together.set(max_pool, (max_pool_places, max_pool_both))

# -- elements at given places ------------------------------------------------------------------------------------------


def _check_places(where: str, places: TensorSpec, pooled: TensorSpec, window: Shape) -> None:
    expected = pooled.update(dtype=place_dtype(window))
    if places != expected:
        problem = f"the places are {places}, those of these windows are {expected}."
        fix = "pass the result of max_pool_places for the same windows."
        raise user_error(ShapeError, where, problem, operands={"places": places}, fix=fix)


def _pick_infer(x: TensorSpec, places: TensorSpec, *, window: Shape, **params: Any) -> TensorSpec:
    check_dtype("pick_pool", x, *NUMERIC)
    spec = _pooled("pick_pool", x, window=window, **params)
    _check_places("pick_pool", places, spec, window)
    return spec


def _pick_reference(x: Any, places: Any, *, window: Shape, stride: Shape, padding: Padding, dilation: Shape) -> Any:
    padded = pad_spatial(x, padding)
    out = np.zeros(places.shape, x.dtype)
    shape = places.shape[places.ndim - len(window) :]
    for number, (_, index) in enumerate(offsets(window, stride, dilation, shape)):
        np.copyto(out, padded[index], where=places == number)
    return out


def _pick_grad_infer(ct: TensorSpec, places: TensorSpec, *, spatial: Shape, window: Shape, **params: Any) -> TensorSpec:
    spec = _sum_pool_grad_infer(ct, spatial=spatial, window=window, **params)
    _check_places("pick_pool_input_grad", places, ct, window)
    return spec


def _pick_grad_reference(ct: Any, places: Any, **params: Any) -> Any:
    return _spread(ct, lambda wide, number: np.where(places == number, wide, 0), **params)


def _spread(
    ct: Any, share: Callable[[Any, int], Any], *, spatial: Shape, window: Shape, stride: Shape, padding: Padding,
    dilation: Shape,
) -> Any:  # fmt: skip
    """Adds to each element `share(ct, number)` of the windows in which it has the place of that number."""
    at = ct.ndim - len(spatial)
    padded = tuple(low + n + high for n, (low, high) in zip(spatial, padding, strict=True))
    total = np.zeros((*ct.shape[:at], *padded), dtypes.accumulator(ct.dtype))
    wide = ct.astype(total.dtype, copy=False)
    with np.errstate(all="ignore"):
        for number, (_, index) in enumerate(offsets(window, stride, dilation, ct.shape[at:])):
            total[index] += share(wide, number)
        return crop_spatial(total, padding).astype(ct.dtype, copy=False)


def _pick_transpose(ct: Value, x: Linear, places: Value, **params: Any) -> Value:
    return pick_pool_input_grad(ct, places, spatial=_spatial(x, **params), **params)


pick_pool: Command = _register(
    "pick_pool", _pick_infer, _pick_reference, linear_in("pick_pool", {0: _pick_transpose}), arity=2
)

pick_pool_input_grad: Command = _register(
    "pick_pool_input_grad",
    _pick_grad_infer,
    _pick_grad_reference,
    linear_in("pick_pool_input_grad", {0: lambda g, ct, places, spatial, **params: pick_pool(g, places, **params)}),
    arity=2,
    cost=lambda ct, places, window, **params: ct.size * math.prod(window),
)

# -- sums --------------------------------------------------------------------------------------------------------------


def _sum_pool_infer(x: TensorSpec, **params: Any) -> TensorSpec:
    check_dtype("sum_pool", x, *NUMERIC)
    return _pooled("sum_pool", x, **params)


def _sum_pool_reference(x: Any, **params: Any) -> Any:
    with np.errstate(all="ignore"):
        total: Any = sum(value for _, value in _elements(x, 0, **params))
        return total.astype(x.dtype, copy=False)


def _sum_pool_grad_infer(ct: TensorSpec, *, spatial: Shape, channels_last: bool = False, **params: Any) -> TensorSpec:
    check_dtype("sum_pool_input_grad", ct, *NUMERIC, "ct")
    out = window_shape("sum_pool_input_grad", spatial, operands={"ct": ct}, **params)
    axes = spatial_axes(ct.ndim, len(out), channels_last)
    if axes.start < 0 or ct.shape[axes] != out:
        problem = f"the cotangent's shape {ct.shape} does not end in {out}, the number of windows."
        fix = "pass a cotangent of the pooled shape."
        raise user_error(ShapeError, "sum_pool_input_grad", problem, operands={"ct": ct}, fix=fix)
    return _exchanged(ct, spatial, channels_last)


def _sum_pool_grad_reference(ct: Any, **params: Any) -> Any:
    return _spread(ct, lambda wide, _: wide, **params)


def _sum_pool_transpose(ct: Value, x: Linear, **params: Any) -> Value:
    return sum_pool_input_grad(ct, spatial=_spatial(x, **params), **params)


sum_pool = register_linear(
    "sum_pool", _sum_pool_infer, with_channels(_sum_pool_reference), _sum_pool_transpose, cost=_cost
)

sum_pool_input_grad: Command = register_linear(
    "sum_pool_input_grad",
    _sum_pool_grad_infer,
    with_channels(_sum_pool_grad_reference),
    lambda g, ct, spatial, **params: sum_pool(g, **params),
    cost=lambda ct, window, **params: ct.size * math.prod(window),
)
