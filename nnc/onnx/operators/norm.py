"""Normalisations."""

from __future__ import annotations

from typing import Any

import numpy as np

import nnc.numpy as nnp
from nnc.onnx.model import Node, dtype_of
from nnc.onnx.operators.table import operator


def _channels(x: Any, vector: Any) -> Any:
    """Gives a vector over channels the axes that the operand has."""
    return nnp.reshape(vector, (-1, *([1] * (len(x.shape) - 2))))


@operator("BatchNormalization")
def batch_norm(node: Node, x: Any, scale: Any, bias: Any, mean: Any, variance: Any) -> Any:
    """With the statistics given, or (since version 14: `training_mode`) with the batch's own, which join the running ones."""
    epsilon, momentum = node.attributes.get("epsilon", 1e-5), node.attributes.get("momentum", 0.9)
    is_training = node.attributes.get("training_mode", 0) if node.version >= 14 else False
    running: tuple[Any, ...] = ()
    if is_training:
        axes = (0, *range(2, len(x.shape)))
        wide = nnp.asarray(x)
        own_mean, own_variance = nnp.mean(wide, axis=axes), nnp.var(wide, axis=axes)
        running = tuple(
            old * np.asarray(momentum, old.dtype) + nnp.astype(new, old.dtype) * np.asarray(1 - momentum, old.dtype)
            for old, new in ((mean, own_mean), (variance, own_variance))
        )
        mean, variance = own_mean, own_variance
    factor = scale / nnp.sqrt(nnp.asarray(variance) + np.asarray(epsilon, variance.dtype))
    shift = bias - mean * factor
    return (nnp.astype(x * _channels(x, factor) + _channels(x, shift), x.dtype), *running)


@operator("InstanceNormalization")
def instance_norm(node: Node, x: Any, scale: Any, bias: Any) -> Any:
    axes = tuple(range(2, len(x.shape)))
    found = _normalised(x, axes, node.attributes.get("epsilon", 1e-5))
    return found * _channels(x, scale) + _channels(x, bias)


def _normalised(x: Any, axes: tuple[int, ...], epsilon: float) -> Any:
    x = nnp.asarray(x)
    centred = x - nnp.mean(x, axis=axes, keepdims=True)
    variance = nnp.mean(nnp.square(centred), axis=axes, keepdims=True)
    return centred / nnp.sqrt(variance + np.asarray(epsilon, x.dtype))


@operator("LayerNormalization")
def layer_norm(node: Node, x: Any, scale: Any, bias: Any = None) -> Any:
    """The results are the normalised operand, its means and the inverse of its standard deviations."""
    return layer_normalised(x, scale, bias, _last_axes(node, x), node.attributes.get("epsilon", 1e-5), _stash(node))


def layer_normalised(x: Any, scale: Any, bias: Any, axes: tuple[int, ...], epsilon: float, wide: Any) -> Any:
    """Returns the results of LayerNormalization, computed in the dtype `wide`."""
    x = nnp.asarray(x)
    whole = nnp.astype(x, wide)
    mean = nnp.mean(whole, axis=axes, keepdims=True)
    centred = whole - mean
    variance = nnp.mean(nnp.square(centred), axis=axes, keepdims=True)
    inverse = 1 / nnp.sqrt(variance + np.asarray(epsilon, whole.dtype))
    found = nnp.astype(centred * inverse, x.dtype) * scale
    return (found if bias is None else found + bias), mean, inverse


@operator("RMSNormalization")
def rms_norm(node: Node, x: Any, scale: Any) -> Any:
    return rms_normalised(x, scale, _last_axes(node, x), node.attributes.get("epsilon", 1e-5), _stash(node))[0]


@operator("SimplifiedLayerNormalization")
def simplified_layer_norm(node: Node, x: Any, scale: Any) -> Any:
    """RMSNormalization as onnxruntime wrote it before the standard had it; the second result is the divisors' inverse."""
    return rms_normalised(x, scale, _last_axes(node, x), node.attributes.get("epsilon", 1e-5), _stash(node))


def rms_normalised(x: Any, scale: Any, axes: tuple[int, ...], epsilon: float, wide: Any) -> Any:
    """Returns the operand divided by the root of its mean square, times `scale`, and the inverse of that root."""
    x = nnp.asarray(x)
    whole = nnp.astype(x, wide)
    root = nnp.sqrt(nnp.mean(nnp.square(whole), axis=axes, keepdims=True) + np.asarray(epsilon, whole.dtype))
    return nnp.astype(nnp.astype(whole / root, x.dtype) * scale, scale.dtype), 1 / root


def _last_axes(node: Node, x: Any) -> tuple[int, ...]:
    return tuple(range(node.attributes.get("axis", -1) % len(x.shape), len(x.shape)))


def _stash(node: Node) -> Any:
    return dtype_of(node.attributes.get("stash_type", 1))


@operator("GroupNormalization")
def group_norm(node: Node, x: Any, scale: Any, bias: Any) -> Any:
    """Before version 21, scale and bias have an element a group, later one a channel."""
    groups, (batch, channels, *sizes) = node.attributes["num_groups"], x.shape
    wide = nnp.astype(x, _stash(node)) if node.version >= 21 else nnp.asarray(x)
    parts = nnp.reshape(wide, (batch, groups, channels // groups, *sizes))
    found = _normalised(parts, tuple(range(2, parts.ndim)), node.attributes.get("epsilon", 1e-5))
    if node.version < 21:
        scale, bias = (nnp.repeat(vector, channels // groups) for vector in (scale, bias))
    found = nnp.astype(nnp.reshape(found, x.shape), x.dtype)
    return found * _channels(x, scale) + _channels(x, bias)


@operator("LpNormalization")
def lp_norm(node: Node, x: Any) -> Any:
    axis, p = node.attributes.get("axis", -1), node.attributes.get("p", 2)
    norm = nnp.sum(nnp.abs(x), axis=axis, keepdims=True)
    if p == 2:
        norm = nnp.linalg.norm(nnp.asarray(x), axis=axis, keepdims=True)
    return nnp.where(norm == 0, nnp.zeros_like(x), x / norm)


@operator("MeanVarianceNormalization")
def mean_variance_norm(node: Node, x: Any) -> Any:
    axes = tuple(node.attributes.get("axes", (0, 2, 3)))
    centred = x - nnp.mean(nnp.asarray(x), axis=axes, keepdims=True)
    deviation = nnp.sqrt(nnp.mean(nnp.square(centred), axis=axes, keepdims=True))
    return centred / (deviation + np.asarray(1e-9, x.dtype))


@operator("LRN")
def local_response_norm(node: Node, x: Any) -> Any:
    size, (alpha, beta, bias) = (
        node.attributes["size"],
        (
            np.asarray(node.attributes.get(name, default), x.dtype)
            for name, default in (("alpha", 1e-4), ("beta", 0.75), ("bias", 1.0))
        ),
    )
    before, channels = (size - 1) // 2, x.shape[1]
    widths = [(0, 0)] * len(x.shape)
    widths[1] = (before, size - 1 - before)
    squares = nnp.pad(nnp.square(nnp.asarray(x)), widths)
    total = sum(squares[:, first : first + channels] for first in range(size))
    return x / nnp.power(bias + alpha / np.asarray(size, x.dtype) * total, beta)
