"""The domain of training: steps of optimizers."""

from __future__ import annotations

from typing import Any

import numpy as np

import nnc.numpy as nnp
from nnc.onnx.model import Node
from nnc.onnx.operators.table import operator

TRAINING = "ai.onnx.preview.training"


def _tensors(operands: Any, states: int) -> Any:
    """Groups operands: all parameters, then all gradients, then all of each state."""
    count = len(operands) // (2 + states)
    return zip(*(operands[part * count : (part + 1) * count] for part in range(2 + states)), strict=True)


def _ordered(results: list[tuple[Any, ...]]) -> tuple[Any, ...]:
    return tuple(value for part in zip(*results, strict=True) for value in part)


@operator("Adagrad", domain=TRAINING)
def adagrad(node: Node, rate: Any, step: Any, *operands: Any) -> Any:
    get = node.attributes.get
    rate = rate / (1 + nnp.astype(step, rate.dtype) * np.float32(get("decay_factor", 0.0)))
    results = []
    for x, gradient, total in _tensors(operands, 1):
        gradient = np.asarray(get("norm_coefficient", 0.0), x.dtype) * x + gradient
        total = total + nnp.square(gradient)
        results.append((x - rate * gradient / (nnp.sqrt(total) + np.asarray(get("epsilon", 0.0), x.dtype)), total))
    return _ordered(results)


@operator("Momentum", domain=TRAINING)
def momentum(node: Node, rate: Any, step: Any, *operands: Any) -> Any:
    get = node.attributes
    alpha, is_nesterov, results = np.float32(get["alpha"]), get["mode"] == "nesterov", []
    beta = nnp.where(nnp.asarray(step) > 0, np.float32(get["beta"]), np.float32(1))
    for x, gradient, velocity in _tensors(operands, 1):
        gradient = np.float32(get["norm_coefficient"]) * x + gradient
        velocity = alpha * velocity + beta * gradient
        results.append((x - rate * (gradient + alpha * velocity if is_nesterov else velocity), velocity))
    return _ordered(results)


@operator("Adam", domain=TRAINING)
def adam(node: Node, rate: Any, step: Any, *operands: Any) -> Any:
    get = node.attributes.get
    alpha, beta, results = np.float32(get("alpha", 0.9)), np.float32(get("beta", 0.999)), []
    count = nnp.astype(step, "float32")
    corrected = rate * nnp.sqrt(1 - nnp.power(beta, count)) / (1 - nnp.power(alpha, count))
    rate = nnp.where(nnp.asarray(step) > 0, corrected, rate)
    for x, gradient, mean, square in _tensors(operands, 2):
        gradient = np.float32(get("norm_coefficient", 0.0)) * x + gradient
        mean, square = alpha * mean + (1 - alpha) * gradient, beta * square + (1 - beta) * nnp.square(gradient)
        x = x - rate * mean / (nnp.sqrt(square) + np.float32(get("epsilon", 1e-6)))
        results.append(((1 - np.float32(get("norm_coefficient_post", 0.0))) * x, mean, square))
    return _ordered(results)
