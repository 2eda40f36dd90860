"""Vision transformers (Dosovitskiy et al., 2021): images as sequences of patches."""

from __future__ import annotations

from typing import Any

import nnc.numpy as nnp
from nnc import random
from nnc.array.array import Array
from nnc.base import dtypes
from nnc.calls.spelling import spelled
from nnc.errors import ArgumentError, user_error
from nnc.nn.activations import gelu
from nnc.nn.convolution import Conv
from nnc.nn.layers import Dropout, Linear
from nnc.nn.module import Module
from nnc.nn.norms import LayerNorm
from nnc.nn.running import Run
from nnc.nn.transformer import TransformerEncoder, TransformerEncoderLayer
from nnc.typing import ArrayLike, DTypeLike

__all__ = ["ViT", "exact_gelu", "vit_b16", "vit_b32", "vit_l16"]


def exact_gelu(x: ArrayLike) -> Array:
    """gelu by the error function, as in torchvision and the original.

    Args:
        x: any shape.

    Example:
        >>> exact_gelu(nnp.asarray([0.0, 1.0]))
        Array([0.       , 0.8413447], dtype=float32)
    """
    return gelu(x, approximate=False)


class ViT(Module):
    """A linear layer for each patch, a class token, position embeddings, transformer layers, a linear layer on the token.

    Args:
        key: the key for the weights.
        image_size: height and width of the images.
        patch_size: the height and width of the patches, which must divide the images'.
        features: size of the token vectors.
        num_layers: the number of layers of the transformer, whose norms come first.
        num_heads: heads of each layer's attention.
        hidden_features: size of each layer's hidden features.
        num_classes: how many scores there are.
        in_features: number of channels of the input.
        dropout_rate: as for TransformerEncoderLayer.
        dtype: dtype of the weights.

    Example:
        >>> model = nnc.nn.models.ViT(
        ...     key=nnc.random.key(0), image_size=16, patch_size=4, features=8, num_layers=2, num_heads=2, hidden_features=16
        ... )
        >>> model(np.ones((2, 3, 16, 16), np.float32)).shape
        (2, 1000)
    """

    conv_proj: Conv
    class_token: Array
    pos_embedding: Array
    dropout: Dropout
    encoder: TransformerEncoder
    head: Linear

    @spelled
    def __init__(
        self,
        *,
        key: ArrayLike,
        image_size: int = 224,
        patch_size: int = 16,
        features: int = 768,
        num_layers: int = 12,
        num_heads: int = 12,
        hidden_features: int = 3072,
        num_classes: int = 1000,
        in_features: int = 3,
        dropout_rate: float = 0.0,
        dtype: DTypeLike = dtypes.float32,
    ) -> None:
        if image_size % patch_size:
            problem = f"patch_size={patch_size} does not divide image_size={image_size}."
            raise user_error(ArgumentError, "ViT", problem, fix="choose sizes of which one divides the other.")
        keys = random.split(key, num_layers + 3)
        self.conv_proj = Conv(in_features, features, patch_size, key=keys[0], stride=patch_size, dtype=dtype)
        self.class_token = nnp.zeros((1, 1, features), dtype)
        tokens = (image_size // patch_size) ** 2 + 1
        self.pos_embedding = random.normal(keys[1], (1, tokens, features), dtype) * 0.02
        self.dropout = Dropout(dropout_rate)
        layers = tuple(
            TransformerEncoderLayer(
                features, num_heads, hidden_features, key=layer_key, activation=exact_gelu, norm_first=True,
                dropout_rate=dropout_rate, eps=1e-6, dtype=dtype,
            )
            for layer_key in keys[3:]
        )  # fmt: skip
        self.encoder = TransformerEncoder(layers, LayerNorm(features, eps=1e-6, dtype=dtype))
        self.head = Linear(features, num_classes, key=keys[2], dtype=dtype)

    def __call__(self, x: ArrayLike, *, key: ArrayLike | None = None) -> Array:
        """(N, in_features, image_size, image_size) -> (N, num_classes)."""
        run = Run(self, key=key)
        patches = run.conv_proj(x)
        patches = nnp.swapaxes(nnp.reshape(patches, (*patches.shape[:-2], -1)), -1, -2)
        token = nnp.broadcast_to(self.class_token, (patches.shape[0], *self.class_token.shape[1:]))
        out = run.encoder(run.dropout(nnp.concatenate([token, patches], axis=1) + self.pos_embedding))
        return run.head(out[:, 0])


def vit_b16(**options: Any) -> ViT:
    """ViT-B/16: 86,567,656 parameters with 1000 classes. The options are those of ViT, of which key= is needed.

    Args:
        **options: the options of ViT.

    Example:
        >>> model = nnc.eval_shape(lambda key: vit_b16(num_classes=10, key=key), nnc.random.key(0))
        >>> sum(leaf.size for leaf in nnc.tree.leaves(model))
        85806346
    """
    return ViT(**options)


def vit_b32(**options: Any) -> ViT:
    """ViT-B/32: 88,224,232 parameters with 1000 classes. The options are those of ViT, of which key= is needed.

    Args:
        **options: the options of ViT.

    Example:
        >>> model = nnc.eval_shape(lambda key: vit_b32(num_classes=10, key=key), nnc.random.key(0))
        >>> sum(leaf.size for leaf in nnc.tree.leaves(model))
        87462922
    """
    return ViT(**{"patch_size": 32, **options})


def vit_l16(**options: Any) -> ViT:
    """ViT-L/16: 304,326,632 parameters with 1000 classes. The options are those of ViT, of which key= is needed.

    Args:
        **options: the options of ViT.

    Example:
        >>> model = nnc.eval_shape(lambda key: vit_l16(num_classes=10, key=key), nnc.random.key(0))
        >>> sum(leaf.size for leaf in nnc.tree.leaves(model))
        303311882
    """
    return ViT(**{"features": 1024, "num_layers": 24, "num_heads": 16, "hidden_features": 4096, **options})
