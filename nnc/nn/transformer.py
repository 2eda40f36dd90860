"""Attention with its projections, the layers of transformers, and the cache of keys and values for decoding step by step."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import nnc.numpy as nnp
from nnc import dtypes, random
from nnc.commands.indexing import dynamic_update_slice
from nnc.commands.rules import Value
from nnc.errors import ArgumentError, ShapeError, user_error
from nnc.graph import spec_of
from nnc.nn import activations
from nnc.nn.attention import dot_product_attention
from nnc.nn.layers import Dropout, Linear
from nnc.nn.module import Module, field
from nnc.nn.norms import LayerNorm
from nnc.nn.running import Run
from nnc.spelling import spelled

Activation = Callable[..., Any]


class KVCache(NamedTuple):
    """Keys and values of the steps that were seen, (..., size, heads, features), and how many they are."""

    keys: Any
    values: Any
    length: Any


class MultiHeadAttention(Module):
    """Attention (see nnc.nn.dot_product_attention) between linear projections (Vaswani et al., 2017).

    Args:     features: size of the last axis of queries and output. num_heads: divides features. kv_heads: how many heads keys
              and values have, which groups of the queries' heads share (Ainslie et al., 2023); num_heads by default.
              key_features, value_features: sizes of the last axes of keys and values; features by default.
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
        key: Any,
        kv_heads: int | None = None,
        key_features: int | None = None,
        value_features: int | None = None,
        use_bias: bool = True,
        dropout_rate: float = 0.0,
        inference: bool = False,
        dtype: Any = dtypes.float32,
    ) -> None:
        self.num_heads, self.kv_heads = num_heads, num_heads if kv_heads is None else kv_heads
        if num_heads < 1 or features % num_heads or self.kv_heads < 1 or num_heads % self.kv_heads:
            raise user_error(
                ArgumentError, "MultiHeadAttention",
                f"features={features}, num_heads={num_heads}, kv_heads={self.kv_heads} do not go together.",
                fix="num_heads must divide features, and kv_heads num_heads.",
            )  # fmt: skip
        of_kv = features // num_heads * self.kv_heads
        sizes = [(features, features), (key_features or features, of_kv), (value_features or features, of_kv)]
        self.q_proj, self.k_proj, self.v_proj, self.out_proj = (
            Linear(m, n, key=k, use_bias=use_bias, dtype=dtype)
            for (m, n), k in zip((*sizes, (features, features)), random.split(key, 4), strict=True)
        )
        self.dropout_rate, self.inference = dropout_rate, inference

    def __call__(
        self,
        query: Any,
        keys: Any = None,
        values: Any = None,
        *,
        mask: Any = None,
        is_causal: bool = False,
        cache: KVCache | None = None,
        key: Any = None,
    ) -> Any:
        """Attends from each query.

        Args:     query: (..., T, features). keys, values: (..., S, their features); the queries and the keys by default.
                  mask: bools that broadcast to (..., heads, T, S), False where nothing is attended to. is_causal: s > t is
                  masked. cache: the keys and values go behind those of earlier calls, and all are attended to, but those
                  that come later than the query. key: for dropout of the weights.
        Returns:  (..., T, features); with a cache (that, the new cache).
        Raises:   ShapeError: operands do not fit together. ArgumentError: the mask is given together with a cache.
        """
        keys = query if keys is None else keys
        values = keys if values is None else values
        q = self._split(self.q_proj(query), self.num_heads)
        k, v = (self._split(x, self.kv_heads) for x in (self.k_proj(keys), self.v_proj(values)))
        if cache is not None:
            if mask is not None:
                raise user_error(
                    ArgumentError, "MultiHeadAttention", "mask and cache are both given.",
                    fix="drop the mask: with a cache, each query sees the steps up to its own.",
                )  # fmt: skip
            cache, mask = _extend(cache, k, v)
            k, v, is_causal = cache.keys, cache.values, False
        drop = not self.inference and self.dropout_rate > 0
        out = dot_product_attention(
            q, k, v, mask=mask, is_causal=is_causal,
            dropout_rate=self.dropout_rate if drop else 0.0, dropout_key=key if drop else None,
        )  # fmt: skip
        out = self.out_proj(nnp.reshape(out, (*out.shape[:-2], -1)))
        return out if cache is None else (out, cache)

    def make_cache(self, batch_shape: tuple[int, ...], size: int, dtype: Any = dtypes.float32) -> KVCache:
        """An empty cache for `size` steps."""
        shape = (*batch_shape, size, self.kv_heads, self.k_proj.out_features // self.kv_heads)
        return KVCache(nnp.zeros(shape, dtype), nnp.zeros(shape, dtype), nnp.asarray(0, dtypes.int32))

    def _split(self, x: Value, heads: int) -> Value:
        return nnp.reshape(x, (*x.shape[:-1], heads, x.shape[-1] // heads))


def _extend(cache: KVCache, k: Value, v: Value) -> tuple[KVCache, Value]:
    """The cache with more keys and values, and the mask (T, size) of what the new steps see."""
    size, steps = spec_of(cache.keys).shape[-3], k.shape[-3]
    if spec_of(cache.keys).shape[:-3] != k.shape[:-3] or steps > size:
        raise user_error(
            ShapeError, "MultiHeadAttention", f"{steps} steps do not fit the cache.",
            operands={"keys": spec_of(k), "cache.keys": spec_of(cache.keys)},
            fix="make a cache with the batch axes of the queries and room for all steps: layer.make_cache(batch_shape, size).",
        )  # fmt: skip
    start = (*(0,) * (k.ndim - 3), cache.length, 0, 0)
    keys, values = (
        dynamic_update_slice(old, new.astype(spec_of(old).dtype), start)
        for old, new in ((cache.keys, k), (cache.values, v))
    )
    seen = nnp.arange(size) <= cache.length + nnp.arange(steps)[:, None]
    return KVCache(keys, values, cache.length + steps), seen


class TransformerEncoderLayer(Module):
    """Self-attention and two linear layers, each with a residual connection and a layer norm (Vaswani et al., 2017).

    Args:     hidden_features: between the linear layers; 4 · features by default. norm_first: whether the norms stand before
              attention and linear layers (Xiong et al., 2020), or after the residual sums. dropout_rate: of the weights of
              the attention, of the hidden features, and of what is added to the residuals.
    Example:
        >>> layer = nnc.nn.TransformerEncoderLayer(8, 2, key=nnc.random.key(0), norm_first=True, activation=nnc.nn.gelu)
        >>> layer(np.ones((3, 5, 8), np.float32)).shape
        (3, 5, 8)
    """

    self_attn: MultiHeadAttention
    linear1: Linear
    linear2: Linear
    norm1: LayerNorm
    norm2: LayerNorm
    dropout: Dropout
    activation: Activation = field(static=True)
    norm_first: bool

    @spelled
    def __init__(
        self,
        features: int,
        num_heads: int,
        hidden_features: int | None = None,
        *,
        key: Any,
        activation: Activation = activations.relu,
        norm_first: bool = False,
        dropout_rate: float = 0.0,
        use_bias: bool = True,
        eps: float = 1e-5,
        inference: bool = False,
        dtype: Any = dtypes.float32,
    ) -> None:
        keys = random.split(key, 3)
        hidden = hidden_features or 4 * features
        self.self_attn = MultiHeadAttention(
            features,
            num_heads,
            key=keys[0],
            use_bias=use_bias,
            dropout_rate=dropout_rate,
            inference=inference,
            dtype=dtype,
        )
        self.linear1 = Linear(features, hidden, key=keys[1], use_bias=use_bias, dtype=dtype)
        self.linear2 = Linear(hidden, features, key=keys[2], use_bias=use_bias, dtype=dtype)
        self.norm1, self.norm2 = (LayerNorm(features, eps=eps, use_bias=use_bias, dtype=dtype) for _ in range(2))
        self.dropout = Dropout(dropout_rate, inference)
        self.activation, self.norm_first = activation, norm_first

    def __call__(
        self, x: Any, *, mask: Any = None, is_causal: bool = False, cache: KVCache | None = None, key: Any = None
    ) -> Any:
        """(..., T, features) -> the same shape; the arguments are those of MultiHeadAttention, the cache is returned likewise."""
        run = Run(self, key=key)
        x, cache = self._attend(run, nnp.asarray(x), mask, is_causal, cache)
        x = self._add(x, self.norm2, lambda x: self._feed_forward(run, x))
        return x if cache is None else (x, cache)

    def _attend(
        self, run: Run, x: Value, mask: Any, is_causal: bool, cache: KVCache | None
    ) -> tuple[Value, KVCache | None]:
        """x after the self-attention, and the new cache."""
        found = []

        def attend(x: Value) -> Value:
            out = run.self_attn(x, mask=mask, is_causal=is_causal, cache=cache)
            found.append(None if cache is None else out[1])
            return run.dropout(out if cache is None else out[0])

        return self._add(x, self.norm1, attend), found[0]

    def _feed_forward(self, run: Run, x: Value) -> Value:
        return run.dropout(run.linear2(run.dropout(self.activation(run.linear1(x)))))

    def _add(self, x: Value, norm: LayerNorm, part: Callable[[Value], Value]) -> Value:
        """The residual sum of x and a part of the layer."""
        return x + part(norm(x)) if self.norm_first else norm(x + part(x))


class TransformerDecoderLayer(TransformerEncoderLayer):
    """An encoder layer that, between its two parts, attends to a memory: the output of an encoder (Vaswani et al., 2017).

    The arguments are those of `nnc.nn.TransformerEncoderLayer`.

    Example:
        >>> layer = nnc.nn.TransformerDecoderLayer(8, 2, key=nnc.random.key(0))
        >>> layer(np.ones((3, 5, 8), np.float32), np.ones((3, 7, 8), np.float32), is_causal=True).shape
        (3, 5, 8)
    """

    multihead_attn: MultiHeadAttention
    norm3: LayerNorm

    @spelled
    def __init__(
        self,
        features: int,
        num_heads: int,
        hidden_features: int | None = None,
        *,
        key: Any,
        activation: Activation = activations.relu,
        norm_first: bool = False,
        dropout_rate: float = 0.0,
        use_bias: bool = True,
        eps: float = 1e-5,
        inference: bool = False,
        dtype: Any = dtypes.float32,
    ) -> None:
        keys = random.split(key)
        shared: dict[str, Any] = {
            "use_bias": use_bias,
            "dropout_rate": dropout_rate,
            "inference": inference,
            "dtype": dtype,
        }
        super().__init__(
            features,
            num_heads,
            hidden_features,
            key=keys[0],
            activation=activation,
            norm_first=norm_first,
            eps=eps,
            **shared,
        )
        self.multihead_attn = MultiHeadAttention(features, num_heads, key=keys[1], **shared)
        self.norm3 = LayerNorm(features, eps=eps, use_bias=use_bias, dtype=dtype)

    def __call__(  # type: ignore[override]
        self,
        x: Any,
        memory: Any,
        *,
        mask: Any = None,
        memory_mask: Any = None,
        is_causal: bool = False,
        cache: KVCache | None = None,
        key: Any = None,
    ) -> Any:
        """(..., T, features) and a memory (..., S, features) -> (..., T, features).

        Args:     mask, is_causal, cache: of the self-attention, as in MultiHeadAttention. memory_mask: of the other one.
        """
        run = Run(self, key=key)
        x, cache = self._attend(run, nnp.asarray(x), mask, is_causal, cache)
        x = self._add(x, self.norm2, lambda x: run.dropout(run.multihead_attn(x, memory, mask=memory_mask)))
        x = self._add(x, self.norm3, lambda x: self._feed_forward(run, x))
        return x if cache is None else (x, cache)


class TransformerEncoder(Module):
    """Encoder layers one after the other, and a norm at the end where there is one.

    With `caches`, one for each layer (see MultiHeadAttention.make_cache), the call returns the output and the new caches.

    Example:
        >>> keys = nnc.random.split(nnc.random.key(0), 2)
        >>> model = nnc.nn.TransformerEncoder([nnc.nn.TransformerEncoderLayer(8, 2, key=key) for key in keys])
        >>> model(np.ones((3, 5, 8), np.float32)).shape
        (3, 5, 8)
    """

    layers: Sequence[TransformerEncoderLayer]
    norm: LayerNorm | None = None

    def __call__(
        self,
        x: Any,
        *,
        mask: Any = None,
        is_causal: bool = False,
        caches: Sequence[KVCache] | None = None,
        key: Any = None,
    ) -> Any:
        """(..., T, features) -> the same shape."""
        return _stacked(self, x, (), caches, key, mask=mask, is_causal=is_causal)


class TransformerDecoder(Module):
    """Decoder layers one after the other, and a norm at the end where there is one; otherwise like TransformerEncoder.

    Example:
        >>> keys = nnc.random.split(nnc.random.key(0), 2)
        >>> model = nnc.nn.TransformerDecoder([nnc.nn.TransformerDecoderLayer(8, 2, key=key) for key in keys])
        >>> model(np.ones((3, 5, 8), np.float32), np.ones((3, 7, 8), np.float32)).shape
        (3, 5, 8)
    """

    layers: Sequence[TransformerDecoderLayer]
    norm: LayerNorm | None = None

    def __call__(
        self,
        x: Any,
        memory: Any,
        *,
        mask: Any = None,
        memory_mask: Any = None,
        is_causal: bool = False,
        caches: Sequence[KVCache] | None = None,
        key: Any = None,
    ) -> Any:
        """(..., T, features) and a memory (..., S, features) -> (..., T, features)."""
        return _stacked(self, x, (memory,), caches, key, mask=mask, memory_mask=memory_mask, is_causal=is_causal)


def _stacked(
    module: Any, x: Any, others: tuple[Any, ...], caches: Sequence[KVCache] | None, key: Any, **options: Any
) -> Any:
    run = Run(module, key=key)
    new: list[KVCache] = []
    if caches is not None and len(caches) != len(module.layers):
        raise user_error(
            ArgumentError, type(module).__name__, f"there are {len(caches)} caches for {len(module.layers)} layers.",
            fix="make a cache for each layer: layer.self_attn.make_cache(batch_shape, size).",
        )  # fmt: skip
    for i, layer in enumerate(run.layers):
        if caches is None:
            x = layer(x, *others, **options)
        else:
            x, cache = layer(x, *others, cache=caches[i], **options)
            new.append(cache)
    x = x if module.norm is None else module.norm(x)
    return x if caches is None else (x, new)
