"""Quantised numbers: integers with a scale and a zero point."""

from __future__ import annotations

import itertools
from typing import Any

import ml_dtypes
import numpy as np

import nnc.nn as nn
import nnc.numpy as nnp
from nnc.numpy.operands import at_once
from nnc.onnx.model import Node, dtype_of
from nnc.onnx.operators.elementwise import to_few_bits
from nnc.onnx.operators.table import operator
from nnc.onnx.operators.windows import windows_of
from nnc.onnx.values import is_known, known, nnc_has


def _spread(node: Node, x: Any, vector: Any) -> Any:
    """Gives scales or zero points, of all, of an axis or of blocks along it, the operand's shape."""
    if vector.ndim == 0 or (vector.ndim == 1 and vector.shape[0] == 1 and not node.attributes.get("block_size", 0)):
        return nnp.reshape(vector, ())
    axis, block = node.attributes.get("axis", 1) % len(x.shape), node.attributes.get("block_size", 0)
    if vector.ndim == 1 and not block:
        shape = [1] * len(x.shape)
        shape[axis] = -1
        return nnp.reshape(vector, tuple(shape))
    repeated = nnp.repeat(nnp.asarray(vector), block, axis=axis)
    return nnp.take(repeated, np.arange(x.shape[axis]), axis=axis)


@operator("DequantizeLinear")
def dequantize(node: Node, x: Any, scale: Any, zero: Any = None) -> Any:
    """(x - zero point) · scale, in the dtype of the scale."""
    to = dtype_of(node.attributes["output_dtype"]) if node.attributes.get("output_dtype") else scale.dtype
    scales = _spread(node, x, scale)
    offset = None if zero is None else _wide(zero)
    number = _wide(x)
    if offset is not None:
        number = number - _spread(node, x, offset)
    return nnp.astype(nnp.astype(number, scale.dtype) * scales, to)


def _wide(x: Any) -> Any:
    """Returns integers in 32 bits; types of few bits as float32."""
    if nnc_has(x.dtype):
        return nnp.astype(x, "int32") if np.dtype(x.dtype).kind in "iu" else x
    values = known(x, f"numbers of {x.dtype}")
    return values.astype(np.int32) if "int" in values.dtype.name else values.astype(np.float32)


@operator("QuantizeLinear")
def quantize(node: Node, x: Any, scale: Any, zero: Any = None) -> Any:
    """The nearest integer of x / scale, plus the zero point, within the range of the dtype."""
    number = node.attributes.get("output_dtype", 0)
    dtype = np.dtype(zero.dtype) if zero is not None else dtype_of(number) if number else np.dtype(np.uint8)
    wide = "float32" if np.dtype(x.dtype).kind in "iu" else x.dtype
    precision = dtype_of(node.attributes["precision"]) if node.attributes.get("precision") else None
    x, scales = (nnp.astype(value, precision or wide) for value in (x, _spread(node, x, scale)))
    ratio = x / scales
    if "float" in dtype.name and not nnc_has(dtype):
        return to_few_bits(known(ratio, "numbers to quantise"), dtype, bool(node.attributes.get("saturate", 1)))
    offset = 0 if zero is None else _spread(node, x, _wide(zero))
    return saturated(nnp.round(nnp.astype(ratio, "float32")) + offset, dtype)


def saturated(x: Any, dtype: np.dtype[Any]) -> Any:
    """Converts whole numbers; those beyond the range become its ends."""
    limits: Any = ml_dtypes.iinfo(dtype)  # type: ignore[no-untyped-call]
    inside = nnp.clip(x, int(limits.min), int(limits.max))
    if nnc_has(dtype):
        return nnp.astype(nnp.astype(inside, "int32"), dtype)
    return known(inside, "numbers to quantise").astype(np.int32).astype(dtype)


@operator("DynamicQuantizeLinear")
def dynamic_quantize(node: Node, x: Any) -> Any:
    x = nnp.asarray(x)
    low, high = nnp.minimum(nnp.min(x), 0), nnp.maximum(nnp.max(x), 0)
    scale = nnp.where(high == low, 1, high - low) / np.float32(255)
    zero = nnp.clip(nnp.round((0 - low) / scale), 0, 255)
    found = nnp.clip(nnp.round(x / scale) + zero, 0, 255)
    return nnp.astype(found, "uint8"), scale, nnp.astype(zero, "uint8")


def _centred(x: Any, zero: Any, axis: int | None = None) -> Any:
    """Returns integers less their zero point: one of all, or a vector along an axis. Known ones stay in 8 bits where they fit."""
    if zero is None:
        return nnp.astype(x, "int32")
    if is_known(x) and is_known(zero):
        whole = x.astype(np.int32) - _along(zero.astype(np.int32), axis, x.ndim)
        fits = whole.min(initial=0) >= -128 and whole.max(initial=0) <= 127
        return nnp.astype(whole.astype(np.int8) if fits else whole, "int32")
    return nnp.astype(x, "int32") - _along(nnp.astype(zero, "int32"), axis, len(x.shape))


def _along(zero: Any, axis: int | None, ndim: int) -> Any:
    if axis is None or zero.ndim != 1 or zero.shape[0] == 1:
        return nnp.reshape(zero, ()) if zero.ndim == 1 and zero.shape[0] == 1 else zero
    shape = [1] * ndim
    shape[axis] = -1
    return zero.reshape(tuple(shape))


@operator("MatMulInteger")
def matmul_integer(node: Node, a: Any, b: Any, a_zero: Any = None, b_zero: Any = None) -> Any:
    return nnp.matmul(_centred(a, a_zero, -2), _centred(b, b_zero, -1))


@operator("ConvInteger")
def conv_integer(node: Node, x: Any, w: Any, x_zero: Any = None, w_zero: Any = None) -> Any:
    """The products are those of float32 or float64, in parts of the channels whose sums the dtype holds."""
    windows, groups = windows_of(node, x.shape[2:], w.shape[2:]), node.attributes.get("group", 1)
    left, right = _centred(x, x_zero), _centred(w, w_zero, 0)
    weights = None
    if is_known(w) and is_known(w_zero):
        with at_once():
            weights = np.asarray(_centred(w, w_zero, 0))
    wide, parts = _exact_parts(weights, groups)
    total: Any = 0
    for part in parts:
        found = nn.conv(
            nnp.astype(left[:, part], wide), nnp.astype(right[:, part], wide), stride=windows.strides, padding=windows.pads,
            dilation=windows.dilations, groups=groups,
        )  # fmt: skip
        total = nnp.astype(found, "int32") + total
    return total


def _exact_parts(weights: Any, groups: int) -> tuple[str, list[slice]]:
    """Returns a dtype, and parts of the input channels, so that sums of products with integers of 9 bits are exact.

    Args:
        weights: known integers, (output channels, input channels of a group, *window); None where they are not known: float64
            holds sums of fewer than 2^35 products.
    """
    if weights is not None:
        sizes = np.abs(weights.astype(np.int64)).sum(axis=tuple(range(2, weights.ndim)))
        channels = sizes.shape[1]
        for count in (1, 2, 4, 8) if groups == 1 else (1,):
            ends = [channels * place // count for place in range(count + 1)]
            parts = [slice(low, high) for low, high in itertools.pairwise(ends) if high > low]
            if all(255 * sizes[:, part].sum(axis=1).max(initial=0) < 1 << 24 for part in parts):
                return "float32", parts
    return "float64", [slice(None)]


@operator("QLinearMatMul")
def qlinear_matmul(
    node: Node, a: Any, a_scale: Any, a_zero: Any, b: Any, b_scale: Any, b_zero: Any, y_scale: Any, y_zero: Any
) -> Any:
    product = nnp.astype(matmul_integer(node, a, b, a_zero, b_zero), "float32")
    factor = nnp.astype(in_rows(a_scale), "float32") * nnp.astype(b_scale, "float32") / nnp.astype(y_scale, "float32")
    return saturated(nnp.round(product * factor) + nnp.astype(y_zero, "int32"), np.dtype(y_zero.dtype))


def in_rows(scale: Any) -> Any:
    """Gives scales of rows the axis of columns; a scale of all stays."""
    return nnp.expand_dims(scale, -1) if scale.ndim and scale.shape[0] > 1 else scale


@operator("QLinearConv")
def qlinear_conv(
    node: Node,
    x: Any,
    x_scale: Any,
    x_zero: Any,
    w: Any,
    w_scale: Any,
    w_zero: Any,
    y_scale: Any,
    y_zero: Any,
    bias: Any = None,
) -> Any:
    out = conv_integer(node, x, w, x_zero, w_zero)
    channels = (-1, *([1] * (len(x.shape) - 2)))
    if bias is not None:
        out = out + nnp.reshape(bias, channels)
    scales = nnp.reshape(w_scale, channels) if w_scale.ndim and w_scale.shape[0] > 1 else nnp.reshape(w_scale, ())
    factor = nnp.reshape(x_scale, ()) * scales / nnp.reshape(y_scale, ())
    zero = nnp.reshape(nnp.astype(y_zero, "int32"), ())
    return saturated(nnp.round(nnp.astype(out, "float32") * factor) + zero, np.dtype(y_zero.dtype))
