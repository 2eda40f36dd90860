"""The layers of transformers, and stacks of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, overload

from nnc import random
from nnc.array.array import Array
from nnc.base import dtypes
from nnc.calls.spelling import spelled
from nnc.errors import ArgumentError, user_error
from nnc.nn import activations
from nnc.nn.layers import Dropout, Linear
from nnc.nn.module import Module, field
from nnc.nn.multihead import KVCache, MultiHeadAttention
from nnc.nn.norms import LayerNorm
from nnc.nn.running import Run
from nnc.numpy.operands import to_value
from nnc.typing import ArrayLike, DTypeLike

__all__ = ["TransformerDecoder", "TransformerDecoderLayer", "TransformerEncoder", "TransformerEncoderLayer"]

Activation = Callable[..., Any]


class TransformerEncoderLayer(Module):
    """Self-attention and two linear layers, each with a residual connection and a layer norm (Vaswani et al., 2017).

    Args:
        features: size of the last axis.
        num_heads: heads of the attention; divides `features`.
        hidden_features: the features between the linear layers; 4 · features by default.
        key: the key for the weights.
        activation: the function between the two linear layers.
        norm_first: whether the norms stand before attention and linear layers (Xiong et al., 2020), or after the
            residual sums.
        dropout_rate: the dropout rate of the weights of the attention, of the hidden features, and of the terms added to the
            residuals.
        use_bias: whether there is a bias.
        eps: added to the variance.
        inference: whether nothing is dropped.
        dtype: dtype of the weights.

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
        key: ArrayLike,
        activation: Activation = activations.relu,
        norm_first: bool = False,
        dropout_rate: float = 0.0,
        use_bias: bool = True,
        eps: float = 1e-5,
        inference: bool = False,
        dtype: DTypeLike = dtypes.float32,
    ) -> None:
        keys = random.split(key, 3)
        hidden = hidden_features or 4 * features
        drops: dict[str, Any] = {"dropout_rate": dropout_rate, "inference": inference}
        self.self_attn = MultiHeadAttention(features, num_heads, key=keys[0], use_bias=use_bias, dtype=dtype, **drops)
        self.linear1 = Linear(features, hidden, key=keys[1], use_bias=use_bias, dtype=dtype)
        self.linear2 = Linear(hidden, features, key=keys[2], use_bias=use_bias, dtype=dtype)
        self.norm1, self.norm2 = (LayerNorm(features, eps=eps, use_bias=use_bias, dtype=dtype) for _ in range(2))
        self.dropout = Dropout(dropout_rate, inference)
        self.activation, self.norm_first = activation, norm_first

    @overload
    def __call__(
        self, x: ArrayLike, *, mask: ArrayLike | None = None, segment_ids: Any = None, is_causal: bool = False,
        cache: None = None, key: ArrayLike | None = None,
    ) -> Array: ...  # fmt: skip
    @overload
    def __call__(
        self, x: ArrayLike, *, mask: ArrayLike | None = None, segment_ids: Any = None, is_causal: bool = False,
        cache: KVCache, key: ArrayLike | None = None,
    ) -> tuple[Array, KVCache]: ...  # fmt: skip
    def __call__(
        self,
        x: ArrayLike,
        *,
        mask: ArrayLike | None = None,
        segment_ids: Any = None,
        is_causal: bool = False,
        cache: KVCache | None = None,
        key: ArrayLike | None = None,
    ) -> Any:
        """(..., T, features) -> the same shape; the arguments, and the cache that is returned, are those of MultiHeadAttention."""
        run = Run(self, key=key)
        x, cache = self._attend(run, to_value(x, "TransformerEncoderLayer"), mask, segment_ids, is_causal, cache)
        x = self._add(x, self.norm2, lambda x: self._feed_forward(run, x))
        return x if cache is None else (x, cache)

    def _attend(
        self, run: Run, x: Array, mask: Any, segment_ids: Any, is_causal: bool, cache: KVCache | None
    ) -> tuple[Array, KVCache | None]:
        """x after the self-attention, and the new cache."""
        found = []

        def attend(x: Array) -> Array:
            out = run.self_attn(x, mask=mask, segment_ids=segment_ids, is_causal=is_causal, cache=cache)
            found.append(None if cache is None else out[1])
            return run.dropout(out if cache is None else out[0])

        return self._add(x, self.norm1, attend), found[0]

    def _feed_forward(self, run: Run, x: Array) -> Array:
        return run.dropout(run.linear2(run.dropout(self.activation(run.linear1(x)))))

    def _add(self, x: Array, norm: LayerNorm, part: Callable[[Array], Array]) -> Array:
        """Returns the residual sum of x and a part of the layer."""
        return x + part(norm(x)) if self.norm_first else norm(x + part(x))


class TransformerDecoderLayer(TransformerEncoderLayer):
    """An encoder layer that, between its two parts, attends to a memory: the output of an encoder (Vaswani et al., 2017).

    The arguments are those of `nnc.nn.TransformerEncoderLayer`.

    Args:
        features: size of the last axis.
        num_heads: heads of the attentions; divides `features`.
        hidden_features: size between the two linear layers.
        key: the key for the weights.
        activation: the function between the two linear layers.
        norm_first: norm before each part instead of after it.
        dropout_rate: share that is dropped of the attention weights, of the hidden features, and of the terms added to
            the residuals.
        use_bias: whether there is a bias.
        eps: added to the variance.
        inference: whether nothing is dropped.
        dtype: dtype of the weights.

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
        key: ArrayLike,
        activation: Activation = activations.relu,
        norm_first: bool = False,
        dropout_rate: float = 0.0,
        use_bias: bool = True,
        eps: float = 1e-5,
        inference: bool = False,
        dtype: DTypeLike = dtypes.float32,
    ) -> None:
        own, shared = random.split(key)
        drops: dict[str, Any] = {"dropout_rate": dropout_rate, "inference": inference}
        super().__init__(
            features, num_heads, hidden_features, key=shared, activation=activation, norm_first=norm_first,
            use_bias=use_bias, eps=eps, dtype=dtype, **drops,
        )  # fmt: skip
        self.multihead_attn = MultiHeadAttention(features, num_heads, key=own, use_bias=use_bias, dtype=dtype, **drops)
        self.norm3 = LayerNorm(features, eps=eps, use_bias=use_bias, dtype=dtype)

    @overload  # type: ignore[override]
    def __call__(
        self, x: ArrayLike, memory: ArrayLike, *, mask: ArrayLike | None = None, memory_mask: ArrayLike | None = None,
        segment_ids: Any = None, memory_segment_ids: Any = None, is_causal: bool = False,
        cache: None = None, key: ArrayLike | None = None,
    ) -> Array: ...  # fmt: skip
    @overload
    def __call__(
        self, x: ArrayLike, memory: ArrayLike, *, mask: ArrayLike | None = None, memory_mask: ArrayLike | None = None,
        segment_ids: Any = None, memory_segment_ids: Any = None, is_causal: bool = False,
        cache: KVCache, key: ArrayLike | None = None,
    ) -> tuple[Array, KVCache]: ...  # fmt: skip
    def __call__(
        self,
        x: ArrayLike,
        memory: ArrayLike,
        *,
        mask: ArrayLike | None = None,
        memory_mask: ArrayLike | None = None,
        segment_ids: Any = None,
        memory_segment_ids: Any = None,
        is_causal: bool = False,
        cache: KVCache | None = None,
        key: ArrayLike | None = None,
    ) -> Any:
        """(..., T, features) and a memory (..., S, features) -> (..., T, features).

        Args:
            x: (..., T, features).
            memory: (..., S, features).
            mask: the mask of the self-attention: bools that broadcast to (..., heads, T, T), False where nothing is attended
                to.
            memory_mask: the mask of the attention to the memory: bools that broadcast to (..., heads, T, S).
            segment_ids: the segment of each token of x, where sequences are packed (see nnc.nn.dot_product_attention).
            memory_segment_ids: the segment of each token of the memory.
            is_causal: the self-attention masks s > t.
            cache: the cache of the self-attention, as in MultiHeadAttention.
            key: the key for dropout.

        Raises:
            ArgumentError: only one of the two arrays of segments is given.
        """
        if (segment_ids is None) != (memory_segment_ids is None):
            fix = "pass segment_ids and memory_segment_ids, or neither."
            problem = "segments are given of x or of the memory alone."
            raise user_error(ArgumentError, "TransformerDecoderLayer", problem, fix=fix)
        run = Run(self, key=key)
        x, cache = self._attend(run, to_value(x, "TransformerDecoderLayer"), mask, segment_ids, is_causal, cache)
        both = None if segment_ids is None else (segment_ids, memory_segment_ids)
        of_memory: dict[str, Any] = {"mask": memory_mask, "segment_ids": both}
        x = self._add(x, self.norm2, lambda x: run.dropout(run.multihead_attn(x, memory, **of_memory)))
        x = self._add(x, self.norm3, lambda x: self._feed_forward(run, x))
        return x if cache is None else (x, cache)


class TransformerEncoder(Module):
    """Encoder layers one after the other, and a norm at the end where there is one.

    With `caches`, one for each layer (see MultiHeadAttention.make_cache), the call returns the output and the new caches.

    Args:
        layers: the layers, in order.
        norm: a module, or None.

    Example:
        >>> keys = nnc.random.split(nnc.random.key(0), 2)
        >>> model = nnc.nn.TransformerEncoder([nnc.nn.TransformerEncoderLayer(8, 2, key=key) for key in keys])
        >>> model(np.ones((3, 5, 8), np.float32)).shape
        (3, 5, 8)
    """

    layers: Sequence[TransformerEncoderLayer]
    norm: LayerNorm | None = None

    @overload
    def __call__(
        self, x: ArrayLike, *, mask: ArrayLike | None = None, segment_ids: Any = None, is_causal: bool = False,
        caches: None = None, key: ArrayLike | None = None,
    ) -> Array: ...  # fmt: skip
    @overload
    def __call__(
        self, x: ArrayLike, *, mask: ArrayLike | None = None, segment_ids: Any = None, is_causal: bool = False,
        caches: Sequence[KVCache], key: ArrayLike | None = None,
    ) -> tuple[Array, list[KVCache]]: ...  # fmt: skip
    def __call__(
        self,
        x: ArrayLike,
        *,
        mask: ArrayLike | None = None,
        segment_ids: Any = None,
        is_causal: bool = False,
        caches: Sequence[KVCache] | None = None,
        key: ArrayLike | None = None,
    ) -> Any:
        """(..., T, features) -> the same shape."""
        return _stacked(self, x, (), caches, key, mask=mask, is_causal=is_causal, segment_ids=segment_ids)


class TransformerDecoder(Module):
    """Decoder layers one after the other, and a norm at the end where there is one; otherwise like TransformerEncoder.

    Args:
        layers: the layers, in order.
        norm: a module, or None.

    Example:
        >>> keys = nnc.random.split(nnc.random.key(0), 2)
        >>> model = nnc.nn.TransformerDecoder([nnc.nn.TransformerDecoderLayer(8, 2, key=key) for key in keys])
        >>> model(np.ones((3, 5, 8), np.float32), np.ones((3, 7, 8), np.float32)).shape
        (3, 5, 8)
    """

    layers: Sequence[TransformerDecoderLayer]
    norm: LayerNorm | None = None

    @overload
    def __call__(
        self, x: ArrayLike, memory: ArrayLike, *, mask: ArrayLike | None = None, memory_mask: ArrayLike | None = None,
        segment_ids: Any = None, memory_segment_ids: Any = None, is_causal: bool = False,
        caches: None = None, key: ArrayLike | None = None,
    ) -> Array: ...  # fmt: skip
    @overload
    def __call__(
        self, x: ArrayLike, memory: ArrayLike, *, mask: ArrayLike | None = None, memory_mask: ArrayLike | None = None,
        segment_ids: Any = None, memory_segment_ids: Any = None, is_causal: bool = False,
        caches: Sequence[KVCache], key: ArrayLike | None = None,
    ) -> tuple[Array, list[KVCache]]: ...  # fmt: skip
    def __call__(
        self,
        x: ArrayLike,
        memory: ArrayLike,
        *,
        mask: ArrayLike | None = None,
        memory_mask: ArrayLike | None = None,
        segment_ids: Any = None,
        memory_segment_ids: Any = None,
        is_causal: bool = False,
        caches: Sequence[KVCache] | None = None,
        key: ArrayLike | None = None,
    ) -> Any:
        """(..., T, features) and a memory (..., S, features) -> (..., T, features)."""
        options = {"segment_ids": segment_ids, "memory_segment_ids": memory_segment_ids, "is_causal": is_causal}
        return _stacked(self, x, (memory,), caches, key, mask=mask, memory_mask=memory_mask, **options)


def _stacked(
    module: Any,
    x: Any,
    others: tuple[Any, ...],
    caches: Sequence[KVCache] | None,
    key: ArrayLike | None,
    **options: Any,
) -> Any:
    run = Run(module, key=key)
    new: list[KVCache] = []
    options = {name: x for name, x in options.items() if x is not None}
    if caches is not None and len(caches) != len(module.layers):
        problem = f"there are {len(caches)} caches for {len(module.layers)} layers."
        fix = "make a cache for each layer: layer.self_attn.make_cache(batch_shape, size)."
        raise user_error(ArgumentError, type(module).__name__, problem, fix=fix)
    for i, layer in enumerate(run.layers):
        if caches is None:
            x = layer(x, *others, **options)
        else:
            x, cache = layer(x, *others, cache=caches[i], **options)
            new.append(cache)
    x = x if module.norm is None else module.norm(x)
    return x if caches is None else (x, new)
