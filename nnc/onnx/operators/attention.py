"""Attention with caches, groups of heads, masks and windows, by `nnc.nn.dot_product_attention`, whose memory is linear."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

import nnc.nn as nn
import nnc.numpy as nnp
from nnc.onnx.model import Node, dtype_of
from nnc.onnx.operators.table import operator


@operator("Attention", since=23)
def attention(
    node: Node, q: Any, k: Any, v: Any, mask: Any = None, past_k: Any = None, past_v: Any = None, lengths: Any = None
) -> Any:
    get, has_heads = node.attributes.get, len(q.shape) == 4
    if has_heads:
        q, k, v = (nnp.swapaxes(nnp.asarray(x), 1, 2) for x in (q, k, v))
    else:
        heads = (node.attributes["q_num_heads"], *[node.attributes["kv_num_heads"]] * 2)
        q, k, v = (nnp.reshape(x, (*x.shape[:2], count, -1)) for x, count in zip((q, k, v), heads, strict=True))
    past = 0 if past_k is None else past_k.shape[2]
    k, v = after_cache(past_k, k), after_cache(past_v, v)
    count, keys = q.shape[1], k.shape[1]
    bias, allowed = _masks(mask, keys)
    left, right = get("left_window_size", -1), get("right_window_size", -1)
    if get("is_causal", 0):
        right = 0
    scale, softcap, wide = get("scale") or 1 / math.sqrt(q.shape[-1]), get("softcap", 0.0), get("softmax_precision", 1)
    is_usual = not softcap and dtype_of(wide) != np.float64 and not any(node.outputs[3:])
    before, after = keys if left < 0 else left - past, keys if right < 0 else right + past
    has_window, is_reach = left >= 0 or right >= 0, lengths is None and min(before, after) >= 0
    if has_window and not (is_usual and is_reach):
        first = past if lengths is None else nnp.reshape(nnp.astype(lengths, "int64") - count, (-1, 1, 1, 1))
        ahead = np.arange(keys) - (first + np.arange(count)[:, None])  # of a key, by how many places before its query's
        behind = np.asarray(True) if left < 0 else -ahead <= left
        allowed = _both(allowed, behind if right < 0 else behind & (ahead <= right))
    if is_usual:
        window, scores = (before, after) if has_window and is_reach else None, None
        found = nn.dot_product_attention(
            q, k, v, bias, allowed, scale=scale, local_window_size=window, key_value_seq_lengths=lengths
        )
    else:
        if lengths is not None:
            allowed = _both(allowed, np.arange(keys) < nnp.reshape(lengths, (-1, 1, 1, 1)))
        found, scores = with_scores(node, q, k, v, bias, allowed, scale)
    found = nnp.swapaxes(found, 1, 2) if has_heads else nnp.reshape(found, (*found.shape[:2], -1))
    return found, nnp.swapaxes(k, 1, 2), nnp.swapaxes(v, 1, 2), scores


def after_cache(past: Any, new: Any) -> Any:
    """Puts keys or values (batch, places, heads, features) behind those of a cache (batch, heads, places, features)."""
    return new if past is None else nnp.concatenate([nnp.swapaxes(nnp.asarray(past), 1, 2), new], axis=1)


def _masks(mask: Any, keys: int) -> tuple[Any, Any]:
    """Returns numbers to add to the scores, and where there are scores; a mask for fewer keys forbids the rest."""
    if mask is None:
        return None, None
    mask = nnp.asarray(mask)
    is_bool, missing = np.dtype(mask.dtype) == np.bool_, keys - mask.shape[-1]
    if missing > 0:
        fill = np.asarray(False if is_bool else -np.inf, mask.dtype)
        mask = nnp.pad(mask, [(0, 0)] * (mask.ndim - 1) + [(0, missing)], constant_values=fill)
    if is_bool:
        return None, mask
    allowed = mask != np.asarray(-np.inf, mask.dtype)
    return nnp.where(allowed, mask, nnp.zeros_like(mask)), allowed


def _both(allowed: Any, other: Any) -> Any:
    return other if allowed is None else allowed & other


def with_scores(node: Node, q: Any, k: Any, v: Any, bias: Any, allowed: Any, scale: float) -> tuple[Any, Any]:
    """Returns the means of the values, and the scores at the stage that the node asks for."""
    dtype, (batch, count, heads, size), groups = q.dtype, q.shape, k.shape[2]
    wide = np.result_type(dtype_of(node.attributes.get("softmax_precision", 1)), np.float32)
    grouped = nnp.reshape(nnp.astype(q, wide), (batch, count, groups, heads // groups, size))
    products = nnp.einsum("btghd,bsgd->bghts", grouped, nnp.astype(k, wide)) * np.asarray(scale, wide)
    raw = scores = nnp.reshape(products, (batch, heads, count, k.shape[1]))
    softcap = np.asarray(node.attributes.get("softcap", 0.0), wide)
    capped = scores = nnp.tanh(scores / softcap) * softcap if softcap else scores
    scores = scores if bias is None else scores + nnp.astype(bias, wide)
    scores = scores if allowed is None else nnp.where(allowed, scores, np.asarray(-np.inf, wide))
    weights = nnp.astype(nn.softmax(scores, axis=-1), dtype)
    parts = nnp.reshape(nnp.astype(weights, wide), (batch, groups, heads // groups, count, -1))
    found = nnp.einsum("bghts,bsgd->btghd", parts, nnp.astype(v, wide))
    stage = (raw, capped, scores, weights)[node.attributes.get("qk_matmul_output_mode", 0)]
    return nnp.astype(nnp.reshape(found, (batch, count, heads, -1)), dtype), nnp.astype(stage, dtype)
