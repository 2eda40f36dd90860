"""Operators of onnxruntime's domain com.microsoft on quantised numbers: its quantizers write them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import nnc.nn as nn
import nnc.numpy as nnp
from nnc.onnx.model import Node
from nnc.onnx.operators.activation import leaky_relu
from nnc.onnx.operators.fused import DOMAIN
from nnc.onnx.operators.pool import average_pool, global_average_pool
from nnc.onnx.operators.quantize import (
    dequantize,
    dynamic_quantize,
    in_rows,
    matmul_integer,
    qlinear_conv,
    quantize,
    saturated,
)
from nnc.onnx.operators.recurrent import run_directions
from nnc.onnx.operators.table import operator

operator("QuantizeLinear", domain=DOMAIN)(quantize)
operator("DequantizeLinear", domain=DOMAIN)(dequantize)


def _numbers(x: Any, scale: Any, zero: Any) -> Any:
    """Returns the float32 that integers stand for; scale and zero point are numbers, or fit the last axis."""
    wide = nnp.astype(x, "int32")
    return nnp.astype(wide if zero is None else wide - nnp.astype(zero, "int32"), "float32") * scale


def _quantized(x: Any, scale: Any, zero: Any, like: Any) -> Any:
    """Returns the integers, of the dtype that `like` has, that stand for numbers."""
    offset = 0 if zero is None else nnp.astype(zero, "int32")
    return saturated(nnp.round(x / scale) + offset, np.dtype(like.dtype))


def _channels_last(node: Node, function: Callable[..., Any], x: Any, *more: Any) -> Any:
    """Runs a function of images whose channels come second on images that have them last, where the node says so."""
    if not node.attributes.get("channels_last", 0):
        return function(node, x, *more)
    return nnp.moveaxis(function(node, nnp.moveaxis(nnp.asarray(x), -1, 1), *more), 1, -1)


# -- functions of the numbers, and integers of the results -------------------------------------------------------------


@operator("QLinearAdd", "QLinearMul", domain=DOMAIN)
def qlinear_binary(
    node: Node, a: Any, a_scale: Any, a_zero: Any, b: Any, b_scale: Any, b_zero: Any, scale: Any, zero: Any = None
) -> Any:
    left, right = _numbers(a, a_scale, a_zero), _numbers(b, b_scale, b_zero)
    return _quantized(left + right if node.operator == "QLinearAdd" else left * right, scale, zero, a)


_FUNCTIONS: dict[str, Callable[..., Any]] = {
    "QLinearSigmoid": lambda node, x: nn.sigmoid(x),
    "QLinearLeakyRelu": leaky_relu,
    "QLinearAveragePool": average_pool,
    "QLinearGlobalAveragePool": global_average_pool,
    "QLinearSoftmax": lambda node, x: _softmax(node, x),
}


@operator(*_FUNCTIONS, domain=DOMAIN)
def qlinear_unary(node: Node, x: Any, x_scale: Any, x_zero: Any, scale: Any, zero: Any = None) -> Any:
    found = _channels_last(node, _FUNCTIONS[node.operator], _numbers(x, x_scale, x_zero))
    return _quantized(found, scale, zero, x)


def _softmax(node: Node, x: Any) -> Any:
    """Before version 13 of Softmax: over all axes from one on."""
    axis = node.attributes.get("axis", -1) % x.ndim
    return nn.softmax(x, axis=axis if node.attributes["opset"] >= 13 else tuple(range(axis, x.ndim)))


@operator("QLinearConcat", domain=DOMAIN)
def qlinear_concat(node: Node, scale: Any, zero: Any, *parts: Any) -> Any:
    numbers = [_numbers(*parts[place : place + 3]) for place in range(0, len(parts), 3)]
    return _quantized(nnp.concatenate(numbers, axis=node.attributes["axis"]), scale, zero, zero)


@operator("QLinearWhere", domain=DOMAIN)
def qlinear_where(
    node: Node,
    condition: Any,
    x: Any,
    x_scale: Any,
    x_zero: Any,
    y: Any,
    y_scale: Any,
    y_zero: Any,
    scale: Any,
    zero: Any,
) -> Any:
    found = nnp.where(condition, _numbers(x, x_scale, x_zero), _numbers(y, y_scale, y_zero))
    return _quantized(found, scale, zero, x)


@operator("QLinearConv", domain=DOMAIN)
def qlinear_conv_of_channels(node: Node, x: Any, *more: Any) -> Any:
    return _channels_last(node, qlinear_conv, x, *more)


# -- products of integers ----------------------------------------------------------------------------------------------


@operator("MatMulIntegerToFloat", domain=DOMAIN)
def matmul_integer_to_float(
    node: Node, a: Any, b: Any, a_scale: Any, b_scale: Any, a_zero: Any = None, b_zero: Any = None, bias: Any = None
) -> Any:
    found = nnp.astype(matmul_integer(node, a, b, a_zero, b_zero), "float32") * (in_rows(a_scale) * b_scale)
    return found if bias is None else found + bias


@operator("DynamicQuantizeMatMul", domain=DOMAIN)
def dynamic_quantize_matmul(node: Node, a: Any, b: Any, scale: Any, zero: Any = None, bias: Any = None) -> Any:
    whole, own_scale, own_zero = dynamic_quantize(node, a)
    return matmul_integer_to_float(node, whole, b, own_scale, scale, own_zero, zero, bias)


@operator("QGemm", domain=DOMAIN)
def qgemm(
    node: Node,
    a: Any,
    a_scale: Any,
    a_zero: Any,
    b: Any,
    b_scale: Any,
    b_zero: Any,
    c: Any = None,
    scale: Any = None,
    zero: Any = None,
) -> Any:
    """`c` has the scale of the product."""
    left = nnp.transpose(a) if node.attributes.get("transA", 0) else a
    right = nnp.transpose(b) if node.attributes.get("transB", 0) else b
    total = matmul_integer(node, left, right, a_zero, b_zero)
    total = total if c is None else total + c
    found = nnp.astype(total, "float32") * (a_scale * b_scale * np.float32(node.attributes.get("alpha", 1.0)))
    return found if scale is None else _quantized(found, scale, zero, zero)


@operator("MatMulNBits", domain=DOMAIN)
def matmul_few_bits(
    node: Node, a: Any, b: Any, scales: Any, zeros: Any = None, groups: Any = None, bias: Any = None
) -> Any:
    """The second operand holds blocks of integers of a few bits along the products' axis, each block with its scale."""
    if groups is not None or node.attributes.get("weight_prepacked", 0):
        raise NotImplementedError("MatMulNBits with g_idx or packed weights")
    bits, size, columns = node.attributes.get("bits", 4), node.attributes["block_size"], node.attributes["N"]
    blocks = -(-node.attributes["K"] // size)
    whole = nnp.reshape(_unpacked(nnp.reshape(b, (columns, -1)), bits), (columns, blocks, size))
    if zeros is None:
        offset: Any = np.asarray(1 << (bits - 1), a.dtype)
    else:
        packed = np.dtype(zeros.dtype) == np.uint8
        table = nnp.reshape(zeros, (columns, -1))
        offset = nnp.astype((_unpacked(table, bits) if packed else table)[:, :blocks, None], a.dtype)
    weights = (nnp.astype(whole, a.dtype) - offset) * nnp.reshape(scales, (columns, blocks, 1))
    found = nnp.matmul(a, nnp.reshape(weights, (columns, -1))[:, : node.attributes["K"]].T)
    return found if bias is None else found + bias


def _unpacked(x: Any, bits: int) -> Any:
    """Returns the integers of a few bits that bytes hold, the lowest ones first, along the last axis."""
    parts = [(x >> np.uint8(at)) & np.uint8((1 << bits) - 1) for at in range(0, 8, bits)]
    return nnp.reshape(nnp.stack(parts, axis=-1), (*x.shape[:-1], -1))


@operator("DynamicQuantizeLSTM", domain=DOMAIN)
def dynamic_quantize_lstm(node: Node, x: Any, w: Any, r: Any, *more: Any) -> Any:
    """LSTM with products of integers: the weights are stored so, (directions, inputs, gates), operands are quantised before
    each product.
    """
    bias, lengths, h0, c0, peep, *rest = more
    products = [
        (_quantized_product(node, index, w, *rest[:2]), _quantized_product(node, index, r, *rest[2:]))
        for index in range(w.shape[0])
    ]
    return run_directions(node._replace(operator="LSTM"), x, products, r.shape[1], bias, lengths, h0, c0, peep)


def _quantized_product(node: Node, index: int, weights: Any, scales: Any, zeros: Any) -> Callable[..., Any]:
    return lambda x: dynamic_quantize_matmul(node, x, weights[index], scales[index], zeros[index])
