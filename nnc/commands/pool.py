"""Pooling over windows of the last axes; all axes before them are batches, so batching adds one more.

The maximum's tangent is that of the element that wins (the first of equal ones, a NaN before all); padding never wins.
"""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np

from nnc import dtypes
from nnc.commands.elementwise import NUMERIC, REAL
from nnc.commands.index import gather
from nnc.commands.rules import Derivative, Tangents, Value, batch_with, check_dtype, linear_in
from nnc.commands.shape import reshape
from nnc.commands.windows import Padding, Shape, crop_spatial, offsets, pad_spatial, window_shape
from nnc.errors import ArgumentError, ShapeError, user_error
from nnc.graph import Command, TensorSpec, register


def _pooled(where: str, x: TensorSpec, window: Shape, stride: Shape, padding: Padding, dilation: Shape) -> TensorSpec:
    rank = len(window)
    if x.ndim < rank:
        raise user_error(
            ShapeError, where, f"window {window} has {rank} axes, the input has {x.ndim}.", operands={"x": x},
            fix="pass an input with a spatial axis for each entry of the window.",
        )  # fmt: skip
    out = window_shape(where, x.shape[x.ndim - rank :], window, stride, padding, dilation, {"x": x})
    return x.update(shape=(*x.shape[: x.ndim - rank], *out))


def _check_windows_meet(
    where: str, x: TensorSpec, window: Shape, stride: Shape, padding: Padding, dilation: Shape, out: Shape
) -> None:
    """A maximum over padding alone would have no value."""
    for axis, (n, k, s, (low, high), d, count) in enumerate(
        zip(x.shape[x.ndim - len(window) :], window, stride, padding, dilation, out, strict=True)
    ):
        places = np.arange(count)[:, None] * s + np.arange(k) * d - low
        if not ((places >= 0) & (places < n)).any(axis=1).all():
            raise user_error(
                ArgumentError, where, f"spatial axis {axis}: a window lies in the padding {(low, high)} alone.",
                operands={"x": x}, fix="use less padding: at most half of the window.",
            )  # fmt: skip


def _max_pool_infer(x: TensorSpec, *, window: Shape, stride: Shape, padding: Padding, dilation: Shape) -> TensorSpec:
    check_dtype("max_pool", x, *REAL)
    spec = _pooled("max_pool", x, window, stride, padding, dilation)
    if any(itertools.chain(*padding)):
        _check_windows_meet("max_pool", x, window, stride, padding, dilation, spec.shape[x.ndim - len(window) :])
    return spec


def _argmax_infer(x: TensorSpec, **params: Any) -> TensorSpec:
    return _max_pool_infer(x, **params).update(dtype=dtypes.int64)


def _lowest(dtype: Any) -> Any:
    return np.iinfo(dtype).min if dtypes.is_integer(dtype) else -np.inf


def _max_pool_reference(x: Any, *, window: Shape, stride: Shape, padding: Padding, dilation: Shape) -> Any:
    rank = len(window)
    out = window_shape("max_pool", x.shape[x.ndim - rank :], window, stride, padding, dilation)
    padded = pad_spatial(x.astype(dtypes.accumulator(x.dtype), copy=False), padding, _lowest(x.dtype))
    best: Any = None
    for _, index in offsets(window, stride, dilation, out):
        best = padded[index].copy() if best is None else np.maximum(best, padded[index], out=best)
    return best.astype(x.dtype, copy=False)


def _argmax_reference(x: Any, *, window: Shape, stride: Shape, padding: Padding, dilation: Shape) -> Any:
    rank = len(window)
    spatial = x.shape[x.ndim - rank :]
    out = window_shape("max_pool", spatial, window, stride, padding, dilation)
    padded = pad_spatial(x.astype(dtypes.accumulator(x.dtype), copy=False), padding, _lowest(x.dtype))
    flat = pad_spatial(np.arange(math.prod(spatial)).reshape(spatial), padding, -1)
    shape = (*x.shape[: x.ndim - rank], *out)
    best, where = np.zeros(shape, padded.dtype), np.full(shape, -1, np.int64)
    for _, index in offsets(window, stride, dilation, out):
        value, place = padded[index], np.broadcast_to(flat[index], shape)
        wins = (place >= 0) & ((where < 0) | (value > best) | ((value != value) & (best == best)))
        np.copyto(best, value, where=wins)
        np.copyto(where, place, where=wins)
    return where


def _max_pool_jvp(
    primals: tuple[Value, ...], tangents: Tangents, outputs: tuple[Value, ...], *, window: Shape, **params: Any
) -> Tangents:
    """Takes the tangents at the winners."""
    t: Value = tangents[0]
    winners = max_pool_argmax(primals[0], window=window, **params)
    at = t.spec.ndim - len(window)
    rows = math.prod(t.spec.shape[:at])
    flat = reshape(t, shape=(rows, math.prod(t.spec.shape[at:])))
    index = reshape(winners, shape=(rows, math.prod(winners.spec.shape[at:])))
    return (reshape(gather(flat, index, axes=(1,), batch=1, mode="error"), shape=winners.spec.shape),)


def _keep(params: dict[str, Any]) -> dict[str, Any]:
    return params


def _cost(x: TensorSpec, **params: Any) -> int:
    return int(_pooled("pool", x, **params).size * math.prod(params["window"]))


max_pool = register(
    "max_pool",
    infer=_max_pool_infer,
    reference=_max_pool_reference,
    derivative=Derivative(_max_pool_jvp),
    batch=batch_with("max_pool", _keep),
    cost=_cost,
)

max_pool_argmax = register(
    "max_pool_argmax",
    infer=_argmax_infer,
    reference=_argmax_reference,
    batch=batch_with("max_pool_argmax", _keep),
    cost=_cost,
)


def _sum_pool_infer(x: TensorSpec, *, window: Shape, stride: Shape, padding: Padding, dilation: Shape) -> TensorSpec:
    check_dtype("sum_pool", x, *NUMERIC)
    return _pooled("sum_pool", x, window, stride, padding, dilation)


def _sum_pool_reference(x: Any, *, window: Shape, stride: Shape, padding: Padding, dilation: Shape) -> Any:
    rank = len(window)
    out = window_shape("sum_pool", x.shape[x.ndim - rank :], window, stride, padding, dilation)
    padded = pad_spatial(x.astype(dtypes.accumulator(x.dtype), copy=False), padding)
    total = np.zeros((*x.shape[: x.ndim - rank], *out), padded.dtype)
    with np.errstate(all="ignore"):
        for _, index in offsets(window, stride, dilation, out):
            total += padded[index]
        return total.astype(x.dtype, copy=False)


def _sum_pool_grad_infer(
    ct: TensorSpec, *, spatial: Shape, window: Shape, stride: Shape, padding: Padding, dilation: Shape
) -> TensorSpec:
    check_dtype("sum_pool_input_grad", ct, *NUMERIC, "ct")
    out = window_shape("sum_pool_input_grad", spatial, window, stride, padding, dilation, {"ct": ct})
    at = ct.ndim - len(out)
    if at < 0 or ct.shape[at:] != out:
        raise user_error(
            ShapeError, "sum_pool_input_grad", f"the cotangent's shape {ct.shape} does not end in {out}, the number of windows.",
            operands={"ct": ct}, fix="pass a cotangent of the pooled shape.",
        )  # fmt: skip
    return ct.update(shape=(*ct.shape[:at], *spatial))


def _sum_pool_grad_reference(
    ct: Any, *, spatial: Shape, window: Shape, stride: Shape, padding: Padding, dilation: Shape
) -> Any:
    at = ct.ndim - len(spatial)
    padded = tuple(low + n + high for n, (low, high) in zip(spatial, padding, strict=True))
    total = np.zeros((*ct.shape[:at], *padded), dtypes.accumulator(ct.dtype))
    wide = ct.astype(total.dtype, copy=False)
    with np.errstate(all="ignore"):
        for _, index in offsets(window, stride, dilation, ct.shape[at:]):
            total[index] += wide
        return crop_spatial(total, padding).astype(ct.dtype, copy=False)


sum_pool = register(
    "sum_pool",
    infer=_sum_pool_infer,
    reference=_sum_pool_reference,
    derivative=linear_in(
        "sum_pool",
        {
            0: lambda ct, x, window, **params: sum_pool_input_grad(
                ct, spatial=x.spec.shape[x.spec.ndim - len(window) :], window=window, **params
            )
        },
    ),
    batch=batch_with("sum_pool", _keep),
    cost=_cost,
)

sum_pool_input_grad: Command = register(
    "sum_pool_input_grad",
    infer=_sum_pool_grad_infer,
    reference=_sum_pool_grad_reference,
    derivative=linear_in("sum_pool_input_grad", {0: lambda g, ct, spatial, **params: sum_pool(g, **params)}),
    batch=batch_with("sum_pool_input_grad", _keep),
    cost=lambda ct, window, **params: ct.size * math.prod(window),
)
