"""Activation functions, and the softmax family."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

import nnc.nn as nn
import nnc.numpy as nnp
from nnc.onnx.model import Node
from nnc.onnx.operators.table import operator, rows

rows(
    {
        "Sigmoid": nn.sigmoid, "Relu": nn.relu, "Softplus": nn.softplus, "Softsign": lambda x: x / (1 + nnp.abs(x)),
        "Mish": lambda x: x * nnp.tanh(nn.softplus(nnp.asarray(x))),
        "HardSwish": lambda x: x * nnp.clip(nnp.asarray(x) / 6 + 0.5, 0, 1),
    }
)  # fmt: skip


def _setting(node: Node, name: str, default: float, x: Any) -> Any:
    """Returns a setting as a number of the operand's dtype."""
    return np.asarray(node.attributes.get(name, default), x.dtype)


@operator("Gelu")
def gelu(node: Node, x: Any) -> Any:
    return nn.gelu(nnp.asarray(x), approximate=node.attributes.get("approximate", "none") == "tanh")


@operator("LeakyRelu")
def leaky_relu(node: Node, x: Any) -> Any:
    return nnp.where(x < 0, x * _setting(node, "alpha", 0.01, x), x)


@operator("PRelu")
def prelu(node: Node, x: Any, slope: Any) -> Any:
    if node.version < 7 and slope.ndim == 1 and x.ndim > 1:  # one slope a channel
        slope = nnp.reshape(slope, (-1, *([1] * (x.ndim - 2))))
    return nnp.where(x < 0, x * slope, x)


@operator("ThresholdedRelu")
def thresholded_relu(node: Node, x: Any) -> Any:
    return nnp.where(x > _setting(node, "alpha", 1.0, x), x, nnp.zeros_like(x))


@operator("Elu")
def elu(node: Node, x: Any) -> Any:
    return nnp.where(x < 0, _setting(node, "alpha", 1.0, x) * nnp.expm1(nnp.minimum(x, _setting(node, "", 0.0, x))), x)


@operator("Celu")
def celu(node: Node, x: Any) -> Any:
    alpha, zero = _setting(node, "alpha", 1.0, x), np.zeros((), x.dtype)
    return nnp.maximum(x, zero) + nnp.minimum(zero, alpha * nnp.expm1(nnp.minimum(x, zero) / alpha))


@operator("Selu")
def selu(node: Node, x: Any) -> Any:
    old = node.version < 6  # rounder constants
    alpha = _setting(node, "alpha", 1.6732 if old else 1.67326319217681884765625, x)
    gamma = _setting(node, "gamma", 1.0507 if old else 1.05070102214813232421875, x)
    return gamma * nnp.where(x <= 0, alpha * nnp.expm1(nnp.minimum(x, np.zeros((), x.dtype))), x)


@operator("HardSigmoid")
def hard_sigmoid(node: Node, x: Any) -> Any:
    line = _setting(node, "alpha", 0.2, x) * x + _setting(node, "beta", 0.5, x)
    return nnp.clip(line, np.zeros((), x.dtype), np.ones((), x.dtype))


@operator("Swish")
def swish(node: Node, x: Any) -> Any:
    return x * nn.sigmoid(_setting(node, "alpha", 1.0, x) * nnp.asarray(x))


@operator("Shrink")
def shrink(node: Node, x: Any) -> Any:
    bias, limit = _setting(node, "bias", 0.0, x), _setting(node, "lambd", 0.5, x)
    return nnp.where(x < -limit, x + bias, nnp.where(x > limit, x - bias, nnp.zeros_like(x)))


def hardmax(x: Any, axis: int) -> Any:
    """1 at the first largest element along an axis, else 0."""
    return nn.one_hot(nnp.argmax(x, axis=axis), x.shape[axis], dtype=x.dtype, axis=axis)


_SOFTMAX: dict[str, Callable[..., Any]] = {"Softmax": nn.softmax, "LogSoftmax": nn.log_softmax, "Hardmax": hardmax}


@operator(*_SOFTMAX)
def flat_softmax(node: Node, x: Any) -> Any:
    """Before version 13: over all axes from one on."""
    axis = node.attributes.get("axis", 1)
    axis = axis + len(x.shape) if axis < 0 else axis
    flat = nnp.reshape(x, (math.prod(x.shape[:axis]), math.prod(x.shape[axis:])))
    return nnp.reshape(_SOFTMAX[node.operator](flat, axis=1), x.shape)


@operator(*_SOFTMAX, since=13)
def softmax(node: Node, x: Any) -> Any:
    return _SOFTMAX[node.operator](nnp.asarray(x), axis=node.attributes.get("axis", -1))
