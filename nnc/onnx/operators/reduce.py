"""Sums and other reductions, and running sums."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import nnc.numpy as nnp
from nnc.onnx.model import Node
from nnc.onnx.operators.table import operator
from nnc.onnx.values import integers

Reduction = Callable[..., Any]


def _largest(x: Any, *, axis: Any, keepdims: bool) -> Any:
    return _extreme(nnp.max, x, -1, axis, keepdims)


def _least(x: Any, *, axis: Any, keepdims: bool) -> Any:
    return _extreme(nnp.min, x, 1, axis, keepdims)


def _extreme(function: Reduction, x: Any, sign: int, axis: Any, keepdims: bool) -> Any:
    """The extreme number; of none, the farthest number of the dtype on the other side."""
    dtype = np.dtype(x.dtype)
    if dtype.kind == "b":
        return nnp.astype(_extreme(function, nnp.astype(x, "uint8"), sign, axis, keepdims), "bool")
    if dtype.kind in "iu":
        limits = np.iinfo(dtype)
        return function(
            x, axis=axis, keepdims=keepdims, initial=np.asarray(limits.max if sign > 0 else limits.min, dtype)
        )
    return function(x, axis=axis, keepdims=keepdims, initial=np.asarray(sign * np.inf, dtype))


def _wide(function: Reduction) -> Reduction:
    """Computes in float64 where the operand holds integers."""

    def run(x: Any, **settings: Any) -> Any:
        return function(nnp.astype(x, "float64") if np.dtype(x.dtype).kind in "iu" else nnp.asarray(x), **settings)

    return run


_REDUCTIONS: dict[str, Reduction] = {
    "ReduceSum": nnp.sum, "ReduceProd": nnp.prod, "ReduceMean": _wide(nnp.mean), "ReduceMax": _largest, "ReduceMin": _least,
    "ReduceL1": lambda x, **how: nnp.sum(nnp.abs(x), **how),
    "ReduceL2": _wide(lambda x, **how: nnp.sqrt(nnp.sum(nnp.square(x), **how))),
    "ReduceSumSquare": lambda x, **how: nnp.sum(nnp.square(x), **how),
    "ReduceLogSum": _wide(lambda x, **how: nnp.log(nnp.sum(x, **how))),
    "ReduceLogSumExp": _wide(nnp.logsumexp),
}  # fmt: skip


@operator(*_REDUCTIONS)
def reduce_axes(node: Node, x: Any, axes: Any = None) -> Any:
    """The axes are an attribute, or an input from version 13 (sums) or 18 on."""
    chosen = integers(axes, f"the axes of {node.operator}") if axes is not None else node.attributes.get("axes")
    keeps = bool(node.attributes.get("keepdims", 1))
    if not chosen:
        chosen = () if node.attributes.get("noop_with_empty_axes", 0) else range(len(x.shape))
        keeps = keeps or not chosen
    found = _REDUCTIONS[node.operator](x, axis=tuple(chosen), keepdims=keeps)
    return nnp.astype(found, x.dtype)


@operator("ArgMax", "ArgMin")
def arg_extreme(node: Node, x: Any) -> Any:
    axis, keeps = node.attributes.get("axis", 0), bool(node.attributes.get("keepdims", 1))
    function = nnp.argmax if node.operator == "ArgMax" else nnp.argmin
    if node.attributes.get("select_last_index", 0):
        found = x.shape[axis] - 1 - function(nnp.flip(x, axis=axis), axis=axis, keepdims=keeps)
    else:
        found = function(x, axis=axis, keepdims=keeps)
    return nnp.astype(found, "int64")


@operator("CumSum", "CumProd")
def cumulate(node: Node, x: Any, axis: Any) -> Any:
    (along,) = integers(axis, f"the axis of {node.operator}")
    function, start = (nnp.cumsum, 0) if node.operator == "CumSum" else (nnp.cumprod, 1)
    turned = nnp.flip(x, axis=along) if node.attributes.get("reverse", 0) else nnp.asarray(x)
    found = nnp.astype(function(turned, axis=along), x.dtype)
    if node.attributes.get("exclusive", 0):
        size = x.shape[along]
        first = nnp.full_like(nnp.take(found, np.arange(min(size, 1)), axis=along), start)
        found = nnp.concatenate([first, nnp.take(found, np.arange(max(size - 1, 0)), axis=along)], axis=along)
    return nnp.flip(found, axis=along) if node.attributes.get("reverse", 0) else found
