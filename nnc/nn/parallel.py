"""Layers whose weights are split over the places along a named axis: tensor parallelism (Shoeybi et al., "Megatron-LM", 2019).

`split_weights` says which axes of which weights are split, over which named axis, and their sizes in the whole weight;
`nnc.distributed` reads it. A layer whose weights are whole is the layer that it derives from.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import nnc.numpy as nnp
from nnc import tree
from nnc.array.array import Array, as_value
from nnc.base import dtypes
from nnc.calls.spelling import spelled
from nnc.commands.collective import all_gather_same
from nnc.errors import ArgumentError, user_error
from nnc.nn.layers import Embedding, Linear, affine, check_features
from nnc.nn.module import copy_as
from nnc.nn.multihead import MultiHeadAttention
from nnc.nn.transformer import TransformerDecoderLayer, TransformerEncoderLayer
from nnc.numpy.operands import to_value
from nnc.trace.core.collectives import axis_index, axis_size, psum
from nnc.trace.core.named import check_axis_name, find_axes
from nnc.trace.core.parts import Split
from nnc.typing import A, ArrayLike, DTypeLike

__all__ = ["ColumnParallelLinear", "RowParallelLinear", "VocabParallelEmbedding", "tensor_parallel"]


class _ParallelLinear(Linear):
    """A Linear whose weight is split over the places along a named axis."""

    axis_name: str

    @spelled
    def __init__(
        self, in_features: int, out_features: int, *, axis_name: str, key: ArrayLike, use_bias: bool = True,
        dtype: DTypeLike = dtypes.float32,
    ) -> None:  # fmt: skip
        super().__init__(in_features, out_features, key=key, use_bias=use_bias, dtype=dtype)
        check_axis_name(type(self).__name__, axis_name)
        self.axis_name = axis_name


class ColumnParallelLinear(_ParallelLinear, init=False):
    """A Linear split over a named axis by its results (column parallel): each place computes a part of them.

    Args:
        in_features: size of the last axis before, whole at all places.
        out_features: size of the last axis after, of all places together.
        axis_name: the axis.
        key: the key for the weights, uniform in ±1 / sqrt(in_features).
        use_bias: whether there is a bias.
        dtype: dtype of the weights.

    Example:
        >>> layer = nnc.nn.ColumnParallelLinear(3, 4, axis_name="model", key=nnc.random.key(0))
        >>> nnc.distributed.partition_specs(layer).weight
        PartitionSpec('model', None)
    """

    @property
    def split_weights(self) -> Mapping[str, Split]:
        """The axes of weights that are split."""
        rows = self.axis_name, self.out_features
        return {"weight": (rows, None), "bias": (rows,)}


class RowParallelLinear(_ParallelLinear, init=False):
    """A Linear split over a named axis by its operands (row parallel): the parts' results are added, and whole at all places.

    It comes behind a `ColumnParallelLinear`: the two together add once forwards and once backwards.

    Args:
        in_features: size of the last axis before, of all places together.
        out_features: size of the last axis after.
        axis_name: the axis.
        key: the key for the weights, uniform in ±1 / sqrt(in_features).
        use_bias: whether there is a bias.
        dtype: dtype of the weights.

    Example:
        >>> layer = nnc.nn.RowParallelLinear(4, 3, axis_name="model", key=nnc.random.key(0))
        >>> nnc.distributed.partition_specs(layer).weight
        PartitionSpec(None, 'model')
    """

    def __call__(self, x: ArrayLike) -> Array:
        """(..., part of in_features) -> (..., out_features)."""
        if self.weight.shape[1] == self.in_features:
            return super().__call__(x)
        part = affine(check_features("RowParallelLinear", x, self.weight.shape[1]), self.weight, None)
        total = psum(part, self.axis_name)
        return total if self.bias is None else total + self.bias

    @property
    def split_weights(self) -> Mapping[str, Split]:
        """The axes of weights that are split."""
        return {"weight": (None, (self.axis_name, self.in_features))}


class VocabParallelEmbedding(Embedding):
    """An Embedding whose rows are split over a named axis; results are whole at all places.

    Args:
        num_embeddings: number of rows of all places together.
        features: size of a row.
        axis_name: the axis.
        key: the key for the table, drawn from the normal distribution.
        dtype: dtype of the table.

    Example:
        >>> layer = nnc.nn.VocabParallelEmbedding(10, 4, axis_name="model", key=nnc.random.key(0))
        >>> nnc.distributed.partition_specs(layer).weight
        PartitionSpec('model', None)
    """

    num_embeddings: int
    axis_name: str

    @spelled
    def __init__(
        self, num_embeddings: int, features: int, *, axis_name: str, key: ArrayLike, dtype: DTypeLike = dtypes.float32
    ) -> None:
        super().__init__(num_embeddings, features, key=key, dtype=dtype)
        check_axis_name("VocabParallelEmbedding", axis_name)
        self.num_embeddings, self.axis_name = num_embeddings, axis_name

    def __call__(self, x: ArrayLike) -> Array:
        """Integers of any shape -> (*shape, features)."""
        rows = self.weight.shape[0]
        if rows == self.num_embeddings:
            return super().__call__(x)
        x = to_value(x, "VocabParallelEmbedding")
        x = nnp.where(x < 0, x + self.num_embeddings, x)
        own = x - axis_index(self.axis_name) * rows
        is_own = (own >= 0) & (own < rows)
        exists = (x >= 0) & (x < self.num_embeddings)
        found = nnp.take(self.weight, nnp.where(is_own, own, nnp.where(exists, 0, self.num_embeddings)), axis=0)
        return psum(nnp.where(is_own[..., None], found, 0), self.axis_name)

    def attend(self, x: ArrayLike) -> Array:
        """x · weightᵀ: (..., features) -> (..., num_embeddings), whole at all places.

        Args:
            x: (..., features).
        """
        scores = super().attend(x)
        if self.weight.shape[0] == self.num_embeddings:
            return scores
        (axis,) = find_axes("VocabParallelEmbedding.attend", self.axis_name)
        parts = nnp.moveaxis(all_gather_same(as_value(scores), axis.index, **axis.params), 0, -2)
        return nnp.reshape(parts, (*parts.shape[:-2], self.num_embeddings))

    @property
    def split_weights(self) -> Mapping[str, Split]:
        """The axes of weights that are split."""
        return {"weight": ((self.axis_name, self.num_embeddings), None)}


class ParallelAttention(MultiHeadAttention, init=False):
    """A MultiHeadAttention of whose heads each place along a named axis has a part; `tensor_parallel` makes it.

    Args:
        axis_name: the axis; the other fields are those of MultiHeadAttention.
    """

    axis_name: str

    def _heads(self) -> tuple[int, int]:
        if self.q_proj.weight.shape[0] == self.q_proj.out_features:
            return super()._heads()
        places = axis_size(self.axis_name)
        if self.num_heads % places or self.kv_heads % places:
            problem = f"its heads do not split over the {places} places of {self.axis_name!r}."
            operands = {"num_heads": self.num_heads, "kv_heads": self.kv_heads}
            fix = f"choose multiples of {places}."
            raise user_error(ArgumentError, "ParallelAttention", problem, operands=operands, fix=fix)
        return self.num_heads // places, self.kv_heads // places


@spelled
def tensor_parallel(model: A, axis_name: str) -> A:
    """Returns the model with the weights of its attentions, transformer layers and embeddings split over the places of a named
    axis.

    Heads of attentions, hidden features of transformer layers and rows of embeddings are dealt out. The model computes the same as
    before, with whole weights by itself, and with those of each place within `nnc.distributed.data_parallel` and `shard_map`.

    Args:
        model: a pytree of modules.
        axis_name: the axis.

    Returns:
        the model, in which `ColumnParallelLinear`, `RowParallelLinear` and `VocabParallelEmbedding` stand for layers, with their
        weights.

    Example:
        >>> layer = nnc.nn.TransformerEncoderLayer(8, 2, key=nnc.random.key(0))
        >>> split = nnc.nn.tensor_parallel(layer, "model")
        >>> x = np.ones((3, 5, 8), np.float32)
        >>> bool((layer(x) == split(x)).all())
        True
        >>> nnc.distributed.partition_specs(split).linear2.weight
        PartitionSpec(None, 'model')
    """
    check_axis_name("nnc.nn.tensor_parallel", axis_name)

    def columns(layer: Linear) -> Linear:
        return copy_as(ColumnParallelLinear, layer, axis_name=axis_name)

    def rows(layer: Linear) -> Linear:
        return copy_as(RowParallelLinear, layer, axis_name=axis_name)

    def attention(layer: MultiHeadAttention) -> MultiHeadAttention:
        projections = {name: columns(getattr(layer, name)) for name in ("q_proj", "k_proj", "v_proj")}
        return copy_as(ParallelAttention, layer, **projections, out_proj=rows(layer.out_proj), axis_name=axis_name)

    def split(layer: Any) -> Any:
        if isinstance(layer, MultiHeadAttention):
            return attention(layer)
        if isinstance(layer, TransformerEncoderLayer):
            changes: dict[str, Any] = {"linear1": columns(layer.linear1), "linear2": rows(layer.linear2)}
            if isinstance(layer, TransformerDecoderLayer):
                changes["multihead_attn"] = attention(layer.multihead_attn)
            return layer.replace(self_attn=attention(layer.self_attn), **changes)
        if type(layer) is Embedding:
            return copy_as(VocabParallelEmbedding, layer, axis_name=axis_name, num_embeddings=layer.weight.shape[0])
        return layer

    kinds = MultiHeadAttention, TransformerEncoderLayer, Embedding
    found: A = tree.map(split, model, is_leaf=lambda x: isinstance(x, kinds))
    return found
