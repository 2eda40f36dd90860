"""Attention with its projections, and the cache of keys and values for decoding step by step."""

from __future__ import annotations

from typing import Any, NamedTuple, overload

import nnc.numpy as nnp
from nnc import random
from nnc.array.array import Array
from nnc.array.indexing import dynamic_update_slice
from nnc.base import dtypes
from nnc.calls.spelling import spelled
from nnc.errors import ArgumentError, ShapeError, user_error
from nnc.graph import spec_of
from nnc.nn.attention import dot_product_attention
from nnc.nn.layers import Linear
from nnc.nn.module import Module
from nnc.typing import ArrayLike, DTypeLike

__all__ = ["KVCache", "MultiHeadAttention"]


class KVCache(NamedTuple):
    """Keys and values of the steps that were seen, (..., size, heads, features), and how many they are.

    Attributes:
        keys: (..., size, heads, features).
        values: (..., size, heads, features).
        length: how many steps are in it, a 0-d integer.

    Example:
        >>> cache = nnc.nn.MultiHeadAttention(8, 2, key=nnc.random.key(0)).make_cache((3,), 16)
        >>> cache.keys.shape
        (3, 16, 2, 4)
    """

    keys: Array
    values: Array
    length: Array


class MultiHeadAttention(Module):
    """Attention (see nnc.nn.dot_product_attention) between linear projections (Vaswani et al., 2017).

    Args:
        features: size of the last axis of queries and output.
        num_heads: divides features.
        key: the key for the weights.
        kv_heads: how many heads keys and values have, which groups of the queries' heads share (Ainslie et al., 2023);
            num_heads by default.
        key_features: size of the last axis of keys; `features` by default.
        value_features: size of the last axis of values; `features` by default.
        use_bias: whether the projections have biases.
        dropout_rate: share of the attention weights that is dropped.
        inference: whether nothing is dropped.
        dtype: dtype of the weights.

    Example:
        >>> layer = nnc.nn.MultiHeadAttention(8, 2, key=nnc.random.key(0))
        >>> layer(np.ones((3, 5, 8), np.float32), is_causal=True).shape
        (3, 5, 8)
        >>> out, cache = layer(np.ones((3, 1, 8), np.float32), cache=layer.make_cache((3,), 16))
        >>> out.shape, int(cache.length)
        ((3, 1, 8), 1)
    """

    q_proj: Linear
    k_proj: Linear
    v_proj: Linear
    out_proj: Linear
    num_heads: int
    kv_heads: int
    dropout_rate: float
    inference: bool

    @spelled
    def __init__(
        self,
        features: int,
        num_heads: int,
        *,
        key: ArrayLike,
        kv_heads: int | None = None,
        key_features: int | None = None,
        value_features: int | None = None,
        use_bias: bool = True,
        dropout_rate: float = 0.0,
        inference: bool = False,
        dtype: DTypeLike = dtypes.float32,
    ) -> None:
        self.num_heads, self.kv_heads = num_heads, num_heads if kv_heads is None else kv_heads
        if num_heads < 1 or features % num_heads or self.kv_heads < 1 or num_heads % self.kv_heads:
            problem = f"features={features}, num_heads={num_heads}, kv_heads={self.kv_heads} do not go together."
            fix = "num_heads must divide features, and kv_heads num_heads."
            raise user_error(ArgumentError, "MultiHeadAttention", problem, fix=fix)
        of_kv = features // num_heads * self.kv_heads
        sizes = [(features, features), (key_features or features, of_kv), (value_features or features, of_kv)]
        self.q_proj, self.k_proj, self.v_proj, self.out_proj = (
            Linear(m, n, key=k, use_bias=use_bias, dtype=dtype)
            for (m, n), k in zip((*sizes, (features, features)), random.split(key, 4), strict=True)
        )
        self.dropout_rate, self.inference = dropout_rate, inference

    @overload
    def __call__(
        self, query: ArrayLike, keys: ArrayLike | None = None, values: ArrayLike | None = None, *,
        mask: ArrayLike | None = None, segment_ids: Any = None, is_causal: bool = False, cache: None = None,
        key: ArrayLike | None = None,
    ) -> Array: ...  # fmt: skip
    @overload
    def __call__(
        self, query: ArrayLike, keys: ArrayLike | None = None, values: ArrayLike | None = None, *,
        mask: ArrayLike | None = None, segment_ids: Any = None, is_causal: bool = False, cache: KVCache,
        key: ArrayLike | None = None,
    ) -> tuple[Array, KVCache]: ...  # fmt: skip
    def __call__(
        self,
        query: ArrayLike,
        keys: ArrayLike | None = None,
        values: ArrayLike | None = None,
        *,
        mask: ArrayLike | None = None,
        segment_ids: Any = None,
        is_causal: bool = False,
        cache: KVCache | None = None,
        key: ArrayLike | None = None,
    ) -> Any:
        """Attends from each query.

        Args:
            query: (..., T, features).
            keys: (..., S, their features); the queries by default.
            values: (..., S, their features); the keys by default.
            mask: bools that broadcast to (..., heads, T, S), False where nothing is attended to.
            segment_ids: the segment of each token, where sequences are packed (see nnc.nn.dot_product_attention).
            is_causal: s > t is masked.
            cache: keys and values of earlier calls. The new ones go behind them, and all are attended to but the ones later
                than the query.
            key: the key for dropout of the weights.

        Returns:
            (..., T, features); with a cache (that, the new cache).

        Raises:
            ShapeError: operands do not fit together.
            ArgumentError: a mask or segments are given together with a cache.
        """
        keys = query if keys is None else keys
        values = keys if values is None else values
        if mask is not None and cache is None:
            query, keys, values = _without_padding(query, keys, values, nnp.asarray(mask))
        heads, kv_heads = self._heads()
        q = self._split(self.q_proj(query), heads)
        k, v = (self._split(x, kv_heads) for x in (self.k_proj(keys), self.v_proj(values)))
        if cache is not None:
            if mask is not None or segment_ids is not None:
                name = "mask" if mask is not None else "segment_ids"
                fix = f"drop the {name}: with a cache, each query sees the steps up to its own."
                raise user_error(ArgumentError, "MultiHeadAttention", f"{name} and cache are both given.", fix=fix)
            cache, mask = _extend(cache, k, v)
            k, v, is_causal = cache.keys, cache.values, False
        drop = not self.inference and self.dropout_rate > 0
        out = dot_product_attention(
            q, k, v, mask=mask, segment_ids=segment_ids, is_causal=is_causal,
            dropout_rate=self.dropout_rate if drop else 0.0, dropout_key=key if drop else None,
        )  # fmt: skip
        out = self.out_proj(nnp.reshape(out, (*out.shape[:-2], -1)))
        return out if cache is None else (out, cache)

    def make_cache(self, batch_shape: tuple[int, ...], size: int, dtype: DTypeLike = dtypes.float32) -> KVCache:
        """Returns an empty cache for `size` steps.

        Args:
            batch_shape: shape before the steps.
            size: most steps that it holds.
            dtype: dtype of keys and values.
        """
        shape = (*batch_shape, size, self._heads()[1], self.k_proj.out_features // self.kv_heads)
        return KVCache(nnp.zeros(shape, dtype), nnp.zeros(shape, dtype), nnp.asarray(0, dtypes.int32))

    def _heads(self) -> tuple[int, int]:
        """Returns the numbers of heads of queries, and of keys and values."""
        return self.num_heads, self.kv_heads

    def _split(self, x: Array, heads: int) -> Array:
        return nnp.reshape(x, (*x.shape[:-1], heads, x.shape[-1] // heads))


def _without_padding(query: Any, keys: Any, values: Any, mask: Array) -> tuple[Array, Array, Array]:
    """Replaces queries that attend to nothing, and keys and values that none attends to, by zeros.

    The gradients of the projections would be 0 times NaN there, if it is padding of NaN. In self-attention such a key is padding
    as a query, too, which may attend to others: there, zeros replace numbers that are not finite.
    """
    mask = nnp.reshape(mask, (1,) * (3 - mask.ndim) + mask.shape)
    asked, known = (nnp.any(mask, axis=(-3, axis))[..., None] for axis in (-1, -2))
    is_own = query is keys
    query, keys, values = map(nnp.asarray, (query, keys, values))
    if is_own:
        asked = asked & (known | nnp.isfinite(query))
    return nnp.where(asked, query, 0), nnp.where(known, keys, 0), nnp.where(known, values, 0)


def _extend(cache: KVCache, k: Array, v: Array) -> tuple[KVCache, Array]:
    """Returns the cache with more keys and values, and the mask (T, size) of the keys that the new steps see."""
    size, steps = spec_of(cache.keys).shape[-3], k.shape[-3]
    if spec_of(cache.keys).shape[:-3] != k.shape[:-3] or steps > size:
        problem = f"{steps} steps do not fit the cache."
        operands = {"keys": spec_of(k), "cache.keys": spec_of(cache.keys)}
        fix = "make a cache with the batch axes of the queries and room for all steps: layer.make_cache(batch_shape, size)."
        raise user_error(ShapeError, "MultiHeadAttention", problem, operands=operands, fix=fix)
    start: Any = [*(0,) * (k.ndim - 3), cache.length, 0, 0]
    keys, values = (
        dynamic_update_slice(old, new.astype(spec_of(old).dtype), start)
        for old, new in ((cache.keys, k), (cache.values, v))
    )
    seen = nnp.arange(size) <= cache.length + nnp.arange(steps)[:, None]
    return KVCache(keys, values, cache.length + steps), seen
