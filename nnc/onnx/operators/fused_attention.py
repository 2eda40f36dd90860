"""Attention of onnxruntime's domain com.microsoft: with the projections, caches and rotations that its optimizer joins to it."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

import nnc.nn as nn
import nnc.numpy as nnp
from nnc.onnx.model import Node
from nnc.onnx.operators.attention import after_cache, with_scores
from nnc.onnx.operators.fused import DOMAIN
from nnc.onnx.operators.fused_quantized import matmul_integer_to_float
from nnc.onnx.operators.table import operator
from nnc.onnx.values import integers


def _split(x: Any, heads: int) -> Any:
    """(batch, places, heads · features) to (batch, places, heads, features)."""
    return nnp.reshape(x, (*x.shape[:2], heads, -1))


def _bias_of(node: Node, mask: Any, bias: Any, batch: int, keys: int) -> Any:
    """Returns the summand of the scores: `bias`, and a large negative number where the mask forbids a key.

    Args:
        mask: 0 for forbidden keys, (batch, keys) or (batch, queries, keys); or how many keys each example
            has; or these numbers, and behind them the first keys of the examples.
    """
    if mask is None:
        return bias
    if mask.ndim == 1:
        ends = nnp.reshape(mask[:batch], (-1, 1))
        allowed = np.arange(keys) < ends
        if mask.shape[0] == 2 * batch:
            allowed = allowed & (np.arange(keys) >= nnp.reshape(mask[batch:], (-1, 1)))
        elif mask.shape[0] != batch:
            raise NotImplementedError(f"{node.operator} with places of packed examples as its mask")
    else:
        allowed = mask != 0
    allowed = allowed[:, None, None] if allowed.ndim == 2 else allowed[:, None]
    forbidden = nnp.where(allowed, np.float32(0), np.float32(node.attributes.get("mask_filter_value", -10000.0)))
    return forbidden if bias is None else bias + forbidden


def _attended(node: Node, q: Any, k: Any, v: Any, bias: Any, past: int) -> Any:
    """Returns (batch, queries, heads · features) of operands whose heads are the third axis."""
    allowed = None
    if node.attributes.get("unidirectional", 0):
        allowed = np.arange(k.shape[1]) <= np.arange(q.shape[1])[:, None] + past
    found = nn.dot_product_attention(q, k, v, bias, allowed, scale=node.attributes.get("scale") or None)
    return nnp.reshape(found, (*found.shape[:2], -1))


@operator("Attention", domain=DOMAIN)
def attention(
    node: Node,
    x: Any,
    weights: Any,
    bias: Any = None,
    mask: Any = None,
    past: Any = None,
    added: Any = None,
    past_length: Any = None,
) -> Any:
    projected = nnp.matmul(x, weights)
    return _self_attention(node, projected if bias is None else projected + bias, mask, past, added, past_length)


@operator("QAttention", domain=DOMAIN)
def quantized_attention(
    node: Node,
    x: Any,
    weights: Any,
    bias: Any,
    x_scale: Any,
    scale: Any,
    mask: Any = None,
    x_zero: Any = None,
    zero: Any = None,
    past: Any = None,
) -> Any:
    projected = matmul_integer_to_float(node, x, weights, x_scale, scale, x_zero, zero, bias)
    return _self_attention(node, projected, mask, past, None, None)


def _self_attention(node: Node, projected: Any, mask: Any, past: Any, added: Any, past_length: Any) -> Any:
    """Splits the projections into queries, keys and values, and puts the cache in front of the last two."""
    if past_length is not None or node.attributes.get("do_rotary", 0):
        raise NotImplementedError(f"{node.operator} with rotations or a cache that is written in place")
    heads, width = node.attributes["num_heads"], projected.shape[-1]
    sizes = node.attributes.get("qkv_hidden_sizes") or [width // 3] * 3
    ends = np.cumsum(sizes)[:2].tolist()
    q, k, v = (_split(part, heads) for part in nnp.split(projected, ends, axis=-1))
    before = 0 if past is None else past.shape[3]
    if past is not None:
        k, v = after_cache(past[0], k), after_cache(past[1], v)
    total = _bias_of(node, mask, added, q.shape[0], k.shape[1])
    found = _attended(node, q, k, v, total, before)
    is_cached = len(node.outputs) > 1 and node.outputs[1]
    return (found, nnp.stack([nnp.swapaxes(k, 1, 2), nnp.swapaxes(v, 1, 2)])) if is_cached else found


@operator("MultiHeadAttention", domain=DOMAIN)
def multi_head_attention(
    node: Node,
    q: Any,
    k: Any = None,
    v: Any = None,
    bias: Any = None,
    mask: Any = None,
    added: Any = None,
    past_k: Any = None,
    past_v: Any = None,
    past_length: Any = None,
    beams: Any = None,
) -> Any:
    """Keys and values of four axes are those of another sequence, already split into heads."""
    if k is None or v is None or past_length is not None or beams is not None:
        raise NotImplementedError("MultiHeadAttention with packed operands, or a cache that is written in place")
    heads = node.attributes["num_heads"]
    if bias is not None:
        width = q.shape[-1]
        q = q + bias[:width]
        if k.ndim == 3:
            k, v = k + bias[width : 2 * width], v + bias[2 * width :]
    q = _split(q, heads)
    k, v = (_split(x, heads) if x.ndim == 3 else nnp.swapaxes(nnp.asarray(x), 1, 2) for x in (k, v))
    before = 0 if past_k is None else past_k.shape[2]
    k, v = after_cache(past_k, k), after_cache(past_v, v)
    total = _bias_of(node, mask, added, q.shape[0], k.shape[1])
    return _attended(node, q, k, v, total, before), nnp.swapaxes(k, 1, 2), nnp.swapaxes(v, 1, 2)


# -- rotations and groups of heads -------------------------------------------------------------------------------------


def rotated(x: Any, places: Any, cosines: Any, sines: Any, is_interleaved: bool) -> Any:
    """Rotates pairs of features of x (batch, places, heads, features) by the angles of rows of tables; the last features stay."""
    half = cosines.shape[-1]
    cos, sin = (nnp.take(table, places, axis=0)[:, :, None] for table in (cosines, sines))
    turned, rest = x[..., : 2 * half], x[..., 2 * half :]
    if is_interleaved:
        a, b = turned[..., ::2], turned[..., 1::2]
        found = nnp.reshape(nnp.stack([a * cos - b * sin, b * cos + a * sin], axis=-1), turned.shape)
    else:
        a, b = turned[..., :half], turned[..., half:]
        found = nnp.concatenate([a * cos - b * sin, b * cos + a * sin], axis=-1)
    return nnp.concatenate([found, rest], axis=-1) if rest.shape[-1] else found


@operator("RotaryEmbedding", domain=DOMAIN)
def rotary_embedding(node: Node, x: Any, places: Any, cosines: Any, sines: Any) -> Any:
    """One place is that of the first element, and the others follow."""
    heads = node.attributes.get("num_heads", 0)
    has_heads, x = len(x.shape) == 4, nnp.asarray(x)
    split = nnp.swapaxes(x, 1, 2) if has_heads else _split(x, heads or x.shape[-1] // (2 * cosines.shape[-1]))
    if places.ndim == 1:
        places = nnp.reshape(places, (1, 1)) + np.arange(split.shape[1])
    found = rotated(split, places, cosines, sines, bool(node.attributes.get("interleaved", 0)))
    return nnp.swapaxes(found, 1, 2) if has_heads else nnp.reshape(found, x.shape)


@operator("GroupQueryAttention", domain=DOMAIN)
def group_query_attention(
    node: Node,
    q: Any,
    k: Any,
    v: Any,
    past_k: Any,
    past_v: Any,
    last: Any,
    total: Any,
    cosines: Any = None,
    sines: Any = None,
    places: Any = None,
    added: Any = None,
    *others: Any,
) -> Any:
    """Causal attention over caches (batch, heads, places, features); `last` tells the last place of each example."""
    get = node.attributes.get
    if any(other is not None for other in others) or get("smooth_softmax", -1) == 1 or not get("causal", 1):
        raise NotImplementedError("GroupQueryAttention with sinks, normalised or quantised operands, or not causal")
    heads, groups = node.attributes["num_heads"], node.attributes["kv_num_heads"]
    if k is None:
        size = q.shape[-1] // (heads + 2 * groups)
        q, k, v = nnp.split(q, [heads * size, (heads + groups) * size], axis=-1)
    q, k, v = _split(q, heads), _split(k, groups), _split(v, groups)
    count, (whole,) = q.shape[1], integers(total, "the total length of GroupQueryAttention")
    ends = nnp.reshape(nnp.astype(last, "int64") + 1, (-1, 1))
    starts = nnp.zeros_like(ends) if count == whole else ends - count
    own = starts + np.arange(count)  # (batch, queries)
    if get("do_rotary", 0):
        at = own if places is None else places
        q, k = (rotated(x, at, cosines, sines, bool(get("rotary_interleaved", 0))) for x in (q, k))
    length = max(whole, 0 if past_k is None else past_k.shape[2])
    k, v = (_cache(old, new, own, length) for old, new in ((past_k, k), (past_v, v)))
    key, mine = np.arange(k.shape[1]), nnp.reshape(own, (-1, 1, count, 1))
    window = get("local_window_size", -1)
    allowed = (key <= mine) if window < 0 else (key <= mine) & (key > mine - window)
    bias = None if added is None else nnp.pad(added, [(0, 0)] * 3 + [(0, k.shape[1] - added.shape[-1])])
    scale = get("scale") or 1 / math.sqrt(q.shape[-1])
    if get("softcap", 0.0):
        found, _ = with_scores(node, q, k, v, bias, allowed, scale)
    else:
        found = nn.dot_product_attention(q, k, v, bias, allowed, scale=scale)
    return nnp.reshape(found, (*found.shape[:2], -1)), nnp.swapaxes(k, 1, 2), nnp.swapaxes(v, 1, 2)


def _cache(old: Any, new: Any, own: Any, length: int) -> Any:
    """Writes new rows to their places of a cache; returns (batch, places, heads, features)."""
    batch, _, heads, size = new.shape
    whole = nnp.zeros((batch, 0, heads, size), new.dtype) if old is None else nnp.swapaxes(nnp.asarray(old), 1, 2)
    whole = nnp.pad(whole, [(0, 0), (0, length - whole.shape[1]), (0, 0), (0, 0)])
    return whole.at[np.arange(batch)[:, None], own].set(new, mode="drop")
