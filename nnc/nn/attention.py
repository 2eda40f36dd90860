"""Attention, in memory that grows with the number of queries plus the number of keys, not with their product.

The command `attention` does it, forwards and backwards. Where weights are dropped, or queries are too few for its kernel, it is
made of ordinary commands: keys are taken in chunks. A first pass over them finds each query's greatest score, which is a constant
for the derivative; a second one adds up exp(score - greatest) and its product with the values. Sums keep nothing for the reverse
pass, and the weights of a chunk are recomputed there, so memory is linear in every order of derivative and in either mode (the idea
of Rabe & Staats, "Self-attention does not need O(n²) memory", 2021). The price is one more product of queries and keys.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import nnc.numpy as nnp
from nnc import random
from nnc.array.array import Array, as_value
from nnc.array.promote import astype, dtype_of, promote
from nnc.base import dtypes
from nnc.calls.spelling import spelled
from nnc.commands import elementwise as ew
from nnc.commands.attention import attention
from nnc.errors import ArgumentError, DTypeError, ShapeError, user_error
from nnc.graph import spec_of
from nnc.nn.ranges import read_lengths
from nnc.nn.segments import Segments, read_segments
from nnc.nn.stochastic import dropout
from nnc.numpy.operands import to_value
from nnc.trace.core.subgraphs import checkpoint
from nnc.trace.loops.control_flow import scan
from nnc.typing import ArrayLike

__all__ = ["dot_product_attention"]

FEW = 16  # queries that share keys, below which the command's vectors are not full
WIDE = 256  # features up to which its blocks stay in the caches
CHUNK = 1024  # keys of a block where the caller gives no number; up to so many are taken at once
WHERE = "dot_product_attention"


@spelled
def dot_product_attention(
    query: Any,
    key: ArrayLike,
    value: Any,
    bias: Any = None,
    mask: Any = None,
    *,
    scale: float | None = None,
    is_causal: bool = False,
    query_seq_lengths: Any = None,
    key_value_seq_lengths: Any = None,
    local_window_size: int | tuple[int, int] | None = None,
    segment_ids: Any = None,
    cumulative_lengths: Any = None,
    dropout_rate: float = 0.0,
    dropout_key: Any = None,
    chunk_size: int | None = None,
) -> Array:
    """Returns the mean of the values, weighted by how well their keys match each query (Vaswani et al., 2017).

    out[t] = sum over s of softmax over s of (scale · query[t] · key[s] + bias[t, s]) · value[s], for each head

    Sequences of unequal lengths need no padding: packed one behind the other, as segments of one sequence, they are told apart by
    `segment_ids` or `cumulative_lengths`. A query then attends to the keys of its segment, and `is_causal` and
    `local_window_size` count from where the segment begins. Memory is proportional to the number of tokens and, on the CPU, time
    to the sum of the squared lengths.

    Args:
        query: (..., T, heads, features).
        key: (..., S, heads, features); if there are fewer heads than in query, whose number must be a multiple, groups of query
            heads share one.
        value: (..., S, heads, features), as many heads as `key`.
        bias: added to the scores; broadcasts to (..., heads, T, S).
        mask: bools that broadcast to (..., heads, T, S); where it is False nothing is attended to, not even NaN.
        scale: 1 / sqrt(features) by default.
        is_causal: s > t is masked.
        query_seq_lengths: (...), how many queries of each example are no padding.
        key_value_seq_lengths: (...), how many keys of each example are no padding.
        local_window_size: how far s may be before t and after it, as a number or a pair.
        segment_ids: (..., T), integers that do not fall: the segment of each token, and -1 of padding behind them; a pair of such
            arrays, of the queries and of the keys, where these are not the same tokens. Numbers that fall make everything NaN
            where they are not known while a function is traced.
        cumulative_lengths: (..., segments + 1) instead of these: 0, then how many tokens there are up to the end of each segment;
            or a pair of such arrays. Tokens behind the last segment are padding.
        dropout_rate: the share of the weights to drop, drawn with dropout_key.
        dropout_key: needed where weights are dropped.
        chunk_size: how many keys are taken together where weights are dropped, 1024 by default; memory is proportional
            to T · chunk_size.

    Returns:
        (..., T, heads, features); 0 where everything is masked.

    Raises:
        ShapeError: the operands do not fit together.
        DTypeError: the mask holds no bools.
        ArgumentError: chunk_size is not positive, there is a dropout_rate but no key, or segments are known not to stand one
            behind the other.

    Example:
        >>> q = np.ones((2, 5, 4, 8), np.float32)
        >>> dot_product_attention(q, q, q, is_causal=True).shape
        (2, 5, 4, 8)
    """
    q, k, v, *rest = promote(query, key, value, *([] if bias is None else [bias]), where=WHERE, to=dtypes.to_float)
    shared = _check_operands(q, k, v)
    dtype, (count, keys) = dtype_of(q), (spec_of(q).shape[-3], spec_of(k).shape[-3])
    size = _chunk_size(chunk_size, keys)
    wide = dtypes.accumulator(dtype)
    factor = 1 / math.sqrt(max(1, spec_of(q).shape[-1])) if scale is None else scale
    full = (*spec_of(q).shape[:-3], spec_of(q).shape[-2], count, keys)
    bias = [_read_scores("bias", rest[0], full)] if rest else []
    masks = [] if mask is None else [_read_mask(mask, full)]
    window = _read_window(local_window_size)
    lengths = [
        None if x is None else _read_lengths(name, x, full[:-3], longest)
        for name, x, longest in (
            ("query_seq_lengths", query_seq_lengths, count),
            ("key_value_seq_lengths", key_value_seq_lengths, keys),
        )
    ]
    limits = [
        place < n
        for n, place in zip(lengths, (nnp.arange(count)[:, None], nnp.arange(keys)), strict=True)
        if n is not None
    ]
    segments = read_segments(WHERE, segment_ids, cumulative_lengths, full[:-3], (count, keys), is_causal, window)
    q, k, v = map(as_value, (q, k, v))
    if masks or limits or is_causal or window is not None or segments:
        k, v = _spoiled_by_key(k, v, segments)
    if segments is not None:
        is_causal, window = False, None  # the ranges have it
    if not dropout_rate and count * shared >= FEW and max(spec_of(q).shape[-1], spec_of(v).shape[-1]) <= WIDE:
        before, after = (None, None) if window is None else window
        if is_causal:
            after = 0 if after is None else min(after, 0)
        if not isinstance(factor, (int, float)):
            q, factor = astype(astype(q, wide) * factor, dtype), 1.0
        operands = q, k, v, *bias, *masks, *limits, *([] if segments is None else [segments.ranges])
        return attention(*operands, scale=float(factor), reach=(before, after), biased=bool(bias))[0]
    rows = {name: x for name, found in (("bias", bias), ("mask", masks)) for x in found}
    rows = {name: astype(x, wide) if name == "bias" else x for name, x in rows.items()}
    q, k, v = (nnp.swapaxes(astype(x, wide), -3, -2) for x in (q, k, v))  # (..., heads, T, features)
    # the queries' heads that share a key's stand with the queries: no key is repeated
    grouped = nnp.reshape(q * factor, (*k.shape[:-2], shared * count, q.shape[-1]))
    attend = _Attend(full[:-1], keys, is_causal, lengths[0], lengths[1], window, segments, dropout_rate, dropout_key)
    total, weight = attend.all_chunks(grouped, k, v, rows, size)
    out = nnp.reshape(total, (*full[:-1], v.shape[-1])) / nnp.where(weight == 0, 1, weight)
    return nnp.swapaxes(out, -3, -2).astype(dtype)


def _spoiled_by_key(k: Array, v: Array, segments: Segments | None) -> tuple[Array, Array]:
    """Returns keys that are NaN where they or their values are not finite, or segments not in order, and finite values: scores that
    a mask forbids are cut off, but a weight of 0 times NaN is NaN.
    """
    finite = nnp.isfinite(v)
    known = nnp.all(finite, axis=-1, keepdims=True)
    return k + _spoils(k, known if segments is None else known & segments.in_order), nnp.where(finite, v, 0)


def _spoils(x: Array, known: Any = True) -> Array:
    """Returns NaN for each row of features that is not finite, or not known, and 0 for others; (…, 1)."""
    return nnp.where(nnp.all(nnp.isfinite(x), axis=-1, keepdims=True) & known, 0, math.nan).astype(x.dtype)


def _check_operands(q: Array, k: Array, v: Array) -> int:
    """Checks the operands; returns the number of the queries' heads that share one of the keys'."""
    operands = {"query": spec_of(q), "key": spec_of(k), "value": spec_of(v)}
    of_q, of_k, of_v = (spec.shape for spec in operands.values())
    fits = len(of_q) == len(of_k) >= 3 and of_k[:-1] == of_v[:-1] and of_q[-1] == of_k[-1] and of_q[:-3] == of_k[:-3]
    if not fits or of_q[-2] % max(1, of_k[-2]):
        fix = "pass query (..., T, heads, features), key and value (..., S, heads or a divisor of it, features)."
        raise user_error(ShapeError, WHERE, "query, key and value do not fit together.", operands=operands, fix=fix)
    return int(of_q[-2] // max(1, of_k[-2]))


def _chunk_size(chunk_size: int | None, keys: int) -> int:
    if chunk_size is not None and chunk_size < 1:
        raise user_error(ArgumentError, WHERE, f"chunk_size={chunk_size} is not positive.", fix="pass 1024, or None.")
    return max(1, min(keys, CHUNK if chunk_size is None else chunk_size))


def _read_scores(name: str, x: Any, full: tuple[int, ...]) -> Array:
    """Returns a bias or a mask with as many axes as the scores (..., heads, T, S), each of them of that size or 1."""
    x = to_value(x, WHERE, name)
    shape = (1,) * (len(full) - x.ndim) + x.shape
    if len(shape) != len(full) or any(n not in (1, size) for n, size in zip(shape, full, strict=True)):
        problem = f"{name} has shape {x.shape}, which does not broadcast to the scores' shape {full}."
        fix = f"pass a {name} that broadcasts to (..., heads, T, S)."
        raise user_error(ShapeError, WHERE, problem, operands={name: spec_of(x)}, fix=fix)
    return nnp.reshape(x, shape)


def _read_mask(mask: Any, full: tuple[int, ...]) -> Array:
    mask = nnp.asarray(mask)
    if not dtypes.is_bool(mask.dtype):
        problem = f"mask holds {mask.dtype.name}, not bools."
        fix = "pass True where a query may attend to a key; numbers to add to the scores are a bias."
        raise user_error(DTypeError, WHERE, problem, operands={"mask": spec_of(mask)}, fix=fix)
    return _read_scores("mask", mask, full)


def _read_window(size: Any) -> tuple[int, int] | None:
    """Returns the numbers of keys before a query and after it that take part."""
    pair = size if isinstance(size, (tuple, list)) else (size, size)
    if size is not None and (len(pair) != 2 or not all(hasattr(n, "__index__") and n >= 0 for n in pair)):
        problem = f"local_window_size={size!r} is no number of keys, nor a pair of such."
        fix = "give how many keys before a query and after it take part, 0 or more; None: all."
        raise user_error(ArgumentError, WHERE, problem, fix=fix)
    return None if size is None else (int(pair[0]), int(pair[1]))


def _read_lengths(name: str, x: Any, lead: tuple[int, ...], longest: int) -> Array:
    """Lengths with as many axes as the scores."""
    return nnp.reshape(read_lengths(WHERE, name, x, lead, longest), (*lead, 1, 1, 1))


@dataclass(frozen=True, slots=True)
class _Attend:
    """The settings of a call; `rows` is the shape (..., heads, T) of each query's sums."""

    rows: tuple[int, ...]
    keys: int
    is_causal: bool
    query_lengths: Array | None
    key_lengths: Array | None
    window: tuple[int, int] | None
    segments: Segments | None
    dropout_rate: float
    dropout_key: Any

    def all_chunks(self, q: Array, k: Array, v: Array, extra: dict[str, Array], size: int) -> tuple[Array, Array]:
        """Returns the sums over all keys of exp(score - greatest) · value, and of exp(score - greatest)."""
        count = -(-self.keys // size)
        whole = {"k": k, "v": v, "place": nnp.arange(count * size), **extra}
        if count <= 1:
            chunk: dict[str, Any] = {**whole, "place": whole["place"][: self.keys], "number": 0}
            return self.part(q, chunk, self.greatest(ew.stop_gradient(q), ew.stop_gradient(k), chunk))
        fixed = {name: x for name, x in extra.items() if x.shape[-1] == 1}
        cut = {name: _chunks(x, -1, count, size) for name, x in whole.items() if name not in ("k", "v", *fixed)}
        keys, values = (_chunks(x, -2, count, size) for x in (k, v))
        cut["number"] = nnp.arange(count)
        still = ew.stop_gradient(q)
        start = nnp.full((*self.rows, 1), -math.inf, q.dtype)
        top, _ = scan(
            lambda best, x: (nnp.maximum(best, self.greatest(still, x[0], {**x[1], **fixed})), None),
            start, (ew.stop_gradient(keys), cut),
        )  # fmt: skip

        def add(sums: tuple[Array, Array], x: Any) -> tuple[tuple[Array, Array], None]:
            found = checkpoint(lambda q, k, v: self.part(q, {"k": k, "v": v, **x[2], **fixed}, top))(q, x[0], x[1])
            return (sums[0] + found[0], sums[1] + found[1]), None

        zeros = nnp.zeros((*q.shape[:-1], v.shape[-1]), q.dtype), nnp.zeros((*self.rows, 1), q.dtype)
        (total, weight), _ = scan(add, zeros, (keys, values, cut))
        return total, weight

    def scores(self, q: Array, chunk: dict[str, Array]) -> Array:
        """(..., heads, T, keys of the chunk); -inf where nothing is attended to."""
        k = chunk["k"]
        clean = [nnp.where(nnp.isfinite(x), x, 0) for x in (q, k)]  # a cotangent of 0 times NaN is NaN
        scores = clean[0] @ nnp.swapaxes(clean[1], -1, -2) + _spoils(q) + nnp.swapaxes(_spoils(k), -1, -2)
        scores = nnp.reshape(scores, (*self.rows, k.shape[-2]))
        if "bias" in chunk:
            scores = scores + chunk["bias"]
        for allowed in self.conditions(chunk):
            scores = nnp.where(allowed, scores, -math.inf)
        return scores

    def conditions(self, chunk: dict[str, Array]) -> list[Array]:
        """Returns the conditions that must hold for a query to attend to a key of the chunk."""
        key, query = chunk["place"], nnp.arange(self.rows[-1])[:, None]
        found = [chunk["mask"]] if "mask" in chunk else []
        if self.is_causal:
            found.append(key <= query)
        if self.window is not None:
            found.append((query - key <= self.window[0]) & (key - query <= self.window[1]))
        if self.query_lengths is not None:
            found.append(query < self.query_lengths)
        if self.key_lengths is not None:
            found.append(key < self.key_lengths)
        if self.segments is not None:
            begin, end = (self.segments.ranges[..., i : i + 1] for i in (0, 1))
            found.append((begin <= key) & (key < end))
        if self.keys % max(1, chunk["k"].shape[-2]):
            found.append(key < self.keys)  # not the padding of the last chunk
        return found

    def greatest(self, q: Array, k: Array, chunk: dict[str, Array]) -> Array:
        """Each query's greatest score in the chunk, (..., heads, T, 1)."""
        still = {name: ew.stop_gradient(x) if name == "bias" else x for name, x in chunk.items()}
        return nnp.max(self.scores(q, {**still, "k": k}), axis=-1, keepdims=True, initial=-math.inf)

    def part(self, q: Array, chunk: dict[str, Array], top: Array) -> tuple[Array, Array]:
        """Returns the terms of one chunk's keys in the two sums."""
        scores = self.scores(q, chunk)
        weights = nnp.exp(scores - nnp.where(top == -math.inf, 0, top))
        weights = nnp.where(scores == -math.inf, 0, weights)  # also where the greatest score is NaN
        total = nnp.sum(weights, axis=-1, keepdims=True)
        if self.dropout_rate:
            draw = None if self.dropout_key is None else random.fold_in(self.dropout_key, chunk["number"])
            weights = dropout(draw, weights, self.dropout_rate)
        return nnp.reshape(weights, (*q.shape[:-1], weights.shape[-1])) @ chunk["v"], total


def _chunks(x: Array, axis: int, count: int, size: int) -> Array:
    """x with `axis` filled up with zeros and cut into `count` chunks, which are rows of a new first axis."""
    at = axis + x.ndim
    filled = nnp.pad(x, {at: (0, count * size - x.shape[at])}) if x.shape[at] < count * size else x
    return nnp.moveaxis(nnp.reshape(filled, (*x.shape[:at], count, size, *x.shape[at + 1 :])), at, 0)
