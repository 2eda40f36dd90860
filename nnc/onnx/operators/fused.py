"""Operators of onnxruntime's domain com.microsoft that stand for several of the standard: its optimizer writes them."""

from __future__ import annotations

from typing import Any

import numpy as np

import nnc.nn as nn
import nnc.numpy as nnp
from nnc.onnx.model import Node
from nnc.onnx.operators.activation import hard_sigmoid, leaky_relu, swish
from nnc.onnx.operators.conv import conv
from nnc.onnx.operators.norm import layer_normalised, rms_normalised
from nnc.onnx.operators.products import gemm
from nnc.onnx.operators.table import operator, rows

DOMAIN = "com.microsoft"

rows({"Inverse": nnp.linalg.inv, "BiasGelu": lambda x, bias: nn.gelu(x + bias, approximate=False)}, domain=DOMAIN)
rows({"Gelu": lambda x: nn.gelu(nnp.asarray(x), approximate=False)}, domain=DOMAIN)


@operator("FastGelu", domain=DOMAIN)
def fast_gelu(node: Node, x: Any, bias: Any = None) -> Any:
    return nn.gelu(nnp.asarray(x) if bias is None else x + bias, approximate=True)


@operator("QuickGelu", domain=DOMAIN)
def quick_gelu(node: Node, x: Any) -> Any:
    return swish(_with(node, alpha=node.attributes.get("alpha", 1.702)), x)


def _with(node: Node, **attributes: Any) -> Node:
    return node._replace(attributes={**node.attributes, **attributes})


# -- products and their activations -------------------------------------------------------------------------------------

# By the name in the attribute: the activation, and the attributes that its settings are.
_ACTIVATIONS: dict[str, tuple[Any, tuple[str, ...]]] = {
    "": (lambda node, x: x, ()),
    "Relu": (lambda node, x: nn.relu(x), ()),
    "Sigmoid": (lambda node, x: nn.sigmoid(x), ()),
    "Tanh": (lambda node, x: nnp.tanh(x), ()),
    "LeakyRelu": (leaky_relu, ("alpha",)),
    "HardSigmoid": (hard_sigmoid, ("alpha", "beta")),
    "Clip": (lambda node, x: nnp.clip(x, node.attributes["min"], node.attributes["max"]), ("min", "max")),
}


def _activated(node: Node, x: Any, settings: Any) -> Any:
    name = node.attributes.get("activation", "")
    if name not in _ACTIVATIONS:
        raise NotImplementedError(f"activation {name!r} of {node.operator}")
    function, names = _ACTIVATIONS[name]
    return function(node._replace(attributes=dict(zip(names, settings, strict=False))), x)


@operator("FusedConv", domain=DOMAIN)
def fused_conv(node: Node, x: Any, w: Any, bias: Any = None, summand: Any = None) -> Any:
    found = conv(node, x, w, bias)
    found = found if summand is None else found + summand
    return _activated(node, found, node.attributes.get("activation_params", ()))


@operator("FusedGemm", domain=DOMAIN)
def fused_gemm(node: Node, a: Any, b: Any, c: Any = None) -> Any:
    given = [node.attributes.get(f"activation_{name}") for name in ("alpha", "beta", "gamma")]
    return _activated(node, gemm(node, a, b, c), [value for value in given if value is not None])


@operator("FusedMatMul", "TransposeMatMul", domain=DOMAIN)
def fused_matmul(node: Node, a: Any, b: Any) -> Any:
    left, right = (_transposed(node, x, name) for x, name in ((a, "A"), (b, "B")))
    alpha = node.attributes.get("alpha", 1.0)
    product = nnp.matmul(left, right)
    return product if alpha == 1 else product * np.asarray(alpha, a.dtype)


def _transposed(node: Node, x: Any, name: str) -> Any:
    """The first axis joins the last one where the batch axes are to be transposed; then the last two are exchanged."""
    x = nnp.asarray(x)
    if node.attributes.get(f"transBatch{name}", 0) and x.ndim > 2:
        x = nnp.moveaxis(x, 0, -2)
    return nnp.swapaxes(x, -1, -2) if node.attributes.get(f"trans{name}", 0) and x.ndim > 1 else x


# -- sums that are normalised ------------------------------------------------------------------------------------------


def _total(*parts: Any) -> Any:
    first, *others = (part for part in parts if part is not None)
    for part in others:
        first = first + part
    return first


@operator("SkipLayerNormalization", domain=DOMAIN)
def skip_layer_norm(node: Node, x: Any, skip: Any, scale: Any, shift: Any = None, bias: Any = None) -> Any:
    """The last result is the sum."""
    total, epsilon = _total(x, skip, bias), node.attributes.get("epsilon", 1e-12)
    return (*layer_normalised(total, scale, shift, (-1,), epsilon, np.float32), total)


@operator("SkipSimplifiedLayerNormalization", domain=DOMAIN)
def skip_rms_norm(node: Node, x: Any, skip: Any, scale: Any, bias: Any = None) -> Any:
    total, epsilon = _total(x, skip, bias), node.attributes.get("epsilon", 1e-12)
    found, inverse = rms_normalised(total, scale, (-1,), epsilon, np.float32)
    return found, None, inverse, total


@operator("EmbedLayerNormalization", domain=DOMAIN)
def embed_layer_norm(
    node: Node,
    words: Any,
    segments: Any,
    word_table: Any,
    place_table: Any,
    segment_table: Any,
    scale: Any,
    shift: Any,
    mask: Any = None,
    places: Any = None,
) -> Any:
    """The results are the normalised sum of rows of the tables, the lengths that the mask tells, and the sum."""
    places = np.arange(words.shape[1]) if places is None else places
    pairs = [(word_table, words), (place_table, places), (segment_table, segments)]
    total = _total(*(nnp.take(table, index, axis=0) for table, index in pairs if table is not None))
    found, _, _ = layer_normalised(total, scale, shift, (-1,), node.attributes.get("epsilon", 1e-12), np.float32)
    batch = (words.shape[0],)
    lengths = nnp.zeros(batch, "int32") if mask is None else nnp.astype(nnp.sum(nnp.asarray(mask), axis=1), "int32")
    return found, lengths, total
