"""Random numbers: the standard leaves open which; a seed gives the same ones at each run."""

from __future__ import annotations

from typing import Any

import numpy as np

import nnc.numpy as nnp
import nnc.random as random
from nnc.onnx.model import Node, dtype_of
from nnc.onnx.operators.table import operator
from nnc.onnx.values import known


def _key(node: Node) -> Any:
    """Returns the key of the node's seed; without one, of its name, so that nodes draw different numbers."""
    seed = node.attributes.get("seed")
    return random.key(
        int(np.float32(seed).view(np.int32)) & 0x7FFFFFFF if seed is not None else sum(node.outputs[0].encode())
    )


@operator("RandomUniform", "RandomUniformLike", "RandomNormal", "RandomNormalLike")
def draw(node: Node, like: Any = None) -> Any:
    number = node.attributes.get("dtype")
    dtype = dtype_of(number) if number else np.dtype(np.float32) if like is None else like.dtype
    shape = tuple(node.attributes["shape"] if like is None else like.shape)
    if "Uniform" in node.operator:
        low, high = node.attributes.get("low", 0.0), node.attributes.get("high", 1.0)
        return random.uniform(_key(node), shape, dtype=dtype, minval=low, maxval=high)
    mean, scale = node.attributes.get("mean", 0.0), node.attributes.get("scale", 1.0)
    return random.normal(_key(node), shape, dtype=dtype) * np.asarray(scale, dtype) + np.asarray(mean, dtype)


@operator("Bernoulli")
def bernoulli(node: Node, x: Any) -> Any:
    dtype = dtype_of(node.attributes["dtype"]) if "dtype" in node.attributes else x.dtype
    return nnp.astype(random.uniform(_key(node), x.shape) < x, dtype)


@operator("Multinomial")
def multinomial(node: Node, x: Any) -> Any:
    shape = (node.attributes.get("sample_size", 1), x.shape[0])
    drawn = random.categorical(_key(node), nnp.asarray(x), axis=-1, shape=shape)
    return nnp.astype(nnp.transpose(drawn), dtype_of(node.attributes.get("dtype", 6)))


@operator("Dropout")
def dropout_of_attributes(node: Node, x: Any) -> Any:
    """Before version 12 a model is one for inference."""
    return x, nnp.ones(x.shape, "bool" if node.version >= 10 else x.dtype)


@operator("Dropout", since=12)
def dropout(node: Node, x: Any, ratio: Any = None, training: Any = None) -> Any:
    is_training = training is not None and bool(known(training, "the mode of Dropout").reshape(()))
    if not is_training:
        return x, nnp.ones(x.shape, "bool")
    share = np.asarray(0.5, x.dtype) if ratio is None else nnp.astype(ratio, x.dtype)
    mask = random.uniform(_key(node), x.shape) >= share
    return nnp.where(mask, x / (1 - share), nnp.zeros_like(x)), mask


@operator("BitCast")
def bit_cast(node: Node, x: Any) -> Any:
    return known(x, "the bits of BitCast").view(dtype_of(node.attributes["to"]))
